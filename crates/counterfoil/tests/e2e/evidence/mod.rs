//! I. Receipts, bundles, the log and its keys: what those who were not there can check, and how changes behind the program's back show.

mod bundles;
mod keys;
mod ledgers;
mod receipts;
mod sealing;
#[path = "../../../../counterfoil-evidence/tests/common/tamper.rs"]
mod tamper;

use std::path::Path;

use crate::lab::{EXIT_DONE, Lab, Run, command};

/// The public key that this lab's ledger is signed with now.
pub fn public_key(lab: &Lab) -> String {
    let shown = lab.json(&["keys", "show"]);
    let keys = shown.at("/keys");
    let signs = keys.as_array().expect("a list").iter().find(|key| key["signs"] == true);
    signs.and_then(|key| key["key"].as_str()).unwrap_or_else(|| panic!("a key: {shown:?}")).to_owned()
}

/// Verified where there is neither a config nor a ledger.
pub fn verified_elsewhere(file: &Path, key: &str) -> Run {
    let nowhere = tempfile::tempdir().expect("a temporary directory");
    let file = file.to_str().expect("a path");
    let run = Run::of(command(nowhere.path(), &["receipts", "verify", file, "--key", key, "--json"]).output().expect("the binary runs"));
    assert!(nowhere.path().read_dir().expect("the directory").next().is_none(), "nothing was made to verify: {run:?}");
    run
}

/// Exported from the lab's ledger.
pub fn exported(lab: &Lab, args: &[&str], name: &str) -> String {
    let run = lab.json(&[&["receipts", "export"], args, &["-o", name]].concat());
    assert_eq!(run.code, EXIT_DONE, "{run:?}");
    std::fs::read_to_string(lab.path(name)).expect("the bundle")
}
