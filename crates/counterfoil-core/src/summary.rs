//! What a store may know of a stream, so that people can list and the runtime can be reminded.
//!
//! The core computes it with each write; adapters keep the fields and filter by them, and understand none of them.
//! `decide` never looks at a summary.

use crate::ids::{RunId, Tenant, ToolName};
use crate::time::Timestamp;

/// What kind of thing a stream tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum StreamKind {
    Effect = 1,
    Chain = 2,
    Breaker = 3,
    Budget = 4,
    Window = 5,
    /// What the ledger knows of itself, e.g. its salt.
    Meta = 6,
    /// One mutating HTTP request, and what it was answered.
    Request = 7,
    /// A tool that was registered over HTTP.
    Tool = 8,
    /// A bearer token, by its digest.
    Token = 9,
    /// Whether calls are enforced, shadowed or let through.
    Mode = 10,
    /// What all workers together have taken of a tool's limits.
    Quota = 11,
    Run = 12,
    /// A workflow's text, by its digest, or which text a name stands for.
    Workflow = 13,
    /// When a workflow runs again and again.
    Schedule = 14,
    /// 256 hashes of the log of receipts.
    Tile = 15,
    /// Signed heads of that log.
    Head = 16,
    /// The public keys they are signed with.
    Key = 17,
    /// Where a run went that was moved to an archive.
    Archived = 18,
    /// The key of those whose personal data is veiled.
    Subject = 19,
}

impl StreamKind {
    pub const ALL: [Self; 19] = [
        Self::Effect,
        Self::Chain,
        Self::Breaker,
        Self::Budget,
        Self::Window,
        Self::Meta,
        Self::Request,
        Self::Tool,
        Self::Token,
        Self::Mode,
        Self::Quota,
        Self::Run,
        Self::Workflow,
        Self::Schedule,
        Self::Tile,
        Self::Head,
        Self::Key,
        Self::Archived,
        Self::Subject,
    ];

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == code)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    pub kind: StreamKind,
    pub tenant: Tenant,
    /// A word of the glossary: `running`, `in_doubt`, `done`, … Empty for streams without states.
    pub state: &'static str,
    pub tool: Option<ToolName>,
    pub run: Option<RunId>,
    /// Not at rest: something or someone still has to act. Open streams are few and are listed at once.
    pub open: bool,
    /// When to look at the stream again.
    pub due: Option<Timestamp>,
    /// From when on it may be pruned, leaving a tombstone. `None`: kept.
    pub expires: Option<Timestamp>,
}

/// Every word that `Summary::state` may hold.
pub const STATES: [&str; 33] = [
    "",
    "waiting_approval",
    "ready",
    "running",
    "done",
    "retrying",
    "failed",
    "in_doubt",
    "cancelled",
    "undoing",
    "undone",
    "undo_failed",
    "open",
    "closed",
    "pending",
    "answered",
    "registered",
    "removed",
    "active",
    "revoked",
    "flushed",
    "enforce",
    "shadow",
    "off",
    "configured",
    "waiting",
    "cancelling",
    "compensating",
    "completed",
    "compensated",
    "compensation_failed",
    "paused",
    "archived",
];

/// The one word of [`STATES`] that equals `text`.
pub fn state_word(text: &str) -> Option<&'static str> {
    STATES.into_iter().find(|word| *word == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_by_its_code() {
        for kind in StreamKind::ALL {
            assert_eq!(StreamKind::from_code(kind as u8), Some(kind));
        }
        assert_eq!((StreamKind::from_code(0), StreamKind::from_code(200)), (None, None));
    }
}
