//! The six guarantees of the design, each as one property over random lives of an effect.
//!
//! A life is a tool's setting and a list of things that happen: calls arrive, sessions go on step by step with whatever the world says,
//! workers crash, hang, come back and report late, time jumps, leases run out, probes and persons speak, the store refuses. The checks read
//! what was stored, what the world counted and what was answered; none of them asks `decide` or the fold what is right.
//!
//! A failing life is printed whole and shrunk by proptest, with its seed.

mod model;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use counterfoil_core::decide::Refusal;
use counterfoil_core::entry::{Ended, LateOutcome, Probed, Verdict};
use counterfoil_core::receipt::{self, ChainHead};
use counterfoil_core::{Effect, EffectClass, Entry, Failure, Fence, Fingerprint, Json, OnInFlight, Policy, Receipt, Repeat, State, call};
use model::{Answer, Event, Model, ProbeSays, Says, Setting, Step};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Results that a careless program takes for "no result".
const RESULTS: [&str; 7] = ["null", "false", "0", "\"\"", "{}", "[]", r#"{ "id" : 1.0 }"#];

#[derive(Debug, Clone)]
enum Happening {
    Call {
        args: usize,
        runnable: bool,
    },
    /// A session goes on, at most so many steps.
    Go {
        who: usize,
        steps: usize,
        says: Says,
        probe: ProbeSays,
    },
    Crash {
        who: usize,
    },
    Wake {
        who: usize,
        knows: bool,
    },
    Heartbeat {
        who: usize,
    },
    Release {
        who: usize,
    },
    Tick(Duration),
    Store {
        up: bool,
    },
    Person(Person),
}

#[derive(Debug, Clone)]
enum Person {
    ResolveTruly,
    /// Says that it did not happen without having looked.
    ResolveBlindly,
    GiveUp,
    Cancel,
    Approve,
    Deny,
    Reopen,
    Flush,
    StartUndo,
    EndUndo {
        fails: bool,
    },
}

#[derive(Debug, Clone)]
struct Life {
    repeat: Repeat,
    effect: EffectClass,
    can_probe: bool,
    needs_approval: bool,
    notices_death: bool,
    on_in_flight: OnInFlight,
    attempts: u32,
    happenings: Vec<Happening>,
}

/// Whether probes and persons may be wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Tongue {
    Honest,
    Lying,
}

fn life(tongue: Tongue) -> impl Strategy<Value = Life> {
    let setting = (
        prop_oneof![3 => Just(Repeat::Never), 1 => Just(Repeat::Safe), 2 => Just(Repeat::Keyed)],
        prop_oneof![4 => Just(EffectClass::Write), 1 => Just(EffectClass::Read)],
        any::<bool>(),
        prop::bool::weighted(0.25),
        any::<bool>(),
        prop_oneof![3 => Just(OnInFlight::Wait), 1 => Just(OnInFlight::Conflict)],
        1u32..5,
        prop::collection::vec(happening(tongue), 5..60),
    );
    setting.prop_map(|(repeat, effect, can_probe, needs_approval, notices_death, on_in_flight, attempts, happenings)| Life {
        repeat,
        effect,
        can_probe,
        needs_approval,
        notices_death,
        on_in_flight,
        attempts,
        happenings,
    })
}

/// Lives that begin with an attempt that acts and falls silent, and a person who says that it did not happen. Its worker wakes up later.
fn lied_about() -> impl Strategy<Value = Life> {
    let go = |says, steps| Happening::Go { who: 0, steps, says, probe: ProbeSays::CannotTell };
    (life(Tongue::Lying), 0usize..8).prop_map(move |(mut life, wakes)| {
        life.needs_approval = false;
        life.repeat = Repeat::Never;
        let wake = Happening::Wake { who: 0, knows: true };
        life.happenings.insert(wakes.min(life.happenings.len()), wake);
        let beginning = [
            go(Says::Nothing { acted: true }, 2),
            Happening::Tick(Duration::from_secs(31)),
            Happening::Call { args: 0, runnable: true },
            go(Says::NotDoneRetriable, 1),
            Happening::Person(Person::ResolveBlindly),
        ];
        life.happenings.splice(0..0, beginning);
        life
    })
}

fn happening(tongue: Tongue) -> impl Strategy<Value = Happening> {
    let who = 0usize..6;
    let lies = if tongue == Tongue::Lying { 3 } else { 0 };
    let probe = prop_oneof![
        3 => Just(ProbeSays::TheTruth),
        1 => Just(ProbeSays::CannotTell),
        lies => Just(ProbeSays::ItDidNotHappen),
    ];
    let person = prop_oneof![
        3 => Just(Person::ResolveTruly),
        lies => Just(Person::ResolveBlindly),
        lies => Just(Person::GiveUp),
        1 => Just(Person::Cancel),
        4 => Just(Person::Approve),
        1 => Just(Person::Deny),
        2 => Just(Person::Reopen),
        3 => Just(Person::Flush),
        2 => Just(Person::StartUndo),
        2 => any::<bool>().prop_map(|fails| Person::EndUndo { fails }),
    ];
    let milliseconds = prop_oneof![2 => 0u64..50, 4 => 400u64..6_000, 4 => 8_000u64..29_000, 4 => 29_000u64..31_000, 1 => Just(86_400_001)];
    prop_oneof![
        5 => (prop_oneof![6 => Just(0usize), 1 => Just(1usize)], prop::bool::weighted(0.9)).prop_map(|(args, runnable)| Happening::Call { args, runnable }),
        16 => (who.clone(), prop_oneof![1usize..3, 1usize..8], says(), probe).prop_map(|(who, steps, says, probe)| Happening::Go { who, steps, says, probe }),
        2 => who.clone().prop_map(|who| Happening::Crash { who }),
        4 => (who.clone(), prop::bool::weighted(0.8)).prop_map(|(who, knows)| Happening::Wake { who, knows }),
        1 => who.clone().prop_map(|who| Happening::Heartbeat { who }),
        1 => who.prop_map(|who| Happening::Release { who }),
        8 => milliseconds.prop_map(|ms| Happening::Tick(Duration::from_millis(ms))),
        1 => prop::bool::weighted(0.6).prop_map(|up| Happening::Store { up }),
        4 => person.prop_map(Happening::Person),
    ]
}

fn says() -> impl Strategy<Value = Says> {
    prop_oneof![
        3 => prop::sample::select(&RESULTS[..]).prop_map(Says::Done),
        3 => Just(Says::NotDoneRetriable),
        1 => Just(Says::NotDoneFinal),
        3 => any::<bool>().prop_map(|acted| Says::Unknown { acted }),
        4 => any::<bool>().prop_map(|acted| Says::Nothing { acted }),
    ]
}

fn live(life: &Life) -> Model {
    live_watched(life, |_| Ok(())).expect("nobody watches")
}

/// Lives it, and looks after each happening.
fn live_watched(life: &Life, mut look: impl FnMut(&Model) -> Result<(), TestCaseError>) -> Result<Model, TestCaseError> {
    let mut policy = Policy { repeat: life.repeat, effect: life.effect, on_in_flight: life.on_in_flight, ..Policy::default() };
    policy.retry.attempts = life.attempts;
    policy.approval_expires = Duration::from_secs(60);
    let mut setting = Setting::new(policy);
    setting.can_probe = life.can_probe;
    setting.needs_approval = life.needs_approval;
    setting.notices_death = life.notices_death;
    let mut model = Model::new(setting);
    model.world.keyed = life.repeat == Repeat::Keyed;
    model.call(0, true);
    for happening in &life.happenings {
        happen(&mut model, happening);
        look(&model)?;
    }
    Ok(model)
}

fn happen(model: &mut Model, happening: &Happening) {
    let count = model.sessions.len();
    match happening {
        Happening::Call { args, runnable } => {
            model.call(*args, *runnable);
        }
        // The newest sessions are the ones with something left to do.
        Happening::Go { who, steps, says, probe } => model.run(count - 1 - who % count, says, *probe, *steps),
        Happening::Crash { who } => model.crash(count - 1 - who % count),
        Happening::Wake { who, knows } => {
            let hanging: Vec<usize> = (0..count).filter(|id| matches!(model.sessions[*id].step, Step::Acting { said: None, .. })).collect();
            if !hanging.is_empty() {
                let id = hanging[who % hanging.len()];
                model.wake(id, *knows);
                model.advance(id, &Says::NotDoneFinal, ProbeSays::CannotTell);
            }
        }
        Happening::Heartbeat { who } => model.heartbeat(count - 1 - who % count),
        Happening::Release { who } => model.release(count - 1 - who % count),
        Happening::Tick(by) => model.tick(*by),
        Happening::Store { up } => model.set_up(*up),
        Happening::Person(person) => act(model, person),
    }
}

fn act(model: &mut Model, person: &Person) {
    let by = || "ada".to_owned();
    match person {
        Person::ResolveTruly => {
            let verdict = match model.result() {
                Some(result) => Verdict::Happened { result: result.clone(), undo: None },
                None => Verdict::DidNotHappen,
            };
            model.resolve(verdict);
        }
        Person::ResolveBlindly => {
            model.resolve(Verdict::DidNotHappen);
        }
        Person::GiveUp => {
            model.resolve(Verdict::GaveUp);
        }
        Person::Cancel => {
            model.person(|at, receipt| Entry::Cancelled { at, by: by(), why: "enough".into(), receipt });
        }
        Person::Approve => {
            model.person(|at, _| Entry::Approved { at, by: by(), why: String::new() });
        }
        Person::Deny => {
            model.person(|at, receipt| Entry::Denied { at, by: by(), why: "too much".into(), receipt });
        }
        Person::Reopen => {
            model.person(|at, _| Entry::Reopened { at, by: by(), why: "try again".into() });
        }
        Person::Flush => {
            model.flush();
        }
        Person::StartUndo => {
            let undo = call::undo_key(&model.store.effect().sent_key());
            model.person(|at, _| Entry::UndoStarted { at, by: by(), why: String::new(), undo });
        }
        Person::EndUndo { fails } => {
            let undo = call::undo_key(&model.store.effect().sent_key());
            let failure = fails.then(|| Failure::new("http_400", "too late for a refund"));
            model.person(|at, receipt| Entry::UndoFinished { at, undo, failure, receipt });
        }
    }
}

/// The claim that holds the permit after these entries, and whether a cancel or a late "done" took it away.
fn permit(entries: &[Entry]) -> Result<(Option<Fence>, BTreeSet<Fence>), TestCaseError> {
    let mut holder: Option<Fence> = None;
    let mut newest = Fence(0);
    let mut withdrawn = BTreeSet::new();
    let mut flushed = Fence(0);
    for entry in entries {
        match entry {
            Entry::Claimed(claim) => {
                prop_assert_eq!(holder, None, "a second claim while the first was alive");
                prop_assert!(claim.fence > newest, "a fence was used twice");
                newest = claim.fence;
                holder = Some(claim.fence);
            }
            Entry::Extended { fence, .. } => prop_assert_eq!(holder, Some(*fence), "extended by a worker that had lost its permit"),
            Entry::Released { fence, .. } | Entry::Lost { fence, .. } => prop_assert_eq!(holder.take(), Some(*fence)),
            Entry::Finished(finished) => {
                prop_assert_eq!(holder.take(), Some(finished.fence), "committed by a worker that had lost its permit");
            }
            Entry::Cancelled { .. } => withdrawn.extend(holder.take()),
            Entry::Late(late) => {
                prop_assert_ne!(holder, Some(late.fence), "the permit's holder is not late");
                if late.fence > flushed && matches!(late.outcome, LateOutcome::Done { .. }) {
                    withdrawn.extend(holder.take());
                }
            }
            Entry::Flushed { .. } => {
                prop_assert_eq!(holder, None, "flushed under a claim that was alive");
                flushed = newest;
            }
            _ => {}
        }
    }
    Ok((holder, withdrawn))
}

/// How often the key had been freed when so many entries were stored, and what the call that then had it was opened with.
fn lives(model: &Model, stored: usize) -> (usize, Option<Fingerprint>) {
    model.store.entries[..stored].iter().fold((0, None), |(life, opened), entry| match entry {
        Entry::Opened(o) => (life, Some(o.fingerprint)),
        Entry::Flushed { .. } => (life + 1, None),
        _ => (life, opened),
    })
}

/// The result an entry records, if it records one.
fn result_in(entry: &Entry) -> Option<&Json> {
    match entry {
        Entry::Finished(finished) => match &finished.outcome {
            Ended::Done { success, .. } => Some(&success.result),
            _ => None,
        },
        Entry::Late(late) => match &late.outcome {
            LateOutcome::Done { result, .. } => Some(result),
            _ => None,
        },
        Entry::Probed { answer: Probed::Happened { result, .. }, .. } => Some(result),
        Entry::Resolved { verdict: Verdict::Happened { result, .. }, .. } => Some(result),
        _ => None,
    }
}

proptest! {
    #![proptest_config(Config { cases: 192, ..Config::default() })]

    /// 1. At most one attempt holds the permit; who lost it can neither commit nor dispatch, and its report is kept as evidence.
    #[test]
    fn one_at_a_time(life in life(Tongue::Lying)) {
        let model = live(&life);
        permit(&model.store.entries)?;
        let lates: Vec<Fence> = model.store.entries.iter().filter_map(|e| if let Entry::Late(l) = e { Some(l.fence) } else { None }).collect();
        for event in &model.log {
            match event {
                Event::Dispatched { fence, stored, .. } => {
                    let (holder, withdrawn) = permit(&model.store.entries[..*stored])?;
                    // A cancel or the proof that it is done may cross a dispatch that is on its way; nothing else may.
                    prop_assert!(holder == Some(*fence) || withdrawn.contains(fence), "dispatched without the permit");
                }
                Event::Stale { fence } => prop_assert!(lates.contains(fence), "what a lost worker reported was dropped"),
                _ => {}
            }
        }
    }

    /// 2. The claim is stored before the tool is called, the outcome before anyone is shown it.
    #[test]
    fn claim_before_dispatch_and_outcome_before_answer(life in life(Tongue::Lying)) {
        let model = live(&life);
        for event in &model.log {
            match event {
                Event::Dispatched { fence, stored, .. } => {
                    let claimed = model.store.entries[..*stored].iter().any(|e| matches!(e, Entry::Claimed(c) if c.fence == *fence));
                    prop_assert!(claimed, "dispatched before its claim was stored");
                }
                Event::Answered { answer: Answer::Result(result) | Answer::Undone(result), stored, .. } => {
                    let shown = model.store.entries[..*stored].iter().any(|e| result_in(e) == Some(result));
                    prop_assert!(shown, "{result} was shown before it was stored");
                }
                _ => {}
            }
        }
    }

    /// 3. With probes and persons that tell the truth, a tool that must not be repeated acts at most once, and once more for each flush; one that
    /// honours keys too.
    #[test]
    fn no_guessing_while_probes_and_persons_are_honest(life in life(Tongue::Honest)) {
        let model = live(&life);
        let harmless = life.effect != EffectClass::Write || life.repeat == Repeat::Safe;
        let mut acts = vec![0u32];
        for event in &model.log {
            match event {
                Event::Acted => *acts.last_mut().expect("never empty") += 1,
                Event::Flushed => acts.push(0),
                _ => {}
            }
        }
        prop_assert!(harmless || acts.iter().all(|acted| *acted <= 1), "from flush to flush the world acted {acts:?} times");
        // And what is said of the world is so.
        match model.state() {
            State::Done(_) | State::Undone { .. } => prop_assert!(model.result().is_some(), "done, and nothing happened"),
            State::Retrying(_) if !harmless => prop_assert_eq!(model.result(), None, "certainly not done, and it happened"),
            State::Failed { .. } if !harmless => prop_assert_eq!(model.result(), None, "certainly not done, and it happened"),
            _ => {}
        }
    }

    /// 3, when they lie: each further act has someone's word that it had not happened before it.
    #[test]
    fn no_second_act_without_a_word_that_there_was_no_first(life in life(Tongue::Lying)) {
        let model = live(&life);
        if life.repeat != Repeat::Never || life.effect != EffectClass::Write {
            return Ok(());
        }
        let mut acted = false;
        for event in &model.log {
            match event {
                Event::Acted if acted => prop_assert!(false, "acted again on a guess"),
                Event::Acted => acted = true,
                Event::SaidNot | Event::Flushed => acted = false,
                _ => {}
            }
        }
    }

    /// 3, when they lied and the lost worker proves it: once it is known to have happened, nothing is dispatched any more.
    #[test]
    fn what_is_known_to_have_happened_is_never_dispatched_again(life in lied_about()) {
        let model = live(&life);
        let known = model.store.entries.iter().position(|e| result_in(e).is_some());
        let Some(known) = known else { return Ok(()) };
        // A person who frees the key means it to be used again.
        let freed = model.store.entries.iter().position(|e| matches!(e, Entry::Flushed { .. })).unwrap_or(usize::MAX);
        let withdrawn = permit(&model.store.entries[..=known])?.1;
        for event in &model.log {
            if let Event::Dispatched { fence, stored, .. } = event {
                prop_assert!(*stored <= known || *stored > freed || withdrawn.contains(fence), "dispatched after it was known to be done");
            }
        }
    }

    /// 4. Same key and same arguments: the same bytes. Other arguments: refused, nothing run.
    #[test]
    fn same_call_same_answer(life in life(Tongue::Lying)) {
        let mut first: BTreeMap<usize, Json> = BTreeMap::new();
        let model = live_watched(&life, |model| {
            // The late result of a cancelled effect is shown to no caller, but its undoing is.
            if let State::Done(done) | State::Cancelled { late: Some(done), .. } = model.state() {
                first.entry(lives(model, model.store.entries.len()).0).or_insert_with(|| done.result.clone());
            }
            Ok(())
        })?;
        for event in &model.log {
            match event {
                Event::Answered { session, answer, stored } => {
                    let (life, Some(opened)) = lives(&model, *stored) else { continue };
                    let same = model::fingerprint(model.sessions[*session].args) == opened;
                    let mismatch = matches!(answer, Answer::Refused(Refusal::KeyReuseMismatch { .. }));
                    prop_assert_eq!(mismatch, !same && *answer != Answer::NoLedger, "{:?} to {}", answer, model.sessions[*session].args);
                    if let Answer::Result(result) | Answer::Undone(result) = answer {
                        prop_assert_eq!(Some(result), first.get(&life), "another answer than before");
                    }
                }
                Event::Dispatched { session, stored, .. } => {
                    let opened = lives(&model, *stored).1;
                    prop_assert_eq!(Some(model::fingerprint(model.sessions[*session].args)), opened, "other arguments were run");
                    prop_assert!(model.sessions[*session].runnable, "redacted arguments were run");
                }
                _ => {}
            }
        }
        // And for ever after: a fresh call of each kind, now and later, as long as the record is kept.
        let mut model = model;
        model.set_up(true);
        let dispatches = model.world.dispatches;
        if let State::Done(done) = model.state().clone() {
            let kept = done.at + model.setting.policy.retain;
            for wait in [0, 1_000, 3_600_000] {
                model.tick(Duration::from_millis(wait));
                let (same, other) = if opened_with(&model, 0) { (0, 1) } else { (1, 0) };
                for (args, expected) in [(same, if model.now < kept { Some(&done.result) } else { None }), (other, None)] {
                    let id = model.call(args, true);
                    model.run(id, &Says::Done("\"again\""), ProbeSays::ItDidNotHappen, 20);
                    match (model.sessions[id].answer(), expected) {
                        (Some(Answer::Result(result)), Some(expected)) => prop_assert_eq!(result.as_str(), expected.as_str()),
                        (Some(Answer::Refused(_)), None) => {}
                        (answer, _) => prop_assert!(false, "{answer:?}"),
                    }
                }
            }
            prop_assert_eq!(model.world.dispatches, dispatches, "the world was touched");
        }
    }

    /// A flushed key runs again: once for each flush, with whatever arguments come first, and then answers as any other.
    #[test]
    fn a_flushed_key_runs_once_more_per_flush(life in life(Tongue::Honest), flushes in 1usize..4) {
        let mut model = live(&life);
        model.set_up(true);
        model.setting.needs_approval = false;
        for (n, result) in RESULTS.iter().enumerate().take(flushes) {
            if !model.flush() {
                prop_assert_eq!(n, 0, "what was done for sure can be flushed");
                return Ok(());
            }
            let before = model.world.acted;
            for _ in 0..2 {
                let id = model.call(n % 2, true);
                model.run(id, &Says::Done(result), ProbeSays::TheTruth, 20);
                prop_assert_eq!(model.sessions[id].answer(), Some(&Answer::Result(model::json(result))));
            }
            let other = model.call(1 - n % 2, true);
            model.run(other, &Says::Done(result), ProbeSays::TheTruth, 20);
            let refused = matches!(model.sessions[other].answer(), Some(Answer::Refused(Refusal::KeyReuseMismatch { .. })));
            prop_assert!(refused, "{:?}", model.sessions[other].answer());
            prop_assert_eq!(model.world.acted, before + 1, "one call, one repeat, one with other arguments");
        }
    }

    /// 5. Each end has one receipt, in a chain that verifies.
    #[test]
    fn a_receipt_for_every_end(life in life(Tongue::Lying)) {
        let mut ends = BTreeSet::new();
        let model = live_watched(&life, |model| {
            let receipt = match model.state() {
                State::Done(done) => Some((done.receipt, Some(done.result.digest()))),
                State::Failed { receipt, .. } | State::Cancelled { receipt, .. } => Some((*receipt, None)),
                State::Retrying(retrying) => retrying.receipt.map(|receipt| (receipt, None)),
                _ => None,
            };
            let which = usize::from(!opened_with(model, 0));
            ends.extend(receipt.map(|(receipt, result)| (receipt.0, result, which)));
            Ok(())
        })?;
        let (_, receipts) = receipt::follow(ChainHead::default(), model.store.chain.iter().map(String::as_str))
            .map_err(|e| TestCaseError::fail(e.to_string()))?;
        let find = |id| receipts.iter().filter(|receipt: &&Receipt| receipt.id.0 == id).collect::<Vec<_>>();
        for (id, result, which) in ends {
            let found = find(id);
            prop_assert_eq!(found.len(), 1, "an end with {} receipts", found.len());
            prop_assert!(result.is_none_or(|result| found[0].result == result), "the receipt speaks of another result");
            let (meant, other) = (model::args(which), model::args(1 - which));
            prop_assert!(found[0].covers(&model::tool(), &meant) && !found[0].covers(&model::tool(), &other));
        }
        for receipt in &receipts {
            prop_assert_eq!(find(receipt.id.0).len(), 1, "two receipts with one id");
        }
    }

    /// 6. While the store refuses, nothing is claimed, and nothing is answered but that there is no ledger.
    #[test]
    fn fail_closed(life in life(Tongue::Lying), down_at in 0usize..40) {
        let mut life = life;
        let at = down_at.min(life.happenings.len());
        life.happenings.insert(at, Happening::Store { up: false });
        let model = live(&life);
        let mut down: Option<BTreeSet<Fence>> = None;
        for event in &model.log {
            match (event, &mut down) {
                (Event::Down, down) => *down = Some(BTreeSet::new()),
                (Event::Up, down) => *down = None,
                (Event::Answered { answer, .. }, Some(_)) => prop_assert_eq!(answer, &Answer::NoLedger),
                // A worker that holds a stored claim may use it, once.
                (Event::Dispatched { fence, stored, .. }, Some(used)) => {
                    let claimed = model.store.entries[..*stored].iter().any(|e| matches!(e, Entry::Claimed(c) if c.fence == *fence));
                    prop_assert!(claimed && used.insert(*fence), "dispatched without a ledger");
                }
                _ => {}
            }
        }
        // Without a ledger from the beginning, nothing at all is dispatched.
        life.happenings.retain(|h| !matches!(h, Happening::Store { .. }));
        life.happenings.insert(0, Happening::Store { up: false });
        prop_assert_eq!(live(&life).world.dispatches, 0);
    }

    /// Below all six: what is stored is all there is. Folding the records anew gives the effect the runtime held.
    #[test]
    fn the_records_are_the_whole_truth(life in life(Tongue::Lying)) {
        let model = live(&life);
        let mut effect = Effect::absent(model.key);
        for body in &model.store.bodies {
            effect.apply_body(body).map_err(|e| TestCaseError::fail(e.to_string()))?;
        }
        prop_assert_eq!(&effect, model.store.effect());
    }
}

fn opened_with(model: &Model, args: usize) -> bool {
    model.store.effect().opened.as_ref().is_some_and(|opened| opened.fingerprint == model::fingerprint(args))
}

/// A property over lives that never get anywhere proves nothing: the lives above reach every state, take every decision, write every
/// kind of entry and see a lie turn into a second act.
#[test]
fn the_random_lives_go_everywhere() {
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let (mut states, mut decisions, mut entries) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let (mut doubles, mut stale) = (0, 0);
    for _ in 0..800 {
        let life = life(Tongue::Lying).new_tree(&mut runner).expect("a life").current();
        let model = live_watched(&life, |model| {
            states.insert(model.state().word());
            Ok(())
        });
        let model = model.expect("nobody refuses");
        decisions.extend(model.decisions.iter().copied());
        entries.extend(model.store.entries.iter().map(kind));
        doubles += u32::from(life.repeat == Repeat::Never && life.effect == EffectClass::Write && model.world.acted > 1);
        stale += model.log.iter().filter(|e| matches!(e, Event::Stale { .. })).count();
    }
    assert_eq!(states.len(), 13, "{states:?}");
    assert_eq!(decisions.len(), 14, "{decisions:?}");
    assert_eq!(entries.len(), 17, "{entries:?}");
    assert!(doubles > 0 && stale > 0, "{doubles} doubles, {stale} stale reports");
}

fn kind(entry: &Entry) -> String {
    let text = serde_json::to_value(entry).expect("entries are JSON");
    text.as_object().and_then(|o| o.keys().next().cloned()).expect("an entry is tagged")
}
