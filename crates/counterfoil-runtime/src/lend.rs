//! Attempts that clients make: a permit is lent, kept alive, and given back with what came of it.
//!
//! The claim of a lent permit comes out of the same loop as that of a call; its holder is the client. Nothing of it is kept in memory: what a client may
//! do under its fence is decided from the ledger each time, by any process. No `Permit` is made here, so nothing is dispatched here under a lent claim.
//! A client that falls silent is in doubt when its lease ends; what it says after that is kept as evidence. Permits enforce in every mode.

use std::time::Duration;

use counterfoil_core::decide::{Attempt, Hold, Refusal};
use counterfoil_core::effect::{Effect, State};
use counterfoil_core::entry::{Claim, Entry};
use counterfoil_core::retry::Series;
use counterfoil_core::{Call, EffectKey, Failure, Fence, Json, Outcome, Success, Tenant, Timestamp};
use thiserror::Error;
use tokio::time::Instant;

use crate::answer::{Answer, AnswerError, Ending, Status};
use crate::budget;
use crate::conclude::{self, Concluding};
use crate::drive::{invocation, ledger_answer};
use crate::ledger::{Holding, LedgerError, Reported};
use crate::liveness::client;
use crate::operate::Beside;
use crate::runtime::{Inner, Runtime, Task};
use crate::standing::{Standing, heard, same, standing};
use crate::tool::{Invocation, Runs, Stop, ToolError};
use crate::tools::output::{DETAIL_BYTES_MAX, capped};

/// What another process has committed is seen by then, also in a store that is read through snapshots.
const OTHER_PROCESS_SEEN_AFTER: Duration = Duration::from_millis(50);

/// A shorter lease is lost to one slow request.
const LEASE_MIN: Duration = Duration::from_secs(1);
/// A client that dies is noticed within this. One that needs longer says from time to time that it lives.
const LEASE_MAX: Duration = Duration::from_secs(3600);
/// A heartbeat that would gain less than this share of the lease writes nothing: an effect's history stays short however often a client beats.
const BEATS_PER_LEASE_MAX: u32 = 10;
/// Kept of what a client says about a failure.
const CODE_CHARS_MAX: usize = 100;
const MESSAGE_CHARS_MAX: usize = 4000;

/// What came of asking for a permit.
#[derive(Debug, Clone, PartialEq)]
pub enum Acquired {
    /// The claim is durable: run it.
    Lent(Lent),
    /// There is nothing to run, or not now: what a call would be answered without being run.
    Answer(Box<Answer>),
}

/// A permit in a client's hands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lent {
    pub key: EffectKey,
    /// Goes downstream as `Idempotency-Key`, the same on every attempt. The effect's own key, until that was flushed.
    pub sent_key: EffectKey,
    pub attempt: u32,
    /// Goes with everything the client says about this attempt.
    pub fence: Fence,
    /// Unless it is heard before then, the attempt is in doubt.
    pub lease_until: Timestamp,
}

/// Names a lent permit. Another tenant's is not found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermitId {
    pub tenant: Tenant,
    pub key: EffectKey,
    pub fence: Fence,
}

/// How a report came to be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitHow {
    /// By this report, with what was to be written beside it.
    Recorded,
    /// By an earlier one that said the same. Nothing was written.
    Repeated,
}

#[derive(Debug, Error)]
pub enum LendError {
    #[error("there is no effect {0}")]
    NotFound(EffectKey),
    /// What a client reports here may have happened all the same.
    #[error("the permit {} of the effect {key} is lost, and the effect is {state}; {}", fence.0, if *recorded_late { "the report is kept as evidence" } else { "nothing was recorded" })]
    PermitLost { key: EffectKey, fence: Fence, state: &'static str, recorded_late: bool },
    #[error("the attempt under the permit {} of the effect {key} was reported before, with another outcome: the effect is {state}, and stays so", fence.0)]
    ReportMismatch { key: EffectKey, fence: Fence, state: &'static str },
    #[error("the tool {tool} of the effect {key} is not registered here, so nothing was recorded; report again where it is")]
    UnknownTool { key: EffectKey, tool: String },
    #[error("a lease of {lease:?} is not possible: from {LEASE_MIN:?} to {LEASE_MAX:?}, extended by heartbeats")]
    InvalidLease { lease: Duration },
    /// Nothing was recorded, or nobody knows; the same report can be made again.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl LendError {
    /// Stable; each has a page in docs/errors.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "not_found",
            Self::PermitLost { .. } => "permit_lost",
            Self::ReportMismatch { .. } => "report_mismatch",
            Self::UnknownTool { .. } => "unknown_tool",
            Self::InvalidLease { .. } => "invalid_lease",
            Self::Ledger(error) => error.code(),
        }
    }
}

/// What a client asks for beside the call.
pub(crate) struct Lending {
    lease: Duration,
    beside: Beside,
}

impl Runtime {
    /// Asks for the permit to run one attempt of a call whose tool clients run. Never waits for an attempt that is under way. `lease` is how long the
    /// permit holds without a heartbeat, by default the tool's; `beside` is written with the claim, and only then. Of the tool's limits,
    /// `limits.concurrency` does not apply.
    pub async fn acquire(&self, call: Call, lease: Option<Duration>, beside: Beside) -> Result<Acquired, LendError> {
        let started = Instant::now();
        let lease = lease.map(checked).transpose()?;
        let acquired = match self.prepared(call).await {
            Ok((task, effect)) => self.ask(task, effect, lease, beside).await?,
            Err(answer) => Acquired::Answer(answer),
        };
        Ok(match acquired {
            Acquired::Answer(answer) => Acquired::Answer(Box::new(self.stamped(started.elapsed(), *answer))),
            lent => lent,
        })
    }

    /// As for a call, up to the point where it would be driven.
    async fn prepared(&self, call: Call) -> Result<(Box<Task>, Effect), Box<Answer>> {
        let tool = self.tool_for(&call, Runs::Elsewhere)?;
        let task = self.task(tool, call).await?;
        self.begin_client_step(&task).await?;
        let effect = self.inner.ledger.load(task.key).await.map_err(|error| Box::new(ledger_answer(&error, Some(&task))))?;
        self.renew_window(task, effect).await
    }

    async fn ask(&self, mut task: Box<Task>, effect: Effect, lease: Option<Duration>, beside: Beside) -> Result<Acquired, LendError> {
        let lease = lease.unwrap_or(task.tool.policy.lease);
        task.lending = Some(Box::new(Lending { lease, beside }));
        let inner = self.inner.clone();
        // A client that hangs up half-way leaves no probe or claim without its end.
        let driving = crate::undropped::Undropped::new(
            self.inner.beyond(),
            Box::pin(async move {
                let driven = inner.drive(&mut task, effect).await;
                (task, driven)
            }),
        );
        match driving.await {
            (_, Ok((_, Ending::Lent(lent)))) => Ok(Acquired::Lent(lent)),
            // The record beside the claim is the caller's: only the caller knows what it means that it is taken.
            (_, Err(error @ LedgerError::BesideTaken { .. })) => Err(error.into()),
            (task, driven) => Ok(Acquired::Answer(Box::new(self.inner.dress(&task, driven).answer))),
        }
    }

    /// Says that the client is alive, and gives the end of its lease as it is then.
    pub async fn heartbeat(&self, permit: &PermitId, lease: Option<Duration>) -> Result<Timestamp, LendError> {
        let lease = lease.map(checked).transpose()?;
        let effect = self.lent_effect(permit).await?;
        let Standing::Running(claim) = standing(&effect, permit.fence) else { return Err(permit.lost(&effect, false)) };
        let own = || self.recorded_call(&effect).map_or_else(|| counterfoil_core::Policy::default().lease, |task| task.tool.policy.lease);
        let lease = lease.unwrap_or_else(own);
        let wanted = self.now() + lease;
        if claim.lease_until <= wanted && wanted.since(claim.lease_until) < lease / BEATS_PER_LEASE_MAX {
            return Ok(claim.lease_until);
        }
        let holding = Holding::of(effect, &claim, lease, Instant::now());
        match self.inner.ledger.extend(holding.lease()).await {
            Ok(()) => Ok(holding.lease().until()),
            Err(LedgerError::Conflict) => Err(permit.lost(&self.lent_effect(permit).await?, false)),
            Err(error) => Err(error.into()),
        }
    }

    /// It happened, and this is what the world said. Said again, it is answered with what is recorded; `beside` is written with the outcome, and only then.
    pub async fn commit(&self, permit: &PermitId, result: Json, beside: Beside) -> Result<(Effect, CommitHow), LendError> {
        self.report(permit, Outcome::Done(Success::new(result)), beside).await
    }

    /// It did not happen, or nobody knows. `Failure::dependency` says whether the breaker counts it; a doubt always counts.
    pub async fn fail(&self, permit: &PermitId, error: ToolError, beside: Beside) -> Result<(Effect, CommitHow), LendError> {
        self.report(permit, error.into(), beside).await
    }

    async fn report(&self, permit: &PermitId, outcome: Outcome, beside: Beside) -> Result<(Effect, CommitHow), LendError> {
        let (runtime, permit) = (self.clone(), permit.clone());
        // What a client reports is recorded also when it does not wait for the answer.
        crate::undropped::Undropped::new(
            self.inner.beyond(),
            Box::pin(async move {
                let reported = runtime.record_report(&permit, outcome, &beside).await;
                // What the run has not heard now it hears when it is next looked at.
                if let Err(error) = runtime.end_client_step(permit.key).await {
                    tracing::warn!(effect = %permit.key, %error, "the run was not told how its step ended");
                }
                reported
            }),
        )
        .await
    }

    async fn record_report(&self, permit: &PermitId, outcome: Outcome, beside: &Beside) -> Result<(Effect, CommitHow), LendError> {
        let ledger = &self.inner.ledger;
        loop {
            let effect = self.lent_effect(permit).await?;
            let standing = standing(&effect, permit.fence);
            let concluding = self.concluding(&effect, standing.attempt().unwrap_or(effect.attempts), outcome.clone()).await?;
            let now = self.now();
            let said = concluding.ending(&effect, now).evidence;
            let heard = heard(&effect, permit.fence);
            if let Some(heard) = heard.as_ref().filter(|heard| same(&heard.outcome, &said)) {
                return if heard.late { Err(permit.lost(&effect, true)) } else { Ok((effect, CommitHow::Repeated)) };
            }
            let reported = match standing {
                Standing::Running(claim) => {
                    let holding = Holding::of(effect, &claim, claim.lease_until.since(now), Instant::now());
                    let ending = |effect: &Effect, now| concluding.ending(effect, now);
                    let reported = ledger.finish(&holding, ending, |after| beside.writes(after)).await?;
                    if let Reported::InTime(effect) = reported {
                        self.tell_breaker(&concluding, claim.at).await;
                        return Ok((effect, CommitHow::Recorded));
                    }
                    reported
                }
                Standing::Silent(claim) => {
                    ledger.report_late(&Holding::of(effect, &claim, Duration::ZERO, Instant::now()), said, now).await?
                }
                Standing::Over if heard.is_some() => return Err(permit.mismatch(&effect)),
                Standing::Over => return Err(permit.lost(&effect, false)),
            };
            match reported {
                Reported::InTime(effect) => return Ok((effect, CommitHow::Recorded)),
                Reported::Late { effect, kept: true } => return Err(permit.lost(&effect, true)),
                // Another report under this fence was faster: see what it said.
                Reported::Late { kept: false, .. } => {}
            }
        }
    }

    /// The effect of the permit. What is another tenant's is looked for as long as what is not there, and found as little.
    async fn lent_effect(&self, permit: &PermitId) -> Result<Effect, LendError> {
        let find = async || {
            let effect = self.inner.ledger.load(permit.key).await?;
            let own = effect.opened.as_ref().is_some_and(|opened| opened.tenant == permit.tenant);
            Ok::<_, LedgerError>(own.then_some(effect))
        };
        if let Some(effect) = find().await? {
            return Ok(effect);
        }
        // It may be so new that a store shared with the process that lent it does not show it yet.
        tokio::time::sleep(OTHER_PROCESS_SEEN_AFTER).await;
        find().await?.ok_or(LendError::NotFound(permit.key))
    }

    async fn concluding(&self, effect: &Effect, attempt: u32, outcome: Outcome) -> Result<Concluding, LendError> {
        let unknown = || {
            let tool = effect.opened.as_ref().map(|opened| opened.tool.to_string()).unwrap_or_default();
            LendError::UnknownTool { key: effect.key, tool }
        };
        let task = self.recorded_call(effect).ok_or_else(unknown)?;
        let salt = if task.tool.policy.redact.is_empty() { None } else { Some(self.inner.salt(&task.call.tenant).await?) };
        let invocation = invocation(&task.tool, &task.call, effect.sent_key(), attempt, Stop::default());
        // The client owns the series: each attempt it asks for is one more of it, and waits as long as that.
        let series = Series { attempts: attempt, ..task.series };
        let mut concluding =
            Concluding { tool: task.tool, invocation, series, outcome, sent: None, salt, jitter: self.inner.fresh.jitter() };
        concluding.outcome = bounded(&concluding);
        Ok(concluding)
    }

    async fn tell_breaker(&self, concluding: &Concluding, claimed: Timestamp) {
        let Concluding { tool, invocation: Invocation { tenant, .. }, outcome, .. } = concluding;
        if let Err(error) = self.inner.gates.report_lent((tenant, &tool.name), &tool.policy, claimed, outcome).await {
            // The outcome stands; the breaker will count the next one.
            tracing::error!(tool = %tool.name, %error, "the breaker could not be written");
        }
    }
}

impl Inner {
    /// Gives the attempt to the client that asks for it. Whoever else comes by (recovery, an operator) cannot run it.
    pub(crate) async fn lend(&self, task: &Task, effect: &Effect, attempt: Attempt) -> Result<(Effect, Ending), LedgerError> {
        let Some(lending) = &task.lending else { return Ok((effect.clone(), Ending::Elsewhere)) };
        let mut pass = match self.gates.pass_out(&task.call.tenant, &task.tool.name, &task.tool.policy).await? {
            Ok(pass) => pass,
            Err(barred) => return Ok((effect.clone(), barred.after(effect))),
        };
        let mut spent = match budget::spend(&self.ledger, task, effect).await? {
            Ok(writes) => writes,
            Err(message) => {
                let error = AnswerError::new("budget_exceeded", message);
                return Ok((effect.clone(), Ending::NotAdmitted(Status::Error, error)));
            }
        };
        spent.append(&mut pass.writes());
        let ours: Vec<_> = spent.iter().map(|write| write.stream).collect();
        let (at, worker) = (self.clock.now(), client(&task.call.caller));
        let claim = Claim { at, attempt: attempt.number, fence: attempt.fence, worker, lease_until: at + lending.lease };
        let sent_key = effect.sent_key();
        let lent = Lent { key: task.key, sent_key, attempt: claim.attempt, fence: claim.fence, lease_until: claim.lease_until };
        let opened = effect.opened.is_none().then(|| Entry::Opened(self.opened(task, at)));
        let entries = opened.into_iter().chain([Entry::Claimed(claim)]).collect();
        let beside = |after: &Effect| spent.into_iter().chain(lending.beside.writes(after)).collect();
        match self.ledger.record_with(effect, entries, None, beside).await {
            Ok(effect) => {
                pass.lend(lent.lease_until);
                Ok((effect, Ending::Lent(lent)))
            }
            // Budget and quota are ours to work out anew.
            Err(LedgerError::BesideTaken { streams }) if streams.iter().any(|stream| ours.contains(stream)) => Err(LedgerError::Conflict),
            // A claim that was perhaps written is not given back: what was written beside it may be the client's answer, and its permit.
            Err(error) => Err(error),
        }
    }
}

impl PermitId {
    fn lost(&self, effect: &Effect, recorded_late: bool) -> LendError {
        LendError::PermitLost { key: self.key, fence: self.fence, state: effect.state.word(), recorded_late }
    }
    fn mismatch(&self, effect: &Effect) -> LendError {
        LendError::ReportMismatch { key: self.key, fence: self.fence, state: effect.state.word() }
    }
}

/// What a client is told instead of being made to wait.
pub(crate) fn not_now(effect: &Effect, until: Timestamp, now: Timestamp) -> Ending {
    match effect.state {
        State::Running(_) => Ending::Refused(Refusal::InFlight { retry_after: until.since(now).min(Duration::from_secs(1)) }),
        _ => Ending::Held(Hold::Doubt),
    }
}

fn checked(lease: Duration) -> Result<Duration, LendError> {
    if (LEASE_MIN..=LEASE_MAX).contains(&lease) { Ok(lease) } else { Err(LendError::InvalidLease { lease }) }
}

/// The outcome, no larger than is kept. Secrets are taken out before anything is cut: half a secret is not known again.
fn bounded(concluding: &Concluding) -> Outcome {
    let Concluding { tool, invocation, salt, .. } = concluding;
    let fitting = |json: Json, max: usize| {
        if json.as_str().len() <= max {
            return Success::new(json);
        }
        let cut = capped(conclude::redacted(tool, invocation, &json, salt.as_ref()), max);
        // Small enough without its secrets: they are taken out when it is judged.
        if cut.flags.is_empty() { Success::new(json) } else { cut }
    };
    let told = |failure: Failure| Failure {
        code: failure.code.chars().take(CODE_CHARS_MAX).collect(),
        message: conclude::scrubbed(tool, invocation, &failure.message, salt.as_ref()).chars().take(MESSAGE_CHARS_MAX).collect(),
        detail: failure.detail.map(|detail| fitting(detail, DETAIL_BYTES_MAX).result),
        ..failure
    };
    match concluding.outcome.clone() {
        Outcome::Done(success) => Outcome::Done(fitting(success.result, tool.policy.result_bytes_max)),
        Outcome::NotDone(failure) => Outcome::NotDone(told(failure)),
        Outcome::Unknown(failure) => Outcome::Unknown(told(failure)),
    }
}
