//! Workflow files: read once, checked whole, never guessed at.
//!
//! Text becomes a tree of values that know their line, the tree becomes drafts of steps and what each does (`steps`, `act`, `inside`), the
//! drafts become a plan; then whatever only shows when all steps are known is held against it (`check`, `mention`). A workflow with a mistake
//! is none. Reading reads nothing but its arguments; only [`Workflow::load`] touches the disk.

use std::path::Path;
use std::sync::Arc;

use counterfoil_core::ToolName;
use counterfoil_core::ids::{Digest32, WorkflowName};
use counterfoil_core::run::confirm::Confirm;
use counterfoil_core::run::plan::Draft;

use super::around::{Allowed, Around};
use super::mention::By;
use super::steps::{Lost, Reading};
use super::{RETAIN, StepSpec, Workflow, check};
use crate::config::node::{Node, Value};
use crate::config::read::{Fields, Spot, Stranger};
use crate::config::report::Report;
use crate::config::source::Kind;
use crate::config::{ConfigErrors, Mistake, confirm, expr, schema, tree};
use crate::template::{self, Expr};

pub const TOP: &[&str] =
    &["workflow", "description", "input", "steps", "output", "timeout", "budget", "tools", "retain", "confirm", "subject"];
pub const BUDGET: &[&str] = &["effects"];

/// As many steps as a plan may have fit in, a line or two for each.
const FILE: Kind = Kind { name: "a workflow file", bytes_max: 4 << 20, nodes_max: 500_000, if_missing: "" };

impl Workflow {
    /// Reads a file.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigErrors> {
        let path = path.as_ref();
        let text = FILE.read(path).map_err(|why| ConfigErrors::new(path, "", vec![Mistake::of_file(why)]))?;
        Self::parse(&text, path)
    }

    /// `path` is where the text came from, for messages.
    pub fn parse(text: &str, path: impl AsRef<Path>) -> Result<Self, ConfigErrors> {
        // Once for the file rather than once for each expression in it.
        let read = template::on_large_stack(|| read(text));
        let read =
            read.unwrap_or_else(|error| Err(vec![Mistake::of_file(format!("cannot be read now: no thread to read it on: {error}"))]));
        read.map_err(|mistakes| ConfigErrors::new(path.as_ref(), text, mistakes))
    }
}

fn read(text: &str) -> Result<Workflow, Vec<Mistake>> {
    let (root, mistakes) = tree::parse_as(&FILE, text);
    let root = match root {
        Some(root) if root.value != Value::Null => root,
        // Says what is missing.
        _ if mistakes.is_empty() => Node::empty_map(),
        _ => return Err(mistakes),
    };
    // What the tree refused may have been a step, or a name.
    let lost = if mistakes.is_empty() { Lost::default() } else { Lost::ALL };
    let report = Report::from(mistakes);
    let workflow = top(&Spot::top(&root, &report), lost, text);
    match report.into_mistakes() {
        mistakes if mistakes.is_empty() => Ok(workflow.expect("what could not be read was reported")),
        mistakes => Err(mistakes),
    }
}

/// `None`: a mistake was reported. There may be mistakes also where there is a workflow.
fn top(spot: &Spot<'_>, lost: Lost, text: &str) -> Option<Workflow> {
    let fields = known_fields(spot)?;
    let name = fields.require("workflow").and_then(|s| workflow_name(&s));
    let description = fields.get("description").and_then(|s| s.text()).map(|text| text.trim().to_owned());
    let input = fields.get("input").and_then(|s| schema::read(&s));
    let timeout = fields.get("timeout").and_then(|s| s.duration());
    let effects_max = fields.get("budget").and_then(|s| budget(&s));
    let tools = fields.get("tools").and_then(|s| tool_names(&s));
    let mut retain = RETAIN;
    fields.read("retain", Spot::duration, &mut retain);
    let mut confirmed = Confirm::default();
    fields.read("confirm", confirm::read, &mut confirmed);
    let subject = fields.get("subject").and_then(|s| expr::expr(&s, &OnlyInput));
    let around = Around::top(tools.as_deref().map(|names| Allowed { names, by: "the workflow".into() }));
    let mut reading = Reading::new(spot.report, lost);
    let drafts = steps(&fields, &mut reading, &around);
    let output = fields.get("output").and_then(|s| expr::value(&s, &reading.sees(By::Output, &around)));
    // Without its steps, nothing can be said about what the rest refers to.
    let plan = drafts.and_then(|drafts| {
        let plan = check::plan(&reading, drafts);
        check::mentions(&reading, plan.as_ref());
        plan
    });
    let steps: Option<Vec<StepSpec>> = reading.specs.into_iter().collect();
    Some(Workflow {
        name: name?,
        description,
        input,
        plan: Arc::new(plan?),
        steps: steps?,
        output,
        timeout,
        effects_max,
        tools,
        retain,
        confirm: confirmed,
        subject,
        text: text.into(),
        digest: Digest32::of(text.as_bytes()),
    })
}

/// What a run is about must be known before it begins.
struct OnlyInput;

impl expr::Knows for OnlyInput {
    fn check(&self, spot: &Spot<'_>, expr: &Expr) -> bool {
        let others: Vec<String> = expr.variables().into_iter().filter(|name| name != "input").collect();
        for name in &others {
            spot.wrong(format!("there is no `{name}` here: whom a run is about is known before it begins, from its `input` alone"));
        }
        others.is_empty()
    }
}

/// Keys that begin with `x-` are the user's own: a place to put anchors.
fn known_fields<'a>(spot: &Spot<'a>) -> Option<Fields<'a>> {
    spot.fields_but(TOP, |key| if key.starts_with("x-") { Stranger::Welcome } else { Stranger::Unknown })
}

fn steps<'a>(top: &Fields<'a>, reading: &mut Reading<'a>, around: &Around<'_>) -> Option<Vec<Draft>> {
    let spot = top.require("steps")?;
    let items = spot.list()?;
    if items.is_empty() {
        spot.wrong("there are no steps; a workflow has at least one");
        return None;
    }
    Some(reading.steps(items, around))
}

pub fn workflow_name(spot: &Spot<'_>) -> Option<WorkflowName> {
    WorkflowName::new(spot.text()?).map_err(|error| spot.wrong(error.to_string())).ok()
}

pub fn tool_name(spot: &Spot<'_>) -> Option<ToolName> {
    ToolName::new(spot.text()?).map_err(|error| spot.wrong(error.to_string())).ok()
}

/// An allow-list. `None`: with a mistake in it, it says nothing about what is allowed.
pub fn tool_names(spot: &Spot<'_>) -> Option<Vec<ToolName>> {
    let items = spot.list()?;
    let mut names = Vec::new();
    for item in &items {
        match tool_name(item) {
            Some(name) if names.contains(&name) => item.wrong(format!("{:?} is listed twice", name.as_str())),
            Some(name) => names.push(name),
            None => {}
        }
    }
    (names.len() == items.len()).then_some(names)
}

pub fn budget(spot: &Spot<'_>) -> Option<u64> {
    spot.fields(BUDGET)?.require("effects").and_then(|s| s.count(0)).map(u64::from)
}
