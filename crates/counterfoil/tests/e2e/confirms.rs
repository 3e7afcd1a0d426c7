//! F: a run that is killed and resumed, in a world that was changed meanwhile. What the world counted is what was done; questions are counted apart.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::lab::{EXIT_DONE, EXIT_DRIFTED, EXIT_FAILED, EXIT_IN_DOUBT, EXIT_PENDING, EXIT_REFUSED, Lab, Run};
use crate::parts::Process;
use crate::runs::until;

/// Two things are made at a provider and one file is written; then something is held, which is where runs are killed here.
const WORK: &str = r#"
workflow: work
CONFIRM
steps:
  - { id: flight, tool: book_flight, args: { who: ada }, undo: { tool: cancel_flight, args: { id: "${result.id}" } } }
  - { id: hotel, tool: book_hotel, args: { nights: 3 }, undo: { tool: cancel_hotel, args: { id: "${result.id}" } } }
  - { id: note, tool: write_note, args: { text: "booked ${steps.flight.result.id}" } }
  - { id: pay, tool: charge, args: { for: "${steps.hotel.result.id}" } }
output: { flight: "${steps.flight.result.id}" }
"#;

const TOOLS: [&str; 5] = ["book_flight", "cancel_flight", "book_hotel", "cancel_hotel", "charge"];

/// `confirm`: of the workflow, as it is written.
fn lab(confirm: &str) -> Lab {
    let tool = |name: &str, verify: &str| {
        format!(
            r#"  {name}:
    http: {{ method: POST, url: "WORLD/{name}", json: "${{args}}", result: response.json }}
    timeout: 10s
    probe: {{ http: {{ url: "WORLD/find?key=${{key}}" }}, happened: "size(response.json.data) > 0", result: "response.json.data[0]", settle_after: 0s }}
{verify}"#
        )
    };
    let config = [
        tool("book_flight", "    verify: { http: { url: \"WORLD/flights/${result.id}\" }, etag: true, ref: result.id }\n"),
        tool("book_hotel", "    verify: { http: { url: \"WORLD/hotel\" }, holds: \"response.json.status == 'booked'\", timeout: 2s }\n"),
        tool("cancel_flight", ""),
        tool("cancel_hotel", ""),
        tool("charge", ""),
        "  write_note: { file: { root: notes, write: { path: note.txt, content: \"${args.text}\" } } }\n".to_owned(),
    ];
    let config = format!("tools:\n{}", config.concat());
    let lab = Lab::new("tools: {}");
    std::fs::create_dir(lab.path("notes")).unwrap();
    lab.config(&config);
    lab.write("work.yaml", &WORK.replace("CONFIRM", confirm));
    lab.world.then("/book_flight", json!({ "headers": { "etag": "\"v1\"" } }));
    lab.world.then("/flights/e-1", json!({ "act": false, "headers": { "etag": "\"v1\"" }, "body": "{}" }));
    lab.world.then("/hotel", json!({ "act": false, "body": "{\"status\":\"booked\"}" }));
    lab
}

/// What was done to the world, by tool.
fn acted(lab: &Lab) -> [u64; 5] {
    TOOLS.map(|tool| lab.world.acted(&format!("/{tool}")))
}

/// How often the world was asked: for the flight, and for the hotel.
fn asked(lab: &Lab) -> (u64, u64) {
    (lab.world.seen("/flights/e-1").arrived, lab.world.seen("/hotel").arrived)
}

/// Runs it as far as the payment, which is sent and not answered, and kills it there. The payment did not happen.
fn killed(lab: &Lab) {
    lab.world.then("/charge", json!({ "before": true }));
    let mut process = begin(lab, &["run", "work.yaml", "--run", "w"]);
    lab.world.wait_holding("/charge", 1);
    process.kill();
    lab.world.drop_held("/charge");
    lab.world.then("/charge", json!({}));
    assert_eq!((acted(lab), asked(lab)), ([1, 0, 1, 0, 0], (0, 0)), "a run that goes its way asks nothing");
}

fn begin(lab: &Lab, args: &[&str]) -> Process {
    Process::spawn(lab.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()))
}

fn finding<'a>(view: &'a Value, step: &str) -> &'a Value {
    view["checks"].as_array().unwrap().iter().find(|check| check["step"] == step).unwrap_or(&Value::Null)
}

fn entries(lab: &Lab, word: &str) -> Vec<Value> {
    let shown = lab.json(&["runs", "show", "w", "--entries"]).value();
    shown.as_array().unwrap().iter().filter_map(|line| line["entry"].get(word).cloned()).collect()
}

#[test]
fn a_49_a_55_what_still_agrees_is_injected_and_the_run_goes_on() {
    let lab = lab("");
    killed(&lab);
    let ended = lab.json(&["runs", "resume", "w"]);
    assert_eq!((ended.code, ended.at("/state"), ended.at("/output/flight")), (EXIT_DONE, json!("completed"), json!("e-1")), "{ended:?}");
    assert_eq!((acted(&lab), asked(&lab)), ([1, 0, 1, 0, 1], (1, 1)), "0 new calls, each asked once");
    let confirmed = ended.at("/confirmation");
    assert_eq!(
        (&confirmed["judgement"], &confirmed["occasion"], &confirmed["verified"]),
        (&json!("agrees"), &json!("taken_over"), &json!(3))
    );
    assert_eq!(finding(&confirmed, "pay")["finding"], "in_doubt", "{confirmed}");
    assert_eq!(entries(&lab, "confirmed").len(), 1);

    // Long after it ended: dry, for the whole run, and nothing is recorded.
    let before = lab.json(&["runs", "show", "w", "--entries"]).stdout;
    let replayed = lab.json(&["runs", "replay", "w"]);
    assert_eq!(
        (replayed.code, replayed.at("/verdict"), replayed.at("/steps/3/finding")),
        (EXIT_DONE, json!("agrees"), json!("unverified"))
    );
    assert_eq!(
        replayed.at("/counts"),
        json!({ "recorded": 0, "verified": 3, "drifted": 0, "unverified": 1, "in_doubt": 0, "unavailable": 0, "undone": 0 })
    );
    assert_eq!((lab.json(&["runs", "show", "w", "--entries"]).stdout, acted(&lab)), (before, [1, 0, 1, 0, 1]));
    let shown = lab.run(&["runs", "replay", "w"]);
    assert!(shown.stdout.contains("unverified") && shown.stderr.contains("no tool was called"), "{shown:?}");

    // A drift check of the finished run, and of one effect of it.
    std::fs::write(lab.path("notes/note.txt"), "edited").unwrap();
    let drifted = lab.json(&["runs", "replay", "w"]);
    assert_eq!((drifted.code, drifted.at("/verdict"), drifted.at("/steps/2/finding")), (EXIT_DRIFTED, json!("drifted"), json!("drifted")));
    assert!(drifted.text("/steps/2/found").starts_with("6 bytes"), "{drifted:?}");
    let one = lab.json(&["effects", "verify", &drifted.text("/steps/2/effect")]);
    assert_eq!((one.code, one.at("/finding")), (EXIT_DRIFTED, json!("drifted")), "{one:?}");
    let flight = drifted.text("/steps/0/effect");
    assert_eq!(lab.json(&["effects", "verify", &flight]).at("/finding"), "verified");
    let shown = lab.json(&["effects", "show", &flight]);
    assert_eq!(shown.at("/state_changed"), json!({ "etag": "\"v1\"", "ref": "e-1" }), "{shown:?}");
    lab.world.then("/hotel", json!({ "act": false, "status": 503 }));
    std::fs::write(lab.path("notes/note.txt"), "booked e-1").unwrap();
    let unknown = lab.json(&["runs", "replay", "w"]);
    assert_eq!((unknown.code, unknown.at("/verdict"), unknown.at("/counts/unavailable")), (EXIT_IN_DOUBT, json!("unknown"), json!(1)));
    assert_eq!(acted(&lab), [1, 0, 1, 0, 1]);
}

#[test]
fn a_50_a_54_strict_fails_with_every_mismatch_named_and_nothing_done_again() {
    let lab = lab("");
    killed(&lab);
    // Deleted, changed, edited: all three are found, not only the first.
    lab.world.then("/flights/e-1", json!({ "act": false, "headers": { "etag": "\"v2\"" }, "body": "{}" }));
    lab.world.then("/hotel", json!({ "act": false, "status": 404 }));
    std::fs::write(lab.path("notes/note.txt"), "edited").unwrap();
    let failed = lab.json(&["runs", "resume", "w"]);
    assert_eq!((failed.code, failed.at("/error/code")), (EXIT_FAILED, json!("world_drifted")), "{failed:?}");
    let message = failed.text("/error/message");
    for named in [
        "step flight (book_flight): expected ETag \"v1\", found ETag \"v2\"",
        "step hotel",
        "it is gone: 404",
        "step note",
        "nothing was done again",
    ] {
        assert!(message.contains(named), "{named}: {message}");
    }
    assert_eq!(failed.at("/error/detail/drifted").as_array().map(Vec::len), Some(3));
    // Whoever changed it may have meant to: it is not undone over their heads, and the list says so.
    assert_eq!((failed.at("/state"), acted(&lab)), (json!("compensation_failed"), [1, 0, 1, 0, 0]), "{failed:?}");
    assert_eq!(failed.at("/compensations/0/status"), "nothing_to_undo", "the payment did not happen: {failed:?}");
    assert_eq!(failed.at("/compensations/1/error/code"), "world_drifted");
    assert_eq!(asked(&lab), (1, 1));
    // A person may.
    let undone = lab.json(&["runs", "undo", "w", "--by", "ada"]);
    let flight_and_hotel = [1, 1, 1, 1, 0];
    assert_eq!(acted(&lab), flight_and_hotel, "{undone:?}");
    // The note was edited by somebody else, which its own undo notices.
    assert_eq!((undone.at("/state"), undone.at("/compensations/4/status")), (json!("compensation_failed"), json!("failed")), "{undone:?}");
    assert_eq!(std::fs::read_to_string(lab.path("notes/note.txt")).unwrap(), "edited");
}

/// What did not drift is undone, as after any failure.
#[test]
fn only_what_drifted_is_left_alone() {
    let lab = lab("");
    killed(&lab);
    lab.world.then("/hotel", json!({ "act": false, "body": "{\"status\":\"cancelled\"}" }));
    let failed = lab.json(&["runs", "resume", "w"]);
    assert_eq!((failed.code, failed.at("/error/code"), acted(&lab)), (EXIT_FAILED, json!("world_drifted"), [1, 1, 1, 0, 0]), "{failed:?}");
    let compensations = failed.at("/compensations");
    let dealt: Vec<_> =
        compensations.as_array().unwrap().iter().map(|c| (c["step"].as_str().unwrap(), c["status"].as_str().unwrap())).collect();
    assert_eq!(dealt, [("pay", "nothing_to_undo"), ("note", "undone"), ("hotel", "failed"), ("flight", "undone")]);
    let skipped = lab.json(&["runs", "skip", "w", "hotel", "--by", "ada", "--why", "the hotel cancelled it itself"]);
    assert_eq!((skipped.code, skipped.at("/state"), acted(&lab)), (EXIT_DONE, json!("compensated"), [1, 1, 1, 0, 0]), "{skipped:?}");
}

#[test]
fn a_50_warn_goes_on_and_counts() {
    let lab = lab("confirm: { mode: warn }");
    killed(&lab);
    lab.world.then("/hotel", json!({ "act": false, "status": 410 }));
    std::fs::remove_file(lab.path("notes/note.txt")).unwrap();
    let ended = lab.json(&["runs", "resume", "w"]);
    assert_eq!((ended.code, ended.at("/state"), acted(&lab)), (EXIT_DONE, json!("completed"), [1, 0, 1, 0, 1]), "{ended:?}");
    let confirmed = ended.at("/confirmation");
    assert_eq!((&confirmed["judgement"], &confirmed["verified"]), (&json!("warned"), &json!(1)), "{confirmed}");
    assert_eq!(
        (&finding(&confirmed, "hotel")["finding"], &finding(&confirmed, "note")["found"]),
        (&json!("drifted"), &json!("no such file"))
    );
    assert_eq!(asked(&lab), (1, 1));
    assert!(!lab.path("notes/note.txt").exists(), "nothing was done again");
}

#[test]
fn a_50_human_waits_for_a_decision() {
    for (decision, state, done) in [("--accept", "completed", [1, 0, 1, 0, 1]), ("--fail", "compensation_failed", [1, 1, 1, 0, 0])] {
        let lab = lab("confirm: { when: on_recovery, mode: human }");
        killed(&lab);
        lab.world.then("/hotel", json!({ "act": false, "status": 404 }));
        let mut waiting = begin(&lab, &["runs", "resume", "w", "--json"]);
        until(|| lab.json(&["runs", "show", "w"]).at("/confirmation/judgement") == "needs_person");
        until(|| lab.json(&["runs", "show", "w"]).at("/state") == "waiting");
        assert_eq!((acted(&lab), asked(&lab)), ([1, 0, 1, 0, 0], (1, 1)), "it waits");
        let shown = lab.run(&["runs", "show", "w"]);
        assert!(shown.stdout.contains("counterfoil runs confirm w --accept"), "{}", shown.stdout);
        // Whoever asks for it meanwhile waits too, and asks the world nothing.
        waiting.kill();
        let mut another = begin(&lab, &["run", "work.yaml", "--run", "w", "--json"]);
        until(|| entries(&lab, "parked").len() > 1);
        assert_eq!((acted(&lab), asked(&lab)), ([1, 0, 1, 0, 0], (1, 1)));
        another.kill();
        let decided = lab.json(&["runs", "confirm", "w", decision, "--by", "ada", "--why", "I rang them"]);
        assert_eq!((decided.at("/state"), acted(&lab)), (json!(state), done), "{decided:?}");
        assert_eq!(decided.code, if decision == "--accept" { EXIT_DONE } else { EXIT_FAILED });
        let entry = &entries(&lab, "confirm_decided")[0];
        assert_eq!(
            (&entry["by"], &entry["why"], &entry["accepted"]),
            (&json!("ada"), &json!("I rang them"), &json!(decision == "--accept"))
        );
        assert_eq!(asked(&lab), (1, 1), "a person's word is enough");
        // Said again it is the same; otherwise it is refused.
        let other = if decision == "--accept" { "--fail" } else { "--accept" };
        assert_eq!(lab.json(&["runs", "confirm", "w", decision]).at("/state"), state);
        lab.json(&["runs", "confirm", "w", other]).error(EXIT_REFUSED, "wrong_state");
    }
}

#[test]
fn what_cannot_be_asked_is_asked_again_and_never_taken_for_verified() {
    let lab = lab("");
    killed(&lab);
    lab.world.then("/hotel", json!({ "act": false, "status": 503 }));
    let mut waiting = begin(&lab, &["runs", "resume", "w", "--json"]);
    until(|| lab.json(&["runs", "show", "w"]).at("/state") == "waiting");
    let held = lab.json(&["runs", "show", "w"]);
    assert_eq!((held.at("/confirmation/judgement"), acted(&lab)), (json!("asks_again"), [1, 0, 1, 0, 0]), "{held:?}");
    assert!(held.text("/confirmation/waits_for").contains("is asked again"), "{held:?}");
    assert_eq!(finding(&held.at("/confirmation"), "hotel")["finding"], "unavailable");
    assert_eq!(asked(&lab).1, 3, "three times, and then it is let go of");
    assert!(held.at("/due").is_string(), "it is looked at again by itself: {held:?}");
    // The world is back: the same process goes on when it is due.
    lab.world.then("/hotel", json!({ "act": false, "body": "{\"status\":\"booked\"}" }));
    assert!(waiting.child.wait().unwrap().success());
    assert_eq!((lab.json(&["runs", "show", "w"]).at("/state"), acted(&lab)), (json!("completed"), [1, 0, 1, 0, 1]));
}

#[test]
fn a_run_that_cannot_be_asked_about_may_be_accepted_or_cancelled() {
    let lab = lab("");
    killed(&lab);
    lab.world.then("/hotel", json!({ "act": false, "status": 503 }));
    let mut waiting = begin(&lab, &["runs", "resume", "w"]);
    until(|| lab.json(&["runs", "show", "w"]).at("/state") == "waiting");
    waiting.kill();
    let accepted = lab.json(&["runs", "confirm", "w", "--accept"]);
    assert_eq!((accepted.code, accepted.at("/confirmation/judgement"), acted(&lab)), (EXIT_DONE, json!("accepted"), [1, 0, 1, 0, 1]));

    let lab = self::lab("");
    killed(&lab);
    lab.world.then("/hotel", json!({ "act": false, "status": 503 }));
    let mut waiting = begin(&lab, &["runs", "resume", "w"]);
    until(|| lab.json(&["runs", "show", "w"]).at("/state") == "waiting");
    waiting.kill();
    let cancelled = lab.json(&["runs", "cancel", "w", "--undo"]);
    assert_eq!((cancelled.at("/state"), acted(&lab)), (json!("compensated"), [1, 1, 1, 1, 0]), "{cancelled:?}");
}

/// Never, by word of the workflow; and by word of a step against the workflow's.
#[test]
fn who_says_never_is_not_asked_about() {
    let lab = lab("confirm: never");
    killed(&lab);
    lab.world.then("/hotel", json!({ "act": false, "status": 404 }));
    let ended = lab.json(&["runs", "resume", "w"]);
    assert_eq!((ended.code, asked(&lab), ended.at("/confirmation")), (EXIT_DONE, (0, 0), Value::Null), "{ended:?}");

    let lab = self::lab("confirm: never");
    let stepped = WORK.replace("CONFIRM", "confirm: never").replace("id: flight, tool", "id: flight, confirm: on_recovery, tool");
    lab.write("work.yaml", &stepped);
    killed(&lab);
    lab.world.then("/hotel", json!({ "act": false, "status": 404 }));
    let ended = lab.json(&["runs", "resume", "w"]);
    assert_eq!((ended.code, asked(&lab)), (EXIT_DONE, (1, 0)), "{ended:?}");
}

/// SIGKILL while the questions are asked: the next one asks again, and nothing else happens twice.
#[test]
fn killed_while_asking_only_the_questions_are_asked_again() {
    let lab = lab("");
    killed(&lab);
    lab.world.then("/hotel", json!({ "act": false, "before": true, "body": "{\"status\":\"booked\"}" }));
    let mut asking = begin(&lab, &["runs", "resume", "w"]);
    lab.world.wait_holding("/hotel", 1);
    asking.kill();
    lab.world.drop_held("/hotel");
    lab.world.then("/hotel", json!({ "act": false, "body": "{\"status\":\"booked\"}" }));
    assert_eq!(entries(&lab, "confirmed").len(), 0);
    let ended = lab.json(&["runs", "resume", "w"]);
    assert_eq!((ended.code, acted(&lab), asked(&lab).1), (EXIT_DONE, [1, 0, 1, 0, 1], 2), "{ended:?}");
}

/// A clean hand-over is no recovery: a run that slept, or was stopped by Ctrl-C, goes on without a question, unless its steps say `always`.
#[test]
fn a_clean_hand_over_asks_nothing_unless_always() {
    for (confirm, questions) in [("", 0), ("confirm: always", 1)] {
        let lab = lab("");
        let waiting = WORK.replace("CONFIRM", confirm).replace("  - { id: pay", "  - { id: ok, wait: { signal: go } }\n  - { id: pay");
        lab.write("work.yaml", &waiting);
        let process = begin(&lab, &["run", "work.yaml", "--run", "w"]);
        until(|| lab.json(&["runs", "show", "w"]).at("/state") == "waiting");
        process.signal(rustix::process::Signal::INT);
        assert_eq!(Run::ended(process).code, EXIT_PENDING);
        let ended = lab.json(&["runs", "signal", "w", "go"]);
        assert_eq!((ended.code, acted(&lab), asked(&lab)), (EXIT_DONE, [1, 0, 1, 0, 1], (questions, questions)), "{confirm}: {ended:?}");
    }
}

/// A tool that would end the process that calls it, and the world's own count beside it.
#[test]
fn no_confirmation_calls_a_tool() {
    let lab = Lab::new("tools: {}");
    // It kills whoever started it, unless this is its first time.
    let script = r#"if [ -e once ]; then kill -9 $PPID; fi; echo x >> once; echo '{"id": 7}'"#;
    let config = format!(
        "tools:\n  deadly:\n    command: [sh, -c, {}]\n    verify: {{ command: [sh, -c, \"cat once; echo >> asked\"], holds: \"response.text == 'x\\\\n'\" }}\n  charge:\n    http: {{ method: POST, url: \"WORLD/charge\" }}\n    repeat: safe\n",
        json!(script)
    );
    lab.config(&config);
    lab.write("deadly.yaml", "workflow: deadly\nsteps:\n  - { id: a, tool: deadly }\n  - { id: b, tool: charge }\n");
    lab.world.then("/charge", json!({ "before": true }));
    let mut process = begin(&lab, &["run", "deadly.yaml", "--run", "d"]);
    lab.world.wait_holding("/charge", 1);
    process.kill();
    lab.world.drop_held("/charge");
    lab.world.then("/charge", json!({}));
    let dry = lab.json(&["runs", "replay", "d"]);
    assert_eq!((dry.at("/steps/0/finding"), dry.at("/counts/verified")), (json!("verified"), json!(1)), "{dry:?}");
    let ended = lab.json(&["runs", "resume", "d"]);
    assert_eq!((ended.code, ended.at("/confirmation/verified"), lab.world.acted("/charge")), (EXIT_DONE, json!(1), 1), "{ended:?}");
    for _ in 0..3 {
        assert_eq!(lab.json(&["runs", "replay", "d"]).at("/verdict"), "agrees");
    }
    assert_eq!(std::fs::read_to_string(lab.path("once")).unwrap(), "x\n", "called once, by the run itself");
    assert_eq!(std::fs::read_to_string(lab.path("asked")).unwrap().lines().count(), 5);
    // The trap works: called again, it ends the caller.
    let called = lab.run(&["call", "deadly", "--key", "k", "--json"]);
    assert_eq!(called.code, -1, "{called:?}");
}

#[test]
fn a_56_begun_and_not_ended_is_in_doubt_and_never_done_again_by_a_replay() {
    let lab = lab("");
    killed(&lab);
    let replayed = lab.json(&["runs", "replay", "w"]);
    assert_eq!(
        (replayed.code, replayed.at("/steps/3/finding"), replayed.at("/verdict")),
        (EXIT_IN_DOUBT, json!("in_doubt"), json!("unknown")),
        "{replayed:?}"
    );
    assert_eq!(acted(&lab), [1, 0, 1, 0, 0]);
    // It was done, and nobody wrote down what it answered: the probe finds it, and it is not done again.
    let lab = self::lab("");
    lab.world.then("/charge", json!({ "after": true }));
    let mut process = begin(&lab, &["run", "work.yaml", "--run", "w"]);
    lab.world.wait_holding("/charge", 1);
    process.kill();
    lab.world.release("/charge");
    let ended = lab.json(&["runs", "resume", "w"]);
    assert_eq!((ended.code, acted(&lab)), (EXIT_DONE, [1, 0, 1, 0, 1]), "{ended:?}");
}

#[test]
fn a_58_a_changed_definition_is_told_apart_step_by_step() {
    let lab = lab("");
    assert_eq!(lab.json(&["run", "work.yaml", "--run", "w"]).code, EXIT_DONE);
    let plain = WORK.replace("CONFIRM", "");
    let against = |text: &str| {
        lab.write("other.yaml", text);
        lab.json(&["runs", "replay", "w", "--workflow", "other.yaml"])
    };
    let same = lab.json(&["runs", "replay", "w", "--workflow", "work.yaml"]);
    assert_eq!((same.code, same.at("/divergence")), (EXIT_DONE, Value::Null), "{same:?}");
    let other_args = against(&plain.replace("nights: 3", "nights: 4"));
    assert_eq!(
        (other_args.code, other_args.at("/verdict"), other_args.at("/divergence/first/step")),
        (EXIT_DRIFTED, json!("diverged"), json!("hotel"))
    );
    assert_eq!(other_args.at("/divergence/followed"), 1);
    assert!(other_args.text("/divergence/first/expected").contains(r#"{"nights":4}"#), "{other_args:?}");
    let effect = other_args.text("/steps/1/effect");
    assert!(other_args.text("/divergence/first/actual").contains(&effect), "{other_args:?}");
    let other_tool = against(&plain.replace("tool: charge", "tool: book_hotel"));
    assert_eq!(
        (other_tool.at("/divergence/first/expected"), other_tool.at("/divergence/first/actual")),
        (json!("the tool book_hotel"), json!("the tool charge"))
    );
    let fewer = against(&plain.replace("  - { id: pay, tool: charge, args: { for: \"${steps.hotel.result.id}\" } }\n", ""));
    assert_eq!(
        (fewer.at("/divergence/first/step"), fewer.at("/divergence/first/expected")),
        (json!("pay"), json!("the end of the run")),
        "{fewer:?}"
    );
    // More steps than were recorded: the log is exhausted, which is no divergence.
    let more = against(&plain.replace("\noutput:", "\n  - { id: extra, tool: charge }\noutput:"));
    assert_eq!(
        (more.code, more.at("/verdict"), more.at("/divergence/log_exhausted")),
        (EXIT_DONE, json!("agrees"), json!(["extra"])),
        "{more:?}"
    );
    assert_eq!(more.at("/divergence/followed"), 4);
    let shown = lab.run(&["runs", "replay", "w", "--workflow", "other.yaml"]);
    assert!(shown.stdout.contains("log exhausted: the plan goes on with extra"), "{shown:?}");
    // What is run is refused, as ever.
    lab.json(&["run", "other.yaml", "--run", "w"]).error(EXIT_REFUSED, "definition_diverged");
    assert_eq!(acted(&lab), [1, 0, 1, 0, 1]);
}
