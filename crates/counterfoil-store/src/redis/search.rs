//! Search: the streams of each state are kept by the position of their newest record, so one state or several are merged from the top.
//!
//! Tool, run and time are looked at in the head of each. Every step is small, so that a search for what is rare does not hold up Redis; a
//! stream that is written meanwhile may be missing from the page, as it has moved to the top, or be shown as it was.

use counterfoil_core::StreamId;
use counterfoil_core::summary::STATES;
use redis::pipe;

use super::fold;
use super::link::Link;
use super::read::{bytes, scored};
use super::record::{HEAD_BYTES_MAX, Kept, corrupt};
use crate::{Page, Position, Query, StoreError, Version};

/// Streams looked at in one step.
const STEP_MIN: usize = 64;
const STEP_MAX: usize = 1000;

pub async fn search(link: &Link, query: &Query) -> Result<Page, StoreError> {
    let mut page = Page::default();
    if query.limit == 0 {
        return Ok(page);
    }
    fold::fold_if_possible(link).await?;
    let states: Vec<&str> = STATES.into_iter().filter(|state| query.states.is_empty() || query.states.contains(state)).collect();
    let mut indexes: Vec<String> = states.iter().map(|state| link.keys.index(query.kind, state, query.tenant.as_str())).collect();
    let mut below = query.below.map_or(u64::MAX, |below| below.0);
    let step = query.limit.saturating_add(1).clamp(STEP_MIN, STEP_MAX);
    while !indexes.is_empty() {
        let newest = newest(link, &mut indexes, below, step).await?;
        let Some((last, ..)) = newest.last() else { break };
        below = *last;
        let mut questions = pipe();
        for (_, stream, version) in &newest {
            questions.cmd("GETRANGE").arg(link.keys.record(stream, *version)).arg(0).arg(HEAD_BYTES_MAX - 1);
        }
        let heads = link.read(&questions).await?;
        for ((position, stream, version), head) in newest.into_iter().zip(heads) {
            // Empty: pruned meanwhile.
            let Some(head) = bytes(head).filter(|head| !head.is_empty()) else { continue };
            let Kept::Live(live) = Kept::read(stream, &head)? else { continue };
            if live.version != version {
                return Err(corrupt(stream, &format!("record {} is in the place of {}", live.version.0, version.0)));
            }
            let found = live.found(stream, Position(position));
            if !query.matches(&found) {
                continue;
            }
            if page.found.len() == query.limit {
                page.next = page.found.last().map(|last| last.position);
                return Ok(page);
            }
            page.found.push(found);
        }
    }
    Ok(page)
}

/// The newest `step` streams below a position. An index that has no more is dropped.
async fn newest(link: &Link, indexes: &mut Vec<String>, below: u64, step: usize) -> Result<Vec<(u64, StreamId, Version)>, StoreError> {
    let mut questions = pipe();
    for index in indexes.iter() {
        questions.cmd("ZRANGE").arg(index).arg(format!("({below}")).arg(0).arg("BYSCORE").arg("REV");
        questions.arg("LIMIT").arg(0).arg(step).arg("WITHSCORES");
    }
    let mut newest: Vec<(u64, StreamId, Version)> = Vec::new();
    let mut answers = link.read(&questions).await?.into_iter();
    let mut fault = None;
    indexes.retain(|_| match scored(answers.next()) {
        Ok(streams) => {
            let more = !streams.is_empty();
            newest.extend(
                streams
                    .into_iter()
                    .filter_map(|(position, member)| member_of(&member).map(|(stream, version)| (position, stream, version))),
            );
            more
        }
        Err(error) => {
            fault = Some(error);
            false
        }
    });
    newest.sort_unstable_by_key(|(position, ..)| std::cmp::Reverse(*position));
    newest.truncate(step);
    fault.map_or(Ok(newest), Err)
}

/// A stream and the version that the index has of it.
fn member_of(member: &[u8]) -> Option<(StreamId, Version)> {
    let (stream, version) = member.split_at_checked(32)?;
    Some((StreamId(stream.try_into().ok()?), Version(u64::from_be_bytes(version.try_into().ok()?))))
}
