//! Tombstones, listed and brought in from elsewhere.
//!
//! They stand among the records, so a listing walks over all of them, a bounded step at a time.

use counterfoil_core::StreamId;
use redis::{Value, pipe};

use super::fault::perhaps_written;
use super::link::Link;
use super::read::{array, bytes};
use super::record::{Head, corrupt};
use super::script;
use crate::graves::distinct;
use crate::{AppendError, Cursor, Graveyard, StoreError, Tombstone};

/// Fields that Redis looks at in one step: about a millisecond of its time.
const LOOKED_AT_MAX: usize = 1_000;

pub async fn tombstones(link: &Link, from: Option<Cursor>, limit: usize) -> Result<Graveyard, StoreError> {
    let from = from.map_or_else(|| b"0".to_vec(), |cursor| cursor.0);
    let mut question = script::tombstones();
    question.arg(&link.keys.meta).arg(&link.id).arg(from).arg(limit.clamp(1, LOOKED_AT_MAX));
    let mut answer = array(link.read(pipe().add_command(question)).await?.into_iter().next()).into_iter();
    let (cursor, found) = (answer.next().and_then(bytes), array(answer.next()));
    let next = cursor.filter(|cursor| cursor != b"0").map(Cursor);
    let mut graveyard = Graveyard { found: Vec::with_capacity(found.len() / 2), next };
    let mut found = found.into_iter().filter_map(bytes);
    while let (Some(stream), Some(head)) = (found.next(), found.next()) {
        let Ok(stream) = stream.try_into().map(StreamId) else { continue };
        match Head::read(stream, &head)? {
            Head::Tombstone { version } => graveyard.found.push(Tombstone { stream, version }),
            Head::Live(_) => return Err(corrupt(stream, "a record was listed as a tombstone")),
        }
    }
    Ok(graveyard)
}

pub async fn entomb(link: &Link, tombstones: &[Tombstone]) -> Result<(), AppendError> {
    let tombstones = distinct(tombstones)?;
    let by = link.deadline();
    let line = link.line_to_write(by).await?;
    let mut command = script::entomb();
    command.arg(&link.keys.meta).arg(&link.id);
    for tombstone in &tombstones {
        command.arg(&tombstone.stream.0).arg(&tombstone.version.0.to_be_bytes());
    }
    match line.ask(&command, by).await {
        Ok(Ok(Value::Int(1))) => Ok(()),
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
