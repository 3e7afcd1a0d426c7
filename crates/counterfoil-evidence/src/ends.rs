//! Which entry ends an effect, and what the receipt of that end must say.
//!
//! The writer of receipts is the ledger; this is written apart from it, from the format's description, so that a mistake in one of them shows.

use counterfoil_core::call::spec_hash;
use counterfoil_core::entry::{Ended, Entry, LateOutcome, Probed, Verdict};
use counterfoil_core::ids::Digest32;
use counterfoil_core::receipt::{Receipt, ReceiptId};
use counterfoil_core::{Effect, Failure, Timestamp};
use serde::Serialize;

/// An end as an entry tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    pub id: ReceiptId,
    pub outcome: &'static str,
    /// `None`: it is the result of another effect, the undo.
    pub result: Option<Digest32>,
    pub by: Option<String>,
    /// Digest of the reason, where somebody gave one.
    pub why: Option<Digest32>,
    pub ended: Timestamp,
}

/// `None`: the entry ends nothing.
pub fn end_of(entry: &Entry) -> Option<End> {
    let of = |id: &ReceiptId, outcome, result, ended: &Timestamp| End { id: *id, outcome, result, by: None, why: None, ended: *ended };
    let said = |id, outcome, result: Option<Digest32>, ended, by: &String, why: &String| {
        let why = Digest32::of(why.as_bytes());
        End { by: Some(by.clone()), why: Some(why), ..of(id, outcome, result.or(Some(why)), ended) }
    };
    let end = match entry {
        Entry::Denied { at, by, why, receipt } => said(receipt, "denied", None, at, by, why),
        Entry::Cancelled { at, by, why, receipt } => said(receipt, "cancelled", None, at, by, why),
        Entry::Flushed { at, by, why, receipt } => said(receipt, "flushed", None, at, by, why),
        Entry::Resolved { at, by, why, verdict, receipt } => match verdict {
            Verdict::Happened { result, .. } => said(receipt, "resolved_happened", Some(result.digest()), at, by, why),
            Verdict::DidNotHappen => said(receipt, "resolved_did_not_happen", None, at, by, why),
            Verdict::GaveUp => said(receipt, "resolved_gave_up", None, at, by, why),
        },
        Entry::Finished(finished) => match &finished.outcome {
            Ended::Done { success, receipt, .. } => of(receipt, "done", Some(success.result.digest()), &finished.ended),
            Ended::Failed { failure, receipt } => of(receipt, "failed", Some(digest_of(failure)), &finished.ended),
            Ended::Retry { failure, receipt: Some(receipt), .. } => {
                of(receipt, "retry_exhausted", Some(digest_of(failure)), &finished.ended)
            }
            Ended::Retry { receipt: None, .. } | Ended::Unknown { .. } => return None,
        },
        Entry::Late(late) => match &late.outcome {
            LateOutcome::Done { result, .. } => of(&late.receipt, "late_done", Some(result.digest()), &late.at),
            LateOutcome::NotDone(failure) => of(&late.receipt, "late_not_done", Some(digest_of(failure)), &late.at),
            LateOutcome::Unknown(failure) => of(&late.receipt, "late_unknown", Some(digest_of(failure)), &late.at),
        },
        Entry::Probed { at, answer: Probed::Happened { result, receipt, .. } } => of(receipt, "probed_happened", Some(result.digest()), at),
        Entry::UndoFinished { at, failure: None, receipt, .. } => of(receipt, "undone", None, at),
        Entry::UndoFinished { at, failure: Some(failure), receipt, .. } => of(receipt, "undo_failed", Some(digest_of(failure)), at),
        Entry::Opened(_)
        | Entry::ApprovalAsked { .. }
        | Entry::Approved { .. }
        | Entry::Claimed(_)
        | Entry::Extended { .. }
        | Entry::Released { .. }
        | Entry::Lost { .. }
        | Entry::Probed { .. }
        | Entry::Reopened { .. }
        | Entry::UndoStarted { .. } => return None,
    };
    Some(end)
}

fn digest_of(failure: &Failure) -> Digest32 {
    Digest32::of(serde_json::to_string(failure).expect("a failure is plain data").as_bytes())
}

impl End {
    /// What of the receipt is not as this end of `effect` demands, the effect being as it was after it. In words, with what was expected and found.
    pub fn mismatch(&self, effect: &Effect, receipt: &Receipt) -> Option<String> {
        let opened = effect.latest()?;
        // Receipts of earlier versions have no reason.
        let why = receipt.why.and(self.why);
        differs("effect", &effect.key, &receipt.effect)
            .or_else(|| differs("id", &ReceiptId::new(&effect.key, effect.version), &receipt.id))
            .or_else(|| differs("tenant", &opened.tenant, &receipt.tenant))
            .or_else(|| differs("run", &opened.run, &receipt.run))
            .or_else(|| differs("tool", &opened.tool, &receipt.tool))
            .or_else(|| differs("spec", &spec_hash(&opened.tool, &opened.args), &receipt.spec))
            .or_else(|| differs("outcome", &self.outcome, &receipt.outcome.as_str()))
            .or_else(|| differs("result", &self.result.unwrap_or(receipt.result), &receipt.result))
            .or_else(|| differs("by", &self.by, &receipt.by))
            .or_else(|| differs("why", &why, &receipt.why))
            .or_else(|| differs("attempt", &effect.attempts, &receipt.attempt))
            .or_else(|| differs("fence", &effect.fence.0, &receipt.fence.0))
            .or_else(|| differs("ended", &self.ended.0, &receipt.ended.0))
            .or_else(|| differs("duration_us", &receipt.ended.since(receipt.started).as_micros(), &u128::from(receipt.duration_us)))
    }
}

fn differs<T: PartialEq + Serialize>(what: &str, expected: &T, found: &T) -> Option<String> {
    let shown = |value: &T| match serde_json::to_string(value).expect("it is plain data") {
        nothing if nothing == "null" => "not there".to_owned(),
        text => text,
    };
    (expected != found)
        .then(|| format!("its `{what}` is {}; by the entry that it is the receipt of it is {}", shown(found), shown(expected)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_shown_as_it_is_stored() {
        let told = differs("by", &None, &Some("eva"));
        assert_eq!(told.as_deref(), Some("its `by` is \"eva\"; by the entry that it is the receipt of it is not there"));
        assert_eq!(differs("attempt", &1, &1), None);
    }
}
