//! What can go wrong at the border. Each failure of an append says whether it may have been written all the same.

use std::path::PathBuf;

use counterfoil_core::StreamId;
use thiserror::Error;

/// Whether a failed append may be found in the store later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    No,
    Perhaps,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// The store cannot serve now: disk full, I/O error, connection lost, busy for too long. Trying later can help.
    #[error("the ledger's store is unavailable: {message}")]
    Unavailable { message: String, written: Written },
    /// What was read is not what was written. Nothing may be decided from it.
    #[error("the ledger is damaged at {place}: {message}")]
    Corrupt { place: String, message: String },
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AppendError {
    /// Lost races: these streams are not at their expected version. Nothing of the batch was written.
    #[error("{} stream(s) moved on", streams.len())]
    Conflict { streams: Vec<StreamId> },
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Debug, Error)]
pub enum OpenError {
    /// `store`: a file, or a URL without its password.
    #[error("{store}: this is not a Counterfoil ledger ({found}); name another file or schema, or move this one away")]
    NotALedger { store: String, found: String },
    #[error("{store}: this ledger has format {found}; this program reads up to {supported}; use a newer counterfoil")]
    TooNew { store: String, found: u32, supported: u32 },
    #[error("{path}: cannot be written: {message}; a ledger must be writable, also its directory")]
    ReadOnly { path: PathBuf, message: String },
    #[error("{store}: cannot be reached: {message}; is it running, and are address, user and password right?")]
    Unreachable { store: String, message: String },
    /// It answers, and must not hold a ledger as it is.
    #[error("{store}: {message}")]
    Unfit { store: String, message: String },
    #[error("{path}: {message}")]
    Io { path: PathBuf, message: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}
