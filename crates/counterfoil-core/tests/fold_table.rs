//! The fold, cell by cell: every state meets every entry, and is allowed or refused as the table in `effect.rs` says.
//!
//! `TABLE` is that table once more, in a form that can be run. Whatever it does not name must be refused and must leave the state as it was.
//! The second half are the cells whose rows need more than one word: which claim is named, what a claim was made on, what was known before.

use std::time::Duration;

use counterfoil_core::effect::{Facts, FoldError, How};
use counterfoil_core::entry::{Claim, Ended, Finished, Late, LateOutcome, Opened, Probed, Verdict};
use counterfoil_core::ids::Digest32;
use counterfoil_core::receipt::ReceiptId;
use counterfoil_core::run::ending::step_end;
use counterfoil_core::run::entry::StepEnd;
use counterfoil_core::{
    Caller, CanonicalJson, Effect, EffectKey, Entry, Failure, Fence, Json, State, Success, Tenant, Timestamp, ToolName, WorkerId, call,
    codec, summary,
};

/// How each state is reached, by the entries that lead there. Claims are 3 and 5; 3 is silent wherever a claim can be.
const STATES: [(&str, &[&str]); 22] = [
    ("absent", &[]),
    ("ready", &["opened"]),
    ("ready, one claim silent", &["opened", "claimed 3", "lost 3", "resolved did_not_happen"]),
    ("waiting_approval", &["opened", "approval_asked"]),
    ("running", &["opened", "claimed 5"]),
    ("running, one claim silent", &["opened", "claimed 3", "lost 3", "probed did_not_happen", "claimed 5"]),
    ("retrying", &["opened", "claimed 3", "lost 3", "probed did_not_happen"]),
    ("in_doubt", &["opened", "claimed 3", "lost 3"]),
    ("failed", &["opened", "claimed 3", "lost 3", "resolved gave_up"]),
    ("done", &["opened", "claimed 3", "lost 3", "probed did_not_happen", "claimed 5", "finished 5 done"]),
    ("undoing", &["opened", "claimed 3", "lost 3", "resolved happened", "undo_started"]),
    ("undo_failed", &["opened", "claimed 3", "lost 3", "resolved happened", "undo_started", "undo_finished failed"]),
    ("undone", &["opened", "claimed 3", "lost 3", "resolved happened", "undo_started", "undo_finished"]),
    ("cancelled", &["opened", "claimed 3", "cancelled"]),
    ("cancelled, before it began", &["opened", "cancelled"]),
    ("cancelled, and it acted", &["opened", "claimed 3", "cancelled", "late 3 done"]),
    ("waiting_approval, one claim silent", &["opened", "claimed 3", "lost 3", "resolved did_not_happen", "approval_asked"]),
    ("retrying, its series over", &["opened", "claimed 3", "finished 3 over"]),
    ("done, one attempt unheard", &["opened", "claimed 3", "lost 3", "claimed 5", "finished 5 done"]),
    ("done, as a person said", &["opened", "claimed 3", "lost 3", "resolved happened"]),
    ("flushed", &["opened", "claimed 3", "lost 3", "probed did_not_happen", "claimed 5", "finished 5 done", "flushed"]),
    (
        "ready, of a second life",
        &["opened", "claimed 3", "lost 3", "probed did_not_happen", "claimed 5", "finished 5 done", "flushed", "opened"],
    ),
];

/// Every entry that is tried in every state.
const ENTRIES: [&str; 38] = [
    "opened",
    "approval_asked",
    "approved",
    "approved too late",
    "denied",
    "claimed 3",
    "claimed 5",
    "claimed 7",
    "extended 3",
    "extended 5",
    "released 3",
    "released 5",
    "finished 3 done",
    "finished 5 done",
    "finished 5 failed",
    "finished 5 retry",
    "finished 5 unknown",
    "lost 3",
    "lost 5",
    "late 3 done",
    "late 3 not_done",
    "late 3 rejected",
    "late 3 unknown",
    "late 5 done",
    "late 9 done",
    "probed happened",
    "probed did_not_happen",
    "probed cannot_tell",
    "resolved happened",
    "resolved did_not_happen",
    "resolved gave_up",
    "cancelled",
    "reopened",
    "undo_started",
    "undo_finished",
    "undo_finished failed",
    "undo_finished of another",
    "flushed",
];

/// What is allowed, and where it leads. Nothing else is.
const TABLE: [(&str, &[(&str, &str)]); 22] = [
    ("absent", &[("opened", "ready")]),
    (
        "ready",
        &[
            ("approval_asked", "waiting_approval"),
            ("claimed 3", "running"),
            ("claimed 5", "running"),
            ("claimed 7", "running"),
            ("cancelled", "cancelled"),
        ],
    ),
    (
        "ready, one claim silent",
        &[
            ("approval_asked", "waiting_approval"),
            ("claimed 5", "running"),
            ("claimed 7", "running"),
            ("cancelled", "cancelled"),
            ("late 3 done", "done"),
            ("late 3 not_done", "ready"),
            ("late 3 rejected", "ready"),
            ("late 3 unknown", "ready"),
        ],
    ),
    ("waiting_approval", &[("approved", "ready"), ("denied", "failed"), ("cancelled", "cancelled")]),
    (
        "running",
        &[
            ("extended 5", "running"),
            ("released 5", "ready"),
            ("finished 5 done", "done"),
            ("finished 5 failed", "failed"),
            ("finished 5 retry", "retrying"),
            ("finished 5 unknown", "in_doubt"),
            ("lost 5", "in_doubt"),
            ("cancelled", "cancelled"),
        ],
    ),
    (
        "running, one claim silent",
        &[
            ("extended 5", "running"),
            ("released 5", "retrying"),
            ("finished 5 done", "done"),
            ("finished 5 failed", "failed"),
            ("finished 5 retry", "retrying"),
            ("finished 5 unknown", "in_doubt"),
            ("lost 5", "in_doubt"),
            ("cancelled", "cancelled"),
            ("late 3 done", "done"),
            ("late 3 not_done", "running"),
            ("late 3 rejected", "running"),
            ("late 3 unknown", "running"),
        ],
    ),
    (
        "retrying",
        &[
            ("claimed 5", "running"),
            ("claimed 7", "running"),
            ("reopened", "ready"),
            ("cancelled", "cancelled"),
            ("late 3 done", "done"),
            ("late 3 not_done", "retrying"),
            ("late 3 rejected", "retrying"),
            ("late 3 unknown", "retrying"),
        ],
    ),
    (
        "in_doubt",
        &[
            ("claimed 5", "running"),
            ("claimed 7", "running"),
            ("probed happened", "done"),
            ("probed did_not_happen", "retrying"),
            ("probed cannot_tell", "in_doubt"),
            ("resolved happened", "done"),
            ("resolved did_not_happen", "ready"),
            ("resolved gave_up", "failed"),
            ("late 3 done", "done"),
            ("late 3 not_done", "retrying"),
            ("late 3 rejected", "failed"),
            ("late 3 unknown", "in_doubt"),
        ],
    ),
    (
        "failed",
        &[
            ("flushed", "flushed"),
            ("reopened", "ready"),
            ("late 3 done", "done"),
            ("late 3 not_done", "failed"),
            ("late 3 rejected", "failed"),
            ("late 3 unknown", "failed"),
        ],
    ),
    (
        "done",
        &[
            ("flushed", "flushed"),
            ("undo_started", "undoing"),
            ("late 3 done", "done"),
            ("late 3 not_done", "done"),
            ("late 3 rejected", "done"),
            ("late 3 unknown", "done"),
        ],
    ),
    (
        "undoing",
        &[
            ("undo_finished", "undone"),
            ("undo_finished failed", "undo_failed"),
            ("late 3 done", "undoing"),
            ("late 3 not_done", "undoing"),
            ("late 3 rejected", "undoing"),
            ("late 3 unknown", "undoing"),
        ],
    ),
    (
        "undo_failed",
        &[
            ("undo_started", "undoing"),
            ("late 3 done", "undo_failed"),
            ("late 3 not_done", "undo_failed"),
            ("late 3 rejected", "undo_failed"),
            ("late 3 unknown", "undo_failed"),
        ],
    ),
    (
        "undone",
        &[
            ("flushed", "flushed"),
            ("late 3 done", "undone"),
            ("late 3 not_done", "undone"),
            ("late 3 rejected", "undone"),
            ("late 3 unknown", "undone"),
        ],
    ),
    (
        "cancelled",
        &[
            ("late 3 done", "cancelled"),
            ("late 3 not_done", "cancelled"),
            ("late 3 rejected", "cancelled"),
            ("late 3 unknown", "cancelled"),
            ("probed happened", "cancelled"),
            ("probed did_not_happen", "cancelled"),
            ("probed cannot_tell", "cancelled"),
            ("resolved happened", "cancelled"),
            ("resolved did_not_happen", "cancelled"),
            ("resolved gave_up", "cancelled"),
        ],
    ),
    ("cancelled, before it began", &[("flushed", "flushed")]),
    ("cancelled, and it acted", &[("undo_started", "undoing")]),
    (
        "waiting_approval, one claim silent",
        &[
            ("approved", "ready"),
            ("denied", "failed"),
            ("cancelled", "cancelled"),
            ("late 3 done", "done"),
            ("late 3 not_done", "waiting_approval"),
            ("late 3 rejected", "waiting_approval"),
            ("late 3 unknown", "waiting_approval"),
        ],
    ),
    (
        "retrying, its series over",
        &[("claimed 5", "running"), ("claimed 7", "running"), ("reopened", "ready"), ("cancelled", "cancelled"), ("flushed", "flushed")],
    ),
    (
        "done, one attempt unheard",
        &[
            ("undo_started", "undoing"),
            ("late 3 done", "done"),
            ("late 3 not_done", "done"),
            ("late 3 rejected", "done"),
            ("late 3 unknown", "done"),
        ],
    ),
    (
        "done, as a person said",
        &[
            ("flushed", "flushed"),
            ("undo_started", "undoing"),
            ("late 3 done", "done"),
            ("late 3 not_done", "done"),
            ("late 3 rejected", "done"),
            ("late 3 unknown", "done"),
        ],
    ),
    (
        "flushed",
        &[
            ("opened", "ready"),
            ("late 3 done", "flushed"),
            ("late 3 not_done", "flushed"),
            ("late 3 rejected", "flushed"),
            ("late 3 unknown", "flushed"),
        ],
    ),
    (
        "ready, of a second life",
        &[
            ("approval_asked", "waiting_approval"),
            ("claimed 7", "running"),
            ("cancelled", "cancelled"),
            ("late 3 done", "ready"),
            ("late 3 not_done", "ready"),
            ("late 3 rejected", "ready"),
            ("late 3 unknown", "ready"),
        ],
    ),
];

const AT: Timestamp = Timestamp(1_000_000);
const EXPIRES: Timestamp = Timestamp(9_000_000);

fn key() -> EffectKey {
    Digest32::of(b"key")
}

fn receipt(ending: u64) -> ReceiptId {
    ReceiptId::new(&key(), ending)
}

fn result(text: &str) -> Json {
    Json::parse(text).unwrap()
}

/// `claimed 3` and the like, as an entry.
fn entry(text: &str) -> Entry {
    let words: Vec<&str> = text.split(' ').collect();
    let fence = Fence(words.get(1).and_then(|w| w.parse().ok()).unwrap_or(0));
    let (by, why) = (|| "ada".to_owned(), || "why".to_owned());
    let rejected = || Failure::new("http_400", "rejected");
    let later = || Failure::of_dependency("http_503", "later");
    let finished = |outcome| Entry::Finished(Finished { fence, attempt: 1, started: AT, ended: AT, outcome, answers: None });
    let late = |outcome| Entry::Late(Late { fence, at: AT, outcome, receipt: receipt(100 + fence.0) });
    let resolved = |verdict| Entry::Resolved { at: AT, by: by(), why: why(), verdict, receipt: receipt(20) };
    let undo = call::undo_key(&key());
    match (words[0], *words.last().unwrap()) {
        ("opened", _) => Entry::Opened(Opened {
            at: AT,
            tenant: Tenant::new("acme").unwrap(),
            caller: Caller::new("agent-7").unwrap(),
            tool: ToolName::new("charge").unwrap(),
            args: CanonicalJson::empty_object(),
            fingerprint: CanonicalJson::empty_object().fingerprint(),
            run: None,
            step: None,
            redacted: false,
            settles: false,
            lent: false,
            retain_ms: 1000,
        }),
        ("approval_asked", _) => Entry::ApprovalAsked { at: AT, expires: EXPIRES },
        ("approved", "late") => Entry::Approved { at: EXPIRES, by: by(), why: String::new() },
        ("approved", _) => Entry::Approved { at: AT, by: by(), why: String::new() },
        ("denied", _) => Entry::Denied { at: AT, by: by(), why: why(), receipt: receipt(1) },
        ("claimed", _) => {
            let attempt = fence.0 as u32 / 2;
            let worker = WorkerId::new(&format!("worker-{}", fence.0)).unwrap();
            Entry::Claimed(Claim { at: Timestamp(fence.0 as i64), attempt, fence, worker, lease_until: EXPIRES })
        }
        ("extended", _) => Entry::Extended { fence, lease_until: Timestamp(EXPIRES.0 + 1) },
        ("released", _) => Entry::Released { fence, at: AT, why: why() },
        ("lost", _) => Entry::Lost { fence, at: AT, why: why() },
        ("finished", "done") => finished(Ended::Done { success: Success::new(result("1")), undo: None, receipt: receipt(10) }),
        ("finished", "failed") => finished(Ended::Failed { failure: rejected(), receipt: receipt(11) }),
        ("finished", "retry") => finished(Ended::Retry { failure: later(), not_before: EXPIRES, receipt: None }),
        ("finished", "over") => finished(Ended::Retry { failure: later(), not_before: EXPIRES, receipt: Some(receipt(13)) }),
        ("finished", "unknown") => finished(Ended::Unknown { failure: later(), not_before: EXPIRES, sent: None }),
        ("late", "done") => late(LateOutcome::Done { result: result("2"), flags: Vec::new(), state_changed: None, undo: None }),
        ("late", "not_done") => late(LateOutcome::NotDone(Failure { retry_after_ms: Some(5), ..later() })),
        ("late", "rejected") => late(LateOutcome::NotDone(rejected())),
        ("late", "unknown") => late(LateOutcome::Unknown(later())),
        ("probed", "happened") => {
            Entry::Probed { at: AT, answer: Probed::Happened { result: result("3"), undo: None, receipt: receipt(12) } }
        }
        ("probed", "did_not_happen") => Entry::Probed { at: AT, answer: Probed::DidNotHappen },
        ("probed", "cannot_tell") => Entry::Probed { at: AT, answer: Probed::CannotTell("down".into()) },
        ("resolved", "happened") => resolved(Verdict::Happened { result: result("4"), undo: None }),
        ("resolved", "did_not_happen") => resolved(Verdict::DidNotHappen),
        ("resolved", "gave_up") => resolved(Verdict::GaveUp),
        ("cancelled", _) => Entry::Cancelled { at: AT, by: by(), why: why(), receipt: receipt(30) },
        ("reopened", _) => Entry::Reopened { at: AT, by: by(), why: why() },
        ("undo_started", _) => Entry::UndoStarted { at: AT, by: by(), why: String::new(), undo },
        ("undo_finished", "another") => Entry::UndoFinished { at: AT, undo: key(), failure: None, receipt: receipt(40) },
        ("undo_finished", "failed") => Entry::UndoFinished { at: AT, undo, failure: Some(rejected()), receipt: receipt(40) },
        ("undo_finished", _) => Entry::UndoFinished { at: AT, undo, failure: None, receipt: receipt(40) },
        ("flushed", _) => Entry::Flushed { at: AT, by: by(), why: why(), receipt: receipt(50) },
        other => panic!("{other:?} is not an entry"),
    }
}

fn fold(texts: &[&str]) -> Effect {
    let mut effect = Effect::absent(key());
    for text in texts {
        effect.apply([entry(text)]).unwrap_or_else(|e| panic!("{texts:?}: {e}"));
    }
    effect
}

#[test]
fn every_state_meets_every_entry() {
    let mut cells = 0;
    for ((name, path), (row, allowed)) in STATES.iter().zip(&TABLE) {
        assert_eq!(name, row, "the two lists go together");
        let from = fold(path);
        assert!(name.starts_with(from.state.word()), "{name}: {:?}", from.state);
        for text in ENTRIES {
            let expected = allowed.iter().find(|(entry, _)| *entry == text).map(|(_, to)| *to);
            check(&from, text, expected);
            cells += 1;
        }
    }
    assert_eq!(cells, 22 * 38);
}

fn check(from: &Effect, text: &str, expected: Option<&str>) {
    let mut effect = from.clone();
    let folded = effect.apply([entry(text)]);
    match expected {
        Some(to) => {
            assert_eq!(folded, Ok(()), "{} + {text}", from.state.word());
            assert_eq!(effect.state.word(), to, "{} + {text}", from.state.word());
        }
        None => {
            let named = text.split(' ').next();
            let refused =
                matches!(folded, Err(FoldError::Illegal { state, entry, .. }) if state == from.state.word() && Some(entry) == named);
            assert!(refused, "{} + {text} gave {folded:?} and {:?}", from.state.word(), effect.state);
            assert_eq!((&effect.state, effect.fence, &effect.late), (&from.state, from.fence, &from.late), "{text} left a trace");
        }
    }
}

// ---------------------------------------------------------------- what one word does not say

fn done(texts: &[&str]) -> (String, u32, How, Timestamp) {
    match fold(texts).state.clone() {
        State::Done(done) => (done.result.to_string(), done.attempt, done.how, done.started),
        state => panic!("{texts:?} leads to {state:?}"),
    }
}

#[test]
fn a_late_done_is_the_result_of_the_attempt_that_reports_it() {
    let twice = ["opened", "claimed 3", "lost 3", "claimed 5", "lost 5", "late 3 done"];
    assert_eq!(done(&twice), ("2".into(), 1, How::ReportedLate, Timestamp(3)));
    let newer = ["opened", "claimed 3", "lost 3", "claimed 5", "lost 5", "late 5 done"];
    assert_eq!(done(&newer), ("2".into(), 2, How::ReportedLate, Timestamp(5)));
}

#[test]
fn a_late_done_overtakes_the_newer_attempt_whose_report_is_late_in_turn() {
    let overtaken = ["opened", "claimed 3", "lost 3", "probed did_not_happen", "claimed 5", "late 3 done"];
    let effect = fold(&overtaken);
    check(&effect, "extended 5", None);
    check(&effect, "finished 5 done", None);
    check(&effect, "finished 5 retry", None);
    check(&effect, "late 5 done", Some("done"));
    let mut doubled = effect.clone();
    doubled.apply([entry("late 5 done")]).unwrap();
    assert_eq!(doubled.state, effect.state, "the first answer stands");
    assert_eq!(doubled.late.len(), 2, "and the double is on record");
}

#[test]
fn nobody_reports_late_twice_or_without_having_been_lost() {
    let effect = fold(&["opened", "claimed 3", "lost 3", "late 3 done"]);
    check(&effect, "late 3 done", None);
    check(&fold(&["opened", "claimed 3", "released 3"]), "late 3 done", None);
    check(&fold(&["opened", "claimed 3", "finished 3 done"]), "late 3 done", None);
    // Who said "unknown" may know more later.
    check(&fold(&["opened", "claimed 3", "lost 3", "late 3 unknown"]), "late 3 done", Some("done"));
    check(&fold(&["opened", "claimed 5", "finished 5 unknown"]), "late 5 done", Some("done"));
}

#[test]
fn a_late_word_leaves_what_the_newer_claim_was_made_on() {
    let retry = ["opened", "claimed 3", "lost 3", "probed did_not_happen"];
    let waiting = fold(&retry).state.clone();
    for late in ["late 3 not_done", "late 3 rejected", "late 3 unknown"] {
        let released = fold(&[&retry[..], &["claimed 5", late, "released 5"]].concat());
        assert_eq!(released.state, waiting, "{late}: the retry that was waiting is waiting again");
    }
    let agreed = ["opened", "claimed 3", "lost 3", "resolved did_not_happen", "claimed 5", "late 3 not_done", "released 5"];
    assert_eq!(fold(&agreed).state.word(), "ready", "and so is what a person had cleared");
}

#[test]
fn a_doubt_survives_whatever_does_not_close_it() {
    let doubt = ["opened", "claimed 3", "lost 3", "claimed 5"];
    let then = |more: &[&str]| fold(&[&doubt[..], more].concat()).state.word();
    assert_eq!(then(&["released 5"]), "in_doubt", "a repeat that was not dispatched says nothing");
    assert_eq!(then(&["finished 5 retry"]), "in_doubt", "a repeat that did nothing says nothing of the first attempt");
    assert_eq!(then(&["late 3 not_done", "finished 5 retry"]), "retrying", "unless the first attempt has spoken for itself");
    assert_eq!(then(&["late 3 not_done", "released 5"]), "retrying");
    assert_eq!(then(&["late 3 rejected", "released 5"]), "failed");
    assert_eq!(then(&["lost 5", "late 5 not_done"]), "in_doubt", "the first attempt is still silent");
    assert_eq!(then(&["lost 5", "late 5 rejected"]), "in_doubt");
    assert_eq!(then(&["lost 5", "late 5 not_done", "late 3 not_done"]), "retrying");
    assert_eq!(then(&["lost 5", "probed did_not_happen"]), "retrying", "a probe speaks of all attempts");
    assert_eq!(then(&["finished 5 failed"]), "in_doubt", "a refused repeat says nothing of the first attempt either");
    for cleared in ["probed did_not_happen", "resolved did_not_happen"] {
        let later = ["opened", "claimed 3", "lost 3", cleared, "claimed 5", "lost 5"];
        assert!(!fold(&later[..4]).doubtful() && fold(&later).doubtful());
        assert_eq!(fold(&[&later[..], &["late 5 not_done"]].concat()).state.word(), "retrying", "claim 3 is no longer in doubt");
        assert_eq!(fold(&[&later[..], &["late 3 not_done"]].concat()).state.word(), "in_doubt", "claim 5 is");
    }
    assert_eq!(then(&["finished 5 done"]), "done");
}

#[test]
fn a_release_leaves_everything_as_it_was() {
    for path in [&["opened"][..], &["opened", "claimed 3", "finished 3 retry"], &["opened", "claimed 3", "lost 3"]] {
        let before = fold(path);
        let mut after = before.clone();
        after.apply([entry("claimed 5")]).unwrap();
        after.apply([entry("released 5")]).unwrap();
        assert_eq!(after.state, before.state, "{path:?}");
        let (State::InDoubt(_) | State::Retrying(_) | State::Ready) = after.state else { panic!("{:?}", after.state) };
    }
}

#[test]
fn a_late_refusal_keeps_its_retry_after_and_ends_no_series() {
    let effect = fold(&["opened", "claimed 3", "lost 3", "late 3 not_done"]);
    let State::Retrying(retrying) = &effect.state else { panic!("{:?}", effect.state) };
    assert_eq!((retrying.not_before, retrying.receipt), (Timestamp(AT.0 + 5000), None));
}

#[test]
fn cancelled_under_way_is_not_certainly_undone() {
    let check = |texts: &[&str], world: &str, expires: bool, open: bool| {
        let effect = fold(texts);
        assert_eq!(effect.world().word(), world, "{texts:?}");
        assert_eq!(effect.expires().is_some(), expires, "{texts:?}");
        assert_eq!(effect.summary().open, open, "{texts:?}");
    };
    let under_way = ["opened", "claimed 3", "cancelled"];
    let then = |more: &'static str| [&under_way[..], &[more]].concat();
    check(&["opened", "cancelled"], "permanent_failure", true, false);
    check(&under_way, "in_doubt", false, true);
    check(&then("late 3 not_done"), "permanent_failure", true, false);
    check(&then("late 3 unknown"), "in_doubt", false, true);
    check(&then("late 3 done"), "compensatable_failure", false, false);
    check(&then("probed happened"), "compensatable_failure", false, false);
    check(&then("probed did_not_happen"), "permanent_failure", true, false);
    check(&then("probed cannot_tell"), "in_doubt", false, true);
    check(&then("resolved happened"), "compensatable_failure", false, false);
    check(&then("resolved gave_up"), "permanent_failure", true, false);
    check(&["opened", "claimed 3", "cancelled", "late 3 done", "undo_started", "undo_finished"], "compensated", true, false);
}

#[test]
fn a_probe_or_a_person_names_the_attempt_that_was_in_doubt() {
    assert_eq!(done(&["opened", "claimed 3", "lost 3", "probed happened"]), ("3".into(), 1, How::Probed, Timestamp(3)));
    assert_eq!(done(&["opened", "claimed 5", "lost 5", "resolved happened"]), ("4".into(), 2, How::Resolved, Timestamp(5)));
}

#[test]
fn what_a_probe_showed_not_to_have_happened_may_be_tried_again() {
    let State::Retrying(failed) = &fold(&["opened", "claimed 3", "lost 3", "probed did_not_happen"]).state else {
        panic!("it is tried again")
    };
    assert_eq!((failed.failure.code.as_str(), failed.failure.retriable, failed.attempt), ("did_not_happen", true, 1));
}

#[test]
fn approved_and_runnable_is_due_at_once_and_redacted_waits_for_its_caller() {
    let due = |redacted: bool, lent: bool| {
        let mut effect = Effect::absent(key());
        let Entry::Opened(opened) = entry("opened") else { unreachable!() };
        let entries = [Entry::Opened(Opened { redacted, lent, ..opened }), entry("approval_asked"), entry("approved")];
        effect.apply(entries).unwrap();
        effect.summary().due
    };
    assert_eq!(due(false, false), Some(Timestamp::ZERO));
    assert_eq!(due(false, true), None, "its client runs it");
    assert_eq!(due(true, false), None, "nobody but the caller can run it: looking again and again finds nothing to do");
}

#[test]
fn a_flushed_effect_is_as_if_nothing_had_been_but_for_its_fences_and_its_key_outside() {
    let asked = ["opened", "approval_asked", "approved", "claimed 3", "lost 3", "late 3 unknown", "probed did_not_happen", "claimed 5"];
    let before = fold(&[&asked[..], &["finished 5 done"]].concat());
    let mut flushed = before.clone();
    flushed.apply([entry("flushed")]).unwrap();
    let State::Flushed { by, last, .. } = &flushed.state else { panic!("{:?}", flushed.state) };
    assert_eq!((by.as_str(), Some(last)), ("ada", before.opened.as_ref()));
    let blank = Facts { state: flushed.state.clone(), ..Facts::absent(key()) };
    let kept = Effect::from(Facts { version: 10, flushed: 10, fence: Fence(5), past: vec![Fence(3)], ..blank });
    assert_eq!(flushed, kept, "and nothing else is left");
    assert_eq!(before.sent_key(), key());
    let mut keys = vec![before.sent_key(), flushed.sent_key()];
    for text in ["opened", "claimed 7", "finished 7 done", "flushed"] {
        assert_eq!(flushed.sent_key(), keys[1], "one key for the whole of a life");
        flushed.apply([entry(text)]).unwrap();
    }
    keys.push(flushed.sent_key());
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 3, "a key of its own for every life");
}

#[test]
fn what_an_earlier_life_reports_is_kept_once_and_changes_nothing() {
    let second = ["opened", "claimed 3", "lost 3", "resolved happened", "flushed", "opened", "claimed 7"];
    let running = fold(&second);
    let mut told = running.clone();
    told.apply([entry("late 3 done")]).unwrap();
    assert_eq!((&told.state, told.late.len()), (&running.state, 1));
    check(&told, "late 3 done", None);
    check(&told, "finished 7 done", Some("done"));
    check(&running, "finished 3 done", None);
    check(&running, "lost 3", None);
}

#[test]
fn a_flushed_effect_is_listed_by_its_last_call_and_expires_as_others_do() {
    let flushed = fold(&["opened", "claimed 3", "finished 3 done", "flushed"]);
    let summary = flushed.summary();
    assert_eq!((summary.state, summary.open, summary.due), ("flushed", false, None));
    assert_eq!((summary.tenant.as_str(), summary.tool.as_ref().map(|t| t.as_str())), ("acme", Some("charge")));
    assert_eq!(summary.expires, Some(Timestamp(AT.0 + 1_000_000)));
    assert_eq!(flushed.world().word(), "undecided");
    assert!(summary::STATES.contains(&summary.state));
}

#[test]
fn a_heartbeat_moves_the_end_of_the_lease_and_nothing_else() {
    let running = fold(&["opened", "claimed 5"]);
    let State::Running(before) = &running.state else { panic!("it runs") };
    let until = Timestamp(before.lease_until.0 + 1);
    let mut extended = running.clone();
    extended.apply([Entry::Extended { fence: Fence(5), lease_until: until }]).unwrap();
    assert_eq!(extended.state, State::Running(Claim { lease_until: until, ..before.clone() }));
    assert_eq!(extended.summary().due, Some(until), "nobody looks at it before");
}

#[test]
fn a_record_is_folded_as_its_entries_are_and_one_that_cannot_be_is_named() {
    let mut stored = Effect::absent(key());
    for text in ["opened", "claimed 5"] {
        stored.apply_body(&codec::encode(&[entry(text)])).unwrap();
    }
    assert_eq!(stored, fold(&["opened", "claimed 5"]));
    assert!(matches!(stored.apply_body("1[{}]"), Err(FoldError::Codec { version: 3, .. })));
    assert!(matches!(stored.apply_body("2[]"), Err(FoldError::Codec { version: 3, .. })));
}

#[test]
fn a_doubt_knows_when_it_may_be_repeated_and_what_probes_said() {
    let doubt = |texts: &[&str]| match fold(texts).state.clone() {
        State::InDoubt(doubt) => doubt,
        state => panic!("{texts:?} leads to {state:?}"),
    };
    let repeated = ["opened", "claimed 3", "lost 3", "claimed 5", "finished 5 retry"];
    assert_eq!(doubt(&repeated[..3]).not_before, AT);
    assert_eq!(doubt(&repeated).not_before, EXPIRES, "as the repeat was told");
    assert_eq!(doubt(&["opened", "claimed 3", "finished 3 unknown", "claimed 5", "finished 5 failed"]).not_before, AT, "at once");
    let probed = doubt(&["opened", "claimed 3", "lost 3", "probed cannot_tell", "probed cannot_tell"]);
    assert_eq!((probed.probes, probed.probed_at, probed.probe_said.as_deref()), (2, Some(AT), Some("down")));
}

#[test]
fn what_was_claimed_since_it_was_opened() {
    let twice = ["opened", "claimed 3", "finished 3 done", "flushed", "opened", "claimed 9"];
    let claimed: Vec<bool> = (0..=twice.len()).map(|n| !fold(&twice[..n]).unclaimed()).collect();
    assert_eq!(claimed, [false, false, true, true, false, false, true]);
}

#[test]
fn a_flush_keeps_what_belongs_to_the_key() {
    let mut effect = fold(&["opened", "claimed 3", "finished 3 done"]);
    let subject = counterfoil_core::StreamId([7; 32]);
    let key = counterfoil_core::veil::SubjectKey { at: AT, key: Digest32::of(b"a subject's") };
    let veil = std::sync::Arc::new(counterfoil_core::Veil::new(subject, &key));
    (effect.expired, effect.veil) = (true, Some(veil.clone()));
    effect.apply([entry("flushed")]).unwrap();
    assert_eq!((effect.expired, &effect.veil, effect.fence), (true, &Some(veil), Fence(3)));
}

#[test]
fn what_is_listed_of_a_state() {
    let listed = |texts: &[&str]| {
        let summary = fold(texts).summary();
        (summary.state, summary.open, summary.due)
    };
    assert_eq!(listed(&["opened", "claimed 3"]), ("running", true, Some(EXPIRES)));
    assert_eq!(listed(&["opened", "cancelled"]), ("cancelled", false, None));
    assert_eq!(listed(&["opened", "claimed 3", "cancelled"]), ("in_doubt", true, None), "it may have acted");
    assert_eq!(listed(&["opened", "claimed 3", "finished 3 done"]), ("done", false, None));
    assert_eq!(listed(&["opened", "approval_asked"]), ("waiting_approval", true, Some(EXPIRES)));
    assert_eq!(
        listed(&["opened", "approval_asked", "approved"]),
        ("ready", true, Some(Timestamp::ZERO)),
        "whoever looks for work may run it"
    );
    assert_eq!(listed(&["opened"]), ("ready", true, None));
}

#[test]
fn a_doubt_is_looked_at_ever_more_rarely() {
    let State::InDoubt(mut doubt) = fold(&["opened", "claimed 3", "lost 3"]).state.clone() else { panic!("no doubt") };
    let mut after = |probes: u32, probed_at: Option<i64>, attempts: u32| {
        (doubt.probes, doubt.probed_at) = (probes, probed_at.map(Timestamp));
        doubt.next_look(attempts).since(doubt.since)
    };
    let first = after(1, None, 1);
    assert_eq!((after(0, None, 0), after(0, None, 1)), (Duration::ZERO, Duration::ZERO), "the first look is at once");
    assert_eq!(first, Duration::from_secs(5));
    assert_eq!((after(2, None, 1), after(3, None, 1)), (first * 2, first * 4));
    assert_eq!((after(0, None, 2), after(0, None, 3), after(1, None, 3)), (first, first * 2, first * 2), "repeats count as looks do");
    assert_eq!(after(u32::MAX, None, 1), after(40, None, 1), "up to a bound");
    assert_eq!(after(1, Some(AT.0 + 7_000_000), 1), first + Duration::from_secs(7), "from the last look on");
    assert_eq!(after(1, Some(0), 1), first, "and never from before the doubt");
}

#[test]
fn what_an_effect_means_for_the_step_that_began_it() {
    let ends = STATES.map(|(name, path)| {
        let how = match step_end(&fold(path)) {
            None => "",
            Some(StepEnd::Done { undo: true, .. }) => "done, to be undone",
            Some(StepEnd::Done { .. }) => "done",
            Some(StepEnd::Failed { doubt: true, .. }) => "failed, perhaps",
            Some(StepEnd::Failed { .. }) => "failed",
            Some(StepEnd::Cancelled { doubt: true }) => "cancelled, perhaps",
            Some(StepEnd::Cancelled { .. }) => "cancelled",
        };
        (name, how)
    });
    let ended: Vec<(&str, &str)> = ends.into_iter().filter(|(_, how)| !how.is_empty()).collect();
    let expected = [
        ("retrying", "failed"),
        ("failed", "failed"),
        ("done", "done"),
        ("undoing", "done"),
        ("undo_failed", "done, to be undone"),
        ("undone", "done"),
        ("cancelled", "cancelled, perhaps"),
        ("cancelled, before it began", "cancelled"),
        ("cancelled, and it acted", "cancelled, perhaps"),
        ("retrying, its series over", "failed"),
        ("done, one attempt unheard", "done"),
        ("done, as a person said", "done"),
        ("flushed", "failed"),
    ];
    assert_eq!(ended, expected);
}
