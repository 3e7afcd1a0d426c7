//! Freeing the keys of finished effects: one, or all of a tool.
//!
//! A flushed key is as good as new: the next call with it, also with other arguments, is a new call. So nothing is flushed that is not over for
//! certain (`Effect::flushable`), each flush is one entry with who, why and a receipt, and no result is removed: the history keeps it. An
//! undo's own effect is never flushed, since the effect it undoes may still be waiting to hear how it ended.

use counterfoil_core::entry::Entry;
use counterfoil_core::ids::Digest32;
use counterfoil_core::{Effect, EffectKey, Tenant, ToolName};
use counterfoil_store::{Page, Position, Query};
use futures_util::{StreamExt, stream};

use crate::ledger::{LedgerError, Sealed, next_receipt};
use crate::operate::{OperateError, Operator, UNDO_CALLER};
use crate::runtime::Runtime;

/// Effects looked through at once.
const PAGE: usize = 500;
/// Flushes under way at once: enough for them to share a flush to disk, and few enough to leave room for calls.
const AT_ONCE_MAX: usize = 64;
/// What finished effects may be in. Whether one of them can be flushed is for the fold to say.
const FINISHED: [&str; 5] = ["done", "failed", "retrying", "cancelled", "undone"];

const HINT: &str = "only what has ended for certain can be flushed: resolve a doubt first, let what runs come to its end, \
                    undo what acted although it was cancelled; an undo itself is never flushed";

/// What became of a flush of all finished effects of a tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flushed {
    pub flushed: u64,
    /// Found among the finished ones, and not over for certain.
    pub skipped: u64,
    /// The limit was reached before the end.
    pub more: bool,
}

impl Runtime {
    /// Frees the key of a finished effect.
    pub async fn flush(&self, key: EffectKey, operator: &Operator) -> Result<Effect, OperateError> {
        self.change(key, HINT, operator, |effect, now| {
            if !may_flush(effect) {
                return None;
            }
            let entry = Entry::Flushed { at: now, by: operator.by.clone(), why: operator.why.clone(), receipt: next_receipt(effect) };
            let result = Digest32::of(operator.why.as_bytes());
            Some((entry, Some(Sealed { outcome: "flushed", result, said: Some(operator.said()), started: now, ended: now })))
        })
        .await
    }

    /// Frees the keys of up to `limit` finished effects of a tool, newest first, each by an entry of its own. A failure half-way leaves those
    /// flushed that were: asking again goes on. Every key is an append of its own, so nothing of `operator.beside` is written here.
    pub async fn flush_tool(&self, tenant: &Tenant, tool: &ToolName, operator: &Operator, limit: usize) -> Result<Flushed, OperateError> {
        let operator = Operator::new(&operator.by, &operator.why);
        let mut total = Flushed::default();
        let mut below = None;
        loop {
            let page = self.finished(tenant, tool, below).await?;
            let keys: Vec<EffectKey> = page.found.iter().map(|found| Digest32(found.stream.0)).collect();
            let mut rest = &keys[..];
            while !rest.is_empty() {
                let room = limit.saturating_sub(total.flushed as usize).min(AT_ONCE_MAX).min(rest.len());
                if room == 0 {
                    return Ok(Flushed { more: true, ..total });
                }
                let (now, later) = rest.split_at(room);
                let flushing: Vec<_> = now.iter().map(|key| self.flush(*key, &operator)).collect();
                let done: Vec<_> = stream::iter(flushing).buffer_unordered(AT_ONCE_MAX).collect().await;
                for flushed in done {
                    match flushed {
                        Ok(_) => total.flushed += 1,
                        // It is under way again, was pruned, or was never to be flushed.
                        Err(OperateError::WrongState { .. } | OperateError::NotFound(_)) => total.skipped += 1,
                        Err(error) => return Err(error),
                    }
                }
                rest = later;
            }
            below = page.next;
            if below.is_none() {
                return Ok(total);
            }
        }
    }

    /// How many effects of a tool [`Runtime::flush_tool`] would flush now, and how many it would skip. Nothing is changed.
    pub async fn flushable(&self, tenant: &Tenant, tool: &ToolName) -> Result<Flushed, LedgerError> {
        let mut total = Flushed::default();
        let mut below = None;
        loop {
            let page = self.finished(tenant, tool, below).await?;
            for found in &page.found {
                match may_flush(&self.inner.ledger.load(Digest32(found.stream.0)).await?) {
                    true => total.flushed += 1,
                    false => total.skipped += 1,
                }
            }
            below = page.next;
            if below.is_none() {
                return Ok(total);
            }
        }
    }

    async fn finished(&self, tenant: &Tenant, tool: &ToolName, below: Option<Position>) -> Result<Page, LedgerError> {
        let query = Query { states: FINISHED.to_vec(), tool: Some(tool.clone()), below, limit: PAGE, ..Query::effects(tenant.clone()) };
        self.inner.ledger.search(query).await
    }
}

fn may_flush(effect: &Effect) -> bool {
    let undo = effect.opened.as_ref().is_some_and(|opened| opened.caller.as_str() == UNDO_CALLER);
    effect.flushable() && !undo && !effect.expired
}
