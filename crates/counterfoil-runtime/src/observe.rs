//! What is counted, and under which names: the only file that names a metric.
//!
//! Must stay true: labels come from closed sets. A tool's name is a label only while it is registered, and only the first
//! [`TOOLS_MAX`] of them; keys, tenants and callers never are. Handles are taken when a tool is first called, one set for each stripe (`stripes.rs`), from the recorder that is installed by then: install
//! it before the runtime is built. Without one, counting costs a look into a map per call and nothing else.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::breaker::Phase;
use counterfoil_core::{Decision, Outcome, ToolName};
use counterfoil_store::StoreError;
use metrics::{
    Counter, Gauge, Histogram, SharedString, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

use crate::answer::Status;
use crate::ledger::LedgerError;
use crate::runtime::Runtime;
use crate::stripes::Copies;

const EXECUTIONS: &str = "tool_execution_total";
const DURATION: &str = "tool_duration_seconds";
const ATTEMPTS: &str = "tool_attempts_total";
const BREAKER: &str = "circuit_breaker_state";
const HITS: &str = "idempotency_cache_hits_total";
const MISSES: &str = "idempotency_cache_misses_total";
const SHADOWED: &str = "shadow_would_have_total";
const COMPENSATIONS: &str = "compensations_total";
const COMPENSATED: &str = "compensations_succeeded_total";
const COMPENSATION_TIME: &str = "compensation_duration_seconds";
const SCHEDULE_TICKS: &str = "schedule_ticks_total";
const RUNS_STARTED: &str = "runs_started_total";
const RUNS_ENDED: &str = "runs_ended_total";
const VERIFICATIONS: &str = "verifications_total";
const CONFIRMATIONS: &str = "confirmations_total";
const IN_DOUBT: &str = "effects_in_doubt";
const IN_DOUBT_OLDEST: &str = "effects_in_doubt_oldest_seconds";
const QUEUE: &str = "ledger_queue_depth";
const BATCH: &str = "ledger_append_batch_size";
const APPEND_TIME: &str = "ledger_append_seconds";
const STORE_ERRORS: &str = "store_errors_total";
const SPANS_EXPORTED: &str = "trace_spans_exported_total";
const SPANS_DROPPED: &str = "trace_spans_dropped_total";

/// Tools with series of their own. Tenants may register tools: without a bound, they would decide how large a scrape is.
const TOOLS_MAX: usize = 500;
/// The label of every tool that has none of its own.
const OTHER: &str = "other";

/// Says what each metric is. Once, after the recorder is installed.
pub fn describe() {
    describe_counter!(EXECUTIONS, Unit::Count, "Answered calls, by tool and status");
    describe_histogram!(DURATION, Unit::Seconds, "Time of calls that ran the tool, from asking to answer, retries included");
    describe_counter!(ATTEMPTS, Unit::Count, "Attempts, by tool and what they said: done, not_done, unknown");
    describe_gauge!(BREAKER, "1 for the state a tool's breaker is in: closed, open, half_open; of several tenants', the worst");
    describe_counter!(HITS, Unit::Count, "Calls answered from the ledger; the world was not touched");
    describe_counter!(MISSES, Unit::Count, "Calls that the ledger had no answer for and that ran the tool");
    describe_counter!(SHADOWED, Unit::Count, "Calls that shadow mode let through, by what would have been decided instead");
    describe_counter!(COMPENSATIONS, Unit::Count, "Undos that were begun");
    describe_counter!(COMPENSATED, Unit::Count, "Undos that ended with the effect undone");
    describe_histogram!(COMPENSATION_TIME, Unit::Seconds, "Time from the beginning of an undo to its end, either way");
    describe_counter!(RUNS_STARTED, Unit::Count, "Runs that were begun, forks and children included");
    describe_counter!(SCHEDULE_TICKS, Unit::Count, "Ticks of schedules, by what became of them: started, skipped, refused");
    describe_counter!(RUNS_ENDED, Unit::Count, "Runs that this process saw come to an end, by the state they ended in");
    describe_counter!(VERIFICATIONS, Unit::Count, "Effects that were held against the world, by what was found");
    describe_counter!(CONFIRMATIONS, Unit::Count, "Runs that were held against the world before they went on, by what follows");
    describe_gauge!(IN_DOUBT, Unit::Count, "Effects that may or may not have happened and wait to be settled");
    describe_gauge!(IN_DOUBT_OLDEST, Unit::Seconds, "How long the oldest open doubt has been open; 0 without one");
    describe_gauge!(QUEUE, Unit::Count, "Appends that wait for the disk");
    describe_histogram!(BATCH, Unit::Count, "Requests that were appended with one flush");
    describe_histogram!(APPEND_TIME, Unit::Seconds, "Time of one append to the store, flush included");
    describe_counter!(STORE_ERRORS, Unit::Count, "Failures of the ledger's store: unavailable, corrupt");
    describe_counter!(SPANS_EXPORTED, Unit::Count, "Spans that the collector took");
    describe_counter!(SPANS_DROPPED, Unit::Count, "Spans that were not exported: queue_full, export_failed, closed");
}

/// The upper bounds of every histogram's buckets, for the exporter.
pub fn buckets() -> [(&'static str, &'static [f64]); 4] {
    // From a local command to a slow bank.
    const SECONDS: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
    // From a page cache to a disk in trouble.
    const FLUSH: &[f64] = &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];
    const SIZES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0];
    [(DURATION, SECONDS), (COMPENSATION_TIME, SECONDS), (APPEND_TIME, FLUSH), (BATCH, SIZES)]
}

/// Brings up to date what is measured only when somebody looks. A store that cannot be read leaves its figures as they were.
pub async fn scrape(runtime: &Runtime) -> Result<(), LedgerError> {
    let inner = &runtime.inner;
    gauge!(QUEUE).set(inner.ledger.queue_depth() as f64);
    for tool in inner.tools.all() {
        inner.meters.of(&tool.name);
    }
    for (tool, phase) in inner.gates.phases() {
        inner.meters.of(&tool).breaker(phase);
    }
    let doubts = crate::doubts::count(runtime).await?;
    gauge!(IN_DOUBT).set(doubts.open as f64);
    gauge!(IN_DOUBT_OLDEST).set(doubts.oldest.as_secs_f64());
    Ok(())
}

/// The handles of every tool that was called.
pub(crate) struct Meters {
    tools: Copies<HashMap<ToolName, Arc<ToolMeters>>>,
    other: Arc<ToolMeters>,
}

impl Meters {
    pub fn new() -> Self {
        Self { tools: Copies::default(), other: Arc::new(ToolMeters::new(OTHER.into())) }
    }

    /// For a tool that is registered: any other name belongs to [`Meters::other`].
    pub fn of(&self, tool: &ToolName) -> Arc<ToolMeters> {
        if let Some(known) = self.tools.read().get(tool) {
            return known.clone();
        }
        self.tools.change(|tools| match tools.len() >= TOOLS_MAX && !tools.contains_key(tool) {
            true => self.other.clone(),
            false => tools.entry(tool.clone()).or_insert_with(|| Arc::new(ToolMeters::new(tool.to_string().into()))).clone(),
        })
    }

    pub fn other(&self) -> Arc<ToolMeters> {
        self.other.clone()
    }
}

/// The handles of one tool. All series exist from the first call on, so that the first failure already shows as an increase.
pub(crate) struct ToolMeters {
    tool: SharedString,
    executions: [Counter; Status::ALL.len()],
    duration: Histogram,
    attempts: [Counter; 3],
    breaker: [(Phase, Gauge); 3],
    hits: Counter,
    misses: Counter,
}

impl ToolMeters {
    fn new(tool: SharedString) -> Self {
        let breaker = |phase: Phase| (phase, gauge!(BREAKER, "tool" => tool.clone(), "state" => phase.word()));
        Self {
            executions: Status::ALL.map(|status| counter!(EXECUTIONS, "tool" => tool.clone(), "status" => status.word())),
            duration: histogram!(DURATION, "tool" => tool.clone()),
            attempts: ["done", "not_done", "unknown"].map(|outcome| counter!(ATTEMPTS, "tool" => tool.clone(), "outcome" => outcome)),
            breaker: [breaker(Phase::Closed), breaker(Phase::Open), breaker(Phase::HalfOpen)],
            hits: counter!(HITS, "tool" => tool.clone()),
            misses: counter!(MISSES, "tool" => tool.clone()),
            tool,
        }
    }

    /// A caller got its answer.
    pub fn answered(&self, status: Status, served: Served, took: Duration) {
        self.executions[status as usize].increment(1);
        match served {
            Served::FromLedger => self.hits.increment(1),
            Served::Ran { recorded } => {
                self.duration.record(took);
                self.misses.increment(u64::from(recorded));
            }
            Served::Otherwise => {}
        }
    }

    pub fn attempted(&self, outcome: &Outcome) {
        self.attempts[outcome_index(outcome)].increment(1);
    }

    pub fn breaker(&self, now: Phase) {
        for (phase, gauge) in &self.breaker {
            gauge.set(if *phase == now { 1.0 } else { 0.0 });
        }
    }

    /// Not kept: shadow mode is for looking, not for speed.
    pub fn shadowed(&self, decision: &str) {
        counter!(SHADOWED, "tool" => self.tool.clone(), "decision" => decision.to_owned()).increment(1);
    }
}

/// Where an answer came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Served {
    /// A replay.
    FromLedger,
    /// The tool was called for it. Pure tools, and what runs beside the ledger, are not `recorded`.
    Ran { recorded: bool },
    /// Refused, held, or somebody else is at it.
    Otherwise,
}

fn outcome_index(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Done(_) => 0,
        Outcome::NotDone(_) => 1,
        Outcome::Unknown(_) => 2,
    }
}

/// What `decide` would have done instead of letting a call through.
pub(crate) fn decision_word(decision: &Decision) -> &'static str {
    match decision {
        Decision::Execute(_) => "execute",
        Decision::Replay => "replay",
        Decision::Wait { .. } => "wait",
        Decision::Probe => "probe",
        Decision::Hold(_) => "hold",
        Decision::AskApproval => "ask_approval",
        Decision::Record(_) => "record",
        Decision::Refuse(_) => "refuse",
    }
}

/// The handles of the ledger, for its writers.
#[derive(Clone)]
pub(crate) struct LedgerMeters {
    batch: Histogram,
    append: Histogram,
    unavailable: Counter,
    corrupt: Counter,
}

impl LedgerMeters {
    pub fn new() -> Self {
        Self {
            batch: histogram!(BATCH),
            append: histogram!(APPEND_TIME),
            unavailable: counter!(STORE_ERRORS, "kind" => "unavailable"),
            corrupt: counter!(STORE_ERRORS, "kind" => "corrupt"),
        }
    }

    /// One call of `Store::append`, whatever came of it.
    pub fn appended(&self, requests: usize, took: Duration) {
        self.batch.record(requests as f64);
        self.append.record(took);
    }

    pub fn failed(&self, error: &StoreError) {
        match error {
            StoreError::Unavailable { .. } => self.unavailable.increment(1),
            StoreError::Corrupt { .. } => self.corrupt.increment(1),
        }
    }
}

pub(crate) fn compensation_begun() {
    counter!(COMPENSATIONS).increment(1);
}

pub(crate) fn compensation_ended(succeeded: bool, took: Duration) {
    counter!(COMPENSATED).increment(u64::from(succeeded));
    histogram!(COMPENSATION_TIME).record(took);
}

pub(crate) fn run_started() {
    counter!(RUNS_STARTED).increment(1);
}

/// `state`: one of those that are ends.
pub(crate) fn run_ended(state: &'static str) {
    counter!(RUNS_ENDED, "state" => state).increment(1);
}

/// `what`: started, skipped or refused.
pub(crate) fn ticked(what: &'static str) {
    counter!(SCHEDULE_TICKS, "what" => what).increment(1);
}

/// `finding`: verified, drifted, unavailable, unverified.
pub(crate) fn verified(finding: &'static str) {
    counter!(VERIFICATIONS, "finding" => finding).increment(1);
}

/// `judgement`: agrees, warned, asks_again, needs_person, failed.
pub(crate) fn confirmed(judgement: &'static str) {
    counter!(CONFIRMATIONS, "judgement" => judgement).increment(1);
}

/// For whoever exports traces.
pub fn spans_exported(count: usize) {
    counter!(SPANS_EXPORTED).increment(count as u64);
}

/// `why`: `queue_full`, `export_failed` or `closed`.
pub fn spans_dropped(why: &'static str, count: usize) {
    counter!(SPANS_DROPPED, "reason" => why).increment(count as u64);
}
