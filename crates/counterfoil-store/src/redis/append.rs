//! Append: one transaction per batch. `MSETNX` writes all of its records, or none where a stream has gone on, since a record is a key; a script, which does
//! next to nothing for each, looks at what keys cannot tell and gives the batch its position.

use counterfoil_core::StreamId;
use redis::{Cmd, ServerError, Value, cmd, pipe};

use super::fault::{perhaps_written, unavailable};
use super::fold;
use super::link::Link;
use super::read::{array, bytes};
use super::record::{BatchId, value};
use super::script;
use crate::remote::StreamPrefix;
use crate::spread::Set;
use crate::{AppendError, Batch, Position, StoreError, Version, Write};

/// Redis takes a million arguments at most, and a write needs up to three.
const WRITES_MAX: usize = 100_000;

/// The index is brought up along with batches as small as this: few callers can wait for it, and what people look for is there at once.
const FOLDED_ALONG_MAX: usize = 4;

pub async fn append(link: &Link, batch: &Batch) -> Result<Position, AppendError> {
    let writes = &batch.writes;
    if writes.is_empty() {
        return Ok(last(link).await?);
    }
    if writes.len() > WRITES_MAX {
        return Err(unavailable(format!("a batch of {} writes; at most {WRITES_MAX} are sent at once", writes.len())).into());
    }
    let mut named = Set::with_capacity_and_hasher(writes.len(), Default::default());
    let twice: Vec<StreamId> = writes.iter().map(|write| write.stream).filter(|stream| !named.insert(*stream)).collect();
    if !twice.is_empty() {
        return Err(AppendError::Conflict { streams: moved(link, writes, twice).await? });
    }
    let name = link.batch();
    let mut commands = vec![records(link, &name, writes), accept(link, &name, writes)];
    if writes.len() <= FOLDED_ALONG_MAX {
        commands.push(fold::along(link));
    }
    let by = link.deadline();
    let line = link.line_to_write(by).await?;
    match script::transaction(&line, commands, by).await {
        Ok(Ok(answers)) => match accepted(answers) {
            (_, Some(Ok(Value::Int(0)))) => {
                let streams = moved(link, writes, Vec::new()).await?;
                // Whatever was in the way is gone: nothing was written, and it may be asked for again.
                if streams.is_empty() {
                    return Err(unavailable("others were writing to the same streams").into());
                }
                Err(AppendError::Conflict { streams })
            }
            (_, Some(Ok(Value::Int(position)))) => {
                let position = position.cast_unsigned();
                link.saw(position);
                Ok(Position(position))
            }
            // The records are there, and nobody knows whether they were accepted.
            (Ok(Value::Int(1)), Some(Err(error))) if !error.code().starts_with("CF") => Err(link.half(&error).into()),
            (_, Some(Err(error))) => Err(link.refused(&line, &error).into()),
            (_, other) => {
                Err(StoreError::Corrupt { place: link.address.label(), message: format!("an append was answered with {other:?}") }.into())
            }
        },
        Ok(Err(error)) => Err(link.refused(&line, &error).into()),
        Err(silence) => {
            link.lost(&line);
            Err(perhaps_written(&silence).into())
        }
    }
}

/// What was said to the records, and to the script.
fn accepted(answers: Vec<Result<Value, ServerError>>) -> (Result<Value, ServerError>, Option<Result<Value, ServerError>>) {
    let mut answers = answers.into_iter();
    (answers.next().unwrap_or(Ok(Value::Nil)), answers.next())
}

async fn last(link: &Link) -> Result<Position, StoreError> {
    let answers = link.read(pipe().cmd("GET").arg(&link.keys.position)).await?;
    let position = answers.into_iter().next().and_then(bytes).and_then(|digits| String::from_utf8(digits).ok()?.parse().ok());
    Ok(Position(position.unwrap_or(0)))
}

/// `streams`, and those of the writes that are not as they are expected to be.
async fn moved(link: &Link, writes: &[Write], mut streams: Vec<StreamId>) -> Result<Vec<StreamId>, StoreError> {
    let mut question = script::stands(&link.keys.meta);
    writes.iter().for_each(|write| {
        question.arg(&write.stream.0);
    });
    let stands = array(link.read(pipe().add_command(question)).await?.into_iter().next());
    for (write, stand) in writes.iter().zip(stands) {
        if stand != Value::Int(i64::try_from(write.expected.0).unwrap_or(i64::MAX)) {
            streams.push(write.stream);
        }
    }
    streams.sort();
    streams.dedup();
    Ok(streams)
}

/// All of them or none, with the key of the batch, by which the script knows.
fn records(link: &Link, batch: &BatchId, writes: &[Write]) -> Cmd {
    let mut command = cmd("MSETNX");
    for (write, place) in writes.iter().zip(1..) {
        command.arg(link.keys.record(&write.stream, write.expected.next())).arg(value(write, batch, place));
    }
    command.arg(link.keys.batch(batch)).arg("");
    command
}

/// In the order that `accept.lua` says.
fn accept(link: &Link, batch: &BatchId, writes: &[Write]) -> Cmd {
    let place = |write: &Write, version: Version| [&write.stream.0[..], &version.0.to_be_bytes()].concat();
    let expiring = || writes.iter().filter_map(|write| Some((write.summary.expires?, write)));
    let logged: Vec<u8> = writes.iter().flat_map(|write| place(write, write.expected)).collect();
    let expires: Vec<u8> = expiring().flat_map(|(_, write)| place(write, write.expected.next())).collect();
    let earliest = expiring().map(|(at, _)| at.0).min().unwrap_or_default();
    let heard: Vec<u8> = writes.iter().flat_map(|write| StreamPrefix::from(&write.stream).0).collect();
    let mut command = link.scripts.accept();
    command.arg(&link.keys.meta).arg(&link.id).arg(link.seen()).arg(logged).arg(earliest).arg(expires).arg(heard);
    command.arg(u8::from(link.listens())).arg(batch);
    for write in writes.iter().filter(|write| write.expected > Version::NONE) {
        command.arg(link.keys.record(&write.stream, write.expected));
    }
    command
}
