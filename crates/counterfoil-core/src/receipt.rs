//! Proof of a terminal outcome, chained to the one before.
//!
//! A receipt's hash is SHA-256 over its stored bytes, which hold the hash of its predecessor. One chain per run, one per tenant for calls
//! outside runs, or several where several processes write at once (`Lane`). The id is known before the place in the chain is: it is derived from the effect and the entry that ended it.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;

use crate::canonical::CanonicalJson;
use crate::codec::{self, CodecError};
use crate::ids::{Digest32, EffectKey, Fence, Lane, RunId, StreamId, Tenant, ToolName};
use crate::json_text;
use crate::time::Timestamp;
use crate::veil::Veil;

/// Names one receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReceiptId(pub Digest32);

impl ReceiptId {
    /// `ending` counts the records of the effect: no two ends of one effect share an id.
    pub fn new(effect: &EffectKey, ending: u64) -> Self {
        Self(Digest32::of_fields("counterfoil/receipt-id/1", &[&effect.0, &ending.to_be_bytes()]))
    }
}
impl fmt::Display for ReceiptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A receipt before its place in the chain is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    pub id: ReceiptId,
    pub tenant: Tenant,
    pub run: Option<RunId>,
    pub effect: EffectKey,
    pub attempt: u32,
    pub fence: Fence,
    pub tool: ToolName,
    pub spec: Digest32,
    pub outcome: &'static str,
    /// Digest of the result, or of the failure.
    pub result: Digest32,
    pub by: Option<String>,
    /// Digest of the reason that goes with `by`.
    pub why: Option<Digest32>,
    pub started: Timestamp,
    pub ended: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    pub id: ReceiptId,
    /// Place in the chain, from 1.
    pub seq: u64,
    #[serde(default, skip_serializing_if = "Lane::is_first")]
    pub lane: Lane,
    pub tenant: Tenant,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    pub effect: EffectKey,
    pub attempt: u32,
    pub fence: Fence,
    pub tool: ToolName,
    /// Tool and arguments, no ids: true for the original and for every replay of it.
    pub spec: Digest32,
    /// A word of the glossary: done, failed, cancelled, late, resolved_happened, …
    pub outcome: String,
    pub result: Digest32,
    /// Who, where a person ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Digest of the reason, which stands in the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Digest32>,
    pub started: Timestamp,
    pub ended: Timestamp,
    pub duration_us: u64,
    /// Hash of the receipt before this one; all zeros for the first.
    pub prev: Digest32,
}

impl Receipt {
    /// Whether this receipt speaks of that call.
    pub fn covers(&self, tool: &ToolName, args: &CanonicalJson) -> bool {
        self.spec == crate::call::spec_hash(tool, args)
    }

    /// The same of a veiled effect, whose receipts only its subject's key lets anyone check.
    pub fn covers_under(&self, veil: &Veil, tool: &ToolName, args: &CanonicalJson) -> bool {
        self.spec == veil.blind(&crate::call::spec_hash(tool, args))
    }
}

/// Where a chain stands: the next receipt goes here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainHead {
    pub lane: Lane,
    pub seq: u64,
    pub hash: Digest32,
}

impl ChainHead {
    /// Before the first receipt.
    pub fn start(lane: Lane) -> Self {
        Self { lane, ..Self::default() }
    }
}

impl Default for ChainHead {
    fn default() -> Self {
        Self { lane: Lane::FIRST, seq: 0, hash: Digest32([0; 32]) }
    }
}

/// A draft as its stored text, all but its place in the chain: so that the one who knows the place has little left to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsealed {
    /// The chain it belongs to.
    pub chain: StreamId,
    pub tenant: Tenant,
    pub run: Option<RunId>,
    pub ended: Timestamp,
    /// Stands at seq 0, after no other.
    text: String,
}

/// As long as most of them are.
const TEXT_BYTES: usize = 640;
/// Where a stored receipt has its `seq`: behind an id, which is as long as every other.
const SEQ_AT: usize = r#"{"id":"#.len() + 66 + r#","seq":"#.len();
/// Where it has its `prev`, from the end.
const PREV_BEFORE_END: usize = 64 + r#""}"#.len();

impl Draft {
    pub fn unsealed(self) -> Unsealed {
        let receipt = Receipt {
            id: self.id,
            seq: 0,
            lane: Lane::FIRST,
            tenant: self.tenant,
            run: self.run,
            effect: self.effect,
            attempt: self.attempt,
            fence: self.fence,
            tool: self.tool,
            spec: self.spec,
            outcome: self.outcome.to_owned(),
            result: self.result,
            by: self.by,
            why: self.why,
            started: self.started,
            ended: self.ended,
            duration_us: self.ended.since(self.started).as_micros() as u64,
            prev: ChainHead::default().hash,
        };
        let mut text = String::with_capacity(TEXT_BYTES);
        json_text::append(&receipt, &mut text).expect("a receipt is plain data");
        let chain = StreamId::chain(&receipt.tenant, receipt.run.as_ref());
        Unsealed { chain, tenant: receipt.tenant, run: receipt.run, ended: receipt.ended, text }
    }
}

impl ChainHead {
    /// Puts a receipt at the end of the chain: its stored text, and where the chain then stands.
    pub fn seal(mut self, receipt: &Unsealed) -> (String, Self) {
        let mut text = String::new();
        self.seal_onto(&mut text, receipt);
        (text, self)
    }

    fn seal_onto(&mut self, to: &mut String, receipt: &Unsealed) {
        let (before, after) = (&receipt.text[..SEQ_AT], &receipt.text[SEQ_AT + 1..receipt.text.len() - PREV_BEFORE_END]);
        let begins = to.len();
        to.reserve(receipt.text.len() + 32);
        self.seq += 1;
        to.push_str(before);
        to.push_str(itoa::Buffer::new().format(self.seq));
        if !self.lane.is_first() {
            to.push_str(",\"lane\":");
            to.push_str(itoa::Buffer::new().format(self.lane.0));
        }
        to.push_str(after);
        self.hash.append_to(to);
        to.push_str("\"}");
        self.hash = Digest32::of(&to.as_bytes()[begins..]);
    }
}

/// A record of a chain in the making: receipts are written straight into its body, each with the hash of the one before.
pub struct ChainRecord {
    head: ChainHead,
    body: String,
}

impl ChainRecord {
    /// After everything that the chain has.
    pub fn after(head: ChainHead) -> Self {
        Self { head, body: String::from(codec::VERSION) }
    }

    pub fn seal(&mut self, receipt: &Unsealed) {
        self.body.push(if self.body.len() == codec::VERSION.len_utf8() { '[' } else { ',' });
        self.head.seal_onto(&mut self.body, receipt);
    }

    /// Its body, and where the chain then stands.
    pub fn finish(mut self) -> (String, ChainHead) {
        self.body.push(']');
        (self.body, self.head)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChainError {
    #[error("receipt {seq}: {source}")]
    Unreadable { seq: u64, source: CodecError },
    #[error("receipt {expected} is missing: found {found} in its place")]
    Gap { expected: u64, found: u64 },
    #[error("receipt {seq} belongs to lane {found}, and this is lane {expected}")]
    Strayed { seq: u64, expected: u16, found: u16 },
    #[error("receipt {seq} does not follow the one before it: its `prev` is {found}, the hash of the one before is {expected}")]
    Broken { seq: u64, expected: Digest32, found: Digest32 },
}

/// Follows a chain through the bodies of its records, oldest first.
pub fn follow<'a>(head: ChainHead, bodies: impl Iterator<Item = &'a str>) -> Result<(ChainHead, Vec<Receipt>), ChainError> {
    let mut head = head;
    let mut receipts = Vec::new();
    for body in bodies {
        for text in texts(body).map_err(|source| ChainError::Unreadable { seq: head.seq + 1, source })? {
            let unreadable =
                |e: serde_json::Error| ChainError::Unreadable { seq: head.seq + 1, source: CodecError::Malformed(e.to_string()) };
            let receipt: Receipt = serde_json::from_str(text).map_err(unreadable)?;
            if receipt.seq != head.seq + 1 {
                return Err(ChainError::Gap { expected: head.seq + 1, found: receipt.seq });
            }
            if receipt.lane != head.lane && head.seq > 0 {
                return Err(ChainError::Strayed { seq: receipt.seq, expected: head.lane.0, found: receipt.lane.0 });
            }
            if receipt.prev != head.hash {
                return Err(ChainError::Broken { seq: receipt.seq, expected: head.hash, found: receipt.prev });
            }
            head = ChainHead { lane: receipt.lane, seq: receipt.seq, hash: Digest32::of(text.as_bytes()) };
            receipts.push(receipt);
        }
    }
    Ok((head, receipts))
}

/// Where a chain stands, from its newest record alone.
pub fn head_of(newest: &str) -> Result<ChainHead, CodecError> {
    let texts = texts(newest)?;
    let Some(last) = texts.last() else { return Err(CodecError::Malformed("a chain record without receipts".into())) };
    let receipt: Receipt = serde_json::from_str(last).map_err(|e| CodecError::Malformed(e.to_string()))?;
    Ok(ChainHead { lane: receipt.lane, seq: receipt.seq, hash: Digest32::of(last.as_bytes()) })
}

/// The receipts of a chain record, each as its stored text.
pub fn texts(body: &str) -> Result<Vec<&str>, CodecError> {
    let raw: Vec<&RawValue> = serde_json::from_str(codec::json_of(body)?).map_err(|e| CodecError::Malformed(e.to_string()))?;
    Ok(raw.into_iter().map(RawValue::get).collect())
}

/// The body of a chain record.
pub fn body_of(texts: &[String]) -> String {
    format!("{}[{}]", codec::VERSION, texts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(n: u64) -> Draft {
        let effect = Digest32::of(&n.to_be_bytes());
        Draft {
            id: ReceiptId::new(&effect, 2),
            tenant: Tenant::new("acme").unwrap(),
            run: None,
            effect,
            attempt: 1,
            fence: Fence(1),
            tool: ToolName::new("charge").unwrap(),
            spec: crate::call::spec_hash(&ToolName::new("charge").unwrap(), &CanonicalJson::parse(&format!("[{n}]")).unwrap()),
            outcome: "done",
            result: Digest32::of(b"null"),
            by: None,
            why: None,
            started: Timestamp(n as i64),
            ended: Timestamp(n as i64 + 10),
        }
    }

    fn chain(n: u64) -> Vec<String> {
        let mut head = ChainHead::default();
        (0..n)
            .map(|i| {
                let (text, next) = head.seal(&draft(i).unsealed());
                head = next;
                text
            })
            .collect()
    }

    fn check(texts: &[String]) -> Result<ChainHead, ChainError> {
        let bodies: Vec<String> = texts.chunks(2).map(body_of).collect();
        follow(ChainHead::default(), bodies.iter().map(String::as_str)).map(|(head, _)| head)
    }

    #[test]
    fn an_untouched_chain_verifies_and_its_newest_record_is_its_head() {
        let texts = chain(5);
        let head = check(&texts).unwrap();
        assert_eq!(head.seq, 5);
        let mut record = ChainRecord::after(ChainHead::default());
        (0..5).for_each(|n| record.seal(&draft(n).unsealed()));
        assert_eq!(record.finish(), (body_of(&texts), head), "one record, or a text at a time");
        assert_eq!(head_of(&body_of(&texts[4..])).unwrap(), head);
        let receipt: Receipt = serde_json::from_str(&texts[3]).unwrap();
        assert!(receipt.covers(&receipt.tool, &CanonicalJson::parse("[3]").unwrap()));
        assert!(!receipt.covers(&receipt.tool, &CanonicalJson::parse("[4]").unwrap()));
        assert!(!receipt.covers(&ToolName::new("refund").unwrap(), &CanonicalJson::parse("[3]").unwrap()));
    }

    /// Sealing cuts into the text; what comes out must be what would have been written whole.
    #[test]
    fn a_sealed_receipt_is_written_as_any_other() {
        let last = |lane| ChainHead { lane, seq: 41_999, hash: Digest32::of(b"the one before") };
        let run = Some(RunId::new(r#"a "run" with ,"seq":0 in it"#).unwrap());
        let told = Draft { run, by: Some("ada".into()), why: Some(Digest32::of(b"it did")), ..draft(8) };
        for (draft, head) in [(draft(7), last(Lane::FIRST)), (told, last(Lane::FIRST)), (draft(9), last(Lane(17)))] {
            let (text, sealed) = head.seal(&draft.clone().unsealed());
            let receipt: Receipt = serde_json::from_str(&text).unwrap();
            assert_eq!(serde_json::to_string(&receipt).unwrap(), text);
            assert_eq!((receipt.seq, receipt.lane, receipt.prev, receipt.id), (42_000, head.lane, head.hash, draft.id));
            assert_eq!((sealed.seq, sealed.hash), (42_000, Digest32::of(text.as_bytes())));
        }
    }

    #[test]
    fn a_chain_from_its_beginning_is_of_the_lane_that_it_names() {
        let (text, sealed) = ChainHead::start(Lane(3)).seal(&draft(1).unsealed());
        let body = body_of(&[text]);
        let (head, receipts) = follow(ChainHead::default(), [body.as_str()].into_iter()).unwrap();
        assert_eq!((head, receipts[0].lane), (sealed, Lane(3)));
        assert_eq!(receipts[0].id.to_string(), draft(1).id.0.to_string());
    }

    #[test]
    fn a_veiled_receipt_covers_its_call_under_its_veil_alone() {
        let key = |of: &[u8]| crate::veil::SubjectKey { at: Timestamp::ZERO, key: Digest32::of(of) };
        let [veil, other] = [b"one", b"two"].map(|of| Veil::new(StreamId([1; 32]), &key(of)));
        let (tool, args) = (ToolName::new("charge").unwrap(), CanonicalJson::parse("[1]").unwrap());
        let spec = veil.blind(&crate::call::spec_hash(&tool, &args));
        let (text, _) = ChainHead::start(Lane(3)).seal(&Draft { spec, ..draft(1) }.unsealed());
        let receipt: Receipt = serde_json::from_str(&text).unwrap();
        assert!(receipt.covers_under(&veil, &tool, &args) && !receipt.covers_under(&other, &tool, &args));
        assert!(!receipt.covers(&tool, &args) && !receipt.covers_under(&veil, &tool, &CanonicalJson::parse("[2]").unwrap()));
        assert_eq!(receipt.lane, Lane(3));
    }

    #[test]
    fn what_cannot_be_read_is_named_by_its_place() {
        let texts = chain(3);
        let place = |bodies: [&str; 2]| match follow(ChainHead::default(), bodies.into_iter()) {
            Err(ChainError::Unreadable { seq, .. }) => seq,
            other => panic!("{other:?}"),
        };
        let first = body_of(&texts[..2]);
        assert_eq!(place([&first, "1nothing"]), 3);
        assert_eq!(place([&first, &body_of(&[texts[2].replace("\"seq\"", "\"sequel\"")])]), 3);
    }

    #[test]
    fn every_edit_is_named() {
        let mut edited = chain(5);
        edited[1] = edited[1].replace("\"attempt\":1", "\"attempt\":2");
        assert!(matches!(check(&edited), Err(ChainError::Broken { seq: 3, .. })));
        let mut removed = chain(5);
        removed.remove(2);
        assert_eq!(check(&removed), Err(ChainError::Gap { expected: 3, found: 4 }));
        let mut swapped = chain(5);
        swapped.swap(1, 2);
        assert_eq!(check(&swapped), Err(ChainError::Gap { expected: 2, found: 3 }));
        let mut strayed = chain(5);
        strayed[2] = strayed[2].replace("\"seq\":3,", "\"seq\":3,\"lane\":9,");
        assert_eq!(check(&strayed), Err(ChainError::Strayed { seq: 3, expected: 0, found: 9 }));
        assert_ne!(check(&chain(5)[..4]).unwrap(), check(&chain(5)).unwrap(), "a cut tail is another head");
    }
}
