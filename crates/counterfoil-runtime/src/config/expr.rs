//! Expressions and templates of the file: parsed, and held to the variables their place knows.
//!
//! What passes here can fail later only because of the data it meets. Each place sees what exists when it is evaluated: `args` before
//! anything is sent, `response` once something answered, `result` once the effect is done.

use super::context::Context;
use super::mistake::Mistake;
use super::node::{Node, Value};
use super::read::Spot;
use super::suggest::nearest;
use crate::template::{CALL_VARIABLES, Expr, ExprError, TextTemplate, ValueTemplate};

/// Which variables a place knows.
#[derive(Debug, Clone, Copy)]
pub struct Sees {
    call: bool,
    result: bool,
    response: bool,
}

impl Sees {
    /// Only the arguments: what is decided before anything is sent.
    pub const ARGS: Sees = Sees { call: false, result: false, response: false };
    /// Everything about the call.
    pub const CALL: Sees = Sees { call: true, result: false, response: false };

    pub fn with_result(self) -> Self {
        Self { result: true, ..self }
    }

    pub fn with_response(self) -> Self {
        Self { response: true, ..self }
    }

    fn names(self) -> Vec<&'static str> {
        let mut names = if self.call { CALL_VARIABLES.to_vec() } else { vec!["args"] };
        names.extend(self.result.then_some("result"));
        names.extend(self.response.then_some("response"));
        names
    }
}

impl Context<'_> {
    /// An expression. `true`, `false` and numbers are expressions too.
    pub fn expr(&self, spot: &Spot<'_>, sees: Sees) -> Option<Expr> {
        let source = spot.printed()?;
        let inner = source.trim().strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
        if let Some(inner) = inner.filter(|inner| !inner.contains("${")) {
            spot.report.add(spot.mistake("an expression is written here without ${ }").suggest(Some(inner.trim())));
            return None;
        }
        let expr = Expr::parse(&source).map_err(|error| spot.wrong(format!("not a CEL expression: {}", said(&error)))).ok()?;
        self.variables(spot, &[&expr], sees).then_some(expr)
    }

    /// A text with `${…}` in it.
    pub fn text(&self, spot: &Spot<'_>, sees: Sees) -> Option<TextTemplate> {
        self.template(spot, spot.text()?, sees)
    }

    /// Likewise, where a number or boolean stands for its text.
    pub fn printed(&self, spot: &Spot<'_>, sees: Sees) -> Option<TextTemplate> {
        self.template(spot, &spot.printed()?, sees)
    }

    /// Any value with `${…}` in its texts.
    pub fn value(&self, spot: &Spot<'_>, sees: Sees) -> Option<ValueTemplate> {
        // Leaf by leaf first: each mistake then has its own line.
        if !self.leaves(spot, sees) {
            return None;
        }
        ValueTemplate::parse(&spot.node.to_json()).map_err(|error| spot.wrong(error.to_string())).ok()
    }

    fn leaves(&self, spot: &Spot<'_>, sees: Sees) -> bool {
        let below = |node: &Node, path: String| {
            let leaf = Spot { node, path, report: spot.report, named: node.place };
            self.leaves(&leaf, sees)
        };
        match &spot.node.value {
            Value::String(text) => self.template(spot, text, sees).is_some(),
            Value::List(items) => items.iter().enumerate().fold(true, |ok, (i, node)| below(node, format!("{}[{i}]", spot.path)) && ok),
            Value::Map(entries) => entries.iter().fold(true, |ok, (key, node)| {
                let path = format!("{}.{}", spot.path, key.text);
                let literal = !key.text.contains("${");
                if !literal {
                    spot.report.add(Mistake::new(key.place, &path, "a name cannot hold an expression, only a value can"));
                }
                below(node, path) && literal && ok
            }),
            _ => true,
        }
    }

    fn template(&self, spot: &Spot<'_>, text: &str, sees: Sees) -> Option<TextTemplate> {
        let template = TextTemplate::parse(text).map_err(|error| spot.wrong(said(&error))).ok()?;
        self.variables(spot, &template.exprs(), sees).then_some(template)
    }

    /// Reports variables that this place does not know.
    fn variables(&self, spot: &Spot<'_>, exprs: &[&Expr], sees: Sees) -> bool {
        let known = sees.names();
        let mut ok = true;
        for expr in exprs {
            for name in expr.variables().iter().filter(|name| !known.contains(&name.as_str())) {
                ok = false;
                spot.report.add(unknown(spot, name, sees).allowed(known.iter().copied()));
            }
            if sees.call {
                for name in expr.env_names() {
                    ok &= self.env_name(spot, &name).is_some();
                }
            }
        }
        ok
    }
}

/// The error without what the grammar would have accepted instead, which is nearly everything.
fn said(error: &ExprError) -> String {
    let message = error.message.split(" expecting ").next().unwrap_or(&error.message);
    let message = if message.contains("'<EOF>'") { "it ends too early" } else { message };
    match error.at {
        Some(at) => format!("{message} (after {at} bytes)"),
        None => message.to_owned(),
    }
}

fn unknown(spot: &Spot<'_>, name: &str, sees: Sees) -> Mistake {
    let mistake = match name {
        "result" => spot.mistake("result is not known here: it is there once the effect is done, in verify and undo"),
        "response" => spot.mistake("response is not known here: it is there once an answer came, in result, happened and holds"),
        // Somebody thought of the shell.
        _ if name.len() > 1 && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_') => {
            let message = format!("there is no variable {name} here");
            return spot.mistake(message).suggest(sees.call.then(|| format!("env.{name}")));
        }
        _ => spot.mistake(format!("there is no variable {name} here")),
    };
    mistake.suggest(nearest(name, sees.names()))
}
