//! What Redis's refusals mean at the border.
//!
//! The scripts refuse before their first write, or take back what was written, so whatever Redis answers with, nothing was written; the exception (`CFHALF`) says so itself.

use redis::ServerError;

use super::line::Silence;
use crate::{StoreError, Written};

pub fn unavailable(message: impl Into<String>) -> StoreError {
    StoreError::Unavailable { message: message.into(), written: Written::No }
}

/// Nothing was asked for but to read.
pub fn unread(silence: &Silence) -> StoreError {
    unavailable(format!("the connection to Redis failed: {}", silence.0))
}

pub fn perhaps_written(silence: &Silence) -> StoreError {
    let message = format!("the connection to Redis failed before it answered: {}", silence.0);
    StoreError::Unavailable { message, written: Written::Perhaps }
}

pub fn refused(label: &str, error: &ServerError) -> StoreError {
    let (code, detail) = reason(error);
    let damaged = |message: String| StoreError::Corrupt { place: label.into(), message };
    match code {
        "CFGONE" => damaged(GONE.into()),
        "CFBACK" => damaged(format!("it went back ({detail}): records that Redis had acknowledged are lost")),
        "CFHALF" => half(label, detail),
        "CFHOLE" => damaged(format!("records are missing: {detail}")),
        "WRONGTYPE" => damaged(format!("a key of the ledger was written by someone else: {detail}; nothing was written")),
        "OOM" => unavailable("Redis has used up its maxmemory and refuses writes; raise maxmemory or prune the ledger"),
        "LOADING" => unavailable("Redis is loading its data after a start"),
        "READONLY" => unavailable("this Redis is a replica and takes no writes; name the master"),
        "MOVED" => unavailable(format!("another node of the cluster holds the ledger's slot ({detail}); name that node")),
        "MISCONF" => unavailable(format!("Redis cannot write to its disk: {detail}")),
        _ => unavailable(format!("Redis refused: {code} {detail}")),
    }
}

pub fn half(label: &str, detail: &str) -> StoreError {
    let message = format!("a batch was written in part: {detail}; restore Redis from before it, or compare the streams it names");
    StoreError::Corrupt { place: label.into(), message }
}

/// Code and detail; where a transaction was given up when it was to be ended, or what it wrote was taken back, those of why.
fn reason(error: &ServerError) -> (&str, &str) {
    let detail = error.details().unwrap_or_default();
    let why = match error.code() {
        "EXECABORT" => detail.split_once("because of: ").map(|(_, why)| why),
        "CFUNDONE" => Some(detail),
        _ => None,
    };
    why.map_or((error.code(), detail), |why| why.split_once(' ').unwrap_or((why, "")))
}

pub const GONE: &str = "the ledger is not there any more; Redis was emptied, or another Redis answers at this address";

/// Whether another connection may get another answer.
pub fn ends_the_line(error: &ServerError) -> bool {
    matches!(reason(error).0, "LOADING" | "READONLY" | "MOVED" | "MASTERDOWN" | "CLUSTERDOWN" | "NOAUTH")
}
