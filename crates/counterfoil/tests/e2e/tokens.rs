//! Bearer tokens from outside: what is printed, what is kept, and what is not.

use counterfoil_core::token::{Right, Secret};
use counterfoil_runtime::Tokens;
use serde_json::{Value, json};

use crate::lab::{EXIT_DONE, EXIT_REFUSED, EXIT_USAGE, Lab, Run};

#[track_caller]
fn created(lab: &Lab, args: &[&str]) -> (Value, String) {
    let run = lab.json(&[&["tokens", "create"], args].concat());
    assert_eq!(run.code, EXIT_DONE, "{run:?}");
    (run.value(), run.text("/secret"))
}

#[track_caller]
fn listed(lab: &Lab) -> Vec<Value> {
    let run = lab.json(&["tokens", "list"]);
    assert_eq!(run.code, EXIT_DONE, "{run:?}");
    run.value().as_array().expect("a list").clone()
}

/// Every byte under the lab's directory: the ledger, its log, whatever else is left beside it.
fn bytes_on_disk(dir: &std::path::Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        match entry.is_dir() {
            true => bytes.extend(bytes_on_disk(&entry)),
            false => bytes.extend(std::fs::read(&entry).unwrap()),
        }
    }
    bytes
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn a_token_is_printed_once_and_kept_nowhere() {
    let lab = Lab::charging("");
    let run =
        lab.run(&["tokens", "create", "--caller", "agent", "--label", "Büro 3", "--expires", "30d", "--rate", "100/s", "--by", "ada"]);
    assert_eq!(run.code, EXIT_DONE, "{run:?}");
    let text = run.stdout.strip_suffix('\n').expect("one line");
    let secret = Secret::parse(text).expect("stdout is the token, and nothing else");
    assert!(run.stderr.contains("only time it is shown"), "{}", run.stderr);
    let random = &text[text.len() - 64..];
    assert!(!run.stderr.contains(random));
    let later = [lab.run(&["tokens", "list"]), lab.json(&["tokens", "list"]), lab.json(&["tokens", "list", "--log", "debug"])];
    for run in &later {
        assert!(run.stdout.contains(&secret.id().to_string()), "{run:?}");
        assert!(!run.stdout.contains(random) && !run.stderr.contains(random), "{run:?}");
    }
    let table: Vec<&str> = later[0].stdout.lines().collect();
    for word in ["ID", "STATE", "TENANT", "CALLER", "RIGHTS", "RATE", "EXPIRES", "LABEL"] {
        assert!(table[0].contains(word), "{table:?}");
    }
    for word in ["active", "default", "agent", "call", "100/s", "ada", "Büro 3"] {
        assert!(table[1].contains(word), "{word}: {table:?}");
    }
    let revoked = lab.json(&["tokens", "revoke", &secret.id().to_string()]);
    let bytes = bytes_on_disk(lab.dir.path());
    assert!(holds(&bytes, secret.id().to_string().as_bytes()), "the id is there: this looks at the right files");
    let raw: Vec<u8> = (0..64).step_by(2).map(|at| u8::from_str_radix(&random[at..at + 2], 16).unwrap()).collect();
    for part in [random.as_bytes(), &raw, secret.digest().to_string().as_bytes(), &secret.digest().0] {
        assert!(!holds(&bytes, part), "neither the secret nor what could be presented to find it");
    }
    assert!(!revoked.stdout.contains(random));
}

#[test]
fn a_token_says_what_was_asked_for() {
    let lab = Lab::new(&format!("tenant: acme\n{}", crate::lab::charge("")));
    let (bare, _) = created(&lab, &["--caller", "a"]);
    assert_eq!((&bare["tenant"], &bare["rights"], &bare["state"]), (&json!("acme"), &json!(["call"]), &json!("active")));
    assert_eq!(
        (&bare["expires"], &bare["rate"], &bare["label"], &bare["revoked"]),
        (&Value::Null, &Value::Null, &Value::Null, &Value::Null)
    );
    let full = ["--tenant", "globex", "--caller", "b", "--rights", "operate", "--label", "l", "--expires", "12h", "--rate", "1000/m"];
    let (full, _) = created(&lab, &[&full[..], &["--by", "ada", "--why", "new office"]].concat());
    assert_eq!((&full["tenant"], &full["rights"], &full["rate"]), (&json!("globex"), &json!(["call", "operate"]), &json!("1000/m")));
    assert_eq!((&full["created"]["by"], &full["created"]["why"]), (&json!("ada"), &json!("new office")));
    let mut expected = [bare, full];
    for token in &mut expected {
        token.as_object_mut().unwrap().remove("secret");
    }
    assert_eq!(listed(&lab), expected, "of all tenants, and without the secret");
    // A tenant's effects are no place to meet a token.
    assert_eq!(lab.json(&["effects", "list"]).at("/effects"), json!([]));
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_is_made() {
    let lab = Lab::charging("");
    let long = "x".repeat(300);
    for (args, code, names) in [
        (&["--rights", "root"][..], "invalid_rights", &["--rights", "\"root\"", "call, operate and admin"][..]),
        (&["--rights", "call,"], "invalid_rights", &["call, operate and admin"]),
        (&["--rights", ""], "invalid_rights", &["call, operate and admin"]),
        (&["--expires", "30"], "invalid_age", &["--expires", "30s"]),
        (&["--expires", "soon"], "invalid_age", &["--expires", "7d"]),
        (&["--expires", "0s"], "invalid_age", &["never"]),
        (&["--rate", "100"], "invalid_rate", &["--rate", "100/s"]),
        (&["--rate", "0/s"], "invalid_rate", &["--rate"]),
        (&["--tenant", ""], "invalid_name", &["--tenant", "empty"]),
        (&["--label", "a\nb"], "invalid_name", &["--label", "control"]),
        (&["--label", &long], "invalid_name", &["--label", "255"]),
    ] {
        let run = lab.json(&[&["tokens", "create", "--caller", "a"], args].concat()).error(EXIT_USAGE, code);
        let message = run.text("/error/message");
        for name in names.iter().chain(&["nothing was created"]) {
            assert!(message.contains(name), "says nothing of {name:?}: {message}");
        }
    }
    assert_eq!(lab.run(&["tokens", "create"]).code, EXIT_USAGE, "a caller is needed");
    assert!(!lab.ledger().exists(), "not even a ledger");
    lab.make_ledger();
    assert_eq!(listed(&lab), [] as [Value; 0]);
}

#[test]
fn revoking_names_one_token_or_changes_nothing() {
    let lab = Lab::charging("");
    let unknown = |id: &str| lab.json(&["tokens", "revoke", id]);
    lab.make_ledger();
    unknown("0123456789ab").error(EXIT_REFUSED, "not_found");
    let (token, secret) = created(&lab, &["--caller", "a"]);
    let id = token["id"].as_str().unwrap();
    unknown(if id.starts_with("0000") { "1111" } else { "0000" }).error(EXIT_REFUSED, "not_found");
    // Someone pastes the secret with a slip: it is not repeated.
    let slip = unknown(&format!("{secret}x")).error(EXIT_USAGE, "invalid_key");
    assert!(!slip.stdout.contains(&secret) && !slip.stderr.contains(&secret), "{slip:?}");
    unknown("abc").error(EXIT_USAGE, "invalid_key");
    assert_eq!(listed(&lab)[0]["state"], "active");
    let first = lab.json(&["tokens", "revoke", &id[..8], "--by", "ada", "--why", "leaked"]);
    assert_eq!((first.code, first.at("/state"), first.at("/revoked/by")), (EXIT_DONE, json!("revoked"), json!("ada")), "{first:?}");
    let again = lab.run(&["tokens", "revoke", id, "--by", "bob"]);
    assert_eq!(again.code, EXIT_DONE);
    assert!(again.stderr.starts_with(&format!("{id} was revoked by ada at ")), "{}", again.stderr);
    assert_eq!(listed(&lab)[0]["revoked"]["why"], "leaked");
}

/// Someone else has the ledger open all the while, as a server does.
#[tokio::test(flavor = "multi_thread")]
async fn commands_work_beside_a_process_that_has_the_ledger_open() {
    let lab = Lab::charging("");
    let runtime = lab.runtime().await;
    let tokens = Tokens::new(&runtime);
    assert!(!tokens.any_exist().await.unwrap());
    let (made, secret) = created(&lab, &["--caller", "agent", "--rights", "operate"]);
    assert!(tokens.any_exist().await.unwrap());
    let presented = tokens.authenticate(&secret).await.unwrap().expect("known at once");
    assert_eq!((presented.caller.as_str(), presented.allows(Right::Operate), presented.allows(Right::Admin)), ("agent", true, false));
    let revoked: Run = lab.json(&["tokens", "revoke", made["id"].as_str().unwrap()]);
    assert_eq!(revoked.code, EXIT_DONE, "{revoked:?}");
    // One that has remembered nothing knows at once; one that has, within the second (see the runtime's own tests).
    assert_eq!(Tokens::new(&runtime).authenticate(&secret).await.unwrap(), None);
    assert!(!tokens.any_exist().await.unwrap());
    lab.call("charge", "{}", "k").done();
    assert_eq!(lab.world.acted("/charge"), 1);
}

#[test]
fn the_help_teaches() {
    let lab = Lab::charging("");
    let help = lab.run(&["tokens", "--help"]).stdout;
    for line in ["counterfoil tokens create --caller", "only a digest", "To rotate"] {
        assert!(help.contains(line), "{help}");
    }
}
