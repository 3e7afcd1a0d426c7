//! The log of receipts, held against the receipts themselves: every leaf, tile and head.
//!
//! Heads and tiles are read before the receipts, so that in a ledger that is in use every receipt they cover is met. What must stay true: a changed, missing or added receipt
//! is told by its place in the log and in the ledger. A tail that was cut together with its heads leaves no trace in the ledger: only a head that was
//! kept elsewhere shows it.

use std::collections::BTreeMap;

use counterfoil_core::ids::Digest32;
use counterfoil_core::receipt;
use counterfoil_core::summary::StreamKind;
use counterfoil_core::{StreamId, codec};
use counterfoil_evidence::keys::{Introduced, first_unvouched, introduction};
use counterfoil_evidence::merkle::{Frontier, leaf_hash};
use counterfoil_evidence::tiles::{self, Edge, TileId};
use counterfoil_evidence::{Head, PublicKey};
use counterfoil_runtime::log::{Added, Kept, kept};
use counterfoil_store::spread::Set;
use counterfoil_store::{Position, Reach, Recorded, Store, StoreError};

use super::Problem;

const PAGE: usize = 500;

/// What is known from elsewhere.
#[derive(Debug, Clone, Default)]
pub struct Against {
    /// Keys that the newest head must be signed with: one of them, or one that they vouch for.
    pub trusted: Vec<PublicKey>,
    /// A head that was kept.
    pub head: Option<Head>,
}

/// What was found, beside problems.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    pub receipts: u64,
    pub heads: u64,
    /// Under the newest head.
    pub sealed: u64,
    /// What holds, and should be known all the same.
    pub notes: Vec<String>,
}

/// The log as it is kept.
#[derive(Default)]
pub struct Log {
    keys: Vec<Introduced>,
    heads: Vec<Kept>,
    tiles: BTreeMap<TileId, Vec<Digest32>>,
    /// For each leaf, the head that its tile says is the first above it.
    sealed_by: Vec<u64>,
    streams: Set,
    /// The receipts, in the order of the ledger, each with the position of its record.
    leaves: Vec<(Digest32, u64)>,
    /// The newest head that a tile speaks of, and how many heads there are: both from the ledger's order, in which a sealing is one append.
    spoken_of: u64,
    met: u64,
    /// For each head, the record that brought the last of its leaves.
    reached: Vec<(StreamId, u64)>,
    problems: Vec<Problem>,
}

impl Log {
    pub async fn read(store: &dyn Store) -> Result<Self, StoreError> {
        let mut log = Self::default();
        for (version, body) in log.bodies(store, StreamId::keys()).await? {
            match codec::decode::<Introduced>(&body) {
                Ok(keys) => log.keys.extend(keys),
                Err(error) => log.problem(format!("key {version}"), error.to_string()),
            }
        }
        for segment in 0.. {
            let bodies = log.bodies(store, StreamId::heads(segment)).await?;
            if bodies.is_empty() {
                break;
            }
            for (_, body) in bodies {
                let number = log.heads.len() as u64 + 1;
                match kept(number, &body) {
                    Ok(head) => log.heads.push(head),
                    Err(error) => {
                        log.problem(format!("head {number}"), error.to_string());
                        break;
                    }
                }
            }
        }
        let size = log.heads.last().map_or(0, |newest| newest.head.size);
        for tile in tiles::all(size) {
            let mut hashes = Vec::new();
            for (version, body) in log.bodies(store, StreamId::tile(tile.level, tile.index)).await? {
                match codec::decode::<Added>(&body) {
                    Ok(added) => {
                        for added in added {
                            if tile.level == 0 {
                                log.sealed_by.extend(added.hashes.iter().map(|_| added.head));
                            }
                            hashes.extend(added.hashes);
                        }
                    }
                    Err(error) => log.problem(format!("{}, record {version}", name(tile)), error.to_string()),
                }
            }
            // A sealing may be under way: what it adds is not under the head that was read.
            hashes.truncate(tile.filled(size));
            log.tiles.insert(tile, hashes);
        }
        Ok(log)
    }

    /// What cannot be read is a problem, and no reason to stop.
    async fn bodies(&mut self, store: &dyn Store, stream: StreamId) -> Result<Vec<(u64, String)>, StoreError> {
        self.streams.insert(stream);
        match store.load(stream, Reach::Whole).await {
            Ok(history) => Ok(history.records.into_iter().map(|record| (record.version.0, record.body)).collect()),
            Err(StoreError::Corrupt { place, message }) => {
                self.problem(place, message);
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }

    fn problem(&mut self, place: impl Into<String>, problem: impl Into<String>) {
        self.problems.push(Problem { place: place.into(), problem: problem.into() });
    }

    /// One more record of the ledger, in its order.
    pub fn take(&mut self, recorded: &Recorded) {
        let Recorded { stream, summary, record } = recorded;
        if matches!(summary.kind, StreamKind::Tile | StreamKind::Head | StreamKind::Key)
            && !self.streams.contains(stream)
            && self.is_old(record.at)
        {
            let place = format!("position {}: record {} of stream {stream}", record.position.0, record.version.0);
            self.problem(place, "it belongs to the log of receipts, and has no place in it");
        }
        match summary.kind {
            StreamKind::Head => self.met += 1,
            StreamKind::Tile => {
                let heads = codec::decode::<Added>(&record.body).unwrap_or_default().into_iter().map(|added| added.head);
                self.spoken_of = heads.fold(self.spoken_of, u64::max);
            }
            _ => {}
        }
        if summary.kind != StreamKind::Chain {
            return;
        }
        // One that cannot be read is told with its chain.
        for text in receipt::texts(&record.body).unwrap_or_default() {
            self.leaves.push((leaf_hash(text.as_bytes()), record.position.0));
        }
        while self.heads.get(self.reached.len()).is_some_and(|kept| kept.head.size <= self.leaves.len() as u64) {
            self.reached.push((*stream, record.version.0));
        }
    }

    /// Not written since the log was read.
    fn is_old(&self, at: counterfoil_core::Timestamp) -> bool {
        self.heads.last().is_some_and(|newest| at <= newest.head.at)
    }

    pub fn finish(mut self, against: &Against) -> (Found, Vec<Problem>) {
        let mut notes = self.check_keys(against);
        self.check_leaves();
        self.check_heads();
        if let Some(head) = &against.head {
            self.check_kept(head);
        }
        let sealed = self.heads.last().map_or(0, |newest| newest.head.size);
        let waiting = (self.leaves.len() as u64).saturating_sub(sealed);
        if waiting > 0 {
            let all = self.leaves.len();
            notes.push(format!("not under a head yet: {waiting} of {all}; until they are sealed, nothing but their chains protects them"));
        }
        let found = Found { receipts: self.leaves.len() as u64, heads: self.heads.len() as u64, sealed, notes };
        (found, self.problems)
    }

    fn check_keys(&mut self, against: &Against) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(unvouched) = first_unvouched(&self.keys) {
            let (key, by) = (unvouched.key.id(), &unvouched.by);
            match unvouched.vouched {
                None => {
                    notes.push(format!("key {key} was recorded by {by} without the word of the key before it, which was said to be lost"))
                }
                Some(_) => self.problem(format!("key {key}"), "the signature of the key before it does not hold"),
            }
        }
        if against.trusted.is_empty() {
            return notes;
        }
        // Those that were named, and those that they vouch for, one after the other.
        let mut trusted: Vec<PublicKey> = against.trusted.clone();
        for pair in self.keys.windows(2) {
            let vouched = pair[1].vouched.is_some_and(|signature| pair[0].key.verifies(&introduction(&pair[1].key), &signature));
            if trusted.contains(&pair[0].key) && vouched {
                trusted.push(pair[1].key);
            }
        }
        match self.heads.last().map(|newest| (newest.number, newest.head.key)) {
            Some((number, key)) if !trusted.contains(&key) => {
                self.problem(
                    format!("head {number}"),
                    format!("it is signed with key {}, which is not one you trust, nor vouched for by one", key.id()),
                );
            }
            _ => {}
        }
        notes
    }

    /// Every receipt at its leaf, and every tile above them.
    fn check_leaves(&mut self) {
        if self.met < self.spoken_of {
            let problem = format!("tiles were sealed with it, and the ledger has {} heads only", self.met);
            self.problem(format!("head {}", self.spoken_of), problem);
        }
        let Some(newest) = self.heads.last().cloned() else { return };
        let size = newest.head.size;
        if (self.leaves.len() as u64) < size {
            let problem =
                format!("it is of {size} receipts, and the ledger has {}: some were removed, or its end was cut off", self.leaves.len());
            self.problem(format!("head {}", newest.number), problem);
        }
        let mut edge = Edge::default();
        self.leaves.iter().take(usize::try_from(size).unwrap_or(usize::MAX)).for_each(|(leaf, _)| edge.push(*leaf));
        let expected = edge.into_added();
        let empty = Vec::new();
        for tile in tiles::all(size) {
            let (kept, expected) = (&self.tiles[&tile], expected.get(&tile).unwrap_or(&empty));
            let differs = kept.iter().zip(expected).position(|(kept, expected)| kept != expected);
            let Some(at) = differs.or_else(|| (kept.len() != expected.len()).then(|| kept.len().min(expected.len()))) else { continue };
            let leaf = tile.index as usize * tiles::WIDTH + at;
            let position = self.leaves.get(leaf).map(|(_, position)| *position);
            let problem = match (tile.level, kept.get(at), position) {
                (0, None, _) => format!("the hash of leaf {leaf} is missing"),
                (0, Some(_), Some(position)) => {
                    format!(
                        "leaf {leaf} is not the receipt that was sealed there; the ledger has another one, in its record at position {position}"
                    )
                }
                (0, Some(_), None) => format!("leaf {leaf} was sealed, and its receipt is not in the ledger"),
                _ => format!("hash {at} is not that of the tile below it"),
            };
            self.problems.push(Problem { place: name(tile), problem });
            // What is above it, or behind it, differs for the same reason.
            return;
        }
    }

    fn check_heads(&mut self) {
        let mut tree = Frontier::default();
        let mut leaves = self.leaves.iter();
        let known: Vec<PublicKey> = self.keys.iter().map(|introduced| introduced.key).collect();
        let mut problems = Vec::new();
        let mut last: Option<&Kept> = None;
        for kept in &self.heads {
            let mut told = |problem: String| problems.push(Problem { place: format!("head {}", kept.number), problem });
            if let Err(error) = kept.head.check() {
                told(error.to_string());
            }
            if !known.contains(&kept.head.key) {
                told(format!("its key {} is none of this ledger's", kept.head.key.id()));
            }
            if last.is_some_and(|last| last.head.size > kept.head.size || last.head.at > kept.head.at) {
                told("it is of fewer receipts, or of an earlier time, than the one before it".into());
            }
            last = Some(kept);
            while tree.size() < kept.head.size {
                let Some((leaf, _)) = leaves.next() else { break };
                tree.push(*leaf);
            }
            if tree.size() == kept.head.size && tree.root() != kept.head.root {
                told(format!(
                    "its root is {}; that of the first {} receipts of the ledger is {}",
                    kept.head.root,
                    kept.head.size,
                    tree.root()
                ));
            }
        }
        for (kept, (stream, version)) in self.heads.iter().zip(&self.reached) {
            if (kept.covered.stream.0, kept.covered.version) != (stream.0, *version) {
                let (covered, said) = (format!("record {version} of stream {stream}"), &kept.covered);
                let problem = format!("its last receipt is in {covered}; it says record {} of stream {}", said.version, said.stream);
                problems.push(Problem { place: format!("head {}", kept.number), problem });
            }
        }
        // The first head above each leaf.
        let mut heads = self.heads.iter().peekable();
        for (leaf, said) in (0..).zip(&self.sealed_by) {
            while heads.next_if(|kept| kept.head.size <= leaf).is_some() {}
            let Some(first) = heads.peek() else { break };
            if first.number != *said {
                let problem = format!("leaf {leaf} is first under head {}, and its tile says head {said}", first.number);
                problems.push(Problem { place: name(TileId::of_leaf(leaf).0), problem });
                break;
            }
        }
        self.problems.extend(problems);
    }

    /// A head from elsewhere: the ledger must begin with what it is of.
    fn check_kept(&mut self, head: &Head) {
        let place = "the head that was kept elsewhere";
        if let Err(error) = head.check() {
            return self.problem(place, error.to_string());
        }
        if !self.keys.iter().any(|introduced| introduced.key == head.key) {
            self.problem(
                place,
                format!("its key {} is none of this ledger's: it is of another ledger, or the keys were replaced", head.key.id()),
            );
        }
        let mut tree = Frontier::default();
        self.leaves.iter().take(usize::try_from(head.size).unwrap_or(usize::MAX)).for_each(|(leaf, _)| tree.push(*leaf));
        if tree.size() < head.size {
            let problem = format!("it is of {} receipts, and the ledger has {}: its end was cut off", head.size, tree.size());
            self.problem(place, problem);
        } else if tree.root() != head.root {
            let problem = format!("its root is {}; that of the first {} receipts of the ledger is {}", head.root, head.size, tree.root());
            self.problem(place, problem);
        }
    }
}

fn name(tile: TileId) -> String {
    format!("tile {} of level {}", tile.index, tile.level)
}

/// The log alone, held against the receipts of the whole ledger.
pub async fn verify(store: &dyn Store, against: &Against) -> Result<(Found, Vec<Problem>), StoreError> {
    let mut log = Log::read(store).await?;
    let mut after = Position(0);
    loop {
        let page = store.tail(after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(log.finish(against)) };
        after = last.record.position;
        page.iter().for_each(|recorded| log.take(recorded));
    }
}
