//! What is said about the parts of a step that is no call of a tool.

use super::check;

#[test]
fn decisions() {
    check(
        "- { id: a, decision: [] }",
        &["3:24: steps[0].decision: there are no ways to choose from; write at least { when: …, then: […] }"],
    );
    check("- { id: a, decision: { when: x } }", &["3:24: steps[0].decision: found a map; expected a list, as in [a, b]"]);
    check(
        r#"- id: a
  decision:
    - { else: [b] }
    - { when: "true", then: [b] }
- { id: b, tool: t }"#,
        &["5:11: steps[0].decision[0].else: else is taken whenever it is reached, so nothing may follow it"],
    );
    check(
        r#"- id: a
  decision:
    - { when: "true" }
    - { then: [b] }
    - { else: [b], then: [b] }
- { id: b, tool: t }"#,
        &[
            r#"5:9: steps[0].decision[0]: "then" is missing"#,
            r#"6:9: steps[0].decision[1]: "when" is missing; what is to run otherwise is written as { else: [ids] }"#,
            "7:22: steps[0].decision[2].then: what is to run otherwise is written as { else: [ids] }, without then",
        ],
    );
    check(
        r#"- id: a
  decision: [{ when: "${input.x}", then: [] }, { when: "input.x >", then: [] }, {}]"#,
        &[
            r#"4:24: steps[0].decision[0].when: an expression is written here without ${ }; did you mean "input.x"?"#,
            "4:58: steps[0].decision[1].when: not a CEL expression: it ends too early (after 9 bytes)",
            "4:83: steps[0].decision[2]: one of when, else is missing",
        ],
    );
}

#[test]
fn parallels() {
    check(
        "- { id: a, parallel: { join: some, branches: [[{ id: b, tool: t }]] } }",
        &[r#"3:32: steps[0].parallel.join: found the text "some"; expected all, any or { n: 2 }"#],
    );
    check(
        "- { id: a, parallel: { join: 2, branches: [[{ id: b, tool: t }]] } }",
        &[r#"3:32: steps[0].parallel.join: found the number 2; expected all, any or { n: 2 }; did you mean "{ n: 2 }"?"#],
    );
    check(
        "- { id: a, parallel: { join: { n: 3 }, branches: [[{ id: b, tool: t }]] } }",
        &["3:32: steps[0].parallel.join: it waits for 3 branches, and there are 1"],
    );
    check(
        "- { id: a, parallel: { join: { n: 0 }, branches: [{ id: b, tool: t }] } }",
        &[
            "3:37: steps[0].parallel.join.n: found the number 0; expected a whole number, at least 1",
            "3:53: steps[0].parallel.branches[0]: found a map; expected a list, as in [a, b]",
        ],
    );
    check("- { id: a, parallel: { branches: [] } }", &["3:5: steps[0]: it has no steps inside"]);
    check("- { id: a, parallel: {} }", &[r#"3:14: steps[0].parallel: "branches" is missing"#]);
    check(
        "- { id: a, parallel: { branches: [[], [{ id: b }]] } }",
        &[
            "3:5: steps[0]: it has no steps inside",
            "3:42: steps[0].parallel.branches[1][0]: one of tool, decision, parallel, map, scope, sleep, wait, call is missing",
        ],
    );
    check("- { id: a, parallel: [[{ id: b, tool: t }]] }", &["3:24: steps[0].parallel: found a list; expected a map of join, branches"]);
}

#[test]
fn maps_and_scopes() {
    check(
        "- { id: a, map: { over: input.items, steps: [{ id: b, tool: t }] } }",
        &[
            r#"3:27: steps[0].map.over: found the text "input.items"; expected a list, or an expression that gives one, as in "${input.items}""#,
        ],
    );
    check(
        r#"- { id: a, map: { over: "a-${input.x}", as: steps, concurrency: 2000, steps: [{ id: b, tool: t }] } }"#,
        &[
            r#"3:27: steps[0].map.over: found the text "a-${input.x}"; expected a list, or an expression that gives one, as in "${input.items}""#,
            "3:47: steps[0].map.as: steps has a meaning of its own in expressions; choose another name for the item",
            "3:67: steps[0].map.concurrency: 2000 at once are too many; at most 1000",
        ],
    );
    check(
        "- { id: a, map: { over: 5, as: a-b, concurrency: 0, steps: [] } }",
        &[
            "3:5: steps[0]: it has no steps inside",
            r#"3:27: steps[0].map.over: found the number 5; expected a list, or an expression that gives one, as in "${input.items}""#,
            r#"3:34: steps[0].map.as: "a-b" cannot be the name of a variable; write letters, digits and underscores"#,
            "3:52: steps[0].map.concurrency: found the number 0; expected a whole number, at least 1",
        ],
    );
    check(
        "- { id: a, map: { as: in } }",
        &[
            r#"3:14: steps[0].map: "over" is missing"#,
            r#"3:14: steps[0].map: "steps" is missing"#,
            r#"3:25: steps[0].map.as: "in" cannot be the name of a variable; write letters, digits and underscores"#,
        ],
    );
    check(
        "- { id: a, scope: { steps: [], budget: { effect: 3 } } }",
        &[
            "3:5: steps[0]: it has no steps inside",
            r#"3:34: steps[0].scope.budget: "effects" is missing"#,
            r#"3:44: steps[0].scope.budget.effect: unknown field; did you mean "effects"?"#,
        ],
    );
    check("- { id: a, scope: [{ id: b, tool: t }] }", &["3:21: steps[0].scope: found a list; expected a map of steps, budget, tools"]);
}

#[test]
fn waits_and_calls() {
    check(
        "- { id: a, sleep: 10 }",
        &[
            r#"3:21: steps[0].sleep: "10" has no unit; a duration is a whole number and a unit: 500ms, 10s, 5m, 24h, 7d; did you mean "10s"?"#,
        ],
    );
    check(
        r#"- { id: a, sleep: "in ${input.x}" }"#,
        &[r#"3:21: steps[0].sleep: a sleep is a duration, as in 10m, or one expression that gives it, as in "${input.pause}""#],
    );
    check("- { id: a, wait: {} }", &["3:14: steps[0].wait: one of signal, approval is missing"]);
    check(
        "- { id: a, wait: { signal: x, approval: y } }",
        &["3:33: steps[0].wait.approval: signal is already written; exactly one of signal, approval may be"],
    );
    check(
        r#"- { id: a, timeout: 1h, wait: { signal: "a b", otherwise: [] } }"#,
        &[
            "3:14: steps[0].timeout: how long is waited is written inside wait, as in wait: { …, timeout: 24h }",
            "3:43: steps[0].wait.signal: a signal is named by 1 to 255 letters, digits, '_', '-' and '.'",
            "3:50: steps[0].wait.otherwise: without a timeout the signal is waited for until it comes; add timeout, or drop otherwise",
        ],
    );
    check(
        r#"- { id: a, wait: { approval: " ", correlation: x, timeout: 0s } }"#,
        &[
            "3:32: steps[0].wait.approval: what is to be approved? write it for the person who is asked",
            "3:37: steps[0].wait.correlation: correlation is for a signal; an approval belongs to this step of this run",
            "3:62: steps[0].wait.timeout: found 0; expected a duration above zero",
        ],
    );
    check(
        "- { id: a, wait: 1h }",
        &[r#"3:20: steps[0].wait: found the text "1h"; expected a map of signal, correlation, approval, timeout, then, …"#],
    );
    check("- { id: a, call: {} }", &[r#"3:14: steps[0].call: "workflow" is missing"#]);
    check(
        r#"- { id: a, call: { workflow: "", inputs: {} } }"#,
        &["3:32: steps[0].call.workflow: workflow name is empty", r#"3:36: steps[0].call.inputs: unknown field; did you mean "input"?"#],
    );
}
