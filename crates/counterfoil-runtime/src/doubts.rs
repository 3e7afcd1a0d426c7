//! How many doubts are open, for whoever watches.
//!
//! A store lists per tenant, and nobody has a list of tenants; so those are asked about that this process was told of or has seen: see
//! [`Runtime::know_tenants`]. A tenant's open doubts are found among its open streams, which are few: no scan of the ledger.

use std::time::Duration;

use counterfoil_core::effect::State;
use counterfoil_core::{StreamId, Timestamp};
use counterfoil_store::Query;

use crate::ledger::LedgerError;
use crate::runtime::Runtime;

/// Tenants asked about at one look.
const TENANTS_MAX: usize = 1000;
/// Doubts counted per tenant. More than this is as alarming as this.
const COUNTED_MAX: usize = 1000;
/// Doubts that are read to find out since when they are open: those that changed longest ago. A probe changes a doubt and does not renew it.
const READ_MAX: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Doubts {
    pub open: usize,
    /// Since the oldest began. Exact up to [`READ_MAX`] open doubts.
    pub oldest: Duration,
}

pub async fn count(runtime: &Runtime) -> Result<Doubts, LedgerError> {
    let inner = &runtime.inner;
    let mut found: Vec<(Timestamp, StreamId)> = Vec::new();
    for tenant in inner.known_tenants().into_iter().take(TENANTS_MAX) {
        let query = Query { states: vec!["in_doubt"], limit: COUNTED_MAX, ..Query::effects(tenant) };
        found.extend(inner.ledger.search(query).await?.found.into_iter().map(|doubt| (doubt.at, doubt.stream)));
    }
    found.sort_unstable();
    let now = inner.clock.now();
    let mut oldest = Duration::ZERO;
    for (_, stream) in found.iter().take(READ_MAX) {
        if let State::InDoubt(doubt) = &inner.ledger.load(counterfoil_core::ids::Digest32(stream.0)).await?.state {
            oldest = oldest.max(now.since(doubt.since));
        }
    }
    Ok(Doubts { open: found.len(), oldest })
}
