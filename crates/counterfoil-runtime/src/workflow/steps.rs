//! The steps of a workflow: what they have in common, and their numbers.
//!
//! Steps are numbered as the plan numbers them, so that whatever is wrong with step n can be said in its line. A step that cannot be read
//! keeps its number and its place among the others; what is not known because of it is noted, and nothing is said that may only be its
//! consequence.

use std::cell::RefCell;

use counterfoil_core::run::plan::{DEPTH_MAX, Draft, NodeId, OnFailure, Shape};

use super::StepSpec;
use super::around::Around;
use super::mention::{By, Mention, Sees};
use crate::config::node::Value;
use crate::config::read::{Fields, Spot, Stranger};
use crate::config::report::Report;

pub const STEP: &[&str] = &[
    "id",
    "needs",
    "timeout",
    "on_failure",
    "tool",
    "args",
    "retry",
    "undo",
    "confirm",
    "decision",
    "parallel",
    "map",
    "scope",
    "sleep",
    "wait",
    "call",
];
/// What a step may be.
pub const KINDS: &[&str] = &["tool", "decision", "parallel", "map", "scope", "sleep", "wait", "call"];
/// What only a call of a tool has.
pub const OF_TOOL: &[&str] = &["args", "retry", "undo", "confirm"];

/// All that is known of the steps so far.
pub struct Reading<'a> {
    pub report: &'a Report,
    /// By number.
    pub written: Vec<Written<'a>>,
    /// By number. `None`: not read yet, or wrong.
    pub specs: Vec<Option<StepSpec>>,
    pub mentions: RefCell<Vec<Mention>>,
    pub lost: Lost,
}

/// A step as it stands in the file.
pub struct Written<'a> {
    pub spot: Spot<'a>,
    /// `None`: it has none that can be read.
    pub id: Option<&'a str>,
}

/// What a mistake has hidden from everything that comes later.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lost {
    /// There may be steps whose names are not known.
    pub names: bool,
    /// There may be steps that wait for others than it seems.
    pub order: bool,
}

impl Lost {
    pub const ALL: Lost = Lost { names: true, order: true };
}

impl<'a> Reading<'a> {
    pub fn new(report: &'a Report, lost: Lost) -> Self {
        Self { report, written: Vec::new(), specs: Vec::new(), mentions: RefCell::default(), lost }
    }

    pub fn sees<'r>(&'r self, by: By, around: &'r Around<'r>) -> Sees<'r> {
        Sees { by, around, mentions: &self.mentions }
    }

    /// Steps after each other. None are read where the plan would look at none.
    pub fn steps(&mut self, items: Vec<Spot<'a>>, around: &Around<'_>) -> Vec<Draft> {
        if around.depth > DEPTH_MAX + 1 {
            return Vec::new();
        }
        items.into_iter().map(|item| self.step(item, around)).collect()
    }

    fn step(&mut self, spot: Spot<'a>, around: &Around<'_>) -> Draft {
        let fields = spot.fields_but(STEP, belongs);
        let (node, mut draft) = self.unread(spot);
        let Some(fields) = fields else {
            self.lost = Lost::ALL;
            return draft;
        };
        if let Some(id) = fields.require("id").and_then(|s| s.text()) {
            self.written[node.0 as usize].id = Some(id);
            id.clone_into(&mut draft.id);
        }
        self.lost.names |= self.written[node.0 as usize].id.is_none();
        draft.needs = fields.get("needs").and_then(|s| self.names(&s));
        fields.read("on_failure", |s| s.choice(&ON_FAILURE), &mut draft.on_failure);
        let kind = fields.exactly_one(KINDS);
        strays(&fields, kind.as_ref().map(|(kind, _)| *kind));
        match &kind {
            Some(("wait", _)) => self.no_timeout(&fields),
            _ => draft.timeout = fields.get("timeout").and_then(|s| s.duration()),
        }
        // Of two kinds one is not read, and one that is misspelt neither.
        let kinds = KINDS.iter().filter(|kind| fields.has(kind)).count();
        if kinds > 1 || kinds == 0 && has_stranger(&fields) {
            self.lost = Lost::ALL;
        }
        if let Some((kind, spot)) = kind {
            let spec = match kind {
                "tool" => self.tool(&fields, spot, node, around),
                "decision" => self.decision(&spot, node, around, &mut draft),
                "parallel" => self.parallel(&spot, around, &mut draft),
                "map" => self.map(&spot, node, around, &mut draft),
                "scope" => self.scope(&spot, around, &mut draft),
                "sleep" => self.sleep(&spot, node, around),
                "wait" => self.wait(&spot, node, around, &mut draft),
                _ => self.call(&spot, node, around),
            };
            self.specs[node.0 as usize] = spec;
        }
        draft
    }

    /// A step of which only its place is known. Its name is one that nobody would choose.
    fn unread(&mut self, spot: Spot<'a>) -> (NodeId, Draft) {
        let node = NodeId(self.written.len() as u32);
        self.written.push(Written { spot, id: None });
        self.specs.push(None);
        let draft = Draft {
            id: format!("__step_{}__", node.0),
            needs: None,
            shape: Shape::Act,
            ways: Vec::new(),
            on_failure: OnFailure::Fail,
            timeout: None,
        };
        (node, draft)
    }

    /// The steps inside another: as many as can be read. Where there is no list, one that stands for what was meant, so that nobody misses it.
    pub fn body(&mut self, spot: Option<Spot<'a>>, whole: &Spot<'a>, around: &Around<'_>) -> Vec<Draft> {
        let items = spot.as_ref().and_then(Spot::list);
        if let Some(items) = items {
            return self.steps(items, around);
        }
        self.lost = Lost::ALL;
        if around.depth > DEPTH_MAX + 1 {
            return Vec::new();
        }
        vec![self.unread(whole.clone()).1]
    }

    /// Ids of steps. What is not one is reported, and what waits for what is then not known.
    pub fn names(&mut self, spot: &Spot<'_>) -> Option<Vec<String>> {
        let Some(items) = spot.list() else {
            self.lost.order = true;
            return None;
        };
        let names: Vec<String> = items.iter().filter_map(|item| item.text()).map(str::to_owned).collect();
        self.lost.order |= names.len() < items.len();
        Some(names)
    }

    fn no_timeout(&self, fields: &Fields<'_>) {
        if fields.has("timeout") {
            fields.wrong("timeout", "how long is waited is written inside wait, as in wait: { …, timeout: 24h }");
        }
    }
}

const ON_FAILURE: [(&str, OnFailure); 2] = [("fail", OnFailure::Fail), ("continue", OnFailure::Continue)];

/// Reports what only calls of tools have.
fn strays(fields: &Fields<'_>, kind: Option<&'static str>) {
    let Some(kind) = kind.filter(|kind| *kind != "tool") else { return };
    for name in OF_TOOL.iter().filter(|name| fields.has(name)) {
        let mistake = match (kind, *name) {
            ("call", "args") => {
                "args is for a step with tool; what a workflow is called with is written as call: { workflow: …, input: {…} }".into()
            }
            _ => format!("{name} is for a step with tool; this one has {kind}"),
        };
        fields.wrong(name, mistake);
    }
}

fn has_stranger(fields: &Fields<'_>) -> bool {
    match &fields.spot.node.value {
        Value::Map(entries) => entries.iter().any(|(key, _)| !STEP.contains(&key.text.as_str())),
        _ => false,
    }
}

/// Fields that are often written one level too high.
fn belongs(field: &str) -> Stranger {
    use super::{act, inside};
    let places: [(&'static str, &[&str]); 6] = [
        ("parallel", inside::PARALLEL),
        ("map", &["over", "as", "concurrency"]),
        ("scope", inside::SCOPE),
        ("wait", act::WAIT),
        ("call", act::CALL),
        ("decision", act::WAY),
    ];
    places.iter().find(|(_, fields)| fields.contains(&field)).map_or(Stranger::Unknown, |(place, _)| Stranger::Belongs(place))
}
