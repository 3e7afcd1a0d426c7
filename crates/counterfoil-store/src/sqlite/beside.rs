//! Checkpoints beside the writer: a thread with a connection of its own copies the log into the database while appends go on.
//!
//! A checkpoint reads all that was written since the last one, writes it again and flushes it: ten milliseconds in which the writer would stand
//! still. SQLite lets one connection copy while another appends; only what was appended meanwhile is left, and that little the writer copies itself,
//! between two appends: so the log ends, and starts over. Nothing depends on this thread: what it leaves undone the writer does.
//!
//! Started with the first checkpoint: a command that makes one call has no such thread. It ends before the writer's connection closes, so
//! that the writer's is the last and tidies the log away.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use rusqlite::Connection;

use super::{Options, open};

/// The writer goes on while the log is copied. SQLite flushes the database only after a pass that left nothing, which the first hardly ever does; the
/// second has little to copy, and is through before the next commit.
const PASSES: u64 = 2;

pub struct Beside {
    /// Dropped to end the thread.
    asks: Option<Sender<()>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    standing: AtomicU8,
    syncs: AtomicU64,
    passes: AtomicU64,
    copied: AtomicU32,
}

const AT_REST: u8 = 0;
const AT_WORK: u8 = 1;
const DONE: u8 = 2;
/// It has no connection and will never have one.
const UNFIT: u8 = 3;

/// What the writer finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    AtRest,
    AtWork,
    /// Told once.
    Done(Work),
    /// The writer has to do it all.
    Unfit,
}

/// What was done since the last time this was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    pub passes: u64,
    pub syncs: u64,
    /// How much of the log is in the database by now.
    pub copied: u32,
}

impl Beside {
    /// Where no thread can be had, it is unfit.
    pub fn start(path: &Path, options: &Options) -> Self {
        let (asks, asked) = channel();
        let shared = Arc::new(Shared::default());
        let (path, options, told): (PathBuf, _, _) = (path.into(), options.clone(), shared.clone());
        let builder = std::thread::Builder::new().name("ledger-copier".into());
        let thread = builder.spawn(move || work(&path, &options, &asked, &told)).ok();
        if thread.is_none() {
            shared.standing.store(UNFIT, Ordering::Release);
        }
        Self { asks: Some(asks), shared, thread }
    }

    /// Copies what is in the log by now. Asked only of one that is at rest.
    pub fn ask(&self) {
        self.shared.standing.store(AT_WORK, Ordering::Release);
        if self.asks.as_ref().is_none_or(|asks| asks.send(()).is_err()) {
            self.shared.standing.store(UNFIT, Ordering::Release);
        }
    }

    pub fn standing(&self) -> Standing {
        match self.shared.standing.load(Ordering::Acquire) {
            AT_REST => Standing::AtRest,
            // One that panicked never says that it is done.
            AT_WORK if self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) => Standing::AtWork,
            DONE => {
                self.shared.standing.store(AT_REST, Ordering::Release);
                let taken = |counter: &AtomicU64| counter.swap(0, Ordering::AcqRel);
                let copied = self.shared.copied.load(Ordering::Acquire);
                Standing::Done(Work { passes: taken(&self.shared.passes), syncs: taken(&self.shared.syncs), copied })
            }
            _ => Standing::Unfit,
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.asks = None;
        if let Some(thread) = self.thread.take() {
            // It copies, and a panic there would leave the log to the writer.
            let _ = thread.join();
        }
    }
}

fn work(path: &Path, options: &Options, asked: &Receiver<()>, told: &Shared) {
    let Ok(conn) = open::copier(path, options) else {
        return told.standing.store(UNFIT, Ordering::Release);
    };
    while asked.recv().is_ok() {
        for nth in 1..=PASSES {
            // Whatever is wrong, the writer will meet it; negative where somebody else is copying.
            let Some(copied) = pass(&conn).ok().and_then(|(_, copied)| u32::try_from(copied).ok()) else { break };
            told.passes.fetch_add(1, Ordering::AcqRel);
            if told.copied.swap(copied, Ordering::AcqRel) != copied {
                // The log before it was copied; the database, as far as can be told, after the second.
                told.syncs.fetch_add(nth, Ordering::AcqRel);
            }
        }
        told.standing.store(DONE, Ordering::Release);
    }
}

/// How long the log is, and how much of it is in the database by now. Both -1 where somebody else is copying.
pub fn pass(conn: &Connection) -> rusqlite::Result<(i64, i64)> {
    conn.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?.query_row([], |row| Ok((row.get(1)?, row.get(2)?)))
}
