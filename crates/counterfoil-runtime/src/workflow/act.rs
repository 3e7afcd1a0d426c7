//! Steps that do something themselves: `tool`, `decision`, `sleep`, `wait`, `call`.
//!
//! Every part is read even when another is wrong, so that all mistakes of a step show at once. What a step may be followed by goes into its
//! draft, also when the rest of it is wrong.

use counterfoil_core::run::confirm::Confirm;
use counterfoil_core::run::plan::{Draft, NodeId};
use serde_json::json;

use super::around::Around;
use super::mention::By;
use super::read::{tool_name, workflow_name};
use super::steps::Reading;
use super::{Nap, StepSpec, ToolStep, UndoStep, Wait, WaitFor};
use crate::config::confirm;
use crate::config::expr;
use crate::config::policy;
use crate::config::read::{Fields, Spot};
use crate::template::{Expr, Part, TextTemplate, ValueTemplate};

pub const UNDO: &[&str] = &["tool", "args", "retry"];
pub const WAY: &[&str] = &["when", "then", "else"];
pub const WAIT: &[&str] = &["signal", "correlation", "approval", "timeout", "then", "otherwise"];
pub const CALL: &[&str] = &["workflow", "input"];

/// A signal is named in urls.
const SIGNAL_BYTES_MAX: usize = 255;

impl<'a> Reading<'a> {
    pub fn tool(&mut self, step: &Fields<'a>, spot: Spot<'a>, node: NodeId, around: &Around<'_>) -> Option<StepSpec> {
        let tool = tool_name(&spot);
        if let Some(tool) = &tool {
            around.allows(&spot, tool);
        }
        let args = self.value_or_empty(step, "args", By::Step(node), around);
        let retry = step.get("retry").and_then(|s| policy::retry(&s));
        let undo = step.get("undo").and_then(|s| self.undo(&s, node, around));
        let mut confirmed = Confirm::default();
        step.read("confirm", confirm::read, &mut confirmed);
        Some(StepSpec::Tool(Box::new(ToolStep { tool: tool?, args: args?, retry, undo, confirm: confirmed })))
    }

    fn undo(&self, spot: &Spot<'_>, node: NodeId, around: &Around<'_>) -> Option<UndoStep> {
        let fields = spot.fields(UNDO)?;
        let tool = fields.require("tool").and_then(|s| {
            let tool = tool_name(&s)?;
            around.allows(&s, &tool);
            Some(tool)
        });
        let args = fields.require("args").and_then(|s| expr::value(&s, &self.sees(By::UndoOf(node), around)));
        let retry = fields.get("retry").and_then(|s| policy::retry(&s));
        Some(UndoStep { tool: tool?, args: args?, retry })
    }

    pub fn decision(&mut self, spot: &Spot<'_>, node: NodeId, around: &Around<'_>, draft: &mut Draft) -> Option<StepSpec> {
        let Some(ways) = spot.list() else {
            self.lost.order = true;
            return None;
        };
        if ways.is_empty() {
            spot.wrong("there are no ways to choose from; write at least { when: …, then: […] }");
        }
        let mut when = Vec::new();
        for (i, way) in ways.iter().enumerate() {
            let (condition, targets) = self.way(way, i + 1 == ways.len(), node, around);
            when.push(condition);
            draft.ways.push(targets);
        }
        when.into_iter().collect::<Option<_>>().map(|when| StepSpec::Decision { when })
    }

    /// The condition (`Some(None)`: else; `None`: wrong) and what is to run then.
    fn way(&mut self, spot: &Spot<'_>, is_last: bool, node: NodeId, around: &Around<'_>) -> (Option<Option<Expr>>, Vec<String>) {
        let kind = spot.fields(WAY).and_then(|fields| {
            if fields.has("then") && !fields.has("when") && !fields.has("else") {
                fields.spot.wrong_whole("\"when\" is missing; what is to run otherwise is written as { else: [ids] }");
                return None;
            }
            fields.exactly_one(&["when", "else"]).map(|found| (fields, found))
        });
        let Some((fields, (kind, found))) = kind else {
            self.lost.order = true;
            return (None, Vec::new());
        };
        if kind == "when" {
            let condition = expr::expr(&found, &self.sees(By::Step(node), around));
            let then = fields.require("then");
            self.lost.order |= then.is_none();
            return (condition.map(Some), then.and_then(|s| self.names(&s)).unwrap_or_default());
        }
        if fields.has("then") {
            fields.wrong("then", "what is to run otherwise is written as { else: [ids] }, without then");
        }
        if !is_last {
            fields.wrong("else", "else is taken whenever it is reached, so nothing may follow it");
        }
        (Some(None), self.names(&found).unwrap_or_default())
    }

    pub fn sleep(&mut self, spot: &Spot<'_>, node: NodeId, around: &Around<'_>) -> Option<StepSpec> {
        if !spot.node.as_str().is_some_and(|text| text.contains("${")) {
            return spot.duration().map(|time| StepSpec::Sleep(Nap::For(time)));
        }
        let text = expr::text(spot, &self.sees(By::Step(node), around))?;
        match text.parts() {
            [Part::Expr(expr)] => Some(StepSpec::Sleep(Nap::Until(expr.clone()))),
            _ => {
                spot.wrong("a sleep is a duration, as in 10m, or one expression that gives it, as in \"${input.pause}\"");
                None
            }
        }
    }

    pub fn wait(&mut self, spot: &Spot<'_>, node: NodeId, around: &Around<'_>, draft: &mut Draft) -> Option<StepSpec> {
        let Some(fields) = spot.fields(WAIT) else {
            self.lost.order = true;
            return None;
        };
        let on = fields.exactly_one(&["signal", "approval"]).and_then(|(kind, on)| {
            let sees = self.sees(By::Step(node), around);
            if kind == "signal" {
                let correlation = fields.get("correlation").map(|s| expr::printed(&s, &sees));
                return Some(WaitFor::Signal { name: signal(&on)?, correlation: correlation.map_or(Some(None), |text| text.map(Some))? });
            }
            if fields.has("correlation") {
                fields.wrong("correlation", "correlation is for a signal; an approval belongs to this step of this run");
            }
            expr::text(&on, &sees).filter(|text| said(&on, text)).map(|message| WaitFor::Approval { message })
        });
        let timeout = fields.get("timeout").and_then(|s| s.duration());
        if fields.has("signal") && fields.has("otherwise") && !fields.has("timeout") {
            fields.wrong("otherwise", "without a timeout the signal is waited for until it comes; add timeout, or drop otherwise");
        }
        let then = fields.get("then").map(|s| self.names(&s).unwrap_or_default());
        let otherwise = fields.get("otherwise").map(|s| self.names(&s).unwrap_or_default());
        draft.ways = match (then, otherwise) {
            (then, Some(otherwise)) => vec![then.unwrap_or_default(), otherwise],
            (then, None) => then.into_iter().collect(),
        };
        Some(StepSpec::Wait(Wait { on: on?, timeout }))
    }

    pub fn call(&mut self, spot: &Spot<'_>, node: NodeId, around: &Around<'_>) -> Option<StepSpec> {
        let fields = spot.fields(CALL)?;
        let workflow = fields.require("workflow").and_then(|s| workflow_name(&s));
        let input = self.value_or_empty(&fields, "input", By::Step(node), around);
        Some(StepSpec::Call { workflow: workflow?, input: input? })
    }

    fn value_or_empty(&self, fields: &Fields<'_>, name: &'static str, by: By, around: &Around<'_>) -> Option<ValueTemplate> {
        match fields.get(name) {
            Some(spot) => expr::value(&spot, &self.sees(by, around)),
            None => Some(ValueTemplate::literal(json!({}))),
        }
    }
}

fn signal(spot: &Spot<'_>) -> Option<String> {
    let name = spot.text()?;
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
    if !plain || name.is_empty() || name.len() > SIGNAL_BYTES_MAX {
        spot.wrong(format!("a signal is named by 1 to {SIGNAL_BYTES_MAX} letters, digits, '_', '-' and '.'"));
        return None;
    }
    Some(name.to_owned())
}

/// Whether there is anything to say yes to.
fn said(spot: &Spot<'_>, text: &TextTemplate) -> bool {
    let empty = text.literal().is_some_and(|text| text.trim().is_empty());
    if empty {
        spot.wrong("what is to be approved? write it for the person who is asked");
    }
    !empty
}
