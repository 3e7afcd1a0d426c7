//! The stored form of a record: a version character, then JSON text.
//!
//! `1[{"opened":{…}},{"claimed":{…}}]` — readable with the database's own tools, and results and arguments inside keep their exact bytes.
//! A reader refuses a version it does not know; golden files hold every form ever written.

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::json_text;

/// What is written today.
pub const VERSION: char = '1';

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CodecError {
    #[error("the record has version {found:?}; this program reads {VERSION:?}: use a newer counterfoil")]
    Version { found: Option<char> },
    #[error("the record cannot be read: {0}")]
    Malformed(String),
}

pub fn encode<T: Serialize>(items: &[T]) -> String {
    // Most claims are longer than half of it, hardly any effect's record is longer.
    let mut out = String::with_capacity(1024);
    out.push(VERSION);
    json_text::append(items, &mut out).expect("entries hold nothing that JSON cannot");
    out
}

pub fn decode<T: DeserializeOwned>(body: &str) -> Result<Vec<T>, CodecError> {
    serde_json::from_str(json_of(body)?).map_err(|e| CodecError::Malformed(e.to_string()))
}

/// The JSON text behind the version character.
pub fn json_of(body: &str) -> Result<&str, CodecError> {
    body.strip_prefix(VERSION).ok_or_else(|| CodecError::Version { found: body.chars().next() })
}
