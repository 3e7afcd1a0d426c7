//! Runs that a client drives: its permits are steps, and what it did is undone when it fails, is cancelled, or falls silent.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::run::entry::RunEnd;
use counterfoil_core::{Call, Caller, CanonicalJson, Failure, Json, Policy, ToolName};
use counterfoil_runtime::engine::client::NewClientRun;
use counterfoil_runtime::engine::operate::{Cancelling, Heard};
use counterfoil_runtime::{Acquired, Beside, ClientTool, Lent, PermitId, Registered, Tool, UndoPlan};

use crate::house::{House, Town, path, tenant};

/// A client's tool that says how it is undone.
struct Booking;

impl Tool for Booking {
    fn runs(&self) -> counterfoil_runtime::Runs {
        ClientTool.runs()
    }
    fn invoke(&self, invocation: counterfoil_runtime::Invocation) -> counterfoil_runtime::tool::ToolFuture<'_, counterfoil_core::Outcome> {
        Box::pin(async move { ClientTool.invoke(invocation).await })
    }
    fn undo_plan(&self, _: &counterfoil_runtime::Invocation, result: &Json) -> Result<Option<UndoPlan>, String> {
        let args = CanonicalJson::parse(&serde_json::json!({ "what": result.to_value() }).to_string()).map_err(|e| e.to_string())?;
        Ok(Some(UndoPlan { tool: ToolName::new("undo_act").map_err(|e| e.to_string())?, args }))
    }
}

async fn open(house: &House, lease: Option<Duration>) -> bool {
    house.runtime.register(Registered::new(ToolName::new("book").unwrap(), Arc::new(Booking), Policy::default()));
    let new = NewClientRun {
        tenant: tenant(),
        caller: Caller::new("agent").unwrap(),
        run: "r".parse().unwrap(),
        name: "agent-turn".parse().unwrap(),
        input: CanonicalJson::parse("{}").unwrap(),
        lease,
    };
    house.runtime.open_client_run(new).await.unwrap()
}

async fn acquire(house: &House, step: &str) -> Acquired {
    let call = Call {
        tenant: tenant(),
        caller: Caller::new("agent").unwrap(),
        tool: ToolName::new("book").unwrap(),
        args: CanonicalJson::parse(&format!("{{\"step\":\"{step}\"}}")).unwrap(),
        key: None,
        run: Some("r".parse().unwrap()),
        step: Some(path(step)),
        ordinal: 0,
    };
    house.runtime.acquire(call, None, Beside::default()).await.unwrap()
}

fn lent(acquired: Acquired) -> PermitId {
    let Acquired::Lent(Lent { key, fence, .. }) = acquired else { panic!("no permit: {acquired:?}") };
    PermitId { tenant: tenant(), key, fence }
}

async fn done(house: &House, step: &str) {
    let permit = lent(acquire(house, step).await);
    house.runtime.commit(&permit, Json::parse(&format!("\"{step}\"")).unwrap(), Beside::default()).await.unwrap();
}

async fn drive(house: &House) {
    house.runtime.drive_run(&tenant(), &"r".parse().unwrap()).await.unwrap();
}

async fn state(house: &House) -> &'static str {
    house.view(&"r".parse().unwrap()).await.state
}

#[tokio::test]
async fn a_clients_run_knows_its_steps_and_ends_when_it_says_so() {
    let house = Town::default().process();
    assert!(open(&house, None).await);
    assert!(!open(&house, None).await, "it is the same run");
    let permit = lent(acquire(&house, "a").await);
    let run = "r".parse().unwrap();
    let early = house.runtime.finish_run(&tenant(), &run, RunEnd::Completed { output: Json::null() }).await;
    assert_eq!(early.unwrap_err().code(), "wrong_state", "a step has not ended");
    house.runtime.commit(&permit, Json::parse("1").unwrap(), Beside::default()).await.unwrap();
    let how = RunEnd::Completed { output: Json::parse("\"ok\"").unwrap() };
    assert_eq!(house.runtime.finish_run(&tenant(), &run, how.clone()).await.unwrap(), Heard::Now);
    drive(&house).await;
    let view = house.view(&run).await;
    assert_eq!((view.state, view.output.unwrap().to_string().as_str(), view.steps[0].status), ("completed", "\"ok\"", "done"));
    assert_eq!(house.runtime.finish_run(&tenant(), &run, how).await.unwrap(), Heard::Before);
    assert!(matches!(acquire(&house, "b").await, Acquired::Answer(_)), "a run that is over gives no permit");
}

#[tokio::test]
async fn what_a_client_did_is_undone_when_it_fails_newest_first() {
    let house = Town::default().process();
    open(&house, None).await;
    done(&house, "a").await;
    done(&house, "b").await;
    let failure = Failure::new("gave_up", "the plan did not work");
    house.runtime.finish_run(&tenant(), &"r".parse().unwrap(), RunEnd::Failed { failure }).await.unwrap();
    drive(&house).await;
    assert_eq!((state(&house).await, house.world().log()), ("compensated", vec!["undo_act b".to_owned(), "undo_act a".to_owned()]));
}

#[tokio::test]
async fn a_cancelled_run_gives_no_permit_and_what_is_lent_is_lost() {
    let house = Town::default().process();
    open(&house, None).await;
    done(&house, "a").await;
    let permit = lent(acquire(&house, "b").await);
    let cancel = Cancelling { step: None, undo: true, by: "ada".into(), why: "enough".into() };
    house.runtime.cancel_run(&tenant(), &"r".parse().unwrap(), cancel).await.unwrap();
    assert!(matches!(acquire(&house, "c").await, Acquired::Answer(_)));
    let run = house.runtime.clone();
    let driving = tokio::spawn(async move { run.drive_run(&tenant(), &"r".parse().unwrap()).await });
    // The client acted all the same, and says so: it is undone with the rest.
    while house.runtime.effect(permit.key).await.unwrap().state.word() != "cancelled" {
        tokio::task::yield_now().await;
    }
    let late = house.runtime.commit(&permit, Json::parse("\"b\"").unwrap(), Beside::default()).await.unwrap_err();
    assert_eq!(late.code(), "permit_lost");
    driving.await.unwrap().unwrap();
    house.see(&"r".parse().unwrap()).await;
    assert_eq!((state(&house).await, house.world().log()), ("compensated", vec!["undo_act b".to_owned(), "undo_act a".to_owned()]));
}

#[tokio::test]
async fn a_client_that_falls_silent_is_lost_and_its_work_undone() {
    let house = Town::default().process();
    open(&house, Some(Duration::from_secs(60))).await;
    done(&house, "a").await;
    let run = "r".parse().unwrap();
    for _ in 0..3 {
        house.town.clock.advance(Duration::from_secs(50));
        drive(&house).await;
        house.runtime.beat_run(&tenant(), &run, &Default::default()).await.unwrap();
    }
    assert_eq!(state(&house).await, "waiting");
    house.town.clock.advance(Duration::from_secs(61));
    drive(&house).await;
    let view = house.view(&run).await;
    assert_eq!(
        (view.state, view.error.unwrap().code.as_str(), house.world().log()),
        ("compensated", "client_lost", vec!["undo_act a".to_owned()])
    );
    assert_eq!(house.runtime.beat_run(&tenant(), &run, &Default::default()).await.unwrap_err().code(), "wrong_state");
}
