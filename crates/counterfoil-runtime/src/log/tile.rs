//! Tiles as they are kept: each sealing adds a record, until there are 256 hashes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use counterfoil_core::ids::Digest32;
use counterfoil_core::{StreamId, codec};
use counterfoil_evidence::tiles::{TileId, Tiles};
use counterfoil_store::{Reach, Version};
use serde::{Deserialize, Serialize};

use super::{Log, LogError, damaged};

/// What one sealing added to a tile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Added {
    /// The head that was sealed with it.
    pub head: u64,
    pub hashes: Vec<Digest32>,
    /// Of level 0: where in the ledger the receipts are, as position and how many of the leaves. A hint: a copy has other positions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub positions: Vec<(u64, u64)>,
}

/// A tile as it stands.
#[derive(Debug, Clone, Default)]
pub struct Tile {
    pub version: Version,
    pub hashes: Vec<Digest32>,
    /// Of level 0, for each leaf.
    pub positions: Vec<u64>,
    /// For each leaf: the first head above it.
    pub heads: Vec<u64>,
}

impl Log {
    pub async fn tile(&self, id: TileId) -> Result<Tile, LogError> {
        let history = self.ledger.records(StreamId::tile(id.level, id.index), Reach::Whole).await?;
        let mut tile = Tile { version: history.version, ..Tile::default() };
        for record in &history.records {
            let place = || format!("tile {} of level {}, record {}", id.index, id.level, record.version.0);
            let added: Vec<Added> = codec::decode(&record.body).map_err(|error| damaged(place(), error.to_string()))?;
            for Added { head, hashes, positions } in added {
                tile.heads.extend(hashes.iter().map(|_| head));
                tile.hashes.extend(hashes);
                let each =
                    positions.iter().flat_map(|(position, count)| std::iter::repeat_n(*position, usize::try_from(*count).unwrap_or(0)));
                tile.positions.extend(each);
            }
        }
        Ok(tile)
    }
}

/// Tiles that were read already, for one question.
#[derive(Default)]
pub struct Shelf {
    read: HashMap<TileId, Tile>,
}

impl Shelf {
    pub async fn get(&mut self, log: &Log, id: TileId) -> Result<&Tile, LogError> {
        Ok(match self.read.entry(id) {
            Entry::Occupied(read) => read.into_mut(),
            Entry::Vacant(unread) => unread.insert(log.tile(id).await?),
        })
    }

    pub async fn tiles(&mut self, log: &Log, ids: &[TileId]) -> Result<Tiles, LogError> {
        let mut tiles = Tiles::default();
        for id in ids {
            tiles.insert(*id, self.get(log, *id).await?.hashes.clone());
        }
        Ok(tiles)
    }
}
