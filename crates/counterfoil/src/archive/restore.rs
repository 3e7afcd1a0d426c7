//! Archived runs, brought into a ledger of their own, to be looked at with every command there is.
//!
//! Not into the ledger they came from: their identities are buried there, and what is buried is never free again. Records are appended as they were; one
//! that is there already is left, so that an interrupted restore goes on. Anything else in the way is a refusal.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use counterfoil_core::ids::Digest32;
use counterfoil_core::run::Run;
use counterfoil_core::summary::{StreamKind, Summary, state_word};
use counterfoil_core::veil::is_veiled;
use counterfoil_core::{Effect, RunId, StreamId, Tenant, ToolName};
use counterfoil_store::{AppendError, Batch, Reach, Store, StoreError, Version, Write};
use serde::Serialize;
use thiserror::Error;

use super::format::{Damage, Kept, KeptRun, Reader, RunHead};
use super::verify::holds;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    pub runs: u64,
    pub records: u64,
    /// Records that were there already.
    pub found: u64,
}

#[derive(Debug, Error)]
pub enum RestoreError {
    #[error("{0}")]
    File(io::Error),
    #[error("{0}; what was restored before it is whole")]
    Damaged(Damage),
    #[error("the run {run} cannot be restored here: {why}; what was restored before it is whole")]
    InTheWay { run: RunId, why: String },
    #[error("the archive has no run {0}; nothing was changed")]
    NoRun(RunId),
    #[error("stopped; what was restored is whole: the same command goes on where it stopped")]
    Stopped,
    #[error("{0}; what was restored is whole: the same command goes on where it stopped")]
    Store(#[from] StoreError),
}

/// `only`: one run. `told` hears how many runs are done.
pub async fn restore(
    path: &Path,
    store: &dyn Store,
    only: Option<&RunId>,
    mut told: impl FnMut(u64) -> ControlFlow<()>,
) -> Result<Restored, RestoreError> {
    let mut reader = Reader::open(path).map_err(RestoreError::File)?.map_err(RestoreError::Damaged)?;
    let mut restored = Restored::default();
    while let Some(run) = reader.next_run().map_err(RestoreError::Damaged)? {
        if only.is_some_and(|only| *only != run.head.run) {
            continue;
        }
        holds(&run, &reader.header.tenant).map_err(RestoreError::Damaged)?;
        bring(store, &reader.header.tenant, &run, &mut restored).await?;
        restored.runs += 1;
        if told(restored.runs).is_break() {
            return Err(RestoreError::Stopped);
        }
    }
    match only {
        Some(only) if restored.runs == 0 => Err(RestoreError::NoRun(only.clone())),
        _ => Ok(restored),
    }
}

async fn bring(store: &dyn Store, tenant: &Tenant, run: &KeptRun, restored: &mut Restored) -> Result<(), RestoreError> {
    let in_the_way = |why: String| RestoreError::InTheWay { run: run.head.run.clone(), why };
    let mut there = BTreeMap::new();
    for stream in run.records.iter().map(|kept| kept.stream) {
        if there.contains_key(&stream) {
            continue;
        }
        let history = store.load(StreamId(stream.0), Reach::Whole).await?;
        if history.expired {
            return Err(in_the_way(
                "it was archived from this ledger or pruned in it, and what is buried is never free again; restore it into a new one"
                    .into(),
            ));
        }
        there.insert(stream, history.records);
    }
    let mut states: BTreeMap<Digest32, Folding> = BTreeMap::new();
    for kept in &run.records {
        let folding = states.entry(kept.stream).or_insert_with(|| Folding::new(kept));
        let summary = folding.after(kept, tenant, &run.head).map_err(|why| in_the_way(why.to_string()))?;
        match there[&kept.stream].get(kept.version as usize - 1) {
            Some(known) if known.body == kept.body => restored.found += 1,
            Some(_) => return Err(in_the_way(format!("stream {} has another record {} there", kept.stream, kept.version))),
            None => {
                let (stream, expected) = (kept.stream(), Version(kept.version - 1));
                let write = Write { stream, expected, at: kept.at, body: kept.body.clone(), summary };
                match store.append(&Batch { writes: vec![write] }).await {
                    Ok(_) => {}
                    Err(AppendError::Conflict { .. }) => return Err(in_the_way("something else writes to this ledger".into())),
                    Err(AppendError::Store(error)) => return Err(error.into()),
                }
            }
        }
        restored.records += 1;
    }
    Ok(())
}

/// A stream while its records come in: the summary of each follows from those up to it.
enum Folding {
    Effect(Box<Effect>),
    Run(Option<Box<Run>>),
    Chain,
    Other(StreamKind),
}

impl Folding {
    fn new(first: &Kept) -> Self {
        match first.kind() {
            Some(StreamKind::Effect) => Self::Effect(Box::new(Effect::absent(first.stream))),
            Some(StreamKind::Run) => Self::Run(None),
            Some(StreamKind::Chain) => Self::Chain,
            other => Self::Other(other.unwrap_or(StreamKind::Meta)),
        }
    }

    fn after(&mut self, kept: &Kept, tenant: &Tenant, head: &RunHead) -> Result<Summary, Box<dyn std::error::Error>> {
        let plain =
            |kind| Summary { kind, tenant: tenant.clone(), state: "", tool: None, run: None, open: false, due: None, expires: None };
        let run = &head.run;
        Ok(match self {
            // Nobody can look into it here: it is listed by what the archive says of it.
            Self::Run(_) if is_veiled(&kept.body) => {
                let state = state_word(&head.state).unwrap_or("");
                let tool = ToolName::new(head.workflow.as_str()).ok();
                Summary { state, tool, run: Some(run.clone()), ..plain(StreamKind::Run) }
            }
            Self::Effect(_) if is_veiled(&kept.body) => Summary { run: Some(run.clone()), ..plain(StreamKind::Effect) },
            Self::Effect(effect) => {
                effect.apply_body(&kept.body)?;
                effect.summary()
            }
            Self::Run(None) => {
                let (started, rest) = Run::begun(&kept.body)?;
                let mut begun = Run::new(started, None);
                begun.apply(&rest)?;
                let summary = begun.summary();
                *self = Self::Run(Some(Box::new(begun)));
                summary
            }
            Self::Run(Some(run)) => {
                run.apply_body(&kept.body)?;
                run.summary()
            }
            Self::Chain => Summary { run: Some(run.clone()), ..plain(StreamKind::Chain) },
            Self::Other(kind) => plain(*kind),
        })
    }
}
