//! Long files are read in a time that grows with their length.

use std::time::{Duration, Instant};

use super::{good, parse};
use crate::workflow::ended::Ended;

const STEPS: usize = 10_000;

fn steps(step: impl Fn(usize) -> String) -> String {
    let steps: String = (0..STEPS).map(|i| format!("  - {{ {} }}\n", step(i))).collect();
    format!("workflow: long\nsteps:\n{steps}")
}

/// Generous, for builds that are not optimised and machines that are busy; the square of the length would take minutes.
fn quickly<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let done = work();
    let took = started.elapsed();
    assert!(took < Duration::from_secs(20), "{what}: {took:?}");
    done
}

#[test]
fn ten_thousand_steps() {
    let chain = steps(|i| format!("id: s{i}, tool: make_item, args: {{ n: {i} }}"));
    assert_eq!(quickly("a chain", || good(&chain)).steps.len(), STEPS);
    let each_sees_the_last = steps(|i| match i {
        0 => "id: s0, tool: t".into(),
        _ => format!("id: s{i}, tool: t, args: {{ of: \"${{steps.s{}.result}}\" }}", i - 1),
    });
    quickly("each sees the one above", || good(&each_sees_the_last));
    let all_see_the_first = steps(|i| match i {
        0 => "id: s0, tool: t".into(),
        _ => format!("id: s{i}, needs: [s{}], tool: t, args: {{ of: \"${{steps.s0.result}}\" }}", i - 1),
    });
    quickly("all see the first", || good(&all_see_the_first));
}

#[test]
fn ten_thousand_mistakes() {
    let unknown = steps(|i| format!("id: s{i}, needs: [t{i}], tool: t"));
    assert_eq!(quickly("unknown needs", || parse(&unknown)).unwrap_err().len(), 501);
    let blind = steps(|i| format!("id: s{i}, needs: [], tool: t, args: {{ of: \"${{steps.s{}.result}}\" }}", (i + 1) % STEPS));
    assert_eq!(quickly("steps that have not ended", || parse(&blind)).unwrap_err().len(), 501);
    let backwards = steps(|i| format!("id: s{i}, tool: t, args: {{ of: \"${{steps.s{}.result}}\" }}", (i + 1) % STEPS));
    assert_eq!(quickly("steps that come later", || parse(&backwards)).unwrap_err().len(), 501);
    let round = steps(|i| match i {
        0 => "id: s0, needs: [s1], tool: t".into(),
        _ => format!("id: s{i}, tool: t"),
    });
    assert_eq!(quickly("a cycle", || parse(&round)).unwrap_err(), ["3:22: steps[0].needs: it waits for itself: s0 needs s1 needs s0"]);
}

#[test]
fn ten_thousand_decisions() {
    let naming = |target: fn(usize) -> usize| {
        steps(|i| match i {
            _ if i + 1 == STEPS => format!("id: s{i}, tool: t"),
            _ => format!("id: s{i}, decision: [{{ when: \"true\", then: [s{}] }}, {{ else: [] }}]", target(i)),
        })
    };
    quickly("of the next step", || good(&naming(|i| i + 1)));
    quickly("of the last step", || good(&naming(|_| STEPS - 1)));
}

#[test]
fn what_has_ended_is_what_the_plan_says() {
    for text in super::EXAMPLES.iter().copied().chain([super::FULL]) {
        let plan = good(text).plan;
        let ended = Ended::new(&plan, plan.nodes().map(|(node, _)| node));
        for (node, _) in plan.nodes() {
            let before = plan.before(node);
            for (step, _) in plan.nodes() {
                assert_eq!(ended.before(node, step), before.contains(&step), "{} before {}", plan.node(step).id, plan.node(node).id);
            }
        }
    }
}
