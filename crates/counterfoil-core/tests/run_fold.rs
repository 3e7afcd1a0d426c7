//! What a run is after its entries: its state in one word, when to look at it, what is to be undone, who takes which signal; and what cannot follow.
//!
//! Mostly of a run without a plan: what a plan adds is `flow.rs`'s.

use std::sync::Arc;

use counterfoil_core::effect::WorldSemantics;
use counterfoil_core::ids::{Digest32, Fence, WorkflowName};
use counterfoil_core::run::confirm::Judgement;
use counterfoil_core::run::entry::{Awaited, Began, By, RunEnd, Signalled, Started, StepEnd, Undone};
use counterfoil_core::run::flow::{Flow, Progress};
use counterfoil_core::run::plan::{Draft, OnFailure, Plan, Shape};
use counterfoil_core::run::{APPROVAL, OWNER_LEASE, Run, RunEntry, RunFoldError, RunState, entry_word, is_run, word};
use counterfoil_core::{Caller, CanonicalJson, Failure, Json, RunId, StepPath, Tenant, Timestamp, ToolName, WorkerId, codec};

const DEADLINE: Timestamp = Timestamp(900_000_000);

fn started() -> Started {
    Started {
        at: at(0),
        tenant: Tenant::new("acme").unwrap(),
        run: RunId::new("r").unwrap(),
        caller: Caller::new("ada").unwrap(),
        workflow: WorkflowName::new("trip").unwrap(),
        by: By::Function,
        definition: Digest32::of(b"trip"),
        input: CanonicalJson::empty_object(),
        parent: None,
        forked: None,
        tools: None,
        deadline: Some(DEADLINE),
        lease_ms: None,
        retain_ms: 7_000,
    }
}

/// So many seconds after it was started.
fn at(seconds: i64) -> Timestamp {
    Timestamp(100_000_000 + seconds * 1_000_000)
}
fn path(step: &str) -> StepPath {
    StepPath::new(step).unwrap()
}
fn owned(seconds: i64, worker: &str, fence: u64) -> RunEntry {
    let worker = WorkerId::new(worker).unwrap();
    RunEntry::Owned { at: at(seconds), worker, fence: Fence(fence), lease_until: at(seconds) + OWNER_LEASE }
}
fn parked(seconds: i64, due: Option<i64>) -> RunEntry {
    RunEntry::Parked { at: at(seconds), due: due.map(at), unconfirmed: false }
}
fn began(step: &str, what: Began) -> RunEntry {
    RunEntry::StepBegan { at: at(1), step: path(step), what }
}
fn effect(pure: bool) -> Began {
    Began::Effect { tool: ToolName::new("charge").unwrap(), key: Digest32::of(b"key"), pure }
}
fn ended(step: &str, how: StepEnd) -> RunEntry {
    RunEntry::StepEnded { at: at(2), step: path(step), how }
}
fn done(undo: bool) -> StepEnd {
    StepEnd::Done { result: Json::null(), way: None, undo }
}
fn failed(retriable: bool, doubt: bool) -> StepEnd {
    StepEnd::Failed { failure: Failure { retriable, ..Failure::new("no", "no") }, doubt }
}
fn signal(id: &str, name: &str, correlation: Option<&str>) -> RunEntry {
    let correlation = correlation.map(str::to_owned);
    RunEntry::Signalled(Signalled { at: at(3), id: id.into(), name: name.into(), correlation, payload: Json::null(), by: "ada".into() })
}
fn undo(scope: Option<&str>, of: &[&str]) -> RunEntry {
    let of = of.iter().map(|step| path(step)).collect();
    RunEntry::CompensationTriggered { at: at(4), scope: scope.map(path), by: "ada".into(), why: "why".into(), of }
}
fn undone(step: &str) -> RunEntry {
    RunEntry::CompensationCompleted { at: at(5), step: path(step), how: Undone::Undone }
}
fn stuck(step: &str) -> RunEntry {
    RunEntry::CompensationFailed { at: at(5), step: path(step), failure: Failure::new("no", "no") }
}
fn cancel(seconds: i64, step: Option<&str>) -> RunEntry {
    RunEntry::CancelAsked { at: at(seconds), by: "ada".into(), why: "why".into(), step: step.map(path), undo: true }
}
fn over(how: RunEnd) -> RunEntry {
    RunEntry::RunEnded { at: at(6), how }
}
fn completed() -> RunEntry {
    over(RunEnd::Completed { output: Json::null() })
}

/// Each entry as a record of its own, through its stored form.
fn fold(entries: &[RunEntry]) -> Run {
    let (started, rest) = Run::begun(&codec::encode(&[RunEntry::RunStarted(Box::new(started()))])).unwrap();
    assert!(rest.is_empty());
    let mut run = Run::new(started, None);
    run.recorded();
    for entry in entries {
        run.apply_body(&codec::encode(std::slice::from_ref(entry))).unwrap_or_else(|error| panic!("{entry:?}: {error}"));
    }
    assert_eq!(run.version, 1 + entries.len() as u64);
    run
}

fn refused(entries: &[RunEntry], entry: &RunEntry) -> String {
    let mut run = fold(entries);
    match run.note(entry) {
        Err(RunFoldError::Illegal { version, entry: named, why }) => {
            assert_eq!((version, named), (run.version + 1, word(entry)));
            why
        }
        other => panic!("{entry:?} gave {other:?}"),
    }
}

#[test]
fn a_run_has_one_state_at_a_time() {
    let state = |entries: &[RunEntry]| fold(entries).state();
    let step = [began("a", effect(false)), ended("a", done(true))];
    let then = |more: &[RunEntry]| state(&[&step[..], more].concat());
    assert_eq!(state(&[]), RunState::Running, "it is due at once");
    assert_eq!(state(&[owned(0, "w", 1)]), RunState::Running);
    assert_eq!(state(&[owned(0, "w", 1), parked(1, Some(60))]), RunState::Waiting);
    assert_eq!(state(&[owned(0, "w", 1), parked(1, None)]), RunState::Waiting);
    assert_eq!(state(&[parked(1, Some(0))]), RunState::Running, "somebody goes on with it now");
    assert_eq!(then(&[cancel(3, None)]), RunState::Cancelling);
    assert_eq!(then(&[cancel(3, Some("a"))]), RunState::Running, "of a step alone");
    assert_eq!(then(&[cancel(3, None), undo(None, &["a"])]), RunState::Compensating);
    assert_eq!(then(&[completed()]), RunState::Completed);
    assert_eq!(then(&[over(RunEnd::Failed { failure: Failure::new("no", "no") })]), RunState::Failed);
    assert_eq!(then(&[over(RunEnd::Cancelled)]), RunState::Cancelled);
    assert_eq!(then(&[undo(None, &["a"]), undone("a"), over(RunEnd::Cancelled)]), RunState::Compensated);
    assert_eq!(then(&[undo(None, &["a"]), stuck("a"), over(RunEnd::Cancelled)]), RunState::CompensationFailed);
    assert_eq!(then(&[undo(None, &["a"]), stuck("a"), over(RunEnd::Cancelled), undone("a")]), RunState::Compensated, "tried again");
    assert_eq!(then(&[undo(None, &[]), over(RunEnd::Cancelled)]), RunState::Cancelled, "there was nothing to undo");
    assert_eq!(then(&[undo(Some("a"), &["a"]), undone("a"), completed()]), RunState::Completed, "a part of it was undone");
    assert_eq!(then(&[completed(), undo(None, &["a"])]), RunState::Compensating, "long after");
    let ends = [RunState::Completed, RunState::Failed, RunState::Cancelled, RunState::Compensated, RunState::CompensationFailed];
    assert!(ends.iter().all(|state| state.is_end()));
    assert!(![RunState::Running, RunState::Waiting, RunState::Cancelling, RunState::Compensating].iter().any(|state| state.is_end()));
}

#[test]
fn when_to_look_at_it() {
    let due = |entries: &[RunEntry]| fold(entries).due();
    assert_eq!(due(&[]), Some(at(0)));
    assert_eq!(due(&[owned(0, "w", 1)]), Some(at(30)), "when its owner's lease runs out");
    assert_eq!(due(&[owned(0, "w", 1), began("a", effect(false))]), Some(at(31)), "what its owner writes keeps the lease");
    assert_eq!(due(&[owned(0, "w", 1), parked(1, Some(60))]), Some(at(60)));
    assert_eq!(due(&[parked(1, Some(60)), signal("s", "go", None)]), Some(at(3)), "something came");
    assert_eq!(due(&[parked(1, Some(2)), signal("s", "go", None)]), Some(at(2)));
    assert_eq!(due(&[parked(1, None), cancel(4, None)]), Some(at(4)));
    assert_eq!(due(&[completed()]), None);
    assert_eq!(due(&[completed(), undo(None, &["a"]), owned(5, "w", 1), undone("a")]), None, "it was only taken on to be undone");
    let sleeping = fold(&[began("nap", Began::Sleep { until: at(50) }), began("a", effect(false))]);
    assert_eq!((sleeping.next_alarm(), sleeping.next_time()), (Some((at(50), &path("nap"))), Some(at(50))));
    let woken = fold(&[began("nap", Began::Sleep { until: at(50) }), ended("nap", done(false))]);
    assert_eq!((woken.next_alarm(), woken.next_time()), (None, Some(DEADLINE)));
    let act = Draft { id: "a".into(), needs: None, shape: Shape::Act, ways: Vec::new(), on_failure: OnFailure::Fail, timeout: None };
    let mut planned = Run::new(Arc::new(started()), Some(Flow::new(Arc::new(Plan::new(vec![act]).unwrap()), None, at(0))));
    planned.recorded();
    planned.note(&began("a", effect(false))).unwrap();
    assert_eq!(planned.next_time(), Some(DEADLINE));
    planned.note(&cancel(4, None)).unwrap();
    assert_eq!(planned.next_time(), None, "what is ending has no deadline any more");
    let summary = fold(&[completed()]).summary();
    assert_eq!((summary.state, summary.open, summary.expires), ("completed", false, Some(at(13))));
    let summary = fold(&[parked(1, Some(60))]).summary();
    assert_eq!((summary.state, summary.open, summary.due, summary.expires), ("waiting", true, Some(at(60)), None));
}

#[test]
fn a_signal_is_taken_once_by_who_waits_for_it() {
    let on = |name: &str, correlation: Option<&str>| Awaited::Signal { name: name.into(), correlation: correlation.map(str::to_owned) };
    let came = [signal("1", "go", Some("x")), signal("2", "go", None), signal("3", "stop", None), signal("4", APPROVAL, Some("pay"))];
    let run = fold(&came);
    let takes = |step: &str, on: &Awaited| run.signal_for(&path(step), on).map(|signal| signal.id.as_str());
    assert_eq!((takes("a", &on("go", None)), takes("a", &on("go", Some("x")))), (Some("1"), Some("1")), "the oldest");
    assert_eq!((takes("a", &on("go", Some("y"))), takes("a", &on("stop", None)), takes("a", &on("come", None))), (None, Some("3"), None));
    let approval = Awaited::Approval { message: "may it pay?".into() };
    assert_eq!((takes("pay", &approval), takes("send", &approval)), (Some("4"), None));
    assert_eq!((run.received("3").map(|signal| signal.name.as_str()), run.received("9").is_some()), (Some("stop"), false));
    assert_eq!(refused(&came, &signal("2", "other", None)), r#"the signal "2" was received already"#);

    let left = |what: Began, how: StepEnd| {
        let run = fold(&[&came[..], &[began("pay", what), ended("pay", how)]].concat());
        run.signals.iter().map(|signal| signal.id.clone()).collect::<Vec<_>>().join(" ")
    };
    let wait = |on: Awaited| Began::Wait { on, until: None };
    assert_eq!(left(wait(on("go", None)), done(false)), "2 3 4");
    assert_eq!(left(wait(on("go", None)), failed(false, false)), "1 2 3 4", "nobody was given it");
    assert_eq!(left(wait(approval.clone()), failed(false, false)), "1 2 3", "a no is an answer");
    assert_eq!(left(wait(approval), StepEnd::Cancelled { doubt: false }), "1 2 3 4");
    assert_eq!(left(effect(false), done(false)), "1 2 3 4");
}

#[test]
fn what_is_to_be_undone() {
    let steps = [
        began("a", effect(false)),
        began("a/b", effect(false)),
        began("ab", Began::Child { run: RunId::new("c").unwrap() }),
        began("pure", effect(true)),
        began("plain", effect(false)),
        began("lost", effect(false)),
        ended("a/b", done(true)),
        ended("a", done(true)),
        ended("ab", failed(false, true)),
        ended("pure", done(true)),
        ended("plain", done(false)),
        ended("lost", StepEnd::Cancelled { doubt: true }),
    ];
    let left = |more: &[RunEntry], scope: Option<&str>| {
        let run = fold(&[&steps[..], more].concat());
        run.to_undo(scope.map(path).as_ref()).iter().map(|step| step.as_str().to_owned()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(left(&[], None), "lost ab a a/b", "the newest end first");
    assert_eq!(left(&[], Some("a")), "a a/b");
    assert_eq!(
        left(&[undo(None, &["lost", "ab", "a", "a/b"]), undone("lost"), stuck("ab")], None),
        "ab a a/b",
        "what failed is still to be undone"
    );
    assert_eq!(refused(&steps, &undone("a")), "the step a is not to be undone");
    assert_eq!(refused(&[&steps[..], &[undo(None, &["a"])]].concat(), &stuck("ab")), "the step ab is not to be undone");
    let both = fold(&[&steps[..], &[undo(None, &["a", "a/b"]), undo(Some("a"), &["a/b"]), undone("a/b")]].concat());
    assert_eq!(both.sagas.iter().map(|saga| saga.is_over()).collect::<Vec<_>>(), [false, true], "dealt with for both");
}

#[test]
fn what_the_world_looks_like_after_a_step() {
    let of = |what: Began, more: &[RunEntry]| fold(&[&[began("a", what)], more].concat()).semantics(&path("a"));
    assert_eq!(fold(&[]).semantics(&path("a")), WorldSemantics::Undecided);
    assert_eq!(of(effect(false), &[]), WorldSemantics::Undecided);
    assert_eq!(of(effect(false), &[ended("a", done(true))]), WorldSemantics::SideEffectCommitted);
    assert_eq!(of(effect(true), &[ended("a", done(false))]), WorldSemantics::Pure);
    assert_eq!(of(Began::Sleep { until: at(9) }, &[ended("a", done(false))]), WorldSemantics::Pure);
    assert_eq!(of(effect(false), &[ended("a", failed(true, false))]), WorldSemantics::RetryableFailure);
    assert_eq!(of(effect(false), &[ended("a", failed(false, false))]), WorldSemantics::PermanentFailure);
    assert_eq!(of(effect(false), &[ended("a", failed(true, true))]), WorldSemantics::InDoubt);
    assert_eq!(of(effect(false), &[ended("a", StepEnd::Cancelled { doubt: true })]), WorldSemantics::InDoubt);
    assert_eq!(of(effect(false), &[ended("a", StepEnd::Cancelled { doubt: false })]), WorldSemantics::Undecided);
    let undoing = [ended("a", done(true)), undo(None, &["a"])];
    assert_eq!(of(effect(false), &[&undoing[..], &[undone("a")]].concat()), WorldSemantics::Compensated);
    assert_eq!(of(effect(false), &[&undoing[..], &[stuck("a")]].concat()), WorldSemantics::CompensatableFailure);
    let run = fold(&[began("a", effect(false)), began("b", effect(true)), began("c", Began::Sleep { until: at(9) })]);
    let keys = ["a", "b", "c", "d"].map(|step| run.effect(&path(step)));
    assert_eq!(keys, [Some(Digest32::of(b"key")), None, None, None], "of a pure tool nothing is recorded");
}

#[test]
fn what_cannot_follow_is_refused() {
    assert_eq!(refused(&[], &RunEntry::RunStarted(Box::new(started()))), "it has started already");
    assert_eq!(refused(&[owned(0, "w", 3)], &owned(1, "v", 3)), "its fence is 3, and 3 was given before");
    assert_eq!(fold(&[owned(0, "w", 3), owned(1, "v", 4)]).fence, Fence(4));
    let step = [began("a", effect(false))];
    assert_eq!(refused(&step, &step[0]), "the step a has begun already");
    assert_eq!(refused(&[&step[..], &[ended("a", done(false))]].concat(), &ended("a", done(false))), "the step a has ended already");
    let finish = |how| RunEntry::FinishAsked { at: at(3), how };
    assert_eq!(refused(&[finish(RunEnd::Cancelled)], &finish(RunEnd::Cancelled)), "it was said before");
    let decided = RunEntry::ConfirmDecided { at: at(3), by: "ada".into(), why: "why".into(), accepted: true };
    assert_eq!(refused(&[], &decided), "nobody was asked");
    for late in [began("b", effect(false)), cancel(7, None), signal("s", "go", None), completed()] {
        assert_eq!(refused(&[completed()], &late), "the run is completed");
    }
    let first = |entries: &[RunEntry]| Run::begun(&codec::encode(entries)).map(drop);
    assert_eq!(first(&[parked(1, None)]), Err(RunFoldError::NotStarted));
    assert_eq!(first(&[]), Err(RunFoldError::NotStarted));
    let mut run = fold(&[owned(0, "w", 1)]);
    assert!(matches!(run.apply_body("1{"), Err(RunFoldError::Codec { version: 3, .. })));
    assert!(matches!(Run::begun("9[]"), Err(RunFoldError::Codec { version: 1, .. })));
}

#[test]
fn the_first_cancel_and_every_end_is_kept() {
    let run = fold(&[cancel(3, None), cancel(4, None)]);
    assert_eq!(run.cancel.map(|cancel| (cancel.at, cancel.undo)), Some((at(3), true)));
    let run = fold(&[ended("skipped", done(false)), began("a", Began::Map { items: Vec::new() }), began("b", effect(false))]);
    assert_eq!(run.order, [path("skipped"), path("a"), path("b")]);
    assert_eq!(run.running.iter().cloned().collect::<Vec<_>>(), [path("b")], "a map's end is its last item's");
    assert!(run.step(&path("skipped")).is_some_and(|step| step.what.is_none() && step.began == at(2)));
    assert!(run.step(&path("other")).is_none());
    let late = fold(&[owned(0, "w", 1), RunEntry::TimedOut { at: at(10), step: None }]);
    assert_eq!(late.owner.map(|owner| owner.until), Some(at(40)));
}

#[test]
fn entries_are_known_by_their_words() {
    for entry in [owned(0, "w", 1), completed(), undone("a"), cancel(1, None)] {
        let word = word(&entry);
        assert_eq!((entry_word(word), entry_word(&word.to_uppercase())), (Some(word), Some(word)));
        assert!(is_run(&codec::encode(&[entry])), "{word}");
    }
    assert_eq!(entry_word("claimed"), None);
    assert!(!is_run(r#"1[{"claimed":{}}]"#) && !is_run("1[]") && !is_run(""));
    let words = [Undone::Undone, Undone::NothingToUndo, Undone::Skipped { by: "ada".into(), why: "why".into() }];
    assert_eq!(words.map(|how| how.word()), ["undone", "nothing_to_undo", "skipped"]);
}

#[test]
fn a_judgement_has_a_word() {
    let all = [Judgement::Agrees, Judgement::Warned, Judgement::AsksAgain, Judgement::NeedsPerson, Judgement::Fails];
    assert_eq!(all.map(Judgement::word), ["agrees", "warned", "asks_again", "needs_person", "failed"]);
    assert_eq!(all.map(Judgement::holds_up), [false, false, true, true, false]);
}

#[test]
fn a_run_that_is_undone_before_it_ends_stays_with_its_owner() {
    let undoing = [began("a", effect(false)), ended("a", done(true)), owned(3, "w", 1), undo(None, &["a"]), undone("a")];
    assert_eq!(fold(&undoing).owner.map(|owner| owner.fence), Some(Fence(1)));
    let two = [completed(), undo(None, &["a", "b"]), owned(5, "w", 1), undone("a")];
    assert_eq!(fold(&two).owner.map(|owner| owner.fence), Some(Fence(1)), "there is more to undo");
}

/// Two scopes that fail and let the run go on: each is let go when what it did is undone, and not when the other is.
#[test]
fn a_scope_waits_for_its_own_undoing() {
    let act =
        |id: &str| Draft { id: id.into(), needs: None, shape: Shape::Act, ways: Vec::new(), on_failure: OnFailure::Fail, timeout: None };
    let scope = |id: &str, steps: [&str; 2]| Draft {
        needs: Some(Vec::new()),
        shape: Shape::Scope { body: steps.map(act).into(), effects_max: None },
        on_failure: OnFailure::Continue,
        ..act(id)
    };
    let plan = Plan::new(vec![scope("one", ["a", "b"]), scope("two", ["c", "d"])]).unwrap();
    let mut run = Run::new(Arc::new(started()), Some(Flow::new(Arc::new(plan), None, at(0))));
    run.recorded();
    for (committed, failing) in [("a", "b"), ("c", "d")] {
        let step = |step| began(step, effect(false));
        for entry in [step(committed), ended(committed, done(true)), step(failing), ended(failing, failed(false, false))] {
            run.note(&entry).unwrap();
        }
    }
    let undoing = |run: &Run| ["one", "two"].map(|scope| run.flow().unwrap().progress(&path(scope)) == Some(Progress::Undoing));
    assert_eq!(undoing(&run), [true, true]);
    for entry in [undo(Some("one"), &["a"]), undo(Some("two"), &["c"]), undone("c")] {
        run.note(&entry).unwrap();
    }
    assert_eq!(undoing(&run), [true, false]);
    run.note(&undone("a")).unwrap();
    assert_eq!(undoing(&run), [false, false]);
}

/// What is undone for a scope is undone for the run around it too.
#[test]
fn an_undone_step_counts_for_all_who_wait_for_it() {
    let committed = [began("a", effect(false)), ended("a", done(true)), began("b", effect(false)), ended("b", done(true))];
    let both = [&committed[..], &[undo(Some("s"), &["a"]), undo(None, &["a", "b"])]].concat();
    assert!(fold(&both).saga().is_some());
    let scope_over = fold(&[&both[..], &[undone("a")]].concat());
    assert_eq!(scope_over.saga().and_then(|saga| saga.scope.clone()), None, "what is left is the run's");
    assert!(scope_over.saga().is_some());
    assert!(fold(&[&both[..], &[undone("a"), undone("b")]].concat()).saga().is_none());
}
