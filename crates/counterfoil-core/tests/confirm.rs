//! When a run must be held against the world before it goes on, and what follows from what was found. Rules as tables, and a property over all of them.

use std::sync::Arc;

use counterfoil_core::ids::Digest32;
use counterfoil_core::run::confirm::{CHECKS_MAX, Check, Confirm, Confirmed, Finding, Judgement, Occasion, OnDrift, WORLD_DRIFTED, When};
use counterfoil_core::run::entry::{Began, By, RunEntry, Started, StepEnd};
use counterfoil_core::run::flow::Fate;
use counterfoil_core::run::plan::{Draft, OnFailure, Plan, Shape};
use counterfoil_core::run::{Flow, Run, RunFoldError};
use counterfoil_core::{CanonicalJson, Fence, Json, Timestamp};
use proptest::prelude::*;

const AT: Timestamp = Timestamp(1_700_000_000_000_000);

fn name<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

fn check(mode: OnDrift, finding: Finding) -> Check {
    Check { step: name("a"), effect: Digest32::of(b"key"), tool: name("t"), mode, finding }
}

fn drifted() -> Finding {
    Finding::Drifted { expected: "ETag \"1\"".into(), found: "ETag \"2\"".into() }
}

fn unavailable() -> Finding {
    Finding::Unavailable { why: "503".into() }
}

fn confirmed(checks: Vec<Check>) -> Confirmed {
    Confirmed::of(AT, Occasion::TakenOver, checks)
}

#[test]
fn the_first_word_counts_for_each_by_itself() {
    let step = Confirm { when: Some(When::Always), on_drift: None };
    let workflow = Confirm { when: Some(When::Never), on_drift: Some(OnDrift::Warn) };
    let together = step.or(workflow).or(Confirm::default());
    assert_eq!((together.when(), together.on_drift()), (When::Always, OnDrift::Warn));
    assert_eq!((Confirm::default().when(), Confirm::default().on_drift()), (When::OnRecovery, OnDrift::Strict));
}

#[test]
fn when_is_asked() {
    let asks = |when| [Occasion::TakenOver, Occasion::Resumed, Occasion::PickedUp].map(|occasion| occasion.asks(when));
    assert_eq!(asks(When::Never), [false, false, false]);
    assert_eq!(asks(When::OnRecovery), [true, true, false]);
    assert_eq!(asks(When::Always), [true, true, true]);
}

#[test]
fn what_is_worst_decides() {
    use OnDrift::{Human, Strict, Warn};
    let judged =
        |checks: &[(OnDrift, Finding)]| confirmed(checks.iter().map(|(mode, finding)| check(*mode, finding.clone())).collect()).judged();
    assert_eq!(judged(&[]), Judgement::Agrees);
    assert_eq!(
        judged(&[(Strict, Finding::Verified), (Strict, Finding::Unverified { why: String::new() }), (Strict, Finding::InDoubt)]),
        Judgement::Agrees
    );
    assert_eq!(judged(&[(Warn, drifted()), (Strict, Finding::Verified)]), Judgement::Warned);
    assert_eq!(judged(&[(Warn, drifted()), (Warn, unavailable())]), Judgement::AsksAgain, "never taken for verified, whatever the mode");
    assert_eq!(judged(&[(Human, drifted()), (Warn, unavailable())]), Judgement::NeedsPerson);
    assert_eq!(judged(&[(Human, drifted()), (Warn, drifted()), (Strict, unavailable()), (Strict, drifted())]), Judgement::Fails);
}

#[test]
fn a_failure_names_every_mismatch() {
    let checks = (0..8).map(|n| Check { step: name(&format!("s{n}")), ..check(OnDrift::Strict, drifted()) }).collect();
    let failure = confirmed(checks).failure();
    assert_eq!(failure.code, WORLD_DRIFTED);
    assert!(
        failure.message.contains("step s0 (t): expected ETag \"1\", found ETag \"2\"") && failure.message.ends_with("and 3 more"),
        "{}",
        failure.message
    );
    assert_eq!(failure.detail.unwrap().to_value()["drifted"].as_array().unwrap().len(), 8);
    let by = confirmed(vec![check(OnDrift::Human, unavailable())]).failure_by("ada", "I rang them");
    assert!(by.message.starts_with("ada said that the run must not go on: I rang them"), "{}", by.message);
}

#[test]
fn what_matters_is_listed_however_many_there_are() {
    let mut checks = vec![check(OnDrift::Warn, Finding::Verified); 3 * CHECKS_MAX];
    checks.push(check(OnDrift::Strict, drifted()));
    let confirmed = confirmed(checks);
    assert_eq!((confirmed.verified, confirmed.checks.len(), confirmed.judged()), (3 * CHECKS_MAX as u64, CHECKS_MAX, Judgement::Fails));
    assert_eq!(confirmed.checks[0].finding.word(), "drifted");
}

/// A run of one step after the other, of which the first is done.
fn run(plan: bool) -> Run {
    let started = Arc::new(Started {
        at: AT,
        tenant: name("acme"),
        run: name("r"),
        caller: name("c"),
        workflow: name("w"),
        by: if plan { By::Plan } else { By::Function },
        definition: Digest32::of(b"d"),
        input: CanonicalJson::empty_object(),
        parent: None,
        forked: None,
        tools: None,
        deadline: None,
        lease_ms: None,
        retain_ms: 1000,
    });
    let flow = plan.then(|| {
        let step = |id: &str| Draft {
            id: id.into(),
            needs: None,
            shape: Shape::Act,
            ways: Vec::new(),
            on_failure: OnFailure::Fail,
            timeout: None,
        };
        Flow::new(Arc::new(Plan::new(vec![step("a"), step("b")]).unwrap()), None, AT)
    });
    let mut run = Run::new(started, flow);
    note(&mut run, owned("w1", 1));
    note(
        &mut run,
        RunEntry::StepBegan { at: AT, step: name("a"), what: Began::Effect { tool: name("t"), key: Digest32::of(b"key"), pure: false } },
    );
    note(&mut run, RunEntry::StepEnded { at: AT, step: name("a"), how: StepEnd::Done { result: Json::null(), way: None, undo: true } });
    run
}

fn note(run: &mut Run, entry: RunEntry) {
    run.apply(&[entry]).unwrap();
}

fn owned(worker: &str, fence: u64) -> RunEntry {
    RunEntry::Owned { at: AT, worker: name(worker), fence: Fence(fence), lease_until: AT }
}

fn parked(unconfirmed: bool) -> RunEntry {
    RunEntry::Parked { at: AT, due: None, unconfirmed }
}

fn decided(accepted: bool) -> RunEntry {
    RunEntry::ConfirmDecided { at: AT, by: "ada".into(), why: "so".into(), accepted }
}

#[test]
fn only_a_run_that_was_left_in_the_middle_is_taken_over() {
    let after = |entries: &[RunEntry]| {
        let mut run = run(true);
        entries.iter().for_each(|entry| note(&mut run, entry.clone()));
        run.unconfirmed
    };
    assert_eq!(after(&[]), None, "the one that began it goes on");
    assert_eq!(after(&[owned("w1", 2)]), None, "and keeps it");
    assert_eq!(after(&[owned("w2", 2)]), Some(Occasion::TakenOver));
    assert_eq!(after(&[parked(false), owned("w2", 2)]), Some(Occasion::PickedUp));
    assert_eq!(after(&[parked(false), RunEntry::Stirred { at: AT, resumed: true }, owned("w2", 2)]), Some(Occasion::Resumed));
    assert_eq!(after(&[parked(false), RunEntry::Stirred { at: AT, resumed: false }, owned("w2", 2)]), Some(Occasion::PickedUp));
    let resumed = [parked(false), RunEntry::Stirred { at: AT, resumed: true }, owned("w2", 2), owned("w3", 3)];
    assert_eq!(after(&resumed), Some(Occasion::TakenOver), "whoever was to resume it left it in the middle");
    assert_eq!(after(&[RunEntry::Stirred { at: AT, resumed: true }]), None, "somebody is at it");
    // Let go of before the world was asked; and after.
    assert_eq!(after(&[owned("w2", 2), parked(true), owned("w3", 3)]), Some(Occasion::TakenOver));
    assert_eq!(after(&[owned("w2", 2), parked(false), owned("w3", 3)]), Some(Occasion::PickedUp));
    let agrees = || RunEntry::Confirmed(confirmed(vec![check(OnDrift::Strict, Finding::Verified)]));
    assert_eq!(after(&[owned("w2", 2), agrees()]), None);
    assert_eq!(after(&[owned("w2", 2), agrees(), owned("w3", 3)]), Some(Occasion::TakenOver), "each time anew");
    let held = || RunEntry::Confirmed(confirmed(vec![check(OnDrift::Strict, unavailable())]));
    assert_eq!(after(&[owned("w2", 2), held(), parked(true), owned("w3", 3)]), Some(Occasion::TakenOver));
    let human = || RunEntry::Confirmed(confirmed(vec![check(OnDrift::Human, drifted())]));
    assert_eq!(after(&[owned("w2", 2), human(), parked(true), decided(true), owned("w3", 3)]), Some(Occasion::PickedUp));
    // An answer of a person is about what was found then, and not about what is found later.
    let mut run = run(true);
    for entry in [owned("w2", 2), human(), decided(true), owned("w3", 3)] {
        note(&mut run, entry);
    }
    assert!(run.held_up().is_none() && run.unconfirmed == Some(Occasion::TakenOver));
}

#[test]
fn it_is_counted_how_often_in_a_row_the_world_could_not_be_asked() {
    let mut run = run(true);
    let unasked = || RunEntry::Confirmed(confirmed(vec![check(OnDrift::Strict, unavailable())]));
    let asked = || RunEntry::Confirmed(confirmed(vec![check(OnDrift::Strict, Finding::Verified)]));
    note(&mut run, owned("w2", 2));
    let counted: Vec<u32> = [unasked(), unasked(), unasked(), asked(), unasked()]
        .into_iter()
        .map(|entry| {
            note(&mut run, entry);
            run.asked_again
        })
        .collect();
    assert_eq!(counted, [1, 2, 3, 0, 1]);
}

#[test]
fn a_strict_mismatch_and_a_persons_no_fail_the_run() {
    for plan in [true, false] {
        let mut strict = run(plan);
        note(&mut strict, owned("w2", 2));
        note(&mut strict, RunEntry::Confirmed(confirmed(vec![check(OnDrift::Strict, drifted())])));
        assert_eq!(strict.drifted().unwrap().code, WORLD_DRIFTED);
        let mut human = run(plan);
        note(&mut human, owned("w2", 2));
        note(&mut human, RunEntry::Confirmed(confirmed(vec![check(OnDrift::Human, drifted())])));
        assert!(human.drifted().is_none() && human.fate().is_none());
        assert_eq!(human.held_up().unwrap().1, Judgement::NeedsPerson);
        let refused = human.clone().apply(&[decided(true), decided(true)]);
        assert!(matches!(refused, Err(RunFoldError::Illegal { .. })), "it is decided once: {refused:?}");
        note(&mut human, decided(false));
        assert!(human.drifted().unwrap().message.starts_with("ada said"));
        for run in [strict, human].iter().filter(|_| plan) {
            assert!(matches!(run.fate(), Some(Fate::Failed(failure)) if failure.code == WORLD_DRIFTED));
            assert_eq!(run.flow().unwrap().ready().count(), 0, "nothing more begins");
            assert_eq!(run.to_undo(None), [name("a")]);
        }
    }
    let nobody_asked = run(true).apply(&[decided(true)]);
    assert!(matches!(nobody_asked, Err(RunFoldError::Illegal { .. })), "{nobody_asked:?}");
}

fn findings() -> impl Strategy<Value = Vec<(u8, u8)>> {
    prop::collection::vec((0u8..3, 0u8..5), 0..20)
}

proptest! {
    /// However it was found: verified alone lets a run go on without a word; what could not be asked never does; and what follows is one of five.
    #[test]
    fn nothing_but_an_answer_lets_a_run_go_on(found in findings()) {
        let mode = |n| [OnDrift::Strict, OnDrift::Warn, OnDrift::Human][usize::from(n)];
        let finding = |n| [Finding::Verified, drifted(), unavailable(), Finding::Unverified { why: String::new() }, Finding::InDoubt][usize::from(n)].clone();
        let checks: Vec<Check> = found.iter().map(|(m, f)| check(mode(*m), finding(*f))).collect();
        let any = |wanted: Finding| checks.iter().any(|check| check.finding == wanted);
        let confirmed = Confirmed::of(AT, Occasion::TakenOver, checks.clone());
        prop_assert_eq!(confirmed.checks.len(), checks.len());
        match confirmed.judged() {
            Judgement::Agrees => prop_assert!(!any(drifted()) && !any(unavailable())),
            Judgement::Warned => prop_assert!(any(drifted()) && !any(unavailable())),
            Judgement::AsksAgain => prop_assert!(any(unavailable())),
            Judgement::NeedsPerson | Judgement::Fails => prop_assert!(any(drifted())),
        }
        // The fold agrees with the judgement.
        let mut run = run(true);
        note(&mut run, owned("w2", 2));
        note(&mut run, RunEntry::Confirmed(confirmed.clone()));
        prop_assert_eq!(run.unconfirmed.is_some(), confirmed.judged().holds_up());
        prop_assert_eq!(run.drifted().is_some(), confirmed.judged() == Judgement::Fails);
        // Read back, it is the same.
        let text = serde_json::to_string(&confirmed).unwrap();
        prop_assert_eq!(serde_json::from_str::<Confirmed>(&text).unwrap(), confirmed);
    }
}
