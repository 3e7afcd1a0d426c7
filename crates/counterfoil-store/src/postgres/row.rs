//! Records as columns: how a batch is sent, how rows are read back, and what is checked.
//!
//! A batch goes as one array per column, so that any number of writes is one statement. The checksum covers what decisions are made
//! from: stream, version, time and body. Positions are given out by the server and are not in it.
//!
//! Writes are sent, and so inserted, in the order of their streams, so that two batches that share streams meet in the same order and do
//! not lock each other out; but the first comes first, because it holds the batch's number (settle.rs) and should hold it at once.

use counterfoil_core::summary::{StreamKind, state_word};
use counterfoil_core::{RunId, StreamId, Summary, Tenant, Timestamp, ToolName};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql};

use super::fault::corrupt;
use crate::{Found, Position, Record, Recorded, StoreError, Version, Write};

/// Writes, column by column.
#[derive(Default)]
pub struct Columns<'a> {
    pub stream: Vec<&'a [u8]>,
    pub expected: Vec<i64>,
    /// The place in the batch, from 0.
    place: Vec<i16>,
    at: Vec<i64>,
    due: Vec<Option<i64>>,
    expires: Vec<Option<i64>>,
    sum: Vec<i32>,
    kind: Vec<i16>,
    open: Vec<bool>,
    tenant: Vec<&'a str>,
    state: Vec<&'a str>,
    tool: Vec<Option<&'a str>>,
    run: Vec<Option<&'a str>>,
    body: Vec<&'a str>,
}

impl<'a> Columns<'a> {
    pub fn of(writes: &'a [Write]) -> Self {
        let mut columns = Self::default();
        let mut order: Vec<usize> = (0..writes.len()).collect();
        if let Some(rest) = order.get_mut(1..) {
            rest.sort_unstable_by_key(|place| writes[*place].stream);
        }
        for place in order {
            let write = &writes[place];
            let summary = &write.summary;
            let expected = expected(write);
            columns.stream.push(&write.stream.0);
            columns.expected.push(expected);
            columns.place.push(i16::try_from(place).expect("a part has few enough writes"));
            columns.at.push(write.at.0);
            columns.due.push(summary.due.map(|at| at.0));
            columns.expires.push(summary.expires.map(|at| at.0));
            columns.sum.push(checksum(&write.stream, expected as u64 + 1, write.at.0, &write.body));
            columns.kind.push(summary.kind as i16);
            columns.open.push(summary.open);
            columns.tenant.push(summary.tenant.as_str());
            columns.state.push(summary.state);
            columns.tool.push(summary.tool.as_ref().map(|tool| tool.as_str()));
            columns.run.push(summary.run.as_ref().map(|run| run.as_str()));
            columns.body.push(&write.body);
        }
        columns
    }

    /// In the order of [`ARRAYS`].
    pub fn params(&self) -> [&(dyn ToSql + Sync); 14] {
        [
            &self.stream,
            &self.expected,
            &self.at,
            &self.due,
            &self.expires,
            &self.sum,
            &self.kind,
            &self.open,
            &self.tenant,
            &self.state,
            &self.tool,
            &self.run,
            &self.body,
            &self.place,
        ]
    }
}

/// More than PostgreSQL counts to is a conflict, as it should be: no stream has so many records.
pub fn expected(write: &Write) -> i64 {
    i64::try_from(write.expected.0).unwrap_or(i64::MAX).min(i64::MAX - 1)
}

/// The arrays as rows `u`.
pub const ARRAYS: &str = "(SELECT unnest($1::bytea[]) AS stream, unnest($2::int8[]) AS expected, unnest($3::int8[]) AS at, \
     unnest($4::int8[]) AS due, unnest($5::int8[]) AS expires, unnest($6::int4[]) AS sum, unnest($7::int2[]) AS kind, \
     unnest($8::bool[]) AS open, unnest($9::text[]) AS tenant, unnest($10::text[]) AS state, unnest($11::text[]) AS tool, \
     unnest($12::text[]) AS run, unnest($13::text[]) AS body, unnest($14::int2[]) AS place) AS u";

fn checksum(stream: &StreamId, version: u64, at: i64, body: &str) -> i32 {
    let mut head = [0; 48];
    head[..32].copy_from_slice(&stream.0);
    head[32..40].copy_from_slice(&version.to_le_bytes());
    head[40..].copy_from_slice(&at.to_le_bytes());
    let mut sum = crc32fast::Hasher::new();
    sum.update(&head);
    sum.update(body.as_bytes());
    sum.finalize() as i32
}

/// `pos, version, at, sum, body` from column `first` on.
pub fn record(row: &Row, first: usize, stream: &StreamId) -> Result<Record, StoreError> {
    let pos = position(row, first)?;
    let version = count(row, first + 1)?;
    let at: i64 = column(row, first + 2)?;
    let sum: i32 = column(row, first + 3)?;
    let body: String = column(row, first + 4)?;
    if checksum(stream, version, at, &body) != sum {
        return Err(corrupt(format!("position {}", pos.0), format!("version {version} of stream {stream} does not match its checksum")));
    }
    Ok(Record { version: Version(version), position: pos, at: Timestamp(at), body })
}

/// `kind, open, due, expires, tenant, state, tool, run` from column `first` on.
fn summary(row: &Row, first: usize, pos: Position) -> Result<Summary, StoreError> {
    let damaged = |message: String| corrupt(format!("position {}", pos.0), message);
    let name = |error: counterfoil_core::ids::NameError| damaged(error.to_string());
    let kind: i16 = column(row, first)?;
    let state: &str = column(row, first + 5)?;
    Ok(Summary {
        kind: u8::try_from(kind).ok().and_then(StreamKind::from_code).ok_or_else(|| damaged(format!("unknown kind {kind}")))?,
        tenant: Tenant::new(column(row, first + 4)?).map_err(name)?,
        state: state_word(state).ok_or_else(|| damaged(format!("unknown state {state:?}")))?,
        tool: column::<Option<&str>>(row, first + 6)?.map(ToolName::new).transpose().map_err(name)?,
        run: column::<Option<&str>>(row, first + 7)?.map(RunId::new).transpose().map_err(name)?,
        open: column(row, first + 1)?,
        due: column::<Option<i64>>(row, first + 2)?.map(Timestamp),
        expires: column::<Option<i64>>(row, first + 3)?.map(Timestamp),
    })
}

/// `stream`, a record, a summary.
pub fn recorded(row: &Row) -> Result<Recorded, StoreError> {
    let stream = stream(row, 0)?;
    let record = record(row, 1, &stream)?;
    Ok(Recorded { stream, summary: summary(row, 6, record.position)?, record })
}

/// `stream, pos, version, at`, a summary.
pub fn found(row: &Row) -> Result<Found, StoreError> {
    let position = position(row, 1)?;
    Ok(Found {
        stream: stream(row, 0)?,
        version: Version(count(row, 2)?),
        position,
        at: Timestamp(column(row, 3)?),
        summary: summary(row, 4, position)?,
    })
}

pub fn stream(row: &Row, index: usize) -> Result<StreamId, StoreError> {
    stream_of(column(row, index)?)
}

pub fn stream_of(bytes: &[u8]) -> Result<StreamId, StoreError> {
    let bytes = bytes.try_into().map_err(|_| corrupt("the database", format!("a stream's id of {} bytes", bytes.len())))?;
    Ok(StreamId(bytes))
}

pub fn position(row: &Row, index: usize) -> Result<Position, StoreError> {
    count(row, index).map(Position)
}

/// A number that is never negative.
pub fn count(row: &Row, index: usize) -> Result<u64, StoreError> {
    let number: i64 = column(row, index)?;
    u64::try_from(number).map_err(|_| corrupt("the database", format!("{number} where a count belongs")))
}

pub fn column<'a, T: FromSql<'a>>(row: &'a Row, index: usize) -> Result<T, StoreError> {
    row.try_get(index).map_err(|error| corrupt("the database", super::fault::words(&error)))
}

/// As a number that PostgreSQL can compare with.
pub fn clamp(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
