//! Signals and approvals: durable, used once, and the same when they are sent twice.

use counterfoil_core::Json;
use counterfoil_runtime::engine::operate::{Heard, Signal};
use counterfoil_runtime::{Operator, engine::RunError};
use std::time::Duration;

use crate::house::{House, Town, path, step, tenant};

const WAITS: &str = r#"
workflow: w
steps:
  - { id: order, tool: act, args: { what: order } }
  - { id: paid, wait: { signal: payment, correlation: "${steps.order.result.id}", timeout: 1h } }
  - { id: ship, tool: act, args: { what: "${steps.paid.result.by}" } }
"#;

fn signal(id: &str, correlation: Option<&str>, payload: &str) -> Signal {
    Signal {
        id: id.into(),
        name: "payment".into(),
        correlation: correlation.map(Into::into),
        payload: Json::parse(payload).unwrap(),
        by: "bank".into(),
    }
}

async fn send(house: &House, signal: Signal) -> Result<Heard, RunError> {
    house.runtime.signal_run(&tenant(), &"r".parse().unwrap(), signal).await
}

#[tokio::test]
async fn a_signal_reaches_a_run_that_another_process_left_waiting() {
    let town = Town::default();
    let first = town.process();
    let run = first.start(WAITS, "{}", "r").await;
    first.runtime.drive_run(&tenant(), &run).await.unwrap();
    assert_eq!(step(&first.view(&run).await, "paid").waits_for.as_deref(), Some("signal payment with correlation act-1"));
    let house = town.process();
    assert_eq!(send(&house, signal("1", Some("wrong"), "{}")).await.unwrap_err().code(), "invalid_signal");
    assert_eq!(send(&house, signal("1", None, "{}")).await.unwrap_err().code(), "invalid_signal");
    let unknown = Signal { name: "other".into(), ..signal("1", None, "{}") };
    assert!(send(&house, unknown).await.unwrap_err().to_string().contains("it waits for payment"));
    let paid = signal("1", Some("act-1"), r#"{"by":"card"}"#);
    assert_eq!(send(&house, paid.clone()).await.unwrap(), Heard::Now);
    assert_eq!(send(&house, paid.clone()).await.unwrap(), Heard::Before);
    assert_eq!(house.see(&run).await.state, "completed");
    assert_eq!(send(&house, paid).await.unwrap(), Heard::Before, "also after the run moved on");
    assert_eq!(send(&house, signal("1", Some("act-1"), "{}")).await.unwrap_err().code(), "invalid_signal", "another one under its id");
    assert_eq!(send(&house, signal("2", Some("act-1"), "{}")).await.unwrap_err().code(), "wrong_state");
    assert_eq!(house.world().log(), ["act order", "act card"]);
}

#[tokio::test]
async fn a_signal_may_come_before_it_is_waited_for() {
    let house = Town::default().process();
    let yaml = "workflow: w\nsteps:\n  - { id: a, tool: act, args: { do: wait } }\n  - { id: s, wait: { signal: payment } }\n  - { id: b, tool: act, args: { what: \"${steps.s.result}\" } }\n";
    let run = house.start(yaml, "{}", "r").await;
    let (runtime, id) = (house.runtime.clone(), run.clone());
    let driving = tokio::spawn(async move { runtime.see_run_through(&tenant(), &id).await });
    house.world().begun.notified().await;
    assert_eq!(send(&house, signal("1", None, "\"early\"")).await.unwrap(), Heard::Now);
    house.world().let_go.notify_one();
    tokio::time::timeout(Duration::from_secs(10), driving).await.expect("it ends").unwrap().unwrap();
    assert_eq!(house.world().log(), ["act", "act early"]);
}

const ASKS: &str = r#"
workflow: w
steps:
  - { id: boss, wait: { approval: "Pay ${input.cents}?", timeout: 1h } }
  - { id: pay, tool: charge, args: { cents: "${input.cents}" } }
"#;

#[tokio::test]
async fn nothing_runs_before_the_approval_and_once_after_it() {
    let house = Town::default().process();
    let run = house.start(ASKS, r#"{"cents":5}"#, "r").await;
    house.runtime.drive_run(&tenant(), &run).await.unwrap();
    assert_eq!((house.view(&run).await.state, house.world().log().len()), ("waiting", 0));
    let ada = Operator::new("ada", "fine");
    let (acme, boss) = (tenant(), path("boss"));
    let answer = |yes| house.runtime.answer_step(&acme, &run, &boss, yes, &ada);
    assert_eq!(answer(true).await.unwrap(), Heard::Now);
    assert_eq!(answer(true).await.unwrap(), Heard::Before);
    assert_eq!(answer(false).await.unwrap_err().code(), "wrong_state");
    let view = house.see(&run).await;
    assert_eq!((view.state, house.world().log()), ("completed", vec!["charge".to_owned()]));
    assert_eq!(step(&view, "boss").result.as_ref().unwrap().to_value()["by"], "ada");
}

#[tokio::test]
async fn a_no_or_no_answer_in_time_runs_nothing() {
    for late in [false, true] {
        let house = Town::default().process();
        let run = house.start(ASKS, r#"{"cents":5}"#, "r").await;
        house.runtime.drive_run(&tenant(), &run).await.unwrap();
        if late {
            house.town.clock.advance(Duration::from_secs(3601));
        } else {
            house.runtime.answer_step(&tenant(), &run, &path("boss"), false, &Operator::new("ada", "too much")).await.unwrap();
        }
        let view = house.see(&run).await;
        assert_eq!((view.state, view.error.as_ref().unwrap().code.as_str(), house.world().log().len()), ("failed", "approval_denied", 0));
    }
}

#[tokio::test]
async fn what_is_not_answered_in_time_goes_the_other_way() {
    let house = Town::default().process();
    let yaml = r#"
workflow: w
steps:
  - { id: s, wait: { signal: payment, timeout: 1h, then: [ship], otherwise: [remind] } }
  - { id: ship, needs: [s], tool: act, args: { what: ship } }
  - { id: remind, needs: [s], tool: act, args: { what: remind } }
"#;
    let run = house.start(yaml, "{}", "r").await;
    house.runtime.drive_run(&tenant(), &run).await.unwrap();
    house.town.clock.advance(Duration::from_secs(3601));
    assert_eq!((house.see(&run).await.state, house.world().log()), ("completed", vec!["act remind".to_owned()]));
}

#[tokio::test]
async fn a_tools_own_approval_holds_the_step_until_a_person_agrees() {
    let house = Town::default().process();
    let tool = house.runtime.tools().into_iter().find(|t| t.name.as_str() == "charge").unwrap();
    house.runtime.register(counterfoil_runtime::Registered { approval: Some(std::sync::Arc::new(|_| Ok(true))), ..(*tool).clone() });
    let run = house.start("workflow: w\nsteps:\n  - { id: pay, tool: charge }\n  - { id: b, tool: act }\n", "{}", "r").await;
    let (runtime, id) = (house.runtime.clone(), run.clone());
    let driving = tokio::spawn(async move { runtime.see_run_through(&tenant(), &id).await });
    let key = loop {
        let view = house.view(&run).await;
        match step(&view, "pay").effect.clone() {
            Some(effect) if house.runtime.effect(effect.parse().unwrap()).await.is_ok() => break effect.parse().unwrap(),
            _ => tokio::task::yield_now().await,
        }
    };
    assert!(house.world().log().is_empty());
    house.runtime.approve(key, &Operator::new("ada", "yes")).await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), driving).await.expect("it goes on").unwrap().unwrap();
    assert_eq!(house.world().log(), ["charge", "act"]);
}
