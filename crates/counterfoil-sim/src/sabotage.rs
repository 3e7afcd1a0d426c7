//! What the deliberate bugs do to the store: see [`crate::bugs`]. Without a bug, everything here passes things through.

use counterfoil_core::Timestamp;
use counterfoil_core::summary::StreamKind;
use counterfoil_store::{Batch, Position, Pruned};

use crate::bugs::Bug;
use crate::state::{MS, State};

/// How long a store that does not wait for its disk is behind it.
const UNFLUSHED: u64 = 400 * MS;
/// Finished effects that a cache keeps.
const CACHE: usize = 3;

/// The batch as it gets to the log. `None`: it does not, and its sender is told that it did.
pub fn written(state: &State, batch: &Batch) -> Option<Batch> {
    let mut batch = batch.clone();
    let begins = |word: &str| batch.writes.iter().any(|write| write.body.contains(word));
    match state.bug {
        Some(Bug::LateResultDropped) if begins("1[{\"late\":") => return None,
        Some(Bug::VerdictDropped) if begins("1[{\"resolved\":") => return None,
        Some(Bug::SignalDropped) if begins("{\"signalled\":") => return None,
        Some(Bug::NoFenceCheck) => batch.writes.iter_mut().for_each(|write| write.expected = state.log.version(&write.stream)),
        Some(Bug::RerunOnExpiry) => {
            batch.writes.iter_mut().for_each(|write| write.body = write.body.replace("1[{\"lost\":", "1[{\"released\":"));
        }
        Some(Bug::UndoInOrder) => batch.writes.iter_mut().for_each(|write| write.body = in_order(&write.body)),
        _ => {}
    }
    Some(batch)
}

/// What of a batch is left when its sender died, or the disk failed.
pub fn survives(bug: Option<Bug>, batch: &Batch) -> Batch {
    let kept = if bug == Some(Bug::BatchNotAtomic) { 1 } else { batch.writes.len() };
    Batch { writes: batch.writes[..kept].to_vec() }
}

pub fn after_append(state: &mut State, position: Position) {
    match state.bug {
        Some(Bug::AnswerBeforeFsync) => state.unflushed.push((state.now, position)),
        Some(Bug::LruEviction) => {
            let finished = state.log.oldest(|summary| summary.kind != StreamKind::Effect || summary.open);
            for stream in finished.iter().take(finished.len().saturating_sub(CACHE)) {
                state.log.forget(stream);
            }
        }
        _ => {}
    }
}

/// The power is gone: a store that did not flush loses what it had not.
pub fn power_cut(state: &mut State) {
    let unflushed = std::mem::take(&mut state.unflushed);
    let now = state.now;
    if let Some((_, first)) = unflushed.iter().find(|(at, _)| at + UNFLUSHED > now) {
        state.log.cut(Position(first.0 - 1));
    }
}

pub fn prune(state: &mut State, before: Timestamp, limit: usize) -> Pruned {
    if state.bug != Some(Bug::NoTombstone) {
        return state.log.prune(before, limit);
    }
    let expired = state.log.oldest(|summary| summary.expires.is_none_or(|at| at >= before));
    expired.iter().for_each(|stream| state.log.forget(stream));
    Pruned { streams: expired.len() as u64, more: false }
}

pub fn claims(batch: &Batch) -> bool {
    batch.writes.iter().any(|write| write.body.contains("{\"claimed\":"))
}

/// The model sees the records as they are written; a bug that changes them on the way shall be found by what it does to the world.
pub fn bends_records(bug: Bug) -> bool {
    matches!(
        bug,
        Bug::NoFenceCheck
            | Bug::RerunOnExpiry
            | Bug::AnswerBeforeFsync
            | Bug::LruEviction
            | Bug::NoTombstone
            | Bug::LateResultDropped
            | Bug::VerdictDropped
            | Bug::LostRaceAcknowledged
            | Bug::ClaimNotAwaited
    )
}

/// Oldest first: as it was not meant.
fn in_order(body: &str) -> String {
    let Some(json) = body.strip_prefix('1').filter(|json| json.contains("\"compensation_triggered\"")) else { return body.to_owned() };
    let Ok(mut entries) = serde_json::from_str::<Vec<serde_json::Value>>(json) else { return body.to_owned() };
    for entry in &mut entries {
        if let Some(of) = entry.pointer_mut("/compensation_triggered/of").and_then(|of| of.as_array_mut()) {
            of.reverse();
        }
    }
    format!("1{}", serde_json::Value::from(entries))
}

/// The text between `mark` and the next quotation mark.
pub fn text_after<'a>(body: &'a str, mark: &str) -> Option<&'a str> {
    let begins = body.find(mark)? + mark.len();
    body[begins..].split('"').next()
}
