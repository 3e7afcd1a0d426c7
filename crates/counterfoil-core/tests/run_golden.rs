//! Golden records of runs: what was ever written can be read, and is written the same way again. See `golden.rs` for what a changed file means.
//!
//! `tests/golden_runs/entries.txt` holds every entry of a run, one record per line; its first word is the entry's name.

use std::path::PathBuf;

use counterfoil_core::codec;
use counterfoil_core::ids::Digest32;
use counterfoil_core::run::confirm::{Check, Confirmed, Finding, Occasion, OnDrift};
use counterfoil_core::run::entry::{Awaited, Began, By, Forked, Parent, RunEnd, RunEntry, Signalled, Started, StepEnd, Undone};
use counterfoil_core::run::schedule::{Became, CatchUp, Overlap, ScheduleEntry, Standing, Terms, Ticked, is_schedule};
use counterfoil_core::run::{Schedule, is_run, word};
use counterfoil_core::{CanonicalJson, Failure, Fence, Json, Timestamp};

const AT: Timestamp = Timestamp(1_700_000_000_123_456);

fn name<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

fn started(by: By, full: bool) -> Started {
    Started {
        at: AT,
        tenant: name("acme"),
        run: name("order-7"),
        caller: name("agent 7"),
        workflow: name("book-trip"),
        by,
        definition: Digest32::of(b"golden"),
        input: CanonicalJson::parse(r#"{"customer":"ada"}"#).unwrap(),
        parent: full.then(|| Parent { run: name("parent"), step: name("each[3].trip"), depth: 2 }),
        forked: full.then(|| Forked { run: name("order-6"), at: name("pay"), by: "ada".into(), why: "again".into() }),
        tools: full.then(|| vec![name("charge_card")]),
        deadline: full.then_some(Timestamp(AT.0 + 60_000_000)),
        lease_ms: full.then_some(60_000),
        retain_ms: 2_592_000_000,
    }
}

fn began(what: Began) -> RunEntry {
    RunEntry::StepBegan { at: AT, step: name("flight"), what }
}

fn ended(how: StepEnd) -> RunEntry {
    RunEntry::StepEnded { at: AT, step: name("each[3].flight"), how }
}

fn checks() -> Vec<Check> {
    let found = [
        (OnDrift::Strict, Finding::Verified),
        (OnDrift::Warn, Finding::Drifted { expected: "ETag \"1\"".into(), found: "gone".into() }),
        (OnDrift::Human, Finding::Unavailable { why: "503".into() }),
        (OnDrift::Strict, Finding::Unverified { why: "its tool has no verifier".into() }),
        (OnDrift::Strict, Finding::InDoubt),
    ];
    let check = |(mode, finding)| Check { step: name("flight"), effect: Digest32::of(b"key"), tool: name("book_flight"), mode, finding };
    found.map(check).into()
}

fn entries() -> Vec<RunEntry> {
    let failure = || Failure::new("http_402", "no: \"später\"");
    let signal = |correlation: Option<&str>| Signalled {
        at: AT,
        id: "s-1".into(),
        name: "payment".into(),
        correlation: correlation.map(Into::into),
        payload: json(r#"{ "cents" : 1.0 }"#),
        by: "bank".into(),
    };
    let triggered = |scope: Option<&str>| RunEntry::CompensationTriggered {
        at: AT,
        scope: scope.map(name),
        by: "the run".into(),
        why: "it failed".into(),
        of: vec![name("hotel"), name("flight")],
    };
    let dealt = |how| RunEntry::CompensationCompleted { at: AT, step: name("hotel"), how };
    vec![
        RunEntry::RunStarted(Box::new(started(By::Plan, false))),
        RunEntry::RunStarted(Box::new(started(By::Plan, true))),
        RunEntry::RunStarted(Box::new(started(By::Function, false))),
        RunEntry::RunStarted(Box::new(started(By::Client, false))),
        RunEntry::Owned { at: AT, worker: name("w-1"), fence: Fence(2), lease_until: Timestamp(AT.0 + 30_000_000) },
        RunEntry::Parked { at: AT, due: None, unconfirmed: false },
        RunEntry::Parked { at: AT, due: Some(AT), unconfirmed: false },
        RunEntry::Parked { at: AT, due: Some(AT), unconfirmed: true },
        began(Began::Effect { tool: name("book_flight"), key: Digest32::of(b"key"), pure: false }),
        began(Began::Effect { tool: name("today"), key: Digest32::of(b"key"), pure: true }),
        began(Began::Sleep { until: AT }),
        began(Began::Wait { on: Awaited::Signal { name: "payment".into(), correlation: Some("order-7".into()) }, until: Some(AT) }),
        began(Began::Wait { on: Awaited::Signal { name: "payment".into(), correlation: None }, until: None }),
        began(Began::Wait { on: Awaited::Approval { message: "Pay?".into() }, until: None }),
        began(Began::Map { items: vec![json("1.0"), json(r#"{ "b" : [ ] }"#)] }),
        began(Began::Child { run: name("order-7/trip") }),
        ended(StepEnd::Done { result: json(r#"{ "id" : 1.0 }"#), way: None, undo: true }),
        ended(StepEnd::Done { result: json("null"), way: Some(1), undo: false }),
        ended(StepEnd::Failed { failure: failure(), doubt: false }),
        ended(StepEnd::Failed { failure: failure(), doubt: true }),
        ended(StepEnd::Cancelled { doubt: false }),
        ended(StepEnd::Cancelled { doubt: true }),
        RunEntry::TimedOut { at: AT, step: None },
        RunEntry::TimedOut { at: AT, step: Some(name("flight")) },
        RunEntry::Signalled(signal(Some("order-7"))),
        RunEntry::Signalled(signal(None)),
        RunEntry::CancelAsked { at: AT, by: "ada".into(), why: "enough".into(), step: None, undo: true },
        RunEntry::CancelAsked { at: AT, by: "ada".into(), why: "enough".into(), step: Some(name("tell")), undo: false },
        RunEntry::FinishAsked { at: AT, how: RunEnd::Completed { output: json("[1.0]") } },
        RunEntry::Stirred { at: AT, resumed: false },
        RunEntry::Stirred { at: AT, resumed: true },
        RunEntry::Confirmed(Confirmed::of(AT, Occasion::TakenOver, Vec::new())),
        RunEntry::Confirmed(Confirmed::of(AT, Occasion::Resumed, checks())),
        RunEntry::Confirmed(Confirmed::of(AT, Occasion::PickedUp, checks().drain(..1).collect())),
        RunEntry::ConfirmDecided { at: AT, by: "ada".into(), why: "it was meant".into(), accepted: true },
        RunEntry::ConfirmDecided { at: AT, by: "ada".into(), why: String::new(), accepted: false },
        triggered(None),
        triggered(Some("try")),
        dealt(Undone::Undone),
        dealt(Undone::NothingToUndo),
        dealt(Undone::Skipped { by: "ada".into(), why: "by hand".into() }),
        RunEntry::CompensationFailed { at: AT, step: name("hotel"), failure: failure() },
        RunEntry::RunEnded { at: AT, how: RunEnd::Completed { output: json("{ }") } },
        RunEntry::RunEnded { at: AT, how: RunEnd::Failed { failure: failure() } },
        RunEntry::RunEnded { at: AT, how: RunEnd::Cancelled },
    ]
}

#[test]
fn every_entry_of_a_run_is_read_and_written_as_ever() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden_runs/entries.txt");
    let written: String =
        entries().iter().map(|entry| format!("{} {}\n", word(entry), codec::encode(std::slice::from_ref(entry)))).collect();
    if std::env::var("COUNTERFOIL_BLESS").is_ok_and(|v| v == "1") && !path.exists() {
        std::fs::write(&path, &written).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}; see golden.rs", path.display()));
    assert_eq!(written, stored, "an entry is written in another way");
    for (line, entry) in stored.lines().zip(entries()) {
        let (name, body) = line.split_once(' ').unwrap();
        assert_eq!(codec::decode::<RunEntry>(body).unwrap(), [entry], "{name}");
        assert!(is_run(body), "{name} is known as a run's");
        assert!(codec::json_of(body).unwrap().starts_with(&format!("[{{\"{name}\"")), "{name} is stored under its name");
    }
}

fn schedules() -> Vec<Schedule> {
    let run: counterfoil_core::RunId = name("nightly@2023-11-14T22:10:00Z");
    let whats = [
        None,
        Some(Became::Started { run: run.clone() }),
        Some(Became::Skipped { why: "the run x has not ended".into() }),
        Some(Became::Refused { code: "invalid_input".into(), message: "no: \"später\"".into() }),
    ];
    let standings =
        [Standing::Active, Standing::Active, Standing::Paused { why: "holidays".into() }, Standing::Removed { why: String::new() }];
    let each = whats.into_iter().zip(standings).enumerate();
    each.map(|(n, (what, standing))| Schedule {
        tenant: name("acme"),
        schedule: name("nightly"),
        terms: Terms {
            workflow: name("report"),
            cron: "*/10 * * * *".into(),
            zone: "Europe/Berlin".into(),
            input: CanonicalJson::parse(r#"{"day":"${schedule.tick}"}"#).unwrap(),
            catch_up: CatchUp::ALL[n % 3],
            within_ms: (n == 1).then_some(60_000),
            overlap: Overlap::ALL[n % 3],
        },
        standing,
        at: AT,
        by: "ada".into(),
        next: (n < 3).then_some(Timestamp(AT.0 + 60_000_000)),
        last: what.map(|what| Ticked { tick: AT, at: AT, what, missed_from: (n == 2).then_some(Timestamp(AT.0 - 60_000_000)) }),
        last_run: (n > 0).then(|| run.clone()),
        runs: n as u64,
    })
    .collect()
}

#[test]
fn every_schedule_is_read_and_written_as_ever() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden_runs/schedules.txt");
    let entries: Vec<ScheduleEntry> = schedules().into_iter().map(|schedule| ScheduleEntry::Schedule(Box::new(schedule))).collect();
    let written: String = entries.iter().map(|entry| codec::encode(std::slice::from_ref(entry)) + "\n").collect();
    if std::env::var("COUNTERFOIL_BLESS").is_ok_and(|v| v == "1") && !path.exists() {
        std::fs::write(&path, &written).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}; see golden.rs", path.display()));
    assert_eq!(written, stored, "a schedule is written in another way");
    for (body, entry) in stored.lines().zip(entries) {
        assert_eq!(codec::decode::<ScheduleEntry>(body).unwrap(), [entry]);
        assert!(is_schedule(body) && !is_run(body));
    }
}

/// No entry of an effect may be taken for a run's.
#[test]
fn no_record_of_an_effect_is_taken_for_a_runs() {
    for file in std::fs::read_dir(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")).unwrap().flatten() {
        let text = std::fs::read_to_string(file.path()).unwrap();
        assert!(text.lines().all(|line| !is_run(line) && !is_schedule(line)), "{:?}", file.path());
    }
}
