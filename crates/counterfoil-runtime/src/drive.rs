//! The loop: load, decide, do, record; again until there is an answer.
//!
//! The same loop serves a live call, a retry, a recovered effect and an undo: there is no second path. The world changes in one place (`execute`), after
//! the claim is durable, and is told of only after the outcome is.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::decide::{Attempt, Refusal};
use counterfoil_core::effect::{State, WorldSemantics};
use counterfoil_core::entry::{Entry, Opened};
use counterfoil_core::limit::Place;
use counterfoil_core::policy::{OnInFlight, Policy};
use counterfoil_core::{Call, Conditions, Decision, Effect, EffectKey, Outcome, StreamId, Tenant, Timestamp, Veil, decide};
use counterfoil_store::{StoreError, Written};
use tracing::Instrument;

use crate::answer::{Answer, AnswerError, Ending, Status};
use crate::budget;
use crate::conclude::{self, Concluding};
use crate::execute;
use crate::gate::Pass;
use crate::ledger::{LedgerError, Permit, runs_under};
use crate::lend;
use crate::liveness::Unsettled;
use crate::observe::Served;
use crate::registry::Registered;
use crate::runtime::{Inner, Task, Told};
use crate::tool::{Invocation, Runs, Stop};
use crate::trace;

/// The code of a call that its run does not want any more.
pub(crate) const STEP_STOPPED: &str = "step_stopped";
/// The code of a call or a run about someone whose key was destroyed.
pub(crate) const SUBJECT_ERASED: &str = "subject_erased";

/// The right to make an attempt, with all that goes with it.
pub(crate) struct Held {
    pub permit: Permit,
    pub pass: Pass,
    pub attempt: Attempt,
    pub unsettled: Unsettled,
}

impl Inner {
    pub(crate) async fn see_through(self: Arc<Self>, mut task: Box<Task>, effect: Effect) -> Told {
        let driven = self.drive(&mut task, effect).await;
        self.dress(&task, driven)
    }

    /// The loop. Everything that happens to an effect, live or recovered, happens here.
    pub(crate) async fn drive(&self, task: &mut Task, effect: Effect) -> Result<(Effect, Ending), LedgerError> {
        let driven = self.go_on(task, effect).await;
        if !task.guessed {
            return driven;
        }
        // Taken for new, and then not begun: what the ledger has of it may be the answer.
        let effect = match (driven, self.looked_up(task).await) {
            (Ok(_), looked_up) => looked_up?,
            (Err(_), Ok(effect)) if effect.version > 0 && !task.unsure.as_ref().is_some_and(|claim| runs_under(&effect, claim)) => effect,
            // It is new after all, or what is there is the very claim that failed: the failure stands.
            (Err(error), _) => return Err(error),
        };
        Box::pin(self.go_on(task, effect)).await
    }

    /// The effect as it is, after it was taken for new or somebody was faster.
    async fn looked_up(&self, task: &mut Task) -> Result<Effect, LedgerError> {
        let effect = self.ledger.load(task.key).await?;
        if std::mem::take(&mut task.guessed) {
            self.novelty.saw(effect.version == 0);
        }
        Ok(effect)
    }

    async fn go_on(&self, task: &mut Task, mut effect: Effect) -> Result<(Effect, Ending), LedgerError> {
        loop {
            if let Some(held) = task.held.take() {
                effect = self.attempt(task, effect.sent_key(), held).await?;
                continue;
            }
            task.doubtful = effect.doubtful();
            let decision = match self.decide(task, &effect) {
                Ok(decision) => decision,
                Err(answer) => return Ok((effect, answer)),
            };
            // What is recorded first says whom it is about, and from then on its records do.
            let about_someone = task.tool.subject.is_some() || task.veil.is_some();
            if about_someone && effect.opened.is_none() && matches!(decision, Decision::Execute(_) | Decision::AskApproval) {
                match Box::pin(self.veiled(task, &effect)).await? {
                    Ok(veiled) => effect = veiled,
                    Err(refused) => return Ok((effect, refused)),
                }
            }
            let step = match decision {
                Decision::Replay => return Ok((effect, Ending::Recorded)),
                Decision::Refuse(refusal) => return Ok((effect, Ending::Refused(refusal))),
                Decision::Hold(hold) => return Ok((effect, Ending::Held(hold))),
                Decision::Wait { until } if task.lending.is_some() => {
                    let ending = lend::not_now(&effect, until, self.clock.now());
                    return Ok((effect, ending));
                }
                Decision::Wait { until } => match Box::pin(self.wait(task, &effect, until)).await? {
                    Some(changed) => Ok(changed),
                    None => return Ok((effect, Ending::StillRunning)),
                },
                // Boxed, here and below: what is rare takes no room in every call.
                Decision::Record(entry) => Box::pin(self.ledger.record(&effect, vec![entry.clone()], conclude::seal_of_fact(&entry))).await,
                Decision::AskApproval => Box::pin(self.ask_approval(task, &effect)).await,
                Decision::Probe => Box::pin(self.probe(task, &effect)).await,
                // The effect was read before the run is: whoever ends the step after that writes to the effect as well, and the claim loses.
                Decision::Execute(_) if task.aside.is_some() && !Box::pin(self.still_wanted(task, &effect)).await? => {
                    return Ok((effect, Ending::Recorded));
                }
                Decision::Execute(attempt) if task.tool.runs() == Runs::Elsewhere => {
                    match Box::pin(self.lend(task, &effect, attempt)).await {
                        Ok(lent) => return Ok(lent),
                        Err(error) => Err(error),
                    }
                }
                Decision::Execute(attempt) => match self.execute(task, &effect, attempt).await {
                    Ok(Ok(effect)) => Ok(effect),
                    Ok(Err(barred)) => return Ok((effect, barred)),
                    Err(error) => Err(error),
                },
            };
            effect = match step {
                Ok(effect) => effect,
                // Someone else wrote first: look again and decide anew.
                Err(LedgerError::Conflict) => self.looked_up(task).await?,
                Err(error) => return Err(error),
            };
        }
    }

    /// Whether the run wants it done whose step it is, where somebody else than its driver goes on with it.
    async fn still_wanted(&self, task: &Task, effect: &Effect) -> Result<bool, LedgerError> {
        let Some(runtime) = &task.aside else { return Ok(true) };
        Ok(runtime.tool_of_step(effect).await?.is_none_or(|(_, wanted)| wanted))
    }

    /// The effect of a call that nothing is recorded of yet, under the key of its subject. Refused where that was erased.
    pub(crate) async fn veiled(&self, task: &Task, effect: &Effect) -> Result<Result<Effect, Ending>, LedgerError> {
        let mut veiled = effect.clone();
        let Some(rule) = &task.tool.subject else {
            if task.veil.is_some() {
                veiled.veil = task.veil.clone();
            }
            return Ok(Ok(veiled));
        };
        let refused = |code, message| Ok(Err(Ending::NotAdmitted(Status::Error, AnswerError::new(code, message))));
        let subject = match rule(&task.call.args) {
            Ok(subject) => subject,
            Err(message) => return refused("subject_rule_failed", message),
        };
        match self.veil_of(&task.call.tenant, &subject).await? {
            Some(veil) => {
                veiled.veil = Some(veil);
                Ok(Ok(veiled))
            }
            None => {
                refused(SUBJECT_ERASED, format!("the subject of this call of {} was erased; nothing was recorded or run", task.tool.name))
            }
        }
    }

    /// What the records about this subject are stored under. `None`: it was erased.
    pub(crate) async fn veil_of(&self, tenant: &Tenant, subject: &str) -> Result<Option<Arc<Veil>>, LedgerError> {
        let salt = self.salt(tenant).await?;
        self.ledger.veil(tenant, StreamId::subject(&salt, tenant, subject)).await
    }

    async fn execute(&self, task: &mut Task, effect: &Effect, attempt: Attempt) -> Result<Result<Effect, Ending>, LedgerError> {
        let policy = &task.tool.policy;
        let place = Place { effect: task.key, fence: attempt.fence };
        let gate_until = if task.awaited { task.series.deadline } else { self.clock.now() };
        let (tenant, tool) = (&task.call.tenant, &task.tool.name);
        let passed = match self.gates.pass_at_once(tenant, tool, policy) {
            Some(pass) => Ok(pass),
            // Boxed, here and below: where something is waited for or looked up.
            None => Box::pin(self.gates.pass(tenant, tool, policy, place, gate_until)).await?,
        };
        let mut pass = match passed {
            Ok(pass) => pass,
            Err(barred) => return Ok(Err(barred.after(effect))),
        };
        let spent = match budget::is_spent(task, effect) {
            false => Ok(Vec::new()),
            true => Box::pin(budget::spend(&self.ledger, task, effect)).await?,
        };
        let mut beside = match spent {
            Ok(writes) => writes,
            Err(message) => return Ok(Err(Ending::NotAdmitted(Status::Error, AnswerError::new("budget_exceeded", message)))),
        };
        beside.append(&mut pass.writes());
        // Asked as late as can be: a step that its run has given up is not begun.
        if task.follow.as_ref().is_some_and(|follow| !follow.wanted()) {
            let error = AnswerError::new(STEP_STOPPED, "the run does not want this step any more");
            return Ok(Err(Ending::NotAdmitted(Status::Cancelled, error)));
        }
        let unsettled = self.liveness.claiming();
        let claim = self.ledger.claim(attempt, policy.lease);
        let opened = effect.opened.is_none().then(|| Entry::Opened(self.opened(task, claim.at)));
        let permit = match self.ledger.begin(effect, &claim, policy.lease, opened, beside).await {
            Ok(permit) => permit, // the claim is durable
            Err(LedgerError::Conflict) => {
                unsettled.settled();
                return Err(LedgerError::Conflict);
            }
            Err(LedgerError::Store(StoreError::Unavailable { message, written: Written::Perhaps })) => {
                task.unsure = Some(claim.clone());
                conclude::release(self.ledger.clone(), task.key, claim, unsettled, self.reports.begin());
                return Err(StoreError::Unavailable { message, written: Written::Perhaps }.into());
            }
            Err(error) => {
                unsettled.settled();
                return Err(error);
            }
        };
        pass.claimed();
        let held = Held { permit, pass, attempt, unsettled };
        self.attempt(task, effect.sent_key(), held).await.map(Ok)
    }

    /// Makes the attempt whose claim is durable.
    async fn attempt(&self, task: &mut Task, sent_key: EffectKey, held: Held) -> Result<Effect, LedgerError> {
        let Held { permit, pass, attempt, unsettled } = held;
        let policy = &task.tool.policy;
        task.series.attempts += 1;
        task.unrecorded = true;
        // Its claim is durable: it was.
        task.guessed = false;
        let alive = self.heartbeat.watch(&permit);
        let trace = task.trace.as_ref().map(|within| self.fresh.below(within));
        let span = trace::attempt_span(attempt.number, attempt.fence, task.trace.as_ref(), trace.as_ref());
        let invocation = Invocation { trace, ..invocation(&task.tool, &task.call, sent_key, attempt.number, permit.stop()) };
        let sent = self.clock.latest();
        let attempting = span.in_scope(|| execute::attempt(&permit, sent, &*task.tool.tool, invocation.clone()));
        let outcome = match span.is_disabled() {
            true => attempting.await,                                     // the world changes
            false => Box::pin(attempting).instrument(span.clone()).await, // the same, told of
        };
        trace::attempted(&span, &outcome);
        drop(span);
        self.meters.of(&task.tool.name).attempted(&outcome);
        let concluding = Concluding {
            tool: task.tool.clone(),
            invocation,
            series: task.series,
            sent: Some(sent),
            salt: self.salt.get().cloned(),
            jitter: if matches!(outcome, Outcome::Done(_)) { 0.0 } else { self.fresh.jitter() },
            outcome,
        };
        // The outcome and its receipt are durable, and with them what they mean for the run.
        let recorded = match &task.follow {
            None => conclude::finish(&self.ledger, &permit, &concluding).await,
            Some(follow) => Box::pin(follow.finish(&self.ledger, &permit, &concluding)).await,
        };
        drop(alive);
        match recorded {
            Ok(effect) => {
                unsettled.settled();
                task.unrecorded = false;
                if let Err(error) = self.gates.report(pass, policy, &concluding.outcome, concluding.invocation.stop.is_asked()).await {
                    // The outcome stands; the breaker will count the next one.
                    tracing::error!(tool = %task.tool.name, %error, "the breaker could not be written");
                }
                Ok(effect)
            }
            Err(error) => {
                // Not recorded, so not answered. The report is kept and brought in when the store is back.
                conclude::keep_trying(self.ledger.clone(), permit, concluding, unsettled, self.reports.begin());
                Err(error)
            }
        }
    }

    pub(crate) async fn probe(&self, task: &mut Task, effect: &Effect) -> Result<Effect, LedgerError> {
        task.series.probes += 1;
        let trace = task.trace.as_ref().map(|within| self.fresh.below(within));
        let span = trace::probe_span(task.trace.as_ref(), trace.as_ref());
        let invocation = Invocation { trace, ..invocation(&task.tool, &task.call, effect.sent_key(), effect.attempts, Stop::default()) };
        let asking = execute::probe(&*task.tool.tool, invocation.clone(), task.tool.policy.timeout);
        let answer = asking.instrument(span.clone()).await;
        trace::probed(&span, &answer);
        drop(span);
        let salt = if task.tool.policy.redact.is_empty() { None } else { Some(self.salt(&task.call.tenant).await?) };
        conclude::probed(&self.ledger, effect, &task.tool, &invocation, answer, salt.as_ref(), self.clock.now()).await
    }

    async fn ask_approval(&self, task: &Task, effect: &Effect) -> Result<Effect, LedgerError> {
        let now = self.clock.now();
        let opened = effect.opened.is_none().then(|| Entry::Opened(self.opened(task, now)));
        let asked = Entry::ApprovalAsked { at: now, expires: now + task.tool.policy.approval_expires };
        self.ledger.record(effect, opened.into_iter().chain([asked]).collect(), None).await
    }

    /// `None` when the time to wait is over and nothing changed.
    async fn wait(&self, task: &Task, effect: &Effect, until: Timestamp) -> Result<Option<Effect>, LedgerError> {
        let waiter = self.ledger.wakeups().register(counterfoil_core::StreamId::effect(&task.key));
        loop {
            let woken = waiter.notify.notified();
            let current = self.ledger.load(task.key).await?;
            let now = self.clock.now();
            if current.version != effect.version || until <= now {
                return Ok(Some(current));
            }
            // Its own retries wait for as long as the deadline allows, someone else's work for `wait_max`.
            let patience = if task.series.attempts > 0 { task.series.deadline } else { task.wait_until };
            if patience <= now {
                return Ok(None);
            }
            let foreign = matches!(&current.state, State::Running(claim) if claim.worker != *self.ledger.worker());
            if foreign && self.holder_gone(&current) {
                return Ok(Some(current));
            }
            let nap = until.min(patience).since(now);
            let nap = if foreign { nap.min(self.ledger.wakeups().look_every()) } else { nap };
            tracing::debug!(effect = %task.key, foreign, "waits");
            // Either end leads to another look.
            let told = tokio::time::timeout(nap, woken).await.is_ok();
            tracing::debug!(effect = %task.key, told, "looks again");
        }
    }

    pub(crate) fn decide(&self, task: &Task, effect: &Effect) -> Result<Decision, Ending> {
        let needs_approval = match &task.tool.approval {
            Some(rule) if !effect.approved => match rule(&task.call.args) {
                Ok(needed) => needed,
                Err(message) => return Err(Ending::NotAdmitted(Status::Error, AnswerError::new("approval_rule_failed", message))),
            },
            _ => false,
        };
        let conditions = Conditions {
            now: self.clock.now(),
            policy: &task.tool.policy,
            series: task.series,
            fingerprint: task.fingerprint,
            can_probe: task.tool.tool.can_probe(),
            needs_approval,
            holder_gone: self.holder_gone(effect),
            runnable: task.runnable,
            of_run: task.follow.is_some() || task.aside.is_some(),
        };
        self.silences.note(effect);
        let decision = decide(effect, &conditions);
        let left = match &decision {
            Decision::Record(Entry::Lost { .. }) if !conditions.holder_gone => self.listened_for(effect, &task.tool.policy),
            _ => Duration::ZERO,
        };
        Ok(match task.tool.policy.on_in_flight {
            _ if left.is_zero() => decision,
            OnInFlight::Wait => Decision::Wait { until: conditions.now + left },
            OnInFlight::Conflict => Decision::Refuse(Refusal::InFlight { retry_after: left }),
        })
    }

    /// How much longer the holder of a lease that ran out by the clock is listened for: it lives, and the clock may have been set.
    pub(crate) fn listened_for(&self, effect: &Effect, policy: &Policy) -> Duration {
        match &effect.state {
            State::Running(claim) if claim.lease_until <= self.clock.now() && self.liveness.lives(&claim.worker) => {
                self.silences.left(effect, policy.lease)
            }
            _ => Duration::ZERO,
        }
    }

    pub(crate) fn holder_gone(&self, effect: &Effect) -> bool {
        matches!(&effect.state, State::Running(claim) if self.liveness.gone(&claim.worker))
    }

    pub(crate) fn opened(&self, task: &Task, at: Timestamp) -> Opened {
        let policy = &task.tool.policy;
        let lent = task.tool.runs() == Runs::Elsewhere;
        Opened {
            at,
            tenant: task.call.tenant.clone(),
            caller: task.call.caller.clone(),
            tool: task.call.tool.clone(),
            args: task.stored.clone(),
            fingerprint: task.fingerprint,
            run: task.call.run.clone(),
            step: task.call.step.clone(),
            redacted: task.stored != task.call.args,
            settles: policy.repeatable() && !lent || task.tool.tool.can_probe(),
            lent,
            retain_ms: u64::try_from(policy.retain.as_millis()).unwrap_or(u64::MAX),
        }
    }

    pub(crate) fn dress(&self, task: &Task, driven: Result<(Effect, Ending), LedgerError>) -> Told {
        let answer = match driven {
            Ok((effect, ending)) => {
                let recorded = matches!(ending, Ending::Recorded);
                let replayed = recorded && task.series.attempts == 0 && task.series.probes == 0;
                // Whoever made attempts and is answered with a failure that may be tried again has run out of attempts or of time.
                let given_up =
                    recorded && task.series.attempts > 0 && matches!(&effect.state, State::Retrying(failed) if failed.receipt.is_none());
                let answer = Answer::from_ending(&effect, ending, self.clock.now());
                Answer { replayed, ..if given_up { answer.given_up() } else { answer } }
            }
            Err(error) => ledger_answer(&error, Some(task)),
        };
        let served = match answer.replayed {
            true => Served::FromLedger,
            false if task.series.attempts > 0 => Served::Ran { recorded: true },
            false => Served::Otherwise,
        };
        Told { answer, served }
    }
}

pub(crate) fn invocation(tool: &Registered, call: &Call, key: EffectKey, attempt: u32, stop: Stop) -> Invocation {
    Invocation {
        tool: call.tool.clone(),
        tenant: call.tenant.clone(),
        key,
        attempt,
        run: call.run.clone(),
        args: call.args.clone(),
        timeout: tool.policy.timeout,
        result_bytes_max: tool.policy.result_bytes_max,
        stop,
        trace: None,
    }
}

/// The answer when the ledger itself failed. Whether the world was touched depends on how far the call had come.
pub(crate) fn ledger_answer(error: &LedgerError, task: Option<&Task>) -> Answer {
    let code = error.code();
    match task {
        Some(task) if task.unrecorded || task.doubtful => {
            let why = match task.unrecorded {
                true => "The tool was called, and what it answered could not be recorded",
                false => "An attempt may have happened, and no more is known",
            };
            let message = format!("{error}. {why}: the effect {} is in doubt until the ledger is back", task.key);
            let answer = Answer::unrecorded(Status::InDoubt, AnswerError::new(code, message));
            Answer { effect: Some(task.key), attempt: task.series.attempts, outcome: WorldSemantics::InDoubt.word(), ..answer }
        }
        Some(task) if task.series.attempts > 0 => {
            let message = format!(
                "{error}. The last attempt certainly did not happen, and no further one was made here; whether another worker made one, only the ledger knows"
            );
            let error = AnswerError::new(code, message).retriable(Some(Duration::from_secs(1)));
            Answer { effect: Some(task.key), attempt: task.series.attempts, ..Answer::unrecorded(Status::Error, error) }
        }
        _ => {
            let refused = AnswerError::new(code, format!("{error}. Nothing was run: no ledger, no execution"));
            // A damaged ledger does not mend by waiting.
            let error = if code == "store_unavailable" { refused.retriable(Some(Duration::from_secs(1))) } else { refused };
            Answer { effect: task.map(|t| t.key), ..Answer::unrecorded(Status::Error, error) }
        }
    }
}
