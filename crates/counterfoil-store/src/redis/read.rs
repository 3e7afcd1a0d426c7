//! Load, due and tail.

use counterfoil_core::{StreamId, Timestamp};
use redis::{Value, pipe};

use super::fault::unavailable;
use super::link::Link;
use super::record::{Head, corrupt};
use super::script;
use crate::{History, Position, Reach, Record, Recorded, StoreError, Version};

/// Records fetched at once. Bounds memory, and how long Redis is busy with one step: bodies pass through a script.
const STEP: usize = 64;
/// Batches fetched at once by `tail`.
const BATCHES: usize = 32;
/// Older records that are asked for together with the newest: most streams have no more.
const GUESSED: u64 = 4;
/// How often a stream may be pruned between two looks at it before something else must be wrong.
const LOOKS_MAX: u32 = 3;

/// A head and its body, if it has one.
type Fetched = (Vec<u8>, Option<Vec<u8>>);

/// One command, unless more older records are wanted than were guessed.
pub async fn load(link: &Link, stream: StreamId, reach: Reach) -> Result<History, StoreError> {
    let guessed = if reach == Reach::Whole { GUESSED } else { 0 };
    for _ in 0..LOOKS_MAX {
        let fields = std::iter::once(stream.0.to_vec()).chain((1..=guessed).map(|version| older_field(&stream, version)));
        let mut found = fetch(link, 1, fields).await?.into_iter();
        let newest = match found.next().flatten().map(|(head, body)| Ok((Head::read(stream, &head)?, body))).transpose()? {
            None => return Ok(History::default()),
            Some((Head::Tombstone { version }, _)) => return Ok(History { version, expired: true, records: Vec::new() }),
            Some((Head::Live(newest), body)) => newest.with_body(body)?.record,
        };
        let version = newest.version;
        let first = match reach {
            Reach::Whole => 1,
            Reach::Newest(0) => return Ok(History { version, expired: false, records: Vec::new() }),
            Reach::Newest(count) => version.0.saturating_sub(u64::from(count)) + 1,
        };
        let mut older: Vec<Option<Fetched>> = found.take(version.0.saturating_sub(first) as usize).collect();
        let mut next = first + older.len() as u64;
        while next < version.0 {
            let last = (version.0 - 1).min(next + STEP as u64 - 1);
            older.extend(fetch(link, 1, (next..=last).map(|version| older_field(&stream, version))).await?);
            next = last + 1;
        }
        // One is missing: pruned between two looks.
        if let Some(older) = older.into_iter().collect::<Option<Vec<_>>>() {
            return history(stream, first, older, newest);
        }
    }
    Err(corrupt(stream, "some of its records are missing"))
}

fn history(stream: StreamId, first: u64, older: Vec<Fetched>, newest: Record) -> Result<History, StoreError> {
    let version = newest.version;
    let mut records = Vec::with_capacity(older.len() + 1);
    for (fetched, expected) in older.into_iter().zip(first..) {
        let Recorded { record, .. } = whole(stream, fetched)?;
        if record.version != Version(expected) {
            return Err(corrupt(stream, &format!("record {} is in the place of {expected}", record.version.0)));
        }
        records.push(record);
    }
    records.push(newest);
    Ok(History { version, expired: false, records })
}

fn whole(stream: StreamId, (head, body): Fetched) -> Result<Recorded, StoreError> {
    match Head::read(stream, &head)? {
        Head::Live(live) => live.with_body(body),
        Head::Tombstone { .. } => Err(corrupt(stream, "a tombstone is in the place of a record")),
    }
}

/// Of each `alternatives` fields the first that is there, with its body: all as they are at one moment.
async fn fetch(link: &Link, alternatives: usize, fields: impl Iterator<Item = Vec<u8>>) -> Result<Vec<Option<Fetched>>, StoreError> {
    let mut question = script::fetch();
    question.arg(&link.keys.meta).arg(alternatives);
    let mut asked = 0;
    fields.for_each(|field| {
        question.arg(field);
        asked += 1;
    });
    let mut answer = array(link.read(pipe().add_command(question)).await?.into_iter().next()).into_iter().map(bytes);
    let mut fetched = Vec::new();
    while let (Some(head), Some(body)) = (answer.next(), answer.next()) {
        fetched.push(head.map(|head| (head, body)));
    }
    // What is not understood must not be taken for what is not there.
    if fetched.len() * alternatives != asked {
        return Err(unavailable(format!("Redis answered with {} records where {} were asked for", fetched.len(), asked / alternatives)));
    }
    Ok(fetched)
}

fn older_field(stream: &StreamId, version: u64) -> Vec<u8> {
    [&stream.0[..], &version.to_be_bytes()].concat()
}

pub async fn due(link: &Link, now: Timestamp, limit: usize) -> Result<Vec<StreamId>, StoreError> {
    let mut question = pipe();
    question.cmd("ZRANGE").arg(&link.keys.due).arg("-inf").arg(now.0).arg("BYSCORE").arg("LIMIT").arg(0).arg(clamp(limit));
    let answer = array(link.read(&question).await?.into_iter().next());
    Ok(answer.into_iter().filter_map(bytes).filter_map(|stream| Some(StreamId(stream.try_into().ok()?))).collect())
}

pub async fn tail(link: &Link, after: Position, limit: usize) -> Result<Vec<Recorded>, StoreError> {
    let mut tail = Vec::new();
    // The batch in whose middle `after` may be.
    let mut question = pipe();
    question
        .cmd("ZRANGE")
        .arg(&link.keys.log)
        .arg(after.0)
        .arg("-inf")
        .arg("BYSCORE")
        .arg("REV")
        .arg("LIMIT")
        .arg(0)
        .arg(1)
        .arg("WITHSCORES");
    let mut batches = scored(link.read(&question).await?.into_iter().next())?;
    // From behind that batch, or from `after` itself: a batch that begins just there may be written between the two questions.
    let mut from = batches.last().map_or_else(|| after.0.to_string(), |(base, _)| format!("({base}"));
    while tail.len() < limit {
        let places: Vec<Place> =
            batches.iter().flat_map(|(base, logged)| places(*base, logged)).filter(|place| place.position > after.0).collect();
        for places in places.chunks(STEP) {
            follow(link, &places[..places.len().min(limit - tail.len())], &mut tail).await?;
        }
        let mut question = pipe();
        question.cmd("ZRANGE").arg(&link.keys.log).arg(&from).arg("+inf").arg("BYSCORE");
        question.arg("LIMIT").arg(0).arg(BATCHES).arg("WITHSCORES");
        batches = scored(link.read(&question).await?.into_iter().next())?;
        let Some((last, _)) = batches.last() else { break };
        from = format!("({last}");
    }
    Ok(tail)
}

/// What the log knows of a record.
#[derive(Clone, Copy)]
struct Place {
    position: u64,
    stream: StreamId,
    version: u64,
}

/// Where a record was pruned, the log has kept its place.
fn places(base: u64, logged: &[u8]) -> impl Iterator<Item = Place> + '_ {
    logged.as_chunks::<40>().0.iter().zip(base + 1..).filter_map(|(place, position)| {
        let (mut stream, mut earlier) = ([0; 32], [0; 8]);
        stream.copy_from_slice(&place[..32]);
        earlier.copy_from_slice(&place[32..]);
        let version = u64::from_be_bytes(earlier).checked_add(1)?;
        Some(Place { position, stream: StreamId(stream), version })
    })
}

/// Each is an older record of its stream, or else the newest.
async fn follow(link: &Link, places: &[Place], tail: &mut Vec<Recorded>) -> Result<(), StoreError> {
    if places.is_empty() {
        return Ok(());
    }
    let fields = places.iter().flat_map(|place| [older_field(&place.stream, place.version), place.stream.0.to_vec()]);
    for (place, fetched) in places.iter().zip(fetch(link, 2, fields).await?) {
        let Place { position, stream, version } = *place;
        let (head, body) = fetched.ok_or_else(|| corrupt(stream, &format!("record {version} is missing")))?;
        let recorded = match Head::read(stream, &head)? {
            Head::Live(live) => live.with_body(body)?,
            // Pruned since.
            Head::Tombstone { .. } => continue,
        };
        if (recorded.record.version, recorded.record.position) != (Version(version), Position(position)) {
            return Err(corrupt(stream, &format!("record {version} is not at position {position}")));
        }
        tail.push(recorded);
    }
    Ok(())
}

/// Positions and members, as ZRANGE gives them with their scores.
pub fn scored(answer: Option<Value>) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
    let mut scored = Vec::new();
    let mut elements = array(answer).into_iter().filter_map(bytes);
    while let (Some(member), Some(score)) = (elements.next(), elements.next()) {
        let position = std::str::from_utf8(&score).ok().and_then(|score| score.parse().ok());
        let position =
            position.ok_or_else(|| StoreError::Corrupt { place: "the log".into(), message: format!("{score:?} is no position") })?;
        scored.push((position, member));
    }
    Ok(scored)
}

pub fn array(value: Option<Value>) -> Vec<Value> {
    match value {
        Some(Value::Array(values)) => values,
        _ => Vec::new(),
    }
}

pub fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}

pub fn clamp(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
