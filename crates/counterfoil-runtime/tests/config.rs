//! The config reader as other crates see it: load a file, use what it says, show what is wrong with it.

use std::path::Path;
use std::time::Duration;

use counterfoil_core::ids::Digest32;
use counterfoil_core::{CanonicalJson, Outcome};
use counterfoil_runtime::Mode;
use counterfoil_runtime::config::{Config, ConfigErrors, Environment, FILE_NAME, STARTER};
use counterfoil_runtime::tool::Invocation;
use counterfoil_runtime::tools::build;
use serde_json::{Value, json};

fn starter_in(dir: &Path) -> Config {
    let path = dir.join(FILE_NAME);
    std::fs::write(&path, STARTER).expect("the starter is written");
    Config::load(&path).unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn everything_lies_beside_the_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = starter_in(dir.path());
    assert_eq!(config.mode, Mode::Enforce);
    assert_eq!(config.store, format!("sqlite:{}", dir.path().join("counterfoil.db").display()));
}

#[tokio::test]
async fn the_starter_does_what_it_says() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = starter_in(dir.path());
    let call = async |name: &str, args: Value| {
        let spec = config.tools.iter().find(|tool| tool.name.as_str() == name).expect("the starter has it");
        let (_, tool) = build(spec).expect("what was read can be built").remove(0);
        let outcome = tool.invoke(Invocation {
            tool: spec.name.clone(),
            tenant: config.tenant.clone(),
            key: Digest32::of(name.as_bytes()),
            attempt: 1,
            run: None,
            args: CanonicalJson::from_value(&args).expect("plain arguments"),
            timeout: Duration::from_secs(5),
            result_bytes_max: 1 << 20,
            stop: Default::default(),
            trace: None,
        });
        match outcome.await {
            Outcome::Done(success) => success.result.to_value(),
            other => panic!("{name}: {other:?}"),
        }
    };
    call("write_note", json!({ "name": "hello", "text": "hi" })).await;
    assert_eq!(std::fs::read_to_string(dir.path().join("notes/hello.txt")).expect("the note"), "hi");
    let today = call("today", json!({})).await;
    assert_eq!(today.as_str().map(str::len), Some("2026-01-01".len()), "{today}");
    call("remove_note", json!({ "name": "hello" })).await;
    assert!(!dir.path().join("notes/hello.txt").exists());
}

#[test]
fn mistakes_are_an_error_like_any_other() {
    let errors = Config::parse("mode: enforced\ntols: {}\n", FILE_NAME, &Environment::default()).unwrap_err();
    fn is_error<E: std::error::Error + Send + Sync + 'static>(_: &E) {}
    is_error::<ConfigErrors>(&errors);
    assert_eq!(errors.mistakes().len(), 2);
    let json = serde_json::to_value(&errors).expect("plain data");
    assert_eq!(json["file"], FILE_NAME);
    assert_eq!(json["mistakes"][1]["line"], 2);
    assert_eq!(json["mistakes"][1]["path"], "tols");
    assert_eq!(json["mistakes"][1]["suggestion"], "tools");
}
