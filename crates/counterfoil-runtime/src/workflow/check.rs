//! What only shows when all steps are known: what the plan refuses, and what expressions refer to, each said in its own line.
//!
//! Nothing is said here that may only be the consequence of a step that could not be read.

use std::cell::Cell;
use std::collections::HashMap;

use counterfoil_core::run::plan::{Draft, NodeId, Plan, PlanError, Shape, Wrong};

use super::ended::Ended;
use super::mention::{By, Mention, What};
use super::steps::Reading;
use crate::config::Mistake;
use crate::config::node::{Node, Value};
use crate::config::read::Spot;
use crate::config::suggest::nearest;

/// Each suggestion compares with all ids; a file in which more names than these are wrong is not mended by guesses.
const SUGGESTED_MAX: usize = 100;

/// The plan, unless something is wrong with it, which is reported.
pub fn plan(reading: &Reading<'_>, drafts: Vec<Draft>) -> Option<Plan> {
    let errors = match Plan::new(drafts) {
        Ok(plan) => return Some(plan),
        Err(errors) => errors,
    };
    let names = Names::of(reading);
    let mut is_over = false;
    for error in errors.iter().filter(|error| is_certain(reading, error)) {
        // The first one too many says it for all that follow.
        let too_many = matches!(error.wrong, Wrong::TooMany(_));
        if !(too_many && is_over) {
            reading.report.add(mistake(reading, &names, error));
        }
        is_over |= too_many;
    }
    None
}

/// Whether this is wrong whatever stands in the steps that could not be read.
fn is_certain(reading: &Reading<'_>, error: &PlanError) -> bool {
    let has_id = reading.written[error.node.0 as usize].id.is_some();
    match error.wrong {
        Wrong::Id | Wrong::Twice => has_id,
        Wrong::UnknownNeed(_) | Wrong::UnknownTarget(_) => !reading.lost.names,
        Wrong::Cycle(_) | Wrong::TargetNotAfter(..) | Wrong::Unreachable(_) => !reading.lost.order,
        _ => true,
    }
}

fn mistake(reading: &Reading<'_>, names: &Names<'_>, error: &PlanError) -> Mistake {
    let step = &reading.written[error.node.0 as usize].spot;
    let field = |path: &[&str]| find(step, path, None).unwrap_or_else(|| step.clone());
    let named = |lists: &[&[&str]], name: &str| lists.iter().find_map(|path| find(step, path, Some(name))).unwrap_or_else(|| step.clone());
    let (spot, suggestion) = match &error.wrong {
        Wrong::Id | Wrong::Twice => (field(&["id"]), None),
        Wrong::UnknownNeed(name) => (named(&[&["needs"]], name), names.nearest(name, Some(error.node))),
        Wrong::UnknownTarget(name) => (named(TARGETS, name), names.nearest(name, Some(error.node))),
        Wrong::InsideAnother(name) | Wrong::NeededTwice(name) => (named(&[&["needs"]], name), None),
        Wrong::TargetNotAfter(name, _) => (named(TARGETS, name), None),
        Wrong::JoinTooMany(..) | Wrong::JoinNone => (field(&["parallel", "join"]), None),
        Wrong::Cycle(_) => (field(&["needs"]), None),
        Wrong::Unreachable(_) | Wrong::Empty | Wrong::TooDeep(_) | Wrong::TooMany(_) | Wrong::PathTooLong(_) => (step.clone(), None),
    };
    let message = match &error.wrong {
        Wrong::TargetNotAfter(name, own) if name == own => "it names itself as a step that is to run".into(),
        Wrong::Twice => match names.first(&error.step, error.node) {
            Some(first) => format!("there is another step with this id, in line {}", reading.written[first.0 as usize].spot.named.line),
            None => error.wrong.to_string(),
        },
        wrong => wrong.to_string(),
    };
    spot.mistake(message).suggest(suggestion)
}

/// Where steps name others that are to run.
const TARGETS: &[&[&str]] = &[&["decision", "*", "then"], &["decision", "*", "else"], &["wait", "then"], &["wait", "otherwise"]];

/// The field at `path` (`*`: of any of a list), or the item of that list which is the text `name`.
fn find<'a>(spot: &Spot<'a>, path: &[&str], name: Option<&str>) -> Option<Spot<'a>> {
    let below = |node: &'a Node, path: String| Spot { node, path, report: spot.report, named: node.place };
    let items = || match &spot.node.value {
        Value::List(items) => items.iter().enumerate().map(|(i, node)| below(node, format!("{}[{i}]", spot.path))).collect(),
        _ => Vec::new(),
    };
    match (path, name) {
        ([], None) => Some(spot.clone()),
        ([], Some(name)) => items().into_iter().find(|item| item.node.as_str() == Some(name)),
        (["*", rest @ ..], _) => items().iter().find_map(|item| find(item, rest, name)),
        ([field, rest @ ..], _) => find(&below(spot.node.get(field)?, format!("{}.{field}", spot.path)), rest, name),
    }
}

/// Holds what expressions refer to against the plan; without one, against the names alone.
pub fn mentions(reading: &Reading<'_>, plan: Option<&Plan>) {
    let names = Names::of(reading);
    let mentions = reading.mentions.borrow();
    let named = mentions.iter().filter_map(|mention| match &mention.what {
        What::Step(name) => names.by_id.get(name.as_str()).copied(),
        What::Variable(..) => None,
    });
    let asked = named.chain(mentions.iter().filter_map(|mention| mention.by.node()));
    let ended = plan.filter(|_| !reading.lost.order).map(|plan| (plan, Ended::new(plan, asked)));
    for mention in mentions.iter() {
        let wrong = |message: String| Mistake::new(mention.place, &mention.path, message);
        let mistake = match &mention.what {
            What::Variable(name, known) => Some(variable(mention, &names, name, known)),
            What::Step(name) => match (names.by_id.get(name.as_str()), &ended) {
                (None, _) if reading.lost.names => None,
                (None, _) => {
                    let meant = names.nearest(name, None).map(|name| format!("steps.{name}"));
                    Some(wrong(format!("there is no step {name:?}")).suggest(meant))
                }
                (Some(step), Some((plan, ended))) => not_ended(plan, ended, mention.by, *step).map(wrong),
                (Some(_), None) => None,
            },
        };
        mistake.into_iter().for_each(|mistake| reading.report.add(mistake));
    }
}

fn variable(mention: &Mention, names: &Names<'_>, name: &str, known: &[String]) -> Mistake {
    let wrong = |message: String| Mistake::new(mention.place, &mention.path, message);
    match name {
        "env" => wrong("a workflow sees no environment, because a run must give the same on every machine; put it into the tool".into()),
        "args" | "result" => wrong(format!("{name} is not known here: it is the step's own, in its undo.args")).allowed(known),
        "index" => wrong("index is not known here: it is there inside a map".into()).allowed(known),
        _ => {
            let message = format!("there is no variable {name} here");
            let meant = match names.by_id.contains_key(name) {
                true => Some(format!("steps.{name}")),
                false => nearest(name, known.iter().map(String::as_str)).map(str::to_owned),
            };
            wrong(message).suggest(meant).allowed(known)
        }
    }
}

/// Why `step` cannot be referred to, if it cannot.
fn not_ended(plan: &Plan, ended: &Ended<'_>, by: By, step: NodeId) -> Option<String> {
    let id = |node: NodeId| &plan.node(node).id;
    let at = by.node();
    if at.is_some_and(|at| ended.before(at, step)) {
        return None;
    }
    let is_around = |node: NodeId| at.is_some_and(|at| plan.around(at).any(|outer| outer == node));
    // The outermost: the inner ones are out of sight too.
    let map = plan.around(step).filter(|outer| matches!(plan.node(*outer).shape, Shape::Map { .. }) && !is_around(*outer)).last();
    if let Some(map) = map {
        return Some(format!("{} is inside the map {}: there is one per item; use steps.{}.result", id(step), id(map), id(map)));
    }
    let at = at?;
    if at == step {
        return Some(match by {
            By::UndoOf(_) => "the step itself is not in steps: what it gave is result".into(),
            _ => format!("step {} cannot see itself: it has not ended when this is evaluated", id(step)),
        });
    }
    if is_around(step) {
        return Some(format!("step {} has not ended when this is evaluated: this step is inside of it", id(step)));
    }
    if ended.before(step, at) {
        return Some(format!("step {} begins only after this one has ended", id(step)));
    }
    Some(match beside(plan, at, step) {
        Some((inner, outer)) if (inner, outer) == (at, step) => {
            format!("step {} may not have ended when this is evaluated: add it to needs", id(step))
        }
        Some((inner, outer)) => {
            format!("step {} may not have ended when this is evaluated: add {} to the needs of {}", id(step), id(outer), id(inner))
        }
        None => format!("step {} is in another branch: neither waits for the other", id(step)),
    })
}

/// The step around `at` (or itself) and the one around `step` (or itself) that are beside each other. `None`: they are in branches of one step.
fn beside(plan: &Plan, at: NodeId, step: NodeId) -> Option<(NodeId, NodeId)> {
    let from = |node: NodeId| std::iter::once(node).chain(plan.around(node));
    from(at)
        .find_map(|inner| from(step).find(|outer| plan.node(*outer).block == plan.node(inner).block).map(|outer| (inner, outer)))
        .filter(|(a, b)| a != b)
}

/// The ids in the file.
struct Names<'r> {
    /// The first of each.
    by_id: HashMap<&'r str, NodeId>,
    ids: Vec<Option<&'r str>>,
    /// How many suggestions may still be made.
    left: Cell<usize>,
}

impl<'r> Names<'r> {
    fn of(reading: &'r Reading<'_>) -> Self {
        let ids: Vec<Option<&str>> = reading.written.iter().map(|written| written.id).collect();
        let mut by_id = HashMap::new();
        for (node, id) in (0..).map(NodeId).zip(&ids) {
            if let Some(id) = id {
                by_id.entry(*id).or_insert(node);
            }
        }
        Self { by_id, ids, left: SUGGESTED_MAX.into() }
    }

    /// The other step that was probably meant.
    fn nearest(&self, name: &str, by: Option<NodeId>) -> Option<String> {
        self.left.set(self.left.get().checked_sub(1)?);
        let others = (0..).map(NodeId).zip(&self.ids).filter(|(node, _)| Some(*node) != by).filter_map(|(_, id)| *id);
        nearest(name, others.filter(|id| *id != name)).map(str::to_owned)
    }

    fn first(&self, id: &str, not: NodeId) -> Option<NodeId> {
        self.by_id.get(id).copied().filter(|first| *first != not)
    }
}
