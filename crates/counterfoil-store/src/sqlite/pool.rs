//! The readers of one ledger, and the sweeper that ends idle snapshots.
//!
//! The sweeper sleeps until a snapshot is taken: an idle process neither holds up the WAL, of its own writer or of
//! another process's, nor wakes up for nothing.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use super::Shared;
use super::reader::Reader;

pub struct Pool {
    /// For loads.
    readers: Vec<Mutex<Reader>>,
    /// For tail, search and due, so that none of them keeps a load waiting.
    browser: Mutex<Reader>,
    next: AtomicUsize,
}

impl Pool {
    pub fn new(readers: Vec<Reader>, browser: Reader) -> Self {
        Self { readers: readers.into_iter().map(Mutex::new).collect(), browser: Mutex::new(browser), next: AtomicUsize::new(0) }
    }

    /// A reader that is free, or else the next in turn.
    pub fn reader(&self) -> MutexGuard<'_, Reader> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.readers.len();
        let free = (0..self.readers.len()).find_map(|offset| try_lock(&self.readers[(turn + offset) % self.readers.len()]));
        free.unwrap_or_else(|| lock(&self.readers[turn]))
    }

    pub fn browser(&self) -> MutexGuard<'_, Reader> {
        lock(&self.browser)
    }

    /// Ends every snapshot that is not in use at this moment. Loads take microseconds and are waited for.
    pub fn release(&self) {
        for reader in &self.readers {
            // A snapshot that cannot be ended only delays the WAL's restart.
            let _ = lock(reader).end();
        }
    }

    /// Ends old snapshots. True when some are still held.
    fn sweep(&self, shared: &Shared) -> bool {
        let held = |reader: &&Mutex<Reader>| try_lock(reader).is_none_or(|mut reader| reader.end_if_old(shared));
        self.readers.iter().filter(held).count() > 0
    }
}

fn lock(reader: &Mutex<Reader>) -> MutexGuard<'_, Reader> {
    reader.lock().expect("nothing panics while it holds a reader")
}

fn try_lock(reader: &Mutex<Reader>) -> Option<MutexGuard<'_, Reader>> {
    match reader.try_lock() {
        Ok(reader) => Some(reader),
        Err(TryLockError::WouldBlock) => None,
        Err(TryLockError::Poisoned(_)) => panic!("nothing panics while it holds a reader"),
    }
}

pub struct Sweeper {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sweeper {
    pub fn start(shared: Arc<Shared>) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::Builder::new().name("ledger-sweeper".into()).spawn(move || {
            shared.sweeper.set(thread::current()).expect("there is one sweeper");
            while !stopped.load(Ordering::Acquire) {
                if !shared.sweep.swap(false, Ordering::AcqRel) {
                    thread::park();
                    continue;
                }
                let until = Instant::now() + shared.options.snapshot_held_max;
                while Instant::now() < until && !stopped.load(Ordering::Acquire) {
                    thread::park_timeout(until.saturating_duration_since(Instant::now()));
                }
                if shared.pool.sweep(&shared) {
                    shared.sweep.store(true, Ordering::Release);
                }
            }
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
