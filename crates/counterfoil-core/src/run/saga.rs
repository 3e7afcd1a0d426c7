//! What is to be undone, and how far that has come.
//!
//! What was done is undone in the reverse of the order in which it was committed, one after the other; one that cannot be undone does not stop the
//! rest. What may have happened is on the list too: whoever works on it first finds out.

use std::collections::BTreeMap;

use super::entry::Undone;
use crate::ids::StepPath;
use crate::outcome::Failure;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saga {
    /// `None`: the whole run.
    pub scope: Option<StepPath>,
    pub by: String,
    pub why: String,
    /// In the order in which they are undone.
    pub of: Vec<StepPath>,
    /// Those that were dealt with.
    pub dealt: BTreeMap<StepPath, Result<Undone, Failure>>,
    /// All before this one were dealt with.
    at: usize,
}

impl Saga {
    pub fn new(scope: Option<StepPath>, by: String, why: String, of: Vec<StepPath>) -> Self {
        Self { scope, by, why, of, dealt: BTreeMap::new(), at: 0 }
    }

    /// What is to be undone next.
    pub fn next(&self) -> Option<&StepPath> {
        self.of.get(self.at)
    }

    pub fn is_over(&self) -> bool {
        self.next().is_none()
    }

    /// Those that could not be undone.
    pub fn failed(&self) -> impl Iterator<Item = (&StepPath, &Failure)> {
        self.dealt.iter().filter_map(|(step, how)| how.as_ref().err().map(|failure| (step, failure)))
    }

    /// False: it is not on the list.
    pub(super) fn deal(&mut self, step: &StepPath, how: Result<Undone, Failure>) -> bool {
        if !self.of.contains(step) {
            return false;
        }
        self.dealt.insert(step.clone(), how);
        while self.next().is_some_and(|next| self.dealt.contains_key(next)) {
            self.at += 1;
        }
        true
    }
}
