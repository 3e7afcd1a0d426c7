//! The suite that every adapter passes: what the trait says, as checks that can fail.
//!
//! [`cases`] each take a new, empty store. [`differential`] runs random operations against an adapter and the
//! reference side by side. [`check_graves`] is for what carries whole ledgers. Everything is async and needs no runtime of its own; the adapter's tests bring one.
//! A failed check panics: this module is for tests, in this crate and in others.

mod appending;
pub mod differential;
mod fixture;
mod graves;
mod listing;
mod pruning;
mod rng;

use std::sync::Arc;

pub use self::graves::check_graves;
use crate::{Eventually, Store};

/// One check, by the name it is reported under.
#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    run: fn(Arc<dyn Store>) -> Eventually<'static, ()>,
}

impl Case {
    /// Panics when the store does not do what the trait says. The store must be new and empty.
    pub async fn check(self, store: Arc<dyn Store>) {
        (self.run)(store).await;
    }
}

/// Every check.
pub fn cases() -> Vec<Case> {
    [appending::CASES, listing::CASES, pruning::CASES].concat()
}

/// Runs every check, each on a new store.
pub async fn check_all(fresh: impl AsyncFn() -> Arc<dyn Store>) {
    for case in cases() {
        println!("conformance: {}", case.name);
        case.check(fresh().await).await;
    }
}
