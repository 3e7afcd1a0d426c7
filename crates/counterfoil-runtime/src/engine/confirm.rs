//! Confirmation replay: before a run goes on that was left in the middle, what it did is held against the world.
//!
//! What must stay true: nothing of the run begins before this is over, and no tool is called by it: verifiers are asked, recorded results are what steps see.
//! All are asked, also after the first that drifted. What could not be asked is asked again, and then the run waits; it never counts as verified. What was
//! found is an entry of the run, written in one record with what follows, so a crash in the middle repeats questions and nothing else. A run that is
//! never interrupted does not come here.

use std::time::Duration;

use counterfoil_core::effect::{Effect, State};
use counterfoil_core::run::confirm::{Check, Confirm, Confirmed, Finding, Judgement, Occasion, OnDrift};
use counterfoil_core::run::entry::{Began, RunEntry, StepEnd};
use counterfoil_core::run::{Owner, Run, StepState};
use counterfoil_core::{EffectKey, StepPath, Timestamp, ToolName};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::RunError;
use super::book::Book;
use super::step::spec_of;
use crate::observe;
use crate::runtime::Runtime;
use crate::workflow::Workflow;

/// Verifiers that are asked at once.
const AT_ONCE_MAX: usize = 8;
/// How long is waited before what could not be asked is asked again: right away, and when the run has been let go of.
const AGAIN_AT_ONCE: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(1)];
const AGAIN_FIRST: Duration = Duration::from_secs(5);
const AGAIN_MAX: Duration = Duration::from_secs(300);
/// How often is looked meanwhile whether others wrote to the run, or this process is about to end.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What came of it.
pub(super) enum Confirming {
    /// The run goes on; also where there was nothing to ask, or it goes to its end.
    GoesOn,
    /// It was let go of.
    Held { due: Option<Timestamp> },
    /// Somebody else wrote to the run: look at it again first.
    Again,
}

/// An effect that is to be held against the world.
struct Asked {
    step: StepPath,
    effect: EffectKey,
    tool: ToolName,
    mode: OnDrift,
}

impl Runtime {
    /// Holds a run against the world, if it must be before it goes on. The run is this worker's.
    pub(super) async fn confirm(&self, book: &Book) -> Result<Confirming, RunError> {
        let (occasion, asked, held) = {
            let pages = book.lock();
            let Some(occasion) = pages.run.unconfirmed.filter(|_| goes_on(&pages.run, self.now())) else { return Ok(Confirming::GoesOn) };
            let held = pages.run.held_up().is_some_and(|(_, judged)| judged == Judgement::NeedsPerson);
            (occasion, self.to_ask(&pages.run, &book.workflow, occasion), held)
        };
        if held {
            // A person's word is what it waits for.
            return self.let_go_held(book, Vec::new()).await;
        }
        if asked.is_empty() {
            return Ok(Confirming::GoesOn);
        }
        tracing::info!(run = %book.id, effects = asked.len(), "the run is held against the world before it goes on");
        let mut asking = std::pin::pin!(self.ask_all(asked));
        let checks = loop {
            tokio::select! {
                checks = &mut asking => break checks?,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            if self.inner.lives.resting() {
                // This process is about to end: whoever goes on with the run asks.
                return self.let_go_held(book, Vec::new()).await;
            }
            book.keep(self).await?;
            if book.lock().stale || book.moved(self).await? {
                return Ok(Confirming::Again);
            }
        };
        let confirmed = Confirmed::of(self.now(), occasion, checks);
        let judged = confirmed.judged();
        observe::confirmed(judged.word());
        for check in confirmed.drifted() {
            tracing::warn!(run = %book.id, step = %check.step, effect = %check.effect, finding = ?check.finding, "the world has drifted");
        }
        let entry = RunEntry::Confirmed(confirmed);
        if judged.holds_up() {
            return self.let_go_held(book, vec![entry]).await;
        }
        let recorded = book.record(self, |run| run.note(&entry).map(|()| vec![entry])).await?;
        Ok(if recorded { Confirming::GoesOn } else { Confirming::Again })
    }

    /// Whether a run must be held against the world before `effect`, which is a step's of it, is dispatched by somebody who does not drive the run: its
    /// worker may be lost, and nobody may have taken it over yet.
    pub(super) fn to_confirm_first(&self, run: &Run, workflow: &Workflow, effect: &Effect) -> bool {
        // A worker that left an effect in the middle may be lost, whatever its lease on the run still says.
        let silent = matches!(effect.state, State::Running(_) | State::InDoubt(_));
        let another = |owner: &Owner| silent && owner.worker != *self.inner.ledger.worker();
        let lost = |owner: &Owner| another(owner) || self.now() >= owner.until || self.inner.liveness.away(&owner.worker);
        let occasion = if run.owner.as_ref().is_some_and(lost) { Some(Occasion::TakenOver) } else { run.unconfirmed };
        goes_on(run, self.now()) && occasion.is_some_and(|occasion| !self.to_ask(run, workflow, occasion).is_empty())
    }

    /// Which effects are asked about, in the order of the run. None, where no tool of them has a verifier.
    fn to_ask(&self, run: &Run, workflow: &Workflow, occasion: Occasion) -> Vec<Asked> {
        let mut verifiable = false;
        let asked = run.order.iter().filter_map(|step| {
            let known = run.step(step)?;
            let Some(Began::Effect { tool, key, pure: false }) = &known.what else { return None };
            let open = matches!(&known.state, StepState::Running | StepState::Ended { how: StepEnd::Done { .. }, .. });
            let registered = self.inner.tools.get(&run.started.tenant, tool);
            let confirm =
                self.confirm_of(run, workflow, step).or(registered.as_ref().map_or_else(Confirm::default, |tool| tool.policy.confirm));
            if !open || !occasion.asks(confirm.when()) {
                return None;
            }
            // A tool that is not here may have one.
            verifiable |= registered.is_none_or(|tool| tool.tool.can_verify());
            Some(Asked { step: step.clone(), effect: *key, tool: tool.clone(), mode: confirm.on_drift() })
        });
        let asked: Vec<Asked> = asked.collect();
        if verifiable { asked } else { Vec::new() }
    }

    /// What the step or its workflow says.
    fn confirm_of(&self, run: &Run, workflow: &Workflow, step: &StepPath) -> Confirm {
        spec_of(run, workflow, step).map_or_else(Confirm::default, |spec| spec.confirm).or(workflow.confirm)
    }

    async fn ask_all(&self, asked: Vec<Asked>) -> Result<Vec<Check>, RunError> {
        let asking = stream::iter(asked).map(|asked| self.ask_patiently(asked)).buffered(AT_ONCE_MAX);
        Ok(asking.try_collect::<Vec<_>>().await?.into_iter().flatten().collect())
    }

    /// `None`: there is nothing to agree with; it was undone, or is still to be done.
    async fn ask_patiently(&self, asked: Asked) -> Result<Option<Check>, RunError> {
        let Asked { step, effect, tool, mode } = asked;
        let mut pauses = AGAIN_AT_ONCE.into_iter();
        loop {
            let known = self.inner.ledger.load(effect).await?;
            let Some(finding) = self.held_against_the_world(&known).await? else { return Ok(None) };
            match (&finding, pauses.next()) {
                (Finding::Unavailable { .. }, Some(pause)) => tokio::time::sleep(pause).await,
                _ => return Ok(Some(Check { step, effect, tool, mode, finding })),
            }
        }
    }

    /// Lets go of a run before it goes on, with what was found in the same record.
    async fn let_go_held(&self, book: &Book, mut entries: Vec<RunEntry>) -> Result<Confirming, RunError> {
        let now = self.now();
        let mut due = None;
        let recorded = book
            .record(self, |run| {
                entries.iter().try_for_each(|entry| run.note(entry))?;
                let again = run.held_up().is_some_and(|(_, judged)| judged == Judgement::AsksAgain);
                let again = again.then(|| now + AGAIN_FIRST.saturating_mul(1 << run.asked_again.saturating_sub(1).min(10)).min(AGAIN_MAX));
                // A deadline ends it also while it waits. One that was not held up goes on at once, elsewhere.
                due = if run.held_up().is_none() { Some(now) } else { [again, run.started.deadline].into_iter().flatten().min() };
                let parked = RunEntry::Parked { at: now, due, unconfirmed: true };
                run.note(&parked)?;
                entries.push(parked);
                Ok(entries)
            })
            .await?;
        Ok(if recorded { Confirming::Held { due } } else { Confirming::Again })
    }
}

/// Something of it may still begin.
fn goes_on(run: &Run, now: Timestamp) -> bool {
    let closing = run.flow().is_some_and(|flow| flow.is_closing());
    let late = run.started.deadline.is_some_and(|deadline| deadline <= now);
    let undone = run.sagas.iter().any(|saga| saga.scope.is_none());
    run.end.is_none() && run.cancel.is_none() && run.drifted().is_none() && !undone && !closing && !late
}
