//! All that is recorded of a run or of an effect, as a bundle. Read as of one moment: what is written meanwhile is left out, whole.
//!
//! A bundle leaves the house, and nobody can erase it: what is veiled is in it as if it were erased already.

use std::borrow::Cow;
use std::collections::BTreeMap;

use counterfoil_core::ids::Digest32;
use counterfoil_core::run::entry::{Began, RunEntry, Started};
use counterfoil_core::{Effect, EffectKey, RunId, StreamId, Tenant, codec};
use counterfoil_evidence::SecretKey;
use counterfoil_evidence::bundle::{self, Contents, Definition, FORMAT, Manifest, Of, Proof, ReceiptLine, RecordLine, Tombstone};
use counterfoil_store::{Position, Query, Reach, Record};

use super::find::Placed;
use super::{Log, LogError, damaged};

/// Effects of a run listed at once.
const PAGE: usize = 500;

/// A bundle, and what it is about.
#[derive(Debug)]
pub struct Exported {
    pub text: String,
    pub manifest: Manifest<'static>,
    pub root: Digest32,
}

/// What is gathered before it is written.
struct Gathered {
    definition: Option<Definition<'static>>,
    records: Vec<RecordLine<'static>>,
    tombstones: Vec<Tombstone>,
    receipts: Vec<Placed>,
    ended: bool,
}

impl Log {
    /// Everything of one run. The log is sealed first, as far as need be.
    pub async fn export_run(&self, tenant: &Tenant, run: &RunId, secret: &SecretKey) -> Result<Exported, LogError> {
        // In this order: what is there now is under a head then.
        let until = self.ledger.end().await?;
        self.seal(secret).await?;
        let mut receipts = self.of_run(tenant, run).await?;
        receipts.retain(|placed| placed.position <= until);
        let stream = StreamId::run(tenant, run);
        let (own, veil) = self.ledger.read(stream, Reach::Whole).await?;
        let own: Vec<Record> = until_then(own.records, until);
        if own.is_empty() && receipts.is_empty() {
            return Err(LogError::NoRun(run.clone()));
        }
        let mut gathered = Gathered { definition: None, records: Vec::new(), tombstones: Vec::new(), receipts, ended: true };
        let keys = self.run_records(&mut gathered, tenant, stream, &own).await?;
        if veil.is_some() {
            (gathered.definition, gathered.records) = (None, Vec::new());
        }
        let listed = self.ledger.all_of(Query { run: Some(run.clone()), limit: PAGE, ..Query::effects(tenant.clone()) }).await?;
        let of_receipts = gathered.receipts.iter().map(|placed| placed.receipt.effect);
        let mut keys: Vec<EffectKey> =
            keys.into_iter().chain(of_receipts).chain(listed.iter().map(|found| Digest32(found.stream.0))).collect();
        keys.sort_unstable();
        keys.dedup();
        self.effects(&mut gathered, keys, until).await?;
        let manifest = Manifest { run: Some(run.clone()), ..manifest(tenant, gathered.ended) };
        self.written(manifest, gathered, secret).await
    }

    /// Everything of one effect.
    pub async fn export_effect(&self, tenant: &Tenant, effect: EffectKey, secret: &SecretKey) -> Result<Exported, LogError> {
        // In this order: what is there now is under a head then.
        let until = self.ledger.end().await?;
        self.seal(secret).await?;
        let mut receipts = self.of_effect(tenant, effect, None).await?;
        receipts.retain(|placed| placed.position <= until);
        let mut gathered = Gathered { definition: None, records: Vec::new(), tombstones: Vec::new(), receipts, ended: true };
        self.effects(&mut gathered, vec![effect], until).await?;
        let history = self.ledger.records(StreamId::effect(&effect), Reach::Whole).await?;
        let bodies = history.records.iter().map(|record| record.body.as_str());
        if folded(effect, bodies)?.latest().is_none_or(|opened| opened.tenant != *tenant) {
            return Err(LogError::NoEffect(effect));
        }
        let manifest = Manifest { effect: Some(effect), ..manifest(tenant, gathered.ended) };
        self.written(manifest, gathered, secret).await
    }

    /// The run's own records and its definition. Gives the effects that they name.
    async fn run_records(
        &self,
        gathered: &mut Gathered,
        tenant: &Tenant,
        stream: StreamId,
        own: &[Record],
    ) -> Result<Vec<EffectKey>, LogError> {
        let mut keys = Vec::new();
        // Without records of its own it is nothing but its effects.
        gathered.ended = own.is_empty();
        for record in own {
            let place = || format!("run {stream}, record {}", record.version.0);
            let entries: Vec<RunEntry> = codec::decode(&record.body).map_err(|error| damaged(place(), error.to_string()))?;
            for entry in entries {
                match entry {
                    RunEntry::RunStarted(started) => gathered.definition = self.definition(tenant, &started).await?,
                    RunEntry::StepBegan { what: Began::Effect { key, pure: false, .. }, .. } => keys.push(key),
                    RunEntry::RunEnded { .. } => gathered.ended = true,
                    _ => {}
                }
            }
        }
        gathered.records.extend(own.iter().map(|record| line(Of::Run, stream, record)));
        Ok(keys)
    }

    /// Functions and clients have none.
    async fn definition(&self, tenant: &Tenant, started: &Started) -> Result<Option<Definition<'static>>, LogError> {
        let (_, text) = self.ledger.newest::<serde_json::Value>(StreamId::definition(tenant, &started.definition)).await?;
        let text = text.as_ref().and_then(|text| text["text"].as_str());
        Ok(text.map(|text| Definition { workflow: Cow::Owned(started.workflow.to_string()), text: Cow::Owned(text.to_owned()) }))
    }

    /// Their records, in the order in which they began.
    async fn effects(&self, gathered: &mut Gathered, keys: Vec<EffectKey>, until: Position) -> Result<(), LogError> {
        let mut begun: BTreeMap<Position, (EffectKey, Vec<Record>)> = BTreeMap::new();
        for key in keys {
            let (history, veil) = self.ledger.read(StreamId::effect(&key), Reach::Whole).await?;
            if history.expired {
                gathered.tombstones.push(Tombstone { effect: key, records: history.version.0 });
                continue;
            }
            let records = until_then(history.records, until);
            if veil.is_some() && !records.is_empty() {
                gathered.ended &= !folded(key, records.iter().map(|record| record.body.as_str()))?.summary().open;
                gathered.tombstones.push(Tombstone { effect: key, records: records.len() as u64 });
                continue;
            }
            if let Some(first) = records.first() {
                begun.insert(first.position, (key, records));
            }
        }
        for (key, records) in begun.into_values() {
            // Nothing happens to it any more by itself.
            gathered.ended &= !folded(key, records.iter().map(|record| record.body.as_str()))?.summary().open;
            gathered.records.extend(records.iter().map(|record| line(Of::Effect, StreamId::effect(&key), record)));
        }
        Ok(())
    }

    async fn written(&self, manifest: Manifest<'static>, gathered: Gathered, secret: &SecretKey) -> Result<Exported, LogError> {
        let Gathered { definition, records, tombstones, mut receipts, .. } = gathered;
        let proven = self.prove_all(&receipts).await?;
        let (leaves, log) = match proven {
            Some((leaves, hashes, kept)) => (leaves, Some((Proof { hashes }, kept.head))),
            None => (Vec::new(), None),
        };
        let receipts = leaves.into_iter().zip(&mut receipts);
        let receipts = receipts.map(|(leaf, placed)| ReceiptLine { leaf, text: Cow::Owned(std::mem::take(&mut placed.text)) }).collect();
        let contents = Contents { manifest: manifest.clone(), definition, records, tombstones, receipts, log };
        let text = bundle::write(contents, secret);
        let root = bundle::root_of(&text).ok_or_else(|| damaged("bundle".into(), "it has no seal".into()))?;
        Ok(Exported { text, manifest, root })
    }
}

fn manifest(tenant: &Tenant, ended: bool) -> Manifest<'static> {
    Manifest { format: FORMAT.into(), tenant: tenant.clone(), run: None, effect: None, ended, records: 0, tombstones: 0, receipts: 0 }
}

fn until_then(mut records: Vec<Record>, until: Position) -> Vec<Record> {
    records.retain(|record| record.position <= until);
    records
}

fn line(of: Of, stream: StreamId, record: &Record) -> RecordLine<'static> {
    RecordLine { of, stream: Digest32(stream.0), version: record.version.0, at: record.at, body: Cow::Owned(record.body.clone()) }
}

fn folded<'a>(key: EffectKey, bodies: impl Iterator<Item = &'a str>) -> Result<Effect, LogError> {
    let mut effect = Effect::absent(key);
    for body in bodies {
        effect.apply_body(body).map_err(|error| damaged(format!("effect {key}"), error.to_string()))?;
    }
    Ok(effect)
}
