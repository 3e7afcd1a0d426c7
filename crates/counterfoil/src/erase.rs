//! Erasing a subject: its key is destroyed, so that nobody can read any more what was recorded of it.
//!
//! What must stay true: nothing that is not at rest loses its key, for nobody could end it then; and chains, receipts and identities stay as they are.
//! Asked for again, it is the same erasure: an interrupted one is completed.

use counterfoil_core::ids::Digest32;
use counterfoil_core::redact::Salt;
use counterfoil_core::summary::StreamKind;
use counterfoil_core::veil::{self, Erased};
use counterfoil_core::{StreamId, Summary, Tenant, Timestamp, codec};
use counterfoil_store::{AppendError, Batch, Graves, Query, Reach, Store, StoreError, Tombstone, Version, Write};
use serde::Serialize;
use thiserror::Error;

/// States in which something or someone still has to act.
const OPEN: [(StreamKind, &[&str]); 2] = [
    (StreamKind::Effect, &["waiting_approval", "ready", "running", "retrying", "in_doubt", "undoing", "undo_failed"]),
    (StreamKind::Run, &["running", "waiting", "cancelling", "compensating", "compensation_failed"]),
];
const PAGE: usize = 500;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Erasure {
    /// The stream that held the key: what veiled records name.
    pub subject: Digest32,
    pub at: Timestamp,
    /// It was erased before; nothing was changed now.
    pub before: bool,
}

/// What stands in the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InUse {
    /// `effect` or `run`.
    pub what: &'static str,
    /// The effect's key or the run's id.
    pub id: String,
    pub state: &'static str,
}

#[derive(Debug, Error)]
pub enum EraseError {
    #[error("nothing in this ledger is recorded under that subject; nothing was changed")]
    NotFound,
    #[error("{}: end or cancel what is open first; nothing was changed", listed(.0))]
    InUse(Vec<InUse>),
    #[error("{0}; ask again: what was begun is completed")]
    Store(#[from] StoreError),
}

/// So many are named in a message; all of them are in its detail.
const NAMED_MAX: usize = 10;

fn listed(open: &[InUse]) -> String {
    let mut named: Vec<String> = open.iter().take(NAMED_MAX).map(|one| format!("the {} {} is {}", one.what, one.id, one.state)).collect();
    if open.len() > named.len() {
        named.push(format!("{} more are open", open.len() - named.len()));
    }
    named.join(", ")
}

pub async fn erase(store: &dyn Store, graves: &dyn Graves, tenant: &Tenant, subject: &str, erased: &Erased) -> Result<Erasure, EraseError> {
    let salt = salt(store).await?.ok_or(EraseError::NotFound)?;
    let stream = StreamId::subject(&salt, tenant, subject);
    let key = store.load(stream, Reach::Newest(0)).await?;
    if key.version == Version::NONE {
        return Err(EraseError::NotFound);
    }
    if !key.expired {
        let open = open(store, tenant, &stream).await?;
        if !open.is_empty() {
            return Err(EraseError::InUse(open));
        }
    }
    // Also of one that is buried: its bytes may be in the log of a store that was interrupted.
    match graves.erase(&Tombstone { stream, version: key.version }).await {
        Ok(()) => {}
        Err(AppendError::Store(error)) => return Err(error.into()),
        Err(AppendError::Conflict { .. }) => {
            return Err(StoreError::Corrupt {
                place: format!("stream {stream}"),
                message: "the subject's key is not as it was a moment ago".into(),
            }
            .into());
        }
    }
    let at = record(store, tenant, &stream, erased).await?;
    Ok(Erasure { subject: Digest32(stream.0), at, before: key.expired })
}

async fn salt(store: &dyn Store) -> Result<Option<Salt>, StoreError> {
    let history = store.load(StreamId::salt(), Reach::Newest(1)).await?;
    let Some(record) = history.records.last() else { return Ok(None) };
    let salts: Vec<Digest32> = codec::decode(&record.body)
        .map_err(|error| StoreError::Corrupt { place: "the ledger's salt".into(), message: error.to_string() })?;
    Ok(salts.last().map(|salt| Salt(salt.0)))
}

/// What is stored under the subject's key and not at rest.
async fn open(store: &dyn Store, tenant: &Tenant, subject: &StreamId) -> Result<Vec<InUse>, StoreError> {
    let mut open = Vec::new();
    for (kind, states) in OPEN {
        let mut below = None;
        loop {
            let query = Query { kind, states: states.to_vec(), below, limit: PAGE, ..Query::effects(tenant.clone()) };
            let page = store.search(query).await?;
            for found in page.found {
                let newest = store.load(found.stream, Reach::Newest(1)).await?;
                let veiled = newest.records.last().and_then(|record| veil::subject_of(&record.body).ok().flatten());
                if veiled == Some(*subject) {
                    let run = found.summary.run.as_ref().filter(|_| kind == StreamKind::Run).map(ToString::to_string);
                    let what = if run.is_some() { "run" } else { "effect" };
                    open.push(InUse { what, id: run.unwrap_or_else(|| found.stream.to_string()), state: found.summary.state });
                }
            }
            below = page.next;
            if below.is_none() {
                break;
            }
        }
    }
    Ok(open)
}

/// Once: when it was erased.
async fn record(store: &dyn Store, tenant: &Tenant, subject: &StreamId, erased: &Erased) -> Result<Timestamp, StoreError> {
    let stream = StreamId::erased(tenant, subject);
    let summary =
        Summary { kind: StreamKind::Meta, tenant: tenant.clone(), state: "", tool: None, run: None, open: false, due: None, expires: None };
    let body = codec::encode(std::slice::from_ref(erased));
    let write = Write { stream, expected: Version::NONE, at: erased.at, body, summary };
    match store.append(&Batch { writes: vec![write] }).await {
        Ok(_) => Ok(erased.at),
        Err(AppendError::Store(error)) => Err(error),
        Err(AppendError::Conflict { .. }) => {
            let known = store.load(stream, Reach::Newest(1)).await?;
            let first = known.records.last().and_then(|record| codec::decode::<Erased>(&record.body).ok()?.pop());
            Ok(first.map_or(erased.at, |first| first.at))
        }
    }
}
