//! Modes switched while programs run.

use std::time::{Duration, Instant};

use counterfoil_core::Mode;
use serde_json::json;

use crate::lab::{EXIT_DONE, EXIT_REFUSED, EXIT_USAGE, Lab, charge, library_call};

#[test]
fn a_105_shadow_lets_duplicates_pass_and_says_so() {
    let lab = Lab::charging("");
    lab.call("charge", "{}", "k").done();
    lab.call("charge", "{}", "k").replayed();
    let set = lab.json(&["mode", "set", "shadow", "--by", "ada", "--why", "trying it out"]);
    assert_eq!((set.code, set.at("/mode"), set.at("/from")), (EXIT_DONE, json!("shadow"), json!("switch")), "{set:?}");
    let let_through = lab.call("charge", "{}", "k").done();
    assert!(
        let_through.stderr.contains("would have been stopped") && let_through.stderr.contains("decision=\"replay\""),
        "{let_through:?}"
    );
    let other = lab.call("charge", "[1]", "k").done();
    assert!(other.stderr.contains("decision=\"refuse\""), "{other:?}");
    assert_eq!(lab.world.acted("/charge"), 3);
    let shown = lab.run(&["mode", "show"]);
    assert!(shown.stdout.contains("ada") && shown.stdout.contains("trying it out"), "{shown:?}");
    assert_eq!(lab.run(&["mode", "reset", "--why", "enough"]).code, EXIT_DONE);
    lab.call("charge", "{}", "k").replayed();
    assert_eq!(lab.world.acted("/charge"), 3);
}

#[test]
fn off_must_be_accepted_and_one_tool_is_one_tool() {
    let two = r#"
tools:
  charge: { http: { method: POST, url: "WORLD/charge", json: "${args}" } }
  mail: { mode: shadow, http: { method: POST, url: "WORLD/mail", json: "${args}" } }
"#;
    let lab = Lab::new(two);
    lab.json(&["mode", "set", "off"]).error(EXIT_USAGE, "duplicates_not_accepted");
    assert_eq!(lab.json(&["mode", "set", "shadow", "--tool", "chrge"]).code, EXIT_REFUSED);
    assert_eq!(lab.json(&["mode", "show"]).at("/0/switched"), json!(null), "nothing was switched");
    let set = ["mode", "set", "off", "--tool", "charge", "--i-accept-duplicates", "--why", "a new disk"];
    assert_eq!(lab.run(&set).code, EXIT_DONE);
    for tool in ["charge", "mail"] {
        lab.call(tool, "{}", "k").done();
        lab.call(tool, "{}", "k").done();
    }
    assert_eq!((lab.world.acted("/charge"), lab.world.acted("/mail")), (2, 2));
    assert_eq!(lab.listed("done").len(), 1, "off left no trace; shadow recorded the first");
    let all = lab.json(&["mode", "show"]);
    let of = |at: usize| (all.at(&format!("/{at}/tool")), all.at(&format!("/{at}/mode")), all.at(&format!("/{at}/from")));
    assert_eq!(of(0), (json!(null), json!("enforce"), json!("config")));
    assert_eq!(of(1), (json!("charge"), json!("off"), json!("tool_switch")));
    assert_eq!(of(2), (json!("mail"), json!("shadow"), json!("tool_config")));
}

/// The switch is made by one process; a program that has been running all the time follows.
#[tokio::test(flavor = "multi_thread")]
async fn a_switch_is_seen_by_another_process_within_two_seconds() {
    let lab = Lab::new(&charge(""));
    let runtime = lab.runtime().await;
    runtime.call(library_call("charge", json!({}), "k")).await;
    assert!(runtime.call(library_call("charge", json!({}), "k")).await.replayed);
    let tool = "charge".parse().unwrap();
    for (args, mode) in [(&["set", "shadow"][..], Mode::Shadow), (&["set", "enforce"], Mode::Enforce), (&["set", "shadow"], Mode::Shadow)] {
        assert_eq!(lab.run(&[&["mode"], args, &["--tool", "charge", "--why", "watching"]].concat()).code, EXIT_DONE);
        let began = Instant::now();
        while runtime.mode_of(&tool).await != mode {
            assert!(began.elapsed() < Duration::from_secs(2), "not told of {mode:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    assert!(!runtime.call(library_call("charge", json!({}), "k")).await.replayed);
    assert_eq!((lab.world.acted("/charge"), runtime.shadowed().replayed), (2, 1));
}
