//! Golden records: what was ever written can be read, and is written the same way again.
//!
//! Each file in `tests/golden/` is the body of one stored record (`life.txt`: the records of one effect, a line each). A file must decode to
//! the value in `records()` and that value must encode to the file's very bytes: a renamed field, a changed order or a default that hides a
//! missing field all show up here.
//!
//! A new kind of record: add it to `records()` and run once with `COUNTERFOIL_BLESS=1`; that writes the files that are missing and never
//! touches one that is there. A file that no longer matches means that ledgers in the field can no longer be read: that is a new version
//! character and a reader for the old one, not a new file. To drop a record that was never released, delete its file by hand.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use counterfoil_core::breaker::{Admission, Breaker, Health};
use counterfoil_core::codec::{self, CodecError};
use counterfoil_core::effect::FoldError;
use counterfoil_core::entry::{Answers, Claim, Ended, Finished, Late, LateOutcome, Opened, Probed, UndoCall, Verdict};
use counterfoil_core::ids::Digest32;
use counterfoil_core::limit::Spent;
use counterfoil_core::mode::{Mode, Switched};
use counterfoil_core::outcome::{Flag, StateChanged};
use counterfoil_core::policy::{BreakerPolicy, Rate};
use counterfoil_core::receipt::{self, ChainHead, Draft, ReceiptId};
use counterfoil_core::request::{Request, RequestState, Stored};
use counterfoil_core::token::{Change, Label, Right, Rights, Token, TokenId};
use counterfoil_core::{
    Caller, CanonicalJson, Effect, EffectKey, Entry, Failure, Fence, Json, RunId, State, StepPath, Success, Tenant, Timestamp, ToolName,
    WorkerId, call,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

const AT: Timestamp = Timestamp(1_700_000_000_123_456);

fn key() -> EffectKey {
    Digest32::of(b"golden")
}

fn receipt(ending: u64) -> ReceiptId {
    ReceiptId::new(&key(), ending)
}

fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

fn undo() -> Option<UndoCall> {
    let args = CanonicalJson::parse(r#"{"charge":"ch_1"}"#).unwrap();
    Some(UndoCall { tool: ToolName::new("refund").unwrap(), args })
}

/// With everything that can be left out.
fn full_failure() -> Failure {
    let failure = Failure::of_dependency("http_429", "slow down: \"später\"").retry_after(Some(Duration::from_millis(1500)));
    failure.with_detail(json(r#"{ "seen" : 1.0 }"#))
}

fn opened() -> Opened {
    let args = CanonicalJson::parse(r#"{"order_id":9007199254740993,"note":"é\n","card":{"$redacted":"00"}}"#).unwrap();
    Opened {
        at: AT,
        tenant: Tenant::new("acme").unwrap(),
        caller: Caller::new("agent 7").unwrap(),
        tool: ToolName::new("bank/charge").unwrap(),
        fingerprint: args.fingerprint(),
        args,
        run: Some(RunId::new("run-1").unwrap()),
        step: Some(StepPath::new("pay/2").unwrap()),
        redacted: true,
        settles: true,
        lent: false,
        retain_ms: 86_400_000,
    }
}

fn claim(fence: u64) -> Entry {
    let worker = WorkerId::new("host-1:4711").unwrap();
    Entry::Claimed(Claim { at: AT, attempt: 1, fence: Fence(fence), worker, lease_until: AT + Duration::from_secs(30) })
}

fn answering() -> Entry {
    let Entry::Finished(finished) = finished(1, Ended::Done { success: Success::new(json("7")), undo: None, receipt: receipt(2) }) else {
        unreachable!()
    };
    let answers = Some(Answers { fingerprint: opened().fingerprint, until: AT + Duration::from_secs(86_400) });
    Entry::Finished(Finished { answers, ..finished })
}

fn finished(fence: u64, outcome: Ended) -> Entry {
    let ended = AT + Duration::from_micros(1_234);
    Entry::Finished(Finished { fence: Fence(fence), attempt: 1, started: AT, ended, outcome, answers: None })
}

fn late(outcome: LateOutcome) -> Entry {
    Entry::Late(Late { fence: Fence(1), at: AT, outcome, receipt: receipt(9) })
}

fn resolved(verdict: Verdict) -> Entry {
    Entry::Resolved { at: AT, by: "ada".into(), why: "looked at the bank".into(), verdict, receipt: receipt(9) }
}

fn changed() -> Success {
    let state = StateChanged {
        version: Some("7".into()),
        etag: Some("W/\"a1\"".into()),
        digest: Some(Digest32::of(b"what was written")),
        reference: Some("issues/12".into()),
    };
    Success { state_changed: state.known(), ..Success::new(json("{}")) }
}

fn records() -> Vec<(&'static str, Entry)> {
    let by = || "ada".to_owned();
    let why = || "because".to_owned();
    let bare = Opened { run: None, step: None, redacted: false, settles: false, ..opened() };
    let flags = vec![
        Flag::OutputSchemaViolated("\"id\" is missing".into()),
        Flag::Truncated { bytes: 2_000_000, sha256: Digest32::of(b"all of it") },
    ];
    let flagged = Success { flags: flags.clone(), ..Success::new(json("\"the first mebibyte\"")) };
    let done = |success, undo| finished(1, Ended::Done { success, undo, receipt: receipt(2) });
    let retry = |receipt| Ended::Retry { failure: full_failure(), not_before: AT + Duration::from_secs(5), receipt };
    let undo_finished = |failure| Entry::UndoFinished { at: AT, undo: call::undo_key(&key()), failure, receipt: receipt(9) };
    vec![
        ("opened", Entry::Opened(opened())),
        ("opened_bare", Entry::Opened(bare.clone())),
        ("opened_lent", Entry::Opened(Opened { lent: true, ..bare })),
        ("approval_asked", Entry::ApprovalAsked { at: AT, expires: AT + Duration::from_secs(60) }),
        ("approved", Entry::Approved { at: AT, by: by(), why: String::new() }),
        ("approved_why", Entry::Approved { at: AT, by: by(), why: "it is late".into() }),
        ("denied", Entry::Denied { at: AT, by: by(), why: why(), receipt: receipt(2) }),
        ("claimed", claim(1)),
        ("extended", Entry::Extended { fence: Fence(1), lease_until: AT }),
        ("released", Entry::Released { fence: Fence(1), at: AT, why: "circuit_open".into() }),
        ("finished_done", done(Success::new(json(r#"{ "id" : "ch_1", "n": 1.50e2 }"#)), undo())),
        ("finished_done_null", done(Success::new(json("null")), None)),
        ("finished_done_flagged", done(flagged, None)),
        ("finished_done_state_changed", done(changed(), None)),
        ("finished_done_answering", answering()),
        ("finished_failed", finished(1, Ended::Failed { failure: Failure::new("http_400", "no"), receipt: receipt(2) })),
        (
            "finished_failed_null_detail",
            finished(1, Ended::Failed { failure: full_failure().with_detail(json("null")), receipt: receipt(2) }),
        ),
        ("finished_retry", finished(1, retry(None))),
        ("finished_retry_exhausted", finished(1, retry(Some(receipt(2))))),
        ("finished_unknown", finished(1, Ended::Unknown { failure: full_failure(), not_before: AT, sent: None })),
        ("finished_unknown_sent", finished(1, Ended::Unknown { failure: full_failure(), not_before: AT, sent: Some(AT) })),
        ("lost", Entry::Lost { fence: Fence(1), at: AT, why: why() }),
        ("late_done", late(LateOutcome::Done { result: json("false"), flags: Vec::new(), state_changed: None, undo: undo() })),
        ("late_done_flagged", late(LateOutcome::Done { result: json("\"\""), flags, state_changed: None, undo: None })),
        (
            "late_done_state_changed",
            late(LateOutcome::Done { result: json("1"), flags: Vec::new(), state_changed: changed().state_changed, undo: None }),
        ),
        ("late_not_done", late(LateOutcome::NotDone(full_failure()))),
        ("late_unknown", late(LateOutcome::Unknown(Failure::new("panic", "handler")))),
        ("probed_happened", Entry::Probed { at: AT, answer: Probed::Happened { result: json("null"), undo: undo(), receipt: receipt(3) } }),
        ("probed_did_not_happen", Entry::Probed { at: AT, answer: Probed::DidNotHappen }),
        ("probed_cannot_tell", Entry::Probed { at: AT, answer: Probed::CannotTell("search is down".into()) }),
        ("resolved_happened", resolved(Verdict::Happened { result: json("0"), undo: None })),
        ("resolved_did_not_happen", resolved(Verdict::DidNotHappen)),
        ("resolved_gave_up", resolved(Verdict::GaveUp)),
        ("cancelled", Entry::Cancelled { at: AT, by: by(), why: why(), receipt: receipt(2) }),
        ("reopened", Entry::Reopened { at: AT, by: by(), why: why() }),
        ("undo_started", Entry::UndoStarted { at: AT, by: by(), why: String::new(), undo: call::undo_key(&key()) }),
        ("undo_started_why", Entry::UndoStarted { at: AT, by: by(), why: "the wrong one".into(), undo: call::undo_key(&key()) }),
        ("undo_finished", undo_finished(None)),
        ("undo_finished_failed", undo_finished(Some(full_failure()))),
        ("flushed", Entry::Flushed { at: AT, by: by(), why: why(), receipt: receipt(9) }),
    ]
}

fn switches() -> Vec<(&'static str, Switched)> {
    let switched = |mode| Switched { at: AT, by: "ada".into(), why: "because".into(), mode };
    vec![
        ("switched_enforce", switched(Some(Mode::Enforce))),
        ("switched_shadow", switched(Some(Mode::Shadow))),
        ("switched_off", switched(Some(Mode::Off))),
        ("switched_back", switched(None)),
    ]
}

fn breakers() -> Vec<(&'static str, Breaker)> {
    let policy = BreakerPolicy { consecutive: 2, ..BreakerPolicy::default() };
    let mut failing = Breaker::default();
    failing.count(&policy, Admission::Pass, Health::Good, AT);
    failing.count(&policy, Admission::Pass, Health::Bad, AT);
    let mut open = failing.clone();
    open.count(&policy, Admission::Pass, Health::Bad, AT);
    let mut forced = failing.clone();
    forced.force_open(AT, "maintenance".into());
    vec![("breaker_closed", Breaker::default()), ("breaker_failing", failing), ("breaker_open", open), ("breaker_forced", forced)]
}

/// Since when receipts say why: `why` is its digest, beside `by`.
fn chain(why: Option<&str>) -> String {
    let draft = |ending, run: Option<&str>, by: Option<&str>| Draft {
        id: receipt(ending),
        tenant: Tenant::new("acme").unwrap(),
        run: run.map(|run| RunId::new(run).unwrap()),
        effect: key(),
        attempt: 2,
        fence: Fence(3),
        tool: ToolName::new("bank/charge").unwrap(),
        spec: call::spec_hash(&ToolName::new("bank/charge").unwrap(), &CanonicalJson::empty_object()),
        outcome: "done",
        result: json("null").digest(),
        by: by.map(str::to_owned),
        why: by.and(why).map(|why| counterfoil_core::ids::Digest32::of(why.as_bytes())),
        started: AT,
        ended: AT + Duration::from_micros(1_234),
    };
    let (first, head) = ChainHead::default().seal(&draft(2, None, None).unsealed());
    let (second, _) = head.seal(&draft(4, Some("run-1"), Some("ada")).unsealed());
    receipt::body_of(&[first, second])
}

/// A whole life: asked, approved, lost, probed in vain, closed by a person, run again, done, undone.
fn life() -> Vec<Vec<Entry>> {
    let record = |name: &str| records().into_iter().find(|(n, _)| *n == name).expect(name).1;
    let done = Ended::Done { success: Success::new(json("{ }")), undo: undo(), receipt: receipt(9) };
    vec![
        vec![record("opened"), record("approval_asked")],
        vec![record("approved")],
        vec![claim(3)],
        vec![Entry::Extended { fence: Fence(3), lease_until: AT + Duration::from_secs(60) }],
        vec![Entry::Lost { fence: Fence(3), at: AT, why: "gone".into() }],
        vec![record("probed_cannot_tell")],
        vec![record("resolved_did_not_happen")],
        vec![claim(8)],
        vec![finished(8, done)],
        vec![Entry::Late(Late {
            fence: Fence(3),
            at: AT,
            outcome: LateOutcome::Unknown(Failure::new("reset", "?")),
            receipt: receipt(10),
        })],
        vec![record("undo_started")],
        vec![record("undo_finished")],
    ]
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.txt"))
}

/// The file's text without the newline that ends it.
fn golden(name: &str, written: &str) -> String {
    let path = path(name);
    if std::env::var("COUNTERFOIL_BLESS").is_ok_and(|v| v == "1") && !path.exists() {
        std::fs::write(&path, format!("{written}\n")).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}; see the head of this test", path.display()));
    text.strip_suffix('\n').expect("a text file ends with a newline").to_owned()
}

fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(name: &str, value: T) {
    let written = codec::encode(std::slice::from_ref(&value));
    let stored = golden(name, &written);
    let read: Vec<T> = codec::decode(&stored).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(codec::encode(&read), stored, "{name}: read and written again");
    assert_eq!(read, [value], "{name}: means something else than it did");
    assert_eq!(written, stored, "{name}: is written in another way");
    let newer = format!("2{}", codec::json_of(&stored).unwrap());
    assert_eq!(codec::decode::<T>(&newer), Err(CodecError::Version { found: Some('2') }), "{name}");
}

/// With everything that can be left out, without, and at its end.
fn tokens() -> [(&'static str, Token); 3] {
    let full = Token {
        id: TokenId([0x0f, 0x1e, 0x2d, 0x3c, 0x4b, 0x5a]),
        tenant: Tenant::new("acme").unwrap(),
        caller: Caller::new("agent 7").unwrap(),
        rights: Rights::up_to(Right::Operate),
        label: Some(Label::new("Büro").unwrap()),
        created: Change { at: AT, by: "ada".into(), why: "for the new office".into() },
        expires: Some(AT + Duration::from_secs(86_400)),
        revoked: None,
        rate: Some(Rate { count: 100, per: Duration::from_secs(60) }),
    };
    let created = Change { at: AT, by: "ada".into(), why: String::new() };
    let bare = Token { rights: Rights::up_to(Right::Call), label: None, created, expires: None, rate: None, ..full.clone() };
    let revoked = Change { at: AT + Duration::from_secs(1), by: "bob".into(), why: "leaked".into() };
    let revoked = Token { rights: Rights::up_to(Right::Admin), revoked: Some(revoked), ..bare.clone() };
    [("token", full), ("token_bare", bare), ("token_revoked", revoked)]
}

#[test]
fn every_entry_is_read_and_written_as_ever() {
    for (name, entry) in records() {
        check(name, entry);
    }
}

#[test]
fn breakers_modes_and_budgets_are_read_and_written_as_ever() {
    for (name, breaker) in breakers() {
        check(name, breaker);
    }
    for (name, switched) in switches() {
        check(name, switched);
    }
    check("spent", Spent { count: 3, cost: 12.5 });
    check("spent_nothing", Spent::default());
}

#[test]
fn requests_are_read_and_written_as_ever() {
    let request = |state| Request { at: AT, fingerprint: Digest32::of(b"payload"), state };
    let worker = WorkerId::new("host-1:4711").unwrap();
    check("request_pending", request(RequestState::Pending { worker, until: AT + Duration::from_secs(30) }));
    let bare = Stored { status: 200, content_type: "application/json".into(), location: None, body: "{\"a\":\"é\"}".into() };
    check(
        "request_answered",
        request(RequestState::Answered(Stored { status: 201, location: Some("/v1/tools/a".into()), ..bare.clone() })),
    );
    check("request_answered_bare", request(RequestState::Answered(bare)));
}

#[test]
fn tokens_are_read_and_written_as_ever() {
    for (name, token) in tokens() {
        check(name, token);
    }
}

#[test]
fn receipts_are_read_and_chained_as_ever() {
    // The hash is over the stored bytes: it is part of the format.
    let ever = [
        ("receipts", None, "1be63cd08c5d46cb407e0cd7075978afbc916edc528cf12b96d223226cf0f214"),
        ("receipts_said", Some("she asked the bank"), "aaa5695677a6af8c5f6b42fa4fdce4284e646f064c0aae690e95bc12991a1e20"),
    ];
    for (name, why, hash) in ever {
        let stored = golden(name, &chain(why));
        assert_eq!(stored, chain(why), "sealed in another way");
        let (head, receipts) = receipt::follow(ChainHead::default(), [stored.as_str()].into_iter()).unwrap();
        assert_eq!(receipt::head_of(&stored), Ok(head));
        let texts: Vec<String> = receipts.iter().map(|r| serde_json::to_string(r).unwrap()).collect();
        assert_eq!(receipt::body_of(&texts), stored, "read and written again");
        assert_eq!(head.hash.to_string(), hash, "{name}");
    }
}

#[test]
fn a_whole_life_folds_as_ever() {
    let written: Vec<String> = life().iter().map(|entries| codec::encode(entries)).collect();
    let stored = golden("life", &written.join("\n"));
    assert_eq!(written.join("\n"), stored, "written in another way");
    let mut effect = Effect::absent(key());
    let mut states = Vec::new();
    for body in stored.lines() {
        effect.apply_body(body).unwrap();
        states.push(effect.state.word());
    }
    let expected = "waiting_approval ready running running in_doubt in_doubt ready running done done undoing undone";
    assert_eq!(states.join(" "), expected);
    assert_eq!((effect.version, effect.fence, effect.late.len()), (12, Fence(8), 1));
    let State::Undone { done, .. } = &effect.state else { panic!("{:?}", effect.state) };
    assert_eq!(done.result.as_str(), "{ }", "byte for byte, the space too");
    let opened = effect.opened.clone().expect("opened");
    assert_eq!(opened.args.fingerprint(), opened.fingerprint);
}

#[test]
fn what_cannot_be_read_is_refused_and_named() {
    let mut effect = Effect::absent(key());
    let body = codec::encode(&[Entry::Opened(opened())]);
    effect.apply_body(&body).unwrap();
    let read = |body: &str| effect.clone().apply_body(body).unwrap_err();
    assert_eq!(read(&body.replacen('1', "2", 1)), FoldError::Codec { version: 2, source: CodecError::Version { found: Some('2') } });
    assert_eq!(read(""), FoldError::Codec { version: 2, source: CodecError::Version { found: None } });
    for torn in [r#"1[{"claimed":{"#, "1", r#"1[{"seized":{}}]"#, r#"1[{"lost":{"fence":1,"at":2}}]"#] {
        assert!(matches!(read(torn), FoldError::Codec { version: 2, source: CodecError::Malformed(_) }), "{torn}");
    }
}

/// Every file is somebody's: one that no test reads protects nothing.
#[test]
fn no_golden_file_is_forgotten() {
    let mut known: BTreeSet<String> = records().into_iter().map(|(name, _)| name.to_owned()).collect();
    known.extend(breakers().into_iter().map(|(name, _)| name.to_owned()));
    known.extend(
        ["spent", "spent_nothing", "receipts", "receipts_said", "life", "request_pending", "request_answered", "request_answered_bare"]
            .map(str::to_owned),
    );
    known.extend(tokens().into_iter().map(|(name, _)| name.to_owned()));
    known.extend(switches().into_iter().map(|(name, _)| name.to_owned()));
    let files = std::fs::read_dir(path("x").parent().unwrap()).unwrap().map(|f| f.unwrap().path());
    let found: BTreeSet<String> = files.map(|f| f.file_stem().unwrap().to_string_lossy().into_owned()).collect();
    assert_eq!(found, known);
}
