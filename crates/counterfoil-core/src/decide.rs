//! What may happen next: the pure answer to a call.
//!
//! Looks at the effect and the conditions of the call, never at a store, a clock or the world. Order matters: identity first (a mismatch
//! runs nothing), then what is recorded, then doubt, and only then execution.

use std::time::Duration;

use crate::effect::{Doubt, Effect, State};
use crate::entry::Entry;
use crate::ids::{Fence, Fingerprint};
use crate::policy::{OnInFlight, Policy};
use crate::retry::Series;
use crate::time::Timestamp;

/// Probes of one doubt within one call. A doubt that outlives it is asked about again in the background.
const PROBES_PER_CALL_MAX: u32 = 1;

/// What `decide` needs to know beside the effect and the call.
#[derive(Debug, Clone, Copy)]
pub struct Conditions<'a> {
    pub now: Timestamp,
    pub policy: &'a Policy,
    pub series: Series,
    /// Of the arguments as they are stored.
    pub fingerprint: Fingerprint,
    pub can_probe: bool,
    pub needs_approval: bool,
    /// The holder of the running claim is known to be dead: its lease need not be waited out.
    pub holder_gone: bool,
    /// The call carries the arguments in clear: it can be dispatched.
    pub runnable: bool,
    /// It is a run's step: when its attempts have come to an end, the run judges that, and nobody begins anew.
    pub of_run: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Claim this attempt, then run it.
    Execute(Attempt),
    /// The recorded outcome is the answer. The world is not touched.
    Replay,
    /// Someone else is at it, or it is too early: look again at `until`, or when the effect changes.
    Wait {
        until: Timestamp,
    },
    /// Ask the world.
    Probe,
    /// A person is needed.
    Hold(Hold),
    /// Ask a person, once.
    AskApproval,
    /// Time made a fact true: record it and decide again.
    Record(Entry),
    Refuse(Refusal),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    pub number: u32,
    pub fence: Fence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    Doubt,
    Approval,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The key was used with other arguments.
    KeyReuseMismatch { recorded: Fingerprint },
    /// The effect was pruned; its key answers no more, and never runs again.
    KeyExpired,
    /// Another call with this key is under way, and the policy says not to wait.
    InFlight { retry_after: Duration },
    /// The stored arguments are redacted: only a caller who has them can run it.
    ArgumentsRedacted,
    /// The effect was flushed while this call was at it: the key is free for a new call, and this one has had its turn.
    Flushed,
}

pub fn decide(effect: &Effect, conditions: &Conditions<'_>) -> Decision {
    if effect.expired {
        return Decision::Refuse(Refusal::KeyExpired);
    }
    if let Some(opened) = &effect.opened
        && opened.fingerprint != conditions.fingerprint
    {
        return Decision::Refuse(Refusal::KeyReuseMismatch { recorded: opened.fingerprint });
    }
    let now = conditions.now;
    if effect.expires().is_some_and(|at| at <= now) {
        return Decision::Refuse(Refusal::KeyExpired);
    }
    match &effect.state {
        // Whoever dispatched before the flush may have acted: that a new call may run says nothing about this one.
        State::Flushed { .. } if conditions.series.attempts > 0 => Decision::Refuse(Refusal::Flushed),
        State::Absent | State::Flushed { .. } | State::Ready if conditions.needs_approval && !effect.approved => Decision::AskApproval,
        State::Absent | State::Flushed { .. } | State::Ready => execute(effect, conditions),
        State::WaitingApproval { expires, .. } if *expires <= now => Decision::Record(Entry::Denied {
            at: now,
            by: "the clock".into(),
            why: "nobody approved it in time".into(),
            receipt: crate::receipt::ReceiptId::new(&effect.key, effect.version + 1),
        }),
        State::WaitingApproval { .. } => Decision::Hold(Hold::Approval),
        State::Running(claim) if conditions.holder_gone => {
            lost(claim.fence, now, format!("the worker {} is gone, and what it began may still be under way", claim.worker))
        }
        State::Running(claim) if claim.lease_until <= now => lost(
            claim.fence,
            now,
            format!("the worker {} fell silent, its lease ran out, and what it began may still be under way", claim.worker),
        ),
        State::Running(claim) => match conditions.policy.on_in_flight {
            OnInFlight::Wait => Decision::Wait { until: claim.lease_until },
            OnInFlight::Conflict => {
                Decision::Refuse(Refusal::InFlight { retry_after: claim.lease_until.since(now).min(Duration::from_secs(1)) })
            }
        },
        State::Retrying(failed) if failed.receipt.is_some() && (conditions.series.attempts > 0 || conditions.of_run) => Decision::Replay,
        // A probe that showed nothing had happened does not make the series any longer.
        State::Retrying(_) if conditions.series.is_over(&conditions.policy.retry, now) => Decision::Replay,
        State::Retrying(failed) if failed.not_before <= now => execute(effect, conditions),
        // The owner of this series waits its turn; anyone else is told what happened and when to come back.
        State::Retrying(failed) if conditions.series.attempts > 0 => Decision::Wait { until: failed.not_before },
        State::Retrying(_) => Decision::Replay,
        State::InDoubt(doubt) => in_doubt(effect, doubt, conditions),
        State::Done(_) | State::Failed { .. } | State::Cancelled { .. } => Decision::Replay,
        // What was undone stays undone: nothing compensated is ever run again.
        State::Undoing { .. } | State::Undone { .. } | State::UndoFailed { .. } => Decision::Replay,
    }
}

/// The ladder: a late receipt would already have closed it; then the probe, then a harmless repeat, then a person.
fn in_doubt(effect: &Effect, doubt: &Doubt, conditions: &Conditions<'_>) -> Decision {
    let now = conditions.now;
    let policy = conditions.policy;
    if conditions.can_probe && conditions.series.probes < PROBES_PER_CALL_MAX {
        let settled = probe_from(policy, doubt.since, sent_by(effect, doubt, policy));
        return if settled <= now { Decision::Probe } else { Decision::Wait { until: settled } };
    }
    let attempts_left = !conditions.series.is_over(&policy.retry, now) && doubt.not_before < conditions.series.deadline;
    if policy.repeatable() && attempts_left && conditions.runnable {
        return if doubt.not_before <= now { execute(effect, conditions) } else { Decision::Wait { until: doubt.not_before } };
    }
    Decision::Hold(Hold::Doubt)
}

/// From when on the world's word counts about an attempt that was sent by then and not heard of since: before that, it may still be under way.
pub fn probe_from(policy: &Policy, since: Timestamp, sent: Timestamp) -> Timestamp {
    match policy.settle_after {
        Some(delay) => since + delay,
        None => since.max(sent + policy.timeout),
    }
}

/// How long after its claim an attempt may still be sent, by a worker that was slow to hear that the claim is durable. Later than that it is not sent at all.
pub fn send_within(lease: Duration) -> Duration {
    lease / 3
}

/// By when the attempt in doubt was sent, if at all.
fn sent_by(effect: &Effect, doubt: &Doubt, policy: &Policy) -> Timestamp {
    let lent = effect.opened.as_ref().is_some_and(|opened| opened.lent);
    match doubt.sent {
        Some(sent) => sent,
        // A client sends when it likes, as long as its permit holds.
        None if lent => doubt.since,
        None => doubt.since.min(doubt.claimed + send_within(policy.lease)),
    }
}

fn execute(effect: &Effect, conditions: &Conditions<'_>) -> Decision {
    if !conditions.runnable {
        return Decision::Refuse(Refusal::ArgumentsRedacted);
    }
    // The fence is the version of the claim's record: it grows with every claim and no two claims share one.
    Decision::Execute(Attempt { number: effect.attempts.saturating_add(1), fence: Fence(effect.version + 1) })
}

fn lost(fence: Fence, at: Timestamp, why: String) -> Decision {
    Decision::Record(Entry::Lost { fence, at, why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical::CanonicalJson;
    use crate::effect::Facts;
    use crate::entry::{Claim, Ended, Finished, Opened, Probed};
    use crate::ids::{Caller, Digest32, Tenant, ToolName, WorkerId};
    use crate::outcome::Failure;
    use crate::receipt::ReceiptId;

    const NOW: Timestamp = Timestamp(1_000_000_000);

    fn args(text: &str) -> Fingerprint {
        CanonicalJson::parse(text).unwrap().fingerprint()
    }

    fn effect(entries: impl IntoIterator<Item = Entry>) -> Effect {
        opened(false, entries)
    }

    fn opened(lent: bool, entries: impl IntoIterator<Item = Entry>) -> Effect {
        let opened = Entry::Opened(Opened {
            at: NOW,
            tenant: Tenant::new("acme").unwrap(),
            caller: Caller::new("agent-7").unwrap(),
            tool: ToolName::new("charge").unwrap(),
            args: CanonicalJson::empty_object(),
            fingerprint: args("{}"),
            run: None,
            step: None,
            redacted: false,
            settles: true,
            lent,
            retain_ms: 1000,
        });
        let mut effect = Effect::absent(Digest32::of(b"key"));
        effect.apply(std::iter::once(opened).chain(entries)).unwrap();
        effect
    }

    fn claimed() -> Entry {
        let worker = WorkerId::new("w").unwrap();
        Entry::Claimed(Claim { at: NOW, attempt: 1, fence: Fence(1), worker, lease_until: NOW + Duration::from_secs(30) })
    }

    fn finished(outcome: Ended) -> Entry {
        Entry::Finished(Finished { fence: Fence(1), attempt: 1, started: NOW, ended: NOW, outcome, answers: None })
    }

    fn conditions(policy: &Policy) -> Conditions<'_> {
        Conditions {
            now: NOW,
            policy,
            series: Series { attempts: 0, probes: 0, deadline: NOW + Duration::from_secs(120) },
            fingerprint: args("{}"),
            can_probe: false,
            needs_approval: false,
            holder_gone: false,
            runnable: true,
            of_run: false,
        }
    }

    fn later() -> Failure {
        Failure::of_dependency("http_503", "later")
    }

    /// A ledger says what its writer liked: the next attempt has a number all the same.
    #[test]
    fn attempts_are_counted_as_far_as_they_can_be() {
        let policy = Policy::default();
        let mut worn = effect([]);
        worn.attempts = u32::MAX;
        let fence = Fence(worn.version + 1);
        assert_eq!(decide(&worn, &conditions(&policy)), Decision::Execute(Attempt { number: u32::MAX, fence }));
    }

    #[test]
    fn a_probe_does_not_make_a_series_longer() {
        let policy = Policy { retry: crate::policy::RetryPolicy { attempts: 2, ..Default::default() }, ..Policy::default() };
        let lost = Entry::Lost { fence: Fence(1), at: NOW, why: "gone".into() };
        let cleared = effect([claimed(), lost, Entry::Probed { at: NOW, answer: Probed::DidNotHappen }]);
        let with = |attempts, now| {
            let base = conditions(&policy);
            decide(&cleared, &Conditions { now, series: Series { attempts, ..base.series }, ..base })
        };
        assert!(matches!(with(0, NOW), Decision::Execute(_)), "a new call");
        assert!(matches!(with(1, NOW), Decision::Execute(_)), "one attempt left");
        assert_eq!(with(2, NOW), Decision::Replay, "none left");
        assert_eq!(with(1, NOW + Duration::from_secs(120)), Decision::Replay, "no time left");
    }

    /// What may still be on its way cannot be asked about: found by the simulator, which acknowledged claims late.
    #[test]
    fn a_probe_waits_for_whatever_may_have_been_sent_as_late_as_it_could() {
        let policy = Policy { timeout: Duration::from_secs(10), lease: Duration::from_secs(30), ..Policy::default() };
        let seconds = |s| NOW + Duration::from_secs(s);
        let from = |effect: &Effect| match decide(effect, &Conditions { can_probe: true, ..conditions(&policy) }) {
            Decision::Wait { until } => until,
            other => panic!("{other:?}"),
        };
        let lost = |at| Entry::Lost { fence: Fence(1), at, why: "gone".into() };
        assert_eq!(
            from(&effect([claimed(), lost(seconds(2))])),
            seconds(12),
            "it died two seconds after its claim, and may have sent it then"
        );
        assert_eq!(
            from(&effect([claimed(), lost(seconds(15))])),
            seconds(20),
            "nothing is sent later than a third of the lease after the claim"
        );
        assert_eq!(
            from(&opened(true, [claimed(), lost(seconds(15))])),
            seconds(25),
            "a client may have sent it as long as it had its permit"
        );
        let unknown = |sent| finished(Ended::Unknown { failure: later(), not_before: NOW, sent });
        assert_eq!(from(&effect([claimed(), unknown(Some(seconds(3)))])), seconds(13), "whoever sent it said when");
    }

    #[test]
    fn a_series_that_ended_is_for_its_run_to_judge() {
        let policy = Policy::default();
        let receipt = Some(ReceiptId::new(&Digest32::of(b"key"), 1));
        let ended = effect([claimed(), finished(Ended::Retry { failure: later(), not_before: NOW, receipt })]);
        assert!(matches!(decide(&ended, &conditions(&policy)), Decision::Execute(_)));
        assert_eq!(decide(&ended, &Conditions { of_run: true, ..conditions(&policy) }), Decision::Replay);
    }

    #[test]
    fn a_repeat_keeps_to_the_deadline() {
        let policy = Policy { repeat: crate::policy::Repeat::Keyed, ..Policy::default() };
        let doubt = effect([claimed(), finished(Ended::Unknown { failure: later(), not_before: NOW, sent: None })]);
        let with = |attempts, now| {
            let base = conditions(&policy);
            decide(&doubt, &Conditions { now, series: Series { attempts, ..base.series }, ..base })
        };
        assert!(matches!(with(1, NOW), Decision::Execute(_)));
        assert_eq!(with(1, NOW + Duration::from_secs(120)), Decision::Hold(Hold::Doubt));
        assert_eq!(with(4, NOW), Decision::Hold(Hold::Doubt));
        // A repeat that may begin only when the time is up is none.
        let last = |not_before| {
            let doubt = effect([claimed(), finished(Ended::Unknown { failure: later(), not_before, sent: None })]);
            decide(&doubt, &conditions(&policy))
        };
        let deadline = NOW + Duration::from_secs(120);
        assert_eq!(last(Timestamp(deadline.0 - 1)), Decision::Wait { until: Timestamp(deadline.0 - 1) });
        assert_eq!(last(deadline), Decision::Hold(Hold::Doubt));
    }

    /// Whoever made the attempt waits its turn; others are told what happened.
    #[test]
    fn only_the_owner_of_a_series_waits_for_its_next_attempt() {
        let policy = Policy::default();
        let not_before = NOW + Duration::from_secs(5);
        let failed = effect([claimed(), finished(Ended::Retry { failure: later(), not_before, receipt: None })]);
        let with = |attempts| {
            let base = conditions(&policy);
            decide(&failed, &Conditions { series: Series { attempts, ..base.series }, ..base })
        };
        assert_eq!(with(1), Decision::Wait { until: not_before });
        assert_eq!(with(0), Decision::Replay);
    }

    #[test]
    fn a_finished_series_is_an_answer_to_its_owner_and_a_beginning_to_others() {
        let policy = Policy::default();
        let receipt = Some(ReceiptId::new(&Digest32::of(b"key"), 1));
        let ended = effect([claimed(), finished(Ended::Retry { failure: later(), not_before: NOW + Duration::from_secs(5), receipt })]);
        let with = |attempts, seconds| {
            let base = conditions(&policy);
            let now = NOW + Duration::from_secs(seconds);
            decide(&ended, &Conditions { now, series: Series { attempts, ..base.series }, ..base })
        };
        assert_eq!(with(4, 0), Decision::Replay);
        assert_eq!(with(1, 6), Decision::Replay);
        assert_eq!(with(0, 4), Decision::Replay, "too early");
        assert!(matches!(with(0, 5), Decision::Execute(Attempt { number: 2, .. })));
    }

    #[test]
    fn an_approval_holds_for_its_arguments_only_and_not_for_ever() {
        let policy = Policy::default();
        let expires = NOW + Duration::from_secs(60);
        let asked = Entry::ApprovalAsked { at: NOW, expires };
        let waiting = effect([asked.clone()]);
        let approved = effect([asked, Entry::Approved { at: NOW, by: "ada".into(), why: String::new() }]);
        let needed = Conditions { needs_approval: true, ..conditions(&policy) };
        assert_eq!(decide(&effect([]), &needed), Decision::AskApproval);
        assert_eq!(decide(&waiting, &needed), Decision::Hold(Hold::Approval));
        assert!(matches!(decide(&approved, &needed), Decision::Execute(_)));
        let other = Conditions { fingerprint: args("[1]"), ..needed };
        for effect in [&waiting, &approved] {
            assert_eq!(decide(effect, &other), Decision::Refuse(Refusal::KeyReuseMismatch { recorded: args("{}") }));
        }
        let Decision::Record(denied) = decide(&waiting, &Conditions { now: expires, ..needed }) else { panic!("denied by the clock") };
        let of_its_record = ReceiptId::new(&waiting.key, waiting.version + 1);
        assert!(matches!(denied, Entry::Denied { receipt, .. } if receipt == of_its_record), "its receipt is found by its record");
        let mut late = waiting.clone();
        assert!(late.apply([Entry::Approved { at: expires, by: "ada".into(), why: String::new() }]).is_err(), "too late");
        let mut closed = waiting;
        closed.apply([denied]).unwrap();
        assert_eq!(decide(&closed, &Conditions { now: expires, ..needed }), Decision::Replay);
    }

    #[test]
    fn a_claim_holds_until_its_lease_is_over_or_its_holder_is_gone() {
        let policy = Policy::default();
        let running = effect([claimed()]);
        let until = NOW + Duration::from_secs(30);
        let with = |now, holder_gone| decide(&running, &Conditions { now, holder_gone, ..conditions(&policy) });
        let is_lost = |decision| matches!(decision, Decision::Record(Entry::Lost { fence: Fence(1), .. }));
        assert_eq!(with(NOW, false), Decision::Wait { until });
        assert_eq!(with(Timestamp(until.0 - 1), false), Decision::Wait { until });
        assert!(is_lost(with(until, false)));
        assert!(is_lost(with(NOW, true)));
        let impatient = Policy { on_in_flight: OnInFlight::Conflict, ..Policy::default() };
        let refused = decide(&running, &Conditions { now: Timestamp(until.0 - 5), ..conditions(&impatient) });
        assert_eq!(refused, Decision::Refuse(Refusal::InFlight { retry_after: Duration::from_micros(5) }));
    }

    #[test]
    fn a_record_answers_as_long_as_it_is_kept_and_never_runs_again() {
        let policy = Policy::default();
        let receipt = ReceiptId::new(&Digest32::of(b"key"), 1);
        let failed = effect([claimed(), finished(Ended::Failed { failure: Failure::new("http_400", "no"), receipt })]);
        let with = |now| decide(&failed, &Conditions { now, ..conditions(&policy) });
        assert_eq!(with(NOW + Duration::from_micros(999_999)), Decision::Replay);
        assert_eq!(with(NOW + Duration::from_secs(1)), Decision::Refuse(Refusal::KeyExpired));
        let pruned = Effect::from(Facts { expired: true, ..Facts::absent(Digest32::of(b"key")) });
        assert_eq!(decide(&pruned, &conditions(&policy)), Decision::Refuse(Refusal::KeyExpired));
    }

    #[test]
    fn a_flushed_key_is_free_until_it_expires_and_not_for_who_had_its_turn() {
        let policy = Policy::default();
        let receipt = ReceiptId::new(&Digest32::of(b"key"), 1);
        let failed = effect([claimed(), finished(Ended::Failed { failure: Failure::new("http_400", "no"), receipt })]);
        let mut flushed = failed.clone();
        flushed.apply([Entry::Flushed { at: NOW, by: "ada".into(), why: "again".into(), receipt }]).unwrap();
        let base = conditions(&policy);
        let attempt = Attempt { number: 1, fence: Fence(3) };
        for fingerprint in [args("{}"), args("[1]")] {
            assert_eq!(decide(&flushed, &Conditions { fingerprint, ..base }), Decision::Execute(attempt));
        }
        assert_eq!(decide(&flushed, &Conditions { needs_approval: true, ..base }), Decision::AskApproval);
        let again = Series { attempts: 1, ..base.series };
        assert_eq!(decide(&flushed, &Conditions { series: again, ..base }), Decision::Refuse(Refusal::Flushed));
        let later = NOW + Duration::from_secs(1);
        assert_eq!(decide(&flushed, &Conditions { now: later, ..base }), Decision::Refuse(Refusal::KeyExpired));
    }

    #[test]
    fn the_world_is_asked_once_it_had_time_and_once_per_call() {
        let policy = Policy { settle_after: Some(Duration::from_secs(3)), ..Policy::default() };
        let doubt = effect([claimed(), finished(Ended::Unknown { failure: later(), not_before: NOW, sent: None })]);
        let with = |probes, seconds| {
            let base = Conditions { can_probe: true, ..conditions(&policy) };
            let now = NOW + Duration::from_secs(seconds);
            decide(&doubt, &Conditions { now, series: Series { probes, ..base.series }, ..base })
        };
        assert_eq!(with(0, 0), Decision::Wait { until: NOW + Duration::from_secs(3) });
        assert_eq!(with(0, 3), Decision::Probe);
        assert_eq!(with(1, 3), Decision::Hold(Hold::Doubt));
    }

    /// Until the attempt's timeout is over, the other side may still be at work on it.
    #[test]
    fn the_world_is_not_asked_about_an_attempt_that_may_still_be_under_way() {
        let own = Policy::default();
        let (claimed, timeout) = (NOW, own.timeout);
        assert_eq!(probe_from(&own, NOW + Duration::from_secs(1), claimed), claimed + timeout);
        assert_eq!(probe_from(&own, NOW + timeout + timeout, claimed), NOW + timeout + timeout, "a doubt is not older than itself");
        let told = Policy { settle_after: Some(Duration::from_secs(2)), ..own };
        assert_eq!(
            probe_from(&told, NOW + Duration::from_secs(1), claimed),
            NOW + Duration::from_secs(3),
            "the provider's own delay counts"
        );
    }
}
