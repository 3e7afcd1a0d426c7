//! What belongs to a finished run: its entries, its effects and what undid them, its receipts, its definition.
//!
//! A run is left where it is while anything still needs it: it or an effect of it is not at rest, or a run that has not ended came from it.

use std::collections::BTreeSet;

use counterfoil_core::ids::{Digest32, WorkflowName};
use counterfoil_core::receipt::{self, ChainHead};
use counterfoil_core::run::entry::{Began, By};
use counterfoil_core::run::{Run, RunEntry};
use counterfoil_core::summary::StreamKind;
use counterfoil_core::veil::{is_veiled, subject_of};
use counterfoil_core::{Effect, Entry, RunId, StreamId, Tenant, codec};
use counterfoil_store::{Found, History, Query, Reach, Store, StoreError};

use super::format::{Kept, RunHead};

/// Runs in these states are over for good. One whose undo failed waits for a person.
pub const ENDS: [&str; 4] = ["completed", "failed", "cancelled", "compensated"];
const OPEN: [&str; 5] = ["running", "waiting", "cancelling", "compensating", "compensation_failed"];

/// A finished run, whole.
pub struct Gathered {
    pub head: RunHead,
    /// In the order of the ledger.
    pub records: Vec<Kept>,
}

/// Why a run stays.
pub type Stays = String;

/// Runs that others, which have not ended, came from or belong to.
#[derive(Default)]
pub struct Needed {
    pub runs: BTreeSet<RunId>,
    /// Whose runs have not ended that nobody can look into: any veiled run of the same subject may be one of those.
    subjects: BTreeSet<StreamId>,
}

pub async fn needed(store: &dyn Store, tenant: &Tenant) -> Result<Needed, StoreError> {
    let mut needed = Needed::default();
    let mut below = None;
    loop {
        let query = Query { kind: StreamKind::Run, states: OPEN.to_vec(), below, limit: 500, ..Query::effects(tenant.clone()) };
        let page = store.search(query).await?;
        for found in &page.found {
            let history = store.load(found.stream, Reach::Whole).await?;
            needed.subjects.extend(history.records.first().and_then(|first| subject_of(&first.body).ok().flatten()));
            let Some(Ok((started, _))) = history.records.first().map(|first| Run::begun(&first.body)) else { continue };
            needed.runs.extend(started.parent.iter().map(|parent| parent.run.clone()));
            needed.runs.extend(started.forked.iter().map(|forked| forked.run.clone()));
            needed.runs.extend(children(&history));
        }
        below = page.next;
        if below.is_none() {
            return Ok(needed);
        }
    }
}

/// The runs that are steps of this one.
fn children(history: &History) -> Vec<RunId> {
    let entries = history.records.iter().filter_map(|record| codec::decode::<RunEntry>(&record.body).ok()).flatten();
    entries
        .filter_map(|entry| match entry {
            RunEntry::StepBegan { what: Began::Child { run }, .. } => Some(run),
            _ => None,
        })
        .collect()
}

pub async fn gather(store: &dyn Store, tenant: &Tenant, found: &Found, needed: &Needed) -> Result<Result<Gathered, Stays>, StoreError> {
    let history = store.load(found.stream, Reach::Whole).await?;
    let mut records = Vec::new();
    let (head, mut keys) = if veiled(&history) {
        let mut subjects = history.records.iter().filter_map(|record| subject_of(&record.body).ok().flatten());
        if subjects.any(|subject| needed.subjects.contains(&subject)) {
            return Ok(Err("it is veiled, and a run of its subject that has not ended may have come from it".into()));
        }
        let Some(head) = veiled_head(found) else { return Ok(Err("it is veiled, and the ledger does not list what it ran by".into())) };
        match listed(store, tenant, &head.run).await? {
            Ok(keys) => (head, keys),
            Err(why) => return Ok(Err(why)),
        }
    } else {
        let run = match folded(&history) {
            Ok(run) => run,
            Err(why) => return Ok(Err(why)),
        };
        let Some((ended, _)) = run.end else { return Ok(Err("it has not ended".into())) };
        if run.started.by == By::Plan {
            let stream = StreamId::definition(tenant, &run.started.definition);
            keep(stream, StreamKind::Workflow, &store.load(stream, Reach::Whole).await?, &mut records);
        }
        let (state, started) = (run.state().word().into(), &run.started);
        let (run, workflow) = (started.run.clone(), started.workflow.clone());
        (RunHead { run, workflow, state, ended }, effects_of(&history).collect())
    };
    let chain = StreamId::chain(tenant, Some(&head.run));
    let chained = store.load(chain, Reach::Whole).await?;
    let follows = receipt::follow(ChainHead::default(), chained.records.iter().map(|record| record.body.as_str()));
    match follows {
        Ok((_, receipts)) => keys.extend(receipts.into_iter().map(|receipt| receipt.effect)),
        Err(error) => return Ok(Err(format!("its receipts do not hold: {error}"))),
    }
    keep(chain, StreamKind::Chain, &chained, &mut records);
    keep(found.stream, StreamKind::Run, &history, &mut records);
    let mut waiting: Vec<Digest32> = keys.iter().copied().collect();
    while let Some(key) = waiting.pop() {
        let stream = StreamId::effect(&key);
        let history = store.load(stream, Reach::Whole).await?;
        if veiled(&history) {
            keep(stream, StreamKind::Effect, &history, &mut records);
            continue;
        }
        let mut effect = Effect::absent(key);
        for record in &history.records {
            if let Err(error) = effect.apply_body(&record.body) {
                return Ok(Err(format!("its effect {key} cannot be read: {error}")));
            }
            // What undoes an effect is one of its own.
            let entries = codec::decode::<Entry>(&record.body).into_iter().flatten();
            waiting.extend(entries.filter_map(|entry| match entry {
                Entry::UndoStarted { undo, .. } => keys.insert(undo).then_some(undo),
                _ => None,
            }));
        }
        if effect.latest().is_some() && effect.summary().open {
            return Ok(Err(format!("its effect {key} is {}", effect.state.word())));
        }
        keep(stream, StreamKind::Effect, &history, &mut records);
    }
    records.sort_by_key(|kept| (kept.position, kept.stream));
    Ok(Ok(Gathered { head, records }))
}

/// Only its subject's key lets anyone look into it: it is kept as it is.
fn veiled(history: &History) -> bool {
    history.records.iter().any(|record| is_veiled(&record.body))
}

/// What the ledger lists of a run that nobody can look into.
fn veiled_head(found: &Found) -> Option<RunHead> {
    let (run, workflow) = (found.summary.run.clone()?, WorkflowName::new(found.summary.tool.as_ref()?.as_str()).ok()?);
    Some(RunHead { run, workflow, state: found.summary.state.into(), ended: found.at })
}

/// Its effects, as the ledger lists them.
async fn listed(store: &dyn Store, tenant: &Tenant, run: &RunId) -> Result<Result<BTreeSet<Digest32>, Stays>, StoreError> {
    let mut keys = BTreeSet::new();
    let mut below = None;
    loop {
        let page = store.search(Query { run: Some(run.clone()), below, limit: 500, ..Query::effects(tenant.clone()) }).await?;
        for found in &page.found {
            if found.summary.open {
                return Ok(Err(format!("its effect {} is {}", found.stream, found.summary.state)));
            }
            keys.insert(Digest32(found.stream.0));
        }
        below = page.next;
        if below.is_none() {
            return Ok(Ok(keys));
        }
    }
}

fn keep(stream: StreamId, kind: StreamKind, history: &History, records: &mut Vec<Kept>) {
    records.extend(history.records.iter().map(|record| Kept {
        stream: Digest32(stream.0),
        kind: kind as u8,
        version: record.version.0,
        position: record.position.0,
        at: record.at,
        body: record.body.clone(),
    }));
}

fn effects_of(history: &History) -> impl Iterator<Item = Digest32> {
    let entries = history.records.iter().filter_map(|record| codec::decode::<RunEntry>(&record.body).ok()).flatten();
    entries.filter_map(|entry| match entry {
        RunEntry::StepBegan { what: Began::Effect { key, pure: false, .. }, .. } => Some(key),
        _ => None,
    })
}

fn folded(history: &History) -> Result<Run, String> {
    let mut run: Option<Run> = None;
    for record in &history.records {
        let read = match &mut run {
            Some(run) => run.apply_body(&record.body),
            None => Run::begun(&record.body).and_then(|(started, rest)| run.insert(Run::new(started, None)).apply(&rest)),
        };
        read.map_err(|error| format!("it cannot be read: {error}"))?;
    }
    run.ok_or_else(|| "it has no records".into())
}
