//! An evidence bundle: all that is recorded of one run or one effect, and what proves it, in one file of JSON lines.
//!
//! Each line names the hash of the one before it, so an edit, a gap or a swap shows where it was made; the last line is a signature over all of them. Bodies and
//! receipts stand in it as strings with their exact bytes, for their hashes are over those. Nothing in it depends on when it was written: what was
//! exported once is exported again byte for byte, as long as nothing more was recorded.

mod read;
mod verify;
mod write;

use std::borrow::Cow;

use counterfoil_core::ids::Digest32;
use counterfoil_core::{EffectKey, RunId, Tenant, Timestamp};
use serde::{Deserialize, Serialize};

pub use self::verify::{Verified, verify};
pub use self::write::{Contents, root_of, write};
use crate::head::Head;
use crate::keys::{PublicKey, Signature};

/// What its first line says it is.
pub const FORMAT: &str = "counterfoil/evidence/1";
/// What stands before the first line.
pub const START: Digest32 = Digest32([0; 32]);

/// One line. Exactly one of the parts is there.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    line: u64,
    /// Hash of the line before it, without its newline.
    prev: Hash,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    bundle: Option<Manifest<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    definition: Option<Definition<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    record: Option<RecordLine<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tombstone: Option<Tombstone>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    receipt: Option<ReceiptLine<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proof: Option<Proof>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    head: Option<Head>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seal: Option<Seal>,
}

/// A digest that is zeros where nothing is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct Hash(Digest32);

impl Default for Hash {
    fn default() -> Self {
        Self(START)
    }
}

/// What it is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest<'a> {
    pub format: Cow<'a, str>,
    pub tenant: Tenant,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Where it is about one effect alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<EffectKey>,
    /// Whether it was over when this was written. An open one may be exported again later, with more in it.
    pub ended: bool,
    pub records: u64,
    pub tombstones: u64,
    pub receipts: u64,
}

/// The text of the workflow that the run began with; its digest stands in the run's first entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition<'a> {
    pub workflow: Cow<'a, str>,
    pub text: Cow<'a, str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Of {
    Run,
    Effect,
}

impl Of {
    pub fn word(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Effect => "effect",
        }
    }
}

/// A record of the run's stream, or of one of its effects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordLine<'a> {
    pub of: Of,
    pub stream: Digest32,
    pub version: u64,
    pub at: Timestamp,
    /// As stored, byte for byte.
    pub body: Cow<'a, str>,
}

/// An effect whose records have expired: only its receipts are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tombstone {
    pub effect: EffectKey,
    pub records: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiptLine<'a> {
    /// Its place in the log.
    pub leaf: u64,
    /// As stored, byte for byte.
    pub text: Cow<'a, str>,
}

/// The hashes beside the receipts, from left to right: with them, the root of the head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    pub hashes: Vec<Digest32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seal {
    pub key: PublicKey,
    /// Over [`seal_message`].
    pub signature: Signature,
}

/// What is signed. `root`: the hash of the last line before the seal.
pub fn seal_message(root: &Digest32) -> String {
    format!("counterfoil/bundle/1\n{root}\n")
}
