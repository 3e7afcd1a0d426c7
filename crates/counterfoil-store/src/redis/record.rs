//! One record as Redis keeps it: a head among `records`, and its body among the bodies of its batch.
//!
//! The scripts read heads too, at fixed places from their beginning and from their end: they are part of the format, and the scripts change with
//! them. The script puts the position before the batch in front as 16 decimal digits; the rest is made here. The head's checksum covers the stream and
//! everything but that position, and so the checksum of the body, which is in it.
//!
//! | bytes | what |
//! |---|---|
//! | 16 | position before the batch, decimal |
//! | 8 | version |
//! | 4 | checksum of the head |
//! | 8, 8, 8 | at, due, expires; microseconds |
//! | 1 | bit 0: open, bit 1: due is set, bit 2: expires is set |
//! | 1, 1, 1, 1, 1 | length of tool, length of run, kind, length of state, length of tenant |
//! | … | state, tenant, tool, run |
//! | 4 | place in the batch, from 1: the record's position is so much after the batch's |
//! | 4, 4 | piece of bodies, from 1, and slot in it, from 1 |
//! | 4 | checksum of the body |
//!
//! A piece of bodies: how many slots (4 bytes), for each where its body begins and how long it is (4, 4; zeros for a body that is gone), the bodies.
//! In pieces, because whoever prunes a record writes its piece again.

use counterfoil_core::summary::{StreamKind, state_word};
use counterfoil_core::{RunId, StreamId, Summary, Tenant, Timestamp, ToolName};

use crate::{Found, Position, Record, Recorded, StoreError, Version, Write, batch};

const BASE: usize = 16;
const CHECKSUM: std::ops::Range<usize> = 8..12;
const NAMES: usize = 42;
/// Place, piece, slot and the body's checksum.
const END: usize = 16;

const OPEN: u8 = 1;
const DUE: u8 = 2;
const EXPIRES: u8 = 4;

/// Bodies in a piece, and about how many bytes: what is written again when one of them is pruned.
const PIECE_BODIES_MAX: usize = 128;
const PIECE_BYTES_MAX: usize = 256 << 10;

/// Writes as they are sent.
pub struct Packed {
    /// In the order of the writes, without the position before the batch.
    pub heads: Vec<Vec<u8>>,
    pub pieces: Vec<Vec<u8>>,
}

impl Packed {
    pub fn new(writes: &[Write]) -> Self {
        let mut packed = Self { heads: Vec::with_capacity(writes.len()), pieces: Vec::new() };
        let mut place = 0;
        for piece in pieces(writes) {
            packed.pieces.push(bodies(piece));
            let number = packed.pieces.len() as u32;
            for (write, slot) in piece.iter().zip(1..) {
                place += 1;
                packed.heads.push(head(write, [place, number, slot]));
            }
        }
        packed
    }
}

fn pieces(writes: &[Write]) -> Vec<&[Write]> {
    batch::parts(writes, PIECE_BODIES_MAX, PIECE_BYTES_MAX)
}

fn bodies(writes: &[Write]) -> Vec<u8> {
    let begin = 4 + 8 * writes.len();
    let mut piece = Vec::with_capacity(begin + writes.iter().map(|write| write.body.len()).sum::<usize>());
    let mut put = |number: usize| piece.extend_from_slice(&u32::try_from(number).expect("Redis holds no string so long").to_be_bytes());
    put(writes.len());
    let mut from = begin;
    for write in writes {
        put(from);
        put(write.body.len());
        from += write.body.len();
    }
    writes.iter().for_each(|write| piece.extend_from_slice(write.body.as_bytes()));
    piece
}

/// `places`: in the batch, the piece, the slot.
fn head(write: &Write, places: [u32; 3]) -> Vec<u8> {
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
    let mut head = Vec::with_capacity(NAMES + names.iter().map(|name| name.len()).sum::<usize>() + END);
    head.extend_from_slice(&write.expected.next().0.to_be_bytes());
    head.extend_from_slice(&[0; 4]);
    head.extend_from_slice(&write.at.0.to_be_bytes());
    head.extend_from_slice(&time(summary.due));
    head.extend_from_slice(&time(summary.expires));
    head.extend_from_slice(&[flags, tool, run, summary.kind as u8, state, tenant]);
    names.iter().for_each(|name| head.extend_from_slice(name.as_bytes()));
    places.iter().for_each(|place| head.extend_from_slice(&place.to_be_bytes()));
    head.extend_from_slice(&crc32fast::hash(write.body.as_bytes()).to_be_bytes());
    let sum = checksum(&write.stream, &head);
    head[CHECKSUM].copy_from_slice(&sum.to_be_bytes());
    head
}

/// Leaves out its own place.
fn checksum(stream: &StreamId, head: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&stream.0);
    sum.update(&head[..CHECKSUM.start]);
    sum.update(&head[CHECKSUM.end..]);
    sum.finalize()
}

/// What is kept of a stream under its own name, and of an older record under its own.
pub enum Head {
    Live(Live),
    Tombstone { version: Version },
}

/// The head of a record.
pub struct Live {
    pub found: Found,
    body_sum: u32,
}

impl Head {
    /// Refused when it does not match its checksum.
    pub fn read(stream: StreamId, bytes: &[u8]) -> Result<Self, StoreError> {
        if let Some((b'T', version)) = bytes.split_first() {
            let version = version.try_into().map_err(|_| corrupt(stream, "its tombstone is cut"))?;
            return Ok(Self::Tombstone { version: Version(u64::from_be_bytes(version)) });
        }
        let sum = bytes.get(BASE..).and_then(|head| head.get(CHECKSUM));
        if sum.is_none_or(|sum| checksum(&stream, &bytes[BASE..]).to_be_bytes() != *sum) {
            return Err(corrupt(stream, "a record does not match its checksum"));
        }
        parse(stream, bytes).map(Self::Live).ok_or_else(|| corrupt(stream, "a record cannot be read"))
    }
}

impl Live {
    pub fn with_body(self, body: Option<Vec<u8>>) -> Result<Recorded, StoreError> {
        let Found { stream, version, position, at, summary } = self.found;
        let body = body.ok_or_else(|| corrupt(stream, &format!("the body of record {} is missing", version.0)))?;
        let body = Some(body).filter(|body| crc32fast::hash(body) == self.body_sum).and_then(|body| String::from_utf8(body).ok());
        let body = body.ok_or_else(|| corrupt(stream, &format!("the body of record {} does not match its checksum", version.0)))?;
        Ok(Recorded { stream, summary, record: Record { version, position, at, body } })
    }
}

fn parse(stream: StreamId, bytes: &[u8]) -> Option<Live> {
    let (base, head) = bytes.split_at_checked(BASE)?;
    let number = |from: usize| Some(u64::from_be_bytes(head.get(from..from + 8)?.try_into().ok()?));
    let time = |from: usize| Some(Timestamp(number(from)? as i64));
    let &[flags, tool, run, kind, state, tenant] = head.get(36..NAMES)? else { return None };
    let (names, end) = head.get(NAMES..)?.split_last_chunk::<END>()?;
    let mut names = std::str::from_utf8(names).ok()?;
    let mut name = |length: u8| {
        let (name, rest) = names.split_at_checked(length.into())?;
        names = rest;
        Some(name)
    };
    let (state, tenant, tool, run) = (name(state)?, name(tenant)?, name(tool)?, name(run)?);
    if !names.is_empty() {
        return None;
    }
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
    let ended = |from: usize| Some(u32::from_be_bytes(end.get(from..from + 4)?.try_into().ok()?));
    let base: u64 = std::str::from_utf8(base).ok()?.parse().ok()?;
    let position = Position(base.checked_add(u64::from(ended(0)?))?);
    let found = Found { stream, version: Version(number(0)?), position, at: time(12)?, summary };
    Some(Live { found, body_sum: ended(12)? })
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

    /// The third of its batch, in the second slot of piece 9.
    fn stored() -> Vec<u8> {
        [b"0000000000000039", &head(&write(), [3, 9, 2])[..]].concat()
    }

    fn read(stream: StreamId, stored: &[u8]) -> Result<Live, StoreError> {
        match Head::read(stream, stored)? {
            Head::Live(live) => Ok(live),
            Head::Tombstone { .. } => panic!("no tombstone"),
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let live = read(StreamId([7; 32]), &stored()).expect("whole");
        let Recorded { record, summary, .. } = live.with_body(Some("naïve".into())).expect("its body");
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
        let end = stored.len();
        assert_eq!([&stored[end - 16..end - 12], &stored[end - 12..end - 8], &stored[end - 8..end - 4]].map(|n| n[3]), [3, 9, 2]);
    }

    #[test]
    fn any_changed_byte_is_noticed() {
        let stored = stored();
        for place in BASE..stored.len() {
            let mut changed = stored.clone();
            changed[place] ^= 1;
            assert!(read(StreamId([7; 32]), &changed).is_err(), "changed at {place}");
        }
        assert!(read(StreamId([8; 32]), &stored).is_err(), "another stream's");
        for length in 0..stored.len() {
            assert!(read(StreamId([7; 32]), &stored[..length]).is_err(), "cut to {length}");
        }
    }

    #[test]
    fn another_body_is_noticed() {
        for body in [None, Some("naive".into()), Some(Vec::new()), Some(vec![0xff])] {
            let live = read(StreamId([7; 32]), &stored()).expect("whole");
            live.with_body(body).expect_err("not its body");
        }
    }

    #[test]
    fn many_and_long_bodies_are_in_several_pieces() {
        let of = |lengths: &[usize]| lengths.iter().map(|length| Write { body: "x".repeat(*length), ..write() }).collect::<Vec<_>>();
        let sizes = |lengths: &[usize]| pieces(&of(lengths)).iter().map(|piece| piece.len()).collect::<Vec<_>>();
        assert_eq!(sizes(&[10; 128]), [128]);
        assert_eq!(sizes(&[10; 300]), [128, 128, 44]);
        assert_eq!(sizes(&[PIECE_BYTES_MAX - 1, 1, 1]), [2, 1]);
        assert_eq!(sizes(&[2 * PIECE_BYTES_MAX, 2 * PIECE_BYTES_MAX]), [1, 1]);
        let packed = Packed::new(&of(&[3; 130]));
        let ends: Vec<[u8; 3]> = packed.heads.iter().map(|head| [16, 12, 8].map(|from| head[head.len() - from + 3])).collect();
        assert_eq!((ends[0], ends[127], ends[128], ends[129]), ([1, 1, 1], [128, 1, 128], [129, 2, 1], [130, 2, 2]));
        assert_eq!(packed.pieces[1], b"\0\0\0\x02\0\0\0\x14\0\0\0\x03\0\0\0\x17\0\0\0\x03xxxxxx");
    }
}
