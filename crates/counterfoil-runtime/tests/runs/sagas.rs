//! What was done is undone when a run fails: newest first, each once, as far as it can be.

use counterfoil_runtime::{Operator, Resolution};

use crate::house::{Town, path, statuses, step, tenant};

const ABC: &str = r#"
workflow: abc
steps:
  - { id: a, tool: act, args: { what: a }, undo: { tool: undo_act, args: { what: "${args.what}", do: "${input.undo_a}" } } }
  - { id: none, tool: act, args: { what: none } }
  - { id: b, tool: act, args: { what: b }, undo: { tool: undo_act, args: { what: "${args.what}", do: "${input.undo_b}" }, retry: { attempts: 2, first: 1ms, max: 1ms } } }
  - { id: c, tool: act, args: { what: c, do: "${input.c}" } }
"#;

fn input(c: &str, undo_a: &str, undo_b: &str) -> String {
    serde_json::json!({ "c": c, "undo_a": undo_a, "undo_b": undo_b }).to_string()
}

#[tokio::test]
async fn a_failure_undoes_what_was_done_newest_first_and_skips_what_has_no_undo() {
    let house = Town::default().process();
    let view = house.run(ABC, &input("no", "ok", "ok")).await;
    assert_eq!(house.world().log(), ["act a", "act none", "act b", "undo_act b", "undo_act a"]);
    assert_eq!((view.state, view.error.as_ref().unwrap().code.as_str()), ("compensated", "no"));
    assert_eq!(step(&view, "a").outcome, Some("compensated"));
    assert_eq!(step(&view, "none").outcome, Some("side_effect_committed"));
    let entries = house.runtime.run_entries(&tenant(), &"r".parse().unwrap(), None).await.unwrap();
    let words: Vec<String> = entries
        .iter()
        .flat_map(|e| e["entry"].as_object().unwrap().keys().cloned())
        .filter(|word| word.starts_with("compensation"))
        .collect();
    assert_eq!(words, ["compensation_triggered", "compensation_completed", "compensation_completed"]);
}

#[tokio::test]
async fn a_run_that_completes_undoes_nothing_until_a_person_asks() {
    let house = Town::default().process();
    let view = house.run(ABC, &input("ok", "ok", "ok")).await;
    assert_eq!((view.state, house.world().count("undo_act")), ("completed", 0));
    let run = "r".parse().unwrap();
    house.runtime.undo_run(&tenant(), &run, Some(&path("b")), &Operator::new("ada", "half")).await.unwrap();
    assert_eq!(house.see(&run).await.state, "compensated");
    assert_eq!(house.world().log()[4..], ["undo_act b"]);
    house.runtime.undo_run(&tenant(), &run, None, &Operator::new("ada", "the rest")).await.unwrap();
    house.see(&run).await;
    house.runtime.undo_run(&tenant(), &run, None, &Operator::new("ada", "again")).await.unwrap();
    house.see(&run).await;
    assert_eq!(house.world().log()[4..], ["undo_act b", "undo_act a"]);
}

#[tokio::test]
async fn an_undo_that_fails_does_not_stop_the_rest_and_can_be_tried_again_or_skipped() {
    let house = Town::default().process();
    let view = house.run(ABC, &input("no", "ok", "down")).await;
    assert_eq!(view.state, "compensation_failed");
    assert_eq!(house.world().log()[3..], ["undo_act a"]);
    let failed = &view.compensations[0];
    assert_eq!((failed.step.as_str(), failed.status, failed.error.as_ref().unwrap().code.as_str()), ("b", "failed", "busy"));
    let run = "r".parse().unwrap();
    house.runtime.undo_run(&tenant(), &run, None, &Operator::new("ada", "again")).await.unwrap();
    assert_eq!(house.see(&run).await.state, "compensation_failed");
    house.runtime.skip_undo(&tenant(), &run, &path("b"), &Operator::new("ada", "by hand")).await.unwrap();
    assert_eq!(house.view(&run).await.state, "compensated");
    assert_eq!(house.world().count("undo_act"), 1);
}

#[tokio::test]
async fn siblings_of_a_failed_branch_are_undone_in_the_reverse_of_their_commits() {
    let house = Town::default().process();
    let undo = r#"undo: { tool: undo_act, args: { what: "${args.what}" } }"#;
    let yaml = format!(
        r#"
workflow: w
steps:
  - id: p
    parallel:
      branches:
        - [{{ id: x, tool: act, args: {{ what: x }}, {undo} }}, {{ id: x2, tool: act, args: {{ what: x2 }}, {undo} }}, {{ id: bad, tool: act, args: {{ do: no }} }}]
        - [{{ id: y, tool: act, args: {{ what: y }}, {undo} }}]
"#
    );
    let view = house.run(&yaml, "{}").await;
    assert_eq!(view.state, "compensated");
    let log = house.world().log();
    let done: Vec<&str> = log.iter().filter_map(|l| l.strip_prefix("act ")).collect();
    let undone: Vec<&str> = log.iter().filter_map(|l| l.strip_prefix("undo_act ")).collect();
    assert_eq!(undone.len(), 3);
    let ends: Vec<&str> = view.compensations.iter().map(|c| c.step.as_str()).collect();
    assert_eq!(undone, ends, "in the order that is recorded");
    assert!(done.iter().position(|s| *s == "x") < done.iter().position(|s| *s == "x2"));
    assert!(undone.iter().position(|s| *s == "x2") < undone.iter().position(|s| *s == "x"));
}

#[tokio::test]
async fn a_scope_that_fails_is_undone_alone_when_the_run_goes_on() {
    let house = Town::default().process();
    let undo = r#"undo: { tool: undo_act, args: { what: "${args.what}" } }"#;
    let yaml = format!(
        r#"
workflow: w
steps:
  - {{ id: before, tool: act, args: {{ what: before }}, {undo} }}
  - id: try
    on_failure: continue
    scope:
      steps:
        - {{ id: a, tool: act, args: {{ what: a }}, {undo} }}
        - {{ id: bad, tool: act, args: {{ do: no }} }}
  - {{ id: after, tool: act, args: {{ what: "${{steps.try.status}}" }} }}
"#
    );
    let view = house.run(&yaml, "{}").await;
    assert_eq!(view.state, "completed", "{view:?}");
    assert_eq!(house.world().log(), ["act before", "act a", "undo_act a", "act failed"]);
    assert_eq!(statuses(&view), "before:done try:failed a:done bad:failed after:done");
}

#[tokio::test]
async fn a_doubt_is_settled_before_it_is_judged() {
    let house = Town::default().process();
    let yaml = r#"
workflow: w
steps:
  - id: p
    parallel:
      branches:
        - [{ id: unsure, tool: silent, args: { do: lose, what: unsure }, undo: { tool: undo_act, args: { what: "${args.what}" } } }]
        - [{ id: bad, tool: act, args: { do: wait, what: bad } }, { id: worse, tool: act, args: { do: no } }]
"#;
    let run = house.start(yaml, "{}", "r").await;
    let (runtime, id) = (house.runtime.clone(), run.clone());
    let driving = tokio::spawn(async move { runtime.see_run_through(&tenant(), &id).await });
    // The answer of `unsure` is lost; then the other branch fails.
    while house.world().count("silent") == 0 || house.world().at_once.load(std::sync::atomic::Ordering::SeqCst) != 1 {
        tokio::task::yield_now().await;
    }
    house.world().let_go.notify_one();
    let held = async {
        loop {
            let view = house.view(&run).await;
            if view.state == "compensating" {
                return view;
            }
            tokio::task::yield_now().await;
        }
    };
    let view = tokio::time::timeout(std::time::Duration::from_secs(10), held).await.expect("it waits for a person");
    assert_eq!((step(&view, "unsure").outcome, house.world().count("undo_act")), (Some("in_doubt"), 0));
    let key = step(&view, "unsure").effect.clone().unwrap().parse().unwrap();
    let result = counterfoil_core::Json::parse(r#"{"id":"x"}"#).unwrap();
    house.runtime.resolve(key, Resolution::Happened { result }, &Operator::new("ada", "I looked")).await.unwrap();
    tokio::time::timeout(std::time::Duration::from_secs(10), driving).await.expect("it goes on").unwrap().unwrap();
    assert_eq!((house.view(&run).await.state, house.world().log()[2..].to_vec()), ("compensated", vec!["undo_act unsure".to_owned()]));
}

#[tokio::test]
async fn a_child_is_undone_with_its_parent() {
    let house = Town::default().process();
    let child = "workflow: kid\nsteps:\n  - { id: c, tool: act, args: { what: c }, undo: { tool: undo_act, args: { what: c } } }\n";
    house.runtime.put_workflow(&tenant(), &std::sync::Arc::new(crate::house::workflow(child)), "test").await.unwrap();
    let yaml = "workflow: w\nsteps:\n  - { id: k, call: { workflow: kid, input: {} } }\n  - { id: bad, tool: act, args: { do: no } }\n";
    let view = house.run(yaml, "{}").await;
    assert_eq!((view.state, house.world().log()), ("compensated", vec!["act c".to_owned(), "undo_act c".to_owned()]), "{view:?}");
    assert_eq!(house.view(&"r/k".parse().unwrap()).await.state, "compensated");
}
