//! A process that is about to end lets its runs rest between steps: nothing is cut off, and whoever comes next goes on.

use std::time::Duration;

use counterfoil_runtime::engine::Rest;

use crate::house::{Town, statuses, tenant};

const TWO: &str =
    "workflow: w\nsteps:\n  - { id: a, tool: act, args: { do: wait, what: one } }\n  - { id: b, tool: act, args: { what: two } }\n";

#[tokio::test]
async fn what_is_under_way_ends_and_nothing_else_begins() {
    let town = Town::default();
    let first = town.process();
    let run = first.start(TWO, "{}", "r").await;
    let (runtime, id) = (first.runtime.clone(), run.clone());
    let driving = tokio::spawn(async move { runtime.drive_run(&tenant(), &id).await });
    first.world().begun.notified().await;
    let runtime = first.runtime.clone();
    let resting = tokio::spawn(async move { runtime.rest_runs().await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!resting.is_finished(), "the step is waited for");
    first.world().let_go.notify_one();
    tokio::time::timeout(Duration::from_secs(10), resting).await.expect("it rests").unwrap();
    assert!(matches!(driving.await.unwrap().unwrap(), Rest::Parked { due: Some(_) }));
    assert_eq!((first.world().log(), statuses(&first.view(&run).await)), (vec!["act one".to_owned()], "a:done b:ready".to_owned()));
    // This process is at rest for good; another goes on.
    assert!(matches!(first.runtime.drive_run(&tenant(), &run).await.unwrap(), Rest::Parked { .. }));
    assert_eq!(town.process().see(&run).await.state, "completed");
    assert_eq!(first.world().log(), ["act one", "act two"]);
}

#[tokio::test]
async fn a_process_that_drives_nothing_is_at_rest_at_once() {
    let house = Town::default().process();
    tokio::time::timeout(Duration::from_secs(10), house.runtime.rest_runs()).await.expect("at once");
}
