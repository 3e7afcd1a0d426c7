//! What one key promises, as a sequential machine.

use std::fmt::Display;
use std::hash::Hash;

/// Several next states mean that an implementation may choose. No next state means that the answer is impossible there.
pub trait Model: Clone {
    type Op: Clone + Eq + Display;
    type Ret: Clone + Eq + Display;
    type State: Clone + Eq + Hash + Display;

    fn init(&self) -> Self::State;

    /// Every state in which `op` may leave the key when it answers `ret`; with `None`, whatever it would have answered.
    fn step(&self, state: &Self::State, op: &Self::Op, ret: Option<&Self::Ret>) -> Vec<Self::State>;

    /// Whether `op` with this answer, in `state` and in every state that any operations could lead to from there, changes nothing
    /// where it fits. Such an operation is put in order as soon as it fits. False is always right, and slower.
    fn is_passive(&self, _state: &Self::State, _op: &Self::Op, _ret: &Self::Ret) -> bool {
        false
    }

    /// The same model for a history of just these operations. May leave out of its state what none of them can see: states that
    /// differ in nothing visible are then one, and the search is shorter by that much.
    fn narrowed(&self, _ops: &[&Self::Op]) -> Self {
        self.clone()
    }
}
