//! Bad input: each is refused precisely, with its exit code, nothing runs, and all works afterwards.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::lab::{EXIT_BROKEN, EXIT_DONE, EXIT_REFUSED, EXIT_USAGE, Lab, Run};
use crate::parts::Process;

/// The refusal names these, the world saw nothing, and a sound call is taken as ever.
#[track_caller]
fn check(lab: &Lab, run: Run, exit: i32, code: &str, names: &[&str]) {
    let run = run.error(exit, code);
    let message = run.text("/error/message");
    for name in names {
        assert!(message.contains(name), "says nothing of {name:?}: {message}");
    }
    assert!(message.len() < 2000, "a message is for reading: {} bytes", message.len());
    assert_eq!(lab.world.seen("/charge").arrived, 0, "{message}");
}

/// The ledger holds nothing but what was really done.
#[track_caller]
fn works_again(lab: &Lab) {
    let listed = lab.json(&["effects", "list"]);
    assert!(listed.at("/effects") == json!([]) || listed.at("/error/code") == "store_absent", "{listed:?}");
    lab.call("charge", r#"{"cents":1}"#, "k").done();
    lab.call("charge", r#"{"cents":1}"#, "k").replayed();
    assert_eq!(lab.world.acted("/charge"), 1);
}

#[test]
fn an_unknown_tool_is_refused_with_a_suggestion() {
    let lab = Lab::charging("");
    check(&lab, lab.call("chrage", "{}", "k"), EXIT_REFUSED, "unknown_tool", &["chrage", "did you mean charge?"]);
    check(&lab, lab.call("mail", "{}", "k"), EXIT_REFUSED, "unknown_tool", &["mail", "counterfoil tools list"]);
    check(&lab, lab.call("", "{}", "k"), EXIT_USAGE, "invalid_name", &["tool", "is empty"]);
    works_again(&lab);
}

#[test]
fn arguments_that_are_not_sound_json_are_refused_with_the_place() {
    let lab = Lab::charging("");
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    for (args, names) in [
        (r#"{"cents":"#, &["--args", "byte 9", "nothing was run"][..]),
        (r#"{"cents":1,}"#, &["byte 11"]),
        (r#"{"a":1,"b":2,"a":3}"#, &["\"a\" appears twice", "byte 13"]),
        (r#"{"a":1,"\u0061":3}"#, &["\"a\" appears twice"]),
        (r#"{"cents":NaN}"#, &["byte 9"]),
        (r#"{"cents":Infinity}"#, &["byte 9"]),
        (r#"{"cents":-}"#, &["byte"]),
        (r#"{"text":"\ud800"}"#, &["byte"]),
        ("", &["byte 0"]),
        (deep.as_str(), &["deeper than 128", "byte 128"]),
    ] {
        check(&lab, lab.call("charge", args, "k"), EXIT_USAGE, "invalid_arguments", names);
    }
    let missing = lab.call("charge", "@nowhere.json", "k");
    check(&lab, missing, EXIT_USAGE, "invalid_arguments", &["@nowhere.json", "No such file"]);
    std::fs::write(lab.path("latin1.json"), b"{\"a\":\"\xe9\"}").unwrap();
    check(&lab, lab.call("charge", "@latin1.json", "k"), EXIT_USAGE, "invalid_arguments", &["@latin1.json", "UTF-8", "byte 6"]);
    works_again(&lab);
}

#[test]
fn ten_megabytes_of_arguments_are_refused() {
    let lab = Lab::charging("");
    for letter in ["x", "é"] {
        let text = json!({ "text": letter.repeat(10 << 20) }).to_string();
        let file = lab.write("large.json", &text);
        let names = ["1048576", "reference", "nothing was run"];
        check(&lab, lab.call("charge", "@large.json", "k"), EXIT_USAGE, "invalid_arguments", &names);
        let stdin = std::fs::File::open(file).unwrap();
        let mut piped = lab.command(&["call", "charge", "--args", "-", "--key", "k", "--json"]);
        let run = Process::spawn(piped.stdin(stdin).stdout(Stdio::piped()));
        check(&lab, Run::ended(run), EXIT_USAGE, "invalid_arguments", &names);
    }
    works_again(&lab);
}

#[test]
fn keys_and_names_that_will_not_do_are_refused() {
    let lab = Lab::charging("");
    let (long, longest) = ("k".repeat(300), "k".repeat(255));
    for (key, names) in [
        (long.as_str(), &["--key", "300 bytes", "at most 255"][..]),
        ("", &["--key", "empty"]),
        ("a\nb", &["--key", "'\\n'", "byte 1", "printable ASCII"]),
        ("a\u{1b}[2Jb", &["--key", "byte 1"]),
        ("schlüssel", &["--key", "'ü'", "byte 4"]),
    ] {
        check(&lab, lab.call("charge", "{}", key), EXIT_USAGE, "invalid_name", names);
    }
    let step = lab.json(&["call", "charge", "--run", "r\t1"]);
    check(&lab, step, EXIT_USAGE, "invalid_name", &["--run", "byte 1"]);
    works_again(&lab);
    lab.call("charge", "{}", &longest).done();
}

#[test]
fn a_config_with_five_mistakes_names_all_five() {
    let lab = Lab::charging("");
    let sound = std::fs::read_to_string(lab.path("counterfoil.yaml")).unwrap();
    lab.write(
        "counterfoil.yaml",
        r#"mode: enforced
tools:
  charge:
    http: { method: POST, url: "http://127.0.0.1:1/charge", jsn: "${args}" }
    timeout: 10
    repeat: sometimes
    retry: { attempts: 0 }
"#,
    );
    let run = lab.call("charge", "{}", "k").error(EXIT_USAGE, "config_invalid");
    let mistakes = run.at("/error/detail/mistakes");
    let lines: Vec<&Value> = mistakes.as_array().unwrap().iter().map(|m| &m["line"]).collect();
    assert_eq!(lines, [1, 4, 5, 6, 7], "{mistakes:#}");
    let paths: Vec<&Value> = mistakes.as_array().unwrap().iter().map(|m| &m["path"]).collect();
    assert_eq!(paths[0], "mode");
    assert_eq!(mistakes[0]["suggestion"], "enforce");
    for command in [&["call", "charge"][..], &["tools", "check"], &["effects", "list"], &["recover"]] {
        let text = lab.run(command);
        assert_eq!((text.code, text.stdout.as_str()), (EXIT_USAGE, ""), "{text:?}");
        for line in [1, 4, 5, 6, 7] {
            assert!(text.stderr.contains(&format!("counterfoil.yaml:{line}:")), "{}", text.stderr);
        }
        assert!(text.stderr.contains("5 mistakes in counterfoil.yaml"), "{}", text.stderr);
    }
    assert!(!lab.ledger().exists(), "a config with a mistake is no config: nothing of it is used");
    assert_eq!(lab.world.seen("/charge").arrived, 0);
    lab.write("counterfoil.yaml", &sound);
    works_again(&lab);
}

#[test]
fn a_file_that_is_no_ledger_is_left_alone() {
    let lab = Lab::charging("");
    lab.write("notes.txt", "My notes, which are not a ledger.\n");
    std::fs::write(lab.path("picture.db"), [0xff; 4096]).unwrap();
    let other = rusqlite::Connection::open(lab.path("other.db")).unwrap();
    other.execute_batch("CREATE TABLE people(name TEXT); INSERT INTO people VALUES ('ada')").unwrap();
    drop(other);
    for (file, found) in [("notes.txt", "a text file"), ("picture.db", "not an SQLite database"), ("other.db", "another SQLite database")] {
        let before = std::fs::read(lab.path(file)).unwrap();
        let store = format!("sqlite:{file}");
        let run = lab.json(&["call", "charge", "--key", "k", "--store", &store]);
        check(&lab, run, EXIT_USAGE, "not_a_ledger", &[file, "is not a Counterfoil ledger", found, "name another file"]);
        assert_eq!(std::fs::read(lab.path(file)).unwrap(), before, "{file} was changed");
        let beside: Vec<_> = std::fs::read_dir(lab.dir.path()).unwrap().map(|f| f.unwrap().file_name()).collect();
        assert!(!beside.iter().any(|name| name.to_string_lossy().starts_with(&format!("{file}-"))), "left beside it: {beside:?}");
    }
    works_again(&lab);
}

#[test]
fn a_ledger_of_a_newer_version_is_left_alone() {
    let lab = Lab::charging("");
    let done = lab.call("charge", "{}", "k").done();
    let version = |n: u32| {
        let conn = rusqlite::Connection::open(lab.ledger()).unwrap();
        conn.pragma_update(None, "user_version", n).unwrap();
    };
    version(99);
    let refused = lab.call("charge", "{}", "k2").error(EXIT_USAGE, "ledger_too_new");
    let message = refused.text("/error/message");
    assert!(message.contains("format 99") && message.contains("use a newer counterfoil"), "{message}");
    assert_eq!(lab.world.acted("/charge"), 1);
    version(1);
    assert_eq!(lab.call("charge", "{}", "k").replayed().at("/data"), done.at("/data"));
    lab.call("charge", "{}", "k2").done();
}

#[test]
fn a_store_that_cannot_be_there_is_refused() {
    let lab = Lab::charging("");
    let at = |store: &str| lab.json(&["call", "charge", "--key", "k", "--store", store]);
    let unknown = at("mysql://bank:secret@db/ledger");
    assert!(!unknown.stdout.contains("secret"), "{unknown:?}");
    check(&lab, unknown, EXIT_USAGE, "store_unknown", &["mysql:", "sqlite:FILE"]);
    check(&lab, at("sqlite:no/such/place.db"), EXIT_BROKEN, "store_unavailable", &["no/such", "make it first"]);
    std::fs::create_dir(lab.path("folder")).unwrap();
    check(&lab, at("sqlite:folder"), EXIT_BROKEN, "store_unavailable", &["folder", "is a directory"]);
    works_again(&lab);
}

#[test]
fn usage_that_is_not_understood_runs_nothing() {
    let lab = Lab::charging("");
    for args in [
        &["call"][..],
        &["call", "charge", "--step", "s"],
        &["call", "charge", "--arg", "{}"],
        &["cal", "charge"],
        &["effects", "resolve", "0123456789abcdef"],
        &["effects", "resolve", "0123456789abcdef", "--happened", "--did-not-happen"],
    ] {
        let run = lab.run(args);
        assert_eq!((run.code, run.stdout.as_str()), (EXIT_USAGE, ""), "{args:?}: {run:?}");
    }
    lab.json(&["effects", "list", "--state", "doubtful"]).error(EXIT_USAGE, "invalid_state");
    lab.json(&["effects", "list", "--older-than", "soon"]).error(EXIT_USAGE, "invalid_age");
    lab.make_ledger();
    lab.json(&["effects", "show", "xyz"]).error(EXIT_USAGE, "invalid_key");
    lab.json(&["effects", "show", "0123456789abcdef"]).error(EXIT_REFUSED, "not_found");
    lab.json(&["effects", "show", &"0".repeat(64)]).error(EXIT_REFUSED, "not_found");
    let result = ["effects", "resolve", &"0".repeat(64), "--happened", "--result", "{"];
    lab.json(&result).error(EXIT_USAGE, "invalid_result");
    assert_eq!(lab.run(&["--help"]).code, EXIT_DONE);
    works_again(&lab);
}
