//! One CEL expression.
//!
//! JSON knows one kind of number, CEL three that do not mix. Here a whole JSON number is an `int` (a `uint` above `i64`), any other
//! a `double`, and `+ - * /` of an integer and a double are done in doubles; so `args.price * 100` works for 12 and for
//! 12.5. Two integers divide as integers (`7 / 2` is 3): write `double(args.a) / 2.0` where that is not meant. `%` is for integers only.

use std::fmt;
use std::sync::Arc;

use cel::common::ast::IdedExpr;
use cel::{ExecutionError, Value as CelValue};
use counterfoil_core::Json;
use thiserror::Error;

use super::names::Names;
use super::scope::Scope;
use super::{arithmetic, convert, lexis, stack};

/// Longest source of one expression. Longer ones belong into code.
pub const SOURCE_BYTES_MAX: usize = 4096;
/// Deepest nesting of one expression: evaluation is recursive, and must not exhaust the stack of a worker thread.
pub const DEPTH_MAX: usize = 32;
/// Most steps of one evaluation, estimated as (size of the scope) ^ (nesting of `map`, `filter`, `all`, `exists`, `in`, `contains`, `matches`): about
/// a second of work.
pub const STEPS_MAX: usize = 1_000_000;

/// An expression or a template that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct ExprError {
    pub message: String,
    /// Byte offset into the text that was given to `parse`.
    pub at: Option<usize>,
    /// Where in a JSON template, e.g. `/headers/0`; empty for the template itself.
    pub path: String,
}

impl ExprError {
    pub(super) fn new(at: impl Into<Option<usize>>, message: impl Into<String>) -> Self {
        Self { message: message.into(), at: at.into(), path: String::new() }
    }

    /// The same error in a text in which this expression begins at `start`.
    pub(super) fn shifted(self, start: usize) -> Self {
        Self { at: Some(self.at.map_or(start, |at| at + start)), ..self }
    }
}

impl fmt::Display for ExprError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "at {}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        match self.at {
            Some(at) => write!(f, " (at byte {at})"),
            None => Ok(()),
        }
    }
}

/// An expression that met data it cannot be evaluated on. Names the expression, never a value.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{expression}`: {reason}")]
pub struct EvalError {
    pub expression: String,
    pub reason: String,
}

/// A parsed expression. Cheap to clone.
#[derive(Clone)]
pub struct Expr(Arc<Parsed>);

struct Parsed {
    source: String,
    ast: IdedExpr,
    names: Names,
}

impl fmt::Debug for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expr({:?})", self.0.source)
    }
}

impl PartialEq for Expr {
    fn eq(&self, other: &Self) -> bool {
        self.0.source == other.0.source
    }
}

impl Expr {
    pub fn parse(source: &str) -> Result<Self, ExprError> {
        if source.trim().is_empty() {
            return Err(ExprError::new(0, "the expression is empty"));
        }
        if source.len() > SOURCE_BYTES_MAX {
            return Err(ExprError::new(
                None,
                format!("the expression is {} bytes long; at most {SOURCE_BYTES_MAX} are allowed", source.len()),
            ));
        }
        let brackets = lexis::nesting(source);
        if brackets > DEPTH_MAX {
            return Err(too_deep(brackets));
        }
        let (ast, names) = parse_on_large_stack(source)?;
        Ok(Self(Arc::new(Parsed { source: source.to_owned(), ast, names })))
    }

    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// The variables it reads, sorted; those a `map` or `filter` binds itself are not among them.
    pub fn variables(&self) -> Vec<String> {
        self.0.names.variables.iter().cloned().collect()
    }

    /// The members of `env` it names, so that no other variable of the process need ever be in scope. `has(env.X)` does not count: it
    /// asks, and an absent variable is an answer.
    pub fn env_names(&self) -> Vec<String> {
        self.0.names.env.iter().cloned().collect()
    }

    /// The members of `steps` it names, as `steps.X` or `steps["X"]`, so that a workflow can tell whether they have ended by then.
    pub fn step_names(&self) -> Vec<String> {
        self.0.names.steps.iter().cloned().collect()
    }

    /// Whether it reads `steps` in another way too, which leaves open which of them.
    pub fn reads_steps_whole(&self) -> bool {
        self.0.names.steps_whole
    }

    pub fn eval(&self, scope: &Scope) -> Result<serde_json::Value, EvalError> {
        convert::to_json(&self.resolve(scope)?).map_err(|reason| self.error(reason))
    }

    /// Like `eval`, but as text: numbers that no double and no 64-bit integer holds keep their digits.
    pub fn eval_json(&self, scope: &Scope) -> Result<Json, EvalError> {
        let mut out = String::new();
        self.write_json(scope, &mut out)?;
        Json::parse(&out).map_err(|e| self.error(e.to_string()))
    }

    pub fn eval_bool(&self, scope: &Scope) -> Result<bool, EvalError> {
        match self.resolve(scope)? {
            CelValue::Bool(b) => Ok(b),
            other => Err(self.error(format!("must be true or false, but is {}", convert::kind(&other)))),
        }
    }

    pub(super) fn write_json(&self, scope: &Scope, out: &mut String) -> Result<(), EvalError> {
        match scope.args_text() {
            // Byte for byte: what was hashed is what is sent.
            Some(args) if self.0.source.trim() == "args" => out.push_str(args),
            _ => convert::write_json(&self.resolve(scope)?, out).map_err(|reason| self.error(reason))?,
        }
        Ok(())
    }

    /// A scalar as it stands in a text.
    pub(super) fn eval_text(&self, scope: &Scope) -> Result<String, EvalError> {
        convert::to_text(&self.resolve(scope)?).map_err(|reason| self.error(reason))
    }

    fn resolve(&self, scope: &Scope) -> Result<CelValue, EvalError> {
        let steps = u32::try_from(self.0.names.loops).ok().and_then(|loops| scope.size().checked_pow(loops));
        if steps.is_none_or(|steps| steps > STEPS_MAX) {
            return Err(self.error(format!("{} nested loops over data of size {} are too much work", self.0.names.loops, scope.size())));
        }
        CelValue::resolve(&self.0.ast, scope.context()).map_err(|error| self.error(reason(&error)))
    }

    fn error(&self, reason: impl Into<String>) -> EvalError {
        EvalError { expression: self.0.source.trim().to_owned(), reason: reason.into() }
    }
}

/// The parser recurses, and may give up on what it does not understand.
fn parse_on_large_stack(source: &str) -> Result<(IdedExpr, Names), ExprError> {
    let parse = || {
        let mut ast = arithmetic::environment().parser().parse(source).map_err(|errors| first_error(source, &errors))?;
        let names = Names::of(&ast);
        if names.depth > DEPTH_MAX {
            return Err(too_deep(names.depth));
        }
        arithmetic::allow_mixed_arithmetic(&mut ast);
        Ok((ast, names))
    };
    let parse = || std::panic::catch_unwind(std::panic::AssertUnwindSafe(parse));
    let parsed = stack::on_large_stack(parse).map_err(|e| ExprError::new(None, format!("no thread to parse on: {e}")))?;
    parsed.unwrap_or_else(|_| Err(ExprError::new(None, "the parser gave up on this expression")))
}

fn too_deep(depth: usize) -> ExprError {
    ExprError::new(None, format!("the expression is nested {depth} deep; at most {DEPTH_MAX} are allowed"))
}

/// The parser's first complaint; the later ones are mostly its consequences.
fn first_error(source: &str, errors: &cel::ParseErrors) -> ExprError {
    let Some(error) = errors.errors.first() else { return ExprError::new(None, "not an expression") };
    if error.msg.contains("Recursion limit") {
        return ExprError::new(None, "the expression is nested too deep");
    }
    let message = error.msg.strip_prefix("Syntax error: ").unwrap_or(&error.msg).to_owned();
    ExprError::new(offset(source, error.pos), message)
}

/// The byte offset of a (line, column), both counted from one.
fn offset(source: &str, (line, column): (isize, isize)) -> Option<usize> {
    let (line, column) = (usize::try_from(line).ok()?.checked_sub(1)?, usize::try_from(column).ok()?.checked_sub(1)?);
    let start: usize = source.split_inclusive('\n').take(line).map(str::len).sum();
    let within = source.get(start..)?;
    Some(start + within.char_indices().nth(column).map_or(within.len(), |(at, _)| at))
}

/// What went wrong, without the values that took part in it.
fn reason(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(name) => format!("there is no member `{name}`"),
        ExecutionError::UndeclaredReference(name) => format!("`{name}` is not known here"),
        ExecutionError::NoSuchOverload(o) => {
            format!("`{}` does not take {}", arithmetic::operator(o.function()), o.argument_types().join(" and "))
        }
        ExecutionError::UnsupportedBinaryOperator(operator, left, right) => {
            format!("`{}` does not take {} and {}", arithmetic::operator(operator), convert::kind(left), convert::kind(right))
        }
        ExecutionError::ValuesNotComparable(left, right) => {
            format!("{} cannot be compared with {}", convert::kind(left), convert::kind(right))
        }
        ExecutionError::UnexpectedType { got, want } => format!("expected {want}, found {got}"),
        ExecutionError::UnsupportedIndex(index, of) => format!("{} is no index into {}", convert::kind(index), convert::kind(of)),
        ExecutionError::IndexOutOfBounds(_) => "the index is beyond the end of the list".into(),
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => "division by zero".into(),
        ExecutionError::Overflow(..) => "the result does not fit into 64 bits".into(),
        ExecutionError::InvalidArgumentCount { expected, actual } => format!("{actual} arguments where {expected} are expected"),
        ExecutionError::UnsupportedTargetType { target } => format!("does not work on {}", convert::kind(target)),
        ExecutionError::NotSupportedAsMethod { method, target } => format!("`{method}` does not work on {}", convert::kind(target)),
        ExecutionError::UnsupportedKeyType(key) => format!("{} cannot name a member", convert::kind(key)),
        ExecutionError::DuplicateKey(_) => "a member is given twice".into(),
        ExecutionError::MissingArgumentOrTarget => "an argument is missing".into(),
        // Its message may quote the value that could not be converted.
        ExecutionError::FunctionError { function, .. } => format!("`{function}` failed on this value"),
        _ => "cannot be evaluated on this data".into(),
    }
}
