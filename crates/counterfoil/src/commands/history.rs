//! One entry of an effect's history in a line for people: when, what, and what of it matters to whoever has to decide. All of it is in `--json`.

use counterfoil_core::entry::{Ended, Entry, LateOutcome, Probed, Verdict};
use counterfoil_core::{Failure, Timestamp};
use counterfoil_runtime::shown::{span, time};

/// `recorded` is `{at, entry}`, as `--json` shows it. An entry that this program does not know is shown as it is.
pub fn line(recorded: &serde_json::Value) -> String {
    let at = recorded["at"].as_i64().map(|us| time(Timestamp(us))).unwrap_or_default();
    let entry = &recorded["entry"];
    let word = entry.as_object().and_then(|fields| fields.keys().next()).map_or("", String::as_str);
    let told = serde_json::from_str::<Entry>(&entry.to_string()).map_or_else(|_| entry.to_string(), |entry| told(&entry));
    format!("{at}  {:<15} {told}", word.replace('_', " "))
}

fn told(entry: &Entry) -> String {
    match entry {
        Entry::Opened(opened) => {
            let run = opened.run.as_ref().map(|run| format!(", run {run}")).unwrap_or_default();
            let step = opened.step.as_ref().map(|step| format!(", step {step}")).unwrap_or_default();
            format!("by {}{run}{step}", opened.caller)
        }
        Entry::ApprovalAsked { expires, .. } => format!("until {}", time(*expires)),
        Entry::Approved { by, why, .. }
        | Entry::Denied { by, why, .. }
        | Entry::Cancelled { by, why, .. }
        | Entry::Reopened { by, why, .. }
        | Entry::Flushed { by, why, .. } => said(by, why),
        Entry::Claimed(claim) => {
            let lease = span(claim.lease_until.since(claim.at).max(std::time::Duration::from_millis(1)));
            format!("attempt {} by {}, for {lease} (fence {})", claim.attempt, claim.worker, claim.fence.0)
        }
        Entry::Extended { lease_until, .. } => format!("still at work, until {}", time(*lease_until)),
        Entry::Released { why, .. } => format!("nothing was sent: {why}"),
        Entry::Finished(finished) => {
            let took = format!("after {} ms", finished.ended.since(finished.started).as_millis());
            format!("attempt {} {took}: {}", finished.attempt, ended(&finished.outcome))
        }
        Entry::Lost { why, .. } => format!("it may have happened: {why}"),
        Entry::Late(late) => match &late.outcome {
            LateOutcome::Done { result, .. } => format!("done after all: {result}"),
            LateOutcome::NotDone(failure) => format!("not done: {}", words(failure)),
            LateOutcome::Unknown(failure) => format!("it may have happened: {}", words(failure)),
        },
        Entry::Probed { answer, .. } => match answer {
            Probed::Happened { result, .. } => format!("it happened: {result}"),
            Probed::DidNotHappen => "it did not happen".into(),
            Probed::CannotTell(why) => format!("cannot tell: {why}"),
        },
        Entry::Resolved { by, why, verdict, .. } => {
            let verdict = match verdict {
                Verdict::Happened { result, .. } => format!("it happened: {result}"),
                Verdict::DidNotHappen => "it did not happen, and may run".into(),
                Verdict::GaveUp => "it did not happen, and shall not".into(),
            };
            format!("{verdict}; {}", said(by, why))
        }
        Entry::UndoStarted { by, why, undo, .. } => format!("effect {undo}, {}", said(by, why)),
        Entry::UndoFinished { failure, .. } => {
            failure.as_ref().map_or_else(|| "undone".into(), |failure| format!("not undone: {}", words(failure)))
        }
    }
}

fn ended(outcome: &Ended) -> String {
    match outcome {
        Ended::Done { success, .. } => match success.flags.len() {
            0 => "done".into(),
            flags => format!("done, {flags} flagged"),
        },
        Ended::Failed { failure, .. } => format!("failed for good: {}", words(failure)),
        Ended::Retry { failure, not_before, .. } => format!("not done: {}; again from {}", words(failure), time(*not_before)),
        Ended::Unknown { failure, .. } => format!("it may have happened: {}", words(failure)),
    }
}

fn words(failure: &Failure) -> String {
    format!("{}: {}", failure.code, failure.message)
}

fn said(by: &str, why: &str) -> String {
    if why.is_empty() { format!("by {by}") } else { format!("by {by}: {why}") }
}
