//! G, H, L and the workflow items of D and F: runs by the command line, against a world in a process of its own.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::lab::{EXIT_CANCELLED, EXIT_DONE, EXIT_FAILED, EXIT_PENDING, EXIT_REFUSED, EXIT_USAGE, Lab, Run, World};
use crate::parts::Process;

const TOOLS: [&str; 6] = ["book_flight", "cancel_flight", "book_hotel", "cancel_hotel", "charge", "refund"];

const TRIP: &str = r#"
workflow: book-trip
input: { type: object, required: [customer] }
steps:
  - id: flight
    tool: book_flight
    args: { customer: "${input.customer}" }
    undo: { tool: cancel_flight, args: { booking: "${result}" } }
  - id: hotel
    tool: book_hotel
    args: { nights: 3 }
    undo: { tool: cancel_hotel, args: { booking: "${result}" } }
  - id: pay
    tool: charge
    args: { order_id: "${run.id}" }
    undo: { tool: refund, args: { charge: "${result}" } }
output: { flight: "${steps.flight.result}" }
"#;

fn lab() -> Lab {
    let tools: String = TOOLS
        .iter()
        .map(|name| {
            format!(
                r#"  {name}:
    http: {{ method: POST, url: "WORLD/{name}", json: "${{args}}", result: response.json }}
    timeout: 10s
    retry: {{ attempts: 3, first: 1ms, max: 5ms }}
    probe:
      http: {{ url: "WORLD/find?key=${{key}}" }}
      happened: "size(response.json.data) > 0"
      result: "response.json.data[0]"
      settle_after: 0s
"#
            )
        })
        .collect();
    let lab = Lab::new(&format!("tools:\n{tools}"));
    lab.write("trip.yaml", TRIP);
    lab
}

fn acted(world: &World) -> [u64; 6] {
    TOOLS.map(|tool| world.acted(&format!("/{tool}")))
}

const GO: [&str; 6] = ["run", "trip.yaml", "--run", "t", "--input", r#"{"customer":"ada"}"#];

fn begin(lab: &Lab, args: &[&str]) -> Process {
    Process::spawn(lab.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()))
}

#[test]
fn a_run_goes_to_its_end_and_asked_for_again_it_is_the_same() {
    let lab = lab();
    let first = lab.json(&GO);
    assert_eq!((first.code, first.at("/state")), (EXIT_DONE, json!("completed")), "{first:?}");
    assert_eq!(lab.json(&GO).at("/output"), first.at("/output"));
    assert_eq!(acted(&lab.world), [1, 0, 1, 0, 1, 0]);
    let shown = lab.run(&["runs", "show", "t"]);
    assert!(shown.stdout.contains("└─ pay") && shown.stdout.contains("side_effect_committed"), "{}", shown.stdout);
    let receipts = lab.json(&["receipts", "list", "--run", "t"]);
    assert_eq!(receipts.value().as_array().map(Vec::len), Some(3), "{receipts:?}");
}

#[test]
fn a_59_a_62_what_was_done_is_undone_newest_first_and_one_that_fails_does_not_stop_the_rest() {
    let lab = lab();
    lab.world.then("/charge", json!({ "status": 402, "act": false }));
    lab.world.then("/cancel_hotel", json!({ "status": 400, "act": false }));
    let run = lab.json(&GO);
    assert_eq!((run.code, run.at("/state")), (EXIT_FAILED, json!("compensation_failed")), "{run:?}");
    assert_eq!(acted(&lab.world), [1, 1, 1, 0, 0, 0]);
    assert_eq!(run.at("/compensations/0/step"), "hotel");
    assert_eq!(run.at("/compensations/0/error/code"), "http_400");
    lab.world.then("/cancel_hotel", json!({}));
    let again = lab.json(&["runs", "undo", "t", "--by", "ada", "--why", "the hotel is back"]);
    assert_eq!(again.at("/state"), "compensated", "{again:?}");
    assert_eq!(acted(&lab.world), [1, 1, 1, 1, 0, 0]);
}

/// SIGKILL at every boundary between two appends: nothing is written after it, because the ledger is shut there.
#[test]
fn a_41_a_64_death_at_every_append_of_the_trip() {
    for refused in [false, true] {
        let (mut tried, mut last) = (0, None);
        for records in 0.. {
            let lab = lab();
            if refused {
                lab.world.then("/charge", json!({ "status": 402, "act": false }));
            }
            let killed = kill_at(&lab, records);
            // Records that are written together have no boundary between them.
            if killed.is_some() && killed == last {
                continue;
            }
            let ended = lab.json(&GO);
            let expected = if refused { ("compensated", [1, 1, 1, 1, 0, 0]) } else { ("completed", [1, 0, 1, 0, 1, 0]) };
            assert_eq!((ended.at("/state").as_str().unwrap_or_default(), acted(&lab.world)), expected, "killed at {killed:?}: {ended:?}");
            if killed.is_none() {
                break;
            }
            (tried, last) = (tried + 1, killed);
        }
        assert!(tried >= 5, "only {tried} boundaries were tried");
    }
}

/// Runs the trip in a process that is killed when the ledger can take no more records than these, and gives how many it has then. `None`: it ended before.
fn kill_at(lab: &Lab, records: u64) -> Option<i64> {
    // So that it can be shut.
    lab.make_ledger();
    let conn = rusqlite::Connection::open(lab.ledger()).unwrap();
    conn.busy_timeout(Duration::from_secs(10)).unwrap();
    let shut = format!(
        "CREATE TRIGGER shut BEFORE INSERT ON record WHEN (SELECT count(*) FROM record) >= {records} BEGIN SELECT RAISE(ABORT, 'shut'); END"
    );
    conn.execute_batch(&shut).unwrap();
    let mut process = begin(lab, &[&GO[..], &["--json"]].concat());
    let (mut seen, mut since) = (-1, Instant::now());
    let killed = loop {
        let count: i64 = conn.query_row("SELECT count(*) FROM record", [], |row| row.get(0)).unwrap();
        let ended = process.child.try_wait().unwrap();
        if ended.is_some_and(|status| status.success() || status.code() == Some(EXIT_FAILED)) {
            break None;
        }
        if count != seen {
            (seen, since) = (count, Instant::now());
        }
        // It stands before the shut ledger: whatever it could do without another record, it has done.
        if ended.is_some() || since.elapsed() > Duration::from_millis(300) {
            break Some(count);
        }
        std::thread::yield_now();
    };
    process.kill();
    conn.execute_batch("DROP TRIGGER shut").unwrap();
    killed
}

#[test]
fn a_run_that_is_killed_in_the_middle_of_a_step_does_not_repeat_it() {
    let lab = lab();
    lab.world.rules("/book_hotel", json!({ "next": [{ "after": true, "dedupe": true }], "then": { "dedupe": true } }));
    let mut process = begin(&lab, &GO);
    lab.world.wait_holding("/book_hotel", 1);
    process.kill();
    lab.world.release("/book_hotel");
    let ended = lab.json(&["runs", "resume", "t"]);
    assert_eq!((ended.code, acted(&lab.world)), (EXIT_DONE, [1, 0, 1, 0, 1, 0]), "{ended:?}");
}

#[test]
fn a_signal_lets_the_step_end_and_begins_no_other() {
    for signal in [Signal::INT, Signal::TERM] {
        let lab = lab();
        lab.world.then("/book_hotel", json!({ "after": true }));
        let mut process = begin(&lab, &GO);
        lab.world.wait_holding("/book_hotel", 1);
        process.signal(signal);
        let mut told = BufReader::new(process.child.stderr.as_mut().expect("a pipe")).lines().map(|line| line.expect("text"));
        assert!(told.any(|line| line.starts_with("finishing the steps that are under way")));
        lab.world.release("/book_hotel");
        let rest: Vec<String> = told.collect();
        assert!(rest.iter().any(|line| line == "stopped here; nothing is lost; go on with it: counterfoil runs resume t"), "{rest:?}");
        assert_eq!(Run::ended(process).code, EXIT_PENDING);
        assert_eq!((acted(&lab.world), lab.listed("in_doubt").len()), ([1, 0, 1, 0, 0, 0], 0));
        let ended = lab.json(&["runs", "resume", "t"]);
        assert_eq!((ended.code, acted(&lab.world)), (EXIT_DONE, [1, 0, 1, 0, 1, 0]), "{ended:?}");
    }
}

#[test]
fn a_second_signal_quits_and_the_run_can_be_resumed() {
    let lab = lab();
    lab.world.then("/book_hotel", json!({ "before": true }));
    let mut process = begin(&lab, &GO);
    lab.world.wait_holding("/book_hotel", 1);
    process.signal(Signal::INT);
    let mut told = BufReader::new(process.child.stderr.as_mut().expect("a pipe")).lines().map(|line| line.expect("text"));
    assert!(told.any(|line| line.starts_with("finishing the steps that are under way")));
    process.signal(Signal::INT);
    assert_eq!(Run::ended(process).code, 130);
    lab.world.drop_held("/book_hotel");
    lab.world.then("/book_hotel", json!({}));
    let ended = lab.json(&["runs", "resume", "t"]);
    assert_eq!((ended.code, acted(&lab.world)), (EXIT_DONE, [1, 0, 1, 0, 1, 0]), "{ended:?}");
}

#[test]
fn a_58_another_definition_under_a_run_is_refused_and_both_are_named() {
    let lab = lab();
    lab.json(&GO);
    let digest = lab.json(&["runs", "show", "t"]).text("/definition");
    lab.write("trip.yaml", &TRIP.replace("nights: 3", "nights: 4"));
    let changed = lab.json(&GO).error(EXIT_REFUSED, "definition_diverged");
    assert!(changed.text("/error/message").contains(&digest), "{changed:?}");
    assert_eq!(acted(&lab.world), [1, 0, 1, 0, 1, 0]);
}

#[test]
fn a_72_a_75_cancelling_from_another_process_stops_what_runs_and_undoes_what_was_done() {
    let lab = lab();
    lab.world.then("/book_hotel", json!({ "before": true, "act": false, "status": 400 }));
    let process = begin(&lab, &[&GO[..], &["--json"]].concat());
    lab.world.wait_holding("/book_hotel", 1);
    let asked = lab.json(&["runs", "cancel", "t", "--undo", "--by", "ada", "--detach"]);
    assert_eq!(asked.code, EXIT_PENDING, "{asked:?}");
    lab.world.release("/book_hotel");
    let ended = Run::ended(process);
    assert_eq!((ended.code, ended.at("/state")), (EXIT_CANCELLED, json!("compensated")), "{ended:?}");
    assert_eq!(acted(&lab.world), [1, 1, 0, 0, 0, 0]);
    let twice = lab.json(&["runs", "cancel", "t"]);
    assert_eq!((twice.code, twice.at("/state")), (EXIT_CANCELLED, json!("compensated")), "{twice:?}");
    lab.json(&["runs", "cancel", "nobody"]).error(EXIT_REFUSED, "run_not_found");
}

#[test]
fn a_107_a_108_signals_and_approvals_reach_a_run_that_waits_elsewhere() {
    let lab = lab();
    lab.write(
        "asks.yaml",
        r#"
workflow: asks
steps:
  - { id: boss, wait: { approval: "Pay?", timeout: 1h } }
  - { id: paid, wait: { signal: payment, correlation: "${run.id}" } }
  - { id: pay, tool: charge, args: { by: "${steps.paid.result}" } }
"#,
    );
    let process = begin(&lab, &["run", "asks.yaml", "--run", "a", "--json"]);
    until(|| lab.json(&["runs", "show", "a"]).at("/state") == "waiting");
    assert_eq!(acted(&lab.world), [0; 6]);
    lab.json(&["runs", "approve", "a", "boss", "--by", "ada", "--detach"]);
    until(|| lab.json(&["runs", "show", "a"]).at("/steps/0/status") == "done");
    lab.json(&["runs", "deny", "a", "boss", "--detach"]).error(EXIT_REFUSED, "wrong_state");
    let signal = ["runs", "signal", "a", "payment", "--payload", "\"card\"", "--id", "1", "--detach", "--correlation"];
    lab.json(&[&signal[..], &["other"]].concat()).error(EXIT_USAGE, "invalid_signal");
    lab.json(&[&signal[..], &["a"]].concat());
    lab.json(&[&signal[..], &["a"]].concat());
    let ended = Run::ended(process);
    assert_eq!((ended.code, acted(&lab.world)), (EXIT_DONE, [0, 0, 0, 0, 1, 0]), "{ended:?}");
    assert_eq!(lab.json(&[&signal[..], &["a"]].concat()).code, EXIT_DONE, "also after the run moved on");
}

#[test]
fn mistakes_are_told_all_at_once_with_their_lines_and_nothing_runs() {
    let lab = lab();
    lab.write(
        "bad.yaml",
        "workflow: bad\nsteps:\n  - { id: a, tool: charge, needs: [b] }\n  - { id: b, tool: charge, args: { x: \"${steps.c.result}\" } }\n",
    );
    let checked = lab.run(&["workflows", "check", "bad.yaml"]);
    assert_eq!(checked.code, EXIT_USAGE, "{checked:?}");
    let run = lab.run(&["run", "bad.yaml"]);
    assert_eq!(run.code, EXIT_USAGE, "{run:?}");
    assert!(checked.stderr.contains("bad.yaml:3:") && checked.stderr.contains("waits for itself"), "{}", checked.stderr);
    lab.write("unknown.yaml", "workflow: u\nsteps:\n  - { id: a, tool: chargr }\n");
    let unknown = lab.json(&["run", "unknown.yaml"]).error(EXIT_REFUSED, "unknown_tool");
    assert!(unknown.text("/error/message").contains("did you mean charge?"), "{unknown:?}");
    lab.json(&["run", "trip.yaml", "--input", "{}"]).error(EXIT_USAGE, "invalid_input");
    lab.json(&["run", "trip.yaml", "--input", "{"]).error(EXIT_USAGE, "invalid_input");
    lab.json(&["run", "nowhere.yaml"]).error(EXIT_USAGE, "unknown_workflow");
    assert_eq!(acted(&lab.world), [0; 6]);
    assert_eq!(lab.json(&["runs", "list"]).value()["runs"], json!([]));
}

/// The examples as they stand, from a copy of their folder; their world is a file.
#[test]
fn the_examples_run_as_they_stand() {
    let dir = tempfile::tempdir().unwrap();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/workflows");
    for file in std::fs::read_dir(examples).unwrap().flatten().filter(|file| file.path().is_file()) {
        std::fs::copy(file.path(), dir.path().join(file.file_name())).unwrap();
    }
    let run = |args: &[&str]| Run::of(crate::lab::command(dir.path(), args).output().unwrap());
    let world = || {
        let log = std::fs::read_to_string(dir.path().join("world.log")).unwrap_or_default();
        let mut tools: Vec<String> = log.lines().filter_map(|line| line.split(' ').next().map(str::to_owned)).collect();
        std::fs::remove_file(dir.path().join("world.log")).unwrap();
        tools.dedup();
        tools.join(" ")
    };
    let trip = ["run", "trip.yaml", "--json", "--input", r#"{"customer":"ada","from":"BER","to":"LIS","nights":3}"#];
    let ended = run(&trip);
    assert_eq!((ended.code, world().as_str()), (EXIT_DONE, "book_flight book_hotel charge_card send_mail"), "{ended:?}");
    std::fs::write(dir.path().join("refuse-charge_card"), "").unwrap();
    let undone = run(&trip);
    assert_eq!((undone.code, undone.at("/state")), (EXIT_FAILED, json!("compensated")), "{undone:?}");
    assert_eq!(world(), "book_flight book_hotel cancel_hotel cancel_flight");
    std::fs::remove_file(dir.path().join("refuse-charge_card")).unwrap();
    let pipeline = run(&["run", "pipeline.yaml", "--json", "--input", r#"{"name":"a.txt","text":"hello","to":"bob"}"#]);
    assert_eq!((pipeline.code, world().as_str()), (EXIT_DONE, "process_file upload_file send_mail"), "{pipeline:?}");
    assert_eq!(std::fs::read_to_string(dir.path().join("files/a.txt")).unwrap(), "hello");
    let items: Vec<_> = (0..100).map(|n| json!({ "name": format!("item {n}") })).collect();
    let input = json!({ "owner": "eve", "items": items }).to_string();
    let fanout = run(&["run", "fanout.yaml", "--json", "--run", "f", "--input", &input]);
    assert_eq!(fanout.value()["output"]["items"].as_array().map(Vec::len), Some(100), "{fanout:?}");
    assert_eq!(world(), "make_item send_mail");
    let asked =
        ["run", "approval.yaml", "--json", "--run", "a", "--detach", "--input", r#"{"invoice":"i","cents":5,"payee":"p","clerk":"c"}"#];
    assert_eq!(run(&asked).code, EXIT_DONE);
    // Nobody is at it yet: the first answer that is given drives it as far as it waits, the second to its end.
    let early = run(&["runs", "approve", "a", "ask", "--json"]);
    assert_eq!(early.code, EXIT_REFUSED, "it does not wait yet: {early:?}");
    let mut waiting =
        Process::spawn(crate::lab::command(dir.path(), &["runs", "resume", "a", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()));
    until(|| run(&["runs", "show", "a", "--json"]).at("/state") == "waiting");
    let approved = run(&["runs", "approve", "a", "ask", "--json", "--detach"]);
    assert_eq!(approved.code, EXIT_PENDING, "{approved:?}");
    assert!(waiting.child.wait().unwrap().success());
    assert_eq!(world(), "charge_card send_mail");
}

#[test]
fn a_rust_function_that_kills_its_own_process_ends_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    // Fresh, where the tests were built all together.
    let built = std::process::Command::new(env!("CARGO")).args(["build", "-q", "-p", "counterfoil", "--example", "durable_trip"]).status();
    assert!(built.is_ok_and(|status| status.success()));
    let example = std::env::current_exe().unwrap().parent().and_then(Path::parent).unwrap().join("examples/durable_trip");
    let said = Run::of(std::process::Command::new(example).arg(dir.path()).output().expect("the example was built"));
    assert_eq!(said.code, 0, "{said:?}");
    let world = std::fs::read_to_string(dir.path().join("world.log")).unwrap();
    let tools: Vec<&str> = world.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(tools, ["book_flight", "book_hotel", "charge"]);
    assert_eq!(said.stdout.matches("signal: 6").count(), 2, "{said:?}");
}

/// Looks until it is so.
pub fn until(so: impl Fn() -> bool) {
    let started = Instant::now();
    while !so() {
        assert!(started.elapsed() < Duration::from_secs(30), "it never came to that");
        std::thread::yield_now();
    }
}
