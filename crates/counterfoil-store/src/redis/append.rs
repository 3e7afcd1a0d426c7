//! Append: one transaction per batch, with one script in it. What the script needs is made here, so that Redis, which does one thing at a time, does
//! little; bodies are put beside it, because what a script is given costs it by the byte.

use counterfoil_core::StreamId;
use redis::{Cmd, Value, cmd, pipe};

use super::fault::{perhaps_written, unavailable};
use super::link::Link;
use super::read::bytes;
use super::record::{Head, Packed};
use crate::remote::StreamPrefix;
use crate::spread::Set;
use crate::{AppendError, Batch, Position, StoreError, Version, Write};

/// Redis takes a million arguments at most, and a write needs up to six.
const WRITES_MAX: usize = 100_000;

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
        return Err(AppendError::Conflict { streams: conflicts(link, writes, twice).await? });
    }
    let packed = Packed::new(writes);
    let name = link.stage();
    let (staged, unstaged) = stage(link, &name, packed.pieces);
    let batch = Sent { writes, heads: packed.heads, names: names(link, writes), pieces: staged.len(), seen: link.seen(), stage: &name };
    let by = link.deadline();
    let line = link.line_to_write(by).await?;
    match link.scripts.append.run_between(&line, &staged, |command| batch.pack(link, command), &unstaged, by).await {
        Ok(Ok(Value::Int(position))) => {
            let position = position.cast_unsigned();
            link.saw(position);
            Ok(Position(position))
        }
        Ok(Ok(Value::Array(moved))) => {
            let stream = |index: &Value| match index {
                Value::Int(index) => Some(writes.get(usize::try_from(*index).ok()?.checked_sub(1)?)?.stream),
                _ => None,
            };
            Err(AppendError::Conflict { streams: moved.iter().filter_map(stream).collect() })
        }
        Ok(Ok(other)) => {
            Err(StoreError::Corrupt { place: link.address.label(), message: format!("an append was answered with {other:?}") }.into())
        }
        Ok(Err(error)) => Err(link.refused(&line, &error).into()),
        Err(silence) => {
            link.lost(&line);
            Err(perhaps_written(&silence).into())
        }
    }
}

async fn last(link: &Link) -> Result<Position, StoreError> {
    let answers = link.read(pipe().cmd("GET").arg(&link.keys.position)).await?;
    let position = answers.into_iter().next().and_then(bytes).and_then(|digits| String::from_utf8(digits).ok()?.parse().ok());
    Ok(Position(position.unwrap_or(0)))
}

/// A batch that names a stream twice is never sent: it is only looked up what else is wrong with it.
async fn conflicts(link: &Link, writes: &[Write], mut streams: Vec<StreamId>) -> Result<Vec<StreamId>, StoreError> {
    let mut question = cmd("HMGET");
    question.arg(&link.keys.records);
    writes.iter().for_each(|write| {
        question.arg(&write.stream.0);
    });
    let answers = link.read(pipe().add_command(question)).await?;
    let Some(Value::Array(heads)) = answers.into_iter().next() else { return Ok(streams) };
    for (write, head) in writes.iter().zip(heads) {
        let version = match bytes(head).map(|head| Head::read(write.stream, &head)).transpose()? {
            None => Some(Version::NONE),
            Some(Head::Live(newest)) => Some(newest.found.version),
            Some(Head::Tombstone { .. }) => None,
        };
        if version != Some(write.expected) {
            streams.push(write.stream);
        }
    }
    streams.sort();
    streams.dedup();
    Ok(streams)
}

/// Puts the bodies where the script finds them, and takes away what it left there.
fn stage(link: &Link, name: &str, pieces: Vec<Vec<u8>>) -> (Vec<Cmd>, Cmd) {
    let mut unstaged = cmd("DEL");
    let staged = pieces.into_iter().zip(1..).map(|(piece, number)| {
        let key = link.keys.stage(name, number);
        unstaged.arg(&key);
        cmd("SET").arg(key).arg(piece).to_owned()
    });
    (staged.collect(), unstaged)
}

/// What people look for, and what they find there.
fn names(link: &Link, writes: &[Write]) -> Vec<(String, &'static str)> {
    let name = |write: &Write| {
        let summary = &write.summary;
        let name = link.keys.name(&write.stream, summary.kind, summary.tool.as_ref().map(|tool| tool.as_str()))?;
        Some((name, summary.state))
    };
    writes.iter().filter_map(name).collect()
}

/// A batch, but for its bodies.
struct Sent<'a> {
    writes: &'a [Write],
    heads: Vec<Vec<u8>>,
    names: Vec<(String, &'static str)>,
    pieces: usize,
    seen: u64,
    stage: &'a str,
}

impl Sent<'_> {
    /// In the order that `append.lua` says.
    fn pack(&self, link: &Link, command: &mut Cmd) {
        let writes = || self.writes.iter();
        let place = |write: &Write, version: Version| [&write.stream.0[..], &version.0.to_be_bytes()].concat();
        let expiring = || writes().filter_map(|write| Some((write.summary.expires?, write)));
        let due = || writes().filter_map(|write| Some((write.summary.due?, &write.stream)));
        let logged: Vec<u8> = writes().flat_map(|write| place(write, write.expected)).collect();
        let expires: Vec<u8> = expiring().flat_map(|(_, write)| place(write, write.expected.next())).collect();
        let earliest = expiring().map(|(at, _)| at.0).min().unwrap_or_default();
        let heard: Vec<u8> = writes().flat_map(|write| StreamPrefix::from(&write.stream).0).collect();
        command.arg(&link.keys.meta).arg(&link.id).arg(self.seen).arg(self.writes.len()).arg(2 * due().count()).arg(2 * self.names.len());
        command.arg(logged).arg(earliest).arg(expires).arg(heard).arg(self.pieces).arg(u8::from(link.listens())).arg(self.stage);
        for write in writes() {
            command.arg(&write.stream.0);
        }
        for head in &self.heads {
            command.arg(head);
        }
        for (at, stream) in due() {
            command.arg(at.0).arg(&stream.0);
        }
        for (name, state) in &self.names {
            command.arg(name).arg(state);
        }
    }
}
