//! What clients saw: operations with the moments between which they must have taken effect.
//!
//! An operation without an answer has an unknown outcome: its client went away, or the server was killed. It may take effect at any
//! moment after its invocation, or never. An operation that certainly never reached the server is not in a history at all.

use std::sync::Arc;

/// Short, shared text: keys, versions, arguments. Cloned into every configuration of a search.
pub type Text = Arc<str>;

/// A place in the one order of all invocations and answers of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Decides the order. Equal ticks count as concurrent.
    pub tick: u64,
    /// Since the recorder began. For people who compare a report with a server's log; decides nothing.
    pub micros: u64,
}

impl Moment {
    /// For histories written by hand.
    pub fn at(tick: u64) -> Self {
        Self { tick, micros: tick }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation<O, R> {
    pub client: u32,
    /// What it was done to. Operations on different keys are checked apart from each other.
    pub key: Text,
    pub op: O,
    pub invoked: Moment,
    /// `None`: the outcome is unknown.
    pub answer: Option<(Moment, R)>,
}
