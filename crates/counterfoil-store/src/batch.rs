//! The values that cross the store's border.

use counterfoil_core::summary::StreamKind;
use counterfoil_core::{RunId, StreamId, Summary, Tenant, Timestamp, ToolName};

/// How many records a stream has. The next record gets this number plus one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version(pub u64);

impl Version {
    pub const NONE: Self = Self(0);
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Where in the ledger's commit order a record stands. Positions grow; they need not be dense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(pub u64);

/// One record to be added to one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    pub stream: StreamId,
    /// The stream must have exactly this version.
    pub expected: Version,
    pub at: Timestamp,
    /// Opaque to the store. UTF-8 text without NUL, so that people can read a ledger with the database's own tools.
    pub body: String,
    /// Replaces the stream's summary.
    pub summary: Summary,
}

/// What is written together or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    pub writes: Vec<Write>,
}

/// How much of a stream to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    Whole,
    Newest(u32),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// Of the whole stream, also when only the newest records were read. A tombstone keeps the version it had.
    pub version: Version,
    /// The stream was pruned: its records are gone, its identity is not.
    pub expired: bool,
    /// Oldest first.
    pub records: Vec<Record>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub version: Version,
    pub position: Position,
    pub at: Timestamp,
    pub body: String,
}

/// A record with its stream, as `tail` gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    pub stream: StreamId,
    /// As it was written with this record.
    pub summary: Summary,
    pub record: Record,
}

/// What people ask for. Every filter that is set must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    pub tenant: Tenant,
    pub kind: StreamKind,
    pub states: Vec<&'static str>,
    pub tool: Option<ToolName>,
    pub run: Option<RunId>,
    /// Last written before this.
    pub before: Option<Timestamp>,
    /// Continue below this position (`Page::next`).
    pub below: Option<Position>,
    pub limit: usize,
}

impl Query {
    pub fn effects(tenant: Tenant) -> Self {
        Self { tenant, kind: StreamKind::Effect, states: Vec::new(), tool: None, run: None, before: None, below: None, limit: 50 }
    }

    /// Whether a stream is one of those asked for.
    pub fn matches(&self, found: &Found) -> bool {
        let summary = &found.summary;
        summary.tenant == self.tenant
            && summary.kind == self.kind
            && (self.states.is_empty() || self.states.contains(&summary.state))
            && self.tool.as_ref().is_none_or(|tool| summary.tool.as_ref() == Some(tool))
            && self.run.as_ref().is_none_or(|run| summary.run.as_ref() == Some(run))
            && self.before.is_none_or(|before| found.at < before)
            && self.below.is_none_or(|below| found.position < below)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    pub found: Vec<Found>,
    /// Set when there may be more.
    pub next: Option<Position>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub stream: StreamId,
    pub version: Version,
    /// Of the newest record.
    pub position: Position,
    pub at: Timestamp,
    pub summary: Summary,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    pub streams: u64,
    /// There is more to prune.
    pub more: bool,
}
