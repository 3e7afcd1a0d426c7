//! The config reader as other crates see it: load a file, use what it says, show what is wrong with it.

use counterfoil_runtime::config::{Config, ConfigErrors, Environment, FILE_NAME, Mode, STARTER};
use counterfoil_runtime::spec::Action;

#[test]
fn init_then_load() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join(FILE_NAME);
    std::fs::write(&path, STARTER).expect("the starter is written");
    let config = Config::load(&path).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(config.mode, Mode::Enforce);
    // Everything lies beside the file, wherever the process was started.
    assert_eq!(config.store, format!("sqlite:{}", dir.path().join("counterfoil.db").display()));
    let note = config.tools.iter().find(|tool| tool.name.as_str() == "write_note").expect("the starter has it");
    assert!(matches!(&note.action, Action::File(file) if file.root == dir.path().join("notes")));
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
