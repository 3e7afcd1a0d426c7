//! What the expressions of a workflow refer to.
//!
//! Which variables a place has is known at once; which steps have ended by then only when there is a plan. So every mention of a step is
//! kept, with its line, until all steps are read. So is a variable that is not there: it may be the id of a step.

use std::cell::RefCell;

use counterfoil_core::run::plan::NodeId;

use super::around::Around;
use crate::config::expr::Knows;
use crate::config::mistake::Place;
use crate::config::read::Spot;
use crate::template::Expr;

/// What every expression of a workflow sees.
const ALWAYS: &[&str] = &["input", "run", "steps"];
/// What those of `undo` see besides.
const IN_UNDO: &[&str] = &["args", "result"];
/// What the steps of a `map` see besides their item.
const INDEX: &str = "index";

/// Names that no item may have.
pub fn is_taken(name: &str) -> bool {
    // `env` is no variable of a workflow, but would be read as one of the process.
    ALWAYS.contains(&name) || IN_UNDO.contains(&name) || name == INDEX || name == "env"
}

/// Where an expression stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Step(NodeId),
    UndoOf(NodeId),
    Output,
}

impl By {
    pub fn node(self) -> Option<NodeId> {
        match self {
            Self::Step(node) | Self::UndoOf(node) => Some(node),
            Self::Output => None,
        }
    }
}

/// A name in an expression that is looked at again when all steps are known.
pub struct Mention {
    pub by: By,
    pub what: What,
    pub place: Place,
    pub path: String,
}

pub enum What {
    Step(String),
    /// No variable of this place, which knows these.
    Variable(String, Vec<String>),
}

/// What the expressions of one place may use.
pub struct Sees<'r> {
    pub by: By,
    pub around: &'r Around<'r>,
    pub mentions: &'r RefCell<Vec<Mention>>,
}

impl Sees<'_> {
    fn knows(&self, name: &str) -> bool {
        ALWAYS.contains(&name)
            || matches!(self.by, By::UndoOf(_)) && IN_UNDO.contains(&name)
            || self.around.items().any(|item| item == name || name == INDEX)
    }

    fn known(&self) -> Vec<String> {
        let mut known: Vec<&str> = ALWAYS.to_vec();
        let items: Vec<&str> = self.around.items().collect();
        known.extend(items.iter().rev());
        known.extend((!items.is_empty()).then_some(INDEX));
        if let By::UndoOf(_) = self.by {
            known.extend(IN_UNDO);
        }
        let mut names: Vec<String> = Vec::new();
        for name in known {
            if !names.iter().any(|seen| seen == name) {
                names.push(name.to_owned());
            }
        }
        names
    }

    fn mention(&self, spot: &Spot<'_>, what: What) {
        self.mentions.borrow_mut().push(Mention { by: self.by, what, place: spot.node.place, path: spot.path.clone() });
    }
}

impl Knows for Sees<'_> {
    fn check(&self, spot: &Spot<'_>, expr: &Expr) -> bool {
        let mut ok = true;
        for name in expr.variables().into_iter().filter(|name| !self.knows(name)) {
            ok = false;
            self.mention(spot, What::Variable(name, self.known()));
        }
        if expr.reads_steps_whole() {
            ok = false;
            spot.wrong("steps alone says nothing about which of them must have ended: name the step, as in steps.X");
        }
        for name in expr.step_names() {
            self.mention(spot, What::Step(name));
        }
        ok
    }
}
