//! Is a history linearizable, key by key?
//!
//! A history is linearizable when each of its keys is (P-compositionality), so each is searched apart. Three answers, and only one of
//! them is success: a search that reached its limit has shown nothing. [`Verdict::expect_linearizable`] is what tests call.

mod bits;
mod report;
mod search;

use std::collections::BTreeMap;
use std::fmt;

use crate::history::{Operation, Text};
use crate::model::Model;

pub use report::Report;
pub use search::overlap;
use search::{Found, OperationOf, Search};

/// Configurations that a search of one key may hold. Each is a state and two small sets, some hundred bytes: about 200 MB at worst.
pub const CONFIGURATIONS_MAX: usize = 500_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Per key.
    pub configurations: usize,
}

impl Default for Limit {
    fn default() -> Self {
        Self { configurations: CONFIGURATIONS_MAX }
    }
}

#[derive(Debug, Clone)]
#[must_use = "a violation or a search that gave up is found here, nowhere else"]
pub enum Verdict {
    Linearizable,
    Violation(Report),
    /// Neither shown nor disproven. Never to be counted as success.
    GaveUp {
        key: Text,
        configurations: usize,
    },
}

impl Verdict {
    pub fn is_linearizable(&self) -> bool {
        matches!(self, Verdict::Linearizable)
    }

    pub fn is_violation(&self) -> bool {
        matches!(self, Verdict::Violation(_))
    }

    /// Panics on anything but success, with the report. `context` names the seed.
    #[track_caller]
    pub fn expect_linearizable(self, context: impl fmt::Display) {
        if !self.is_linearizable() {
            panic!("{context}\n{self}");
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Linearizable => f.write_str("linearizable"),
            Verdict::Violation(report) => report.fmt(f),
            Verdict::GaveUp { key, configurations } => {
                write!(
                    f,
                    "key {key}: gave up after {configurations} configurations; nothing is shown. Fewer operations per key, or a higher limit."
                )
            }
        }
    }
}

/// A violation of any key comes first, then a key that gave up.
pub fn check<M: Model>(model: &M, history: &[Operation<M::Op, M::Ret>], limit: Limit) -> Verdict {
    let beginnings: Vec<_> = history.iter().filter_map(|operation| beginning(model, operation)).collect();
    let mut keys: BTreeMap<&Text, Vec<&OperationOf<M>>> = BTreeMap::new();
    for operation in history.iter().chain(&beginnings) {
        keys.entry(&operation.key).or_default().push(operation);
    }
    let mut gave_up = None;
    for (key, operations) in keys {
        let seen: Vec<_> = operations.iter().map(|o| (&o.op, o.answer.as_ref().map(|(_, ret)| ret))).collect();
        let model = model.narrowed(&seen);
        let search = Search::new(&model, &operations);
        match search.run(limit) {
            Found::Linearizable => {}
            Found::Stuck(stuck) => return Verdict::Violation(Report::new(key.clone(), &search, &stuck)),
            Found::GaveUp(configurations) => {
                gave_up.get_or_insert(Verdict::GaveUp { key: key.clone(), configurations });
            }
        }
    }
    gave_up.unwrap_or(Verdict::Linearizable)
}

/// Before what it begins in the order of invocations, at the same moment.
pub fn beginning<M: Model>(model: &M, operation: &OperationOf<M>) -> Option<OperationOf<M>> {
    let op = model.beginning(&operation.op)?;
    Some(Operation { client: operation.client, key: operation.key.clone(), op, invoked: operation.invoked, answer: None })
}
