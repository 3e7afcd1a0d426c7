//! The tree as it is kept: in tiles of 256 hashes.
//!
//! Tile n of level 0 holds the hashes of leaves 256·n and on; a tile of level l+1 the roots of full tiles of level l, from left to right. A full tile
//! never changes, and one that is not full only grows. Any subtree is worked out from a few of them, and so is any proof, however long the log.

use std::collections::{BTreeMap, HashMap};

use counterfoil_core::ids::Digest32;

use crate::merkle::{Complete, Frontier, Span, join, node_hash};

/// Hashes in a full tile.
pub const WIDTH: usize = 1 << BITS;
const BITS: u32 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TileId {
    pub level: u32,
    pub index: u64,
}

impl TileId {
    /// Where a leaf's hash is: its tile, and its place there.
    pub fn of_leaf(leaf: u64) -> (Self, usize) {
        (Self { level: 0, index: leaf >> BITS }, leaf as usize % WIDTH)
    }

    /// How many hashes it has in a log of `size` leaves.
    pub fn filled(self, size: u64) -> usize {
        let hashes = size.checked_shr(BITS * self.level).unwrap_or(0);
        usize::try_from(hashes.saturating_sub(self.index << BITS)).map_or(WIDTH, |filled| filled.min(WIDTH))
    }
}

/// Every tile of a log of `size` leaves, level by level.
pub fn all(size: u64) -> impl Iterator<Item = TileId> {
    let levels = (0..).map_while(move |level| size.checked_shr(BITS * level).filter(|hashes| *hashes > 0).map(|hashes| (level, hashes)));
    levels.flat_map(|(level, hashes)| (0..hashes.div_ceil(WIDTH as u64)).map(move |index| TileId { level, index }))
}

/// Where the hashes of a complete subtree's parts are: 2^height of them.
struct Place {
    tile: TileId,
    from: usize,
    height: u32,
}

fn place_of(part: Complete) -> Place {
    let (level, height) = (part.level / BITS, part.level % BITS);
    let first = part.index << height;
    Place { tile: TileId { level, index: first >> BITS }, from: first as usize % WIDTH, height }
}

/// The tiles that the hashes of these spans are worked out from.
pub fn needed(spans: &[Span]) -> Vec<TileId> {
    let mut tiles: Vec<TileId> = spans.iter().flat_map(|span| span.complete()).map(|part| place_of(part).tile).collect();
    tiles.sort_unstable();
    tiles.dedup();
    tiles
}

/// Some tiles of a log.
#[derive(Debug, Clone, Default)]
pub struct Tiles(HashMap<TileId, Vec<Digest32>>);

impl Tiles {
    pub fn insert(&mut self, tile: TileId, hashes: Vec<Digest32>) {
        self.0.insert(tile, hashes);
    }

    pub fn contains(&self, tile: &TileId) -> bool {
        self.0.contains_key(tile)
    }

    /// The hash of a span. `Err`: a tile that is not here, or lacks a hash.
    pub fn hash(&self, span: Span) -> Result<Digest32, TileId> {
        let parts: Vec<Digest32> = span.complete().into_iter().map(|part| self.part(part)).collect::<Result<_, _>>()?;
        Ok(join(parts.into_iter()).unwrap_or_else(crate::merkle::empty_root))
    }

    pub fn hashes(&self, spans: &[Span]) -> Result<Vec<Digest32>, TileId> {
        spans.iter().map(|span| self.hash(*span)).collect()
    }

    fn part(&self, part: Complete) -> Result<Digest32, TileId> {
        let Place { tile, from, height } = place_of(part);
        let hashes = self.0.get(&tile).and_then(|hashes| hashes.get(from..from + (1 << height)));
        hashes.map(root_of_power).ok_or(tile)
    }
}

/// The root above 2^n hashes.
fn root_of_power(hashes: &[Digest32]) -> Digest32 {
    match hashes {
        [one] => *one,
        _ => {
            let (left, right) = hashes.split_at(hashes.len() / 2);
            node_hash(&root_of_power(left), &root_of_power(right))
        }
    }
}

/// The right edge of a log: where leaves are added.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edge {
    size: u64,
    /// Of each level, the hashes of the tile that is not full yet.
    open: Vec<Vec<Digest32>>,
    /// What was added, by tile.
    added: BTreeMap<TileId, Vec<Digest32>>,
}

/// The tiles that the edge of a log of `size` leaves is made of.
pub fn edge_tiles(size: u64) -> Vec<TileId> {
    (0..u64::BITS / BITS)
        .map(|level| (level, size >> (BITS * level)))
        .filter(|(_, hashes)| !(*hashes as usize).is_multiple_of(WIDTH))
        .map(|(level, hashes)| TileId { level, index: hashes >> BITS })
        .collect()
}

impl Edge {
    /// Of a log of `size` leaves, from the tiles that [`edge_tiles`] names. `Err`: the tile that is not here, or not of the right length.
    pub fn of(size: u64, tiles: &Tiles) -> Result<Self, TileId> {
        let mut open: Vec<Vec<Digest32>> = Vec::new();
        for tile in edge_tiles(size) {
            let hashes = tiles.0.get(&tile).filter(|hashes| hashes.len() == tile.filled(size)).ok_or(tile)?;
            open.resize(tile.level as usize + 1, Vec::new());
            open[tile.level as usize] = hashes.clone();
        }
        Ok(Self { size, open, added: BTreeMap::new() })
    }

    pub fn push(&mut self, leaf: Digest32) {
        self.size += 1;
        let mut hash = leaf;
        for level in 0u32.. {
            if self.open.len() <= level as usize {
                self.open.push(Vec::new());
            }
            let index = ((self.size - 1) >> (BITS * level)) >> BITS;
            self.added.entry(TileId { level, index }).or_default().push(hash);
            let tile = &mut self.open[level as usize];
            tile.push(hash);
            if tile.len() < WIDTH {
                break;
            }
            hash = root_of_power(tile);
            tile.clear();
        }
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn root(&self) -> Digest32 {
        let parts = self.open.iter().rev().flat_map(|tile| {
            let complete = Span::whole(tile.len() as u64).complete();
            complete.into_iter().map(|part| root_of_power(&tile[(part.index as usize) << part.level..][..1 << part.level]))
        });
        let parts: Vec<Digest32> = parts.collect();
        Frontier::new(self.size, parts).map_or_else(crate::merkle::empty_root, |frontier| frontier.root())
    }

    /// What was added since it was made: the hashes behind those that each tile had.
    pub fn into_added(self) -> BTreeMap<TileId, Vec<Digest32>> {
        self.added
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::merkle::{Seen, consistency, cover, inclusion, is_consistent, leaf_hash, root_of_cover, root_of_inclusion};

    fn leaf(n: u64) -> Digest32 {
        leaf_hash(&n.to_be_bytes())
    }

    /// A log as its owner keeps it.
    #[derive(Default)]
    struct Kept {
        size: u64,
        tiles: Tiles,
    }

    impl Kept {
        /// Adds leaves as a sealing does: from the edge alone.
        fn grow(&mut self, by: u64) -> Digest32 {
            let mut edge = Edge::of(self.size, &self.tiles).unwrap();
            (self.size..self.size + by).for_each(|n| edge.push(leaf(n)));
            let root = edge.root();
            self.size = edge.size();
            for (tile, hashes) in edge.into_added() {
                self.tiles.0.entry(tile).or_default().extend(hashes);
            }
            root
        }
    }

    /// What the tree should be, without any tile.
    fn plain(size: u64) -> Digest32 {
        let mut tree = Frontier::default();
        (0..size).for_each(|n| tree.push(leaf(n)));
        tree.root()
    }

    #[test]
    fn a_log_beyond_two_levels_of_tiles() {
        let mut kept = Kept::default();
        for by in [1, 255, 1, 65_279, 1, 4_000] {
            assert_eq!(kept.grow(by), plain(kept.size), "size {}", kept.size);
        }
        assert_eq!(all(kept.size).count(), kept.tiles.0.len());
        for tile in all(kept.size) {
            assert_eq!(kept.tiles.0[&tile].len(), tile.filled(kept.size), "{tile:?}");
        }
        let root = plain(kept.size);
        for n in [0, 255, 256, 65_535, 65_536, kept.size - 1] {
            let proof = kept.tiles.hashes(&inclusion(n, kept.size)).unwrap();
            assert_eq!(root_of_inclusion(leaf(n), n, kept.size, &proof), Some(root));
        }
        assert_eq!(Tiles::default().hash(Span::whole(300)), Err(TileId { level: 1, index: 0 }));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn proofs_come_from_the_tiles_that_are_named(
            steps in proptest::collection::vec(1u64..700, 1..6), picks in proptest::collection::btree_set(0u64..3000, 1..20), old in 1u64..3000,
        ) {
            let mut kept = Kept::default();
            for by in &steps { kept.grow(*by); }
            let (size, root) = (kept.size, plain(kept.size));
            let only = |spans: &[Span]| {
                let tiles = needed(spans).into_iter().map(|tile| (tile, kept.tiles.0[&tile].clone())).collect();
                Tiles(tiles).hashes(spans).unwrap()
            };
            let picked: Vec<u64> = picks.into_iter().map(|n| n % size).collect::<std::collections::BTreeSet<_>>().into_iter().collect();
            for n in &picked {
                prop_assert_eq!(root_of_inclusion(leaf(*n), *n, size, &only(&inclusion(*n, size))), Some(root));
            }
            let known: Vec<(u64, Digest32)> = picked.iter().map(|n| (*n, leaf(*n))).collect();
            prop_assert_eq!(root_of_cover(&known, size, &only(&cover(&picked, size))), Some(root));
            let old = 1 + old % size;
            let (before, after) = (Seen { size: old, root: plain(old) }, Seen { size, root });
            prop_assert!(is_consistent(before, after, &only(&consistency(old, size))));
        }
    }
}
