//! What went wrong once: drivers that go away, calls that nobody waits for, undos that meet, signals that nobody took.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::policy::{Jitter, Limits, Repeat, RetryPolicy};
use counterfoil_core::run::entry::{Began, RunEntry};
use counterfoil_core::run::flow::Flow;
use counterfoil_core::{Call, Caller, CanonicalJson, EffectKey, Json, Policy, RunId, StreamId, Timestamp, ToolName};
use counterfoil_runtime::engine::Rest;
use counterfoil_runtime::engine::operate::{Cancelling, Signal};
use counterfoil_runtime::{Operator, Registered};
use serde_json::{Value, json};

use crate::house::{Death, House, Silent, Town, WorldTool, new_run, path, statuses, step, tenant, workflow};

fn r() -> RunId {
    "r".parse().unwrap()
}

fn drive(house: &House) -> tokio::task::JoinHandle<Rest> {
    let runtime = house.runtime.clone();
    tokio::spawn(async move { runtime.drive_run(&tenant(), &r()).await.unwrap() })
}

async fn within(seconds: u64, what: impl Future<Output = Rest>) -> Rest {
    tokio::time::timeout(Duration::from_secs(seconds), what).await.expect("it comes to rest")
}

async fn driven(house: &House) -> Rest {
    within(10, async { house.runtime.drive_run(&tenant(), &r()).await.unwrap() }).await
}

async fn start_function(house: &House) {
    house.runtime.start_function(&tenant(), &Caller::new("test").unwrap(), &r(), "trip", &Value::Null).await.unwrap();
}

async fn cancel(house: &House) {
    let cancel = Cancelling { step: None, undo: false, by: "ada".into(), why: "enough".into() };
    house.runtime.cancel_run(&tenant(), &r(), cancel).await.unwrap();
}

/// Looks until it is so.
async fn until(so: impl AsyncFn() -> bool) {
    let looking = async {
        while !so().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), looking).await.expect("it comes to that");
}

#[tokio::test]
async fn the_undo_of_a_scope_and_of_the_run_around_it_are_one() {
    let house = Town::default().process();
    let yaml = r#"
workflow: w
steps:
  - id: p
    parallel:
      branches:
        - - id: s
            on_failure: continue
            scope:
              steps:
                - { id: a, tool: act, args: { what: a }, undo: { tool: undo_act, args: { do: wait, what: a } } }
                - { id: b, tool: act, args: { do: "no" } }
        - - { id: n, wait: { signal: go } }
          - { id: c, tool: act, args: { do: "no" } }
"#;
    house.start(yaml, "{}", "r").await;
    let driving = drive(&house);
    until(async || house.view(&r()).await.state == "compensating").await;
    let go = Signal { id: "1".into(), name: "go".into(), correlation: None, payload: Json::null(), by: "t".into() };
    house.runtime.signal_run(&tenant(), &r(), go).await.unwrap();
    until(async || house.view(&r()).await.compensations.len() == 2).await;
    house.world().let_go.notify_one();
    assert_eq!(within(10, async { driving.await.unwrap() }).await, Rest::Ended);
    let entries = house.runtime.run_entries(&tenant(), &r(), None).await.unwrap();
    assert_eq!(entries.iter().filter(|e| e["entry"].get("compensation_completed").is_some()).count(), 1);
    assert_eq!((house.view(&r()).await.state, house.world().count("undo_act")), ("compensated", 1));
}

#[tokio::test]
async fn a_function_that_asks_for_another_kind_of_thing_at_a_place_diverges() {
    let town = Town::default();
    let one = town.process();
    let first = |ctx: counterfoil_runtime::engine::durable::Context, _: Value| async move {
        ctx.call("charge", json!({ "cents": 5 })).await?;
        ctx.signal("go").await
    };
    one.runtime.register_function("trip", first).unwrap();
    start_function(&one).await;
    driven(&one).await;
    let two = town.process();
    let shifted = |ctx: counterfoil_runtime::engine::durable::Context, _: Value| async move {
        ctx.now().await?;
        ctx.call("charge", json!({ "cents": 5 })).await?;
        ctx.signal("go").await
    };
    two.runtime.register_function("trip", shifted).unwrap();
    let error = two.runtime.drive_run(&tenant(), &r()).await.unwrap_err();
    assert!(error.to_string().contains("expected 1.call, and the function asks for 1.now"), "{error}");
    let three = town.process();
    let scoped = |ctx: counterfoil_runtime::engine::durable::Context, _: Value| async move {
        ctx.scope("pay", |ctx| async move { ctx.call("charge", json!({ "cents": 5 })).await }).await?;
        ctx.signal("go").await
    };
    three.runtime.register_function("trip", scoped).unwrap();
    assert_eq!(three.runtime.drive_run(&tenant(), &r()).await.unwrap_err().code(), "function_diverged");
    assert_eq!(town.world.count("charge"), 1);
}

#[tokio::test]
async fn a_call_that_outlives_its_driver_claims_nothing_for_the_run() {
    let town = Town::default();
    let house = town.process();
    let yaml =
        "workflow: w\nsteps:\n  - { id: a, tool: silent, args: { do: wait, what: a } }\n  - { id: b, tool: silent, args: { what: b } }\n";
    house.start(yaml, "{}", "r").await;
    let driving = drive(&house);
    house.world().begun.notified().await;
    driving.abort();
    drop(driving.await);
    house.world().let_go.notify_one();
    let key: EffectKey = step(&house.view(&r()).await, "a").effect.as_ref().unwrap().parse().unwrap();
    until(async || house.runtime.effect(key).await.unwrap().state.word() == "done").await;
    assert_eq!(statuses(&house.view(&r()).await), "a:running b:blocked");
    assert_eq!(driven(&house).await, Rest::Ended);
    assert_eq!(town.world.log(), ["silent a", "silent b"]);
}

#[tokio::test]
async fn a_call_that_a_function_lets_go_of_does_not_hold_up_the_next() {
    let house = Town::default().process();
    house
        .runtime
        .register_function("trip", |ctx, _| async move {
            drop(tokio::time::timeout(Duration::ZERO, ctx.call("act", json!({ "do": "stops" })).into_future()).await);
            ctx.call("charge", json!({})).await
        })
        .unwrap();
    start_function(&house).await;
    assert_eq!(driven(&house).await, Rest::Ended);
    assert_eq!((house.view(&r()).await.state, house.world().count("charge")), ("completed", 1));
}

#[tokio::test]
async fn a_function_that_chose_another_way_than_a_sleep_still_waits() {
    let house = Town::default().process();
    house
        .runtime
        .register_function("trip", |ctx, _| async move {
            tokio::select! {
                made = ctx.call("act", json!({})).into_future() => drop(made?),
                slept = ctx.sleep(Duration::from_secs(3600)) => slept?,
            }
            ctx.signal("go").await
        })
        .unwrap();
    start_function(&house).await;
    assert!(matches!(driven(&house).await, Rest::Parked { .. }));
}

#[tokio::test]
async fn what_a_failed_function_did_not_wait_for_is_stopped_and_undone() {
    let house = Town::default().process();
    house
        .runtime
        .register_function("trip", |ctx, _| async move {
            tokio::try_join!(
                ctx.call("charge", json!({ "do": "hang" })).undo("refund", |_| json!({})).into_future(),
                ctx.call("act", json!({ "do": "no" })).into_future(),
            )?;
            Ok(Value::Null)
        })
        .unwrap();
    start_function(&house).await;
    let view = house.see(&r()).await;
    assert_eq!((view.state, house.world().count("charge"), house.world().count("refund")), ("compensated", 1, 1), "{view:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_is_stopped_while_it_queues_ends() {
    for round in 0..8 {
        let town = Town::default();
        let house = town.process();
        let policy = Policy { limits: Limits { concurrency: Some(1), ..Limits::default() }, ..Policy::default() };
        house.runtime.register(Registered::new(ToolName::new("one").unwrap(), Arc::new(WorldTool(town.world.clone())), policy));
        let branch = |id: &str| format!("        - [{{ id: {id}, tool: one, args: {{ do: wait }} }}]\n");
        let yaml =
            format!("workflow: w\nsteps:\n  - id: p\n    parallel:\n      join: any\n      branches:\n{}{}", branch("a"), branch("b"));
        house.start(&yaml, "{}", "r").await;
        let driving = drive(&house);
        house.world().begun.notified().await;
        if round % 2 == 1 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // Whoever gets the place acts; the other may get it in between, and acts too, or is stopped.
        until(async || {
            house.world().let_go.notify_waiters();
            house.world().let_go.notify_one();
            driving.is_finished()
        })
        .await;
        assert_eq!(house.view(&r()).await.state, "completed", "round {round}");
    }
}

#[tokio::test]
async fn a_stop_that_the_ledger_did_not_hear_is_said_again() {
    let town = Town::default();
    let (house, mortal) = town.process_that_dies(Death::Never);
    house.start("workflow: w\nsteps:\n  - { id: x, tool: silent, args: { do: lose } }\n", "{}", "r").await;
    driven(&house).await;
    cancel(&house).await;
    let key: EffectKey = step(&house.view(&r()).await, "x").effect.as_ref().unwrap().parse().unwrap();
    mortal.fail_next_load(StreamId::effect(&key));
    assert_eq!(driven(&house).await, Rest::Ended);
    assert_eq!(house.view(&r()).await.state, "cancelled");
}

#[tokio::test]
async fn a_doubt_of_a_cancelled_run_is_not_dispatched_again() {
    let town = Town::default();
    let house = town.process();
    let retry = RetryPolicy {
        attempts: 2,
        first: Duration::from_secs(30),
        max: Duration::from_secs(30),
        jitter: Jitter::Off,
        ..RetryPolicy::default()
    };
    let policy = Policy { retry, deadline: Duration::from_secs(5), repeat: Repeat::Keyed, ..Policy::default() };
    let tool = Arc::new(Silent(WorldTool(town.world.clone())));
    house.runtime.register(Registered::new(ToolName::new("keyed").unwrap(), tool, policy));
    house.start("workflow: w\nsteps:\n  - { id: x, tool: keyed, args: { do: lose } }\n", "{}", "r").await;
    let driving = drive(&house);
    until(async || house.world().count("keyed") == 1).await;
    let key: EffectKey = step(&house.view(&r()).await, "x").effect.as_ref().unwrap().parse().unwrap();
    until(async || house.runtime.effect(key).await.unwrap().state.word() == "in_doubt").await;
    cancel(&house).await;
    assert_eq!(within(10, async { driving.await.unwrap() }).await, Rest::Ended);
    town.clock.advance(Duration::from_secs(300));
    house.runtime.recover().await.unwrap();
    assert_eq!(town.world.log(), ["keyed"]);
}

#[tokio::test]
async fn a_wait_that_was_stopped_leaves_its_signal_to_others() {
    let house = Town::default().process();
    let yaml = r#"
workflow: w
steps:
  - id: p
    parallel:
      join: any
      branches:
        - [{ id: a, wait: { signal: go } }]
        - [{ id: b, wait: { signal: go } }]
  - { id: c, wait: { signal: go } }
"#;
    house.start(yaml, "{}", "r").await;
    driven(&house).await;
    for id in ["1", "2"] {
        let go = Signal { id: id.into(), name: "go".into(), correlation: None, payload: Json::null(), by: "t".into() };
        house.runtime.signal_run(&tenant(), &r(), go).await.unwrap();
    }
    assert_eq!(driven(&house).await, Rest::Ended);
}

#[tokio::test]
async fn a_fork_takes_failures_along_that_the_run_went_on_after() {
    let house = Town::default().process();
    let yaml = "workflow: w\nsteps:\n  - { id: a, tool: act, args: { do: \"no\" }, on_failure: continue }\n  - { id: b, tool: act }\n  - { id: c, tool: act }\n";
    assert_eq!(house.run(yaml, "{}").await.state, "completed");
    let forked = house.runtime.fork_run(&tenant(), &r(), &path("c"), "f".parse().unwrap(), &Operator::new("ada", "again")).await.unwrap();
    assert_eq!((house.see(&forked).await.state, house.world().count("act")), ("completed", 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_that_calls_itself_ends_somewhere() {
    let house = Town::default().process();
    let itself = Arc::new(workflow("workflow: rec\nsteps:\n  - { id: s, call: { workflow: rec } }\n"));
    house.runtime.put_workflow(&tenant(), &itself, "t").await.unwrap();
    house.runtime.start_run(new_run(&itself, "{}", "r")).await.unwrap();
    assert_eq!(within(60, async { drive(&house).await.unwrap() }).await, Rest::Ended);
    assert_eq!(house.view(&r()).await.error.unwrap().code, "runs_too_deep");
}

#[tokio::test]
async fn an_undo_in_a_child_is_held_to_its_parents_list_as_well() {
    let house = Town::default().process();
    let child = Arc::new(workflow("workflow: child\nsteps:\n  - { id: x, tool: act, undo: { tool: refund, args: {} } }\n"));
    house.runtime.put_workflow(&tenant(), &child, "t").await.unwrap();
    let view = house.run("workflow: w\ntools: [act]\nsteps:\n  - { id: s, call: { workflow: child } }\n", "{}").await;
    assert_eq!((view.state, view.error.unwrap().code.as_str(), house.world().log().len()), ("failed", "tool_not_allowed", 0));
}

#[tokio::test]
async fn an_effect_that_was_there_before_its_step_is_the_steps() {
    let house = Town::default().process();
    let call = Call {
        tenant: tenant(),
        caller: Caller::new("test").unwrap(),
        tool: ToolName::new("act").unwrap(),
        args: CanonicalJson::parse("{}").unwrap(),
        key: None,
        run: Some(r()),
        step: Some(path("a")),
        ordinal: 0,
    };
    house.runtime.call(call).await;
    house.start("workflow: w\nsteps:\n  - { id: a, tool: act }\n", "{}", "r").await;
    assert_eq!(driven(&house).await, Rest::Ended);
    assert_eq!(house.world().count("act"), 1);
    let records = house.runtime.run_entries(&tenant(), &r(), None).await.unwrap().len();
    assert!(records < 10, "it did not try again and again: {records}");
}

#[test]
fn an_entry_of_another_kind_of_step_is_refused() {
    let plan = workflow("workflow: w\nsteps:\n  - { id: a, tool: act }\n").plan;
    let entry = RunEntry::StepBegan { at: Timestamp(0), step: path("a"), what: Began::Map { items: vec![Json::null()] } };
    assert!(Flow::new(plan, None, Timestamp(0)).apply(&entry).is_err());
}

#[tokio::test]
async fn a_doubt_of_which_nothing_is_recorded_is_still_a_doubt() {
    let house = Town::default().process();
    let off = counterfoil_runtime::Switch {
        tool: Some(ToolName::new("act").unwrap()),
        mode: Some(counterfoil_runtime::Mode::Off),
        accept_duplicates: true,
    };
    house.runtime.switch_mode(off, &Operator::new("ada", "for a try")).await.unwrap();
    let view = house.run("workflow: w\nsteps:\n  - { id: a, tool: act, args: { do: lose } }\n", "{}").await;
    assert_eq!(
        (view.state, view.compensations[0].error.as_ref().unwrap().code.as_str()),
        ("compensation_failed", "not_recorded"),
        "{view:?}"
    );
    assert_eq!(step(&view, "a").outcome, Some("in_doubt"));
}
