//! One mistake at a time: the line that is said about it.

use super::{check, parse};

#[test]
fn the_top() {
    let whole = |text: &str, expected: &[&str]| assert_eq!(parse(text).unwrap_err(), expected, "\n{text}");
    whole("", &[r#"1:1: "workflow" is missing"#, r#"1:1: "steps" is missing"#]);
    whole("workflow: w", &[r#"1:1: "steps" is missing"#]);
    whole(
        r#"workflow: "a b"
steps: []"#,
        &[
            r#"1:11: workflow: workflow name "a b" contains ' ' at byte 1; letters, digits, '_', '-', '.' and '/' only"#,
            "2:8: steps: there are no steps; a workflow has at least one",
        ],
    );
    whole("just words", &[r#"1:1: found the text "just words"; expected a map of workflow, description, input, steps, output, …"#]);
    whole("workflow: w\nsteps: { a: 1 }", &["2:8: steps: found a map; expected a list, as in [a, b]"]);
    whole(
        "workflow: w\nstep:\n  - { id: a, tool: t }",
        &[r#"1:1: "steps" is missing"#, r#"2:1: step: unknown field; did you mean "steps"?"#],
    );
    whole(
        r#"workflow: w
timeout: 10
retain: 0s
budget: 5
tools: [a, a, "b c"]
steps: [{ id: a, tool: zzz }]"#,
        &[
            r#"2:10: timeout: "10" has no unit; a duration is a whole number and a unit: 500ms, 10s, 5m, 24h, 7d; did you mean "10s"?"#,
            "3:9: retain: found 0; expected a duration above zero",
            "4:9: budget: found the number 5; expected a map of effects",
            r#"5:12: tools[1]: "a" is listed twice"#,
            r#"5:15: tools[2]: tool name "b c" contains ' ' at byte 1; letters, digits, '_', '-', '.' and '/' only"#,
        ],
    );
    whole(
        r#"workflow: w
budget: { effects: -1 }
input: { type: objct }
output: "${x}"
steps: [{ id: a, tool: t }]"#,
        &[
            "2:20: budget.effects: found the number -1; expected a whole number, at least 0",
            r#"3:16: input.type: "objct" is not a type; did you mean "object"?"#,
            "4:9: output: there is no variable x here; allowed: input, run, steps",
        ],
    );
    whole(
        "workflow: w\nsubject: steps.a.result + run.id\nsteps: [{ id: a, tool: t }]",
        &[
            "2:10: subject: there is no `run` here: whom a run is about is known before it begins, from its `input` alone",
            "2:10: subject: there is no `steps` here: whom a run is about is known before it begins, from its `input` alone",
        ],
    );
    whole(
        "workflow: w\nsteps: [{ id: a, tool: t }]\n---\nworkflow: v",
        &["3:1: a second document (---) starts here; a workflow file has one"],
    );
}

#[test]
fn steps() {
    check("- { tool: t }", &[r#"3:5: steps[0]: "id" is missing"#]);
    check("- tool: t\n  id: 5", &[r#"4:9: steps[0].id: found the number 5; expected a text: put it in quotes, "5""#]);
    check("- just words", &[r#"3:5: steps[0]: found the text "just words"; expected a map of id, needs, timeout, on_failure, tool, …"#]);
    check("- { id: a }", &["3:5: steps[0]: one of tool, decision, parallel, map, scope, sleep, wait, call is missing"]);
    check(
        "- { id: a, tool: t, sleep: 1s }",
        &["3:23: steps[0].sleep: tool is already written; exactly one of tool, decision, parallel, map, scope, sleep, wait, call may be"],
    );
    check(
        "- { id: a, tol: t }",
        &[
            "3:5: steps[0]: one of tool, decision, parallel, map, scope, sleep, wait, call is missing",
            r#"3:14: steps[0].tol: unknown field; did you mean "tool"?"#,
        ],
    );
    check(
        "- { id: a, tool: t, timeout: 10, on_failure: ignore }",
        &[
            r#"3:32: steps[0].timeout: "10" has no unit; a duration is a whole number and a unit: 500ms, 10s, 5m, 24h, 7d; did you mean "10s"?"#,
            r#"3:48: steps[0].on_failure: found the text "ignore"; expected one of fail, continue"#,
        ],
    );
    check("- { id: a, tool: t, needs: b }", &[r#"3:30: steps[0].needs: found the text "b"; expected a list, as in [a, b]"#]);
    check(
        "- { id: a, tool: t, over: [1], signal: x, input: {}, budget: {}, join: any }",
        &[
            r#"3:23: steps[0].over: unknown field; did you mean "map.over"?"#,
            r#"3:34: steps[0].signal: unknown field; did you mean "wait.signal"?"#,
            r#"3:45: steps[0].input: unknown field; did you mean "call.input"?"#,
            r#"3:56: steps[0].budget: unknown field; did you mean "scope.budget"?"#,
            r#"3:68: steps[0].join: unknown field; did you mean "parallel.join"?"#,
        ],
    );
    check(
        "- { id: a, sleep: 1s, args: {}, retry: off, undo: { tool: t, args: {} }, confirm: never }",
        &[
            "3:25: steps[0].args: args is for a step with tool; this one has sleep",
            "3:35: steps[0].retry: retry is for a step with tool; this one has sleep",
            "3:47: steps[0].undo: undo is for a step with tool; this one has sleep",
            "3:76: steps[0].confirm: confirm is for a step with tool; this one has sleep",
        ],
    );
    check(
        "- { id: a, call: { workflow: w }, args: {} }",
        &[
            "3:37: steps[0].args: args is for a step with tool; what a workflow is called with is written as call: { workflow: …, input: {…} }",
        ],
    );
}

#[test]
fn tools() {
    check(
        r#"- { id: a, tool: "x y" }"#,
        &[r#"3:20: steps[0].tool: tool name "x y" contains ' ' at byte 1; letters, digits, '_', '-', '.' and '/' only"#],
    );
    check(
        "- { id: a, tool: t, retry: { attempts: 0 }, confirm: sometimes }",
        &[
            "3:42: steps[0].retry.attempts: 0 attempts would never run the tool: attempts counts the first one too; for no retries write retry: off",
            r#"3:56: steps[0].confirm: found the text "sometimes"; expected one of never, on_recovery, always"#,
        ],
    );
    check("- { id: a, tool: t, undo: { tool: u } }", &[r#"3:23: steps[0].undo: "args" is missing"#]);
    check(
        "- { id: a, tool: t, undo: { args: {}, retrys: 3 } }",
        &[r#"3:23: steps[0].undo: "tool" is missing"#, r#"3:41: steps[0].undo.retrys: unknown field; did you mean "retry"?"#],
    );
    check(
        r#"- id: a
  tool: t
  args:
    ok: 1
    "${input.x}": 2
    list:
      - "${input."
      - "${inptu.x}""#,
        &[
            "7:7: steps[0].args.${input.x}: a name cannot hold an expression, only a value can",
            "9:11: steps[0].args.list[0]: `${` is never closed by `}`; write `$${` for a literal one (after 0 bytes)",
            r#"10:11: steps[0].args.list[1]: there is no variable inptu here; did you mean "input"?"#,
        ],
    );
}

#[test]
fn allow_lists() {
    let whole = |text: &str, expected: &[&str]| assert_eq!(parse(text).unwrap_err(), expected, "\n{text}");
    whole(
        r"workflow: w
tools: [good, undo]
steps:
  - { id: a, tool: goood, undo: { tool: und, args: {} } }
  - id: s
    scope:
      tools: [good, other]
      steps:
        - { id: b, tool: good, undo: { tool: undo, args: {} } }
        - { id: c, tool: other }
        - { id: d, tool: fine }",
        &[
            r#"4:20: steps[0].tool: the tool "goood" is not in tools of the workflow; did you mean "good"?"#,
            r#"4:41: steps[0].undo.tool: the tool "und" is not in tools of the workflow; did you mean "undo"?"#,
            r#"9:46: steps[1].scope.steps[0].undo.tool: the tool "undo" is not in tools of the scope "s"; allowed: good, other"#,
            r#"10:26: steps[1].scope.steps[1].tool: the tool "other" is not in tools of the workflow; allowed: good, undo"#,
            r#"11:26: steps[1].scope.steps[2].tool: the tool "fine" is not in tools of the scope "s"; allowed: good, other"#,
            r#"11:26: steps[1].scope.steps[2].tool: the tool "fine" is not in tools of the workflow; allowed: good, undo"#,
        ],
    );
}
