//! One named tool that is registered over HTTP: put, get, delete, with idempotency keys.
//!
//! What the server remembers of a key is part of the state: the same key and payload again gives the first answer and changes nothing,
//! another payload is refused. A key belongs to one method: a delete with a put's key is another request. What is refused is not
//! remembered, and `NotFound` of a delete is a refusal: the same request sent later may delete. Keys must not be shared between tools, or
//! else the tools cannot be checked apart from each other.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::mem::discriminant;
use std::sync::Arc;

use crate::history::Text;
use crate::model::Model;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Op {
    Put { version: Text, key: Option<Text> },
    Get,
    Delete { key: Option<Text> },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Ret {
    Fresh(Answer),
    /// Marked as a replay: what the first use of the key was answered.
    Replayed(Answer),
    /// 422: the key was used with another payload.
    Mismatch,
    /// 409: a request with this key is under way. Says nothing of the state: one that is recorded may not be answered yet.
    InFlight,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Answer {
    /// With the version that the body names.
    Created(Text),
    Updated(Text),
    Found(Text),
    Deleted,
    NotFound,
}

/// A key as the server knows it: of one method.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot {
    pub deletes: bool,
    pub key: Text,
}

/// A payload, without its key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Payload {
    Put(Text),
    Delete,
}

#[derive(Debug, Clone, Default)]
pub struct Resource {
    /// `None`: everything can be seen.
    visible: Option<Arc<Visible>>,
}

#[derive(Debug)]
struct Visible {
    /// More than one operation uses them. What is remembered of a key that is used once is never seen.
    slots: HashSet<Slot>,
    /// Some reader found them. All others are one and the same to everybody.
    versions: HashSet<Text>,
    unseen: Text,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct State {
    pub version: Option<Text>,
    /// Shared: most steps leave it as it is.
    pub remembered: Arc<BTreeMap<Slot, (Payload, Answer)>>,
}

impl Model for Resource {
    type Op = Op;
    type Ret = Ret;
    type State = State;

    fn init(&self) -> State {
        State::default()
    }

    fn step(&self, state: &State, op: &Op, ret: Option<&Ret>) -> Vec<State> {
        let (expected, next) = match op {
            Op::Get => {
                let found = state.version.clone().map_or(Answer::NotFound, Answer::Found);
                (Ret::Fresh(found), state.clone())
            }
            Op::Put { version, .. } => self.write(state, op.slot(), Payload::Put(version.clone())),
            Op::Delete { .. } => self.write(state, op.slot(), Payload::Delete),
        };
        match ret {
            Some(Ret::InFlight) if op.key().is_some() => vec![state.clone()],
            Some(ret) if *ret != expected => Vec::new(),
            _ => vec![next],
        }
    }

    fn is_passive(&self, _state: &State, op: &Op, ret: &Ret) -> bool {
        matches!((op, ret), (Op::Get, _) | (_, Ret::Replayed(_) | Ret::Mismatch | Ret::InFlight))
    }

    fn is_possible_beside(&self, op: &Op, ret: &Ret, others: &[&Op]) -> bool {
        *ret != Ret::InFlight || op.slot().is_some_and(|slot| others.iter().any(|other| other.slot().as_ref() == Some(&slot)))
    }

    fn are_alike(&self, one: &Op, other: &Op) -> bool {
        let shown = |op: &Op| (self.version_after(op), op.slot().filter(|slot| self.is_watched(slot)));
        one == other || (discriminant(one) == discriminant(other) && shown(one) == shown(other) && shown(one).1.is_none())
    }

    fn narrowed(&self, history: &[(&Op, Option<&Ret>)]) -> Self {
        let mut uses: HashMap<Slot, usize> = HashMap::new();
        for slot in history.iter().filter_map(|(op, _)| op.slot()) {
            *uses.entry(slot).or_default() += 1;
        }
        let slots = uses.into_iter().filter(|(_, uses)| *uses > 1).map(|(slot, _)| slot).collect();
        let found = |ret: Option<&Ret>| if let Some(Ret::Fresh(Answer::Found(version))) = ret { Some(version.clone()) } else { None };
        let versions = history.iter().filter_map(|(_, ret)| found(*ret)).collect();
        Self { visible: Some(Arc::new(Visible { slots, versions, unseen: UNSEEN.into() })) }
    }
}

/// Stands for every version that nobody read. A `Found` of just this text would be taken for any of them: no workload writes it.
const UNSEEN: &str = "(some version)";

impl Resource {
    fn write(&self, state: &State, slot: Option<Slot>, payload: Payload) -> (Ret, State) {
        if let Some((first, answer)) = slot.as_ref().and_then(|slot| state.remembered.get(slot)) {
            let ret = if *first == payload { Ret::Replayed(answer.clone()) } else { Ret::Mismatch };
            return (ret, state.clone());
        }
        let (answer, version) = match (&payload, &state.version) {
            (Payload::Put(version), None) => (Answer::Created(version.clone()), Some(self.shown(version))),
            (Payload::Put(version), Some(_)) => (Answer::Updated(version.clone()), Some(self.shown(version))),
            (Payload::Delete, Some(_)) => (Answer::Deleted, None),
            (Payload::Delete, None) => (Answer::NotFound, None),
        };
        let mut next = State { version, remembered: state.remembered.clone() };
        if let Some(slot) = slot.filter(|slot| answer != Answer::NotFound && self.is_watched(slot)) {
            Arc::make_mut(&mut next.remembered).insert(slot, (payload, answer.clone()));
        }
        (Ret::Fresh(answer), next)
    }

    fn is_watched(&self, slot: &Slot) -> bool {
        self.visible.as_ref().is_none_or(|visible| visible.slots.contains(slot))
    }

    fn shown(&self, version: &Text) -> Text {
        match &self.visible {
            Some(visible) if !visible.versions.contains(version) => visible.unseen.clone(),
            _ => version.clone(),
        }
    }

    fn version_after(&self, op: &Op) -> Option<Text> {
        if let Op::Put { version, .. } = op { Some(self.shown(version)) } else { None }
    }
}

impl Op {
    pub fn key(&self) -> Option<&Text> {
        match self {
            Op::Put { key, .. } | Op::Delete { key } => key.as_ref(),
            Op::Get => None,
        }
    }

    pub fn slot(&self) -> Option<Slot> {
        self.key().map(|key| Slot { deletes: matches!(self, Op::Delete { .. }), key: key.clone() })
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Put { version, .. } => write!(f, "put {version}")?,
            Op::Get => f.write_str("get")?,
            Op::Delete { .. } => f.write_str("delete")?,
        }
        self.key().map_or(Ok(()), |key| write!(f, " (key {key})"))
    }
}

impl fmt::Display for Ret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ret::Fresh(answer) => answer.fmt(f),
            Ret::Replayed(answer) => write!(f, "replayed {answer}"),
            Ret::Mismatch => f.write_str("key reuse mismatch"),
            Ret::InFlight => f.write_str("in flight"),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Created(version) => write!(f, "created {version}"),
            Answer::Updated(version) => write!(f, "updated {version}"),
            Answer::Found(version) => write!(f, "found {version}"),
            Answer::Deleted => f.write_str("deleted"),
            Answer::NotFound => f.write_str("not found"),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Some(version) => write!(f, "holds {version}")?,
            None => f.write_str("absent")?,
        }
        if !self.remembered.is_empty() {
            let keys: Vec<_> = self.remembered.iter().map(|(slot, (_, answer))| format!("{}: {answer}", slot.key)).collect();
            write!(f, ", remembers {}", keys.join(", "))?;
        }
        Ok(())
    }
}
