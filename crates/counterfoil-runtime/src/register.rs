//! A spec becomes a tool that the runtime knows: its schemas compiled, its rules bound, everything checked before the first call.

use std::sync::Arc;

use counterfoil_core::policy::Repeat;
use counterfoil_core::{EffectClass, Policy};
use thiserror::Error;

use crate::registry::{ArgsRule, Registered, Schema, SchemaError};
use crate::spec::ToolSpec;
use crate::template::{Expr, Scope};
use crate::tools::{self, BuildError};

#[derive(Debug, Error)]
pub enum RegisterError {
    #[error("tools.{tool}: {source}")]
    Tool { tool: String, source: BuildError },
    #[error("tools.{tool}.{field}: {source}")]
    Schema { tool: String, field: &'static str, source: SchemaError },
}

/// The tool of a spec, and the companion that undoes it where there is one.
pub fn registered(spec: &ToolSpec) -> Result<Vec<Registered>, RegisterError> {
    let name = spec.name.to_string();
    let schema = |field, source: &Option<serde_json::Value>| {
        let compiled = source.as_ref().map(Schema::compile).transpose();
        compiled.map_err(|source| RegisterError::Schema { tool: name.clone(), field, source })
    };
    let (input, output) = (schema("input", &spec.input)?, schema("output", &spec.output)?);
    let built = tools::build(spec).map_err(|source| RegisterError::Tool { tool: name.clone(), source })?;
    let tools = built.into_iter().map(|(tool_name, tool)| {
        if tool_name != spec.name {
            // What undoes a file change checks what it finds: doing it twice is the same as doing it once.
            let policy = Policy { effect: EffectClass::Write, repeat: Repeat::Safe, ..Policy::default() };
            let description = Some(format!("Undoes a change made by {}", spec.name));
            return Registered { description, ..Registered::new(tool_name, tool, policy) };
        }
        Registered {
            name: tool_name,
            description: spec.description.clone(),
            policy: spec.policy.clone(),
            tool,
            input: input.clone(),
            output: output.clone(),
            approval: spec
                .approval
                .clone()
                .map(|expr| rule("approval", expr, |expr, scope| expr.eval_bool(scope).map_err(|e| e.to_string()))),
            cost: spec.cost.clone().map(|expr| rule("cost", expr, cost)),
            subject: spec.subject.clone().map(|expr| rule("subject", expr, subject)),
        }
    });
    Ok(tools.collect())
}

fn rule<T: 'static>(field: &'static str, expr: Expr, eval: fn(&Expr, &Scope) -> Result<T, String>) -> ArgsRule<T> {
    Arc::new(move |args| eval(&expr, &Scope::new().with_args(args)).map_err(|e| format!("{field}: `{}`: {e}", expr.source())))
}

fn cost(expr: &Expr, scope: &Scope) -> Result<f64, String> {
    let value = expr.eval(scope).map_err(|e| e.to_string())?;
    value.as_f64().ok_or_else(|| format!("gives {value}, which is not a number"))
}

/// A person, or whoever else data is about, by a text or a number: 7 and "7" are one.
pub(crate) fn subject(expr: &Expr, scope: &Scope) -> Result<String, String> {
    match expr.eval(scope).map_err(|e| e.to_string())? {
        serde_json::Value::String(text) if !text.is_empty() => Ok(text),
        serde_json::Value::Number(number) => Ok(number.to_string()),
        value => Err(format!("gives {value}, which is neither a number nor a text that says something")),
    }
}
