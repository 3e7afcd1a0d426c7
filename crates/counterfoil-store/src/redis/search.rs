//! Search: the streams of each state are kept by the position of their newest record, so one state or several are merged from the top.
//!
//! Tool, run and time are looked at in the newest head of each. Every step is small, so that a search for what is rare does not hold up Redis; a
//! stream that is written meanwhile may be missing from the page, as it has moved to the top.

use counterfoil_core::StreamId;
use counterfoil_core::summary::STATES;
use redis::{cmd, pipe};

use super::link::Link;
use super::read::{array, bytes, scored};
use super::record::{Head, Live};
use crate::{Page, Position, Query, StoreError};

/// Streams looked at in one step.
const STEP_MIN: usize = 64;
const STEP_MAX: usize = 1000;

pub async fn search(link: &Link, query: &Query) -> Result<Page, StoreError> {
    let mut page = Page::default();
    if query.limit == 0 {
        return Ok(page);
    }
    let states: Vec<&str> = STATES.into_iter().filter(|state| query.states.is_empty() || query.states.contains(state)).collect();
    let mut indexes: Vec<String> = states.iter().map(|state| link.keys.index(query.kind, state, query.tenant.as_str())).collect();
    let mut below = query.below.map_or(u64::MAX, |below| below.0);
    let step = query.limit.saturating_add(1).clamp(STEP_MIN, STEP_MAX);
    while !indexes.is_empty() {
        let newest = newest(link, &mut indexes, below, step).await?;
        let Some((last, _)) = newest.last() else { break };
        below = *last;
        let mut question = cmd("HMGET");
        question.arg(&link.keys.records);
        newest.iter().for_each(|(_, stream)| {
            question.arg(&stream.0);
        });
        let heads = array(link.read(pipe().add_command(question)).await?.into_iter().next());
        for ((position, stream), head) in newest.into_iter().zip(heads) {
            let Some(head) = bytes(head) else { continue };
            let Head::Live(Live { found, .. }) = Head::read(stream, &head)? else { continue };
            if found.position != Position(position) || !query.matches(&found) {
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
async fn newest(link: &Link, indexes: &mut Vec<String>, below: u64, step: usize) -> Result<Vec<(u64, StreamId)>, StoreError> {
    let mut questions = pipe();
    for index in indexes.iter() {
        questions.cmd("ZRANGE").arg(index).arg(format!("({below}")).arg(0).arg("BYSCORE").arg("REV");
        questions.arg("LIMIT").arg(0).arg(step).arg("WITHSCORES");
    }
    let mut newest: Vec<(u64, StreamId)> = Vec::new();
    let mut answers = link.read(&questions).await?.into_iter();
    let mut fault = None;
    indexes.retain(|_| match scored(answers.next()) {
        Ok(streams) => {
            let more = !streams.is_empty();
            newest.extend(streams.into_iter().filter_map(|(position, stream)| Some((position, StreamId(stream.try_into().ok()?)))));
            more
        }
        Err(error) => {
            fault = Some(error);
            false
        }
    });
    newest.sort_unstable_by_key(|(position, _)| std::cmp::Reverse(*position));
    newest.truncate(step);
    fault.map_or(Ok(newest), Err)
}
