//! What a person may do to an effect: approve, deny, resolve, retry, cancel, undo. (`flush` has a file of its own.)
//!
//! Each is one compare-and-append that says who and why; the state machine refuses what a state does not allow, and the refusal names the state.
//! An undo is itself a ledgered effect with a key of its own, driven by the same loop.

use std::fmt;
use std::sync::Arc;

use counterfoil_core::breaker::{Breaker, Phase};
use counterfoil_core::call::undo_key;
use counterfoil_core::decide::{probe_from, send_within};
use counterfoil_core::effect::{Done, Effect, State};
use counterfoil_core::entry::{Claim, Entry, Verdict};
use counterfoil_core::ids::Digest32;
use counterfoil_core::{Call, Caller, EffectKey, Failure, Json, Tenant, Timestamp};
use counterfoil_store::Write;
use thiserror::Error;
use tokio::time::Instant;

use crate::answer::Answer;
use crate::ledger::{LedgerError, Said, Sealed, digest_of, next_receipt};
use crate::observe;
use crate::registry::Registered;
use crate::runtime::{Runtime, Task, Told};
use crate::tool::Runs;

/// Who asks for undos.
pub(crate) const UNDO_CALLER: &str = "undo";

/// Who acts, and why: both end up in the ledger.
#[derive(Debug, Clone)]
pub struct Operator {
    pub by: String,
    pub why: String,
    /// The attempt that they looked at: of another one they say nothing.
    pub attempt: Option<u32>,
    pub beside: Beside,
}

impl Operator {
    pub fn new(by: impl Into<String>, why: impl Into<String>) -> Self {
        Self { by: by.into(), why: why.into(), attempt: None, beside: Beside::default() }
    }

    /// What they say of a doubt is about this attempt, and none that came after it.
    pub fn about(self, attempt: Option<u32>) -> Self {
        Self { attempt, ..self }
    }

    pub(crate) fn said(&self) -> Said<'_> {
        Said { by: &self.by, why: &self.why }
    }

    /// With writes that hold or fall with what the operator does: the record of the request that asked for it.
    pub fn beside(self, writes: impl Fn(&Effect) -> Vec<Write> + Send + Sync + 'static) -> Self {
        Self { beside: Beside::new(writes), ..self }
    }
}

/// Writes in the same append as a change, made from the effect as it is after it.
#[derive(Clone, Default)]
pub struct Beside(Option<Arc<WritesAfter>>);

type WritesAfter = dyn Fn(&Effect) -> Vec<Write> + Send + Sync;

impl Beside {
    pub fn new(writes: impl Fn(&Effect) -> Vec<Write> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(writes)))
    }

    pub(crate) fn writes(&self, after: &Effect) -> Vec<Write> {
        self.0.as_ref().map_or_else(Vec::new, |writes| writes(after))
    }
}

impl fmt::Debug for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Beside(…)" } else { "Beside" })
    }
}

/// How a person closes a doubt.
#[derive(Debug, Clone)]
pub enum Resolution {
    Happened {
        result: Json,
    },
    /// It did not happen; the same key may run.
    DidNotHappen,
    /// It did not happen, and it shall not.
    GiveUp,
}

#[derive(Debug, Error)]
pub enum OperateError {
    #[error("there is no effect {0}")]
    NotFound(EffectKey),
    #[error("the effect {key} is {state}: {hint}")]
    WrongState { key: EffectKey, state: &'static str, hint: &'static str },
    #[error("the effect {0} has no undo: its tool names none")]
    NoUndo(EffectKey),
    #[error("the tool {0} is not registered here")]
    UnknownTool(String),
    /// Nothing was changed. What is written beside the change was written by someone else: look at that again.
    #[error("another request with the same key was faster")]
    Beside,
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl Runtime {
    pub async fn effect(&self, key: EffectKey) -> Result<Effect, OperateError> {
        let effect = self.inner.ledger.load(key).await?;
        if effect.latest().is_none() && !effect.expired {
            return Err(OperateError::NotFound(key));
        }
        Ok(effect)
    }

    /// Every entry of an effect, oldest first, as it is stored: `{"at": …, "entry": {…}}`.
    pub async fn history(&self, key: EffectKey) -> Result<Vec<serde_json::Value>, LedgerError> {
        self.inner.ledger.history(key).await
    }

    pub fn now(&self) -> counterfoil_core::Timestamp {
        self.inner.clock.now()
    }

    /// The breaker of a tool, as the ledger has it now.
    pub async fn breaker(&self, tenant: &Tenant, tool: &Registered) -> Result<(Breaker, Phase), LedgerError> {
        self.inner.gates.breaker(tenant, &tool.name, &tool.policy).await
    }

    /// A person's word on a breaker: `change` resets it or forces it open.
    pub async fn set_breaker(
        &self,
        tenant: &Tenant,
        tool: &Registered,
        change: impl Fn(&mut Breaker, counterfoil_core::Timestamp),
    ) -> Result<Breaker, LedgerError> {
        self.set_breaker_beside(tenant, tool, change, |_| Vec::new()).await
    }

    /// With writes that hold or fall with the change. `Conflict`: those lost their race, and nothing was changed.
    pub async fn set_breaker_beside(
        &self,
        tenant: &Tenant,
        tool: &Registered,
        change: impl Fn(&mut Breaker, counterfoil_core::Timestamp),
        beside: impl Fn(&Breaker) -> Vec<Write>,
    ) -> Result<Breaker, LedgerError> {
        let change = |breaker: &mut Breaker| change(breaker, self.inner.clock.now());
        self.inner.gates.set(tenant, &tool.name, &tool.policy, change, beside).await
    }

    /// Closes a doubt.
    pub async fn resolve(&self, key: EffectKey, resolution: Resolution, operator: &Operator) -> Result<Effect, OperateError> {
        let resolution = self.redacted(key, resolution).await?;
        let task = self.recorded_task(&self.effect(key).await?).await?;
        let hint = match operator.attempt {
            None => "only a doubt can be resolved",
            Some(_) => "only a doubt can be resolved, and only if it is still about the attempt that was named: look again",
        };
        self.change(key, hint, operator, |effect, now| {
            // Cancelled while it ran: whether it happened is as open as for any doubt.
            let open = matches!(effect.state, State::InDoubt(_))
                || matches!(effect.state, State::Cancelled { late: None, .. }) && effect.doubtful();
            let newest = effect.silent.last().map(|claim| claim.attempt);
            if !open || operator.attempt.is_some_and(|attempt| newest != Some(attempt)) {
                return None;
            }
            let (verdict, word, result) = match &resolution {
                Resolution::Happened { result } => {
                    let undo = task.as_ref().and_then(|task| undo_of(task, effect, result));
                    (Verdict::Happened { result: result.clone(), undo }, "resolved_happened", result.digest())
                }
                Resolution::DidNotHappen => (Verdict::DidNotHappen, "resolved_did_not_happen", Digest32::of(operator.why.as_bytes())),
                Resolution::GiveUp => (Verdict::GaveUp, "resolved_gave_up", Digest32::of(operator.why.as_bytes())),
            };
            let receipt = next_receipt(effect);
            let entry = Entry::Resolved { at: now, by: operator.by.clone(), why: operator.why.clone(), verdict, receipt };
            Some((entry, Some(Sealed { outcome: word, result, said: Some(operator.said()), started: now, ended: now })))
        })
        .await
    }

    /// Whether a doubt that is resolved as happened could then be undone.
    pub async fn could_undo(&self, key: EffectKey, result: &Json) -> Result<bool, OperateError> {
        let effect = self.effect(key).await?;
        Ok(self.recorded_task(&effect).await?.is_some_and(|task| undo_of(&task, &effect, result).is_some()))
    }

    /// What a person says the world answered is kept as any answer is: without what the policy redacts.
    async fn redacted(&self, key: EffectKey, resolution: Resolution) -> Result<Resolution, OperateError> {
        let Resolution::Happened { result } = resolution else { return Ok(resolution) };
        let effect = self.effect(key).await?;
        let Some(task) = self.recorded_task(&effect).await? else { return Ok(Resolution::Happened { result }) };
        if task.tool.policy.redact.is_empty() {
            return Ok(Resolution::Happened { result });
        }
        let salt = self.inner.salt(&task.call.tenant).await?;
        let invocation = crate::drive::invocation(&task.tool, &task.call, key, effect.attempts, Default::default());
        Ok(Resolution::Happened { result: crate::conclude::redacted(&task.tool, &invocation, &result, Some(&salt)) })
    }

    /// Lets an approved call run, and runs it.
    pub async fn approve(&self, key: EffectKey, operator: &Operator) -> Result<Answer, OperateError> {
        let effect = self
            .change(key, "only a call that waits for approval can be approved", operator, |effect, now| match effect.state {
                State::WaitingApproval { expires, .. } if now < expires => {
                    Some((Entry::Approved { at: now, by: operator.by.clone(), why: operator.why.clone() }, None))
                }
                _ => None,
            })
            .await?;
        self.run_recorded(effect).await
    }

    pub async fn deny(&self, key: EffectKey, operator: &Operator) -> Result<Effect, OperateError> {
        self.change(key, "only a call that waits for approval can be denied", operator, |effect, now| {
            if !matches!(effect.state, State::WaitingApproval { .. }) {
                return None;
            }
            let entry = Entry::Denied { at: now, by: operator.by.clone(), why: operator.why.clone(), receipt: next_receipt(effect) };
            let result = Digest32::of(operator.why.as_bytes());
            Some((entry, Some(Sealed { outcome: "denied", result, said: Some(operator.said()), started: now, ended: now })))
        })
        .await
    }

    /// Tries a failed effect again, now.
    pub async fn retry(&self, key: EffectKey, operator: &Operator) -> Result<Answer, OperateError> {
        let effect = self.effect(key).await?;
        if effect.opened.as_ref().is_some_and(|o| o.redacted) {
            let hint = "its stored arguments are redacted; call it again with the same key and the full arguments";
            return Err(OperateError::WrongState { key, state: effect.state.word(), hint });
        }
        let hint = "only a failed effect can be tried again; a doubt must be resolved first, and what is done is done";
        let effect = self
            .change(key, hint, operator, |effect, now| match effect.state {
                State::Failed { .. } | State::Retrying(_) => {
                    Some((Entry::Reopened { at: now, by: operator.by.clone(), why: operator.why.clone() }, None))
                }
                _ => None,
            })
            .await?;
        self.run_recorded(effect).await
    }

    /// Stops an effect that has not ended. One that is running is told so; what it still does is kept as a late report.
    pub async fn cancel(&self, key: EffectKey, operator: &Operator) -> Result<Effect, OperateError> {
        let effect = self.effect(key).await?;
        if let State::Cancelled { .. } = effect.state {
            return Ok(effect);
        }
        let hint = "it has ended already, or its outcome is unknown: resolve or undo it instead";
        let cancelled = self
            .change(key, hint, operator, |effect, now| {
                let open = matches!(effect.state, State::Ready | State::WaitingApproval { .. } | State::Running(_) | State::Retrying(_));
                let receipt = next_receipt(effect);
                let entry = Entry::Cancelled { at: now, by: operator.by.clone(), why: operator.why.clone(), receipt };
                let result = Digest32::of(operator.why.as_bytes());
                open.then_some((
                    entry,
                    Some(Sealed { outcome: "cancelled", result, said: Some(operator.said()), started: now, ended: now }),
                ))
            })
            .await?;
        self.inner.heartbeat.lose(&key);
        Ok(cancelled)
    }

    /// Undoes a committed effect by the call that was worked out when it committed. The answer is the undo's.
    pub async fn undo(&self, key: EffectKey, operator: &Operator) -> Result<Answer, OperateError> {
        let started = Instant::now();
        let effect = self.effect(key).await?;
        if let State::Undoing { .. } = &effect.state {
            return Ok(self.answer_undo(effect, started).await?);
        }
        let Some(done) = committed(&effect.state) else {
            let hint = "only what is done can be undone; a doubt must be resolved first";
            return Err(OperateError::WrongState { key, state: effect.state.word(), hint });
        };
        let Some(plan) = &done.undo else { return Err(OperateError::NoUndo(key)) };
        let tenant = effect.opened.as_ref().map(|opened| &opened.tenant);
        let by_clients = tenant.and_then(|tenant| self.inner.tools.get(tenant, &plan.tool)).is_some_and(|t| t.runs() == Runs::Elsewhere);
        if by_clients {
            // Before it is written down as begun: nobody here could end it.
            return Ok(Answer::refused("tool_runs_elsewhere", format!("{} undoes it, and only its clients run that", plan.tool)));
        }
        let again = matches!(effect.state, State::UndoFailed { .. });
        let effect = self
            .change(key, "only what is done can be undone", operator, |effect, now| {
                // By the key the world knows it by: what a flushed key does next has an undo of its own.
                let undo = undo_key(&effect.sent_key());
                committed(&effect.state)
                    .map(|_| (Entry::UndoStarted { at: now, by: operator.by.clone(), why: operator.why.clone(), undo }, None))
            })
            .await?;
        observe::compensation_begun();
        if let State::Undoing { undo, .. } = &effect.state
            && again
        {
            self.reopen_undo(*undo, operator).await?;
        }
        Ok(self.answer_undo(effect, started).await?)
    }

    async fn answer_undo(&self, effect: Effect, started: Instant) -> Result<Answer, LedgerError> {
        let plan = if let State::Undoing { done, .. } = &effect.state { done.undo.as_ref() } else { None };
        let tool = plan.zip(effect.opened.as_ref()).and_then(|(plan, opened)| self.inner.tools.get(&opened.tenant, &plan.tool));
        let told = self.continue_undo(effect).await?;
        let meters = tool.map_or_else(|| self.inner.meters.other(), |tool| self.inner.meters.of(&tool.name));
        Ok(self.counted(&meters, started, told))
    }

    /// A failed undo is sticky like any failure; asking for it again is a person's word that it may be tried again.
    async fn reopen_undo(&self, undo: EffectKey, operator: &Operator) -> Result<(), OperateError> {
        let effect = self.inner.ledger.load(undo).await?;
        if matches!(effect.state, State::Failed { .. } | State::Retrying(_)) {
            let entry = Entry::Reopened { at: self.inner.clock.now(), by: operator.by.clone(), why: operator.why.clone() };
            self.inner.ledger.record(&effect, vec![entry], None).await?;
        }
        Ok(())
    }

    /// Runs the undo's own effect and records on the forward effect how it ended.
    pub(crate) async fn continue_undo(&self, effect: Effect) -> Result<Told, LedgerError> {
        let State::Undoing { done, undo, since } = &effect.state else {
            return Ok(Answer::refused("wrong_state", "the effect is not being undone").into());
        };
        let (Some(plan), Some(opened)) = (&done.undo, &effect.opened) else {
            return Ok(Answer::refused("no_undo", "the effect has no undo").into());
        };
        let Some(mut tool) = self.inner.tools.get(&opened.tenant, &plan.tool) else {
            return Ok(Answer::refused("unknown_tool", format!("the undo tool {} is not registered here", plan.tool)).into());
        };
        if let Some(retry) = self.undo_retry(&effect).await? {
            Arc::make_mut(&mut tool).policy.retry = retry;
        }
        let now = self.inner.clock.now();
        let call = Call {
            tenant: opened.tenant.clone(),
            caller: Caller::new(UNDO_CALLER).expect("a plain word"),
            tool: plan.tool.clone(),
            args: plan.args.clone(),
            key: None,
            run: opened.run.clone(),
            step: None,
            ordinal: 0,
        };
        let stored = call.args.clone();
        if effect.veil.is_some() {
            Arc::make_mut(&mut tool).subject = None;
        }
        let mut task = Task::new(tool, call, stored, *undo, now);
        // What is known of the undo is about whom the effect is about.
        task.veil = effect.veil.clone();
        let undo_effect = self.inner.ledger.load(*undo).await?;
        let told = self.settle_traced(task, undo_effect).await;
        let Some(failure) = ended(&self.inner.ledger.load(*undo).await?.state) else {
            // Not ended: stays under way, and recovery goes on with it.
            return Ok(told);
        };
        let result = failure.as_ref().map_or_else(|| told.answer.data.as_ref().map_or(Digest32([0; 32]), Json::digest), digest_of);
        let word = if failure.is_none() { "undone" } else { "undo_failed" };
        let since = *since;
        let mut effect = effect.clone();
        while matches!(effect.state, State::Undoing { .. }) {
            let now = self.inner.clock.now();
            let entry = Entry::UndoFinished { at: now, undo: *undo, failure: failure.clone(), receipt: next_receipt(&effect) };
            let sealed = Sealed { outcome: word, result, said: None, started: now, ended: now };
            match self.inner.ledger.record(&effect, vec![entry], Some(sealed)).await {
                Ok(_) => {
                    observe::compensation_ended(failure.is_none(), now.since(since));
                    break;
                }
                // Another worker wrote: perhaps the same end.
                Err(LedgerError::Conflict) => effect = self.inner.ledger.load(effect.key).await?,
                Err(error) => return Err(error),
            }
        }
        Ok(told)
    }

    /// From when on the world can be asked about an effect that was cancelled while it ran: what it had sent may still be under way. `None`: it cannot be asked.
    pub(crate) async fn asked_from(&self, effect: &Effect) -> Result<Option<Timestamp>, LedgerError> {
        let State::Cancelled { at, .. } = &effect.state else { return Ok(None) };
        let Some(task) = self.recorded_task(effect).await?.filter(|task| task.tool.tool.can_probe()) else { return Ok(None) };
        let policy = &task.tool.policy;
        let lent = effect.opened.as_ref().is_some_and(|opened| opened.lent);
        // Whoever claimed it may have sent it before hearing that it was cancelled.
        let sent = |claim: &Claim| if lent { claim.lease_until } else { claim.at + send_within(policy.lease) };
        let sent = effect.silent.iter().map(sent).max().unwrap_or(*at);
        Ok(Some(probe_from(policy, *at, sent).max(self.may_report_until(effect))))
    }

    /// Until then whoever ran it may still be at it, and say what came of it: nobody else is asked before.
    pub(crate) fn may_report_until(&self, effect: &Effect) -> Timestamp {
        let there = effect.silent.iter().filter(|claim| !self.inner.liveness.away(&claim.worker));
        there.map(|claim| claim.lease_until).max().unwrap_or(Timestamp(i64::MIN))
    }

    /// Asks the world about an effect that was cancelled while it ran: then it is known whether there is something to undo.
    pub(crate) async fn probe_cancelled(&self, effect: &Effect) -> Result<Effect, LedgerError> {
        if self.asked_from(effect).await?.is_none_or(|from| from > self.inner.clock.now()) {
            return Ok(effect.clone());
        }
        let Some(mut task) = self.recorded_task(effect).await? else { return Ok(effect.clone()) };
        match self.inner.probe(&mut task, effect).await {
            Err(LedgerError::Conflict) => self.inner.ledger.load(effect.key).await,
            probed => probed,
        }
    }

    async fn run_recorded(&self, effect: Effect) -> Result<Answer, OperateError> {
        let tool = effect.opened.as_ref().map(|o| o.tool.to_string()).unwrap_or_default();
        let task = self.recorded_task(&effect).await?.ok_or(OperateError::UnknownTool(tool))?;
        let started = Instant::now();
        let meters = self.inner.meters.of(&task.tool.name);
        let told = self.settle_traced(task, effect.clone()).await;
        self.stir_run_of(&effect).await?;
        Ok(self.counted(&meters, started, told))
    }

    /// One compare-and-append, repeated while others are faster and the state still allows it.
    pub(crate) async fn change<'a>(
        &self,
        key: EffectKey,
        hint: &'static str,
        operator: &Operator,
        entry: impl Fn(&Effect, counterfoil_core::Timestamp) -> Option<(Entry, Option<Sealed<'a>>)>,
    ) -> Result<Effect, OperateError> {
        loop {
            let effect = self.effect(key).await?;
            let Some((entry, sealed)) = entry(&effect, self.inner.clock.now()) else {
                return Err(OperateError::WrongState { key, state: if effect.expired { "expired" } else { effect.state.word() }, hint });
            };
            match self.inner.ledger.record_with(&effect, vec![entry], sealed, |after| operator.beside.writes(after)).await {
                Err(LedgerError::Conflict) => continue,
                Err(LedgerError::BesideTaken { .. }) => return Err(OperateError::Beside),
                changed => {
                    let changed = changed?;
                    self.stir_run_of(&changed).await?;
                    return Ok(changed);
                }
            }
        }
    }
}

/// What would undo `effect`, had it given `result`.
fn undo_of(task: &Task, effect: &Effect, result: &Json) -> Option<counterfoil_core::entry::UndoCall> {
    let invocation = crate::drive::invocation(&task.tool, &task.call, effect.sent_key(), effect.attempts, Default::default());
    crate::conclude::undo_call(&task.tool, &invocation, result)
}

/// How an undo's own effect ended: with a failure, or without. `None`: not yet.
fn ended(state: &State) -> Option<Option<Failure>> {
    match state {
        State::Done(_) => Some(None),
        State::Failed { failure, .. } => Some(Some(failure.clone())),
        State::Retrying(failed) if failed.receipt.is_some() => Some(Some(failed.failure.clone())),
        State::Cancelled { by, why, .. } => Some(Some(Failure::new("cancelled", format!("cancelled by {by}: {why}")))),
        _ => None,
    }
}

fn committed(state: &State) -> Option<&Done> {
    match state {
        State::Done(done) | State::UndoFailed { done, .. } | State::Cancelled { late: Some(done), .. } => Some(done),
        _ => None,
    }
}
