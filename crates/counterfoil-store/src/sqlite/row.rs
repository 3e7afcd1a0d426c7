//! One row of `record`: how it is written, read back, and checked.
//!
//! The checksum covers every column, the position included, so a row that was changed, cut or moved is refused
//! instead of being decided upon.

use counterfoil_core::ids::NAME_BYTES_MAX;
use counterfoil_core::summary::{StreamKind, state_word};
use counterfoil_core::{RunId, StreamId, Summary, Tenant, Timestamp, ToolName};
use rusqlite::types::{FromSql, ValueRef};
use rusqlite::{Row, Statement};

use super::fault::{corrupt, refused};
use crate::{Position, Record, StoreError, Version, Write};

pub const INSERT: &str = "INSERT INTO record(pos, stream, version, prev, at, kind, open, due, expires, sum, tenant, state, tool, run, body) \
     VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";

// Short, since the cache of prepared statements hashes the text for each use. The columns are as in the schema.
pub const SELECT: &str = "SELECT * FROM record";
pub const SELECT_ONE: &str = "SELECT * FROM record WHERE pos=?1";
pub const SELECT_NEWER: &str = "SELECT * FROM record WHERE pos > ?1 ORDER BY pos";
pub const SELECT_NEWEST: &str = "SELECT r.* FROM stream_index i JOIN record r ON r.pos=i.pos WHERE i.stream=?1";

/// The columns of a row, borrowed from a write or from SQLite.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    pub pos: u64,
    pub stream: StreamId,
    pub version: u64,
    pub prev: u64,
    pub at: i64,
    kind: u8,
    open: bool,
    due: Option<i64>,
    expires: Option<i64>,
    tenant: &'a str,
    state: &'a str,
    tool: Option<&'a str>,
    run: Option<&'a str>,
    body: &'a str,
}

impl<'a> Fields<'a> {
    pub fn of_write(write: &'a Write, pos: u64, prev: u64) -> Self {
        let summary = &write.summary;
        Self {
            pos,
            stream: write.stream,
            version: write.expected.0 + 1,
            prev,
            at: write.at.0,
            kind: summary.kind as u8,
            open: summary.open,
            due: summary.due.map(|at| at.0),
            expires: summary.expires.map(|at| at.0),
            tenant: summary.tenant.as_str(),
            state: summary.state,
            tool: summary.tool.as_ref().map(|tool| tool.as_str()),
            run: summary.run.as_ref().map(|run| run.as_str()),
            body: &write.body,
        }
    }

    /// Reads a row of [`SELECT`] and checks its sum.
    pub fn of_row(row: &'a Row<'_>) -> Result<Self, StoreError> {
        let pos: i64 = row.get(0).map_err(refused)?;
        let pos = pos as u64;
        let fields = Self {
            pos,
            stream: StreamId(column(row, pos, 1)?),
            version: column::<i64>(row, pos, 2)? as u64,
            prev: column::<i64>(row, pos, 3)? as u64,
            at: column(row, pos, 4)?,
            kind: column(row, pos, 5)?,
            open: column(row, pos, 6)?,
            due: column(row, pos, 7)?,
            expires: column(row, pos, 8)?,
            tenant: text(row, pos, 10)?.unwrap_or_default(),
            state: text(row, pos, 11)?.unwrap_or_default(),
            tool: text(row, pos, 12)?,
            run: text(row, pos, 13)?,
            body: text(row, pos, 14)?.unwrap_or_default(),
        };
        if fields.checksum() != column::<i32>(row, pos, 9)? {
            return Err(corrupt(pos, "the record does not match its checksum"));
        }
        Ok(fields)
    }

    pub fn insert(&self, statement: &mut Statement<'_>) -> rusqlite::Result<()> {
        statement.raw_bind_parameter(1, self.pos as i64)?;
        statement.raw_bind_parameter(2, &self.stream.0[..])?;
        statement.raw_bind_parameter(3, self.version as i64)?;
        statement.raw_bind_parameter(4, self.prev as i64)?;
        statement.raw_bind_parameter(5, self.at)?;
        statement.raw_bind_parameter(6, self.kind)?;
        statement.raw_bind_parameter(7, self.open)?;
        statement.raw_bind_parameter(8, self.due)?;
        statement.raw_bind_parameter(9, self.expires)?;
        statement.raw_bind_parameter(10, self.checksum())?;
        statement.raw_bind_parameter(11, self.tenant)?;
        statement.raw_bind_parameter(12, self.state)?;
        statement.raw_bind_parameter(13, self.tool)?;
        statement.raw_bind_parameter(14, self.run)?;
        statement.raw_bind_parameter(15, self.body)?;
        statement.raw_execute()?;
        Ok(())
    }

    /// CRC-32 over all columns; names carry their length, so that none can run into the next. As a signed number,
    /// since SQLite then stores four bytes.
    fn checksum(&self) -> i32 {
        // No name is empty, so length 0 is "none"; none is longer than 255.
        let names = [self.tenant, self.state, self.tool.unwrap_or_default(), self.run.unwrap_or_default()];
        // In one piece, since short pieces cost more than long ones.
        let mut head = [0; 88 + 4 * NAME_BYTES_MAX];
        let mut length = 0;
        let mut put = |bytes: &[u8]| {
            head[length..length + bytes.len()].copy_from_slice(bytes);
            length += bytes.len();
        };
        put(&self.stream.0);
        put(&self.pos.to_le_bytes());
        put(&self.version.to_le_bytes());
        put(&self.prev.to_le_bytes());
        put(&self.at.to_le_bytes());
        put(&[self.kind, u8::from(self.open), u8::from(self.due.is_some()), u8::from(self.expires.is_some())]);
        put(&self.due.unwrap_or_default().to_le_bytes());
        put(&self.expires.unwrap_or_default().to_le_bytes());
        put(&names.map(|name| name.len() as u8));
        // A damaged row may hold more than fits; what is cut off here makes its sum wrong, as it should be.
        names.iter().for_each(|name| put(&name.as_bytes()[..name.len().min(NAME_BYTES_MAX)]));
        let mut sum = crc32fast::Hasher::new();
        sum.update(&head[..length]);
        sum.update(self.body.as_bytes());
        sum.finalize() as i32
    }

    /// Not at rest, or due some day: kept at hand in memory.
    pub fn awake(&self) -> bool {
        self.open || self.due.is_some()
    }

    pub fn due(&self) -> Option<i64> {
        self.due
    }

    pub fn expires(&self) -> Option<i64> {
        self.expires
    }

    pub fn record(&self) -> Record {
        Record { version: Version(self.version), position: Position(self.pos), at: Timestamp(self.at), body: self.body.to_owned() }
    }

    pub fn kind(&self) -> Result<StreamKind, StoreError> {
        StreamKind::from_code(self.kind).ok_or_else(|| corrupt(self.pos, format!("unknown kind {}", self.kind)))
    }

    pub fn summary(&self) -> Result<Summary, StoreError> {
        let name = |error: counterfoil_core::ids::NameError| corrupt(self.pos, error.to_string());
        Ok(Summary {
            kind: self.kind()?,
            tenant: Tenant::new(self.tenant).map_err(name)?,
            state: state_word(self.state).ok_or_else(|| corrupt(self.pos, format!("unknown state {:?}", self.state)))?,
            tool: self.tool.map(ToolName::new).transpose().map_err(name)?,
            run: self.run.map(RunId::new).transpose().map_err(name)?,
            open: self.open,
            due: self.due.map(Timestamp),
            expires: self.expires.map(Timestamp),
        })
    }
}

fn column<T: FromSql>(row: &Row<'_>, pos: u64, index: usize) -> Result<T, StoreError> {
    row.get(index).map_err(|error| corrupt(pos, error.to_string()))
}

fn text<'a>(row: &'a Row<'_>, pos: u64, index: usize) -> Result<Option<&'a str>, StoreError> {
    match row.get_ref(index).map_err(refused)? {
        ValueRef::Null => Ok(None),
        ValueRef::Text(bytes) => Ok(Some(std::str::from_utf8(bytes).map_err(|error| corrupt(pos, error.to_string()))?)),
        other => Err(corrupt(pos, format!("{} where text belongs", other.data_type()))),
    }
}
