//! What an expression refers to, found without evaluating it.
//!
//! So that the config can say "`arg` is not known, did you mean `args`?" at start, that no environment variable but the named ones is ever in
//! scope, and that what an evaluation can cost is known before it begins.

use std::collections::BTreeSet;

use cel::common::ast::{CallExpr, EntryExpr, Expr as Node, IdedExpr, LiteralValue, operators};

/// What an expression refers to, and how deep it goes.
#[derive(Default)]
pub(super) struct Names {
    pub variables: BTreeSet<String>,
    pub env: BTreeSet<String>,
    /// Members of `steps`.
    pub steps: BTreeSet<String>,
    /// `steps` without a literal member: any of them, for all one can tell.
    pub steps_whole: bool,
    pub depth: usize,
    pub loops: usize,
}

#[derive(Clone, Copy)]
struct Nesting {
    depth: usize,
    loops: usize,
}

impl Names {
    pub(super) fn of(expr: &IdedExpr) -> Self {
        let mut names = Self::default();
        names.walk(expr, &mut Vec::new(), Nesting { depth: 1, loops: 0 });
        names
    }

    /// `bound` are the variables of the loops around `expr`.
    fn walk<'a>(&mut self, expr: &'a IdedExpr, bound: &mut Vec<&'a str>, at: Nesting) {
        self.depth = self.depth.max(at.depth);
        self.loops = self.loops.max(at.loops);
        let inner = Nesting { depth: at.depth + 1, ..at };
        match &expr.expr {
            Node::Ident(name) => {
                // A leading dot means "not a loop's variable"; a leading @ is the parser's own.
                let name = name.strip_prefix('.').unwrap_or(name);
                if !name.starts_with('@') && !bound.contains(&name) && !is_type(name) {
                    self.variables.insert(name.to_owned());
                    self.steps_whole |= name == "steps";
                }
            }
            Node::Select(select) => {
                if is_env(&select.operand) && !select.test {
                    self.env.insert(select.field.clone());
                }
                if is_steps(&select.operand, bound) {
                    self.step(&select.field, inner);
                } else {
                    self.walk(&select.operand, bound, inner);
                }
            }
            Node::Call(call) => {
                if let [map, IdedExpr { expr: Node::Literal(LiteralValue::String(name)), .. }] = &call.args[..]
                    && call.func_name == operators::INDEX
                {
                    if is_env(map) {
                        self.env.insert(name.inner().to_owned());
                    } else if is_steps(map, bound) {
                        return self.step(name.inner(), inner);
                    }
                }
                if searches(call) {
                    self.loops = self.loops.max(at.loops + 1);
                }
                for part in call.target.iter().map(|t| &**t).chain(&call.args) {
                    self.walk(part, bound, inner);
                }
            }
            Node::List(list) => list.elements.iter().for_each(|e| self.walk(e, bound, inner)),
            Node::Map(map) => map.entries.iter().for_each(|e| self.walk_entry(&e.expr, bound, inner)),
            Node::Struct(s) => s.entries.iter().for_each(|e| self.walk_entry(&e.expr, bound, inner)),
            Node::Comprehension(each) => {
                self.walk(&each.iter_range, bound, inner);
                self.walk(&each.accu_init, bound, inner);
                let outside = bound.len();
                bound.extend([each.iter_var.as_str(), each.accu_var.as_str()]);
                bound.extend(each.iter_var2.as_deref());
                let looped = Nesting { loops: at.loops + 1, ..inner };
                for part in [&each.loop_cond, &each.loop_step, &each.result] {
                    self.walk(part, bound, looped);
                }
                bound.truncate(outside);
            }
            Node::Literal(_) | Node::Unspecified => {}
        }
    }

    /// A named member of `steps`, whose two parts are one deeper.
    fn step(&mut self, name: &str, inner: Nesting) {
        self.depth = self.depth.max(inner.depth);
        self.variables.insert("steps".to_owned());
        self.steps.insert(name.to_owned());
    }

    fn walk_entry<'a>(&mut self, entry: &'a EntryExpr, bound: &mut Vec<&'a str>, at: Nesting) {
        match entry {
            EntryExpr::StructField(field) => self.walk(&field.value, bound, at),
            EntryExpr::MapEntry(entry) => {
                self.walk(&entry.key, bound, at);
                self.walk(&entry.value, bound, at);
            }
        }
    }
}

/// Whether a call looks through one of its operands, which makes it a loop of its own. Through a literal it is a short one.
fn searches(call: &CallExpr) -> bool {
    let through = match (call.func_name.as_str(), &call.args[..]) {
        (operators::IN, [_, container]) => Some(container),
        ("contains" | "matches", _) => call.target.as_deref().or(call.args.first()),
        _ => None,
    };
    through.is_some_and(|operand| !matches!(operand.expr, Node::List(_) | Node::Map(_) | Node::Literal(_)))
}

fn is_env(expr: &IdedExpr) -> bool {
    matches!(&expr.expr, Node::Ident(name) if name == "env")
}

/// Whether this is the variable `steps`, and not a loop's own of that name.
fn is_steps(expr: &IdedExpr, bound: &[&str]) -> bool {
    matches!(&expr.expr, Node::Ident(name) if name.strip_prefix('.').unwrap_or(name) == "steps") && !bound.contains(&"steps")
}

/// Names CEL itself gives a meaning to.
fn is_type(name: &str) -> bool {
    const TYPES: &[&str] = &["bool", "bytes", "double", "int", "list", "map", "null_type", "optional", "string", "type", "uint"];
    TYPES.contains(&name)
}
