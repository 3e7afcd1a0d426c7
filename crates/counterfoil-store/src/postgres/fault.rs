//! PostgreSQL's errors in the words of the border.
//!
//! What the server itself answered is certain; a connection that is lost says nothing about what it carried.

use std::error::Error as _;

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::{StoreError, Written};

/// An error of a read, or of a statement before COMMIT that the server answered: nothing was written.
pub fn refused(error: &Error) -> StoreError {
    said(error, Written::No)
}

pub fn said(error: &Error, written: Written) -> StoreError {
    match code(error) {
        Some("XX001" | "XX002") => corrupt("the database", words(error)),
        _ => unavailable(words(error), written),
    }
}

pub fn unavailable(message: impl Into<String>, written: Written) -> StoreError {
    StoreError::Unavailable { message: message.into(), written }
}

pub fn corrupt(place: impl Into<String>, message: impl Into<String>) -> StoreError {
    StoreError::Corrupt { place: place.into(), message: message.into() }
}

/// The transaction was rolled back because of others' work: the same again may succeed. Not 40003, after which nobody knows.
pub fn again(error: &Error) -> bool {
    code(error).is_some_and(|code| code.starts_with("40") && code != "40003")
}

/// The connection is lost, or the server ends it.
pub fn lost(error: &Error) -> bool {
    matches!(code(error), None | Some("57P01" | "57P02" | "57P03" | "57P05" | "25P03"))
}

/// The connection works and cannot serve any more: it leads to a standby, or has forgotten our statements.
pub fn useless(error: &Error) -> bool {
    matches!(code(error), Some("25006" | "26000" | "0A000"))
}

pub fn code(error: &Error) -> Option<&str> {
    error.code().map(SqlState::code)
}

/// What the server says, with its code; otherwise what the client says, down to the cause.
pub fn words(error: &Error) -> String {
    if let Some(db) = error.as_db_error() {
        return format!("{} ({})", db.message(), db.code().code());
    }
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        words.push_str(": ");
        words.push_str(&cause.to_string());
        source = cause.source();
    }
    words
}
