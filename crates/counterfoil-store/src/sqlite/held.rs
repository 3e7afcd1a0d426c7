//! Which ledger files this process has open, so that none of them is opened past SQLite.
//!
//! Whoever closes a file takes all locks of its process on that file away (POSIX), those of SQLite's connections among them. Another process would then take
//! itself for the last one, and remove the log that is still written to. So a file is looked at by ourselves only while no value of this
//! process has it open, and counts as open before SQLite sees it.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use crate::OpenError;

/// Device and inode, and how many values have it open. Of the process, as the locks are.
static OPEN: Mutex<BTreeMap<(u64, u64), usize>> = Mutex::new(BTreeMap::new());

/// The file counts as open as long as this lives: longer than every connection.
pub struct Held {
    /// `None` where there is no file yet and none could be made: SQLite will say why.
    file: Option<(u64, u64)>,
}

impl Held {
    /// `look` opens and closes the file. Not done where it is open here: then it was, before.
    pub fn after(path: &Path, look: impl FnOnce() -> Result<(), OpenError>) -> Result<Self, OpenError> {
        let mut open = lock();
        let file = identity(path).or_else(|| made(path));
        if file.is_none_or(|file| !open.contains_key(&file)) {
            look()?;
        }
        if let Some(file) = file {
            *open.entry(file).or_default() += 1;
        }
        Ok(Self { file })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(file) = self.file else { return };
        let mut open = lock();
        let left = open.get(&file).map_or(0, |count| count - 1);
        match left {
            0 => drop(open.remove(&file)),
            left => drop(open.insert(file, left)),
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|file| (file.dev(), file.ino()))
}

/// A ledger holds what people paid and wrote: its owner says who else may read it. SQLite gives its log the same rights.
const OWNERS_ALONE: u32 = 0o600;

/// A new, empty file, which SQLite takes for a new database.
fn made(path: &Path) -> Option<(u64, u64)> {
    OpenOptions::new().write(true).create_new(true).mode(OWNERS_ALONE).open(path).ok()?;
    identity(path)
}

fn lock() -> MutexGuard<'static, BTreeMap<(u64, u64), usize>> {
    // Counts: whole at every moment.
    OPEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
