//! Proofs from the tiles: that a receipt is in the log, that several are, that one log begins with another.

use counterfoil_core::ids::Digest32;
use counterfoil_evidence::merkle::{Span, consistency, cover, inclusion};
use counterfoil_evidence::proof::{ConsistencyProof, ReceiptProof};
use counterfoil_evidence::tiles::{TileId, needed};

use super::find::Placed;
use super::tile::Shelf;
use super::{Kept, Log, LogError};

const LATER: &str = "the next sealing puts it there; `counterfoil receipts seal` does so now";

impl Log {
    /// That the receipt stands in the log, under the newest head.
    pub async fn prove(&self, placed: &Placed) -> Result<ReceiptProof<'static>, LogError> {
        let not_sealed = || LogError::NotSealed { id: placed.receipt.id, why: LATER };
        let newest = self.newest_head().await?.ok_or_else(not_sealed)?;
        let mut shelf = Shelf::default();
        let leaf = self.leaf(&mut shelf, placed, newest.head.size).await?.ok_or_else(not_sealed)?;
        let hashes = self.hashes(&mut shelf, &inclusion(leaf, newest.head.size)).await?;
        Ok(ReceiptProof::new(placed.text.clone(), leaf, hashes, newest.head))
    }

    /// That the log of the newer head begins with that of the older one.
    pub async fn consistency(&self, old: &Kept, new: &Kept) -> Result<ConsistencyProof<'static>, LogError> {
        let hashes = self.hashes(&mut Shelf::default(), &consistency(old.head.size, new.head.size)).await?;
        Ok(ConsistencyProof::new(old.head.clone(), new.head.clone(), hashes))
    }

    /// That all of these stand in the log: where, and the hashes beside them, under the first head that is above them all. So the proof stays the same however the
    /// log grows.
    pub(super) async fn prove_all(&self, receipts: &[Placed]) -> Result<Option<(Vec<u64>, Vec<Digest32>, Kept)>, LogError> {
        let Some(last) = receipts.iter().max_by_key(|placed| (placed.position, placed.index)) else { return Ok(None) };
        let not_sealed = |placed: &Placed| LogError::NotSealed { id: placed.receipt.id, why: LATER };
        let newest = self.newest_head().await?.ok_or_else(|| not_sealed(last))?;
        let mut shelf = Shelf::default();
        let mut leaves = Vec::with_capacity(receipts.len());
        for placed in receipts {
            leaves.push(self.leaf(&mut shelf, placed, newest.head.size).await?.ok_or_else(|| not_sealed(placed))?);
        }
        let highest = leaves.iter().copied().max().ok_or_else(|| not_sealed(last))?;
        let (tile, at) = TileId::of_leaf(highest);
        let number = shelf.get(self, tile).await?.heads.get(at).copied().ok_or_else(|| not_sealed(last))?;
        let first = self.head(number).await?;
        let mut ascending = leaves.clone();
        ascending.sort_unstable();
        let hashes = self.hashes(&mut shelf, &cover(&ascending, first.head.size)).await?;
        Ok(Some((leaves, hashes, first)))
    }

    async fn hashes(&self, shelf: &mut Shelf, spans: &[Span]) -> Result<Vec<Digest32>, LogError> {
        let tiles = shelf.tiles(self, &needed(spans)).await?;
        tiles.hashes(spans).map_err(|tile| LogError::Unsound {
            place: format!("tile {} of level {}", tile.index, tile.level),
            message: "hashes are missing in it".into(),
        })
    }
}
