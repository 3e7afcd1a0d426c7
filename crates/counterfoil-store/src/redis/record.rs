//! One record as Redis keeps it: a key of its own (`keys.rs`), whose value is made here whole.
//!
//! The scripts read the beginning of values too, at fixed places: they are part of the format, and the scripts change with them. The head's checksum
//! covers the stream and everything before the body, and so the checksum of the body, which is in it. A record's position is its place behind
//! the position of its batch, which nobody knows when the value is made.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | `R` |
//! | 16 | the batch |
//! | 4 | place in the batch, from 1 |
//! | 8 | version |
//! | 4 | checksum of the head |
//! | 8, 8, 8 | at, due, expires; microseconds |
//! | 1 | bit 0: open, bit 1: due is set, bit 2: expires is set |
//! | 1, 1, 1, 1, 1 | length of tool, length of run, kind, length of state, length of tenant |
//! | 4 | checksum of the body |
//! | … | state, tenant, tool, run |
//! | … | body |
//!
//! A tombstone is `T` and the version that its stream had, in eight bytes; it stands in the place of the stream's first record.

use counterfoil_core::summary::{StreamKind, state_word};
use counterfoil_core::{RunId, StreamId, Summary, Tenant, Timestamp, ToolName};

use crate::{Found, Position, Record, Recorded, StoreError, Version, Write};

/// Differs from that of every other batch of every process.
pub type BatchId = [u8; 16];

const CHECKSUM: std::ops::Range<usize> = 29..33;
const NAMES: usize = 67;

/// A tombstone is as long.
pub const TOMBSTONE_BYTES: usize = 9;

/// More than a head ever is: names have at most 255 bytes.
pub const HEAD_BYTES_MAX: usize = NAMES + 4 * 255;

const OPEN: u8 = 1;
const DUE: u8 = 2;
const EXPIRES: u8 = 4;

/// The value of a record. `place`: in its batch, from 1.
pub fn value(write: &Write, batch: &BatchId, place: u32) -> Vec<u8> {
    let summary = &write.summary;
    let names = [
        summary.state,
        summary.tenant.as_str(),
        summary.tool.as_ref().map_or("", ToolName::as_str),
        summary.run.as_ref().map_or("", RunId::as_str),
    ];
    let [state, tenant, tool, run] = names.map(|name| u8::try_from(name.len()).expect("names have at most 255 bytes"));
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    let flags = flag(summary.open, OPEN) | flag(summary.due.is_some(), DUE) | flag(summary.expires.is_some(), EXPIRES);
    let time = |at: Option<Timestamp>| at.map_or(0, |at| at.0).to_be_bytes();
    let mut value = Vec::with_capacity(NAMES + names.iter().map(|name| name.len()).sum::<usize>() + write.body.len());
    value.push(b'R');
    value.extend_from_slice(batch);
    value.extend_from_slice(&place.to_be_bytes());
    value.extend_from_slice(&write.expected.next().0.to_be_bytes());
    value.extend_from_slice(&[0; 4]);
    value.extend_from_slice(&write.at.0.to_be_bytes());
    value.extend_from_slice(&time(summary.due));
    value.extend_from_slice(&time(summary.expires));
    value.extend_from_slice(&[flags, tool, run, summary.kind as u8, state, tenant]);
    value.extend_from_slice(&crc32fast::hash(write.body.as_bytes()).to_be_bytes());
    names.iter().for_each(|name| value.extend_from_slice(name.as_bytes()));
    let sum = checksum(&write.stream, &value);
    value[CHECKSUM].copy_from_slice(&sum.to_be_bytes());
    value.extend_from_slice(write.body.as_bytes());
    value
}

/// Leaves out its own place.
fn checksum(stream: &StreamId, head: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&stream.0);
    sum.update(&head[..CHECKSUM.start]);
    sum.update(&head[CHECKSUM.end..]);
    sum.finalize()
}

/// What stands in the place of a record.
pub enum Kept {
    Live(Live),
    Tombstone { version: Version },
}

/// A record, but for its body.
pub struct Live {
    /// From 1.
    place: u32,
    pub version: Version,
    at: Timestamp,
    pub summary: Summary,
    body_sum: u32,
    body_from: usize,
}

impl Kept {
    /// Of a value, or of its first [`HEAD_BYTES_MAX`] bytes. Refused when it does not match its checksum.
    pub fn read(stream: StreamId, value: &[u8]) -> Result<Self, StoreError> {
        if let Some((b'T', version)) = value.split_first() {
            let version = version.try_into().map_err(|_| corrupt(stream, "its tombstone is cut"))?;
            return Ok(Self::Tombstone { version: Version(u64::from_be_bytes(version)) });
        }
        let lengths = value.get(58..63).filter(|_| value[0] == b'R' && value.len() >= NAMES);
        let lengths = lengths.ok_or_else(|| corrupt(stream, "a record is cut"))?;
        let names = [0, 1, 3, 4].map(|at| usize::from(lengths[at])).iter().sum::<usize>();
        let head = value.get(..NAMES + names).ok_or_else(|| corrupt(stream, "a record is cut"))?;
        if checksum(&stream, head).to_be_bytes() != head[CHECKSUM] {
            return Err(corrupt(stream, "a record does not match its checksum"));
        }
        parse(head).map(Self::Live).ok_or_else(|| corrupt(stream, "a record cannot be read"))
    }
}

impl Live {
    /// `base`: the position before its batch.
    pub fn position(&self, base: u64) -> Position {
        Position(base.saturating_add(u64::from(self.place)))
    }

    pub fn found(self, stream: StreamId, position: Position) -> Found {
        Found { stream, version: self.version, position, at: self.at, summary: self.summary }
    }

    /// With the body that is in `value`.
    pub fn recorded(self, stream: StreamId, base: u64, value: &[u8]) -> Result<Recorded, StoreError> {
        let (version, position) = (self.version, self.position(base));
        let body = value.get(self.body_from..).filter(|body| crc32fast::hash(body) == self.body_sum);
        let body = body.and_then(|body| String::from_utf8(body.to_vec()).ok());
        let body = body.ok_or_else(|| corrupt(stream, &format!("the body of record {} does not match its checksum", version.0)))?;
        Ok(Recorded { stream, summary: self.summary, record: Record { version, position, at: self.at, body } })
    }
}

fn parse(head: &[u8]) -> Option<Live> {
    let number = |from: usize| Some(u64::from_be_bytes(head.get(from..from + 8)?.try_into().ok()?));
    let short = |from: usize| Some(u32::from_be_bytes(head.get(from..from + 4)?.try_into().ok()?));
    let time = |from: usize| Some(Timestamp(number(from)? as i64));
    let &[flags, tool, run, kind, state, tenant] = head.get(57..63)? else { return None };
    let mut names = std::str::from_utf8(head.get(NAMES..)?).ok()?;
    let mut name = |length: u8| {
        let (name, rest) = names.split_at_checked(length.into())?;
        names = rest;
        Some(name)
    };
    let (state, tenant, tool, run) = (name(state)?, name(tenant)?, name(tool)?, name(run)?);
    let set = |bit: u8, at: Timestamp| (flags & bit != 0).then_some(at);
    let summary = Summary {
        kind: StreamKind::from_code(kind)?,
        tenant: Tenant::new(tenant).ok()?,
        state: state_word(state)?,
        tool: if tool.is_empty() { None } else { Some(ToolName::new(tool).ok()?) },
        run: if run.is_empty() { None } else { Some(RunId::new(run).ok()?) },
        open: flags & OPEN != 0,
        due: set(DUE, time(41)?),
        expires: set(EXPIRES, time(49)?),
    };
    Some(Live { place: short(17)?, version: Version(number(21)?), at: time(33)?, summary, body_sum: short(63)?, body_from: head.len() })
}

pub fn corrupt(stream: StreamId, message: &str) -> StoreError {
    StoreError::Corrupt { place: format!("stream {stream}"), message: message.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: StreamId = StreamId([7; 32]);

    fn write() -> Write {
        Write {
            stream: STREAM,
            expected: Version(258),
            at: Timestamp(-1),
            body: "naïve".into(),
            summary: Summary {
                kind: StreamKind::Budget,
                tenant: Tenant::new("a b").expect("a name"),
                state: "waiting_approval",
                tool: Some(ToolName::new("bank.pay").expect("a name")),
                run: None,
                open: true,
                due: Some(Timestamp(i64::MIN)),
                expires: Some(Timestamp(i64::MAX)),
            },
        }
    }

    /// The third of its batch.
    fn stored() -> Vec<u8> {
        value(&write(), b"0123456789abcdef", 3)
    }

    fn read(stream: StreamId, stored: &[u8]) -> Result<Live, StoreError> {
        match Kept::read(stream, stored)? {
            Kept::Live(live) => Ok(live),
            Kept::Tombstone { .. } => panic!("no tombstone"),
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let Recorded { record, summary, .. } =
            read(STREAM, &stored()).and_then(|live| live.recorded(STREAM, 39, &stored())).expect("whole");
        assert_eq!(record, Record { version: Version(259), position: Position(42), at: Timestamp(-1), body: "naïve".into() });
        assert_eq!(summary, write().summary);
    }

    /// The scripts count from 1, and find things at these places.
    #[test]
    fn the_scripts_find_their_places() {
        let stored = stored();
        let at = |from: usize, to: usize| &stored[from - 1..to];
        assert_eq!((at(1, 1), at(2, 17), at(18, 21)), (&b"R"[..], &b"0123456789abcdef"[..], &[0, 0, 0, 3][..]));
        assert_eq!(at(42, 49), i64::MIN.to_be_bytes());
        assert_eq!(at(50, 57), i64::MAX.to_be_bytes());
        assert_eq!(at(58, 58), [OPEN | DUE | EXPIRES]);
        assert_eq!((at(59, 59), at(61, 63)), (&[8][..], &[4, 16, 3][..]));
        assert_eq!(at(68, 68 + 16 + 3 + 8 - 1), b"waiting_approvala bbank.pay");
        let shortest = Write {
            body: String::new(),
            summary: Summary { state: "", tool: None, tenant: Tenant::new("a").expect("a name"), ..write().summary },
            ..write()
        };
        assert_eq!(value(&shortest, &[0; 16], 1).len(), 67 + 1, "as newest.lua has it, and the tenant");
    }

    #[test]
    fn any_changed_byte_is_noticed() {
        let stored = stored();
        let whole = |stream, stored: &[u8]| read(stream, stored).and_then(|live| live.recorded(stream, 0, stored));
        for place in 1..stored.len() {
            let mut changed = stored.clone();
            changed[place] ^= 1;
            assert!(whole(STREAM, &changed).is_err(), "changed at {place}");
        }
        assert!(whole(StreamId([8; 32]), &stored).is_err(), "another stream's");
        for length in 1..stored.len() {
            assert!(whole(STREAM, &stored[..length]).is_err(), "cut to {length}");
        }
    }
}
