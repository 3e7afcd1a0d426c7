//! Cancelling: what has not begun never does, what runs is told to stop, what it still did is known; and only what is inside.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_runtime::engine::operate::{Cancelling, Heard};

use crate::house::{House, Posted, Town, path, statuses, step, tenant};

fn cancelling(step: Option<&str>, undo: bool) -> Cancelling {
    Cancelling { step: step.map(path), undo, by: "ada".into(), why: "enough".into() }
}

async fn cancel(house: &House, cancelling: Cancelling) -> Result<Heard, counterfoil_runtime::engine::RunError> {
    house.runtime.cancel_run(&tenant(), &"r".parse().unwrap(), cancelling).await
}

fn drive(house: &House) -> tokio::task::JoinHandle<()> {
    let runtime = house.runtime.clone();
    tokio::spawn(async move { runtime.see_run_through(&tenant(), &"r".parse().unwrap()).await.unwrap() })
}

async fn ended(driving: tokio::task::JoinHandle<()>) {
    // Nothing is measured by it: what should end and does not is to fail, not to hang.
    tokio::time::timeout(Duration::from_secs(60), driving).await.expect("it ends").unwrap();
}

#[tokio::test]
async fn cancelling_stops_what_runs_and_what_waits_and_is_the_same_twice() {
    let house = Town::default().process();
    let yaml = r#"
workflow: w
steps:
  - id: p
    parallel:
      branches:
        - [{ id: runs, tool: act, args: { do: stops } }, { id: next, tool: act }]
        - [{ id: nap, sleep: 1h }]
        - [{ id: s, wait: { signal: never } }]
"#;
    let run = house.start(yaml, "{}", "r").await;
    let driving = drive(&house);
    house.world().begun.notified().await;
    assert_eq!(cancel(&house, cancelling(None, false)).await.unwrap(), Heard::Now);
    assert_eq!(cancel(&house, cancelling(None, false)).await.unwrap(), Heard::Before);
    ended(driving).await;
    let view = house.view(&run).await;
    assert_eq!(
        (view.state, statuses(&view).as_str()),
        ("cancelled", "p:cancelled runs:cancelled next:cancelled nap:cancelled s:cancelled")
    );
    assert!(house.world().log().is_empty());
    assert_eq!(cancel(&house, cancelling(None, false)).await.unwrap(), Heard::Before);
    let receipts = house.runtime.ledger().receipts(&tenant(), Some(&run)).await.unwrap();
    assert_eq!(receipts.iter().filter(|r| r.outcome == "cancelled").count(), 1);
}

#[tokio::test]
async fn what_acted_all_the_same_is_kept_not_delivered_and_undone() {
    let house = Town::default().process();
    let yaml = r#"
workflow: w
steps:
  - { id: a, tool: act, args: { do: hang, what: a }, undo: { tool: undo_act, args: { what: "${result.id}" } } }
  - { id: b, tool: act, args: { what: "${steps.a.result.id}" } }
"#;
    let run = house.start(yaml, "{}", "r").await;
    let driving = drive(&house);
    house.world().begun.notified().await;
    cancel(&house, cancelling(None, true)).await.unwrap();
    ended(driving).await;
    let view = house.view(&run).await;
    assert_eq!((view.state, house.world().log()), ("compensated", vec!["act a".to_owned(), "undo_act act-1".to_owned()]));
    assert_eq!(step(&view, "a").result, None, "nobody sees it");
}

/// Its process is dead and its request on its way: "it did not happen" is no answer yet, and what then happens is undone.
#[test]
fn what_is_still_on_its_way_when_it_is_cancelled_is_not_asked_about_too_early() {
    let yaml = r#"
workflow: w
steps:
  - { id: a, tool: posted, args: { what: a }, undo: { tool: undo_act, args: { what: "${result.id}" } } }
"#;
    let world_lives = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let town = Town::default();
    let process = |town: &Town| {
        let house = town.process();
        let posted = Posted { world: town.world.clone(), world_lives: world_lives.handle().clone() };
        let policy = counterfoil_core::Policy { timeout: std::time::Duration::from_secs(600), ..Default::default() };
        house.runtime.register(counterfoil_runtime::Registered::new("posted".parse().unwrap(), Arc::new(posted), policy));
        house
    };
    let life = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = life();
    first.block_on(async {
        let house = process(&town);
        house.start(yaml, "{}", "r").await;
        let driving = drive(&std::sync::Arc::new(house));
        town.world.begun.notified().await;
        drop(driving);
    });
    // With all its tasks.
    drop(first);
    town.clock.advance(std::time::Duration::from_secs(1));
    life().block_on(async {
        let house = process(&town);
        cancel(&house, cancelling(None, true)).await.unwrap();
        house.town.clock.advance(counterfoil_core::run::OWNER_LEASE);
        let rest = house.runtime.drive_run(&tenant(), &"r".parse().unwrap()).await.unwrap();
        assert_ne!(rest, counterfoil_runtime::engine::Rest::Ended, "nobody can know yet: {:?}", house.view(&"r".parse().unwrap()).await);
        town.world.let_go.notify_one();
        town.world.begun.notified().await;
        house.town.clock.advance(std::time::Duration::from_secs(700));
        let view = house.see(&"r".parse().unwrap()).await;
        assert_eq!((view.state, house.world().log()), ("compensated", vec!["posted a".to_owned(), "undo_act posted-1".to_owned()]));
    });
}

#[tokio::test]
async fn only_what_is_inside_a_cancelled_scope_stops() {
    let house = Town::default().process();
    let yaml = r#"
workflow: w
steps:
  - { id: inside, needs: [], scope: { steps: [{ id: deep, scope: { steps: [{ id: a, tool: act, args: { do: stops } }] } }] } }
  - { id: beside, needs: [], tool: act, args: { do: wait, what: beside } }
  - { id: z, needs: [inside, beside], tool: act, args: { what: "${steps.inside.status}" } }
"#;
    let run = house.start(yaml, "{}", "r").await;
    let driving = drive(&house);
    let both = async {
        while house.world().at_once.load(std::sync::atomic::Ordering::SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), both).await.expect("both begin");
    assert_eq!(cancel(&house, cancelling(Some("nobody"), false)).await.unwrap_err().code(), "step_not_found");
    cancel(&house, cancelling(Some("inside"), false)).await.unwrap();
    house.world().let_go.notify_one();
    ended(driving).await;
    let view = house.view(&run).await;
    assert_eq!((view.state, house.world().log()), ("completed", vec!["act beside".to_owned(), "act cancelled".to_owned()]));
    assert_eq!(cancel(&house, cancelling(None, false)).await.unwrap_err().code(), "wrong_state");
}

#[tokio::test]
async fn the_first_branch_wins_and_what_the_losers_did_is_recorded() {
    let house = Town::default().process();
    let yaml = r#"
workflow: w
steps:
  - id: race
    parallel:
      join: any
      branches:
        - [{ id: quick, tool: act, args: { do: wait, what: quick } }]
        - [{ id: slow, tool: act, args: { do: hang, what: slow } }]
  - { id: z, tool: act, args: { what: z } }
"#;
    let run = house.start(yaml, "{}", "r").await;
    let driving = drive(&house);
    while house.world().at_once.load(std::sync::atomic::Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    house.world().let_go.notify_one();
    ended(driving).await;
    let view = house.view(&run).await;
    assert_eq!((view.state, statuses(&view).as_str()), ("completed", "race:done quick:done slow:cancelled z:done"));
    assert_eq!(house.world().count("act"), 3);
    let key = step(&view, "slow").effect.clone().unwrap().parse().unwrap();
    let effect = house.runtime.effect(key).await.unwrap();
    assert!(matches!(effect.state, counterfoil_core::State::Cancelled { late: Some(_), .. }), "{:?}", effect.state);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_and_complete_race_to_one_end() {
    let house = Arc::new(Town::default().process());
    let yaml = "workflow: w\nsteps:\n  - { id: a, tool: act }\n";
    let workflow = Arc::new(crate::house::workflow(yaml));
    // More of them, before a release: COUNTERFOIL_RACES=10000.
    let races = std::env::var("COUNTERFOIL_RACES").ok().and_then(|races| races.parse().ok()).unwrap_or(300);
    let mut ends = [0, 0];
    // How far the run is let ahead: whoever won last starts later next time, so that they stay close on a busy machine too.
    let mut ahead = 0;
    for n in 0..races {
        let run: counterfoil_core::RunId = format!("r{n}").parse().unwrap();
        house.runtime.start_run(crate::house::new_run(&workflow, "{}", run.as_str())).await.unwrap();
        let (racing, id) = (house.clone(), run.clone());
        let driving = tokio::spawn(async move { racing.runtime.see_run_through(&tenant(), &id).await.unwrap() });
        for _ in 0..ahead {
            tokio::task::yield_now().await;
        }
        let asked = house.runtime.cancel_run(&tenant(), &run, cancelling(None, false)).await;
        ended(driving).await;
        let view = house.view(&run).await;
        let entries = house.runtime.run_entries(&tenant(), &run, None).await.unwrap();
        assert_eq!(entries.iter().filter(|e| e["entry"]["run_ended"].is_object()).count(), 1);
        let receipts = house.runtime.ledger().receipts(&tenant(), Some(&run)).await.unwrap();
        assert!(receipts.len() <= 2, "{receipts:?}");
        match view.state {
            "completed" => {
                assert_eq!(receipts.iter().map(|r| r.outcome.as_str()).collect::<Vec<_>>(), ["done"], "{view:?}");
                ends[0] += 1;
                ahead /= 2;
            }
            "cancelled" => {
                assert!(asked.is_ok());
                ends[1] += 1;
                ahead += 1 + ahead / 4;
            }
            other => panic!("{other}"),
        }
    }
    assert!(ends.iter().all(|count| *count > 0), "both must be seen: {ends:?}");
}
