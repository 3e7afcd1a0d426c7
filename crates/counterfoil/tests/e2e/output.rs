//! What is printed: JSON wherever it is asked for, tables for people, exit codes for scripts.

use serde_json::{Value, json};

use crate::lab::{EXIT_BROKEN, EXIT_CANCELLED, EXIT_DONE, EXIT_FAILED, EXIT_IN_DOUBT, EXIT_PENDING, EXIT_REFUSED, EXIT_USAGE, Lab};

const CONFIG: &str = r#"
tools:
  charge:
    description: Charge a card
    http: { method: POST, url: "WORLD/charge", json: "${args}" }
    undo: { tool: refund, args: { charge: "${result.id}" } }
  refund:
    http: { method: POST, url: "WORLD/refund", json: "${args}" }
    repeat: keyed
  wire:
    http: { method: POST, url: "WORLD/wire", json: "${args}" }
    approval: "args.cents > 100"
    timeout: 10s
"#;

/// Every command, in an order that gives each something to do. Stdout is one JSON value each time.
#[test]
fn json_is_printed_by_every_command() {
    let lab = Lab::new(CONFIG);
    let json = |args: &[&str], exit: i32| {
        let run = lab.json(args);
        assert_eq!(run.code, exit, "{args:?}: {run:?}");
        run.value()
    };
    json(&["init", "other.yaml"], EXIT_DONE);
    json(&["init", "other.yaml"], EXIT_REFUSED);
    assert_eq!(json(&["tools", "check"], EXIT_DONE)["tools"], 3);
    assert_eq!(json(&["tools", "list"], EXIT_DONE)[0]["name"], "charge");
    assert_eq!(json(&["tools", "show", "wire"], EXIT_DONE)["approval"], true);
    assert_eq!(json(&["tools", "show", "wire"], EXIT_DONE)["undo"], Value::Null);
    assert_eq!(json(&["tools", "show", "charge"], EXIT_DONE)["undo"], "refund");
    json(&["tools", "show", "wrie"], EXIT_REFUSED);
    let done = json(&["call", "charge", "--key", "k"], EXIT_DONE);
    let key = |value: &Value| value["effect"].as_str().unwrap().to_owned();
    assert_eq!(json(&["effects", "show", &key(&done)], EXIT_DONE)["state"], "done");
    assert_eq!(json(&["effects", "list", "--tool", "charge"], EXIT_DONE)["effects"][0]["state"], "done");
    assert_eq!(json(&["effects", "undo", &key(&done), "--by", "ada"], EXIT_DONE)["status"], "success");
    assert_eq!(json(&["effects", "show", &key(&done)], EXIT_DONE)["state"], "undone");
    assert_eq!((lab.world.acted("/charge"), lab.world.acted("/refund")), (1, 1));
    // Approvals: one given, one denied, one withdrawn.
    let asks = |n: &str| json(&["call", "wire", "--args", r#"{"cents":500}"#, "--key", n], EXIT_PENDING);
    let (a, b, c) = (asks("a"), asks("b"), asks("c"));
    assert_eq!((&a["status"], lab.world.seen("/wire").arrived), (&json!("waiting_approval"), 0));
    assert_eq!(json(&["effects", "approve", &key(&a), "--by", "ada"], EXIT_DONE)["status"], "success");
    json(&["effects", "approve", &key(&a), "--by", "ada"], EXIT_REFUSED);
    assert_eq!(json(&["effects", "deny", &key(&b), "--by", "ada", "--why", "too much"], EXIT_DONE)["state"], "failed");
    assert_eq!(json(&["effects", "cancel", &key(&c), "--by", "ada"], EXIT_DONE)["state"], "cancelled");
    assert_eq!(json(&["call", "wire", "--args", r#"{"cents":500}"#, "--key", "b"], EXIT_FAILED)["error"]["code"], "approval_denied");
    assert_eq!(json(&["call", "wire", "--args", r#"{"cents":500}"#, "--key", "c"], EXIT_CANCELLED)["status"], "cancelled");
    assert_eq!(lab.world.acted("/wire"), 1, "only what was approved, and once");
    lab.world.rules("/charge", json!({ "next": [{ "status": 422, "act": false }, { "status": 500 }] }));
    let failed = json(&["call", "charge", "--key", "no"], EXIT_FAILED);
    let doubt = json(&["call", "charge", "--key", "?"], EXIT_IN_DOUBT);
    assert_eq!(json(&["effects", "retry", &key(&failed), "--by", "ada"], EXIT_DONE)["status"], "success");
    json(&["effects", "retry", &key(&doubt)], EXIT_REFUSED);
    assert_eq!(json(&["effects", "resolve", &key(&doubt), "--undo", "--result", r#"{"id":"e-9"}"#], EXIT_DONE)["status"], "success");
    assert_eq!(lab.world.acted("/refund"), 2);
    assert_eq!(json(&["breakers", "list"], EXIT_DONE).as_array().unwrap().len(), 3);
    json(&["breakers", "open", "wire"], EXIT_DONE);
    json(&["call", "wire", "--args", r#"{"cents":1}"#, "--key", "d"], EXIT_REFUSED);
    json(&["breakers", "reset", "wire"], EXIT_DONE);
    assert_eq!(json(&["recover"], EXIT_DONE)["recovered"], json!([]));
    assert!(json(&["receipts", "list"], EXIT_DONE).as_array().unwrap().len() >= 7);
    assert!(json(&["receipts", "verify"], EXIT_DONE)["verified"].as_u64().unwrap() >= 7);
    assert_eq!(json(&["effects", "prune"], EXIT_DONE)["pruned"], 0);
    let token = json(&["tokens", "create", "--caller", "agent"], EXIT_DONE);
    assert_eq!(json(&["tokens", "list"], EXIT_DONE)[0]["id"], token["id"]);
    assert_eq!(json(&["tokens", "revoke", token["id"].as_str().unwrap()], EXIT_DONE)["state"], "revoked");
    assert_eq!(json(&["doctor"], EXIT_DONE)["ok"], true);
}

#[test]
fn people_read_tables_and_short_stories() {
    let lab = Lab::new(CONFIG);
    let tools = lab.run(&["tools", "list"]);
    assert_eq!(words(&tools.stdout, 0), ["TOOL", "EFFECT", "REPEAT", "TIMEOUT", "PROBE", "DESCRIPTION"]);
    assert_eq!(words(&tools.stdout, 1), ["charge", "write", "never", "30s", "no", "Charge", "a", "card"]);
    assert_eq!(words(&tools.stdout, 3), ["wire", "write", "never", "10s", "no"]);
    let first = lab.run(&["call", "charge", "--key", "k"]);
    assert_eq!(first.stdout, "{\"id\":\"e-1\"}\n", "data on stdout, and nothing else");
    let (new, story) = first.stderr.split_once('\n').expect("a line");
    assert!(new.starts_with("a new ledger: /") && new.ends_with("/counterfoil.db"), "{new}");
    let story: Vec<&str> = story.lines().collect();
    assert!(story[0].starts_with("done in ") && story[0].ends_with(" ms (attempt 1)"), "{story:?}");
    assert!(story[1].starts_with("  effect  ") && story[2].starts_with("  receipt "), "{story:?}");
    let again = lab.run(&["call", "charge", "--key", "k"]);
    assert_eq!((again.stdout, again.stderr.lines().next()), (first.stdout, Some("replayed: the recorded result; nothing was run")));
    let effect = story[1].trim_start_matches("  effect  ");
    let listed = lab.run(&["effects", "list"]);
    assert_eq!(words(&listed.stdout, 0), ["EFFECT", "STATE", "TOOL", "RUN", "AGE"]);
    assert_eq!(words(&listed.stdout, 1)[..3], [effect, "done", "charge"]);
    lab.world.then("/wire", json!({ "status": 500 }));
    let doubt = lab.run(&["call", "wire", "--args", r#"{"cents":1}"#, "--key", "w"]);
    assert_eq!((doubt.code, doubt.stdout.as_str(), doubt.stderr.lines().next()), (EXIT_IN_DOUBT, "", Some("IN DOUBT")));
    assert!(doubt.stderr.contains("counterfoil effects resolve "), "what to do: {}", doubt.stderr);
    let inbox = lab.run(&["effects", "list", "--state", "in_doubt"]);
    assert_eq!((inbox.stdout.lines().count(), words(&inbox.stdout, 1)[1]), (2, "in_doubt"));
    assert_eq!(words(&inbox.stdout, 1)[4..], [r#"{"cents":1}"#, "http_500"], "what, and why: {inbox:?}");
    let listed = lab.json(&["effects", "list", "--state", "in_doubt"]);
    assert_eq!((listed.at("/effects/0/args/cents"), listed.at("/effects/0/doubt")), (json!(1), json!("http_500")));
    // As its caller calls it.
    assert_eq!(lab.json(&["effects", "show", "wire/w"]).at("/effect"), listed.at("/effects/0/effect"));
    lab.json(&["effects", "show", "wire/x"]).error(EXIT_REFUSED, "not_found");
    let show = lab.run(&["effects", "show", words(&inbox.stdout, 1)[0]]);
    assert!(show.stdout.contains("     state  in_doubt\n") && show.stdout.contains("   history\n"), "{}", show.stdout);
    let history: Vec<&str> = show.stdout.lines().skip_while(|line| line.trim() != "history").skip(1).collect();
    assert_eq!(history.len(), 3, "{history:?}");
    let told = |at: usize, word: &str, told: &str| {
        let line = history[at].trim_start().split_once("  ").expect("when, and what").1;
        assert!(line.starts_with(word) && line.contains(told), "{line}");
    };
    told(0, "opened ", "by cli");
    told(1, "claimed ", "attempt 1 by ");
    told(2, "finished ", "it may have happened: http_500: ");
    assert_eq!(lab.run(&["receipts", "verify"]).stdout, "1 receipt, every link holds\n");
    let doubtful = words(&inbox.stdout, 1)[0].to_owned();
    assert_eq!(lab.run(&["effects", "resolve", &doubtful, "--give-up"]).code, EXIT_DONE);
    lab.run(&["effects", "undo", effect, "--by", "ada", "--why", "the wrong card"]);
    let shown = lab.run(&["effects", "show", effect]).stdout;
    assert!(shown.lines().any(|line| line.contains("  undo started ") && line.ends_with(", by ada: the wrong card")), "{shown}");
    let undone = lab.run(&["call", "charge", "--key", "k"]).stderr;
    assert!(undone.starts_with("replayed: the recorded result of what was undone since"), "{undone}");
    let help = lab.run(&["--help"]).stdout;
    for line in ["0  done (or replayed)", "3  refused: nothing was run", "5  in doubt", "7  cancelled"] {
        assert!(help.contains(line), "{help}");
    }
    let refused = lab.run(&["call", "charge", "--args", r#"{"other":1}"#, "--key", "k"]);
    assert_eq!((refused.code, refused.stderr.lines().next()), (EXIT_REFUSED, Some("refused: nothing was run")));
    assert_eq!(lab.world.acted("/charge"), 1);
}

/// With a mistyped name an empty ledger would look as if nothing were in doubt.
#[test]
fn what_looks_at_a_ledger_makes_none() {
    let lab = Lab::new(CONFIG);
    let shown = ["effects", "show", "00000000"];
    let archive = ["archive", "--before", "30d", "-o", "old.gz"];
    let looks: [&[&str]; 15] = [
        &["breakers", "list"],
        &["keys", "show"],
        &["mode", "show"],
        &["schedules", "list"],
        &["schedules", "next", "daily"],
        &["tokens", "list"],
        &["workflows", "list"],
        &archive,
        &["effects", "list"],
        &shown,
        &["runs", "list"],
        &["receipts", "list"],
        &["recover"],
        &["backup", "copy.db"],
        &["store", "check"],
    ];
    for look in looks {
        let refused = lab.json(look).error(EXIT_USAGE, "store_absent");
        assert!(refused.text("/error/message").contains("counterfoil.db"), "{refused:?}");
    }
    let doctor = lab.run(&["doctor"]);
    assert!(doctor.stdout.contains("none yet; the first call makes it") && doctor.stdout.contains("3 registered"), "{doctor:?}");
    // One that could not be made is not "none yet".
    for (store, part) in [("sqlite:away/x.db", "make it first"), ("sqlite:.", "this is a directory")] {
        let doctor = lab.run(&["doctor", "--store", store]);
        assert!(doctor.code == EXIT_BROKEN && doctor.stdout.contains(part), "{doctor:?}");
    }
    assert!(!lab.ledger().exists());
}

/// What was asked for and cannot be worked out is not "named by no tool".
#[test]
fn an_undo_that_needs_the_result_says_so() {
    let lab = Lab::new(CONFIG);
    lab.world.then("/charge", json!({ "status": 500 }));
    let effect = lab.json(&["call", "charge", "--key", "k"]).text("/effect");
    let refused = lab.json(&["effects", "resolve", &effect, "--undo"]).error(EXIT_USAGE, "undo_needs_result");
    assert!(refused.text("/error/message").contains("--result JSON"), "{refused:?}");
    let told = lab.run(&["effects", "resolve", &effect, "--happened"]);
    assert!(told.code == EXIT_DONE && told.stderr.contains("or it cannot be undone later"), "{told:?}");
}

/// Requests that were sent are not denied because the breaker opened after them.
#[test]
fn a_breaker_that_opens_in_the_middle_of_a_call() {
    let lab = Lab::charging("retry: { attempts: 3, first: 1ms }\n    breaker: { consecutive: 2 }");
    lab.world.then("/charge", json!({ "status": 503, "act": false }));
    let told = lab.run(&["call", "charge", "--key", "k"]);
    assert_eq!((told.code, lab.world.seen("/charge").arrived), (EXIT_FAILED, 2), "{told:?}");
    assert!(told.stderr.contains("failed after attempt 2; the breaker is open"), "{told:?}");
    assert!(told.stderr.contains("nothing more is sent after attempt 2") && !told.stderr.contains("nothing was"), "{told:?}");
    let other = lab.run(&["call", "charge", "--key", "other"]);
    assert!(other.code == EXIT_REFUSED && other.stderr.contains("nothing was sent"), "{other:?}");
}

#[test]
fn logs_are_json_lines_that_tell_of_changes_and_of_no_secret() {
    const SECRET: &str = "4111111111111111";
    let lab = Lab::new("tools:\n  charge:\n    http: { method: POST, url: \"WORLD/charge\", json: \"${args}\" }\n    redact: [card]\n");
    lab.world.then("/charge", json!({ "status": 500 }));
    let call = ["call", "charge", "--args", r#"{"card":"4111111111111111"}"#, "--key", "k"];
    let run = lab.json(&[&["--log", "debug,json"], &call[..]].concat());
    assert_eq!(run.code, EXIT_IN_DOUBT, "{run:?}");
    let lines: Vec<Value> = run.stderr.lines().map(|line| serde_json::from_str(line).expect("a JSON object per line")).collect();
    let doubt = lines.iter().find(|line| line["to"] == "in_doubt").expect(&run.stderr);
    assert_eq!((&doubt["from"], &doubt["tool"], &doubt["level"]), (&json!("running"), &json!("charge"), &json!("INFO")));
    assert_eq!(doubt["effect"], run.effect());
    assert!(doubt["timestamp"].is_string() && doubt["span"]["name"] == "tool_execution", "{doubt}");
    assert!(!run.stderr.contains(SECRET) && !run.stdout.contains(SECRET), "{run:?}");
}

fn words(table: &str, line: usize) -> Vec<&str> {
    table.lines().nth(line).unwrap_or_else(|| panic!("no line {line}: {table}")).split_whitespace().collect()
}
