//! The names of the ledger's keys. All begin with the ledger's name as a hash tag, so that a cluster keeps them in one slot.
//!
//! | key | type | what |
//! |---|---|---|
//! | `{L}:meta` | hash | product, format, id |
//! | `{L}:position` | string | the last position given out |
//! | `{L}:records` | hash | stream → the head of its newest record, or its tombstone; stream and version → the head of an older record |
//! | `{L}:bodies:<position before the batch>:<piece>` | string | the bodies of a batch, in pieces (`record.rs`) |
//! | `{L}:stage:<name>:<piece>` | string | the bodies of a batch, inside its transaction |
//! | `{L}:log` | sorted set | a member per batch by the position before it: for each record its stream and how many it had before |
//! | `{L}:expires` | sorted set | a member per batch by its earliest expiry: for each record that has one its stream and version |
//! | `{L}:due` | sorted set | time → stream |
//! | `{L}:by:<kind>:<state>:<tenant>` | sorted set | position → stream, by current summaries |
//! | `{L}:idemp:<tool>:<hex>` | string | the state of an effect, for people |
//! | `{L}:heard` | channel | the first bytes of streams that were written |

use counterfoil_core::StreamId;
use counterfoil_core::ids::Digest32;
use counterfoil_core::summary::StreamKind;

#[derive(Debug, Clone)]
pub struct Keys {
    prefix: String,
    pub meta: String,
    pub position: String,
    pub records: String,
    pub log: String,
    pub due: String,
    pub heard: String,
}

impl Keys {
    pub fn new(ledger: &str) -> Self {
        let prefix = format!("{{{ledger}}}:");
        let key = |name: &str| format!("{prefix}{name}");
        Self {
            meta: key("meta"),
            position: key("position"),
            records: key("records"),
            log: key("log"),
            due: key("due"),
            heard: key("heard"),
            prefix,
        }
    }

    /// Matches every key of the ledger. The braces mean nothing to Redis's patterns.
    pub fn pattern(&self) -> String {
        format!("{}*", self.prefix)
    }

    /// What a user's rights are tried on.
    pub fn rehearsal(&self) -> String {
        format!("{}rehearsal", self.prefix)
    }

    /// Where a piece of bodies lies until the script knows its place.
    pub fn stage(&self, name: &str, piece: u32) -> String {
        format!("{}stage:{name}:{piece}", self.prefix)
    }

    /// What people look for. `None`: only effects of a tool have such a name.
    pub fn name(&self, stream: &StreamId, kind: StreamKind, tool: Option<&str>) -> Option<String> {
        let tool = tool.filter(|_| kind == StreamKind::Effect)?;
        Some(format!("{}idemp:{tool}:{}", self.prefix, Digest32(stream.0)))
    }

    pub fn index(&self, kind: StreamKind, state: &str, tenant: &str) -> String {
        format!("{}by:{}:{state}:{tenant}", self.prefix, kind as u8)
    }
}
