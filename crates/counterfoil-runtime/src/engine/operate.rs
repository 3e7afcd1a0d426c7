//! What people and other programs may do to a run: cancel, signal, approve, undo, fork; and which workflows there are.
//!
//! Each is one compare-and-append that says who and why, repeated while others are faster and the run still allows it; asked for twice, it is done once.
//! Whoever drives the run then acts on it. Each has a form with writes `beside` it, which hold or fall with it: `BesideTaken` says that those lost
//! their race, and that nothing was changed.

use std::sync::Arc;

use counterfoil_core::effect::State;
use counterfoil_core::ids::WorkflowName;
use counterfoil_core::run::entry::{Awaited, Began, Forked, RunEntry, Signalled, Started, StepEnd, Undone};
use counterfoil_core::run::flow::Progress;
use counterfoil_core::run::{APPROVAL, Run, RunState};
use counterfoil_core::summary::StreamKind;
use counterfoil_core::{Effect, Json, RunId, StepPath, StreamId, Summary, Tenant, codec};
use counterfoil_store::{Page, Query, Version, Write};

use super::beside::{After, RunBeside};
use super::definitions::Named;
use super::view::RunView;
use super::{RunError, book};
use crate::ledger::{LedgerError, body, plain_summary};
use crate::observe;
use crate::operate::Operator;
use crate::runtime::Runtime;
use crate::workflow::{StepSpec, WaitFor, Workflow};

/// What is to be cancelled, and by whom.
#[derive(Debug, Clone)]
pub struct Cancelling {
    /// One step with all that is inside; `None`: the whole run.
    pub step: Option<StepPath>,
    /// What was done is to be undone.
    pub undo: bool,
    pub by: String,
    pub why: String,
}

/// A signal as it is sent.
#[derive(Debug, Clone)]
pub struct Signal {
    /// The sender's: the same signal sent twice is one.
    pub id: String,
    pub name: String,
    pub correlation: Option<String>,
    pub payload: Json,
    pub by: String,
}

/// A person's answer to a step that waits for approval.
#[derive(Debug, Clone)]
pub struct StepAnswer {
    pub step: StepPath,
    pub approved: bool,
    pub by: String,
    pub why: String,
}

/// What a run did is to be undone.
#[derive(Debug, Clone)]
pub struct Undoing {
    /// This step and what was done after it; `None`: everything.
    pub from: Option<StepPath>,
    pub by: String,
    pub why: String,
}

/// A new run that begins where another stood.
#[derive(Debug, Clone)]
pub struct Fork {
    /// What was done before this step is taken over; it and what follows is done anew.
    pub at: StepPath,
    pub new: RunId,
    pub by: String,
    pub why: String,
}

/// A step that could not be undone is dealt with otherwise.
#[derive(Debug, Clone)]
pub struct Skipping {
    pub step: StepPath,
    pub by: String,
    pub why: String,
}

/// A person's word on a run that is held up since the world no longer agrees with it.
#[derive(Debug, Clone)]
pub struct Deciding {
    /// It goes on as recorded; if not, it fails.
    pub accepted: bool,
    pub by: String,
    pub why: String,
}

/// Whether something was new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    Now,
    /// It had been said before: nothing changed.
    Before,
}

/// Running steps whose effects are looked at for one view.
const EXPLAINED_MAX: usize = 100;

/// Longest id, name and correlation of a signal.
const SIGNAL_BYTES_MAX: usize = 255;

impl Runtime {
    pub async fn run(&self, tenant: &Tenant, run: &RunId) -> Result<RunView, RunError> {
        let (run, workflow) = book::read(&self.inner, tenant, run).await?;
        let mut view = RunView::of(&run, &workflow);
        self.explain(&run, &mut view).await?;
        Ok(view)
    }

    /// What steps and undos wait for that only their effects know: a person's word, mostly.
    async fn explain(&self, run: &Run, view: &mut RunView) -> Result<(), RunError> {
        let effects = run.running.iter().filter_map(|step| Some((step, run.effect(step)?)));
        for (step, key) in effects.take(EXPLAINED_MAX) {
            let effect = self.inner.ledger.load(key).await?;
            if let (Some(why), Some(shown)) = (needs_a_person(&effect), view.step_mut(step.as_str())) {
                shown.waits_for = Some(why);
            }
        }
        let undoing = run.saga().and_then(|saga| saga.next());
        if let Some((step, key)) = undoing.and_then(|step| Some((step, run.effect(step)?))) {
            let mut effect = self.inner.ledger.load(key).await?;
            if let State::Undoing { undo, .. } = &effect.state {
                effect = self.inner.ledger.load(*undo).await?;
            }
            if let Some(shown) = view.compensations.iter_mut().rev().find(|shown| shown.step == step.as_str()) {
                shown.waits_for = needs_a_person(&effect);
            }
        }
        Ok(())
    }

    /// A run as its entries tell of it.
    pub async fn run_facts(&self, tenant: &Tenant, run: &RunId) -> Result<(Run, Arc<Workflow>), RunError> {
        book::read(&self.inner, tenant, run).await
    }

    /// Every entry of a run, oldest first, as it is stored; or all of one name.
    pub async fn run_entries(&self, tenant: &Tenant, run: &RunId, only: Option<&str>) -> Result<Vec<serde_json::Value>, RunError> {
        let history = self.inner.ledger.records(StreamId::run(tenant, run), counterfoil_store::Reach::Whole).await?;
        if history.records.is_empty() {
            return Err(RunError::NotFound(run.clone()));
        }
        let mut entries = Vec::new();
        for record in &history.records {
            let version = record.version.0;
            let source =
                |source| LedgerError::Run { run: run.to_string(), source: counterfoil_core::run::RunFoldError::Codec { version, source } };
            let decoded: Vec<serde_json::Value> = codec::decode(&record.body).map_err(source)?;
            let wanted = decoded.into_iter().filter(|entry| only.is_none_or(|word| entry.get(word).is_some()));
            entries.extend(wanted.map(|entry| serde_json::json!({ "version": version, "at": record.at, "entry": entry })));
        }
        Ok(entries)
    }

    /// Newest first.
    pub async fn runs(&self, query: Query) -> Result<Page, RunError> {
        Ok(self.inner.ledger.search(Query { kind: StreamKind::Run, ..query }).await?)
    }

    /// Keeps a workflow under its name: the next run that is started by that name has it.
    pub async fn put_workflow(&self, tenant: &Tenant, workflow: &Arc<Workflow>, by: &str) -> Result<Heard, RunError> {
        Ok(self.put_workflow_beside(tenant, workflow, by, |_| Vec::new()).await?.0)
    }

    /// `beside` is told how often it was put, this time included.
    pub async fn put_workflow_beside(
        &self,
        tenant: &Tenant,
        workflow: &Arc<Workflow>,
        by: &str,
        beside: impl Fn(Version) -> Vec<Write>,
    ) -> Result<(Heard, Version), RunError> {
        let inner = &self.inner;
        let (stream, definition) = (StreamId::workflow(tenant, &workflow.name), StreamId::definition(tenant, &workflow.digest));
        loop {
            let (version, named) = inner.ledger.newest::<Named>(stream).await?;
            if named.is_some_and(|named| named.definition == workflow.digest) {
                return Ok((Heard::Before, version));
            }
            let named = Named { at: inner.clock.now(), by: by.into(), definition: workflow.digest };
            // `tool` is the column that names are listed by.
            let tool = counterfoil_core::ToolName::new(workflow.name.as_str()).ok();
            // Open, so that it is always read as it is now: of a stream at rest, what another process wrote may be missed for a moment.
            let summary = Summary { tool, state: "registered", open: true, ..plain_summary(StreamKind::Workflow, tenant.clone()) };
            let write = inner.ledger.replacing(stream, version, &named, summary);
            let mut writes: Vec<Write> = inner.definitions.kept(&inner.ledger, tenant, workflow).await?.into_iter().collect();
            writes.extend(beside(version.next()));
            match inner.ledger.append_beside(write, writes).await {
                Ok(()) => return Ok((Heard::Now, version.next())),
                Err(LedgerError::Conflict) => continue,
                Err(LedgerError::BesideTaken { streams }) if streams.contains(&definition) => continue,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The workflow of this name, as it is now.
    pub async fn workflow(&self, tenant: &Tenant, name: &WorkflowName) -> Result<Option<Arc<Workflow>>, RunError> {
        let (_, named) = self.inner.ledger.newest::<Named>(StreamId::workflow(tenant, name)).await?;
        match named {
            Some(named) => self.inner.definitions.get(&self.inner.ledger, tenant, named.definition).await,
            None => Ok(None),
        }
    }

    /// Stops a run, or one step of it. Asked for twice it is the same; what has ended stays as it is.
    pub async fn cancel_run(&self, tenant: &Tenant, run: &RunId, cancel: Cancelling) -> Result<Heard, RunError> {
        Ok(self.cancel_run_beside(tenant, run, cancel, &RunBeside::default()).await?.heard)
    }

    pub async fn cancel_run_beside(&self, tenant: &Tenant, run: &RunId, cancel: Cancelling, beside: &RunBeside) -> Result<After, RunError> {
        self.tell_run(tenant, run, beside, |facts, _| {
            let now = self.now();
            let state = facts.state();
            match &cancel.step {
                None if facts.cancel.is_some() => return Ok(None),
                None if facts.fate().is_some() && facts.end.is_none() => {
                    return Err(RunError::WrongState {
                        run: run.clone(),
                        state: state.word(),
                        hint: "it is at its end already, and being undone",
                    });
                }
                None if facts.end.is_some() => {
                    return Err(RunError::WrongState {
                        run: run.clone(),
                        state: state.word(),
                        hint: "it has ended already: undo it instead",
                    });
                }
                None => {}
                Some(step) => match facts.flow().and_then(|flow| flow.progress(step)) {
                    Some(Progress::Ended(_) | Progress::Stopping | Progress::Undoing) => return Ok(None),
                    Some(_) if facts.end.is_none() => {}
                    Some(_) => return Ok(None),
                    None => return Err(no_step(facts, run, step)),
                },
            }
            let Cancelling { step, undo, by, why } = cancel.clone();
            Ok(Some(RunEntry::CancelAsked { at: now, by, why, step, undo }))
        })
        .await
    }

    /// Gives a run what a step of it waits for, or will.
    pub async fn signal_run(&self, tenant: &Tenant, run: &RunId, signal: Signal) -> Result<Heard, RunError> {
        Ok(self.signal_run_beside(tenant, run, signal, &RunBeside::default()).await?.heard)
    }

    pub async fn signal_run_beside(&self, tenant: &Tenant, run: &RunId, signal: Signal, beside: &RunBeside) -> Result<After, RunError> {
        let bad =
            |what: &str, text: &str| text.is_empty() || text.len() > SIGNAL_BYTES_MAX || text.starts_with("counterfoil.") && what == "name";
        for (what, text) in [("id", Some(&signal.id)), ("name", Some(&signal.name)), ("correlation", signal.correlation.as_ref())] {
            if text.is_some_and(|text| bad(what, text)) {
                let message = format!(
                    "the {what} of a signal is 1 to {SIGNAL_BYTES_MAX} bytes long, and a name does not begin with \"counterfoil.\""
                );
                return Err(RunError::Signal(message));
            }
        }
        self.tell_run(tenant, run, beside, |facts, workflow| {
            if let Some(known) = facts.received(&signal.id) {
                let same = known.name == signal.name && known.correlation == signal.correlation && known.payload == signal.payload;
                let message =
                    format!("a signal with the id {:?} was received before, and it was another one: choose another id", signal.id);
                return if same { Ok(None) } else { Err(RunError::Signal(message)) };
            }
            if facts.end.is_some() {
                return Err(RunError::WrongState {
                    run: run.clone(),
                    state: facts.state().word(),
                    hint: "nothing waits for a signal any more",
                });
            }
            expected(facts, workflow, &signal)?;
            let Signal { id, name, correlation, payload, by } = signal.clone();
            Ok(Some(RunEntry::Signalled(Signalled { at: self.now(), id, name, correlation, payload, by })))
        })
        .await
    }

    /// A person's answer to a step that waits for approval. The first one counts.
    pub async fn answer_step(
        &self,
        tenant: &Tenant,
        run: &RunId,
        step: &StepPath,
        approved: bool,
        operator: &Operator,
    ) -> Result<Heard, RunError> {
        let answer = StepAnswer { step: step.clone(), approved, by: operator.by.clone(), why: operator.why.clone() };
        Ok(self.answer_step_beside(tenant, run, &answer, &RunBeside::default()).await?.heard)
    }

    pub async fn answer_step_beside(
        &self,
        tenant: &Tenant,
        run: &RunId,
        answer: &StepAnswer,
        beside: &RunBeside,
    ) -> Result<After, RunError> {
        let StepAnswer { step, approved, by, why } = answer;
        self.tell_run(tenant, run, beside, |facts, _| {
            let waits = matches!(facts.step(step).map(|s| &s.what), Some(Some(Began::Wait { on: Awaited::Approval { .. }, .. })));
            let id = format!("{APPROVAL}/{step}");
            match facts.received(&id) {
                Some(known) if known.payload.to_value()["approved"] == *approved => return Ok(None),
                Some(_) => {
                    let hint = "the step was answered before, and otherwise";
                    return Err(RunError::WrongState { run: run.clone(), state: facts.state().word(), hint });
                }
                None if facts.flow().is_some_and(|flow| flow.node(step).is_none()) => return Err(no_step(facts, run, step)),
                None if !waits || !facts.running.contains(step) => {
                    let hint = "the step does not wait for approval now";
                    return Err(RunError::WrongState { run: run.clone(), state: facts.state().word(), hint });
                }
                None => {}
            }
            let payload = serde_json::json!({ "approved": approved, "by": by, "why": why });
            Ok(Some(RunEntry::Signalled(Signalled {
                at: self.now(),
                id,
                name: APPROVAL.into(),
                correlation: Some(step.to_string()),
                payload: Json::from_value(&payload),
                by: by.clone(),
            })))
        })
        .await
    }

    /// Undoes what a run did that is over: all of it, or what was done from a step on. What could not be undone before is tried again.
    pub async fn undo_run(&self, tenant: &Tenant, run: &RunId, from: Option<&StepPath>, operator: &Operator) -> Result<Heard, RunError> {
        let undoing = Undoing { from: from.cloned(), by: operator.by.clone(), why: operator.why.clone() };
        Ok(self.undo_run_beside(tenant, run, &undoing, &RunBeside::default()).await?.heard)
    }

    pub async fn undo_run_beside(&self, tenant: &Tenant, run: &RunId, undoing: &Undoing, beside: &RunBeside) -> Result<After, RunError> {
        let Undoing { from, by, why } = undoing;
        self.tell_run(tenant, run, beside, |facts, _| {
            let wrong = |hint| RunError::WrongState { run: run.clone(), state: facts.state().word(), hint };
            if facts.end.is_none() {
                return Err(wrong("only a run that has ended can be undone: cancel it with --undo"));
            }
            if facts.state() == RunState::Compensating {
                return Ok(None);
            }
            let mut of = facts.to_undo(None);
            if let Some(from) = from {
                let Some(last) = of.iter().position(|step| step == from) else { return Err(no_step(facts, run, from)) };
                of.truncate(last + 1);
            }
            if of.is_empty() {
                return if facts.sagas.is_empty() { Err(wrong("nothing that it did can be undone")) } else { Ok(None) };
            }
            let (by, why) = (by.clone(), why.clone());
            Ok(Some(RunEntry::CompensationTriggered { at: self.now(), scope: None, by, why, of }))
        })
        .await
    }

    /// A person says that a step which could not be undone is dealt with.
    pub async fn skip_undo(&self, tenant: &Tenant, run: &RunId, step: &StepPath, operator: &Operator) -> Result<Heard, RunError> {
        let skip = Skipping { step: step.clone(), by: operator.by.clone(), why: operator.why.clone() };
        Ok(self.skip_undo_beside(tenant, run, &skip, &RunBeside::default()).await?.heard)
    }

    pub async fn skip_undo_beside(&self, tenant: &Tenant, run: &RunId, skip: &Skipping, beside: &RunBeside) -> Result<After, RunError> {
        let Skipping { step, by, why } = skip;
        self.tell_run(tenant, run, beside, |facts, _| {
            let dealt = facts.sagas.iter().rev().find_map(|saga| saga.dealt.get(step));
            match dealt {
                Some(Ok(_)) => Ok(None),
                Some(Err(_)) => {
                    let how = Undone::Skipped { by: by.clone(), why: why.clone() };
                    Ok(Some(RunEntry::CompensationCompleted { at: self.now(), step: step.clone(), how }))
                }
                None => {
                    let hint = "no undo of this step has failed";
                    Err(RunError::WrongState { run: run.clone(), state: facts.state().word(), hint })
                }
            }
        })
        .await
    }

    /// A person's word on a run that the world no longer agrees with, or that could not be asked about: it goes on as recorded, or fails.
    pub async fn decide_confirm(&self, tenant: &Tenant, run: &RunId, accepted: bool, operator: &Operator) -> Result<Heard, RunError> {
        let decision = Deciding { accepted, by: operator.by.clone(), why: operator.why.clone() };
        Ok(self.decide_confirm_beside(tenant, run, &decision, &RunBeside::default()).await?.heard)
    }

    pub async fn decide_confirm_beside(
        &self,
        tenant: &Tenant,
        run: &RunId,
        decision: &Deciding,
        beside: &RunBeside,
    ) -> Result<After, RunError> {
        let Deciding { accepted, by, why } = decision;
        self.tell_run(tenant, run, beside, |facts, _| match facts.held_up() {
            Some(_) if facts.end.is_none() => {
                Ok(Some(RunEntry::ConfirmDecided { at: self.now(), by: by.clone(), why: why.clone(), accepted: *accepted }))
            }
            _ if facts.decided == Some(*accepted) => Ok(None),
            _ => {
                let hint = "nothing about it waits for such a decision";
                Err(RunError::WrongState { run: run.clone(), state: facts.state().word(), hint })
            }
        })
        .await
    }

    /// A person wants it to go on now: what it did is held against the world, and it goes on.
    pub async fn resume_run(&self, tenant: &Tenant, run: &RunId) -> Result<(), RunError> {
        self.resume_run_beside(tenant, run, &RunBeside::default()).await.map(drop)
    }

    /// A person wants it to go on now, without waiting for what it was to be looked at again for.
    pub async fn resume_run_beside(&self, tenant: &Tenant, run: &RunId, beside: &RunBeside) -> Result<After, RunError> {
        self.tell_run(tenant, run, beside, |facts, _| {
            if facts.state().is_end() {
                let hint = "it has ended: nothing is left to go on with";
                return Err(RunError::WrongState { run: run.clone(), state: facts.state().word(), hint });
            }
            Ok(Some(RunEntry::Stirred { at: self.now(), resumed: true }))
        })
        .await
    }

    /// Something that a run may wait for has changed: whoever is at it looks again.
    pub(crate) async fn stir_run(&self, tenant: &Tenant, run: &RunId) -> Result<(), RunError> {
        let told = self
            .tell_run(tenant, run, &RunBeside::default(), |facts, _| {
                let idle = facts.owner.is_none() && !facts.state().is_end();
                Ok(idle.then(|| RunEntry::Stirred { at: self.now(), resumed: false }))
            })
            .await;
        self.inner.lives.stir(&StreamId::run(tenant, run));
        match told {
            Ok(_) | Err(RunError::NotFound(_) | RunError::Archived { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// A new run with what another did before a step; it goes on from there by itself. What the other did stays the other's to undo.
    pub async fn fork_run(&self, tenant: &Tenant, run: &RunId, at: &StepPath, new: RunId, operator: &Operator) -> Result<RunId, RunError> {
        let fork = Fork { at: at.clone(), new, by: operator.by.clone(), why: operator.why.clone() };
        Ok(self.fork_run_beside(tenant, run, fork, &RunBeside::default()).await?.run.started.run.clone())
    }

    pub async fn fork_run_beside(&self, tenant: &Tenant, run: &RunId, fork: Fork, beside: &RunBeside) -> Result<After, RunError> {
        let Fork { at, new, by, why } = fork;
        let (facts, workflow) = book::read(&self.inner, tenant, run).await?;
        if facts.flow().is_none() {
            let why = "it goes by no plan: its function or its client says what is next".into();
            return Err(RunError::CannotFork { run: run.clone(), at, why });
        }
        let node = facts.flow().and_then(|flow| flow.node(&at)).ok_or_else(|| no_step(&facts, run, &at))?;
        let before = workflow.plan.before(node);
        let now = self.now();
        let origin = Forked { run: run.clone(), at: at.clone(), by, why };
        let started = Arc::new(Started {
            at: now,
            run: new.clone(),
            parent: None,
            forked: Some(origin),
            deadline: workflow.timeout.map(|t| now + t),
            ..(*facts.started).clone()
        });
        let mut forked = Run::new(started.clone(), Some(book::flow_of(&workflow, &started)));
        let mut entries = vec![RunEntry::RunStarted(Box::new((*started).clone()))];
        for step in &facts.order {
            let known = facts.step(step).expect("it is in the order");
            let prefix = facts
                .flow()
                .and_then(|flow| flow.node(step))
                .is_some_and(|node| before.contains(&node) || workflow.plan.around(node).any(|around| before.contains(&around)));
            if !prefix {
                continue;
            }
            let mut noted = |entry| {
                note(&mut forked, &mut entries, entry).map_err(|why| RunError::CannotFork { run: run.clone(), at: at.clone(), why })
            };
            if let Some(what) = &known.what {
                noted(RunEntry::StepBegan { at: now, step: step.clone(), what: what.clone() })?;
            }
            // A map has no end of its own. What the other did is the other's to undo, and to doubt.
            let counterfoil_core::run::StepState::Ended { how, .. } = &known.state else { continue };
            let how = match how.clone() {
                StepEnd::Done { result, way, .. } => StepEnd::Done { result, way, undo: false },
                StepEnd::Failed { failure, .. } => StepEnd::Failed { failure, doubt: false },
                StepEnd::Cancelled { .. } => StepEnd::Cancelled { doubt: false },
            };
            noted(RunEntry::StepEnded { at: now, step: step.clone(), how })?;
        }
        let stream = StreamId::run(tenant, &new);
        forked.veil = facts.veil.clone();
        let body = body(forked.veil.as_ref(), &stream, Version::NONE, &entries);
        let write = Write { stream, expected: Version::NONE, at: now, body, summary: forked.summary() };
        match self.inner.ledger.append_beside(write, beside.writes(&forked, &workflow)).await {
            Ok(()) => {
                observe::run_started();
                forked.recorded();
                Ok(After { heard: Heard::Now, run: forked, workflow })
            }
            Err(LedgerError::Conflict) => Err(RunError::Exists { run: new, what: "that id" }),
            Err(error) => Err(error.into()),
        }
    }

    /// Appends one entry to a run, if there is one to append.
    pub(super) async fn tell_run(
        &self,
        tenant: &Tenant,
        run: &RunId,
        beside: &RunBeside,
        entry: impl Fn(&Run, &Workflow) -> Result<Option<RunEntry>, RunError>,
    ) -> Result<After, RunError> {
        let stream = StreamId::run(tenant, run);
        loop {
            let (mut facts, workflow) = book::read(&self.inner, tenant, run).await?;
            let Some(entry) = entry(&facts, &workflow)? else { return Ok(After { heard: Heard::Before, run: facts, workflow }) };
            let expected = Version(facts.version);
            let source = |source| LedgerError::Run { run: run.to_string(), source };
            let entries = [entry];
            facts.apply(&entries).map_err(source)?;
            let body = body(facts.veil.as_ref(), &stream, expected, &entries);
            let write = Write { stream, expected, at: self.now(), body, summary: facts.summary() };
            match self.inner.ledger.append_beside(write, beside.writes(&facts, &workflow)).await {
                Ok(()) => {
                    self.inner.lives.stir(&stream);
                    return Ok(After { heard: Heard::Now, run: facts, workflow });
                }
                Err(LedgerError::Conflict) => continue,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// What a person would have to do for an effect to go on.
fn needs_a_person(effect: &Effect) -> Option<String> {
    let key = effect.key;
    match &effect.state {
        State::WaitingApproval { .. } => Some(format!("approval: counterfoil effects approve {key}")),
        State::InDoubt(_) => Some(format!("it is not known whether it happened: counterfoil effects resolve {key}")),
        State::Cancelled { late: None, .. } if effect.doubtful() => {
            Some(format!("it was stopped while it ran, and it is not known whether it happened: counterfoil effects resolve {key}"))
        }
        State::Retrying(failed) => Some(format!("the next attempt: {}", failed.failure.message)),
        _ => None,
    }
}

fn note(run: &mut Run, entries: &mut Vec<RunEntry>, entry: RunEntry) -> Result<(), String> {
    run.note(&entry).map_err(|error| error.to_string())?;
    entries.push(entry);
    Ok(())
}

/// A signal that no step waits for, or ever will, is a mistake of its sender.
fn expected(facts: &Run, workflow: &Workflow, signal: &Signal) -> Result<(), RunError> {
    let names: Vec<&str> = workflow
        .steps
        .iter()
        .filter_map(|step| match step {
            StepSpec::Wait(wait) => match &wait.on {
                WaitFor::Signal { name, .. } => Some(name.as_str()),
                WaitFor::Approval { .. } => None,
            },
            _ => None,
        })
        .collect();
    // What a function will ask for, it alone knows.
    if facts.flow().is_some() && !names.contains(&signal.name.as_str()) {
        let known = if names.is_empty() { "it waits for none".to_owned() } else { format!("it waits for {}", names.join(", ")) };
        return Err(RunError::Signal(format!("no step of the workflow waits for a signal {:?}; {known}", signal.name)));
    }
    let awaited: Vec<&Option<String>> = facts
        .running
        .iter()
        .filter_map(|step| match &facts.step(step)?.what {
            Some(Began::Wait { on: Awaited::Signal { name, correlation }, .. }) if *name == signal.name => Some(correlation),
            _ => None,
        })
        .collect();
    let fits = awaited.iter().any(|correlation| correlation.is_none() || **correlation == signal.correlation);
    if !awaited.is_empty() && !fits {
        let given = signal.correlation.as_deref().map_or("none".to_owned(), |given| format!("{given:?}"));
        return Err(RunError::Signal(format!("no step waits for the signal {:?} with the correlation {given}", signal.name)));
    }
    Ok(())
}

fn no_step(facts: &Run, run: &RunId, step: &StepPath) -> RunError {
    let known: Vec<&str> = facts.order.iter().map(|step| step.as_str()).collect();
    let near = known.iter().min_by_key(|known| crate::registry::distance(known, step.as_str()));
    let hint = match near {
        Some(near) => format!("did you mean {near}?"),
        None => "none has begun yet".into(),
    };
    RunError::NoStep { run: run.clone(), step: step.clone(), hint }
}
