//! Writes a bundle. The same contents and the same key give the same bytes.

use counterfoil_core::ids::Digest32;
use counterfoil_core::json_text;

use super::{Definition, Line, Manifest, Proof, ReceiptLine, RecordLine, START, Seal, Tombstone, seal_message};
use crate::bundle::Hash;
use crate::head::Head;
use crate::keys::SecretKey;

/// What goes into it, in its order. The manifest's counts are worked out here.
#[derive(Debug, Clone)]
pub struct Contents<'a> {
    pub manifest: Manifest<'a>,
    pub definition: Option<Definition<'a>>,
    pub records: Vec<RecordLine<'a>>,
    pub tombstones: Vec<Tombstone>,
    pub receipts: Vec<ReceiptLine<'a>>,
    /// `None` where there is no receipt.
    pub log: Option<(Proof, Head)>,
}

pub fn write(contents: Contents<'_>, secret: &SecretKey) -> String {
    let mut file = Lines { text: String::new(), line: 0, last: START };
    let Contents { manifest, definition, records, tombstones, receipts, log } = contents;
    let count = |n: usize| n as u64;
    let counts = (count(records.len()), count(tombstones.len()), count(receipts.len()));
    let manifest = Manifest { records: counts.0, tombstones: counts.1, receipts: counts.2, ..manifest };
    file.add(Line { bundle: Some(manifest), ..Line::default() });
    definition.into_iter().for_each(|definition| file.add(Line { definition: Some(definition), ..Line::default() }));
    records.into_iter().for_each(|record| file.add(Line { record: Some(record), ..Line::default() }));
    tombstones.into_iter().for_each(|tombstone| file.add(Line { tombstone: Some(tombstone), ..Line::default() }));
    receipts.into_iter().for_each(|receipt| file.add(Line { receipt: Some(receipt), ..Line::default() }));
    if let Some((proof, head)) = log {
        file.add(Line { proof: Some(proof), ..Line::default() });
        file.add(Line { head: Some(head), ..Line::default() });
    }
    let seal = Seal { key: secret.public(), signature: secret.sign(&seal_message(&file.last)) };
    file.add(Line { seal: Some(seal), ..Line::default() });
    file.text
}

/// The root of a bundle that was written here: what its seal signs.
pub fn root_of(bundle: &str) -> Option<Digest32> {
    let seal: Line<'_> = serde_json::from_str(bundle.lines().next_back()?).ok()?;
    seal.seal.map(|_| seal.prev.0)
}

struct Lines {
    text: String,
    line: u64,
    last: Digest32,
}

impl Lines {
    fn add(&mut self, part: Line<'_>) {
        self.line += 1;
        let from = self.text.len();
        let line = Line { line: self.line, prev: Hash(self.last), ..part };
        json_text::append(&line, &mut self.text).expect("a line is plain data");
        self.last = Digest32::of(&self.text.as_bytes()[from..]);
        self.text.push('\n');
    }
}
