//! What each kind of step does, and what it gives to those after it.

use std::time::Duration;

use crate::house::{Town, new_run, statuses, step, tenant, workflow};
use counterfoil_core::run::RunState;
use std::sync::Arc;

#[tokio::test]
async fn steps_run_in_order_and_see_what_came_before() {
    let house = Town::default().process();
    let yaml = r#"
workflow: chain
steps:
  - { id: a, tool: act, args: { what: "${input.name}" } }
  - { id: b, tool: act, args: { what: "${steps.a.result.id}", n: "${steps.a.result.price * 2}" } }
output: { last: "${steps.b.result.args.n}", run: "${run.id}" }
"#;
    let view = house.run(yaml, r#"{"name":"ada"}"#).await;
    assert_eq!((view.state, view.output.unwrap().to_string().as_str()), ("completed", r#"{"last":200,"run":"r"}"#));
    assert_eq!(house.world().log(), ["act ada", "act act-1"]);
    assert_eq!(step(&house.view(&"r".parse().unwrap()).await, "a").outcome, Some("side_effect_committed"));
}

#[tokio::test]
async fn the_same_id_is_the_same_run_and_another_definition_is_a_divergence() {
    let house = Town::default().process();
    let yaml = "workflow: w\nsteps:\n  - { id: a, tool: act }\n";
    let first = Arc::new(workflow(yaml));
    assert!(house.runtime.start_run(new_run(&first, "{}", "r")).await.unwrap().1);
    let run = "r".parse().unwrap();
    house.see(&run).await;
    assert!(!house.runtime.start_run(new_run(&first, "{}", "r")).await.unwrap().1, "it is there already");
    house.see(&run).await;
    assert_eq!(house.world().count("act"), 1);
    let changed = Arc::new(workflow(&format!("{yaml}  - {{ id: b, tool: act }}\n")));
    let error = house.runtime.start_run(new_run(&changed, "{}", "r")).await.unwrap_err();
    assert_eq!(error.code(), "definition_diverged");
    assert!(error.to_string().contains(&first.digest.to_string()) && error.to_string().contains(&changed.digest.to_string()), "{error}");
    let other = house.runtime.start_run(new_run(&first, r#"{"x":1}"#, "r")).await.unwrap_err();
    assert_eq!(other.code(), "run_exists");
    assert_eq!(house.world().count("act"), 1);
}

#[tokio::test]
async fn decisions_maps_and_parallels_go_their_ways() {
    let house = Town::default().process();
    let yaml = r#"
workflow: ways
steps:
  - id: check
    decision:
      - { when: "input.n > 5", then: [big] }
      - { else: [small] }
  - { id: big, needs: [check], tool: act, args: { what: big } }
  - { id: small, needs: [check], tool: act, args: { what: small } }
  - id: each
    needs: [big, small]
    map:
      over: "${input.items}"
      as: thing
      concurrency: 2
      steps:
        - { id: one, tool: act, args: { what: "${thing}${string(index)}" } }
  - id: both
    parallel:
      branches:
        - [{ id: left, tool: act, args: { what: left } }]
        - [{ id: right, tool: think, args: { what: right } }]
output:
  ids: "${steps.each.result.map(r, r.args.what)}"
  both: "${size(steps.both.result)}"
  skipped: "${steps.small.status}"
"#;
    let view = house.run(yaml, r#"{"n":7,"items":["x","y","z"]}"#).await;
    assert_eq!(view.state, "completed", "{view:?}");
    assert_eq!(view.output.as_ref().unwrap().to_string(), r#"{"both":2,"ids":["x0","y1","z2"],"skipped":"skipped"}"#);
    assert_eq!(
        statuses(&view),
        "check:done big:done small:skipped each:done each[0].one:done each[1].one:done each[2].one:done both:done left:done right:done"
    );
    assert!(house.world().at_once_max.load(std::sync::atomic::Ordering::SeqCst) <= 2);
    assert_eq!(step(&view, "right").outcome, Some("pure"));
}

#[tokio::test]
async fn what_an_expression_cannot_give_fails_the_step_and_names_it() {
    let house = Town::default().process();
    let yaml = "workflow: w\nsteps:\n  - { id: a, tool: act, args: { what: \"${input.nobody}\" } }\n";
    let view = house.run(yaml, "{}").await;
    assert_eq!((view.state, view.error.as_ref().unwrap().code.as_str()), ("failed", "expression_failed"));
    assert!(house.world().log().is_empty());
}

#[tokio::test]
async fn a_budget_of_effects_is_exact_however_many_branches_there_are() {
    let house = Town::default().process();
    let branches: String = (0..50).map(|n| format!("        - [{{ id: s{n}, tool: act, on_failure: continue }}]\n")).collect();
    let yaml = format!("workflow: w\nbudget: {{ effects: 7 }}\nsteps:\n  - id: p\n    parallel:\n      branches:\n{branches}");
    let view = house.run(&yaml, "{}").await;
    assert_eq!((view.state, house.world().count("act")), ("completed", 7));
    let refused = view.steps[0].steps.iter().filter(|s| s.error.as_ref().is_some_and(|e| e.code == "budget_exceeded")).count();
    assert_eq!(refused, 43);
}

#[tokio::test]
async fn a_retriable_failure_is_tried_again_and_a_lost_answer_is_asked_about() {
    let house = Town::default().process();
    let yaml = r#"
workflow: w
steps:
  - { id: a, tool: act, args: { do: flaky } }
  - { id: b, tool: act, args: { do: lose } }
  - { id: c, tool: act, args: { do: down }, retry: { attempts: 2, first: 1ms, max: 1ms } }
"#;
    let view = house.run(yaml, "{}").await;
    assert_eq!((view.state, house.world().count("act")), ("failed", 2));
    assert_eq!(statuses(&view), "a:done b:done c:failed");
    assert_eq!(step(&view, "c").outcome, Some("retryable_failure"));
}

#[tokio::test]
async fn a_sleeping_run_is_let_go_and_wakes_by_itself() {
    let house = Town::default().process();
    let yaml = "workflow: w\nsteps:\n  - { id: nap, sleep: 1h }\n  - { id: a, tool: act }\n";
    let run = house.start(yaml, "{}", "r").await;
    house.runtime.drive_run(&tenant(), &run).await.unwrap();
    assert_eq!((house.view(&run).await.state, house.world().count("act")), (RunState::Waiting.word(), 0));
    house.town.clock.advance(Duration::from_secs(3601));
    assert_eq!((house.see(&run).await.state, house.world().count("act")), ("completed", 1));
}

#[tokio::test]
async fn a_step_that_takes_too_long_is_stopped_and_fails() {
    let house = Town::default().process();
    let yaml = "workflow: w\nsteps:\n  - { id: a, tool: act, timeout: 50ms, args: { do: stops } }\n  - { id: b, tool: act }\n";
    let view = house.run(yaml, "{}").await;
    assert_eq!((view.state, statuses(&view).as_str()), ("failed", "a:timed_out b:cancelled"));
    assert_eq!((view.error.unwrap().code.as_str(), house.world().count("act")), ("step_timeout", 0));
}

#[tokio::test]
async fn a_child_is_a_run_of_its_own_and_may_do_no_more_than_its_parent() {
    let house = Town::default().process();
    let child = Arc::new(workflow(
        "workflow: kid\nsteps:\n  - { id: c, tool: act, args: { what: \"${input.w}\" } }\noutput: \"${steps.c.result.args.what}\"\n",
    ));
    house.runtime.put_workflow(&tenant(), &child, "test").await.unwrap();
    let yaml = "workflow: w\nsteps:\n  - { id: k, call: { workflow: kid, input: { w: hello } } }\noutput: \"${steps.k.result}\"\n";
    let view = house.run(yaml, "{}").await;
    assert_eq!((view.state, view.output.clone().unwrap().to_string().as_str()), ("completed", "\"hello\""), "{view:?}");
    assert_eq!(step(&view, "k").run.as_deref(), Some("r/k"));
    let confined = "workflow: w\ntools: [think]\nsteps:\n  - { id: k, call: { workflow: kid, input: { w: x } } }\n";
    let run = house.start(confined, "{}", "r2").await;
    let view = house.see(&run).await;
    assert_eq!((view.state, view.error.as_ref().unwrap().code.as_str(), house.world().count("act")), ("failed", "tool_not_allowed", 1));
}

#[tokio::test]
async fn a_fork_has_what_was_done_before_and_does_the_rest_itself() {
    let house = Town::default().process();
    let yaml = "workflow: w\nsteps:\n  - { id: a, tool: act, args: { what: a } }\n  - { id: b, tool: act, args: { what: \"${steps.a.result.id}\" } }\n";
    house.run(yaml, "{}").await;
    let forked = house
        .runtime
        .fork_run(
            &tenant(),
            &"r".parse().unwrap(),
            &crate::house::path("b"),
            "f".parse().unwrap(),
            &counterfoil_runtime::Operator::new("ada", "again"),
        )
        .await
        .unwrap();
    assert_eq!(house.see(&forked).await.state, "completed");
    assert_eq!(house.world().log(), ["act a", "act act-1", "act act-1"]);
}

#[tokio::test]
async fn a_run_whose_step_takes_long_stays_with_its_worker() {
    let town = Town::default();
    let house = town.process();
    let run = house.start("workflow: w\nsteps:\n  - { id: a, tool: act, args: { do: wait } }\n", "{}", "r").await;
    let (runtime, id) = (house.runtime.clone(), run.clone());
    let driving = tokio::spawn(async move { runtime.see_run_through(&tenant(), &id).await });
    house.world().begun.notified().await;
    let other = town.process();
    for _ in 0..6 {
        // Its lease would be over by the second turn.
        town.clock.advance(Duration::from_secs(20));
        let until = async {
            while house.runtime.run_facts(&tenant(), &run).await.unwrap().0.owner.unwrap().until
                <= other.runtime.now() + Duration::from_secs(15)
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), until).await.expect("it says that it is still at it");
        assert_eq!(other.runtime.drive_run(&tenant(), &run).await.unwrap(), counterfoil_runtime::engine::Rest::Elsewhere);
    }
    house.world().let_go.notify_one();
    tokio::time::timeout(Duration::from_secs(10), driving).await.expect("it ends").unwrap().unwrap();
    assert_eq!((house.view(&run).await.state, house.world().count("act")), ("completed", 1));
}
