//! `confirm`: when what was done is held against the world again, and what follows if it no longer agrees. In tools and in workflow files.

use counterfoil_core::run::confirm::{Confirm, OnDrift, When};

use super::node::Value;
use super::read::Spot;

pub const CONFIRM: &[&str] = &["when", "mode"];

const WHEN: [(&str, When); 3] = [("never", When::Never), ("on_recovery", When::OnRecovery), ("always", When::Always)];
const MODE: [(&str, OnDrift); 3] = [("strict", OnDrift::Strict), ("warn", OnDrift::Warn), ("human", OnDrift::Human)];

/// A word is the short form of `when`.
pub fn read(spot: &Spot<'_>) -> Option<Confirm> {
    let Value::Map(_) = spot.node.value else {
        return Some(Confirm { when: Some(spot.choice(&WHEN)?), on_drift: None });
    };
    let fields = spot.fields(CONFIRM)?;
    let mut confirm = Confirm::default();
    fields.read("when", |s| s.choice(&WHEN).map(Some), &mut confirm.when);
    fields.read("mode", |s| s.choice(&MODE).map(Some), &mut confirm.on_drift);
    Some(confirm)
}
