//! The search for an order of one key's operations that explains every answer (Wing & Gong; Lowe's just-in-time linearization).
//!
//! A configuration is: which answered operations are in the order so far, which of unknown outcome, and the state they lead to. The
//! *frontier* is the earliest answer that is not yet explained: whatever comes next in the order must have been invoked before it. What
//! keeps the search small, none of which may lose an order that exists:
//!
//! - an answered operation that fits and of which the model says that it is passive is taken at once: later it could only fit less;
//! - one of unknown outcome is taken only if it changes the state, and of those that are alike the first invoked first;
//! - of two configurations with the same answered operations and the same state, the one that used a subset of the unknown
//!   operations can do all that the other can: the other is not looked at.

use std::collections::HashMap;

use super::Limit;
use super::bits::Bits;
use crate::history::Operation;
use crate::model::Model;

pub type OperationOf<M> = Operation<<M as Model>::Op, <M as Model>::Ret>;

pub struct Search<'a, M: Model> {
    model: &'a M,
    /// By answer, earliest first.
    pub answered: Vec<&'a OperationOf<M>>,
    /// By invocation, earliest first.
    pub unknown: Vec<&'a OperationOf<M>>,
    /// Per frontier: later answers whose operation was invoked before it.
    overlapping: Vec<Vec<usize>>,
    /// Per frontier: how many operations of unknown outcome were invoked before it.
    begun: Vec<usize>,
    /// Per operation of unknown outcome: the one like it invoked before it, to be used first.
    elder: Vec<Option<usize>>,
}

pub enum Found {
    Linearizable,
    Stuck(Stuck),
    /// So many configurations were held.
    GaveUp(usize),
}

/// Where every order ends that is not contradicted earlier.
#[derive(Default)]
pub struct Stuck {
    /// The answer that nothing explains: an index into `answered`.
    pub frontier: usize,
    /// The longest order that leads there.
    pub path: Vec<Taken>,
    /// The state after `path`, then some others in which the answer was tried.
    pub states: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    Answered(usize),
    Unknown(usize),
}

/// Enough for a reader to see what is wrong.
const STATES_SHOWN: usize = 6;

struct Configuration<S> {
    frontier: usize,
    answered: Bits,
    unknown: Bits,
    state: S,
    /// How long the path was before this configuration's own operations were added.
    path_len: usize,
}

/// A configuration on the current path, with what is still to be tried after it; the next is last.
struct Frame<S> {
    at: Configuration<S>,
    choices: Vec<(Taken, S)>,
    path_len: usize,
}

impl<'a, M: Model> Search<'a, M> {
    pub fn new(model: &'a M, operations: &[&'a OperationOf<M>]) -> Self {
        let (mut answered, mut unknown): (Vec<_>, Vec<_>) = operations.iter().copied().partition(|operation| operation.answer.is_some());
        answered.sort_by_key(|operation| answered_at(operation));
        unknown.sort_by_key(|operation| operation.invoked.tick);
        let overlapping = (0..answered.len())
            .map(|frontier| {
                let end = answered_at(answered[frontier]);
                (frontier + 1..answered.len()).filter(|later| answered[*later].invoked.tick <= end).collect()
            })
            .collect();
        let begun = answered.iter().map(|o| unknown.partition_point(|u| u.invoked.tick <= answered_at(o))).collect();
        let elder = (0..unknown.len())
            .map(|index| (0..index).rev().find(|elder| model.are_alike(&unknown[*elder].op, &unknown[index].op)))
            .collect();
        Self { model, answered, unknown, overlapping, begun, elder }
    }

    /// An answer that no order can explain, because it speaks of others that are not there.
    fn impossible(&self) -> Option<usize> {
        (0..self.answered.len()).find(|index| {
            let operation = self.answered[*index];
            let others: Vec<_> =
                self.answered.iter().chain(&self.unknown).filter(|other| overlap(operation, other)).map(|o| &o.op).collect();
            operation.answer.as_ref().is_some_and(|(_, ret)| !self.model.is_possible_beside(&operation.op, ret, &others))
        })
    }

    /// Depth first, on a stack of its own: a history may be longer than the thread's stack is deep.
    pub fn run(&self, limit: Limit) -> Found {
        if let Some(frontier) = self.impossible() {
            return Found::Stuck(Stuck { frontier, path: Vec::new(), states: vec!["nothing under way that it speaks of".into()] });
        }
        let mut seen: HashMap<(Bits, M::State), Vec<Bits>> = HashMap::new();
        let mut held = 0;
        let mut stuck = Stuck::default();
        let mut path = Vec::new();
        let mut stack: Vec<Frame<M::State>> = Vec::new();
        let mut next = Some(Configuration {
            frontier: 0,
            answered: Bits::empty(self.answered.len()),
            unknown: Bits::empty(self.unknown.len()),
            state: self.model.init(),
            path_len: 0,
        });
        loop {
            if let Some(mut at) = next.take() {
                self.take_what_fits(&mut at, &mut path);
                if at.frontier == self.answered.len() {
                    return Found::Linearizable;
                }
                if is_new(&mut seen, &at) {
                    held += 1;
                    if held > limit.configurations {
                        return Found::GaveUp(held);
                    }
                    note(&mut stuck, &at, &path);
                    let choices = self.choices(&at);
                    let path_len = path.len();
                    stack.push(Frame { at, choices, path_len });
                } else {
                    path.truncate(at.path_len);
                }
            }
            let Some(frame) = stack.last_mut() else { return Found::Stuck(stuck) };
            path.truncate(frame.path_len);
            match frame.choices.pop() {
                Some((taken, state)) => next = Some(frame.at.after(taken, state, &mut path)),
                None => {
                    stack.pop();
                }
            }
        }
    }

    /// Takes every answered operation that fits here and is passive, and moves the frontier past what is explained.
    fn take_what_fits(&self, at: &mut Configuration<M::State>, path: &mut Vec<Taken>) {
        loop {
            while at.frontier < self.answered.len() && at.answered.contains(at.frontier) {
                at.frontier += 1;
            }
            if at.frontier == self.answered.len() {
                return;
            }
            let before = path.len();
            for index in self.takeable(at) {
                if self.is_passive(&at.state, index) && !self.after(&at.state, index).is_empty() {
                    at.answered.insert(index);
                    path.push(Taken::Answered(index));
                }
            }
            if path.len() == before {
                return;
            }
        }
    }

    /// What may come next, the most promising last.
    fn choices(&self, at: &Configuration<M::State>) -> Vec<(Taken, M::State)> {
        let answered = self.takeable(at).into_iter().flat_map(|index| {
            let states = self.after(&at.state, index);
            states.into_iter().map(move |state| (Taken::Answered(index), state))
        });
        let unknown = (0..self.begun[at.frontier])
            .filter(|index| !at.unknown.contains(*index) && self.elder[*index].is_none_or(|elder| at.unknown.contains(elder)))
            .flat_map(|index| {
                let states = self.model.step(&at.state, &self.unknown[index].op, None);
                states.into_iter().map(move |state| (Taken::Unknown(index), state))
            });
        let mut choices: Vec<_> = answered.chain(unknown.filter(|(_, state)| *state != at.state)).collect();
        // The frontier itself first; then what lets it follow at once; among equals answered ones first, by their answers.
        choices.sort_by_cached_key(|(taken, state)| match taken {
            Taken::Answered(index) if *index == at.frontier => 0,
            _ if !self.after(state, at.frontier).is_empty() => 1,
            _ => 2,
        });
        choices.reverse();
        choices
    }

    /// Answered operations, not yet taken, that were invoked before the frontier's answer.
    fn takeable(&self, at: &Configuration<M::State>) -> Vec<usize> {
        let candidates = std::iter::once(at.frontier).chain(self.overlapping[at.frontier].iter().copied());
        candidates.filter(|index| !at.answered.contains(*index)).collect()
    }

    fn after(&self, state: &M::State, index: usize) -> Vec<M::State> {
        let operation = self.answered[index];
        self.model.step(state, &operation.op, operation.answer.as_ref().map(|(_, ret)| ret))
    }

    fn is_passive(&self, state: &M::State, index: usize) -> bool {
        let operation = self.answered[index];
        operation.answer.as_ref().is_some_and(|(_, ret)| self.model.is_passive(state, &operation.op, ret))
    }

    pub fn operation(&self, taken: Taken) -> &'a OperationOf<M> {
        match taken {
            Taken::Answered(index) => self.answered[index],
            Taken::Unknown(index) => self.unknown[index],
        }
    }
}

impl<S: Clone> Configuration<S> {
    fn after(&self, taken: Taken, state: S, path: &mut Vec<Taken>) -> Self {
        let mut next =
            Self { frontier: self.frontier, answered: self.answered.clone(), unknown: self.unknown.clone(), state, path_len: path.len() };
        match taken {
            Taken::Answered(index) => next.answered.insert(index),
            Taken::Unknown(index) => next.unknown.insert(index),
        }
        path.push(taken);
        next
    }
}

/// Whether nothing that was looked at before can do all that this one can.
fn is_new<S: Clone + Eq + std::hash::Hash>(seen: &mut HashMap<(Bits, S), Vec<Bits>>, at: &Configuration<S>) -> bool {
    let used = seen.entry((at.answered.clone(), at.state.clone())).or_default();
    if used.iter().any(|before| before.is_subset(&at.unknown)) {
        return false;
    }
    used.retain(|before| !at.unknown.is_subset(before));
    used.push(at.unknown.clone());
    true
}

fn note<S: std::fmt::Display>(stuck: &mut Stuck, at: &Configuration<S>, path: &[Taken]) {
    let further = at.frontier > stuck.frontier || stuck.states.is_empty();
    if further {
        *stuck = Stuck { frontier: at.frontier, path: path.to_vec(), states: vec![at.state.to_string()] };
        return;
    }
    if at.frontier < stuck.frontier {
        return;
    }
    let longer = path.len() > stuck.path.len();
    if longer {
        stuck.path = path.to_vec();
    }
    // The state after the path stays the first, however many others there were.
    if longer || stuck.states.len() < STATES_SHOWN {
        let state = at.state.to_string();
        stuck.states.retain(|known| *known != state || !longer);
        match longer {
            true => stuck.states.insert(0, state),
            false if !stuck.states.contains(&state) => stuck.states.push(state),
            false => {}
        }
        stuck.states.truncate(STATES_SHOWN);
    }
}

fn answered_at<O, R>(operation: &Operation<O, R>) -> u64 {
    operation.answer.as_ref().expect("only answered operations are asked").0.tick
}

/// Whether both were under way at some moment. Nothing overlaps itself.
pub fn overlap<O, R>(one: &Operation<O, R>, other: &Operation<O, R>) -> bool {
    let begun = |a: &Operation<O, R>, b: &Operation<O, R>| b.answer.as_ref().is_none_or(|(end, _)| a.invoked.tick <= end.tick);
    !std::ptr::eq(one, other) && begun(one, other) && begun(other, one)
}
