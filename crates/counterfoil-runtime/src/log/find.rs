//! Where a receipt stands: in its chain, in the ledger, in the log.
//!
//! No index leads from a receipt to its place. From an effect there is a short way: its end and the receipt were one append, so the receipt is found right behind the end.
//! From the position of its record to its leaf leads a search through the tiles, which say where their leaves come from.

use counterfoil_core::call::Call;
use counterfoil_core::ids::CallKey;
use counterfoil_core::receipt::{self, Receipt, ReceiptId};
use counterfoil_core::summary::StreamKind;
use counterfoil_core::{Caller, CanonicalJson, EffectKey, Entry, Identity, Lane, Policy, RunId, StreamId, Tenant, ToolName, codec};
use counterfoil_evidence::ends::end_of;
use counterfoil_evidence::merkle::leaf_hash;
use counterfoil_evidence::tiles::{TileId, WIDTH};
use counterfoil_store::{Position, Query, Reach, Record};

use super::tile::Shelf;
use super::{Log, LogError, damaged};

/// Records looked at behind an end for its receipt. As many as one group commit writes, at most.
const BEHIND_MAX: usize = 20_000;
const PAGE: usize = 256;
/// Receipts looked at for one that only its id is known of. Whoever knows its effect or run is not bound by this.
const READ_MAX: usize = 100_000;

/// A receipt as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    pub receipt: Receipt,
    /// Byte for byte.
    pub text: String,
    /// Of its record, and which of the receipts in it.
    pub position: Position,
    pub index: usize,
}

impl Log {
    /// All receipts of a run, in the order of their chain.
    pub async fn of_run(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<Placed>, LogError> {
        self.of_chain(StreamId::chain(tenant, Some(run))).await
    }

    async fn of_chain(&self, chain: StreamId) -> Result<Vec<Placed>, LogError> {
        let history = self.ledger.records(chain, Reach::Whole).await?;
        let mut all = Vec::new();
        for record in &history.records {
            all.extend(placed(chain, record)?);
        }
        Ok(all)
    }

    /// All receipts of an effect of this tenant, in their order. Of one whose records have expired nothing leads to its receipts but its run.
    pub async fn of_effect(&self, tenant: &Tenant, effect: EffectKey, run: Option<&RunId>) -> Result<Vec<Placed>, LogError> {
        if let Some(run) = run {
            let mut of_run = self.of_run(tenant, run).await?;
            of_run.retain(|placed| placed.receipt.effect == effect);
            return Ok(of_run);
        }
        let history = self.ledger.records(StreamId::effect(&effect), Reach::Whole).await?;
        let mut found = Vec::new();
        for record in &history.records {
            let place = || format!("effect {effect}, record {}", record.version.0);
            let entries: Vec<Entry> = codec::decode(&record.body).map_err(|error| damaged(place(), error.to_string()))?;
            let opened = entries.iter().find_map(|entry| if let Entry::Opened(opened) = entry { Some(opened) } else { None });
            if opened.is_some_and(|opened| opened.tenant != *tenant) {
                return Ok(Vec::new());
            }
            for end in entries.iter().filter_map(end_of) {
                found.push(self.behind(record.position, end.id).await?.ok_or(LogError::NoReceipt(end.id))?);
            }
        }
        Ok(found)
    }

    /// The receipt that was appended together with the record at `end`.
    async fn behind(&self, end: Position, id: ReceiptId) -> Result<Option<Placed>, LogError> {
        let (mut after, mut looked) = (end, 0);
        while looked < BEHIND_MAX {
            let page = self.ledger.tail(after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.record.position;
            looked += page.len();
            for recorded in page.iter().filter(|recorded| recorded.summary.kind == StreamKind::Chain) {
                let found = placed(recorded.stream, &recorded.record)?.into_iter().find(|placed| placed.receipt.id == id);
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
        Ok(None)
    }

    /// A receipt of which only the id is known: among the tenant's newest ones.
    pub async fn by_id(&self, tenant: &Tenant, id: ReceiptId) -> Result<Placed, LogError> {
        let mut query = Query { kind: StreamKind::Chain, limit: PAGE, ..Query::effects(tenant.clone()) };
        let mut looked = 0;
        loop {
            let page = self.ledger.search(query.clone()).await?;
            for found in &page.found {
                // Most chains are short; of a long one the newest part is looked at first.
                for reach in [Reach::Newest(64), Reach::Whole] {
                    let records = self.ledger.records(found.stream, reach).await?.records;
                    for record in records.iter().rev() {
                        let placed = placed(found.stream, record)?;
                        looked += placed.len();
                        if let Some(placed) = placed.into_iter().find(|placed| placed.receipt.id == id) {
                            return Ok(placed);
                        }
                    }
                    if records.len() < 64 || looked > READ_MAX {
                        break;
                    }
                }
                if looked > READ_MAX {
                    return Err(LogError::NoReceipt(id));
                }
            }
            query.below = page.next;
            if page.next.is_none() {
                return Err(LogError::NoReceipt(id));
            }
        }
    }

    /// The tenant's receipts of calls outside runs: lane by lane, and in the order of their ends where there are several.
    pub async fn outside_runs(&self, tenant: &Tenant) -> Result<Vec<Placed>, LogError> {
        let mut all = Vec::new();
        for lane in Lane::all() {
            all.extend(self.of_chain(StreamId::lane(tenant, lane)).await?);
        }
        all.sort_by_key(|placed| placed.position);
        Ok(all)
    }

    /// The leaf of a receipt in a log of `size` leaves. `None`: it is not in it.
    pub(super) async fn leaf(&self, shelf: &mut Shelf, placed: &Placed, size: u64) -> Result<Option<u64>, LogError> {
        let hash = leaf_hash(placed.text.as_bytes());
        let tiles = size.div_ceil(WIDTH as u64);
        // The first tile whose last leaf does not come before it.
        let (mut low, mut high) = (0, tiles);
        while low < high {
            let middle = low + (high - low) / 2;
            let last = shelf.get(self, TileId { level: 0, index: middle }).await?.positions.last().copied();
            match last.is_some_and(|last| last < placed.position.0) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        if low < tiles {
            let positions = &shelf.get(self, TileId { level: 0, index: low }).await?.positions;
            let first = positions.partition_point(|position| *position < placed.position.0) as u64;
            let leaf = low * WIDTH as u64 + first + placed.index as u64;
            if leaf < size && self.hash_at(shelf, leaf).await? == Some(hash) {
                return Ok(Some(leaf));
            }
        }
        // The positions are those of the store that this one was copied from: then each leaf is looked at.
        for index in 0..tiles {
            let hashes = &shelf.get(self, TileId { level: 0, index }).await?.hashes;
            if let Some(at) = hashes.iter().position(|other| *other == hash) {
                let leaf = index * WIDTH as u64 + at as u64;
                return Ok((leaf < size).then_some(leaf));
            }
        }
        Ok(None)
    }

    async fn hash_at(&self, shelf: &mut Shelf, leaf: u64) -> Result<Option<counterfoil_core::ids::Digest32>, LogError> {
        let (tile, at) = TileId::of_leaf(leaf);
        Ok(shelf.get(self, tile).await?.hashes.get(at).copied())
    }
}

/// The key of the effect that a caller's own key stands for.
pub fn effect_of_key(tenant: &Tenant, tool: &ToolName, key: &CallKey) -> EffectKey {
    let call = Call {
        tenant: tenant.clone(),
        caller: Caller::new("anyone").expect("a plain word"),
        tool: tool.clone(),
        args: CanonicalJson::empty_object(),
        key: Some(key.clone()),
        run: None,
        step: None,
        ordinal: 0,
    };
    match call.identity(&call.args, &Policy::default()) {
        Ok(Identity::Fixed(effect)) => effect,
        _ => unreachable!("a call with a key of its caller's has one effect"),
    }
}

/// The receipts of a chain record.
pub fn placed(chain: StreamId, record: &Record) -> Result<Vec<Placed>, LogError> {
    let damaged = |error: String| damaged(format!("receipt chain {chain}, record {}", record.version.0), error);
    let texts = receipt::texts(&record.body).map_err(|error| damaged(error.to_string()))?;
    let each = texts.iter().enumerate().map(|(index, text)| {
        let receipt = serde_json::from_str(text).map_err(|error| damaged(error.to_string()))?;
        Ok(Placed { receipt, text: (*text).to_owned(), position: record.position, index })
    });
    each.collect()
}
