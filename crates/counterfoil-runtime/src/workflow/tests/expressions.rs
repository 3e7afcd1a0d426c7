//! What expressions may refer to, and what is said where they may not.

use super::{check, parse};

#[test]
fn variables() {
    check(
        r#"- { id: a, tool: t, args: { x: "${env.HOME}", y: "${args.x}", z: "${index}", w: "${result}" } }"#,
        &[
            "3:34: steps[0].args.x: a workflow sees no environment, because a run must give the same on every machine; put it into the tool",
            "3:52: steps[0].args.y: args is not known here: it is the step's own, in its undo.args; allowed: input, run, steps",
            "3:68: steps[0].args.z: index is not known here: it is there inside a map; allowed: input, run, steps",
            "3:83: steps[0].args.w: result is not known here: it is the step's own, in its undo.args; allowed: input, run, steps",
        ],
    );
    check(
        r#"- { id: flight, tool: t }
- { id: b, tool: t, args: { x: "${flight.result}", y: "${imput.x}", z: "${other}" } }"#,
        &[
            r#"4:34: steps[1].args.x: there is no variable flight here; did you mean "steps.flight"?"#,
            r#"4:57: steps[1].args.y: there is no variable imput here; did you mean "input"?"#,
            "4:74: steps[1].args.z: there is no variable other here; allowed: input, run, steps",
        ],
    );
    check(
        r#"- id: m
  map: { over: [1], as: row, steps: [{ id: a, tool: t, args: { x: "${rwo}", y: "${item}", z: "${row + index}" } }] }
- { id: b, tool: t, args: { x: "${row}" } }"#,
        &[
            r#"4:69: steps[0].map.steps[0].args.x: there is no variable rwo here; did you mean "row"?"#,
            "4:82: steps[0].map.steps[0].args.y: there is no variable item here; allowed: input, run, steps, row, index",
            "5:34: steps[1].args.x: there is no variable row here; allowed: input, run, steps",
        ],
    );
    check(
        r#"- { id: a, tool: t, undo: { tool: u, args: { x: "${args.x}", y: "${result.id}", z: "${reslt}", w: "${steps.a.result}" } } }"#,
        &[
            r#"3:86: steps[0].undo.args.z: there is no variable reslt here; did you mean "result"?"#,
            "3:101: steps[0].undo.args.w: the step itself is not in steps: what it gave is result",
        ],
    );
    check(
        r#"- { id: m, map: { over: "${item}", steps: [{ id: a, tool: t }] } }"#,
        &["3:27: steps[0].map.over: there is no variable item here; allowed: input, run, steps"],
    );
}

#[test]
fn steps_that_have_ended() {
    check(
        r#"- { id: flight, tool: t }
- { id: b, tool: t, args: { x: "${steps.flihgt.result}", y: "${steps['nobody'].result}" } }"#,
        &[
            r#"4:34: steps[1].args.x: there is no step "flihgt"; did you mean "steps.flight"?"#,
            r#"4:63: steps[1].args.y: there is no step "nobody""#,
        ],
    );
    check(
        r#"- { id: a, tool: t }
- { id: b, needs: [], tool: t, args: { x: "${steps.a.result}" } }"#,
        &["4:45: steps[1].args.x: step a may not have ended when this is evaluated: add it to needs"],
    );
    check(
        r#"- { id: a, tool: t, args: { x: "${steps.b.result}", y: "${steps.a.result}" } }
- { id: b, tool: t }"#,
        &[
            "3:34: steps[0].args.x: step b begins only after this one has ended",
            "3:58: steps[0].args.y: step a cannot see itself: it has not ended when this is evaluated",
        ],
    );
    check(
        r#"- { id: m, map: { over: [1], steps: [{ id: a, tool: t }, { id: b, tool: t, args: { x: "${steps.a.result}", y: "${steps.m.result}" } }] } }
- { id: c, tool: t, args: { x: "${steps.a.result}", y: "${steps.m.result}" } }"#,
        &[
            "3:113: steps[0].map.steps[1].args.y: step m has not ended when this is evaluated: this step is inside of it",
            "4:34: steps[1].args.x: a is inside the map m: there is one per item; use steps.m.result",
        ],
    );
    check(
        r#"- id: p
  parallel:
    branches:
      - [{ id: a, tool: t }]
      - [{ id: b, tool: t, args: { x: "${steps.a.result}" } }]
- { id: c, tool: t, args: { x: "${steps.a.result}" } }
- { id: d, needs: [], tool: t, args: { x: "${steps.a.result}" } }"#,
        &[
            "7:41: steps[0].parallel.branches[1][0].args.x: step a is in another branch: neither waits for the other",
            "9:45: steps[2].args.x: step a may not have ended when this is evaluated: add p to the needs of d",
        ],
    );
    check(
        r#"- { id: a, tool: t }
- { id: s, needs: [], scope: { steps: [{ id: b, tool: t, args: { x: "${steps.a.result}" } }] } }"#,
        &["4:71: steps[1].scope.steps[0].args.x: step a may not have ended when this is evaluated: add a to the needs of s"],
    );
    check(
        r#"- { id: a, tool: t }
- { id: b, tool: t, args: { x: "${steps}", y: "${steps[input.x].result}", z: "${[1].map(steps, steps.x)}" } }"#,
        &[
            "4:34: steps[1].args.x: steps alone says nothing about which of them must have ended: name the step, as in steps.X",
            "4:49: steps[1].args.y: steps alone says nothing about which of them must have ended: name the step, as in steps.X",
        ],
    );
    check(
        r#"- id: m
  map: { over: [1], steps: [{ id: n, map: { over: [1], steps: [{ id: a, tool: t }] } }] }
- { id: c, tool: t, args: { x: "${steps.a.result}" } }"#,
        &["5:34: steps[1].args.x: a is inside the map m: there is one per item; use steps.m.result"],
    );
    check(
        r#"- { id: a, tool: t }
- { id: c, decision: [{ when: "steps.aa.result", then: [] }] }
- { id: d, wait: { approval: "${steps.e}" } }
- { id: e, sleep: "${steps.e.result}" }"#,
        &[
            r#"4:33: steps[1].decision[0].when: there is no step "aa"; did you mean "steps.a"?"#,
            "5:32: steps[2].wait.approval: step e begins only after this one has ended",
            "6:21: steps[3].sleep: step e cannot see itself: it has not ended when this is evaluated",
        ],
    );
}

#[test]
fn output() {
    let whole = |text: &str, expected: &[&str]| assert_eq!(parse(text).unwrap_err(), expected, "\n{text}");
    whole(
        r#"workflow: w
steps:
  - { id: m, map: { over: [1], steps: [{ id: a, tool: t }] } }
  - { id: s, needs: [], scope: { steps: [{ id: b, tool: t }] } }
output:
  fine: "${steps.b.result} ${steps.m.result}"
  inside: "${steps.a.result}"
  nobody: "${steps.x.result}"
  env: "${env.X}"
  item: "${item}""#,
        &[
            "7:11: output.inside: a is inside the map m: there is one per item; use steps.m.result",
            r#"8:11: output.nobody: there is no step "x""#,
            "9:8: output.env: a workflow sees no environment, because a run must give the same on every machine; put it into the tool",
            "10:9: output.item: there is no variable item here; allowed: input, run, steps",
        ],
    );
}
