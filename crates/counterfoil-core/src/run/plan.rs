//! The shape of a workflow: which step follows which, and what is inside what.
//!
//! A plan knows structure alone: what a step calls, waits for or computes is its owner's. Steps are numbered in the order in which they are written, the
//! ones inside a step after it. What must stay true: a plan that was made has no cycle, no unknown name and no step that can never run.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use thiserror::Error;

use super::behind::{Behind, Several};

use crate::ids::NAME_BYTES_MAX;

/// A step of a plan, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// Steps that run beside or after each other: the whole workflow, a branch, the body of a `map` or of a `scope`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// Steps in one plan. A longer list of work is a `map`.
pub const STEPS_MAX: usize = 20_000;
/// How deep steps may be inside steps.
pub const DEPTH_MAX: usize = 8;
/// Longest id of a step, in bytes: the path of the innermost step is still a name.
pub const ID_BYTES_MAX: usize = 48;

/// A step as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    pub id: String,
    /// `None`: it follows the step above it.
    pub needs: Option<Vec<String>>,
    pub shape: Shape<Vec<Draft>>,
    /// Each way in which the step can end well, by the steps that are to run then. Empty: there is but one.
    pub ways: Vec<Vec<String>>,
    pub on_failure: OnFailure,
    pub timeout: Option<Duration>,
}

/// What is inside a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape<B> {
    /// Nothing: it is done by whoever runs the plan.
    Act,
    /// Branches beside each other.
    Parallel { join: Join, branches: Vec<B> },
    /// The same steps for each item of a list, so many at once.
    Map { body: B, at_once: u32 },
    /// Steps that are cancelled and undone together, and may do so many effects.
    Scope { body: B, effects_max: Option<u64> },
}

/// How many branches must end well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Join {
    All,
    /// So many; the others are then cancelled.
    Some(u32),
}

/// What a step's failure means for the steps around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// What it is inside fails with it.
    #[default]
    Fail,
    /// What was done inside it is undone, and the steps after it run.
    Continue,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub id: Box<str>,
    pub block: BlockId,
    pub shape: Shape<BlockId>,
    pub needs: Vec<NodeId>,
    /// Who needs this one.
    pub dependents: Vec<NodeId>,
    /// Per way of ending: the steps that then do not run.
    pub skips: Vec<Vec<NodeId>>,
    pub on_failure: OnFailure,
    pub timeout: Option<Duration>,
    /// What is inside is once per item.
    pub maps: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Block {
    pub nodes: Vec<NodeId>,
    /// The step that this block is inside of, and as which of its branches.
    pub parent: Option<(NodeId, u32)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    nodes: Vec<Node>,
    blocks: Vec<Block>,
    by_id: HashMap<Box<str>, NodeId>,
}

/// What is wrong with a plan, and with which of its steps.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("step {step:?}: {wrong}")]
pub struct PlanError {
    /// Its number, which it has also if its id is not to be used.
    pub node: NodeId,
    pub step: String,
    pub wrong: Wrong,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Wrong {
    #[error("its id must be 1 to {ID_BYTES_MAX} letters, digits and underscores, and not begin with a digit")]
    Id,
    #[error("there is another step with this id")]
    Twice,
    #[error("it needs {0:?}, and there is no such step beside it")]
    UnknownNeed(String),
    #[error("it needs {0:?}, which is inside another step: need that step instead")]
    InsideAnother(String),
    #[error("it needs {0:?} twice")]
    NeededTwice(String),
    #[error("it waits for itself: {}", .0.join(" needs "))]
    Cycle(Vec<String>),
    #[error("it names {0:?} as a step that is to run, and there is no such step beside it")]
    UnknownTarget(String),
    #[error("it names {0:?} as a step that is to run, and {0:?} does not need it: add {1:?} to the needs of {0:?}")]
    TargetNotAfter(String, String),
    #[error("it can never run: every way to end that {0:?} has leaves it out")]
    Unreachable(String),
    #[error("it has no steps inside")]
    Empty,
    #[error("it waits for {0} branches, and there are {1}")]
    JoinTooMany(u32, usize),
    #[error("it waits for 0 branches: it would end before it began")]
    JoinNone,
    #[error("it is {0} steps deep inside others; at most {DEPTH_MAX} are allowed")]
    TooDeep(usize),
    #[error("its path is {0} bytes long, with the ids of the maps around it; at most {NAME_BYTES_MAX} are allowed: use shorter ids")]
    PathTooLong(usize),
    #[error("it is step number {0}; a workflow has at most {STEPS_MAX}: for a longer list of work, use map")]
    TooMany(usize),
}

impl Plan {
    /// Every mistake at once.
    pub fn new(steps: Vec<Draft>) -> Result<Self, Vec<PlanError>> {
        let mut building = Building::default();
        building.block(steps, None, 1);
        if building.errors.is_empty() {
            building.link();
        }
        if building.errors.is_empty() {
            building.order();
        }
        if building.errors.is_empty() {
            building.choose();
        }
        match building.errors {
            errors if errors.is_empty() => Ok(Self { nodes: building.nodes, blocks: building.blocks, by_id: building.by_id }),
            errors => Err(errors),
        }
    }

    pub const ROOT: BlockId = BlockId(0);

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    pub fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id.0 as usize]
    }

    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        (0..).map(NodeId).zip(&self.nodes)
    }

    pub fn find(&self, id: &str) -> Option<NodeId> {
        self.by_id.get(id).copied()
    }

    /// The step that `node` is directly inside of.
    pub fn parent(&self, node: NodeId) -> Option<NodeId> {
        self.block(self.node(node).block).parent.map(|(parent, _)| parent)
    }

    /// The steps that `node` is inside of, innermost first.
    pub fn around(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        std::iter::successors(self.parent(node), |inner| self.parent(*inner))
    }

    /// What has ended whenever `node` begins: what it needs, what those need, and the same for the steps it is inside of. Of steps inside another
    /// step, only those that are not inside a `map`: of these there are many.
    pub fn before(&self, node: NodeId) -> BTreeSet<NodeId> {
        let mut before = BTreeSet::new();
        let mut todo: Vec<NodeId> = std::iter::once(node).chain(self.around(node)).flat_map(|n| self.node(n).needs.clone()).collect();
        while let Some(next) = todo.pop() {
            if before.insert(next) {
                todo.extend(&self.node(next).needs);
                todo.extend(self.inside(next));
            }
        }
        before
    }

    /// Directly inside, unless it is once per item.
    fn inside(&self, node: NodeId) -> Vec<NodeId> {
        let blocks = match &self.node(node).shape {
            Shape::Act | Shape::Map { .. } => Vec::new(),
            Shape::Parallel { branches, .. } => branches.clone(),
            Shape::Scope { body, .. } => vec![*body],
        };
        blocks.into_iter().flat_map(|block| self.block(block).nodes.clone()).collect()
    }
}

/// A plan on its way, with what is wrong with it so far.
#[derive(Default)]
struct Building {
    nodes: Vec<Node>,
    blocks: Vec<Block>,
    by_id: HashMap<Box<str>, NodeId>,
    /// As written: names that become numbers once all steps are known.
    needs: Vec<Option<Vec<String>>>,
    ways: Vec<Vec<Vec<String>>>,
    /// Each after those it needs.
    order: Vec<NodeId>,
    errors: Vec<PlanError>,
}

impl Building {
    fn wrong(&mut self, node: NodeId, wrong: Wrong) {
        let step = self.nodes[node.0 as usize].id.to_string();
        self.errors.push(PlanError { node, step, wrong });
    }

    fn block(&mut self, steps: Vec<Draft>, parent: Option<(NodeId, u32)>, depth: usize) -> BlockId {
        let block = BlockId(self.blocks.len() as u32);
        self.blocks.push(Block { nodes: Vec::new(), parent });
        for step in steps {
            let node = self.node(step, block, depth);
            self.blocks[block.0 as usize].nodes.push(node);
        }
        block
    }

    fn node(&mut self, draft: Draft, block: BlockId, depth: usize) -> NodeId {
        let node = NodeId(self.nodes.len() as u32);
        self.nodes.push(Node {
            id: draft.id.as_str().into(),
            block,
            shape: Shape::Act,
            needs: Vec::new(),
            dependents: Vec::new(),
            skips: Vec::new(),
            on_failure: draft.on_failure,
            timeout: draft.timeout,
            maps: matches!(draft.shape, Shape::Map { .. }),
        });
        self.needs.push(draft.needs);
        self.ways.push(draft.ways);
        if self.nodes.len() > STEPS_MAX {
            if self.nodes.len() == STEPS_MAX + 1 {
                self.wrong(node, Wrong::TooMany(self.nodes.len()));
            }
            return node;
        }
        if !is_id(&draft.id) {
            self.wrong(node, Wrong::Id);
        } else if self.by_id.insert(draft.id.into(), node).is_some() {
            self.wrong(node, Wrong::Twice);
        }
        if depth > DEPTH_MAX {
            self.wrong(node, Wrong::TooDeep(depth));
            return node;
        }
        let path = self.nodes[node.0 as usize].id.len() + self.around(block);
        if path > NAME_BYTES_MAX {
            self.wrong(node, Wrong::PathTooLong(path));
        }
        let shape = self.shape(node, draft.shape, depth);
        self.nodes[node.0 as usize].shape = shape;
        node
    }

    /// How long what stands before a step's id is at most: `map[4294967295].` for each map around it.
    fn around(&self, block: BlockId) -> usize {
        let Some((parent, _)) = self.blocks[block.0 as usize].parent else { return 0 };
        let parent = &self.nodes[parent.0 as usize];
        let own = if parent.maps { parent.id.len() + "[4294967295].".len() } else { 0 };
        own + self.around(parent.block)
    }

    fn shape(&mut self, node: NodeId, shape: Shape<Vec<Draft>>, depth: usize) -> Shape<BlockId> {
        let block = |this: &mut Self, steps: Vec<Draft>, lane: u32| {
            if steps.is_empty() {
                this.wrong(node, Wrong::Empty);
            }
            this.block(steps, Some((node, lane)), depth + 1)
        };
        match shape {
            Shape::Act => Shape::Act,
            Shape::Parallel { join, branches } => {
                match join {
                    _ if branches.is_empty() => self.wrong(node, Wrong::Empty),
                    Join::Some(0) => self.wrong(node, Wrong::JoinNone),
                    Join::Some(n) if n as usize > branches.len() => self.wrong(node, Wrong::JoinTooMany(n, branches.len())),
                    Join::Some(_) | Join::All => {}
                }
                Shape::Parallel { join, branches: branches.into_iter().zip(0..).map(|(steps, lane)| block(self, steps, lane)).collect() }
            }
            Shape::Map { body, at_once } => Shape::Map { body: block(self, body, 0), at_once: at_once.max(1) },
            Shape::Scope { body, effects_max } => Shape::Scope { body: block(self, body, 0), effects_max },
        }
    }

    /// Names become numbers.
    fn link(&mut self) {
        for block in 0..self.blocks.len() {
            let mut above = None;
            for node in self.blocks[block].nodes.clone() {
                let needs = match self.needs[node.0 as usize].take() {
                    Some(names) => self.named(node, &names),
                    None => above.into_iter().collect(),
                };
                for need in &needs {
                    self.nodes[need.0 as usize].dependents.push(node);
                }
                self.nodes[node.0 as usize].needs = needs;
                above = Some(node);
            }
        }
    }

    fn named(&mut self, node: NodeId, names: &[String]) -> Vec<NodeId> {
        let mut needs = Vec::new();
        for name in names {
            match self.by_id.get(name.as_str()).copied() {
                Some(need) if needs.contains(&need) => self.wrong(node, Wrong::NeededTwice(name.clone())),
                Some(need) if self.nodes[need.0 as usize].block == self.nodes[node.0 as usize].block => needs.push(need),
                Some(_) => self.wrong(node, Wrong::InsideAnother(name.clone())),
                None => self.wrong(node, Wrong::UnknownNeed(name.clone())),
            }
        }
        needs
    }

    /// Puts the steps in order, and refuses cycles. Each is told of once, by its first step.
    fn order(&mut self) {
        let mut waiting: Vec<usize> = self.nodes.iter().map(|n| n.needs.len()).collect();
        let mut free: Vec<usize> = (0..self.nodes.len()).filter(|at| waiting[*at] == 0).collect();
        while let Some(at) = free.pop() {
            self.order.push(NodeId(at as u32));
            for dependent in &self.nodes[at].dependents {
                let left = &mut waiting[dependent.0 as usize];
                *left -= 1;
                if *left == 0 {
                    free.push(dependent.0 as usize);
                }
            }
        }
        let mut told = HashSet::new();
        for at in 0..self.nodes.len() {
            if waiting[at] == 0 || told.contains(&at) {
                continue;
            }
            // From a step that waits one always gets to another that waits, until one comes round, or was seen on the way to another cycle: then
            // it only waits for that one.
            let mut path = vec![at];
            let mut seen = HashMap::from([(at, 0)]);
            let round = loop {
                let last = *path.last().expect("it begins with one");
                let next =
                    self.nodes[last].needs.iter().map(|n| n.0 as usize).find(|n| waiting[*n] > 0).expect("it waits for one that waits");
                if let Some(from) = seen.get(&next) {
                    break &path[*from..];
                }
                if told.contains(&next) {
                    break &[];
                }
                seen.insert(next, path.len());
                path.push(next);
            };
            told.extend(path.iter().copied());
            if let Some(first) = round.first() {
                let names = round.iter().chain([first]).map(|n| self.nodes[*n].id.to_string()).collect();
                self.wrong(NodeId(*first as u32), Wrong::Cycle(names));
            }
        }
    }

    /// Works out which steps each way of ending leaves out: those that only other ways name, unless they follow one that is to run.
    fn choose(&mut self) {
        let ways = std::mem::take(&mut self.ways);
        let choices: Vec<(NodeId, &Vec<Vec<String>>)> = (0..).map(NodeId).zip(&ways).filter(|(_, ways)| !ways.is_empty()).collect();
        let named = choices.iter().flat_map(|(_, ways)| ways.iter().flatten()).filter_map(|name| self.by_id.get(name.as_str()));
        let asked: Vec<NodeId> = choices.iter().map(|(node, _)| node).chain(named).copied().collect();
        let behind = Behind::new(asked, &self.order, |node| self.nodes[node.0 as usize].needs.iter().copied());
        for (node, ways) in choices {
            let ways: Vec<BTreeSet<NodeId>> = ways.iter().map(|names| self.targets(node, names, &behind)).collect();
            let all: BTreeSet<NodeId> = ways.iter().flatten().copied().collect();
            let chosen: Vec<Several> = ways.iter().map(|chosen| behind.several(chosen.iter().copied())).collect();
            let left_out = |target: NodeId, chosen: &Several| !behind.reaches_any(target, chosen);
            for target in &all {
                if chosen.iter().all(|chosen| left_out(*target, chosen)) {
                    self.wrong(*target, Wrong::Unreachable(self.nodes[node.0 as usize].id.to_string()));
                }
            }
            let skips = |chosen: &Several| all.iter().copied().filter(|target| left_out(*target, chosen)).collect();
            self.nodes[node.0 as usize].skips = chosen.iter().map(skips).collect();
        }
    }

    fn targets(&mut self, node: NodeId, names: &[String], behind: &Behind) -> BTreeSet<NodeId> {
        let mut targets = BTreeSet::new();
        for name in names {
            let found = self.by_id.get(name.as_str()).copied();
            match found.filter(|t| self.nodes[t.0 as usize].block == self.nodes[node.0 as usize].block) {
                Some(target) if target != node && behind.reaches(target, node) => drop(targets.insert(target)),
                Some(_) => self.wrong(node, Wrong::TargetNotAfter(name.clone(), self.nodes[node.0 as usize].id.to_string())),
                None => self.wrong(node, Wrong::UnknownTarget(name.clone())),
            }
        }
        targets
    }
}

/// An id can be written as `steps.id` in an expression.
fn is_id(id: &str) -> bool {
    let letters = id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    letters && id.len() <= ID_BYTES_MAX && id.bytes().next().is_some_and(|b| !b.is_ascii_digit())
}
