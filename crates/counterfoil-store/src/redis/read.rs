//! Load, due and tail.

use counterfoil_core::{StreamId, Timestamp};
use redis::{Value, pipe};

use super::link::Link;
use super::record::{self, Head, corrupt};
use crate::{History, Position, Reach, Record, Recorded, StoreError, Version};

/// Records fetched at once by `tail`. Bounds memory, and how long Redis is busy with one step.
const TAIL_STEP: usize = 256;
/// How often a stream may be pruned or written between two commands of one look before something else must be wrong.
const LOOKS_MAX: u32 = 3;

/// One round trip. The two commands are not one moment, so the head is asked first: what is read after it can only be newer.
pub async fn load(link: &Link, stream: StreamId, reach: Reach) -> Result<History, StoreError> {
    let (from, to) = match reach {
        Reach::Whole => (0, -1),
        Reach::Newest(0) => (1, 0),
        Reach::Newest(count) => (-2 * i64::from(count), -1),
    };
    let mut questions = pipe();
    questions.cmd("HGET").arg(&link.keys.heads).arg(&stream.0);
    questions.cmd("LRANGE").arg(link.keys.stream(&stream)).arg(from).arg(to);
    for _ in 0..LOOKS_MAX {
        let mut answers = link.read(&questions).await?.into_iter();
        let head = answers.next().and_then(bytes).map(|head| Head::read(stream, &head)).transpose()?;
        let records = records(stream, answers.next())?;
        let newest = records.last().map(|record| record.version);
        let version = match (head, newest) {
            (Some(Head::Tombstone { version }), _) => return Ok(History { version, expired: true, records: Vec::new() }),
            (_, Some(newest)) => newest,
            (None, None) => Version::NONE,
            (Some(Head::Live(found)), None) if reach == Reach::Newest(0) => found.version,
            // Pruned between the two.
            (Some(Head::Live(_)), None) => continue,
        };
        return Ok(History { version, expired: false, records });
    }
    Err(corrupt(stream, "its records are missing"))
}

fn records(stream: StreamId, elements: Option<Value>) -> Result<Vec<Record>, StoreError> {
    let elements = array(elements);
    let mut records: Vec<Record> = Vec::with_capacity(elements.len() / 2);
    let mut elements = elements.into_iter().filter_map(bytes);
    while let Some(header) = elements.next() {
        let body = elements.next().ok_or_else(|| corrupt(stream, "a record has no body"))?;
        let (record, _) = record::read(stream, &header, body)?;
        if records.last().is_some_and(|last| record.version != last.version.next()) {
            return Err(corrupt(stream, &format!("record {} is out of place", record.version.0)));
        }
        records.push(record);
    }
    Ok(records)
}

pub async fn due(link: &Link, now: Timestamp, limit: usize) -> Result<Vec<StreamId>, StoreError> {
    let mut question = pipe();
    question.cmd("ZRANGE").arg(&link.keys.due).arg("-inf").arg(now.0).arg("BYSCORE").arg("LIMIT").arg(0).arg(clamp(limit));
    let answer = array(link.read(&question).await?.into_iter().next());
    Ok(answer.into_iter().filter_map(bytes).filter_map(|stream| Some(StreamId(stream.try_into().ok()?))).collect())
}

pub async fn tail(link: &Link, after: Position, limit: usize) -> Result<Vec<Recorded>, StoreError> {
    let mut tail = Vec::new();
    let mut after = after.0;
    while tail.len() < limit {
        let step = TAIL_STEP.min(limit - tail.len());
        let mut question = pipe();
        question.cmd("ZRANGE").arg(&link.keys.log).arg(format!("({after}")).arg("+inf").arg("BYSCORE");
        question.arg("LIMIT").arg(0).arg(step).arg("WITHSCORES");
        let logged = scored(link.read(&question).await?.into_iter().next())?;
        let Some((last, _)) = logged.last() else { break };
        after = *last;
        let places: Vec<(u64, StreamId, i64)> = logged.iter().filter_map(|(position, member)| place(*position, member)).collect();
        let mut questions = pipe();
        for (_, stream, earlier) in &places {
            questions.cmd("LRANGE").arg(link.keys.stream(stream)).arg(2 * earlier).arg(2 * earlier + 1);
        }
        let ended = logged.len() < step;
        for ((position, stream, _), elements) in places.into_iter().zip(link.read(&questions).await?) {
            let mut elements = array(Some(elements)).into_iter().filter_map(bytes);
            // Missing: pruned since.
            let (Some(header), Some(body)) = (elements.next(), elements.next()) else { continue };
            let (record, summary) = record::read(stream, &header, body)?;
            if record.position != Position(position) {
                return Err(corrupt(stream, &format!("record {} is not at position {position}", record.version.0)));
            }
            tail.push(Recorded { stream, summary, record });
        }
        if ended {
            break;
        }
    }
    Ok(tail)
}

/// A member of the log: the stream, and how many records it had before.
fn place(position: u64, member: &[u8]) -> Option<(u64, StreamId, i64)> {
    let (stream, earlier) = member.split_at_checked(32)?;
    Some((position, StreamId(stream.try_into().ok()?), i64::from_be_bytes(earlier.try_into().ok()?)))
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
