//! Drives the runs of Rust functions: runs the function as far as it comes, lets go of it where it waits, undoes what it did when it fails.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::run::entry::{RunEnd, RunEntry};
use counterfoil_core::{Json, StepPath, Timestamp};
use serde_json::Value;
use tokio::sync::Notify;

use super::RunError;
use super::book::Book;
use super::confirm::Confirming;
use super::drivers::Rest;
use super::durable::{Failed, Function, Shared, Stopped};
use super::unwind::{THE_RUN, Unwound, left_alone, operator_of};
use crate::observe;
use crate::runtime::Runtime;

/// A wait that is shorter is waited out here; for a longer one the run is let go.
const NAP_MAX: Duration = Duration::from_secs(2);
/// How often is looked whether others wrote to the run.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How long until a run whose function does not fit it is looked at again.
const DIVERGED_LOOK: Duration = Duration::from_secs(60);

/// How far the function came.
enum Came {
    Ended(Result<Value, Failed>),
    Cancelled,
    /// It waits, at most until then.
    Waits(Option<Timestamp>),
    /// Someone else has the run.
    Away,
}

/// What became of undoing.
pub(super) enum Unwinding {
    Over,
    Held(Timestamp),
}

impl Runtime {
    pub(super) async fn drive_function(&self, book: Arc<Book>, stirred: Arc<Notify>) -> Result<Rest, RunError> {
        if book.lock().over() {
            return Ok(Rest::Ended);
        }
        let Some(function) = self.inner.functions.get(&book.workflow.name) else {
            // A worker that has it will find it due.
            tracing::warn!(run = %book.id, function = %book.workflow.name, "the function of this run is not registered here");
            return Ok(Rest::Elsewhere);
        };
        if !book.own(self).await? {
            return Ok(Rest::Elsewhere);
        }
        self.inner.salt(&book.tenant).await?;
        let _leaving = Leaving(book.clone());
        let shared = Shared::new(self.clone(), book.clone());
        loop {
            match self.confirm(&book).await? {
                Confirming::GoesOn => break,
                Confirming::Again => book.renew(self).await?,
                Confirming::Held { due } => return Ok(Rest::Parked { due }),
            }
            if !book.lock().owned() {
                return Ok(Rest::Elsewhere);
            }
        }
        let (ended, drifted) = {
            let pages = book.lock();
            (pages.run.end.is_some(), pages.run.drifted())
        };
        let how = if ended {
            // It is only to be undone.
            None
        } else if let Some(failure) = drifted {
            Some(RunEnd::Failed { failure })
        } else {
            let came = match self.run_function(&shared, &book, function, &stirred).await {
                Err(error @ RunError::FunctionDiverged { .. }) => {
                    // Let go of: a worker whose function fits may take it on.
                    self.park(&shared, Some(self.now() + DIVERGED_LOOK)).await?;
                    return Err(error);
                }
                came => came?,
            };
            match came {
                Came::Waits(due) => return self.park(&shared, due).await,
                Came::Away => return Ok(Rest::Elsewhere),
                Came::Cancelled => Some(RunEnd::Cancelled),
                Came::Ended(Ok(value)) => Some(RunEnd::Completed { output: Json::from_value(&value) }),
                Came::Ended(Err(Failed(failure))) => Some(RunEnd::Failed { failure }),
            }
        };
        if let Some(how) = &how {
            self.stop_all(&shared, &book).await?;
            self.trigger(&shared, how).await?;
        }
        match self.unwind_function(&shared).await? {
            Unwinding::Held(until) => return self.park(&shared, Some(until)).await,
            Unwinding::Over => {}
        }
        if let Some(how) = how {
            let entry = RunEntry::RunEnded { at: self.now(), how };
            shared.record(|run| run.note(&entry).map(|()| vec![entry.clone()])).await?;
        }
        observe::run_ended(book.lock().run.state().word());
        Ok(Rest::Ended)
    }

    async fn run_function(&self, shared: &Arc<Shared>, book: &Arc<Book>, function: Function, stirred: &Notify) -> Result<Came, RunError> {
        let input = book.lock().run.started.input.to_value();
        let mut running = function(shared.context(), input);
        loop {
            if book.lock().run.cancel.is_some() {
                return Ok(Came::Cancelled);
            }
            let idle = shared.idle();
            tokio::select! {
                biased;
                ended = &mut running => {
                    let left = book.lock().run.order.iter().find(|step| !shared.was_asked(step)).cloned();
                    return match left {
                        None => Ok(Came::Ended(ended)),
                        Some(step) => Err(self.diverged(book, format!("expected {step}, which is recorded, and the function ended without it"))),
                    };
                }
                () = shared.changed.notified() => {}
                () = stirred.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY), if idle.is_none() => {}
                () = std::future::ready(()), if idle.is_some_and(|until| far(until, self.now())) => {
                    return Ok(Came::Waits(idle.flatten()));
                }
                () = tokio::time::sleep(LOOK_EVERY / 5), if idle.is_some() => {}
            }
            match shared.stopped() {
                Some(Stopped::Diverged(message)) => return Err(self.diverged(book, message)),
                Some(Stopped::Broken(error)) => return Err(error),
                Some(Stopped::Away) => return Ok(Came::Away),
                None => {}
            }
            // Not waited for: the function, which is polled here, may have its turn.
            if let Ok(_turn) = book.turn.try_lock() {
                book.keep(self).await?;
            }
            if !book.lock().busy && (book.lock().stale || book.moved(self).await?) {
                book.renew(self).await?;
                if !book.lock().owned() {
                    return Ok(Came::Away);
                }
            }
        }
    }

    fn diverged(&self, book: &Book, message: String) -> RunError {
        RunError::FunctionDiverged { run: book.id.clone(), message }
    }

    pub(super) async fn park(&self, shared: &Shared, due: Option<Timestamp>) -> Result<Rest, RunError> {
        let entry = RunEntry::Parked { at: self.now(), due, unconfirmed: false };
        shared.record(|run| run.note(&entry).map(|()| vec![entry.clone()])).await?;
        Ok(Rest::Parked { due })
    }

    /// Stops what the function had begun and did not wait for.
    pub(super) async fn stop_all(&self, shared: &Shared, book: &Book) -> Result<(), RunError> {
        self.stop_inside(shared, book, None).await
    }

    /// The same for a part of it.
    pub(super) async fn stop_inside(&self, shared: &Shared, book: &Book, scope: Option<&StepPath>) -> Result<(), RunError> {
        let inside = |step: &&StepPath| {
            scope.is_none_or(|scope| step.as_str().strip_prefix(scope.as_str()).is_some_and(|rest| rest.starts_with('/')))
        };
        let running: Vec<StepPath> = book.lock().run.running.iter().filter(inside).cloned().collect();
        for step in running {
            let what = book.lock().run.step(&step).and_then(|known| known.what.clone());
            let Some(what) = what else { continue };
            let stopped = self.stop_step(book, &step, what).await?;
            shared.end(&step, stopped.how).await?;
        }
        Ok(())
    }

    /// What the run did is to be undone, if it failed or that was asked for.
    pub(super) async fn trigger(&self, shared: &Shared, how: &RunEnd) -> Result<(), RunError> {
        let at = self.now();
        shared
            .record(|run| {
                let (by, why) = match (how, &run.cancel) {
                    (RunEnd::Failed { failure }, _) => (THE_RUN.to_owned(), format!("it failed: {}", failure.message)),
                    (RunEnd::Cancelled, Some(cancel)) if cancel.undo => (cancel.by.clone(), cancel.why.clone()),
                    _ => return Ok(Vec::new()),
                };
                let of = run.to_undo(None);
                if of.is_empty() || run.sagas.iter().any(|saga| saga.scope.is_none()) {
                    return Ok(Vec::new());
                }
                let entry = RunEntry::CompensationTriggered { at, scope: None, by, why, of };
                run.note(&entry).map(|()| vec![entry])
            })
            .await
    }

    pub(super) async fn unwind_function(&self, shared: &Shared) -> Result<Unwinding, RunError> {
        loop {
            match shared.unwind_next().await? {
                None => return Ok(Unwinding::Over),
                Some(None) => {}
                Some(Some(until)) if far(Some(until), self.now()) => return Ok(Unwinding::Held(until)),
                Some(Some(until)) => tokio::time::sleep(until.since(self.now())).await,
            }
        }
    }
}

impl Shared {
    /// Undoes what is next to be undone. `None`: nothing is; `Some(Some(_))`: not yet, look again then.
    pub(super) async fn unwind_next(&self) -> Result<Option<Option<Timestamp>>, RunError> {
        let next = {
            let pages = self.book.lock();
            let step = pages.run.saga().and_then(|saga| saga.next()).cloned();
            let known = |step: StepPath| Some((step.clone(), pages.run.step(&step)?.what.clone()?, operator_of(&pages.run, &step)));
            step.and_then(known).map(|(step, what, operator)| (left_alone(&pages.run, &step), step, what, operator))
        };
        let Some((left_alone, step, what, operator)) = next else { return Ok(None) };
        let unwound = match left_alone {
            Some(failure) => Unwound::Dealt(Err(failure)),
            None => self.runtime.unwind(self.book.tenant.clone(), what, operator).await?,
        };
        let dealt = match unwound {
            Unwound::Held { until, why } => {
                tracing::info!(run = %self.book.id, %step, why, "the undo waits");
                return Ok(Some(Some(until)));
            }
            Unwound::Dealt(dealt) => dealt,
        };
        let at = self.runtime.now();
        let entry = match dealt {
            Ok(how) => RunEntry::CompensationCompleted { at, step: step.clone(), how },
            Err(failure) => RunEntry::CompensationFailed { at, step: step.clone(), failure },
        };
        self.record(|run| {
            let pending = run.saga().and_then(|saga| saga.next()) == Some(&step);
            if !pending { Ok(Vec::new()) } else { run.note(&entry).map(|()| vec![entry.clone()]) }
        })
        .await?;
        Ok(Some(None))
    }

    /// Undoes what a part of the run did, and waits for it.
    pub(super) async fn unwind_here(&self) -> Result<(), RunError> {
        while let Some(held) = self.unwind_next().await? {
            if let Some(until) = held {
                self.wait(Some(until)).await;
            }
        }
        Ok(())
    }
}

/// What a call that outlives its driver says is its effect's alone.
struct Leaving(Arc<Book>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.lock().fence = None;
    }
}

/// A wait that is not worth sitting out.
fn far(until: Option<Timestamp>, now: Timestamp) -> bool {
    until.is_none_or(|until| until.since(now) > NAP_MAX)
}
