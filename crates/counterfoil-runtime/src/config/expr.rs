//! Expressions and templates of a file: parsed, and held to what their place knows.
//!
//! What passes here can fail later only because of the data it meets. What a place knows is said by whoever reads it, as [`Knows`]; each
//! mistake stands in the line of the text it is in, however deep inside a value.

use super::mistake::Mistake;
use super::node::{Node, Value};
use super::read::Spot;
use crate::template::{Expr, ExprError, TextTemplate, ValueTemplate};

/// What the expressions of a place may refer to.
pub trait Knows {
    /// Reports what `expr` refers to and is not there. `false`: there was some.
    fn check(&self, spot: &Spot<'_>, expr: &Expr) -> bool;
}

/// An expression. `true`, `false` and numbers are expressions too.
pub fn expr(spot: &Spot<'_>, knows: &dyn Knows) -> Option<Expr> {
    let source = spot.printed()?;
    let inner = source.trim().strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    if let Some(inner) = inner.filter(|inner| !inner.contains("${")) {
        spot.report.add(spot.mistake("an expression is written here without ${ }").suggest(Some(inner.trim())));
        return None;
    }
    let expr = Expr::parse(&source).map_err(|error| spot.wrong(format!("not a CEL expression: {}", said(&error)))).ok()?;
    knows.check(spot, &expr).then_some(expr)
}

/// A text with `${…}` in it.
pub fn text(spot: &Spot<'_>, knows: &dyn Knows) -> Option<TextTemplate> {
    template(spot, spot.text()?, knows)
}

/// Likewise, where a number or boolean stands for its text.
pub fn printed(spot: &Spot<'_>, knows: &dyn Knows) -> Option<TextTemplate> {
    template(spot, &spot.printed()?, knows)
}

/// Any value with `${…}` in its texts.
pub fn value(spot: &Spot<'_>, knows: &dyn Knows) -> Option<ValueTemplate> {
    let below = |node: &Node, path: String| value(&Spot { node, path, report: spot.report, named: node.place }, knows);
    match &spot.node.value {
        Value::String(text) => template(spot, text, knows).map(ValueTemplate::text),
        // All of them before the first that is wrong counts: every mistake is to show.
        Value::List(items) => {
            let items: Vec<_> = items.iter().enumerate().map(|(i, node)| below(node, format!("{}[{i}]", spot.path))).collect();
            items.into_iter().collect::<Option<_>>().map(ValueTemplate::list)
        }
        Value::Map(entries) => {
            let members: Vec<_> = entries
                .iter()
                .map(|(key, node)| {
                    let path = format!("{}.{}", spot.path, key.text);
                    let literal = !key.text.contains("${");
                    if !literal {
                        spot.report.add(Mistake::new(key.place, &path, "a name cannot hold an expression, only a value can"));
                    }
                    below(node, path).filter(|_| literal).map(|value| (key.text.clone(), value))
                })
                .collect();
            members.into_iter().collect::<Option<_>>().map(ValueTemplate::object)
        }
        _ => Some(ValueTemplate::literal(spot.node.to_json())),
    }
}

fn template(spot: &Spot<'_>, text: &str, knows: &dyn Knows) -> Option<TextTemplate> {
    let template = TextTemplate::parse(text).map_err(|error| spot.wrong(said(&error))).ok()?;
    let strange = template.exprs().iter().filter(|expr| !knows.check(spot, expr)).count();
    (strange == 0).then_some(template)
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
