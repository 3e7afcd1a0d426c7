//! What is wrong with how steps stand to each other, and what is not said because a step could not be read.

use super::{check, parse};

#[test]
fn the_plan() {
    check(
        r"- { id: flight, tool: t }
- { id: hotel, needs: [flihgt], tool: t }",
        &[r#"4:26: steps[1].needs[0]: it needs "flihgt", and there is no such step beside it; did you mean "flight"?"#],
    );
    check(
        r"- { id: a-b, tool: t }
- { id: a, tool: t }
- { id: a, tool: t }",
        &[
            "3:11: steps[0].id: its id must be 1 to 48 letters, digits and underscores, and not begin with a digit",
            "5:11: steps[2].id: there is another step with this id, in line 4",
        ],
    );
    check("- { id: a, needs: [b], tool: t }\n- { id: b, tool: t }", &["3:21: steps[0].needs: it waits for itself: a needs b needs a"]);
    check(
        r"- id: a
  needs: [a, c]
  tool: t
- { id: s, scope: { steps: [{ id: c, tool: t }] } }
- { id: d, needs: [s, s], tool: t }",
        &[
            r#"4:16: steps[0].needs[1]: it needs "c", which is inside another step: need that step instead"#,
            r#"7:22: steps[2].needs[0]: it needs "s" twice"#,
        ],
    );
    check(
        r#"- id: choose
  decision:
    - { when: "true", then: [flght, inner] }
    - { else: [alone] }
- { id: flight, tool: t }
- { id: s, scope: { steps: [{ id: inner, tool: t }] } }
- { id: alone, needs: [], tool: t }"#,
        &[
            r#"5:32: steps[0].decision[0].then[0]: it names "flght" as a step that is to run, and there is no such step beside it; did you mean "flight"?"#,
            r#"5:39: steps[0].decision[0].then[1]: it names "inner" as a step that is to run, and there is no such step beside it"#,
            r#"6:18: steps[0].decision[1].else[0]: it names "alone" as a step that is to run, and "alone" does not need it: add "choose" to the needs of "alone""#,
        ],
    );
    check(
        r"- { id: w, wait: { approval: x, then: [payy], otherwise: [w] } }
- { id: pay, tool: t }",
        &[
            r#"3:42: steps[0].wait.then[0]: it names "payy" as a step that is to run, and there is no such step beside it; did you mean "pay"?"#,
            "3:61: steps[0].wait.otherwise[0]: it names itself as a step that is to run",
        ],
    );
}

#[test]
fn too_deep() {
    check(
        r"- { id: s1, scope: { steps: [{ id: s2, scope: { steps: [{ id: s3, scope: { steps: [{ id: s4, scope: { steps: [{ id: s5, scope: { steps: [{ id: s6, scope: { steps: [{ id: s7, scope: { steps: [{ id: s8, scope: { steps: [{ id: s9, scope: { steps: [{ id: x, tool: t }] } }] } }] } }] } }] } }] } }] } }] } }] } }
- { id: x, needs: [y], tool: t }",
        &[
            "3:221: steps[0].scope.steps[0].scope.steps[0].scope.steps[0].scope.steps[0].scope.steps[0].scope.steps[0].scope.steps[0].scope.steps[0]: it is 9 steps deep inside others; at most 8 are allowed",
        ],
    );
}

#[test]
fn no_nonsense() {
    let whole = |text: &str, expected: &[&str]| assert_eq!(parse(text).unwrap_err(), expected, "\n{text}");
    check(
        r#"- { tool: t }
- { id: b, needs: [first], tool: t, args: { of: "${steps.first.result}" } }"#,
        &[r#"3:5: steps[0]: "id" is missing"#],
    );
    check(
        r#"- { id: a, parallell: { branches: [[{ id: b, tool: t }]] } }
- { id: c, tool: t, args: { of: "${steps.b.result}" } }"#,
        &[
            "3:5: steps[0]: one of tool, decision, parallel, map, scope, sleep, wait, call is missing",
            r#"3:14: steps[0].parallell: unknown field; did you mean "parallel"?"#,
        ],
    );
    check(
        r#"- { id: a, scope: { steps: 5 } }
- { id: c, needs: [a], tool: t, args: { of: "${steps.b.result}", x: "${y}" } }"#,
        &[
            "3:30: steps[0].scope.steps: found the number 5; expected a list, as in [a, b]",
            "4:71: steps[1].args.x: there is no variable y here; allowed: input, run, steps",
        ],
    );
    check(
        r#"- { id: a, tool: t }
- { id: b, needs: a, tool: t }
- { id: c, needs: [], tool: t, args: { of: "${steps.a.result}", x: "${steps.d.result}" } }"#,
        &[r#"4:21: steps[1].needs: found the text "a"; expected a list, as in [a, b]"#, r#"5:70: steps[2].args.x: there is no step "d""#],
    );
    check(
        r"- { id: a, tool: t, timeout: 5 }
- { id: b, needs: [c], tool: t }",
        &[
            r#"3:32: steps[0].timeout: "5" has no unit; a duration is a whole number and a unit: 500ms, 10s, 5m, 24h, 7d; did you mean "5s"?"#,
            r#"4:22: steps[1].needs[0]: it needs "c", and there is no such step beside it"#,
        ],
    );
    check(
        r"- { id: a, needs: [b, 5], tool: t }
- { id: b, needs: [a], tool: t }",
        &[r#"3:25: steps[0].needs[1]: found the number 5; expected a text: put it in quotes, "5""#],
    );
    check(
        r#"- *nothing
- { id: b, tool: t, args: { of: "${steps.a}" } }"#,
        &["3:5: steps[0]: no anchor &nothing was written above this alias; quote a text that begins with *"],
    );
    whole(
        r#"workflow: w
steps:
  - { id: a, tool: t }
  - { id: b, needs: [d], tool: t, args: { of: "${steps.d.result}" }, tool: u }
  - just words"#,
        &[
            "4:70: steps[1].tool: duplicate key; it was first written in line 4",
            r#"5:5: steps[2]: found the text "just words"; expected a map of id, needs, timeout, on_failure, tool, …"#,
        ],
    );
}
