//! Steps that have steps inside: `parallel`, `map`, `scope`.
//!
//! The steps inside are read also when what is around them is wrong: their mistakes are mistakes all the same, and others name them.

use counterfoil_core::run::plan::{Draft, Join, NodeId, Shape};

use super::StepSpec;
use super::around::{Allowed, Around};
use super::mention::{By, is_taken};
use super::read::{budget, tool_names};
use super::steps::{Lost, Reading};
use crate::config::expr;
use crate::config::node::Value;
use crate::config::read::{Fields, Spot};
use crate::config::suggest::nearest;
use crate::template::{Expr, Part, TextTemplate, ValueTemplate};

pub const PARALLEL: &[&str] = &["join", "branches"];
pub const JOIN: &[&str] = &["n"];
pub const MAP: &[&str] = &["over", "as", "concurrency", "steps"];
pub const SCOPE: &[&str] = &["steps", "budget", "tools"];

/// What a `map` calls its item where nothing is written.
const ITEM: &str = "item";
/// More at once than this are more than any machine or provider takes.
const AT_ONCE_MAX: u32 = 1000;

impl<'a> Reading<'a> {
    pub fn parallel(&mut self, spot: &Spot<'a>, around: &Around<'_>, draft: &mut Draft) -> Option<StepSpec> {
        let fields = self.fields(spot, PARALLEL)?;
        let mut join = Join::All;
        fields.read("join", read_join, &mut join);
        let inner = Around::inside(around);
        let Some(branches) = fields.require("branches").and_then(|s| s.list()) else {
            self.lost = Lost::ALL;
            return None;
        };
        let branches = branches.into_iter().map(|branch| self.body(Some(branch.clone()), &branch, &inner)).collect();
        draft.shape = Shape::Parallel { join, branches };
        Some(StepSpec::Parallel)
    }

    pub fn map(&mut self, spot: &Spot<'a>, node: NodeId, around: &Around<'_>, draft: &mut Draft) -> Option<StepSpec> {
        let fields = self.fields(spot, MAP)?;
        let over = fields.require("over").and_then(|s| self.over(&s, node, around));
        let mut at_once = 1;
        fields.read("concurrency", concurrency, &mut at_once);
        let written = fields.get("as").map(|s| (item(&s), s.node.as_str()));
        // A name that will not do is still the one that is meant inside.
        let name = written.map_or(ITEM, |(_, text)| text.unwrap_or(ITEM));
        let inner = Around { item: Some(name), ..Around::inside(around) };
        let body = self.body(fields.require("steps"), spot, &inner);
        draft.shape = Shape::Map { body, at_once };
        let is_good = written.is_none_or(|(good, _)| good);
        Some(StepSpec::Map { over: over?, item: is_good.then(|| name.to_owned())? })
    }

    /// A list, or the expression that gives it.
    fn over(&self, spot: &Spot<'_>, node: NodeId, around: &Around<'_>) -> Option<ValueTemplate> {
        let sees = self.sees(By::Step(node), around);
        let is_list = match &spot.node.value {
            Value::List(_) => true,
            // What cannot be parsed is told of below.
            Value::String(text) => TextTemplate::parse(text).map_or(true, |text| matches!(text.parts(), [Part::Expr(_)])),
            _ => false,
        };
        if !is_list {
            spot.wrong(format!(
                "found {}; expected a list, or an expression that gives one, as in \"${{input.items}}\"",
                spot.node.found()
            ));
            return None;
        }
        expr::value(spot, &sees)
    }

    pub fn scope(&mut self, spot: &Spot<'a>, around: &Around<'_>, draft: &mut Draft) -> Option<StepSpec> {
        let fields = self.fields(spot, SCOPE)?;
        let effects_max = fields.get("budget").and_then(|s| budget(&s));
        let tools = fields.get("tools").and_then(|s| tool_names(&s));
        let allowed = tools.as_deref().map(|names| Allowed { names, by: format!("the scope {:?}", draft.id) });
        let inner = Around { allowed, ..Around::inside(around) };
        let body = self.body(fields.require("steps"), spot, &inner);
        draft.shape = Shape::Scope { body, effects_max };
        Some(StepSpec::Scope { tools })
    }

    /// Without them, neither are the steps inside known.
    fn fields(&mut self, spot: &Spot<'a>, known: &'static [&'static str]) -> Option<Fields<'a>> {
        let fields = spot.fields(known);
        if fields.is_none() {
            self.lost = Lost::ALL;
        }
        fields
    }
}

fn read_join(spot: &Spot<'_>) -> Option<Join> {
    let meant = match &spot.node.value {
        Value::Map(_) => return spot.fields(JOIN)?.require("n").and_then(|s| s.count(1)).map(Join::Some),
        Value::String(text) if text == "all" => return Some(Join::All),
        Value::String(text) if text == "any" => return Some(Join::Some(1)),
        Value::String(text) => nearest(text, ["all", "any"]).map(str::to_owned),
        Value::Int(n) => Some(format!("{{ n: {n} }}")),
        _ => None,
    };
    let mistake = spot.mistake(format!("found {}; expected all, any or {{ n: 2 }}", spot.node.found()));
    spot.report.add(mistake.suggest(meant));
    None
}

fn concurrency(spot: &Spot<'_>) -> Option<u32> {
    let at_once = spot.count(1)?;
    if at_once > AT_ONCE_MAX {
        spot.wrong(format!("{at_once} at once are too many; at most {AT_ONCE_MAX}"));
        return None;
    }
    Some(at_once)
}

/// Whether an item can have this name.
fn item(spot: &Spot<'_>) -> bool {
    let Some(name) = spot.text() else { return false };
    if is_taken(name) {
        spot.wrong(format!("{name} has a meaning of its own in expressions; choose another name for the item"));
        return false;
    }
    let letters = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    // What the language itself gives a meaning to is no variable.
    if !letters || !Expr::parse(name).is_ok_and(|expr| expr.variables() == [name]) {
        spot.wrong(format!("{name:?} cannot be the name of a variable; write letters, digits and underscores"));
        return false;
    }
    true
}
