//! Whether a bundle holds: read without a ledger, a clock or a network.
//!
//! Beside the file's own links: it is sealed with a key that the reader trusts; every part is there, in its order, as often as the manifest says; the run and every effect
//! can be folded; each end of an effect has exactly one receipt, and that says the same; the receipts of a run are its whole chain; and all of them are
//! leaves of the log whose head is signed.

use std::collections::{HashMap, HashSet};

use counterfoil_core::ids::Digest32;
use counterfoil_core::receipt::{ChainHead, Receipt, ReceiptId};
use counterfoil_core::run::Run;
use counterfoil_core::run::entry::Started;
use counterfoil_core::{Effect, EffectKey, Entry, RunId, StreamId, Tenant, codec};
use serde::{Deserialize, Serialize};

use super::read::{self, Read, part_of};
use super::{FORMAT, Line, Manifest, Of, ReceiptLine, RecordLine, seal_message};
use crate::ends::{End, end_of};
use crate::fault::Fault;
use crate::head::Head;
use crate::keys::PublicKey;
use crate::merkle::{leaf_hash, root_of_cover};

/// Faults told; more do not make it clearer.
const FAULTS_MAX: usize = 100;

/// What a bundle that holds says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verified {
    pub tenant: Tenant,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<EffectKey>,
    pub ended: bool,
    pub records: u64,
    pub receipts: u64,
    /// Over all its lines.
    pub root: Digest32,
    /// Who sealed it.
    pub key: PublicKey,
    /// The log that the receipts are in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<Head>,
}

/// Where a receipt stands: enough to name it.
#[derive(Deserialize)]
pub(super) struct Place {
    pub id: ReceiptId,
    pub seq: u64,
}

/// Everything that does not hold, or what it says. `trusted`: the keys that may have sealed it.
pub fn verify(text: &str, trusted: &[PublicKey]) -> Result<Verified, Vec<Fault>> {
    let read::Lines { read, faults } = read::lines(text);
    let mut check = Check { faults, ends: HashMap::new(), buried: HashSet::new() };
    let parts = check.sorted(&read);
    let verified = check.whole(&parts, trusted);
    let Check { mut faults, .. } = check;
    match verified {
        Some(verified) if faults.is_empty() => Ok(verified),
        _ => {
            faults.sort_by_key(|fault| fault.line.unwrap_or(u64::MAX));
            faults.truncate(FAULTS_MAX);
            Err(faults)
        }
    }
}

/// The parts of a bundle, each with its line.
#[derive(Default)]
struct Parts<'a> {
    manifest: Option<(u64, &'a Manifest<'a>)>,
    definition: Option<(u64, &'a super::Definition<'a>)>,
    records: Vec<(u64, &'a RecordLine<'a>)>,
    receipts: Vec<(u64, &'a ReceiptLine<'a>)>,
    tombstones: Vec<(u64, &'a super::Tombstone)>,
    proof: Option<(u64, &'a super::Proof)>,
    head: Option<(u64, &'a Head)>,
    /// With the root that it signs.
    seal: Option<(u64, Digest32, &'a super::Seal)>,
}

/// An end that a receipt is expected of, and the effect as it was then.
struct Expected {
    line: u64,
    end: End,
    effect: Effect,
}

struct Check {
    faults: Vec<Fault>,
    ends: HashMap<ReceiptId, Expected>,
    /// Effects whose records have expired.
    buried: HashSet<EffectKey>,
}

impl Check {
    fn fault(&mut self, line: impl Into<Option<u64>>, part: impl Into<String>, problem: impl Into<String>) {
        self.faults.push(Fault::new(line, part, problem));
    }

    /// Every line at its place: manifest, definition, records, tombstones, receipts, proof, head, seal.
    fn sorted<'a>(&mut self, read: &'a [Read<'a>]) -> Parts<'a> {
        let mut parts = Parts::default();
        let mut furthest = 0;
        for Read { at, line } in read {
            let Line { bundle, definition, record, tombstone, receipt, proof, head, seal, prev, .. } = line;
            let mut twice = false;
            let rank = if let Some(manifest) = bundle {
                twice = parts.manifest.replace((*at, manifest)).is_some();
                1
            } else if let Some(definition) = definition {
                twice = parts.definition.replace((*at, definition)).is_some();
                2
            } else if let Some(record) = record {
                parts.records.push((*at, record));
                3
            } else if let Some(tombstone) = tombstone {
                parts.tombstones.push((*at, tombstone));
                4
            } else if let Some(receipt) = receipt {
                parts.receipts.push((*at, receipt));
                5
            } else if let Some(proof) = proof {
                twice = parts.proof.replace((*at, proof)).is_some();
                6
            } else if let Some(head) = head {
                twice = parts.head.replace((*at, head)).is_some();
                7
            } else {
                twice = seal.as_ref().is_some_and(|seal| parts.seal.replace((*at, prev.0, seal)).is_some());
                8
            };
            if twice {
                self.fault(*at, part_of(line), "it is there twice");
            }
            if rank < furthest {
                self.fault(*at, part_of(line), "it stands behind a part that comes after it");
            }
            furthest = furthest.max(rank);
        }
        parts
    }

    fn whole(&mut self, parts: &Parts<'_>, trusted: &[PublicKey]) -> Option<Verified> {
        let Some((at, manifest)) = parts.manifest else {
            self.fault(1, "manifest", "it is missing");
            return None;
        };
        self.manifest(at, manifest, parts);
        self.streams(manifest, parts);
        self.receipts(manifest, parts);
        self.log(parts);
        let (root, key) = self.seal(parts, trusted)?;
        let Manifest { tenant, run, effect, ended, records, receipts, .. } = manifest;
        Some(Verified {
            tenant: tenant.clone(),
            run: run.clone(),
            effect: *effect,
            ended: *ended,
            records: *records,
            receipts: *receipts,
            root,
            key,
            head: parts.head.map(|(_, head)| head.clone()),
        })
    }

    fn manifest(&mut self, at: u64, manifest: &Manifest<'_>, parts: &Parts<'_>) {
        if manifest.format != FORMAT {
            self.fault(at, "manifest", format!("its format is {:?}; this program reads {FORMAT:?}", manifest.format));
        }
        if manifest.run.is_some() == manifest.effect.is_some() {
            self.fault(at, "manifest", "it must be about a run or about an effect");
        }
        let counts = [
            ("records", manifest.records, parts.records.len()),
            ("tombstones", manifest.tombstones, parts.tombstones.len()),
            ("receipts", manifest.receipts, parts.receipts.len()),
        ];
        for (what, said, there) in counts {
            if said != there as u64 {
                self.fault(at, "manifest", format!("it says that there are {said} {what}, and there are {there}"));
            }
        }
    }

    /// Who sealed it, and over what.
    fn seal(&mut self, parts: &Parts<'_>, trusted: &[PublicKey]) -> Option<(Digest32, PublicKey)> {
        let Some((at, root, seal)) = parts.seal else {
            self.fault(None, "seal", "it is missing: the end of the file was cut, or nobody signed it");
            return None;
        };
        if !trusted.contains(&seal.key) {
            let trusted: Vec<String> = trusted.iter().map(PublicKey::id).collect();
            self.fault(at, "seal", format!("it is by key {}, which is not one you trust ({})", seal.key.id(), trusted.join(", ")));
        }
        if !seal.key.verifies(&seal_message(&root), &seal.signature) {
            let problem =
                format!("the signature is not one of key {} for the root {root}: it was changed, or is another bundle's", seal.key.id());
            self.fault(at, "seal", problem);
        }
        Some((root, seal.key))
    }

    /// The run and its effects, each folded from its records.
    fn streams(&mut self, manifest: &Manifest<'_>, parts: &Parts<'_>) {
        let mut seen: HashSet<Digest32> = HashSet::new();
        for records in parts.records.chunk_by(|(_, a), (_, b)| a.stream == b.stream) {
            let (at, first) = &records[0];
            let part = format!("{} {}", first.of.word(), first.stream);
            if !seen.insert(first.stream) {
                self.fault(*at, &part, "its records do not stand together");
            }
            for ((at, record), version) in records.iter().zip(1..) {
                if record.version != version {
                    self.fault(*at, &part, format!("record {version} is missing: {} stands in its place", record.version));
                    break;
                }
            }
            match first.of {
                Of::Run => self.run(manifest, records, parts),
                Of::Effect => self.effect(manifest, records),
            }
        }
        for (at, tombstone) in &parts.tombstones {
            if seen.contains(&tombstone.effect) {
                self.fault(*at, format!("tombstone of effect {}", tombstone.effect), "and yet its records are here");
            }
            self.buried.insert(tombstone.effect);
        }
        if manifest.effect.is_some_and(|effect| !seen.contains(&effect) && !self.buried.contains(&effect)) {
            self.fault(None, "records", "there are none of the effect that it is about");
        }
    }

    fn run(&mut self, manifest: &Manifest<'_>, records: &[(u64, &RecordLine<'_>)], parts: &Parts<'_>) {
        let (at, first) = &records[0];
        let part = format!("run {}", first.stream);
        let (started, mut run) = match Run::begun(&first.body) {
            Ok((started, rest)) => {
                let mut run = Run::new(started.clone(), None);
                if let Err(error) = run.apply(&rest) {
                    self.fault(*at, &part, error.to_string());
                    return;
                }
                (started, run)
            }
            Err(error) => return self.fault(*at, &part, error.to_string()),
        };
        let Started { tenant, run: id, definition, .. } = &*started;
        if *tenant != manifest.tenant || Some(id) != manifest.run.as_ref() || StreamId::run(tenant, id).0 != first.stream.0 {
            self.fault(*at, &part, format!("it is run {id} of tenant {tenant}, and not the one that the manifest names"));
        }
        for (at, record) in &records[1..] {
            if let Err(error) = run.apply_body(&record.body) {
                return self.fault(*at, &part, error.to_string());
            }
        }
        if let Some((at, text)) = &parts.definition {
            let found = Digest32::of(text.text.as_bytes());
            if found != *definition {
                self.fault(*at, "definition", format!("its digest is {found}; the run began with {definition}"));
            }
        }
    }

    fn effect(&mut self, manifest: &Manifest<'_>, records: &[(u64, &RecordLine<'_>)]) {
        let key = records[0].1.stream;
        let part = format!("effect {key}");
        let mut effect = Effect::absent(key);
        for (at, record) in records {
            let entries: Vec<Entry> = match codec::decode(&record.body) {
                Ok(entries) => entries,
                Err(error) => return self.fault(*at, &part, error.to_string()),
            };
            let ended: Vec<End> = entries.iter().filter_map(end_of).collect();
            if let Err(error) = effect.apply(entries) {
                return self.fault(*at, &part, error.to_string());
            }
            for end in ended {
                let id = end.id;
                if self.ends.insert(id, Expected { line: *at, end, effect: effect.clone() }).is_some() {
                    self.fault(*at, &part, format!("two ends name the receipt {id}"));
                }
            }
        }
        let Some(opened) = effect.latest() else { return self.fault(records[0].0, &part, "it was never opened") };
        let other_run = manifest.run.is_some() && opened.run != manifest.run;
        if opened.tenant != manifest.tenant || other_run || manifest.effect.is_some_and(|named| named != key) {
            self.fault(records[0].0, &part, "it is not what the manifest names: another tenant's, another run's, or another effect");
        }
    }

    /// Each says what its end says; those of a run are a whole chain.
    fn receipts(&mut self, manifest: &Manifest<'_>, parts: &Parts<'_>) {
        let mut head = ChainHead::default();
        for (at, line) in &parts.receipts {
            let receipt: Receipt = match serde_json::from_str(&line.text) {
                Ok(receipt) => receipt,
                Err(error) => {
                    self.fault(*at, format!("receipt at leaf {}", line.leaf), format!("it cannot be read: {error}"));
                    continue;
                }
            };
            let part = format!("receipt {} of {}", receipt.seq, receipt.id);
            if manifest.run.is_some() {
                if receipt.seq != head.seq + 1 {
                    self.fault(*at, &part, format!("receipt {} is expected here", head.seq + 1));
                } else if receipt.prev != head.hash {
                    let problem = format!(
                        "it does not follow the one before it: its `prev` is {}, the hash of that one is {}",
                        receipt.prev, head.hash
                    );
                    self.fault(*at, &part, problem);
                }
                head = ChainHead { seq: receipt.seq, hash: Digest32::of(line.text.as_bytes()), ..head };
            }
            self.receipt(*at, &part, manifest, &receipt);
        }
        let mut left: Vec<Expected> = std::mem::take(&mut self.ends).into_values().collect();
        left.sort_by_key(|expected| expected.line);
        for Expected { line, end, effect } in left {
            self.fault(
                line,
                format!("effect {}", effect.key),
                format!("it ended ({}), and its receipt {} is not here", end.outcome, end.id),
            );
        }
    }

    fn receipt(&mut self, at: u64, part: &str, manifest: &Manifest<'_>, receipt: &Receipt) {
        let strayed =
            manifest.run.is_some() && receipt.run != manifest.run || manifest.effect.is_some_and(|effect| effect != receipt.effect);
        if receipt.tenant != manifest.tenant || strayed {
            self.fault(at, part, "it is not of what the manifest names: another tenant's, another run's, or another effect's");
        }
        match self.ends.remove(&receipt.id) {
            Some(Expected { end, effect, .. }) => {
                if let Some(mismatch) = end.mismatch(&effect, receipt) {
                    self.fault(at, part, mismatch);
                }
            }
            None if self.buried.contains(&receipt.effect) => {}
            None => self.fault(at, part, format!("no record of effect {} ends with it, or two receipts are of one end", receipt.effect)),
        }
    }

    /// All receipts are leaves of the log that the head is of.
    fn log(&mut self, parts: &Parts<'_>) {
        let (proof, head) = match (&parts.proof, &parts.head) {
            (Some(proof), Some(head)) => (proof, head),
            (None, None) if parts.receipts.is_empty() => return,
            (proof, _) => {
                let missing = if proof.is_none() { "proof" } else { "head" };
                return self.fault(None, missing, "it is missing");
            }
        };
        if let Err(error) = head.1.check() {
            self.fault(head.0, "head", error.to_string());
        }
        let mut leaves = Vec::with_capacity(parts.receipts.len());
        for (at, receipt) in &parts.receipts {
            if leaves.last().is_some_and(|(last, _)| *last >= receipt.leaf) || receipt.leaf >= head.1.size {
                let problem =
                    format!("it is at leaf {}: not behind the one before it, or not in a log of {} leaves", receipt.leaf, head.1.size);
                return self.fault(*at, "receipt", problem);
            }
            leaves.push((receipt.leaf, leaf_hash(receipt.text.as_bytes())));
        }
        let root = root_of_cover(&leaves, head.1.size, &proof.1.hashes);
        if root != Some(head.1.root) {
            let found = root.map_or_else(|| "no root at all".to_owned(), |root| root.to_string());
            let problem = format!("it leads from the receipts to {found}; the root of the head is {}", head.1.root);
            self.fault(proof.0, "proof", problem);
        }
    }
}
