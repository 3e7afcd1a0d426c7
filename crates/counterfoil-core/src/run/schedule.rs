//! When a workflow runs again and again: a schedule as its newest record has it, and what is to be done about its ticks.
//!
//! What must stay true: a tick is dealt with once, by a record that holds or falls with the run it starts; ticks only move forward, whatever clocks do;
//! what was left out is said. When the ticks are is not known here: that comes in as [`Ticks`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::canonical::CanonicalJson;
use crate::ids::{RunId, ScheduleName, StreamId, Tenant, ToolName, WorkflowName};
use crate::summary::{StreamKind, Summary};
use crate::time::Timestamp;

/// Where no catching up is wanted, a tick may still be seen a little late.
const GRACE: Duration = Duration::from_secs(60);
/// Every missed tick of longer than this is seldom what anybody wants.
const ALL_WITHIN: Duration = Duration::from_secs(24 * 3600);

/// The whole state of its stream, as its newest record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    pub tenant: Tenant,
    pub schedule: ScheduleName,
    pub terms: Terms,
    pub standing: Standing,
    /// Who last said something about it, and when.
    pub at: Timestamp,
    pub by: String,
    /// The first tick that is not dealt with; `None`: there is none any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Ticked>,
    /// The newest run that it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<RunId>,
    pub runs: u64,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    pub workflow: WorkflowName,
    /// Five fields: minute, hour, day of month, month, day of week.
    pub cron: String,
    /// Whose clock the fields are of, as the time zone database calls it.
    pub zone: String,
    /// What each run is given; expressions see `schedule`.
    pub input: CanonicalJson,
    pub catch_up: CatchUp,
    /// A tick that is seen later than this is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_ms: Option<u64>,
    pub overlap: Overlap,
}

/// What becomes of ticks that nobody was there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    None,
    /// The newest of them runs.
    #[default]
    Last,
    /// Each of them runs, oldest first.
    All,
}

/// What becomes of a tick while the run of an earlier one has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// It is left out.
    #[default]
    Skip,
    /// It waits.
    Wait,
    Allow,
}

impl CatchUp {
    pub const ALL: [Self; 3] = [Self::None, Self::Last, Self::All];

    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Last => "last",
            Self::All => "all",
        }
    }
}

impl Overlap {
    pub const ALL: [Self; 3] = [Self::Skip, Self::Wait, Self::Allow];

    pub fn word(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Wait => "wait",
            Self::Allow => "allow",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    Active,
    Paused { why: String },
    Removed { why: String },
}

impl Standing {
    /// As in a summary.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Paused { .. } => "paused",
            Self::Removed { .. } => "removed",
        }
    }
}

/// What became of a tick.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticked {
    pub tick: Timestamp,
    pub at: Timestamp,
    pub what: Became,
    /// The ticks from this one up to `tick` were missed, and are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed_from: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Became {
    Started {
        run: RunId,
    },
    Skipped {
        why: String,
    },
    /// No run could be started for it.
    Refused {
        code: String,
        message: String,
    },
}

/// When a schedule's ticks are.
pub trait Ticks {
    /// The first one after `after`.
    fn next(&self, after: Timestamp) -> Option<Timestamp>;
}

/// What is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    NotDue,
    /// This tick is to run; those from `missed_from` on are left out.
    Start {
        tick: Timestamp,
        missed_from: Option<Timestamp>,
    },
    /// Up to this one all are too late.
    TooLate {
        tick: Timestamp,
    },
}

impl Terms {
    /// How late a tick may be seen and still run.
    pub fn within(&self) -> Option<Duration> {
        let said = self.within_ms.map(Duration::from_millis);
        said.or(match self.catch_up {
            CatchUp::None => Some(GRACE),
            CatchUp::Last => None,
            CatchUp::All => Some(ALL_WITHIN),
        })
    }
}

impl Schedule {
    pub fn turn(&self, now: Timestamp, ticks: &impl Ticks) -> Turn {
        let Some(next) = self.next.filter(|next| self.standing == Standing::Active && *next <= now) else { return Turn::NotDue };
        let in_time = self.terms.within().map_or(Timestamp(i64::MIN), |within| now - within);
        let found = match self.terms.catch_up {
            CatchUp::Last => newest(next, now, ticks).filter(|tick| *tick >= in_time),
            CatchUp::None | CatchUp::All if next >= in_time => Some(next),
            CatchUp::None | CatchUp::All => ticks.next(Timestamp(in_time.0 - 1)).filter(|tick| *tick <= now),
        };
        match found {
            Some(tick) => Turn::Start { tick, missed_from: (tick > next).then_some(next) },
            None => Turn::TooLate { tick: newest(next, now, ticks).unwrap_or(next) },
        }
    }

    /// Right after a tick was dealt with.
    pub fn after(&self, ticked: Ticked, ticks: &impl Ticks) -> Self {
        let started = if let Became::Started { run } = &ticked.what { Some(run.clone()) } else { None };
        Self {
            next: ticks.next(ticked.tick),
            runs: self.runs + u64::from(started.is_some()),
            last_run: started.or_else(|| self.last_run.clone()),
            last: Some(ticked),
            ..self.clone()
        }
    }

    pub fn stream(&self) -> StreamId {
        StreamId::schedule(&self.tenant, &self.schedule)
    }

    pub fn summary(&self) -> Summary {
        Summary {
            kind: StreamKind::Schedule,
            tenant: self.tenant.clone(),
            state: self.standing.word(),
            // The column that names are listed by.
            tool: ToolName::new(self.schedule.as_str()).ok(),
            run: None,
            // Always read as it is now: of a stream at rest, what another process wrote may be missed for a moment.
            open: true,
            due: self.next.filter(|_| self.standing == Standing::Active),
            expires: None,
        }
    }
}

/// The newest tick from `first`, which is one, up to `now`. Looks back further and further, so that a long absence costs little.
fn newest(first: Timestamp, now: Timestamp, ticks: &impl Ticks) -> Option<Timestamp> {
    const HOUR: u64 = 3600;
    let back = [HOUR, 24 * HOUR, 31 * 24 * HOUR, 366 * 24 * HOUR].map(|seconds| now - Duration::from_secs(seconds));
    for from in back.into_iter().chain([first]) {
        let mut tick = if from <= first { Some(first) } else { ticks.next(from) };
        let mut found = None;
        while let Some(seen) = tick.filter(|tick| *tick <= now) {
            found = Some(seen);
            tick = ticks.next(seen);
        }
        if found.is_some() || from <= first {
            return found;
        }
    }
    None
}

/// One record of a schedule's stream holds one of these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleEntry {
    Schedule(Box<Schedule>),
}

/// Whether a stored record is one of a schedule.
pub fn is_schedule(body: &str) -> bool {
    body.get(1..).is_some_and(|json| json.starts_with("[{\"schedule\":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every so many minutes.
    struct Every(i64);

    const MINUTE: i64 = 60_000_000;

    impl Ticks for Every {
        fn next(&self, after: Timestamp) -> Option<Timestamp> {
            let step = self.0 * MINUTE;
            Some(Timestamp((after.0.div_euclid(step) + 1) * step))
        }
    }

    fn at(minutes: i64) -> Timestamp {
        Timestamp(minutes * MINUTE)
    }

    fn schedule(catch_up: CatchUp, within: Option<i64>) -> Schedule {
        Schedule {
            tenant: Tenant::new("acme").unwrap(),
            schedule: ScheduleName::new("nightly").unwrap(),
            terms: Terms {
                workflow: WorkflowName::new("w").unwrap(),
                cron: "*/10 * * * *".into(),
                zone: "UTC".into(),
                input: CanonicalJson::parse("{}").unwrap(),
                catch_up,
                within_ms: within.map(|minutes| minutes.unsigned_abs() * 60_000),
                overlap: Overlap::Skip,
            },
            standing: Standing::Active,
            at: at(0),
            by: "ada".into(),
            next: Some(at(10)),
            last: None,
            last_run: None,
            runs: 0,
        }
    }

    fn check(catch_up: CatchUp, within: Option<i64>, now: i64, expected: Turn) {
        assert_eq!(schedule(catch_up, within).turn(at(now), &Every(10)), expected, "{catch_up:?} within {within:?} at {now}");
    }

    fn start(tick: i64, missed: bool) -> Turn {
        Turn::Start { tick: at(tick), missed_from: missed.then_some(at(10)) }
    }

    #[test]
    fn what_was_dealt_with_is_told() {
        let before = schedule(CatchUp::Last, None);
        let ticked = |what| Ticked { tick: at(10), at: at(11), what, missed_from: None };
        let run = RunId::new("r").unwrap();
        let after = before.after(ticked(Became::Started { run: run.clone() }), &Every(10));
        assert_eq!((after.next, after.runs, after.last_run.clone()), (Some(at(20)), 1, Some(run.clone())));
        assert_eq!(after.last, Some(ticked(Became::Started { run: run.clone() })));
        let skipped = after.after(ticked(Became::Skipped { why: "one runs".into() }), &Every(10));
        assert_eq!(
            (skipped.runs, skipped.last_run, skipped.last),
            (1, Some(run), Some(ticked(Became::Skipped { why: "one runs".into() })))
        );
        assert_eq!(CatchUp::ALL.map(CatchUp::word), ["none", "last", "all"]);
        assert_eq!(Overlap::ALL.map(Overlap::word), ["skip", "wait", "allow"]);
        let standings = [Standing::Active, Standing::Paused { why: String::new() }, Standing::Removed { why: String::new() }];
        assert_eq!(standings.map(|standing| standing.word()), ["active", "paused", "removed"]);
    }

    #[test]
    fn what_is_missed_is_caught_up_with_as_the_terms_say() {
        for policy in CatchUp::ALL {
            check(policy, None, 9, Turn::NotDue);
            check(policy, None, 10, start(10, false));
        }
        check(CatchUp::None, None, 11, start(10, false));
        check(CatchUp::None, None, 12, Turn::TooLate { tick: at(10) });
        check(CatchUp::None, None, 30, start(30, true));
        check(CatchUp::None, None, 38, Turn::TooLate { tick: at(30) });
        check(CatchUp::None, Some(9), 38, start(30, true));
        check(CatchUp::Last, None, 47, start(40, true));
        check(CatchUp::Last, None, 4_000_009, start(4_000_000, true));
        check(CatchUp::Last, Some(3), 47, Turn::TooLate { tick: at(40) });
        check(CatchUp::All, None, 47, start(10, false));
        check(CatchUp::All, Some(25), 47, start(30, true));
        check(CatchUp::All, None, 10_000, start(8_560, true));
    }

    #[test]
    fn the_newest_tick_is_found_however_rare_they_are() {
        for days in [1, 7, 60, 1000] {
            let every = days * 24 * 60;
            let missed = Schedule { next: Some(at(every)), ..schedule(CatchUp::Last, None) };
            let expected = Turn::Start { tick: at(3 * every), missed_from: Some(at(every)) };
            assert_eq!(missed.turn(at(4 * every - 1), &Every(every)), expected, "every {days} days");
        }
    }

    #[test]
    fn each_tick_is_dealt_with_once_and_time_never_goes_back() {
        let mut at_hand = schedule(CatchUp::All, None);
        let mut seen = Vec::new();
        for now in [35, 35, 35, 35, 20, 41, 5, 41] {
            if let Turn::Start { tick, missed_from } = at_hand.turn(at(now), &Every(10)) {
                seen.push(tick.0 / MINUTE);
                let run = RunId::new(&format!("nightly@{}", tick.0)).unwrap();
                at_hand = at_hand.after(Ticked { tick, at: at(now), what: Became::Started { run }, missed_from }, &Every(10));
            }
        }
        assert_eq!((seen, at_hand.runs), (vec![10, 20, 30, 40], 4));
        let told = Ticked { tick: at(50), at: at(50), what: Became::Skipped { why: "busy".into() }, missed_from: None };
        let skipped = at_hand.after(told, &Every(10));
        assert_eq!((skipped.runs, &skipped.last_run, skipped.next), (4, &at_hand.last_run, Some(at(60))));
    }

    #[test]
    fn one_that_is_paused_or_over_is_never_due() {
        for standing in [Standing::Paused { why: String::new() }, Standing::Removed { why: String::new() }] {
            let still = Schedule { standing, ..schedule(CatchUp::All, None) };
            assert_eq!((still.turn(at(99), &Every(10)), still.summary().due), (Turn::NotDue, None));
        }
        let over = Schedule { next: None, ..schedule(CatchUp::All, None) };
        assert_eq!((over.turn(at(99), &Every(10)), over.summary().due), (Turn::NotDue, None));
    }

    #[test]
    fn a_record_is_known_as_one_of_a_schedule() {
        let body = crate::codec::encode(&[ScheduleEntry::Schedule(Box::new(schedule(CatchUp::Last, None)))]);
        assert!(is_schedule(&body) && !super::super::is_run(&body));
        assert!(!is_schedule("1[{\"run_started\":{}}]") && !is_schedule(""));
        let read: Vec<ScheduleEntry> = crate::codec::decode(&body).unwrap();
        assert_eq!(read, [ScheduleEntry::Schedule(Box::new(schedule(CatchUp::Last, None)))]);
    }
}
