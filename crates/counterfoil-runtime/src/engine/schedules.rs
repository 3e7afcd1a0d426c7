//! Schedules: workflows that run again and again. What people may say about one; its ticks are `tick`'s.
//!
//! What must stay true: what could never run is refused when it is put, with the reason; a tick that is due is not lost because its schedule is changed
//! in some other respect; a pause means that its ticks do not happen, not that they happen later.

use counterfoil_core::ids::{ScheduleName, WorkflowName};
use counterfoil_core::run::schedule::{CatchUp, Overlap, Schedule, ScheduleEntry, Standing, Terms, Ticks};
use counterfoil_core::summary::StreamKind;
use counterfoil_core::{CanonicalJson, RunId, StreamId, Tenant, Timestamp};
use counterfoil_store::{Query, Version, Write};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::RunError;
use super::cron::Cron;
use super::operate::Heard;
use crate::config::units::duration;
use crate::ledger::LedgerError;
use crate::operate::Operator;
use crate::runtime::Runtime;
use crate::shown;
use crate::template::{Scope, ValueTemplate};

/// What the expressions of a schedule's input see.
const SEEN: &str = "schedule";

/// Terms as people write them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    pub workflow: String,
    pub cron: String,
    pub zone: Option<String>,
    pub input: Option<Box<RawValue>>,
    pub catch_up: Option<String>,
    pub within: Option<String>,
    pub overlap: Option<String>,
}

impl Wanted {
    pub fn terms(self) -> Result<Terms, RunError> {
        let input = self.input.as_ref().map_or("{}", |input| input.get());
        let within =
            self.within.as_deref().map(|text| duration(text).map_err(|wrong| RunError::Schedule(format!("`within`: {}", wrong.why))));
        Ok(Terms {
            workflow: WorkflowName::new(&self.workflow)?,
            cron: self.cron,
            zone: self.zone.unwrap_or_else(|| "UTC".into()),
            input: CanonicalJson::parse(input).map_err(|error| RunError::Schedule(format!("`input`: {error}")))?,
            catch_up: chosen("catch_up", self.catch_up.as_deref(), &CatchUp::ALL, CatchUp::word)?,
            within_ms: within.transpose()?.map(|within| u64::try_from(within.as_millis()).unwrap_or(u64::MAX)),
            overlap: chosen("overlap", self.overlap.as_deref(), &Overlap::ALL, Overlap::word)?,
        })
    }
}

/// One of a few words.
fn chosen<T: Copy + Default>(field: &str, text: Option<&str>, all: &[T], word: fn(T) -> &'static str) -> Result<T, RunError> {
    let Some(text) = text else { return Ok(T::default()) };
    let found = all.iter().copied().find(|one| word(*one) == text);
    found.ok_or_else(|| {
        let words: Vec<&str> = all.iter().map(|one| word(*one)).collect();
        RunError::Schedule(format!("`{field}` {text:?}: it is one of {}", words.join(", ")))
    })
}

/// What is said about a schedule that there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    Pause,
    Resume,
    Remove,
}

/// What a word about a schedule would come to.
#[derive(Debug)]
pub struct Proposed {
    /// As it would then be, at this version.
    pub schedule: Schedule,
    pub version: Version,
    /// `None`: it is so already.
    pub write: Option<Write>,
}

impl Runtime {
    /// Makes a schedule, or gives one other terms. The same terms again change nothing.
    pub async fn put_schedule(&self, tenant: &Tenant, name: &ScheduleName, terms: &Terms, by: &str) -> Result<(Heard, Schedule), RunError> {
        loop {
            if let Some(put) = self.record_schedule(self.propose_schedule(tenant, name, terms, by).await?).await? {
                return Ok(put);
            }
        }
    }

    /// Pauses, resumes or removes it. Said twice, it is so already.
    pub async fn tell_schedule(
        &self,
        tenant: &Tenant,
        name: &ScheduleName,
        word: Word,
        operator: &Operator,
    ) -> Result<(Heard, Schedule), RunError> {
        loop {
            if let Some(told) = self.record_schedule(self.propose_word(tenant, name, word, operator).await?).await? {
                return Ok(told);
            }
        }
    }

    /// What putting it would write.
    pub async fn propose_schedule(&self, tenant: &Tenant, name: &ScheduleName, terms: &Terms, by: &str) -> Result<Proposed, RunError> {
        let cron = Cron::parse(&terms.cron, &terms.zone).map_err(RunError::Schedule)?;
        let (version, known) = self.schedule_record(StreamId::schedule(tenant, name)).await?;
        let known = known.filter(|known| !matches!(known.standing, Standing::Removed { .. }));
        if let Some(schedule) = known.as_ref().filter(|known| known.terms == *terms) {
            return Ok(Proposed { schedule: schedule.clone(), version, write: None });
        }
        let now = self.now();
        let first = cron.next(now);
        self.could_run(tenant, name, terms, first).await?;
        let new = Schedule {
            tenant: tenant.clone(),
            schedule: name.clone(),
            terms: terms.clone(),
            standing: Standing::Active,
            at: now,
            by: by.into(),
            next: first,
            last: None,
            last_run: None,
            runs: 0,
        };
        let schedule = match known {
            Some(known) => {
                let same_ticks = known.terms.cron == terms.cron && known.terms.zone == terms.zone;
                let next = if same_ticks { known.next } else { first };
                Schedule { terms: new.terms, at: new.at, by: new.by, next, ..known }
            }
            None => new,
        };
        Ok(self.proposed(schedule, version))
    }

    /// What a word about it would write.
    pub async fn propose_word(&self, tenant: &Tenant, name: &ScheduleName, word: Word, operator: &Operator) -> Result<Proposed, RunError> {
        let (version, known) = self.schedule_record(StreamId::schedule(tenant, name)).await?;
        let known = known.ok_or_else(|| RunError::NoSchedule(name.clone()))?;
        match (&known.standing, word) {
            (Standing::Active, Word::Resume) | (Standing::Paused { .. }, Word::Pause) | (Standing::Removed { .. }, Word::Remove) => {
                return Ok(Proposed { schedule: known, version, write: None });
            }
            (Standing::Removed { .. }, Word::Pause | Word::Resume) => return Err(RunError::NoSchedule(name.clone())),
            (Standing::Active | Standing::Paused { .. }, _) => {}
        }
        let (now, why) = (self.now(), operator.why.clone());
        let (standing, next) = match word {
            Word::Pause => (Standing::Paused { why }, known.next),
            Word::Remove => (Standing::Removed { why }, None),
            Word::Resume => {
                let cron = Cron::parse(&known.terms.cron, &known.terms.zone).map_err(RunError::Schedule)?;
                (Standing::Active, cron.next(now))
            }
        };
        Ok(self.proposed(Schedule { standing, next, at: now, by: operator.by.clone(), ..known }, version))
    }

    fn proposed(&self, schedule: Schedule, version: Version) -> Proposed {
        Proposed { version: version.next(), write: Some(self.schedule_write(&schedule, version)), schedule }
    }

    /// `None`: someone was faster.
    async fn record_schedule(&self, proposed: Proposed) -> Result<Option<(Heard, Schedule)>, RunError> {
        let Some(write) = proposed.write else { return Ok(Some((Heard::Before, proposed.schedule))) };
        match self.inner.ledger.append(vec![write]).await {
            Ok(()) => Ok(Some((Heard::Now, proposed.schedule))),
            Err(LedgerError::Conflict) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub async fn schedule(&self, tenant: &Tenant, name: &ScheduleName) -> Result<Schedule, RunError> {
        let (_, known) = self.schedule_record(StreamId::schedule(tenant, name)).await?;
        let there = known.filter(|known| !matches!(known.standing, Standing::Removed { .. }));
        there.ok_or_else(|| RunError::NoSchedule(name.clone()))
    }

    /// Those that were not removed, by name.
    pub async fn schedules(&self, tenant: &Tenant) -> Result<Vec<Schedule>, RunError> {
        let query = Query { kind: StreamKind::Schedule, states: vec!["active", "paused"], limit: 1000, ..Query::effects(tenant.clone()) };
        let mut found = Vec::new();
        for listed in self.inner.ledger.all_of(query).await? {
            found.extend(self.schedule_record(listed.stream).await?.1);
        }
        found.sort_by(|a, b| a.schedule.cmp(&b.schedule));
        Ok(found)
    }

    pub(super) async fn schedule_record(&self, stream: StreamId) -> Result<(Version, Option<Schedule>), RunError> {
        let (version, entry) = self.inner.ledger.newest::<ScheduleEntry>(stream).await?;
        Ok((version, entry.map(|ScheduleEntry::Schedule(schedule)| *schedule)))
    }

    pub(super) fn schedule_write(&self, schedule: &Schedule, version: Version) -> Write {
        let entry = ScheduleEntry::Schedule(Box::new(schedule.clone()));
        self.inner.ledger.replacing(schedule.stream(), version, &entry, schedule.summary())
    }

    /// Whether its first tick would start a run, as far as can be known now.
    async fn could_run(&self, tenant: &Tenant, name: &ScheduleName, terms: &Terms, first: Option<Timestamp>) -> Result<(), RunError> {
        let Some(first) = first else {
            return Err(RunError::Schedule(format!("`cron` {:?} never comes: no day is like that", terms.cron)));
        };
        if terms.catch_up == CatchUp::All && terms.overlap == Overlap::Skip {
            return Err(RunError::Schedule(
                "`catch_up` all with `overlap` skip would start one missed tick and leave out the rest; set `overlap` to wait or allow, or `catch_up` to last".into(),
            ));
        }
        run_of(name, first)?;
        let Some(workflow) = self.workflow(tenant, &terms.workflow).await? else {
            return Err(RunError::UnknownWorkflow(terms.workflow.to_string()));
        };
        self.can_start(tenant, &workflow, &input_of(name, terms, first)?)
    }
}

/// The run of a tick: no tick ever has another, whoever starts it.
pub(super) fn run_of(name: &ScheduleName, tick: Timestamp) -> Result<RunId, RunError> {
    Ok(RunId::new(&format!("{name}@{}", shown::second(tick)))?)
}

/// What the run of a tick is given.
pub(super) fn input_of(name: &ScheduleName, terms: &Terms, tick: Timestamp) -> Result<CanonicalJson, RunError> {
    let wrong = |why: String| RunError::Schedule(format!("`input`: {why}"));
    let template = ValueTemplate::parse(&terms.input.to_value()).map_err(|error| wrong(error.to_string()))?;
    let unknown = template.exprs().into_iter().flat_map(|expr| expr.variables()).find(|variable| variable != SEEN);
    if let Some(variable) = unknown {
        return Err(wrong(format!("{variable} is not known here; expressions see schedule.name and schedule.tick")));
    }
    let seen = serde_json::json!({ "name": name, "tick": shown::second(tick) });
    let text = template.render_json(&Scope::new().with(SEEN, &seen)).map_err(|error| wrong(error.to_string()))?;
    CanonicalJson::parse(&text).map_err(|error| wrong(error.to_string()))
}
