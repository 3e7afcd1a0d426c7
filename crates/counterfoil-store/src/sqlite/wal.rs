//! Keeping the write-ahead log short.
//!
//! Every `checkpoint_pages` the log is copied into the database without waiting for anyone: the bulk of it beside the writer (`beside`), the rest on
//! the writer's own connection; the next write then starts it over. Snapshots that are held at that moment prevent it, so when the log has grown to four times that, the
//! readers are asked to let go and the log is restarted. It is overwritten and never truncated: on a journaled file
//! system growing a file costs more than the write itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rusqlite::Connection;

use super::Shared;
use super::beside::{Beside, Standing, pass};

/// Beyond this many times the usual length, readers are asked to let go.
const LONG: u32 = 4;

/// And beyond this the writer waits for whoever copies.
const FAR_TOO_LONG: u32 = 2 * LONG;

/// How long a restart may wait for readers, of other processes above all. The writer stands still meanwhile.
const RESTART_WAIT: Duration = Duration::from_millis(50);

pub struct Wal {
    /// Set by SQLite at each commit.
    pages: Arc<AtomicU32>,
    /// Length after the last commit.
    length: u32,
    /// Copied into the database so far.
    copied: u32,
    checkpoint_at: u32,
    beside: Option<Beside>,
    /// It was asked to copy the log as it is now, not one that has started over since.
    asked: bool,
}

impl Wal {
    pub fn watch(conn: &mut Connection) -> rusqlite::Result<Self> {
        let pages = Arc::new(AtomicU32::new(0));
        let seen = pages.clone();
        conn.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, length: std::ffi::c_int| {
            seen.store(length.unsigned_abs(), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(Self { pages, length: 0, copied: 0, checkpoint_at: 0, beside: None, asked: false })
    }

    /// Called after each commit. An error here is none of the commit's: it is durable; the next round tries again.
    pub fn committed(&mut self, conn: &Connection, shared: &Shared) {
        let usual = shared.options.checkpoint_pages;
        let length = self.pages.load(Ordering::Relaxed);
        shared.stats.syncs.fetch_add(1, Ordering::Relaxed);
        if length <= self.length || self.length == 0 {
            // The log was started over: its new header was flushed as well.
            shared.stats.syncs.fetch_add(1, Ordering::Relaxed);
            (self.copied, self.checkpoint_at, self.asked) = (0, usual, false);
        }
        self.length = length;
        if length < self.checkpoint_at {
            return;
        }
        let beside = self.beside.get_or_insert_with(|| Beside::start(&shared.path, &shared.options));
        let standing = beside.standing();
        if let Standing::Done(work) = standing {
            shared.stats.checkpoints.fetch_add(work.passes, Ordering::Relaxed);
            shared.stats.syncs.fetch_add(work.syncs, Ordering::Relaxed);
        }
        match standing {
            Standing::Done(work) if self.asked => self.copied = work.copied,
            Standing::AtRest | Standing::Done(_) => {
                self.asked = true;
                return beside.ask();
            }
            Standing::AtWork if length < usual.saturating_mul(FAR_TOO_LONG) => return,
            // It cannot keep up: it is waited for, as the writer waited when it copied by itself.
            Standing::AtWork => self.beside = None,
            Standing::Unfit => {}
        }
        self.asked = false;
        if length >= usual.saturating_mul(LONG) {
            self.restart(conn, shared);
        } else {
            self.copied(shared, pass(conn));
        }
        self.checkpoint_at = length + usual;
    }

    fn restart(&mut self, conn: &Connection, shared: &Shared) {
        shared.release.store(true, Ordering::SeqCst);
        shared.pool.release();
        let _ = conn.busy_timeout(RESTART_WAIT);
        let restarted = conn.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| Ok((row.get(1)?, row.get(2)?)));
        self.copied(shared, restarted);
        let _ = conn.busy_timeout(shared.options.busy_timeout);
        shared.release.store(false, Ordering::SeqCst);
    }

    /// Copies all of the log into the database and leaves an empty file. `false`: someone reads from it still.
    pub fn empty(&mut self, conn: &Connection, shared: &Shared) -> rusqlite::Result<bool> {
        // Two cannot copy at once. It is waited for, and started again when it is needed.
        self.beside = None;
        shared.release.store(true, Ordering::SeqCst);
        shared.pool.release();
        let emptied = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
        shared.release.store(false, Ordering::SeqCst);
        (self.length, self.copied, self.checkpoint_at) = (0, 0, 0);
        self.pages.store(0, Ordering::Relaxed);
        emptied.map(|busy| busy == 0)
    }

    fn copied(&mut self, shared: &Shared, answer: rusqlite::Result<(i64, i64)>) {
        let Ok((length, copied)) = answer else { return };
        shared.stats.checkpoints.fetch_add(1, Ordering::Relaxed);
        if copied > i64::from(self.copied) {
            // The log is flushed before it is copied, the database after all of it was.
            let syncs = if copied == length { 2 } else { 1 };
            shared.stats.syncs.fetch_add(syncs, Ordering::Relaxed);
        }
        self.copied = u32::try_from(copied).unwrap_or(0);
    }
}
