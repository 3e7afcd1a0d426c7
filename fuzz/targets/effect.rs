//! Lives of one effect: each byte of the input chooses what is recorded next, in an order that nobody would.
//!
//! Holds, whatever is recorded: an entry that is refused changes nothing; what was folded from values is folded from the stored records as well; what is known to have
//! happened is never run again, and nor is what may have happened, unless the tool may be repeated; a replay from the newest record alone is what the
//! whole history answers.
#![no_main]

use std::time::Duration;

use counterfoil_core::entry::{Claim, Ended, Finished, Late, LateOutcome, Opened, Probed, UndoCall, Verdict};
use counterfoil_core::ids::Digest32;
use counterfoil_core::receipt::ReceiptId;
use counterfoil_core::retry::Series;
use counterfoil_core::settled::Settled;
use counterfoil_core::{
    CanonicalJson, Conditions, Decision, Effect, Entry, Failure, Fence, Json, Policy, Repeat, State, Success, Timestamp, codec, decide,
};
use counterfoil_fuzz::Dice;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut dice = Dice::new(data);
    let (mut effect, mut stored) = (Effect::absent(Digest32::of(b"key")), Effect::absent(Digest32::of(b"key")));
    let mut now = 1_000_000;
    while !dice.is_empty() {
        now += i64::from(dice.below(4));
        let entry = entry(&mut dice, &effect, Timestamp(now));
        let body = codec::encode(std::slice::from_ref(&entry));
        let before = effect.clone();
        let refused = effect.apply([entry.clone()]).is_err();
        if refused {
            effect.version = before.version;
            assert_eq!(effect, before, "{entry:?} was refused, and changed something");
            continue;
        }
        stored.apply_body(&body).expect("it was folded before");
        assert_eq!(effect, stored);
        assert!(effect.silent.iter().all(|claim| claim.fence <= effect.fence));
        drop(effect.summary());
        let _ = (effect.world(), effect.flushable(), effect.sent_key());
        decided(&effect, &mut dice, Timestamp(now));
        replayed(&effect, &body, Timestamp(now));
    }
});

fn args(n: u8) -> CanonicalJson {
    CanonicalJson::parse(&format!(r#"{{"cents":{n}}}"#)).expect("JSON")
}

fn entry(dice: &mut Dice<'_>, effect: &Effect, at: Timestamp) -> Entry {
    let receipt = ReceiptId::new(&effect.key, effect.version + 1);
    // Mostly the claim that is there; at times one that is not, or one of long ago.
    let fence = Fence(effect.fence.0.saturating_add(1).saturating_sub(dice.of(&[1, 1, 1, 0, 2, 3, 4])));
    let (by, why) = ("ada".to_owned(), "so".to_owned());
    let failure = |dice: &mut Dice<'_>| Failure {
        retriable: dice.flag(),
        retry_after_ms: dice.flag().then_some(u64::MAX),
        ..Failure::new("rejected", "no")
    };
    let later = |dice: &mut Dice<'_>| match dice.below(6) {
        0 => Timestamp::MAX,
        1 => Timestamp(i64::MIN),
        n => at + Duration::from_micros(u64::from(n)),
    };
    let undo = |dice: &mut Dice<'_>| dice.flag().then(|| UndoCall { tool: "refund".parse().expect("a name"), args: args(9) });
    let result = || Json::parse(r#"{ "id": 1 }"#).expect("JSON");
    match dice.below(20) {
        0 => {
            let args = args(dice.below(2));
            Entry::Opened(Opened {
                at,
                tenant: "acme".parse().expect("a name"),
                caller: "cli".parse().expect("a name"),
                tool: "charge".parse().expect("a name"),
                fingerprint: args.fingerprint(),
                args,
                run: None,
                step: None,
                redacted: dice.flag(),
                settles: dice.flag(),
                lent: dice.flag(),
                retain_ms: dice.of(&[0, 1, 86_400_000, u64::MAX]),
            })
        }
        1 => Entry::ApprovalAsked { at, expires: later(dice) },
        2 => Entry::Approved { at, by, why },
        3 => Entry::Denied { at, by, why, receipt },
        4..=6 => Entry::Claimed(Claim {
            at,
            attempt: dice.of(&[effect.attempts.saturating_add(1), 0, u32::MAX]),
            // The version of its record, as ledgers have it; or one that has been given.
            fence: Fence((effect.version + 1).saturating_sub(dice.of(&[0, 0, 0, 1, 2]))),
            worker: "w".parse().expect("a name"),
            lease_until: later(dice),
        }),
        7 => Entry::Extended { fence, lease_until: later(dice) },
        8 => Entry::Released { fence, at, why },
        9..=10 => {
            let outcome = match dice.below(4) {
                0 => Ended::Done { success: Success::new(result()), undo: undo(dice), receipt },
                1 => Ended::Failed { failure: failure(dice), receipt },
                2 => Ended::Retry { failure: failure(dice), not_before: later(dice), receipt: dice.flag().then_some(receipt) },
                _ => {
                    let sent = dice.flag().then_some(at);
                    Ended::Unknown { failure: failure(dice), not_before: later(dice), sent }
                }
            };
            let answers = effect.answers(&outcome, at);
            Entry::Finished(Finished { fence, attempt: effect.attempts, started: at, ended: at, outcome, answers })
        }
        11 => Entry::Lost { fence, at, why },
        12..=13 => {
            let outcome = match dice.below(3) {
                0 => LateOutcome::Done { result: result(), flags: Vec::new(), state_changed: None, undo: undo(dice) },
                1 => LateOutcome::NotDone(failure(dice)),
                _ => LateOutcome::Unknown(failure(dice)),
            };
            Entry::Late(Late { fence, at, outcome, receipt })
        }
        14 => {
            let answer = match dice.below(3) {
                0 => Probed::Happened { result: result(), undo: undo(dice), receipt },
                1 => Probed::DidNotHappen,
                _ => Probed::CannotTell(why),
            };
            Entry::Probed { at, answer }
        }
        15 => {
            let verdict = match dice.below(3) {
                0 => Verdict::Happened { result: result(), undo: undo(dice) },
                1 => Verdict::DidNotHappen,
                _ => Verdict::GaveUp,
            };
            Entry::Resolved { at, by, why, verdict, receipt }
        }
        16 => Entry::Cancelled { at, by, why, receipt },
        17 => Entry::Reopened { at, by, why },
        18 => match dice.flag() {
            true => Entry::UndoStarted { at, by, why, undo: Digest32::of(b"undo") },
            false => Entry::UndoFinished { at, undo: Digest32::of(b"undo"), failure: dice.flag().then(|| failure(dice)), receipt },
        },
        _ => Entry::Flushed { at, by, why, receipt },
    }
}

/// What a caller of any kind would be told to do.
fn decided(effect: &Effect, dice: &mut Dice<'_>, now: Timestamp) {
    let repeat = dice.of(&[Repeat::Never, Repeat::Safe, Repeat::Keyed]);
    let policy = Policy { repeat, settle_after: dice.flag().then_some(Duration::ZERO), ..Policy::default() };
    let deadline = now + Duration::from_micros(u64::from(dice.below(3)));
    let series = Series { attempts: u32::from(dice.below(3)), probes: u32::from(dice.below(3)), deadline };
    let conditions = Conditions {
        now: now + Duration::from_micros(u64::from(dice.below(3))),
        policy: &policy,
        series,
        fingerprint: args(dice.below(2)).fingerprint(),
        can_probe: dice.flag(),
        needs_approval: dice.flag(),
        holder_gone: dice.flag(),
        runnable: dice.flag(),
        of_run: dice.flag(),
    };
    match decide(effect, &conditions) {
        Decision::Execute(attempt) => {
            assert!(attempt.fence > effect.fence, "a claim that nobody could tell from the last one");
            let free = matches!(effect.state, State::Absent | State::Ready | State::Retrying(_) | State::Flushed { .. });
            let repeatable = matches!(effect.state, State::InDoubt(_)) && policy.repeatable();
            assert!(free || repeatable, "run again in the state {}", effect.state.word());
            assert!(conditions.runnable, "run without its arguments");
            assert!(repeatable || !effect.doubtful(), "run again although an attempt may have acted");
        }
        Decision::Record(entry) => drop(effect.clone().apply([entry]).expect("what time made true can be recorded")),
        Decision::Probe => assert!(conditions.can_probe && matches!(effect.state, State::InDoubt(_))),
        Decision::Replay | Decision::Wait { .. } | Decision::Hold(_) | Decision::AskApproval | Decision::Refuse(_) => {}
    }
}

fn replayed(effect: &Effect, newest: &str, now: Timestamp) {
    let Some(settled) = Settled::read(newest) else { return };
    let State::Done(done) = &effect.state else { panic!("a replay in the state {}", effect.state.word()) };
    assert_eq!(done, &settled.done);
    let opened = effect.opened.as_ref().expect("it is done");
    let replays = effect.expires().is_some_and(|until| now < until);
    assert_eq!(settled.replays(&opened.fingerprint, now), replays);
}
