//! Load, due and tail.

use counterfoil_core::{StreamId, Timestamp};
use redis::{Value, cmd, pipe};

use super::link::Link;
use super::record::{Kept, corrupt};
use super::{fold, script};
use crate::{History, Position, Reach, Recorded, StoreError, Version};

/// Records fetched at once. Bounds memory, and how long Redis is busy with one step: what is loaded passes through a script.
const STEP: u64 = 64;
/// Batches fetched at once by `tail`.
const BATCHES: usize = 32;
/// How often a stream may be pruned between two looks at it before something else must be wrong.
const LOOKS_MAX: u32 = 3;

/// One command, unless more records are wanted than one step has.
pub async fn load(link: &Link, stream: StreamId, reach: Reach) -> Result<History, StoreError> {
    let wanted = match reach {
        Reach::Whole => u64::MAX,
        Reach::Newest(count) => u64::from(count),
    };
    for _ in 0..LOOKS_MAX {
        let (version, mut records) = match step(link, stream, wanted, 0).await? {
            Step::Nothing => return Ok(History::default()),
            Step::Tombstone(version) => return Ok(History { version, expired: true, records: Vec::new() }),
            Step::Missing => continue,
            Step::Records(version, records) => (version, records),
        };
        let first = version.0 - wanted.min(version.0) + 1;
        let mut older = Vec::new();
        let mut next = version.0 - records.len() as u64;
        let mut whole = true;
        while next >= first {
            match step(link, stream, next - first + 1, next).await? {
                Step::Records(_, page) if !page.is_empty() => {
                    next -= page.len() as u64;
                    older.push(page);
                }
                // Pruned between two looks.
                _ => {
                    whole = false;
                    break;
                }
            }
        }
        if !whole {
            continue;
        }
        older.into_iter().for_each(|page| {
            records.splice(0..0, page);
        });
        for (record, expected) in records.iter().zip(first..) {
            if record.record.version != Version(expected) {
                return Err(corrupt(stream, &format!("record {} is in the place of {expected}", record.record.version.0)));
            }
        }
        return Ok(History { version, expired: false, records: records.into_iter().map(|recorded| recorded.record).collect() });
    }
    Err(corrupt(stream, "some of its records are missing"))
}

/// What `load.lua` found.
enum Step {
    Nothing,
    Tombstone(Version),
    /// The last version, and some records up to it.
    Records(Version, Vec<Recorded>),
    /// One that should be there is not.
    Missing,
}

/// Up to `most` records up to version `upto`; 0 for the newest.
async fn step(link: &Link, stream: StreamId, most: u64, upto: u64) -> Result<Step, StoreError> {
    let mut question = script::load();
    question.arg(&link.keys.meta).arg(&stream.0).arg(most.min(STEP)).arg(STEP).arg(upto);
    let answer = link.read(pipe().add_command(question)).await?.into_iter().next();
    let odd = |answer: &dyn std::fmt::Debug| corrupt(stream, &format!("a load was answered with {answer:?}"));
    let Some(Value::Array(answer)) = answer else { return Err(odd(&answer)) };
    let mut answer = answer.into_iter();
    let version = match answer.next() {
        None => return Ok(Step::Nothing),
        Some(Value::Int(version)) if version < 0 => return Ok(Step::Tombstone(Version(version.unsigned_abs()))),
        Some(Value::Int(version)) => Version(version.unsigned_abs()),
        other => return Err(odd(&other)),
    };
    let mut records = Vec::new();
    while let (Some(value), Some(base)) = (answer.next(), answer.next()) {
        let Some(value) = bytes(value) else { return Ok(Step::Missing) };
        let Kept::Live(live) = Kept::read(stream, &value)? else { return Ok(Step::Missing) };
        let base = bytes(base).and_then(|base| String::from_utf8(base).ok()?.parse().ok());
        let base = base.ok_or_else(|| corrupt(stream, &format!("the batch of record {} is missing", live.version.0)))?;
        records.push(live.recorded(stream, base, &value)?);
    }
    Ok(Step::Records(version, records))
}

pub async fn due(link: &Link, now: Timestamp, limit: usize) -> Result<Vec<StreamId>, StoreError> {
    fold::fold(link).await?;
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
        for places in places.chunks(STEP as usize) {
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
    base: u64,
    stream: StreamId,
    version: u64,
}

/// Where a record was pruned, the log has kept its place.
fn places(base: u64, logged: &[u8]) -> impl Iterator<Item = Place> + '_ {
    logged.as_chunks::<40>().0.iter().zip(base + 1..).filter_map(move |(place, position)| {
        let (mut stream, mut earlier) = ([0; 32], [0; 8]);
        stream.copy_from_slice(&place[..32]);
        earlier.copy_from_slice(&place[32..]);
        let version = u64::from_be_bytes(earlier).checked_add(1)?;
        Some(Place { position, base, stream: StreamId(stream), version })
    })
}

/// The records at these places. Where one was pruned since, its stream has a tombstone.
async fn follow(link: &Link, places: &[Place], tail: &mut Vec<Recorded>) -> Result<(), StoreError> {
    if places.is_empty() {
        return Ok(());
    }
    let (mut values, mut firsts) = (cmd("MGET"), pipe());
    for place in places {
        values.arg(link.keys.record(&place.stream, Version(place.version)));
        firsts.cmd("GETRANGE").arg(link.keys.record(&place.stream, Version(1))).arg(0).arg(0);
    }
    let mut values = array(link.read(pipe().add_command(values)).await?.into_iter().next());
    values.resize(places.len(), Value::Nil);
    let pruned = match values.contains(&Value::Nil) {
        true => link.read(&firsts).await?,
        false => Vec::new(),
    };
    for (at, (place, value)) in places.iter().zip(values).enumerate() {
        let Place { position, base, stream, version } = *place;
        let Some(value) = bytes(value) else {
            match pruned.get(at) {
                Some(Value::BulkString(first)) if first == b"T" => continue,
                _ => return Err(corrupt(stream, &format!("record {version} is missing"))),
            }
        };
        let recorded = match Kept::read(stream, &value)? {
            Kept::Live(live) => live.recorded(stream, base, &value)?,
            // Pruned since.
            Kept::Tombstone { .. } => continue,
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
