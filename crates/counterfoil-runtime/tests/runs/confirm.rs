//! Confirmation replay inside the engine: who is asked, when, by whom, and that asking is all that happens.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil_core::run::confirm::{Confirm, Finding, OnDrift, When};
use counterfoil_core::{Caller, Outcome, Policy, RunId, ToolName};
use counterfoil_runtime::engine::Rest;
use counterfoil_runtime::engine::durable::{Context, Failed};
use counterfoil_runtime::tool::{Recorded, ToolFuture};
use counterfoil_runtime::{Invocation, Operator, Registered, Tool};
use serde_json::{Value, json};

use crate::house::{Death, House, Town, WorldTool, new_run, tenant, workflow};

/// What the world says of what was done, and how often it was asked.
#[derive(Default)]
struct Watch {
    /// By the tool; `verified` where nothing is said.
    says: Mutex<HashMap<String, Finding>>,
    asked: Mutex<Vec<String>>,
    at_once: AtomicU64,
    at_once_max: AtomicU64,
    slow: Mutex<Duration>,
}

impl Watch {
    fn say(&self, tool: &str, finding: Finding) {
        self.says.lock().unwrap().insert(tool.into(), finding);
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

fn drifted() -> Finding {
    Finding::Drifted { expected: "one".into(), found: "two".into() }
}

fn unavailable() -> Finding {
    Finding::Unavailable { why: "down".into() }
}

/// A tool of the world that can be verified.
struct Watched(WorldTool, Arc<Watch>);

impl Tool for Watched {
    fn invoke(&self, invocation: Invocation) -> ToolFuture<'_, Outcome> {
        self.0.invoke(invocation)
    }
    fn can_probe(&self) -> bool {
        true
    }
    fn probe(&self, invocation: Invocation) -> ToolFuture<'_, counterfoil_runtime::ProbeAnswer> {
        self.0.probe(invocation)
    }
    fn can_verify(&self) -> bool {
        true
    }
    fn verify(&self, invocation: Invocation, recorded: Recorded) -> ToolFuture<'_, Finding> {
        let watch = self.1.clone();
        Box::pin(async move {
            let now = watch.at_once.fetch_add(1, Ordering::SeqCst) + 1;
            watch.at_once_max.fetch_max(now, Ordering::SeqCst);
            assert!(recorded.result.to_value()["id"].is_string(), "it is asked with what is recorded");
            watch.asked.lock().unwrap().push(invocation.tool.to_string());
            let slow = *watch.slow.lock().unwrap();
            tokio::time::sleep(slow).await;
            watch.at_once.fetch_sub(1, Ordering::SeqCst);
            watch.says.lock().unwrap().get(invocation.tool.as_str()).cloned().unwrap_or(Finding::Verified)
        })
    }
}

/// The processes of a town whose tools can be verified.
#[derive(Clone, Default)]
struct Verified {
    town: Town,
    watch: Arc<Watch>,
    confirm: Confirm,
}

impl Verified {
    fn process(&self) -> House {
        self.process_that_dies(Death::Never).0
    }

    fn process_that_dies(&self, death: Death) -> (House, Arc<crate::house::Mortal>) {
        let (house, mortal) = self.town.process_that_dies(death);
        for name in ["book_flight", "book_hotel", "act", "charge"] {
            let known = house.runtime.registry().get(&tenant(), &ToolName::new(name).unwrap()).unwrap();
            let policy = Policy { confirm: self.confirm, ..known.policy.clone() };
            let tool = Arc::new(Watched(WorldTool(self.town.world.clone()), self.watch.clone()));
            house.runtime.register(Registered::new(known.name.clone(), tool, policy));
        }
        (house, mortal)
    }

    /// The worker that was at it is lost.
    fn time_goes_by(&self) {
        self.town.clock.advance(Duration::from_secs(120));
    }
}

const TRIP: &str = r#"
workflow: trip
steps:
  - { id: flight, tool: book_flight, args: { who: ada }, undo: { tool: cancel_flight, args: { booking: "${result.id}" } } }
  - { id: hotel, tool: book_hotel, undo: { tool: cancel_hotel, args: { booking: "${result.id}" } } }
  - { id: pay, tool: charge, args: { do: "${input.pay}" } }
"#;

fn run() -> RunId {
    "r".parse().unwrap()
}

/// Drives the trip until its process dies, which it does at that append.
async fn die(verified: &Verified, yaml: &str, death: Death) -> bool {
    let (house, mortal) = verified.process_that_dies(death);
    let workflow = Arc::new(workflow(yaml));
    let lived = async {
        house.runtime.start_run(new_run(&workflow, r#"{"pay":"ok"}"#, "r")).await?;
        house.runtime.see_run_through(&tenant(), &run()).await
    };
    tokio::select! {
        _ = lived => {}
        () = mortal.death() => {}
    }
    verified.time_goes_by();
    mortal.is_dead()
}

/// Until so many questions were asked.
async fn for_asked(verified: &Verified, count: usize) {
    until(async || verified.watch.asked() >= count).await;
}

/// Looks until it is so.
async fn until(so: impl AsyncFn() -> bool) {
    let looking = async {
        while !so().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), looking).await.expect("it comes to that");
}

async fn entries(house: &House, word: &str) -> Vec<Value> {
    let entries = house.runtime.run_entries(&tenant(), &run(), None).await.unwrap();
    entries.iter().filter_map(|line| line["entry"].get(word).cloned()).collect()
}

#[tokio::test]
async fn a_run_that_is_never_interrupted_asks_nothing_and_writes_nothing_more() {
    let verified = Verified::default();
    let house = verified.process();
    let view = house.run(TRIP, r#"{"pay":"ok"}"#).await;
    assert_eq!((view.state, verified.watch.asked(), view.confirmation.is_none()), ("completed", 0, true));
    let plain = Town::default().process();
    plain.run(TRIP, r#"{"pay":"ok"}"#).await;
    let count = async |house: &House| house.runtime.run_entries(&tenant(), &run(), None).await.unwrap().len();
    assert_eq!(count(&house).await, count(&plain).await);
}

/// A process dies at any append, and so does the one that takes over, in the middle of its questions too: what was done is done once.
#[test]
fn death_at_every_append_and_again_while_it_is_confirmed() {
    let mut appends = 0;
    for first in 1.. {
        let mut died = false;
        for second in 1..=3 {
            for death in [Death::Before, Death::After] {
                let verified = Verified::default();
                let alone = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                died |= alone().block_on(die(&verified, TRIP, death(first)));
                alone().block_on(die(&verified, TRIP, death(second)));
                let state = alone().block_on(async {
                    let house = verified.process();
                    house.start(TRIP, r#"{"pay":"ok"}"#, "r").await;
                    house.see(&run()).await.state
                });
                let counts = ["book_flight", "book_hotel", "charge"].map(|tool| verified.town.world.count(tool));
                assert_eq!((state, counts), ("completed", [1, 1, 1]), "{first}, {second}: {:?}", verified.town.world.log());
            }
        }
        if !died {
            break;
        }
        appends = first;
    }
    assert!(appends >= 4, "only {appends} appends were tried");
}

#[tokio::test]
async fn a_strict_mismatch_fails_the_run_and_nothing_is_done_again() {
    let verified = Verified::default();
    assert!(die(&verified, TRIP, Death::After(6)).await);
    verified.watch.say("book_hotel", drifted());
    let done = verified.town.world.log();
    let house = verified.process();
    let view = house.see(&run()).await;
    let error = view.error.as_ref().unwrap();
    assert_eq!((error.code.as_str(), view.state), ("world_drifted", "compensation_failed"), "{view:?}");
    assert!(error.message.contains("step hotel (book_hotel): expected one, found two"), "{}", error.message);
    assert_eq!(verified.town.world.log()[done.len()..], ["cancel_flight"], "what did not drift is undone, what did is left alone");
    // Asked for by a person, it is undone all the same.
    house.runtime.undo_run(&tenant(), &run(), None, &Operator::new("ada", "they are gone anyway")).await.unwrap();
    assert_eq!(house.see(&run()).await.state, "compensated");
    assert_eq!(verified.town.world.log()[done.len()..], ["cancel_flight", "cancel_hotel"]);
}

#[tokio::test]
async fn steps_workflows_and_tools_have_their_word_in_that_order() {
    let table = [
        // What the tool says, what the workflow says, what the step `hotel` says: how often is asked.
        (Confirm::default(), "", "", 2),
        (Confirm { when: Some(When::Never), on_drift: None }, "", "", 0),
        (Confirm { when: Some(When::Never), on_drift: None }, "confirm: on_recovery", "", 2),
        (Confirm::default(), "confirm: never", "", 0),
        (Confirm::default(), "confirm: never", "confirm: always,", 1),
        (Confirm::default(), "confirm: { mode: warn }", "confirm: never,", 1),
    ];
    for (confirm, top, step, asked) in table {
        let verified = Verified { confirm, ..Verified::default() };
        let yaml = TRIP.replace("steps:", &format!("{top}\nsteps:")).replace("id: hotel,", &format!("id: hotel, {step}"));
        assert!(die(&verified, &yaml, Death::After(6)).await);
        let view = verified.process().see(&run()).await;
        assert_eq!((view.state, verified.watch.asked()), ("completed", asked), "{confirm:?} {top} {step}");
    }
    // What a tool says follows where nobody else says anything.
    let verified = Verified { confirm: Confirm { when: None, on_drift: Some(OnDrift::Warn) }, ..Verified::default() };
    assert!(die(&verified, TRIP, Death::After(6)).await);
    verified.watch.say("book_flight", drifted());
    let view = verified.process().see(&run()).await;
    assert_eq!((view.state, view.confirmation.unwrap().judgement), ("completed", "warned"));
}

#[tokio::test]
async fn always_is_each_time_that_a_worker_takes_the_run_up() {
    let yaml = TRIP.replace("  - { id: pay", "  - { id: nap, sleep: 1h }\n  - { id: pay");
    for (top, asked) in [("", 0), ("confirm: always", 2)] {
        let verified = Verified::default();
        let house = verified.process();
        let yaml = yaml.replace("steps:", &format!("{top}\nsteps:"));
        house.start(&yaml, r#"{"pay":"ok"}"#, "r").await;
        assert!(matches!(house.runtime.drive_run(&tenant(), &run()).await.unwrap(), Rest::Parked { due: Some(_) }));
        verified.town.clock.advance(Duration::from_secs(3601));
        assert_eq!((house.see(&run()).await.state, verified.watch.asked()), ("completed", asked), "{top}");
    }
}

#[tokio::test]
async fn what_cannot_be_asked_is_asked_ever_more_rarely_and_never_taken_for_verified() {
    let verified = Verified::default();
    assert!(die(&verified, TRIP, Death::After(6)).await);
    verified.watch.say("book_hotel", unavailable());
    let mut waits = Vec::new();
    for _ in 0..8 {
        let house = verified.process();
        let now = house.runtime.now();
        let Rest::Parked { due: Some(due) } = house.runtime.drive_run(&tenant(), &run()).await.unwrap() else { panic!("it waits") };
        waits.push(due.since(now).as_secs());
        verified.town.clock.advance(due.since(now) + Duration::from_secs(1));
    }
    // 1.25 s of each go to the questions that were asked again at once.
    let expected = [6, 11, 21, 41, 81, 161, 301, 301];
    assert!(waits.iter().zip(expected).all(|(wait, expected)| wait.abs_diff(expected) <= 1), "{waits:?}");
    assert_eq!(verified.town.world.count("charge"), 0);
    let house = verified.process();
    let view = house.view(&run()).await;
    assert_eq!((view.state, view.confirmation.as_ref().unwrap().judgement), ("waiting", "asks_again"));
    verified.watch.say("book_hotel", Finding::Verified);
    assert_eq!((house.see(&run()).await.state, verified.town.world.count("charge")), ("completed", 1));
}

#[tokio::test]
async fn a_run_that_is_held_up_still_has_its_deadline() {
    let verified = Verified::default();
    let yaml = TRIP.replace("steps:", "timeout: 10m\nconfirm: { mode: human }\nsteps:");
    assert!(die(&verified, &yaml, Death::After(6)).await);
    verified.watch.say("book_flight", drifted());
    let house = verified.process();
    let rest = house.runtime.drive_run(&tenant(), &run()).await.unwrap();
    let Rest::Parked { due: Some(due) } = rest else { panic!("{rest:?}") };
    verified.town.clock.advance(due.since(house.runtime.now()) + Duration::from_secs(1));
    let view = house.see(&run()).await;
    assert_eq!((view.state, view.error.unwrap().code.as_str(), verified.town.world.count("charge")), ("compensated", "run_timeout", 0));
}

/// A process that is about to end while it asks lets go of the run; the next one asks.
#[tokio::test]
async fn a_process_that_ends_while_it_asks_leaves_the_asking_to_the_next() {
    let verified = Verified::default();
    assert!(die(&verified, TRIP, Death::After(6)).await);
    *verified.watch.slow.lock().unwrap() = Duration::from_secs(60);
    let house = verified.process();
    let driving = tokio::spawn({
        let runtime = house.runtime.clone();
        async move { runtime.drive_run(&tenant(), &run()).await.unwrap() }
    });
    for_asked(&verified, 2).await;
    tokio::time::timeout(Duration::from_secs(30), house.runtime.rest_runs()).await.expect("it ends before its questions do");
    assert!(matches!(driving.await.unwrap(), Rest::Parked { .. }));
    assert_eq!(entries(&house, "parked").await.last().unwrap()["unconfirmed"], true);
    *verified.watch.slow.lock().unwrap() = Duration::ZERO;
    verified.watch.say("book_flight", drifted());
    assert_eq!(verified.process().see(&run()).await.error.unwrap().code, "world_drifted");
}

#[tokio::test]
async fn many_effects_are_all_asked_about_a_few_at_a_time() {
    const ITEMS: usize = 300;
    let verified = Verified::default();
    let yaml = r#"
workflow: many
steps:
  - id: each
    map: { over: "${input.items}", concurrency: 50, steps: [{ id: one, tool: act, args: { what: "${item}" } }] }
  - { id: pay, tool: charge, args: { do: wait } }
"#;
    let house = verified.process();
    let items: Vec<String> = (0..ITEMS).map(|n| n.to_string()).collect();
    house.start(yaml, &json!({ "items": items }).to_string(), "r").await;
    let runtime = house.runtime.clone();
    let driving = tokio::spawn(async move { runtime.drive_run(&tenant(), &run()).await });
    until(async || house.world().count("act") == ITEMS && house.world().at_once.load(Ordering::SeqCst) == 1).await;
    driving.abort();
    drop(house);
    verified.time_goes_by();
    verified.watch.say("act", drifted());
    *verified.watch.slow.lock().unwrap() = Duration::from_millis(1);
    let house = verified.process();
    let view = house.see(&run()).await;
    assert_eq!(view.error.as_ref().unwrap().code, "world_drifted", "{:?}", view.error);
    assert_eq!(verified.watch.asked(), ITEMS, "all, also after the first mismatch");
    let at_once = verified.watch.at_once_max.load(Ordering::SeqCst);
    assert!((2..=8).contains(&at_once), "{at_once} at once");
    assert_eq!(view.confirmation.unwrap().checks.iter().filter(|check| check.finding == "drifted").count(), ITEMS);
}

/// Questions that take longer than the run's lease: the run is kept, and nobody else takes it.
#[tokio::test]
async fn the_run_is_kept_while_it_is_asked_about() {
    let verified = Verified::default();
    assert!(die(&verified, TRIP, Death::After(6)).await);
    *verified.watch.slow.lock().unwrap() = Duration::from_secs(2);
    let (house, other) = (verified.process(), verified.process());
    let runtime = house.runtime.clone();
    let driving = tokio::spawn(async move { runtime.see_run_through(&tenant(), &run()).await });
    for_asked(&verified, 2).await;
    // Past half of the lease, but not past it: then its owner says that it is alive.
    verified.town.clock.advance(Duration::from_secs(20));
    until(async || entries(&house, "owned").await.len() >= 3).await;
    verified.town.clock.advance(Duration::from_secs(20));
    assert_eq!(other.runtime.drive_run(&tenant(), &run()).await.unwrap(), Rest::Elsewhere);
    tokio::time::timeout(Duration::from_secs(30), driving).await.unwrap().unwrap().unwrap();
    assert_eq!((house.view(&run()).await.state, verified.watch.asked()), ("completed", 2));
}

async fn function(ctx: Context, input: Value) -> Result<Value, Failed> {
    let flight = ctx.call("book_flight", json!({})).undo("cancel_flight", |r| json!({ "what": r["id"] })).await?;
    ctx.call("book_hotel", json!({})).undo("cancel_hotel", |r| json!({ "what": r["id"] })).await?;
    ctx.call("charge", json!({ "do": input["pay"], "for": flight["id"] })).await?;
    Ok(json!(null))
}

/// A Rust function as a run: the same before it is run again.
#[tokio::test]
async fn a_function_is_confirmed_too() {
    for (finding, state, log) in [
        (Finding::Verified, "completed", ["book_flight", "book_hotel", "charge"].to_vec()),
        (drifted(), "compensation_failed", ["book_flight", "book_hotel", "cancel_flight book_flight-1"].to_vec()),
    ] {
        let verified = Verified::default();
        let (house, mortal) = verified.process_that_dies(Death::After(8));
        house.runtime.register_function("trip", function).unwrap();
        let lived = async {
            house.runtime.start_function(&tenant(), &Caller::new("test").unwrap(), &run(), "trip", &json!({ "pay": "ok" })).await?;
            house.runtime.see_run_through(&tenant(), &run()).await
        };
        tokio::select! {
            _ = lived => {}
            () = mortal.death() => {}
        }
        assert_eq!(verified.town.world.log(), ["book_flight", "book_hotel"]);
        verified.time_goes_by();
        verified.watch.say("book_hotel", finding);
        let house = verified.process();
        house.runtime.register_function("trip", function).unwrap();
        let view = house.see(&run()).await;
        assert_eq!((view.state, verified.town.world.log()), (state, log.iter().map(ToString::to_string).collect()), "{view:?}");
        assert_eq!(verified.watch.asked(), 2);
    }
}

/// Nothing is recorded by a dry replay, whoever is at the run.
#[tokio::test]
async fn a_dry_replay_looks_on() {
    let verified = Verified::default();
    assert!(die(&verified, TRIP, Death::After(6)).await);
    let house = verified.process();
    let before = house.runtime.run_entries(&tenant(), &run(), None).await.unwrap();
    verified.watch.say("book_flight", drifted());
    verified.watch.say("book_hotel", unavailable());
    let view = house.runtime.replay_run(&tenant(), &run(), None).await.unwrap();
    let found: Vec<_> = view.steps.iter().map(|step| (step.step.as_str(), step.finding)).collect();
    assert_eq!((&found[..2], view.verdict), (&[("flight", "drifted"), ("hotel", "unavailable")][..], "drifted"));
    assert_eq!(house.runtime.run_entries(&tenant(), &run(), None).await.unwrap(), before);
    assert_eq!(verified.watch.asked(), 2, "a look is one question each");
    // After it was undone there is nothing to agree with.
    verified.watch.say("book_flight", Finding::Verified);
    verified.watch.say("book_hotel", Finding::Verified);
    house.see(&run()).await;
    house.runtime.undo_run(&tenant(), &run(), None, &Operator::new("ada", "")).await.unwrap();
    house.see(&run()).await;
    let undone = house.runtime.replay_run(&tenant(), &run(), None).await.unwrap();
    assert_eq!((undone.counts.undone, undone.counts.verified, undone.verdict), (2, 1, "agrees"), "{undone:?}");
}
