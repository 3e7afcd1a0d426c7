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

    /// Whether `op` can be answered so with just these other operations under way at the same time: for answers that speak of that, and
    /// not of the state.
    fn is_possible_beside(&self, _op: &Self::Op, _ret: &Self::Ret, _others: &[&Self::Op]) -> bool {
        true
    }

    /// The first half of `op`, where others can see it before the rest: a claim before its outcome. It is put in order like an
    /// operation of its own whose outcome is unknown.
    fn beginning(&self, _op: &Self::Op) -> Option<Self::Op> {
        None
    }

    /// Whether the two do the same in every state, whatever they answer. Of such operations the first invoked is tried first, and
    /// the others only after it. Equal operations are; a model may know of more.
    fn are_alike(&self, one: &Self::Op, other: &Self::Op) -> bool {
        one == other
    }

    /// The same model for a history of just these operations and answers. May leave out of its state what none of them can see: states
    /// that differ in nothing visible are then one, and the search is shorter by that much.
    fn narrowed(&self, _history: &[(&Self::Op, Option<&Self::Ret>)]) -> Self {
        self.clone()
    }
}
