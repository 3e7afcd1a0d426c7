//! A JSON value with `${…}` in its strings. A string that is only `${…}` keeps the type of what it evaluates to.
//!
//! Member names are literal: a name from an expression could overwrite its neighbour.

use counterfoil_core::canonical::{DEPTH_MAX, canonicalize};

use super::expr::{EvalError, Expr, ExprError};
use super::scope::Scope;
use super::text::{Part, TextTemplate};

#[derive(Debug, Clone, PartialEq)]
pub struct ValueTemplate {
    root: Node,
}

#[derive(Debug, Clone, PartialEq)]
enum Node {
    Literal(serde_json::Value),
    Text(TextTemplate),
    Expr(Expr),
    List(Vec<Node>),
    Object(Vec<(String, Node)>),
}

impl ValueTemplate {
    pub fn parse(value: &serde_json::Value) -> Result<Self, ExprError> {
        Ok(Self { root: parse(value, &mut Vec::new())? })
    }

    /// What holds no expression.
    pub(crate) fn literal(value: serde_json::Value) -> Self {
        Self { root: Node::Literal(value) }
    }

    pub(crate) fn text(text: TextTemplate) -> Self {
        Self { root: leaf(text) }
    }

    pub(crate) fn list(items: Vec<Self>) -> Self {
        Self { root: Node::List(items.into_iter().map(|item| item.root).collect()) }
    }

    /// Names are literal.
    pub(crate) fn object(members: Vec<(String, Self)>) -> Self {
        Self { root: Node::Object(members.into_iter().map(|(name, value)| (name, value.root)).collect()) }
    }

    pub fn render(&self, scope: &Scope) -> Result<serde_json::Value, EvalError> {
        render(&self.root, scope)
    }

    /// As JSON text, in which every number keeps its digits; the template `${args}` gives the canonical arguments unchanged.
    pub fn render_json(&self, scope: &Scope) -> Result<String, EvalError> {
        let mut out = String::new();
        write(&self.root, scope, &mut out)?;
        // Canonical, so that the same call sends the same bytes on every attempt.
        canonicalize(&out).map_err(|e| EvalError { expression: "template".into(), reason: e.to_string() })
    }

    pub fn exprs(&self) -> Vec<&Expr> {
        let mut found = Vec::new();
        collect(&self.root, &mut found);
        found
    }
}

fn parse(value: &serde_json::Value, path: &mut Vec<String>) -> Result<Node, ExprError> {
    let here = |path: &[String]| path.iter().map(|step| format!("/{step}")).collect::<String>();
    if path.len() > DEPTH_MAX {
        return Err(ExprError { path: here(path), ..ExprError::new(None, format!("nested deeper than {DEPTH_MAX} levels")) });
    }
    match value {
        serde_json::Value::String(text) => TextTemplate::parse(text).map(leaf).map_err(|e| ExprError { path: here(path), ..e }),
        serde_json::Value::Array(list) => {
            let nodes = list.iter().enumerate().map(|(i, value)| {
                path.push(i.to_string());
                let node = parse(value, path);
                path.pop();
                node
            });
            Ok(Node::List(nodes.collect::<Result<_, _>>()?))
        }
        serde_json::Value::Object(map) => {
            let members = map.iter().map(|(name, value)| {
                path.push(name.clone());
                if name.contains("${") {
                    return Err(ExprError { path: here(path), ..ExprError::new(None, "the name of a member cannot hold an expression") });
                }
                let node = parse(value, path);
                path.pop();
                Ok((name.clone(), node?))
            });
            Ok(Node::Object(members.collect::<Result<_, _>>()?))
        }
        scalar => Ok(Node::Literal(scalar.clone())),
    }
}

fn leaf(template: TextTemplate) -> Node {
    match (template.parts(), template.literal()) {
        ([Part::Expr(expr)], _) => Node::Expr(expr.clone()),
        (_, Some(text)) => Node::Literal(text.into()),
        _ => Node::Text(template),
    }
}

fn render(node: &Node, scope: &Scope) -> Result<serde_json::Value, EvalError> {
    Ok(match node {
        Node::Literal(value) => value.clone(),
        Node::Text(text) => text.render(scope)?.into(),
        Node::Expr(expr) => expr.eval(scope)?,
        Node::List(nodes) => nodes.iter().map(|node| render(node, scope)).collect::<Result<Vec<_>, _>>()?.into(),
        Node::Object(members) => {
            let members = members.iter().map(|(name, node)| Ok((name.clone(), render(node, scope)?)));
            serde_json::Value::Object(members.collect::<Result<_, EvalError>>()?)
        }
    })
}

fn write(node: &Node, scope: &Scope, out: &mut String) -> Result<(), EvalError> {
    match node {
        Node::Literal(value) => out.push_str(&value.to_string()),
        Node::Text(text) => out.push_str(&serde_json::Value::String(text.render(scope)?).to_string()),
        Node::Expr(expr) => expr.write_json(scope, out)?,
        Node::List(nodes) => {
            out.push('[');
            for (i, node) in nodes.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { "," });
                write(node, scope, out)?;
            }
            out.push(']');
        }
        Node::Object(members) => {
            out.push('{');
            for (i, (name, node)) in members.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { "," });
                out.push_str(&serde_json::Value::String(name.clone()).to_string());
                out.push(':');
                write(node, scope, out)?;
            }
            out.push('}');
        }
    }
    Ok(())
}

fn collect<'a>(node: &'a Node, found: &mut Vec<&'a Expr>) {
    match node {
        Node::Literal(_) => {}
        Node::Text(text) => found.extend(text.exprs()),
        Node::Expr(expr) => found.push(expr),
        Node::List(nodes) => nodes.iter().for_each(|node| collect(node, found)),
        Node::Object(members) => members.iter().for_each(|(_, node)| collect(node, found)),
    }
}
