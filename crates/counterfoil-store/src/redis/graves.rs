//! Tombstones, listed and brought in from elsewhere.
//!
//! They stand among the records, so a listing walks over all keys, a bounded step at a time.

use counterfoil_core::StreamId;
use redis::{Value, pipe};

use super::fault::{GONE, perhaps_written, unavailable};
use super::link::Link;
use super::read::{array, bytes};
use super::record::{Kept, TOMBSTONE_BYTES};
use super::{fold, script};
use crate::graves::distinct;
use crate::{AppendError, Cursor, Graveyard, StoreError, Tombstone, Version};

/// Keys that Redis looks at in one step: about a millisecond of its time.
const LOOKED_AT_MAX: usize = 1_000;

/// How often it is tried to bury streams that others write to.
const FOLDS_MAX: u32 = 8;

pub async fn tombstones(link: &Link, from: Option<Cursor>, limit: usize) -> Result<Graveyard, StoreError> {
    let from = from.map_or_else(|| b"0".to_vec(), |cursor| cursor.0);
    let mut question = pipe();
    question.cmd("HGET").arg(&link.keys.meta).arg("id");
    question.cmd("SCAN").arg(from).arg("MATCH").arg(link.keys.firsts()).arg("COUNT").arg(limit.clamp(1, LOOKED_AT_MAX));
    let mut answers = link.read(&question).await?.into_iter();
    if answers.next().and_then(bytes) != Some(link.id.clone().into_bytes()) {
        return Err(StoreError::Corrupt { place: link.address.label(), message: GONE.into() });
    }
    let mut answer = array(answers.next()).into_iter();
    let (cursor, keys) = (answer.next().and_then(bytes), array(answer.next()));
    let streams: Vec<StreamId> = keys.into_iter().filter_map(bytes).filter_map(|key| link.keys.first_of(&key)).collect();
    let next = cursor.filter(|cursor| cursor != b"0").map(Cursor);
    let mut graveyard = Graveyard { found: Vec::new(), next };
    if streams.is_empty() {
        return Ok(graveyard);
    }
    let mut question = pipe();
    for stream in &streams {
        question.cmd("GETRANGE").arg(link.keys.record(stream, Version(1))).arg(0).arg(TOMBSTONE_BYTES - 1);
    }
    for (stream, value) in streams.into_iter().zip(link.read(&question).await?) {
        let Some(value) = bytes(value).filter(|value| value.starts_with(b"T")) else { continue };
        if let Kept::Tombstone { version } = Kept::read(stream, &value)? {
            graveyard.found.push(Tombstone { stream, version });
        }
    }
    Ok(graveyard)
}

pub async fn entomb(link: &Link, tombstones: &[Tombstone]) -> Result<(), AppendError> {
    let tombstones = distinct(tombstones)?;
    for _ in 0..FOLDS_MAX {
        fold::fold(link).await?;
        if entomb_folded(link, &tombstones).await? {
            return Ok(());
        }
    }
    Err(unavailable("others keep writing to the streams that are to be buried").into())
}

/// False: the index does not know yet of all that is to go.
async fn entomb_folded(link: &Link, tombstones: &[Tombstone]) -> Result<bool, AppendError> {
    let by = link.deadline();
    let line = link.line_to_write(by).await?;
    let mut command = script::entomb();
    command.arg(&link.keys.meta).arg(&link.id);
    for tombstone in tombstones {
        command.arg(&tombstone.stream.0).arg(&tombstone.version.0.to_be_bytes());
    }
    match line.ask(&command, by).await {
        Ok(Ok(Value::Int(done))) => Ok(done == 1),
        Ok(Ok(Value::Array(moved))) => {
            let stream = |index: &Value| match index {
                Value::Int(index) => Some(tombstones.get(usize::try_from(*index).ok()?.checked_sub(1)?)?.stream),
                _ => None,
            };
            Err(AppendError::Conflict { streams: moved.iter().filter_map(stream).collect() })
        }
        Ok(Ok(other)) => {
            Err(StoreError::Corrupt { place: link.address.label(), message: format!("a burial was answered with {other:?}") }.into())
        }
        Ok(Err(error)) => Err(link.refused(&line, &error).into()),
        Err(silence) => {
            link.lost(&line);
            Err(perhaps_written(&silence).into())
        }
    }
}
