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

use super::read::{self, Part, Read};
use super::{FORMAT, Manifest, Of, ReceiptLine, RecordLine, seal_message};
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
    let mut check = Check::default();
    let broken = read::each(text, |read| check.take(read));
    check.faults.extend(broken);
    let verified = check.finish(trusted);
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

/// An end that a receipt is expected of, and the effect as it was then.
struct Expected {
    line: u64,
    end: End,
    effect: Effect,
}

/// A stream whose records are being read.
struct Stream {
    of: Of,
    id: Digest32,
    version: u64,
    /// What has come of them; `None`: they cannot be read.
    fold: Option<Fold>,
}

enum Fold {
    Begun,
    Run(Box<Run>),
    Effect(Effect),
}

/// What is known of a bundle so far. Lines are looked at one after the other, and none is kept: a bundle may be long.
#[derive(Default)]
struct Check<'a> {
    faults: Vec<Fault>,
    /// How far in the order of parts it is.
    furthest: u8,
    manifest: Option<(u64, Box<Manifest<'a>>)>,
    definition: Option<(u64, Digest32)>,
    stream: Option<Stream>,
    streams: HashSet<Digest32>,
    records: u64,
    ends: HashMap<ReceiptId, Expected>,
    /// Effects whose records have expired.
    buried: HashSet<EffectKey>,
    chain: ChainHead,
    /// Each receipt's line, place in the log, and hash.
    leaves: Vec<(u64, u64, Digest32)>,
    proof: Option<(u64, super::Proof)>,
    head: Option<(u64, Box<Head>)>,
    /// With the root that it signs.
    seal: Option<(u64, Digest32, Box<super::Seal>)>,
}

impl<'a> Check<'a> {
    fn fault(&mut self, line: impl Into<Option<u64>>, part: impl Into<String>, problem: impl Into<String>) {
        self.faults.push(Fault::new(line, part, problem));
    }

    fn take(&mut self, Read { at, prev, part }: Read<'a>) {
        let rank = part.rank();
        if rank < self.furthest {
            self.fault(at, part.to_string(), "it stands behind a part that comes after it");
        }
        self.furthest = self.furthest.max(rank);
        let twice = match part {
            Part::Record(record) => return self.record(at, &record),
            Part::Tombstone(tombstone) => return self.tombstone(at, tombstone),
            Part::Receipt(receipt) => return self.receipt(at, &receipt),
            Part::Manifest(manifest) => self.manifest.replace((at, manifest)).is_some().then_some("manifest"),
            Part::Definition(definition) => {
                self.definition.replace((at, Digest32::of(definition.text.as_bytes()))).is_some().then_some("definition")
            }
            Part::Proof(proof) => self.proof.replace((at, proof)).is_some().then_some("proof"),
            Part::Head(head) => self.head.replace((at, head)).is_some().then_some("head"),
            Part::Seal(seal) => self.seal.replace((at, prev, seal)).is_some().then_some("seal"),
        };
        if let Some(part) = twice {
            self.fault(at, part, "it is there twice");
        }
    }

    /// Of the run, or of one of its effects, which are folded one after the other.
    fn record(&mut self, at: u64, record: &RecordLine<'_>) {
        self.records += 1;
        let part = || format!("{} {}", record.of.word(), record.stream);
        let mut stream = match self.stream.take() {
            Some(stream) if stream.id == record.stream => stream,
            _ => {
                if !self.streams.insert(record.stream) {
                    self.fault(at, part(), "its records do not stand together");
                }
                Stream { of: record.of, id: record.stream, version: 0, fold: Some(Fold::Begun) }
            }
        };
        stream.version += 1;
        if record.version != stream.version && stream.fold.is_some() {
            self.fault(at, part(), format!("record {} is missing: {} stands in its place", stream.version, record.version));
        }
        let folded = match (stream.of, stream.fold.take()) {
            (_, None) => Ok(None),
            (Of::Run, Some(Fold::Run(mut run))) => {
                run.apply_body(&record.body).map(|()| Some(Fold::Run(run))).map_err(|error| error.to_string())
            }
            (Of::Run, Some(_)) => self.run_begun(at, record).map(|run| Some(Fold::Run(Box::new(run)))),
            (Of::Effect, Some(Fold::Effect(effect))) => self.effect(at, record, effect),
            (Of::Effect, Some(_)) => self.effect(at, record, Effect::absent(record.stream)),
        };
        stream.fold = folded.unwrap_or_else(|problem| {
            self.fault(at, part(), problem);
            None
        });
        self.stream = Some(stream);
    }

    fn run_begun(&mut self, at: u64, record: &RecordLine<'_>) -> Result<Run, String> {
        let (started, rest) = Run::begun(&record.body).map_err(|error| error.to_string())?;
        let mut run = Run::new(started.clone(), None);
        run.apply(&rest).map_err(|error| error.to_string())?;
        let Started { tenant, run: id, definition, .. } = &*started;
        let named = self.manifest.as_ref().is_none_or(|(_, manifest)| *tenant == manifest.tenant && Some(id) == manifest.run.as_ref());
        if !named || StreamId::run(tenant, id).0 != record.stream.0 {
            let problem = format!("it is run {id} of tenant {tenant}, and not the one that the manifest names");
            self.fault(at, format!("run {}", record.stream), problem);
        }
        if let Some((at, found)) = self.definition.filter(|(_, found)| found != definition) {
            self.fault(at, "definition", format!("its digest is {found}; the run began with {definition}"));
        }
        Ok(run)
    }

    fn effect(&mut self, at: u64, record: &RecordLine<'_>, mut effect: Effect) -> Result<Option<Fold>, String> {
        let entries: Vec<Entry> = codec::decode(&record.body).map_err(|error| error.to_string())?;
        let ended: Vec<End> = entries.iter().filter_map(end_of).collect();
        let first = effect.version == 0;
        effect.apply(entries).map_err(|error| error.to_string())?;
        for end in ended {
            let id = end.id;
            if self.ends.insert(id, Expected { line: at, end, effect: effect.clone() }).is_some() {
                return Err(format!("two ends name the receipt {id}"));
            }
        }
        let Some(opened) = effect.latest() else { return Err("it was never opened".into()) };
        let strayed = self.manifest.as_ref().is_some_and(|(_, manifest)| {
            let other_run = manifest.run.is_some() && opened.run != manifest.run;
            opened.tenant != manifest.tenant || other_run || manifest.effect.is_some_and(|named| named != effect.key)
        });
        if first && strayed {
            let problem = "it is not what the manifest names: another tenant's, another run's, or another effect";
            self.fault(at, format!("effect {}", effect.key), problem);
        }
        Ok(Some(Fold::Effect(effect)))
    }

    fn tombstone(&mut self, at: u64, tombstone: super::Tombstone) {
        if self.streams.contains(&tombstone.effect) {
            self.fault(at, format!("tombstone of effect {}", tombstone.effect), "and yet its records are here");
        }
        self.buried.insert(tombstone.effect);
    }

    /// It says what its end says; those of a run are a whole chain.
    fn receipt(&mut self, at: u64, line: &ReceiptLine<'_>) {
        self.leaves.push((at, line.leaf, leaf_hash(line.text.as_bytes())));
        let receipt: Receipt = match serde_json::from_str(&line.text) {
            Ok(receipt) => receipt,
            Err(error) => return self.fault(at, format!("receipt at leaf {}", line.leaf), format!("it cannot be read: {error}")),
        };
        let part = || format!("receipt {} of {}", receipt.seq, receipt.id);
        if self.manifest.as_ref().is_some_and(|(_, manifest)| manifest.run.is_some()) {
            let head = self.chain;
            if receipt.seq != head.seq + 1 {
                self.fault(at, part(), format!("receipt {} is expected here", head.seq + 1));
            } else if receipt.prev != head.hash {
                let (prev, hash) = (receipt.prev, head.hash);
                let problem = format!("it does not follow the one before it: its `prev` is {prev}, the hash of that one is {hash}");
                self.fault(at, part(), problem);
            }
            self.chain = ChainHead { seq: receipt.seq, hash: Digest32::of(line.text.as_bytes()), ..head };
        }
        let strayed = self.manifest.as_ref().is_some_and(|(_, manifest)| {
            let other_effect = manifest.effect.is_some_and(|effect| effect != receipt.effect);
            receipt.tenant != manifest.tenant || manifest.run.is_some() && receipt.run != manifest.run || other_effect
        });
        if strayed {
            self.fault(at, part(), "it is not of what the manifest names: another tenant's, another run's, or another effect's");
        }
        match self.ends.remove(&receipt.id) {
            Some(Expected { end, effect, .. }) => {
                if let Some(mismatch) = end.mismatch(&effect, &receipt) {
                    self.fault(at, part(), mismatch);
                }
            }
            None if self.buried.contains(&receipt.effect) => {}
            None => self.fault(at, part(), format!("no record of effect {} ends with it, or two receipts are of one end", receipt.effect)),
        }
    }

    /// What can be said only at the end.
    fn finish(&mut self, trusted: &[PublicKey]) -> Option<Verified> {
        let mut left: Vec<Expected> = std::mem::take(&mut self.ends).into_values().collect();
        left.sort_by_key(|expected| expected.line);
        for Expected { line, end, effect } in left {
            let problem = format!("it ended ({}), and its receipt {} is not here", end.outcome, end.id);
            self.fault(line, format!("effect {}", effect.key), problem);
        }
        self.log();
        let sealed = self.seal(trusted);
        let Some((at, manifest)) = self.manifest.take() else {
            self.fault(1, "manifest", "it is missing");
            return None;
        };
        self.counts(at, &manifest);
        let (root, key) = sealed?;
        let Manifest { tenant, run, effect, ended, records, receipts, .. } = *manifest;
        let head = self.head.take().map(|(_, head)| *head);
        Some(Verified { tenant, run, effect, ended, records, receipts, root, key, head })
    }

    fn counts(&mut self, at: u64, manifest: &Manifest<'_>) {
        if manifest.format != FORMAT {
            self.fault(at, "manifest", format!("its format is {:?}; this program reads {FORMAT:?}", manifest.format));
        }
        if manifest.run.is_some() == manifest.effect.is_some() {
            self.fault(at, "manifest", "it must be about a run or about an effect");
        }
        let counts = [
            ("records", manifest.records, self.records),
            ("tombstones", manifest.tombstones, self.buried.len() as u64),
            ("receipts", manifest.receipts, self.leaves.len() as u64),
        ];
        for (what, said, there) in counts {
            if said != there {
                self.fault(at, "manifest", format!("it says that there are {said} {what}, and there are {there}"));
            }
        }
        if manifest.effect.is_some_and(|effect| !self.streams.contains(&effect) && !self.buried.contains(&effect)) {
            self.fault(None, "records", "there are none of the effect that it is about");
        }
    }

    /// Who sealed it, and over what.
    fn seal(&mut self, trusted: &[PublicKey]) -> Option<(Digest32, PublicKey)> {
        let Some((at, root, seal)) = self.seal.take() else {
            self.fault(None, "seal", "it is missing: the end of the file was cut, or nobody signed it");
            return None;
        };
        if !trusted.contains(&seal.key) {
            let trusted: Vec<String> = trusted.iter().map(PublicKey::id).collect();
            self.fault(at, "seal", format!("it is by key {}, which is not one you trust ({})", seal.key.id(), trusted.join(", ")));
        }
        if !seal.key.verifies(&seal_message(&root), &seal.signature) {
            let key = seal.key.id();
            let problem = format!("the signature is not one of key {key} for the root {root}: it was changed, or is another bundle's");
            self.fault(at, "seal", problem);
        }
        Some((root, seal.key))
    }

    /// All receipts are leaves of the log that the head is of.
    fn log(&mut self) {
        let (proof, (head_at, head)) = match (self.proof.take(), self.head.as_ref()) {
            (Some(proof), Some((at, head))) => (proof, (*at, head.clone())),
            (None, None) if self.leaves.is_empty() => return,
            (proof, _) => return self.fault(None, if proof.is_none() { "proof" } else { "head" }, "it is missing"),
        };
        if let Err(error) = head.check() {
            self.fault(head_at, "head", error.to_string());
        }
        let leaves: Vec<(u64, Digest32)> = self.leaves.iter().map(|(_, leaf, hash)| (*leaf, *hash)).collect();
        let ascends = |pair: &[(u64, Digest32)]| pair[0].0 < pair[1].0;
        let stray = leaves.windows(2).position(|pair| !ascends(pair)).map(|before| before + 1);
        if let Some(stray) = stray.or_else(|| leaves.iter().position(|(leaf, _)| *leaf >= head.size)) {
            let (at, leaf, _) = self.leaves[stray];
            let problem = format!("it is at leaf {leaf}: not behind the one before it, or not in a log of {} leaves", head.size);
            return self.fault(at, "receipt", problem);
        }
        let root = root_of_cover(&leaves, head.size, &proof.1.hashes);
        if root != Some(head.root) {
            let found = root.map_or_else(|| "no root at all".to_owned(), |root| root.to_string());
            let problem = format!("it leads from the receipts to {found}; the root of the head is {}", head.root);
            self.fault(proof.0, "proof", problem);
        }
    }
}
