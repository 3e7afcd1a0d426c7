//! A copy of the ledger while it is in use.
//!
//! The pages are read under one snapshot on a connection of its own, so appends go on and the copy is the ledger as it was at one commit: everything
//! that was acknowledged before the backup began is in it. Meanwhile the write-ahead log cannot start over and grows by what is appended.
//! The copy is written beside its place, flushed, counted, and only then given its name: under that name there is a whole copy or nothing.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use thiserror::Error;

use super::{Sqlite, fault, open};
use crate::{OpenError, StoreError};

/// 4 MiB at a time: often enough to tell how far it has come.
const STEP_BYTES: i64 = 4 << 20;
const BUSY_PAUSE: Duration = Duration::from_millis(5);
/// Files that SQLite would take for a part of the copy.
const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// How far a backup has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub bytes: u64,
    pub bytes_total: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupDone {
    pub bytes: u64,
    pub records: u64,
    pub took: Duration,
}

/// There is no copy. The ledger is as it was.
#[derive(Debug, Error)]
pub enum BackupError {
    #[error("{path}: there is such a file already, and a backup overwrites nothing; name another one")]
    Exists { path: PathBuf },
    #[error("{path}: cannot be written: {message}; there is no copy, and the ledger is as it was")]
    Target { path: PathBuf, message: String },
    #[error("{path}: the copy does not read back as it was written: {message}; it was removed, and the ledger is as it was")]
    Unsound { path: PathBuf, message: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Sqlite {
    /// Copies the ledger to a new file, while others read and write it. Blocks for as long as it takes to read the file once and write it
    /// once; `progress` is told on the way. The copy opens as a ledger of its own.
    pub fn backup(&self, to: &Path, mut progress: impl FnMut(Progress)) -> Result<BackupDone, BackupError> {
        let began = Instant::now();
        let target = |message: String| BackupError::Target { path: to.into(), message };
        let to = &std::path::absolute(to).map_err(|error| target(error.to_string()))?;
        check_target(to)?;
        // Who may not read the ledger may not read its copy.
        let mode = self.shared.path.metadata().map_err(|error| target(error.to_string()))?.mode() & 0o777;
        let partial = Partial::create(to, mode)?;
        self.copy(&partial.path, &mut progress).map_err(|error| explain(to, &error))??;
        let records = count(&partial.path).map_err(|error| unsound(to, &error))?;
        partial.file.sync_all().map_err(|error| target(error.to_string()))?;
        let bytes = partial.file.metadata().map_err(|error| target(error.to_string()))?.len();
        check_target(to)?;
        partial.name(to).map_err(|error| target(error.to_string()))?;
        Ok(BackupDone { bytes, records, took: began.elapsed() })
    }

    fn copy(&self, partial: &Path, progress: &mut impl FnMut(Progress)) -> rusqlite::Result<Result<(), BackupError>> {
        let from = match open::reader(&self.shared.path, &self.shared.options) {
            Ok(from) => from,
            Err(error) => return Ok(Err(of_open(error))),
        };
        // One snapshot for all steps: without it, every commit of somebody else would begin the copy anew.
        from.execute_batch("BEGIN; SELECT 1 FROM meta")?;
        let page_bytes: i64 = from.pragma_query_value(None, "page_size", |row| row.get(0))?;
        let mut copy = Connection::open_with_flags(partial, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        // Nothing of a copy that is broken off is ever read: it is flushed once, when it is whole.
        copy.pragma_update(None, "journal_mode", "OFF")?;
        copy.pragma_update(None, "synchronous", "OFF")?;
        let backup = Backup::new(&from, &mut copy)?;
        let pages_per_step = i32::try_from(STEP_BYTES / page_bytes.max(1)).unwrap_or(1).max(1);
        let patience = Instant::now() + self.shared.options.busy_timeout;
        loop {
            let step = backup.step(pages_per_step)?;
            let pages = backup.progress();
            let bytes_of = |pages: i32| u64::from(pages.unsigned_abs()) * page_bytes.unsigned_abs();
            progress(Progress { bytes: bytes_of(pages.pagecount - pages.remaining), bytes_total: bytes_of(pages.pagecount) });
            match step {
                StepResult::Done => return Ok(Ok(())),
                StepResult::More => {}
                _ if Instant::now() < patience => std::thread::sleep(BUSY_PAUSE),
                _ => {
                    let message = "someone else holds the copy's file".into();
                    return Ok(Err(BackupError::Target { path: partial.into(), message }));
                }
            }
        }
    }
}

fn check_target(to: &Path) -> Result<(), BackupError> {
    let there = |path: &Path| path.symlink_metadata().is_ok();
    if let Some(path) = std::iter::once(to.to_owned()).chain(COMPANIONS.map(|end| beside(to, end))).find(|path| there(path)) {
        return Err(BackupError::Exists { path });
    }
    open::check_place(to).map_err(of_open)
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// The copy before it has its name; removed when it gets none.
struct Partial {
    path: PathBuf,
    file: File,
    named: bool,
}

impl Partial {
    fn create(to: &Path, mode: u32) -> Result<Self, BackupError> {
        let path = beside(to, ".partial");
        match File::options().read(true).write(true).create_new(true).mode(mode).open(&path) {
            Ok(file) => Ok(Self { path, file, named: false }),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                let message = "another backup is writing there, or one was broken off; remove it if none is".into();
                Err(BackupError::Target { path, message })
            }
            Err(error) => Err(BackupError::Target { path: to.into(), message: error.to_string() }),
        }
    }

    fn name(mut self, to: &Path) -> std::io::Result<()> {
        std::fs::rename(&self.path, to)?;
        self.named = true;
        // The name itself is durable once its directory is.
        File::open(to.parent().unwrap_or(Path::new("/")))?.sync_all()
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.named {
            // What cannot be removed is at least not under the name that was asked for.
            for end in [""].into_iter().chain(COMPANIONS) {
                let _ = std::fs::remove_file(beside(&self.path, end));
            }
        }
    }
}

/// Reads every record of the copy, which then is one file that needs no log beside it.
fn count(copy: &Path) -> rusqlite::Result<u64> {
    let conn = Connection::open_with_flags(copy, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    conn.pragma_update(None, "journal_mode", "DELETE")?;
    let records = conn.query_row("SELECT count(*) FROM record", [], |row| row.get::<_, i64>(0))?;
    conn.close().map_err(|(_, error)| error)?;
    Ok(records.unsigned_abs())
}

fn unsound(to: &Path, error: &rusqlite::Error) -> BackupError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            BackupError::Unsound { path: to.into(), message: fault::words(error) }
        }
        _ => explain(to, error),
    }
}

/// Only the copy is written, so whatever is not damage is the copy's.
fn explain(to: &Path, error: &rusqlite::Error) -> BackupError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => fault::refused_ref(error).into(),
        _ => BackupError::Target { path: to.into(), message: fault::words(error) },
    }
}

fn of_open(error: OpenError) -> BackupError {
    match error {
        OpenError::ReadOnly { path, message } | OpenError::Io { path, message } => BackupError::Target { path, message },
        OpenError::Unreachable { store, message } | OpenError::Unfit { store, message } => {
            BackupError::Target { path: store.into(), message }
        }
        OpenError::Store(error) => error.into(),
        OpenError::NotALedger { store, .. } | OpenError::TooNew { store, .. } => BackupError::Exists { path: store.into() },
    }
}
