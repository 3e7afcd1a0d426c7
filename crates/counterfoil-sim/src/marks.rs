//! Coverage marks: that the simulator went where it says it goes. One that was never reached after many seeds fails the run.

use std::fmt;

/// Something that a seed came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    CrashBeforeAppend,
    CrashAfterAppend,
    CrashWhileDispatching,
    PowerCut,
    FsyncErrorWritten,
    FsyncErrorLost,
    DiskFull,
    GhostAppend,
    DeadMansAppend,
    TwoBatchesAway,
    StaleRead,
    PartitionedAppend,
    LostRace,
    LeaseLostWhileDispatching,
    PausedPastLease,
    PermitLostBeforeDispatch,
    ClaimReleased,
    LateDone,
    LateNotDone,
    ActedAfterDeath,
    ActedAnswerLost,
    ActedThenError,
    ToolPanicked,
    ToolStopped,
    ProbeHappened,
    ProbeDidNot,
    ProbeCannotTell,
    PersonHappened,
    PersonDidNot,
    PersonGaveUp,
    Approved,
    Denied,
    KeyedRepeat,
    SafeRepeat,
    EmptyReplay,
    ReplayAfterCrash,
    KeyReuse,
    TwoTenantsOneKey,
    KeyExpired,
    CallerLeft,
    CancelledRunning,
    CancelledActed,
    BreakerOpened,
    CircuitOpen,
    ClockBack,
    ClockForward,
    RunTakenOver,
    RunCompleted,
    RunCompensated,
    CompensationFailed,
    ScopeUndone,
    RunCancelled,
    SignalTwice,
    DefinitionChanged,
    Diverged,
}

/// In the order of their declaration.
const WHAT: &[(Mark, &str)] = &[
    (Mark::CrashBeforeAppend, "crash before an append was written"),
    (Mark::CrashAfterAppend, "crash after an append was written, before it was acknowledged"),
    (Mark::CrashWhileDispatching, "crash while a tool was being called"),
    (Mark::PowerCut, "all workers lost at once"),
    (Mark::FsyncErrorWritten, "append reported as failed, and written all the same"),
    (Mark::FsyncErrorLost, "append reported as failed, and not written"),
    (Mark::DiskFull, "append refused: disk full"),
    (Mark::GhostAppend, "append written after its sender had been told that it failed"),
    (Mark::DeadMansAppend, "append of a dead worker written"),
    (Mark::TwoBatchesAway, "append while another of the same worker was on its way"),
    (Mark::StaleRead, "read whose answer was late"),
    (Mark::PartitionedAppend, "append while the worker was cut off from the store"),
    (Mark::LostRace, "append that lost its race"),
    (Mark::LeaseLostWhileDispatching, "lease lost while dispatching"),
    (Mark::PausedPastLease, "worker paused for longer than its lease"),
    (Mark::PermitLostBeforeDispatch, "permit found lost right before the dispatch"),
    (Mark::ClaimReleased, "claim given back that nobody was sure of"),
    (Mark::LateDone, "late report that it was done"),
    (Mark::LateNotDone, "late report that it was not done"),
    (Mark::ActedAfterDeath, "request acted after its worker was dead"),
    (Mark::ActedAnswerLost, "tool acted and fell silent"),
    (Mark::ActedThenError, "tool acted and then answered with an error"),
    (Mark::ToolPanicked, "tool panicked"),
    (Mark::ToolStopped, "tool stopped when it was asked to"),
    (Mark::ProbeHappened, "probe: it happened"),
    (Mark::ProbeDidNot, "probe: it did not happen"),
    (Mark::ProbeCannotTell, "probe: cannot tell"),
    (Mark::PersonHappened, "person: it happened"),
    (Mark::PersonDidNot, "person: it did not happen"),
    (Mark::PersonGaveUp, "person: gave up"),
    (Mark::Approved, "person: approved"),
    (Mark::Denied, "person: denied"),
    (Mark::KeyedRepeat, "repeat that the other side knew by its key"),
    (Mark::SafeRepeat, "repeat of a tool that may be repeated"),
    (Mark::EmptyReplay, "empty result replayed"),
    (Mark::ReplayAfterCrash, "result replayed by a worker that did not run it"),
    (Mark::KeyReuse, "key reused with other arguments"),
    (Mark::TwoTenantsOneKey, "one key, two tenants"),
    (Mark::KeyExpired, "pruned key asked for again"),
    (Mark::CallerLeft, "caller that went away half-way"),
    (Mark::CancelledRunning, "effect cancelled while it ran"),
    (Mark::CancelledActed, "cancelled, and acted all the same"),
    (Mark::BreakerOpened, "breaker opened"),
    (Mark::CircuitOpen, "call refused by an open breaker"),
    (Mark::ClockBack, "clock set back"),
    (Mark::ClockForward, "clock set forward"),
    (Mark::RunTakenOver, "run taken over by another worker"),
    (Mark::RunCompleted, "run completed"),
    (Mark::RunCompensated, "run compensated"),
    (Mark::CompensationFailed, "compensation that failed"),
    (Mark::ScopeUndone, "scope undone alone"),
    (Mark::RunCancelled, "run cancelled"),
    (Mark::SignalTwice, "signal sent twice"),
    (Mark::DefinitionChanged, "definition changed while its runs were under way"),
    (Mark::Diverged, "run asked for again with another definition"),
];

impl Mark {
    pub fn what(self) -> &'static str {
        WHAT[self as usize].1
    }
}

#[derive(Clone)]
pub struct Marks(Vec<u64>);

impl Default for Marks {
    fn default() -> Self {
        Self(vec![0; WHAT.len()])
    }
}

impl Marks {
    pub fn hit(&mut self, mark: Mark) {
        self.0[mark as usize] += 1;
    }

    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(sum, more)| *sum += more);
    }

    pub fn count(&self, mark: Mark) -> u64 {
        self.0[mark as usize]
    }

    pub fn hit_count(&self) -> usize {
        self.0.iter().filter(|count| **count > 0).count()
    }

    pub fn missed(&self) -> Vec<Mark> {
        WHAT.iter().map(|(mark, _)| *mark).filter(|mark| self.count(*mark) == 0).collect()
    }
}

impl fmt::Display for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        WHAT.iter().try_for_each(|(mark, what)| writeln!(f, "  {what}: hit {}×", self.count(*mark)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mark_has_its_own_line() {
        assert!(WHAT.iter().enumerate().all(|(place, (mark, _))| *mark as usize == place));
    }
}
