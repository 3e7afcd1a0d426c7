//! What a worker does about a schedule that is due: one append holds the run of the tick and the schedule as it goes on.
//!
//! What must stay true: at most one run per tick, whoever looks and however often: the run's id is the tick's, and the schedule moves on in the same
//! append. A worker that lacks a tool of the workflow leaves the tick to one that has it.

use counterfoil_core::run::schedule::{Became, Overlap, Schedule, Ticked, Turn};
use counterfoil_core::{Caller, StreamId};
use counterfoil_store::Version;

use super::beside::{After, RunBeside};
use super::cron::Cron;
use super::operate::Heard;
use super::schedules::{input_of, run_of};
use super::start::NewRun;
use super::{RunError, book};
use crate::ledger::LedgerError;
use crate::observe;
use crate::runtime::Runtime;

/// Ticks of one schedule that one look deals with. Those that are left are due still.
const TICKS_MAX: usize = 100;

/// What a worker found of a schedule, and what became of its ticks.
#[derive(Debug)]
pub struct Dealt {
    pub schedule: Schedule,
    pub ticked: Ticked,
}

/// What one tick needs.
struct Due {
    schedule: Schedule,
    version: Version,
    cron: Cron,
}

impl Runtime {
    /// Deals with the ticks of a schedule that are due. The runs that it starts are anyone's to drive.
    pub(crate) async fn tick_if_due(&self, stream: StreamId) -> Result<Vec<Dealt>, RunError> {
        let mut dealt = Vec::new();
        while dealt.len() < TICKS_MAX {
            let (version, known) = self.schedule_record(stream).await?;
            let Some(schedule) = known else { break };
            let cron = Cron::parse(&schedule.terms.cron, &schedule.terms.zone).map_err(RunError::Schedule)?;
            let due = Due { schedule, version, cron };
            let at = self.now();
            let (tick, what, missed_from) = match due.schedule.turn(at, &due.cron) {
                Turn::NotDue => break,
                Turn::TooLate { tick } => {
                    let missed_from = due.schedule.next.filter(|next| *next < tick);
                    (tick, Became::Skipped { why: "nobody was there in time".into() }, missed_from)
                }
                Turn::Start { tick, missed_from } => {
                    let run = run_of(&due.schedule.schedule, tick)?;
                    match self.unended(&due.schedule).await? {
                        Some(_) if due.schedule.terms.overlap == Overlap::Wait => break,
                        Some(last) => (tick, Became::Skipped { why: format!("the run {last} has not ended") }, missed_from),
                        None => (tick, Became::Started { run }, missed_from),
                    }
                }
            };
            match self.deal(due, Ticked { tick, at, what, missed_from }).await? {
                Outcome::Dealt(one) => dealt.push(*one),
                Outcome::Faster => {}
                Outcome::Left => break,
            }
        }
        Ok(dealt)
    }

    /// The run of an earlier tick, where that stands in the way of the next.
    async fn unended(&self, schedule: &Schedule) -> Result<Option<counterfoil_core::RunId>, RunError> {
        let Some(last) = schedule.last_run.as_ref().filter(|_| schedule.terms.overlap != Overlap::Allow) else { return Ok(None) };
        match book::read(&self.inner, &schedule.tenant, last).await {
            Ok((facts, _)) => Ok((!facts.state().is_end()).then(|| last.clone())),
            // It ended so long ago that it is pruned, or archived.
            Err(RunError::NotFound(_) | RunError::Archived { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn deal(&self, due: Due, ticked: Ticked) -> Result<Outcome, RunError> {
        let Became::Started { run } = &ticked.what else { return self.move_on(due, ticked).await };
        let Due { schedule, version, cron } = &due;
        let started = async {
            let workflow = self.workflow(&schedule.tenant, &schedule.terms.workflow).await?;
            let workflow = workflow.ok_or_else(|| RunError::UnknownWorkflow(schedule.terms.workflow.to_string()))?;
            let new = NewRun {
                tenant: schedule.tenant.clone(),
                caller: Caller::new(&format!("schedule {}", schedule.schedule))?,
                run: Some(run.clone()),
                workflow,
                input: input_of(&schedule.schedule, &schedule.terms, ticked.tick)?,
                parent: None,
                tools: None,
                driven: false,
            };
            let write = self.schedule_write(&schedule.after(ticked.clone(), cron), *version);
            self.start_run_beside(new, &RunBeside::new(move |_, _| vec![write.clone()])).await
        };
        match started.await {
            Ok(After { heard: Heard::Now, .. }) => {
                observe::ticked("started");
                Ok(Outcome::Dealt(Box::new(Dealt { schedule: schedule.after(ticked.clone(), cron), ticked })))
            }
            // The tick has its run: someone is about to say so, or the schedule was made anew since.
            Ok(After { heard: Heard::Before, .. }) => self.move_on(due, ticked).await,
            Err(RunError::Ledger(LedgerError::BesideTaken { .. })) => Ok(Outcome::Faster),
            Err(RunError::Ledger(error)) => Err(error.into()),
            Err(RunError::UnknownTool { tool, .. }) => {
                if self.inner.lives.leave_tick(schedule.stream(), ticked.tick) {
                    tracing::warn!(schedule = %schedule.schedule, %tool, "this worker has no such tool: it leaves the tick to others");
                }
                Ok(Outcome::Left)
            }
            Err(error) => {
                let what = Became::Refused { code: error.code().into(), message: error.to_string() };
                self.move_on(due, Ticked { what, ..ticked }).await
            }
        }
    }

    /// The schedule goes on behind the tick.
    async fn move_on(&self, due: Due, ticked: Ticked) -> Result<Outcome, RunError> {
        let next = due.schedule.after(ticked.clone(), &due.cron);
        match self.inner.ledger.append(vec![self.schedule_write(&next, due.version)]).await {
            Ok(()) => {
                let word = match &ticked.what {
                    Became::Started { .. } => "started",
                    Became::Skipped { .. } => "skipped",
                    Became::Refused { code, .. } => {
                        tracing::error!(schedule = %next.schedule, code, "a tick of this schedule could not start its run");
                        "refused"
                    }
                };
                observe::ticked(word);
                Ok(Outcome::Dealt(Box::new(Dealt { schedule: next, ticked })))
            }
            Err(LedgerError::Conflict) => Ok(Outcome::Faster),
            Err(error) => Err(error.into()),
        }
    }
}

enum Outcome {
    Dealt(Box<Dealt>),
    /// Another worker was.
    Faster,
    /// To a worker that can.
    Left,
}
