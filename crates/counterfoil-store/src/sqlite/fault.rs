//! SQLite's errors in the words of the border.

use rusqlite::ffi::SQLITE_IOERR_SHMSIZE;
use rusqlite::{Error, ErrorCode};

use crate::{StoreError, Written};

/// An error before COMMIT, or of a read: the transaction is rolled back, nothing of it was written.
pub fn refused(error: Error) -> StoreError {
    refused_ref(&error)
}

pub fn refused_ref(error: &Error) -> StoreError {
    said(error, Written::No)
}

/// An error of COMMIT itself. Where SQLite knows that the commit record did not reach the file, nothing was written;
/// a failed flush leaves it open, since recovery after a crash may find the record all the same.
pub fn commit_failed(error: Error) -> StoreError {
    let written = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::ReadOnly) => Written::No,
        _ => Written::Perhaps,
    };
    said(&error, written)
}

pub fn corrupt(pos: u64, message: impl Into<String>) -> StoreError {
    StoreError::Corrupt { place: format!("position {pos}"), message: message.into() }
}

fn said(error: &Error, written: Written) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::Corrupt { place: "the database file".into(), message: error.to_string() }
        }
        _ => StoreError::Unavailable { message: words(error), written },
    }
}

/// What SQLite says, except where a full disk makes it say "disk I/O error".
pub fn words(error: &Error) -> String {
    match error.sqlite_error() {
        Some(failure) if failure.extended_code == SQLITE_IOERR_SHMSIZE => "the disk is full: no space for the -shm file".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    #[test]
    fn a_failed_commit_says_whether_it_may_be_there() {
        let check = |code: i32, expected: Written| {
            let error = Error::SqliteFailure(ffi::Error::new(code), None);
            let StoreError::Unavailable { written, .. } = commit_failed(error) else { panic!("code {code}") };
            assert_eq!(written, expected, "code {code}");
        };
        check(ffi::SQLITE_FULL, Written::No);
        check(ffi::SQLITE_BUSY, Written::No);
        check(ffi::SQLITE_IOERR_FSYNC, Written::Perhaps);
        check(ffi::SQLITE_IOERR_WRITE, Written::Perhaps);
        check(ffi::SQLITE_IOERR, Written::Perhaps);
        check(ffi::SQLITE_NOMEM, Written::Perhaps);
    }

    #[test]
    fn damage_is_never_taken_for_bad_luck() {
        for code in [ffi::SQLITE_CORRUPT, ffi::SQLITE_NOTADB] {
            let error = Error::SqliteFailure(ffi::Error::new(code), None);
            assert!(matches!(refused(error), StoreError::Corrupt { .. }));
        }
    }
}
