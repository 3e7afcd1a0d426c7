//! What is written beside a run holds or falls with it.

use std::sync::Arc;

use counterfoil_core::ids::CallKey;
use counterfoil_core::summary::StreamKind;
use counterfoil_core::{Json, RunId, StreamId};
use counterfoil_runtime::engine::operate::{Heard, Signal};
use counterfoil_runtime::engine::{RunBeside, RunError};
use counterfoil_runtime::ledger::{LedgerError, plain_summary};
use counterfoil_store::{Version, Write};

use crate::house::{House, Town, new_run, tenant, workflow};

const WAITS: &str = "workflow: w\nsteps:\n  - { id: s, wait: { signal: go } }\n";

fn stream() -> StreamId {
    StreamId::request(&tenant(), "POST", "/v1/runs", &CallKey::new("k").unwrap())
}

fn note(house: &House, expected: Version, text: &str) -> Write {
    house.runtime.ledger().replacing(stream(), expected, &text, plain_summary(StreamKind::Meta, tenant()))
}

fn beside(house: &House, expected: Version) -> RunBeside {
    let write = note(house, expected, "beside");
    RunBeside::new(move |run, _| {
        assert_eq!(run.started.run.as_str(), "r");
        vec![write.clone()]
    })
}

async fn noted(house: &House) -> (Version, Option<String>) {
    house.runtime.ledger().newest(stream()).await.unwrap()
}

fn signal() -> Signal {
    Signal { id: "1".into(), name: "go".into(), correlation: None, payload: Json::null(), by: "test".into() }
}

/// Not tried for ever either: what is beside it will not fit by itself.
#[tokio::test]
async fn a_run_is_not_started_when_what_is_beside_it_lost_its_race() {
    let house = Town::default().process();
    house.runtime.ledger().append(vec![note(&house, Version::NONE, "first")]).await.unwrap();
    let (new, run) = (new_run(&Arc::new(workflow(WAITS)), "{}", "r"), RunId::new("r").unwrap());
    let lost = house.runtime.start_run_beside(new.clone(), &beside(&house, Version::NONE)).await;
    assert!(matches!(lost, Err(RunError::Ledger(LedgerError::BesideTaken { .. }))), "{lost:?}");
    assert_eq!(house.runtime.run(&tenant(), &run).await.unwrap_err().code(), "run_not_found");
    let started = house.runtime.start_run_beside(new, &beside(&house, Version(1))).await.unwrap();
    assert_eq!((started.heard, noted(&house).await), (Heard::Now, (Version(2), Some("beside".into()))));
}

#[tokio::test]
async fn what_is_done_to_a_run_and_what_is_beside_it_are_one() {
    let house = Town::default().process();
    let run = house.start(WAITS, "{}", "r").await;
    house.runtime.drive_run(&tenant(), &run).await.unwrap();
    house.runtime.ledger().append(vec![note(&house, Version::NONE, "first")]).await.unwrap();
    let send = |expected| {
        let (runtime, run, beside) = (house.runtime.clone(), run.clone(), beside(&house, expected));
        async move { runtime.signal_run_beside(&tenant(), &run, signal(), &beside).await }
    };
    let lost = send(Version::NONE).await;
    assert!(matches!(lost, Err(RunError::Ledger(LedgerError::BesideTaken { .. }))), "{lost:?}");
    let (facts, _) = house.runtime.run_facts(&tenant(), &run).await.unwrap();
    assert!(facts.received("1").is_none());
    assert_eq!(send(Version(1)).await.unwrap().heard, Heard::Now);
    assert_eq!(noted(&house).await, (Version(2), Some("beside".into())));
    // Heard before: nothing is written, also not what was to be beside it.
    assert_eq!(send(Version(2)).await.unwrap().heard, Heard::Before);
    assert_eq!(noted(&house).await.0, Version(2));
    assert_eq!(house.see(&run).await.state, "completed");
}
