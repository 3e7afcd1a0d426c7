//! One record as Redis keeps it: position, header, body.
//!
//! The scripts read headers too, at fixed places: they are part of the format, and `append.lua` and `prune.lua` change with them. The script
//! puts the position in front as 16 decimal digits; the rest is made here. The checksum covers the stream and everything but the position.
//!
//! | bytes | what |
//! |---|---|
//! | 16 | position, decimal |
//! | 8 | version |
//! | 4 | checksum |
//! | 8, 8, 8 | at, due, expires; microseconds |
//! | 1 | bit 0: open, bit 1: due is set, bit 2: expires is set |
//! | 1, 1, 1, 1, 1 | length of tool, length of run, kind, length of state, length of tenant |
//! | … | state, tenant, tool, run |
//! | … | body |

use counterfoil_core::summary::{StreamKind, state_word};
use counterfoil_core::{RunId, StreamId, Summary, Tenant, Timestamp, ToolName};

use crate::{Position, Record, Recorded, StoreError, Version, Write};

const POSITION: usize = 16;
const CHECKSUM: std::ops::Range<usize> = 8..12;
const NAMES: usize = 42;

const OPEN: u8 = 1;
const DUE: u8 = 2;
const EXPIRES: u8 = 4;

/// The record of `write`, without its position.
pub fn packed(write: &Write) -> Vec<u8> {
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
    let mut packed = Vec::with_capacity(NAMES + names.iter().map(|name| name.len()).sum::<usize>() + write.body.len());
    packed.extend_from_slice(&write.expected.next().0.to_be_bytes());
    packed.extend_from_slice(&[0; 4]);
    packed.extend_from_slice(&write.at.0.to_be_bytes());
    packed.extend_from_slice(&time(summary.due));
    packed.extend_from_slice(&time(summary.expires));
    packed.extend_from_slice(&[flags, tool, run, summary.kind as u8, state, tenant]);
    names.iter().for_each(|name| packed.extend_from_slice(name.as_bytes()));
    packed.extend_from_slice(write.body.as_bytes());
    let sum = checksum(&write.stream, &packed);
    packed[CHECKSUM].copy_from_slice(&sum.to_be_bytes());
    packed
}

/// Leaves out its own place.
fn checksum(stream: &StreamId, packed: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&stream.0);
    sum.update(&packed[..CHECKSUM.start]);
    sum.update(&packed[CHECKSUM.end..]);
    sum.finalize()
}

/// What is kept of a stream under its own name.
pub enum Head {
    Live(Recorded),
    Tombstone { version: Version },
}

impl Head {
    pub fn read(stream: StreamId, bytes: &[u8]) -> Result<Self, StoreError> {
        match bytes.split_first() {
            Some((b'T', version)) => {
                let version = version.try_into().map_err(|_| corrupt(stream, "its tombstone is cut"))?;
                Ok(Self::Tombstone { version: Version(u64::from_be_bytes(version)) })
            }
            _ => Ok(Self::Live(read(stream, bytes)?)),
        }
    }
}

/// A record with the summary it was written with. Refused when it does not match its checksum.
pub fn read(stream: StreamId, bytes: &[u8]) -> Result<Recorded, StoreError> {
    let sum = bytes.get(POSITION..).and_then(|packed| packed.get(CHECKSUM));
    if sum.is_none_or(|sum| checksum(&stream, &bytes[POSITION..]).to_be_bytes() != *sum) {
        return Err(corrupt(stream, "a record does not match its checksum"));
    }
    parse(stream, bytes).ok_or_else(|| corrupt(stream, "a record cannot be read"))
}

fn parse(stream: StreamId, bytes: &[u8]) -> Option<Recorded> {
    let (position, packed) = bytes.split_at_checked(POSITION)?;
    let number = |from: usize| Some(u64::from_be_bytes(packed.get(from..from + 8)?.try_into().ok()?));
    let time = |from: usize| Some(Timestamp(number(from)? as i64));
    let &[flags, tool, run, kind, state, tenant] = packed.get(36..NAMES)? else { return None };
    let mut names = std::str::from_utf8(&packed[NAMES..]).ok()?;
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
        due: set(DUE, time(20)?),
        expires: set(EXPIRES, time(28)?),
    };
    let position = Position(std::str::from_utf8(position).ok()?.parse().ok()?);
    let record = Record { version: Version(number(0)?), position, at: time(12)?, body: names.to_owned() };
    Some(Recorded { stream, summary, record })
}

pub fn corrupt(stream: StreamId, message: &str) -> StoreError {
    StoreError::Corrupt { place: format!("stream {stream}"), message: message.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write() -> Write {
        Write {
            stream: StreamId([7; 32]),
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

    fn stored() -> Vec<u8> {
        [b"0000000000000042", &packed(&write())[..]].concat()
    }

    #[test]
    fn what_was_written_is_read() {
        let Recorded { record, summary, .. } = read(StreamId([7; 32]), &stored()).expect("whole");
        assert_eq!(record, Record { version: Version(259), position: Position(42), at: Timestamp(-1), body: "naïve".into() });
        assert_eq!(summary, write().summary);
    }

    /// The scripts count from 1, and find things at these places.
    #[test]
    fn the_scripts_find_their_places() {
        let stored = stored();
        let at = |from: usize, to: usize| &stored[from - 1..to];
        assert_eq!(at(17, 24), 259_u64.to_be_bytes());
        assert_eq!(at(53, 53), [OPEN | DUE | EXPIRES]);
        assert_eq!((at(54, 54), at(56, 58)), (&[8][..], &[4, 16, 3][..]));
        assert_eq!(at(59, 59 + 16 + 3 + 8 - 1), b"waiting_approvala bbank.pay");
    }

    #[test]
    fn any_changed_byte_is_noticed() {
        let stored = stored();
        for place in POSITION..stored.len() {
            let mut changed = stored.clone();
            changed[place] ^= 1;
            read(StreamId([7; 32]), &changed).expect_err("changed");
        }
        read(StreamId([8; 32]), &stored).expect_err("another stream's");
        for length in 0..stored.len() {
            read(StreamId([7; 32]), &stored[..length]).expect_err("cut");
        }
    }
}
