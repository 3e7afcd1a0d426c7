//! The embedded default: one SQLite file, shared by any number of threads and processes.
//!
//! Reading order: `schema` (what is in the file), `row` (one record), `index` (what is known in
//! memory), `writer` (append), `merge` (the index goes into the file), `reader` (load), `browse` (due, tail, search),
//! `prune`, `graves`, `wal`, `beside` (checkpoints), `open`, `held` (what this process has open), `backup`.
//!
//! What must stay true: nothing is acknowledged before COMMIT has flushed it; memory follows the file and never leads
//! it; a record that does not match its checksum is refused. What a load may miss of *other* processes' writes is
//! said in `reader`; of this value's own, nothing.

mod backup;
mod beside;
mod browse;
mod fault;
mod filter;
mod graves;
mod held;
mod index;
mod merge;
mod open;
mod pool;
mod prune;
mod reader;
mod row;
mod schema;
mod wal;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::Thread;
use std::time::{Duration, Instant};

use counterfoil_core::{StreamId, Timestamp};

pub use self::backup::{BackupDone, BackupError, Progress};
use self::held::Held;
use self::index::Index;
pub use self::open::PAGE_BYTES;
use self::pool::{Pool, Sweeper};
use self::reader::Reader;
use self::writer::Writer;
use crate::{
    AppendError, Batch, Cursor, Eventually, Graves, Graveyard, History, OpenError, Page, Position, Pruned, Query, Reach, Recorded, Store,
    StoreError, Tombstone,
};

/// What can be tuned. The defaults are measured; tests use small numbers to reach the rare paths.
#[derive(Debug, Clone)]
pub struct Options {
    /// Streams that may be known in memory only, before their index entries are merged into the file. Decides memory
    /// (about 60 bytes each, twice) and how much is read when the ledger is opened.
    pub merge_entries: usize,
    /// Pages of write-ahead log between checkpoints.
    pub checkpoint_pages: u32,
    /// How long a reader keeps its snapshot, and so how old an answer about another process's work may be.
    pub snapshot_held_max: Duration,
    /// How long to wait for another process's write lock.
    pub busy_timeout: Duration,
    /// Connections for loads.
    pub readers: usize,
    /// How much of the file readers may map into memory while nobody writes; 0 for never. A disk that fails under
    /// a mapped file ends the process by a signal, where otherwise a load would fail.
    pub map_bytes_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            // 7/8 of a power of two: the most that a hash table of 131,072 slots takes.
            merge_entries: 114_688,
            // 8 MiB.
            checkpoint_pages: 512,
            snapshot_held_max: Duration::from_millis(20),
            busy_timeout: Duration::from_secs(5),
            readers: std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2)),
            map_bytes_max: 0,
        }
    }
}

/// What was done since the ledger was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    pub commits: u64,
    pub records: u64,
    pub checkpoints: u64,
    /// Flushes to disk: one per commit, and those of checkpoints, as far as SQLite lets us tell.
    pub syncs: u64,
}

#[derive(Default)]
struct Counters {
    commits: AtomicU64,
    records: AtomicU64,
    checkpoints: AtomicU64,
    syncs: AtomicU64,
}

/// A ledger in an SQLite file.
pub struct Sqlite {
    // Dropped in this order: the readers close before the writer, whose connection then tidies the log away.
    _sweeper: Sweeper,
    shared: Arc<Shared>,
    writer: Mutex<Writer>,
    _held: Held,
}

/// What the writer, the readers and the sweeper share.
struct Shared {
    path: PathBuf,
    options: Options,
    index: RwLock<Index>,
    pool: Pool,
    stats: Counters,
    /// The writer asks readers not to hold snapshots.
    release: AtomicBool,
    /// When this process last knew of every commit of every process, in microseconds since `opened`; 0 for never.
    caught_up: AtomicU64,
    opened: Instant,
    /// Loads that found nothing and had to ask the file.
    misses: AtomicU64,
    /// There may be snapshots to end.
    sweep: AtomicBool,
    sweeper: OnceLock<Thread>,
}

impl Sqlite {
    /// Whether a ledger could be opened or made here, as far as can be told without doing so.
    pub fn check_place(path: &Path) -> Result<(), OpenError> {
        open::check_place(path)
    }

    /// Opens the ledger at `path`, and makes it when there is none.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        let path = path.as_ref();
        // Absolute, so that no name has a meaning of its own to SQLite.
        let path = &std::path::absolute(path).map_err(|error| OpenError::Io { path: path.into(), message: error.to_string() })?;
        let explain = |error: rusqlite::Error| open::explain(path, &error);
        // In this order: whatever fails below, connections close before the file counts as closed.
        let (held, conn) = open::writer(path, &options)?;
        conn.execute_batch("BEGIN").map_err(explain)?;
        let index = Index::read(&conn)?;
        let writer = Writer::new(conn).map_err(explain)?;
        writer.conn.execute_batch("COMMIT").map_err(explain)?;
        let readers = (0..options.readers.max(1)).map(|_| open::reader(path, &options).map(Reader::new)).collect::<Result<_, _>>()?;
        let browser = Reader::new(open::reader(path, &options)?);
        let shared = Arc::new(Shared {
            path: path.clone(),
            options,
            index: RwLock::new(index),
            pool: Pool::new(readers, browser),
            stats: Counters::default(),
            release: AtomicBool::new(false),
            caught_up: AtomicU64::new(0),
            opened: Instant::now(),
            misses: AtomicU64::new(0),
            sweep: AtomicBool::new(false),
            sweeper: OnceLock::new(),
        });
        let sweeper =
            Sweeper::start(shared.clone()).map_err(|error| OpenError::Io { path: path.into(), message: format!("no thread: {error}") })?;
        Ok(Self { _sweeper: sweeper, shared, writer: Mutex::new(writer), _held: held })
    }

    /// The ledger's file, absolute.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    pub fn stats(&self) -> Stats {
        let stats = &self.shared.stats;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            commits: read(&stats.commits),
            records: read(&stats.records),
            checkpoints: read(&stats.checkpoints),
            syncs: read(&stats.syncs),
        }
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().expect("nothing panics while it writes")
    }

    /// In short transactions, so that appends get in between.
    fn prune_all(&self, before: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        let mut total = Pruned::default();
        loop {
            let slice = self.writer().prune(&self.shared, before.0, limit - total.streams as usize)?;
            total = Pruned { streams: total.streams + slice.streams, more: slice.more };
            if !slice.more || total.streams as usize == limit {
                return Ok(total);
            }
        }
    }

    fn browse<T>(&self, look: impl FnOnce(&mut Reader, &Shared) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut browser = self.shared.pool.browser();
        let answer = look(&mut browser, &self.shared);
        browser.end().map_err(fault::refused)?;
        answer
    }
}

impl Store for Sqlite {
    fn load(&self, stream: StreamId, reach: Reach) -> Eventually<'_, Result<History, StoreError>> {
        Box::pin(async move {
            if self.shared.surely_absent(&stream) {
                return Ok(History::default());
            }
            self.shared.pool.reader().load(&self.shared, stream, reach)
        })
    }

    fn append<'a>(&'a self, batch: &'a Batch) -> Eventually<'a, Result<Position, AppendError>> {
        Box::pin(async move { self.writer().append(&self.shared, batch) })
    }

    fn due(&self, now: Timestamp, limit: usize) -> Eventually<'_, Result<Vec<StreamId>, StoreError>> {
        Box::pin(async move { self.browse(|browser, shared| browser.due(shared, now, limit)) })
    }

    fn tail(&self, after: Position, limit: usize) -> Eventually<'_, Result<Vec<Recorded>, StoreError>> {
        Box::pin(async move { self.browse(|browser, shared| browser.tail(shared, after, limit)) })
    }

    fn search(&self, query: Query) -> Eventually<'_, Result<Page, StoreError>> {
        Box::pin(async move { self.browse(|browser, shared| browser.search(shared, &query)) })
    }

    fn prune(&self, before: Timestamp, limit: usize) -> Eventually<'_, Result<Pruned, StoreError>> {
        Box::pin(async move { self.prune_all(before, limit) })
    }
}

impl Graves for Sqlite {
    fn tombstones(&self, from: Option<Cursor>, limit: usize) -> Eventually<'_, Result<Graveyard, StoreError>> {
        Box::pin(async move { self.browse(|browser, shared| browser.tombstones(shared, from, limit)) })
    }

    fn entomb<'a>(&'a self, tombstones: &'a [Tombstone]) -> Eventually<'a, Result<(), AppendError>> {
        Box::pin(async move { self.writer().entomb(&self.shared, tombstones) })
    }

    fn erase<'a>(&'a self, tombstone: &'a Tombstone) -> Eventually<'a, Result<(), AppendError>> {
        Box::pin(async move { self.writer().erase(&self.shared, tombstone) })
    }
}

impl Shared {
    fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().expect("nothing panics while it changes the index")
    }

    fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().expect("nothing panics while it changes the index")
    }

    /// Never written by this process, and by no other up to as long ago as a snapshot may be old.
    fn surely_absent(&self, stream: &StreamId) -> bool {
        let caught_up = Duration::from_micros(self.caught_up.load(Ordering::Acquire));
        let recent = !caught_up.is_zero() && self.opened.elapsed() < caught_up + self.options.snapshot_held_max;
        recent && self.index().absent(stream)
    }

    /// This moment, to be told to `caught_up` once everything committed before it is in the index.
    fn moment(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn caught_up(&self, moment: u64) {
        self.caught_up.fetch_max(moment, Ordering::AcqRel);
    }

    fn sweep_soon(&self) {
        if !self.sweep.swap(true, Ordering::AcqRel)
            && let Some(sweeper) = self.sweeper.get()
        {
            sweeper.unpark();
        }
    }
}
