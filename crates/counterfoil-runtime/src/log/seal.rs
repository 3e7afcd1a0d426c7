//! Sealing: the receipts that came since the newest head go under a new one. One append of tiles and head, or none.

use counterfoil_core::ids::Digest32;
use counterfoil_core::receipt;
use counterfoil_core::summary::StreamKind;
use counterfoil_core::{StreamId, codec};
use counterfoil_evidence::keys::SecretKey;
use counterfoil_evidence::merkle::{Seen, leaf_hash};
use counterfoil_evidence::tiles::{Edge, TileId, edge_tiles};
use counterfoil_evidence::{Head, PublicKey};
use counterfoil_store::{Position, Recorded, Version, Write};

use super::tile::{Added, Shelf};
use super::{Covered, Kept, Log, LogError, SEGMENT, damaged, everyones};
use crate::ledger::{LedgerError, plain_summary};

/// Receipts under one head, about: what one record holds is not split. Bounds how long the ledger's writer is busy with one sealing.
const LEAVES_MAX: usize = 2048;
/// Records read at once.
const PAGE: usize = 500;

/// What a sealing did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealing {
    /// The newest head; `None`: there has never been a receipt.
    pub newest: Option<Kept>,
    /// Receipts that were put under it, or under those before it, just now.
    pub added: u64,
}

/// Receipts that are not in the log yet.
#[derive(Default)]
struct Fresh {
    leaves: Vec<Digest32>,
    /// For each, where its record is.
    positions: Vec<u64>,
    covered: Option<Covered>,
    /// Up to here the ledger was read.
    read: Position,
}

impl Log {
    /// Puts everything that is in the ledger now under heads.
    pub async fn seal(&self, secret: &SecretKey) -> Result<Sealing, LogError> {
        self.may_sign(secret.public()).await?;
        let (end, mut added) = (self.ledger.end().await?, 0);
        loop {
            let newest = self.newest().await?;
            let fresh = self.fresh(newest.as_ref().map(|(kept, _)| kept)).await?;
            if fresh.leaves.is_empty() {
                return Ok(Sealing { newest: newest.map(|(kept, _)| kept), added });
            }
            let (count, read) = (fresh.leaves.len() as u64, fresh.read);
            match self.put_under(secret, newest, fresh).await {
                Ok(kept) => {
                    added += count;
                    // What came meanwhile is left to the next sealing: a busy ledger always has more.
                    if read >= end {
                        return Ok(Sealing { newest: Some(kept), added });
                    }
                }
                // Another process was faster: what it left is looked at again.
                Err(LogError::Ledger(LedgerError::Conflict)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether there are receipts that no head is above.
    pub async fn is_behind(&self) -> Result<bool, LogError> {
        let newest = self.newest_head().await?;
        Ok(!self.fresh(newest.as_ref()).await?.leaves.is_empty())
    }

    /// A head of the same log, signed with another key than the newest one is: so that whoever trusts the new key alone has one to go by.
    pub async fn sign_again(&self, secret: &SecretKey) -> Result<(), LogError> {
        self.may_sign(secret.public()).await?;
        loop {
            let Some((newest, version)) = self.newest().await? else { return Ok(()) };
            if newest.head.key == secret.public() {
                return Ok(());
            }
            let head = Head::sign(secret, newest.head.seen(), self.clock.now().max(newest.head.at));
            let kept = Kept { number: newest.number + 1, head, covered: newest.covered };
            match self.ledger.append(vec![self.head_write(&kept, Some(version))]).await {
                Err(LedgerError::Conflict) => {}
                written => return Ok(written?),
            }
        }
    }

    async fn may_sign(&self, key: PublicKey) -> Result<(), LogError> {
        match self.keys().await?.last() {
            Some(newest) if newest.key == key => Ok(()),
            newest => {
                Err(LogError::OtherKey { found: key.id(), newest: newest.map_or_else(|| "none yet".to_owned(), |newest| newest.key.id()) })
            }
        }
    }

    async fn put_under(&self, secret: &SecretKey, newest: Option<(Kept, Version)>, fresh: Fresh) -> Result<Kept, LogError> {
        let (size, number, at) = newest.as_ref().map_or((0, 0, self.clock.now()), |(kept, _)| (kept.head.size, kept.number, kept.head.at));
        let number = number + 1;
        let mut shelf = Shelf::default();
        let open = shelf.tiles(self, &edge_tiles(size)).await?;
        let unsound = |tile: TileId| LogError::Unsound {
            place: format!("tile {} of level {}", tile.index, tile.level),
            message: format!("it has not the {} hashes that a log of {size} receipts has there", tile.filled(size)),
        };
        let mut edge = match Edge::of(size, &open) {
            Ok(edge) => edge,
            // Another process sealed between the look at the head and the look at the tiles: they are ahead of it.
            Err(_) if self.newest_head().await?.is_some_and(|now| now.number >= number) => return Err(LedgerError::Conflict.into()),
            Err(tile) => return Err(unsound(tile)),
        };
        if newest.as_ref().is_some_and(|(kept, _)| kept.head.root != edge.root()) {
            return Err(LogError::Unsound { place: format!("head {}", number - 1), message: "its root is not that of the tiles".into() });
        }
        fresh.leaves.iter().for_each(|leaf| edge.push(*leaf));
        let head = Head::sign(secret, Seen { size: edge.size(), root: edge.root() }, self.clock.now().max(at));
        let covered = fresh.covered.ok_or_else(|| damaged("log".into(), "receipts without a record".into()))?;
        let kept = Kept { number, head, covered };
        let mut writes = Vec::new();
        let mut positions = fresh.positions.as_slice();
        for (tile, hashes) in edge.into_added() {
            // Tiles that were there before are on the shelf.
            let before = if tile.filled(size) > 0 { shelf.get(self, tile).await?.version } else { Version::NONE };
            // Level 0 comes first, and its tiles in the order of the leaves.
            let (own, rest) = positions.split_at(if tile.level == 0 { hashes.len() } else { 0 });
            positions = rest;
            let added = Added { head: number, hashes, positions: runs(own) };
            writes.push(Write {
                stream: StreamId::tile(tile.level, tile.index),
                expected: before,
                at: kept.head.at,
                body: codec::encode(&[added]),
                summary: plain_summary(StreamKind::Tile, everyones()),
            });
        }
        writes.push(self.head_write(&kept, newest.map(|(_, version)| version)));
        self.ledger.append(writes).await?;
        self.memory().read = Some((number, fresh.read));
        Ok(kept)
    }

    /// Behind the newest head, or at the beginning of the next stream of them.
    fn head_write(&self, kept: &Kept, newest: Option<Version>) -> Write {
        let expected = newest.filter(|version| version.0 < SEGMENT).unwrap_or(Version::NONE);
        Write {
            stream: StreamId::heads((kept.number - 1) / SEGMENT),
            expected,
            at: kept.head.at,
            body: codec::encode(&[kept]),
            summary: plain_summary(StreamKind::Head, everyones()),
        }
    }

    /// Receipts behind those that the newest head covers, in the order of the ledger.
    async fn fresh(&self, newest: Option<&Kept>) -> Result<Fresh, LogError> {
        let mut fresh = Fresh { read: self.read_to(newest).await?, ..Fresh::default() };
        loop {
            let page = self.ledger.tail(fresh.read, PAGE).await?;
            let Some(last) = page.last() else { break };
            let end = last.record.position;
            for recorded in &page {
                if recorded.summary.kind == StreamKind::Chain {
                    fresh.take(recorded)?;
                }
                fresh.read = recorded.record.position;
                if fresh.leaves.len() >= LEAVES_MAX {
                    return Ok(fresh);
                }
            }
            fresh.read = end;
        }
        if let (Some(newest), true) = (newest, fresh.leaves.is_empty()) {
            self.memory().read = Some((newest.number, fresh.read));
        }
        Ok(fresh)
    }

    /// Up to where every receipt is in the log.
    async fn read_to(&self, newest: Option<&Kept>) -> Result<Position, LogError> {
        let Some(Kept { number, covered, .. }) = newest else { return Ok(Position(0)) };
        if let Some((_, read)) = self.memory().read.filter(|(under, _)| under == number) {
            return Ok(read);
        }
        let there = self.ledger.tail(Position(covered.position.saturating_sub(1)), 1).await?;
        if let Some(first) = there.first().filter(|first| covered.is(first)) {
            return Ok(first.record.position);
        }
        // Chains are never pruned, so it is elsewhere: a copy has positions of its own. It is met once: the next head has these.
        let mut after = Position(0);
        loop {
            let page = self.ledger.tail(after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.record.position;
            if let Some(found) = page.iter().find(|recorded| covered.is(recorded)) {
                return Ok(found.record.position);
            }
        }
        let Covered { stream, version, .. } = covered;
        let message =
            format!("it covers receipts up to record {version} of stream {stream}, and the ledger has no such record: its end was cut off");
        Err(LogError::Unsound { place: format!("head {number}"), message })
    }
}

impl Covered {
    fn is(&self, recorded: &Recorded) -> bool {
        recorded.stream.0 == self.stream.0 && recorded.record.version.0 == self.version
    }
}

impl Fresh {
    fn take(&mut self, recorded: &Recorded) -> Result<(), LogError> {
        let Recorded { stream, record, .. } = recorded;
        let texts = receipt::texts(&record.body)
            .map_err(|error| damaged(format!("receipt chain {stream}, record {}", record.version.0), error.to_string()))?;
        self.positions.extend(texts.iter().map(|_| record.position.0));
        self.leaves.extend(texts.iter().map(|text| leaf_hash(text.as_bytes())));
        self.covered = Some(Covered { position: record.position.0, stream: Digest32(stream.0), version: record.version.0 });
        Ok(())
    }
}

/// Equal neighbours as one, with how many they are.
fn runs(positions: &[u64]) -> Vec<(u64, u64)> {
    positions.chunk_by(|a, b| a == b).map(|run| (run[0], run.len() as u64)).collect()
}
