//! One effect key of a tool that is never repeated (`repeat: never`), and what the world counted under it.
//!
//! An effect happens at most once. An answer that was lost is a doubt, and stays one until a late report or a person settles it. The
//! person of this model tells the truth: a workload must ask a world at rest before it lets one speak. `Observe` belongs at the end of
//! a history, when nothing is under way: in between, the world knows of an effect before its call is answered.
//!
//! | from ↓ / operation, answer → | leads to |
//! |---|---|
//! | absent, ready | claim → claimed. call: done (not replayed) → done; in doubt → doubt; pending → running |
//! | claimed       | call: as before; pending → claimed (another's work) or running (its own) |
//! | running       | call: done (replayed) → done; in doubt → doubt; pending. resolve: as in a doubt, or not in doubt |
//! | doubt         | call: in doubt; done (replayed, a late report) → done; unknown → reported. resolve: happened → done, did not happen → ready |
//! | reported      | call: done (replayed) → done. resolve: not in doubt |
//! | done          | call: done (replayed, the same result). resolve: not in doubt |
//!
//! A call with other arguments than the first is refused in every state but absent. Each call begins with a claim, which others can see
//! (by a refusal, by a pending) before its outcome. Running is what a call leaves behind that nobody was told the outcome of.

use std::fmt;

use crate::history::Text;
use crate::model::Model;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Op {
    Call {
        args: Text,
    },
    /// The first half of a call. The checker adds it; nobody records it.
    Claim {
        args: Text,
    },
    /// A person speaks.
    Resolve(Said),
    /// How often it happened, by the world's own count.
    Observe,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Said {
    /// With the result that the person recorded, if any.
    Happened {
        result: Option<u64>,
    },
    DidNotHappen,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Ret {
    /// `result`: what the world gave, from its own counter. `None` where a person recorded no result.
    Done {
        result: Option<u64>,
        replayed: bool,
    },
    InDoubt,
    /// 422: the key was used with other arguments.
    Mismatch,
    /// 409, or an answer that says it is still under way.
    Pending,
    Resolved,
    /// 404 or 409: there is no doubt to resolve.
    NotInDoubt,
    World(u64),
}

#[derive(Debug, Clone, Default)]
pub struct Invocation {
    /// Whether a doubt can never be left but by a late report: no operation of the history is a person's.
    unattended: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// Of the first use.
    pub args: Option<Text>,
    pub phase: Phase,
    pub world: World,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    Absent,
    /// By a call whose outcome is in the order later.
    Claimed,
    /// Taken on. May have become done or doubtful since, without anyone having seen it.
    Running,
    Doubt,
    /// A late report came in, and nobody has seen yet what it says.
    Reported,
    /// A person said that it did not happen: it may run.
    Ready,
    Done(Option<u64>),
}

/// How often it happened. Twice is in no state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum World {
    Zero,
    Perhaps,
    One,
}

impl Model for Invocation {
    type Op = Op;
    type Ret = Ret;
    type State = State;

    fn init(&self) -> State {
        State { args: None, phase: Phase::Absent, world: World::Zero }
    }

    fn step(&self, state: &State, op: &Op, ret: Option<&Ret>) -> Vec<State> {
        match op {
            Op::Call { args } => self.call(state, args, ret),
            Op::Claim { args } => vec![claim(state, args)],
            Op::Resolve(said) => resolve(state, said, ret),
            Op::Observe => observe(state, ret),
        }
    }

    fn is_passive(&self, state: &State, _op: &Op, ret: &Ret) -> bool {
        match (state.phase, ret) {
            // Nothing leads out of it.
            (Phase::Done(_), _) => true,
            (_, Ret::Mismatch | Ret::NotInDoubt) => true,
            // With a person about, both could belong to a second attempt.
            (Phase::Doubt, Ret::InDoubt) | (Phase::Running, Ret::Pending) => self.unattended,
            _ => false,
        }
    }

    fn beginning(&self, op: &Op) -> Option<Op> {
        match op {
            Op::Call { args } => Some(Op::Claim { args: args.clone() }),
            _ => None,
        }
    }

    fn narrowed(&self, history: &[(&Op, Option<&Ret>)]) -> Self {
        Self { unattended: !history.iter().any(|(op, _)| matches!(op, Op::Resolve(_))) }
    }
}

impl Invocation {
    fn call(&self, state: &State, args: &Text, ret: Option<&Ret>) -> Vec<State> {
        if state.args.as_ref().is_some_and(|first| first != args) {
            return if ret.is_none_or(|ret| *ret == Ret::Mismatch) { vec![state.clone()] } else { Vec::new() };
        }
        let to = |phase, world| State { args: Some(args.clone()), phase, world };
        let running = || to(Phase::Running, World::Perhaps);
        match (state.phase, ret) {
            (Phase::Absent | Phase::Ready | Phase::Claimed, Some(Ret::Done { result, replayed: false })) => {
                vec![to(Phase::Done(*result), World::One)]
            }
            (Phase::Absent | Phase::Ready | Phase::Claimed, Some(Ret::InDoubt)) => vec![to(Phase::Doubt, World::Perhaps)],
            (Phase::Absent | Phase::Ready, Some(Ret::Pending)) => vec![running()],
            (Phase::Claimed, Some(Ret::Pending)) => vec![state.clone(), running()],
            (Phase::Absent | Phase::Ready | Phase::Claimed, None) => vec![running()],
            (Phase::Running | Phase::Doubt | Phase::Reported, Some(Ret::Done { result, replayed: true })) => {
                vec![to(Phase::Done(*result), World::One)]
            }
            (Phase::Running | Phase::Doubt, Some(Ret::InDoubt)) => vec![to(Phase::Doubt, state.world)],
            (Phase::Running, Some(Ret::Pending)) => vec![state.clone()],
            (Phase::Done(first), Some(Ret::Done { result, replayed: true })) if first == *result => vec![state.clone()],
            // A late report that nobody was told of: only a person could come too late for it.
            (Phase::Doubt, None) if !self.unattended => vec![state.clone(), to(Phase::Reported, World::One)],
            (Phase::Running | Phase::Doubt | Phase::Reported | Phase::Done(_), None) => vec![state.clone()],
            _ => Vec::new(),
        }
    }
}

fn claim(state: &State, args: &Text) -> State {
    let free = matches!(state.phase, Phase::Absent | Phase::Ready) && state.args.as_ref().is_none_or(|first| first == args);
    if free { State { args: Some(args.clone()), phase: Phase::Claimed, world: World::Zero } } else { state.clone() }
}

fn resolve(state: &State, said: &Said, ret: Option<&Ret>) -> Vec<State> {
    let settled = match said {
        Said::Happened { result } => State { phase: Phase::Done(*result), world: World::One, ..state.clone() },
        // The truth, or there is nothing to lead to.
        Said::DidNotHappen if state.world == World::One => return not_in_doubt(state, ret),
        Said::DidNotHappen => State { phase: Phase::Ready, world: World::Zero, ..state.clone() },
    };
    match (state.phase, ret) {
        (Phase::Doubt | Phase::Running, None | Some(Ret::Resolved)) => vec![settled],
        _ => not_in_doubt(state, ret),
    }
}

fn not_in_doubt(state: &State, ret: Option<&Ret>) -> Vec<State> {
    let fits = ret.is_none() || (ret == Some(&Ret::NotInDoubt) && state.phase != Phase::Doubt);
    if fits { vec![state.clone()] } else { Vec::new() }
}

fn observe(state: &State, ret: Option<&Ret>) -> Vec<State> {
    let happened = || State { world: World::One, ..state.clone() };
    match (state.world, ret) {
        (World::Zero | World::Perhaps, Some(Ret::World(0))) | (_, None) => vec![state.clone()],
        (World::One | World::Perhaps, Some(Ret::World(1))) => vec![happened()],
        _ => Vec::new(),
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Call { args } => write!(f, "call {args}"),
            Op::Claim { args } => write!(f, "(claim of) call {args}"),
            Op::Resolve(Said::Happened { result }) => write!(f, "resolve happened{}", shown(*result)),
            Op::Resolve(Said::DidNotHappen) => f.write_str("resolve did not happen"),
            Op::Observe => f.write_str("observe the world"),
        }
    }
}

impl fmt::Display for Ret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ret::Done { result, replayed } => write!(f, "{}done{}", if *replayed { "replayed " } else { "" }, shown(*result)),
            Ret::InDoubt => f.write_str("in doubt"),
            Ret::Mismatch => f.write_str("key reuse mismatch"),
            Ret::Pending => f.write_str("pending"),
            Ret::Resolved => f.write_str("resolved"),
            Ret::NotInDoubt => f.write_str("not in doubt"),
            Ret::World(count) => write!(f, "happened {count} times"),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.phase {
            Phase::Absent => f.write_str("absent")?,
            Phase::Claimed => f.write_str("claimed")?,
            Phase::Running => f.write_str("running")?,
            Phase::Doubt => f.write_str("in doubt")?,
            Phase::Reported => f.write_str("reported late")?,
            Phase::Ready => f.write_str("ready to run")?,
            Phase::Done(result) => write!(f, "done{}", shown(result))?,
        }
        let world = match self.world {
            World::Zero => "did not happen",
            World::Perhaps => "happened at most once",
            World::One => "happened once",
        };
        write!(f, ", {world}")
    }
}

fn shown(result: Option<u64>) -> String {
    result.map_or(String::new(), |result| format!(" #{result}"))
}
