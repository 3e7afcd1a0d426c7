//! The names of the ledger's keys. All begin with the ledger's name as a hash tag, so that a cluster keeps them in one slot.
//!
//! | key | type | what |
//! |---|---|---|
//! | `{L}:meta` | hash | product, format, id |
//! | `{L}:position` | string | the last position given out |
//! | `{L}:r:<stream><version>` | string | a record, or the stream's tombstone in the place of its first (`record.rs`); 32 and 8 bytes |
//! | `{L}:b:<batch>` | string | the position before a batch; 16 bytes |
//! | `{L}:log` | sorted set | a member per batch by the position before it: for each record its stream and how many it had before |
//! | `{L}:expires` | sorted set | a member per batch by its earliest expiry: for each record that has one its stream and version |
//! | `{L}:folded` | string | up to this position the rest, which is made from the log (`fold.rs`), is complete |
//! | `{L}:due` | sorted set | time → stream |
//! | `{L}:by:<kind>:<state>:<tenant>` | sorted set | position → stream and version, by summaries |
//! | `{L}:idemp:<tool>:<hex>` | string | the state of an effect, for people |
//! | `{L}:heard` | channel | the first bytes of streams that were written |

use counterfoil_core::StreamId;
use counterfoil_core::summary::StreamKind;

use super::record::BatchId;
use crate::Version;

#[derive(Debug, Clone)]
pub struct Keys {
    prefix: String,
    pub meta: String,
    pub position: String,
    pub log: String,
    pub due: String,
    pub heard: String,
}

impl Keys {
    pub fn new(ledger: &str) -> Self {
        let prefix = format!("{{{ledger}}}:");
        let key = |name: &str| format!("{prefix}{name}");
        Self { meta: key("meta"), position: key("position"), log: key("log"), due: key("due"), heard: key("heard"), prefix }
    }

    /// Matches every key of the ledger. The braces mean nothing to Redis's patterns.
    pub fn pattern(&self) -> String {
        format!("{}*", self.prefix)
    }

    /// What a user's rights are tried on.
    pub fn rehearsal(&self) -> String {
        format!("{}rehearsal", self.prefix)
    }

    pub fn record(&self, stream: &StreamId, version: Version) -> Vec<u8> {
        [self.prefix.as_bytes(), b"r:", &stream.0, &version.0.to_be_bytes()].concat()
    }

    /// Matches the first record of every stream, and so every tombstone.
    pub fn firsts(&self) -> Vec<u8> {
        [self.prefix.as_bytes(), b"r:", &[b'?'; 32], &1_u64.to_be_bytes()].concat()
    }

    /// Whose first record this is the key of.
    pub fn first_of(&self, key: &[u8]) -> Option<StreamId> {
        let rest = key.strip_prefix(self.prefix.as_bytes())?.strip_prefix(b"r:")?;
        Some(StreamId(rest.strip_suffix(&1_u64.to_be_bytes())?.try_into().ok()?))
    }

    pub fn batch(&self, batch: &BatchId) -> Vec<u8> {
        [self.prefix.as_bytes(), b"b:", batch].concat()
    }

    pub fn index(&self, kind: StreamKind, state: &str, tenant: &str) -> String {
        format!("{}by:{}:{state}:{tenant}", self.prefix, kind as u8)
    }
}
