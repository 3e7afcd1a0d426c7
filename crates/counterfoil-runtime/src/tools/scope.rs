//! What the templates of a tool see: the invocation, and the environment variables the config names.
//!
//! Must stay true: a variable of the process that no template names literally is never in scope, so no argument of an
//! agent can reach it. A named one that is not set is an error at start.

use counterfoil_core::{Json, StateChanged};
use serde_json::{Map, Value, json};

use super::BuildError;
use crate::template::{Expr, Scope};
use crate::tool::{Invocation, Recorded};

/// The environment variables a tool's templates name, read once at start.
#[derive(Debug, Clone, Default)]
pub(super) struct Environment {
    values: Value,
}

impl Environment {
    pub(super) fn read<'a>(exprs: impl IntoIterator<Item = &'a Expr>) -> Result<Self, BuildError> {
        let mut values = Map::new();
        for expr in exprs {
            for name in expr.env_names() {
                let value = std::env::var(&name).map_err(|_| BuildError::EnvironmentMissing { name: name.clone() })?;
                values.insert(name, value.into());
            }
        }
        Ok(Self { values: Value::Object(values) })
    }

    /// What does not depend on the call: for the parts of a template that only the operator decides.
    pub(super) fn only(&self) -> Scope {
        Scope::new().with("env", &self.values)
    }

    pub(super) fn scope(&self, invocation: &Invocation) -> Scope {
        self.only()
            .with_args(&invocation.args)
            .with("key", &json!(invocation.key.to_string()))
            .with("tool", &json!(invocation.tool.as_str()))
            .with("tenant", &json!(invocation.tenant.as_str()))
            .with("run", &invocation.run.as_ref().map_or(Value::Null, |run| json!({ "id": run.as_str() })))
            .with("attempt", &json!(invocation.attempt))
    }

    /// With what is recorded of an effect that was done.
    pub(super) fn scope_recorded(&self, invocation: &Invocation, recorded: &Recorded) -> Scope {
        // All four are there, so that an expression may ask whether one is null.
        let state = recorded.state_changed.as_deref().cloned().unwrap_or_default();
        let StateChanged { version, etag, digest, reference } = state;
        let state = json!({ "version": version, "etag": etag, "digest": digest, "ref": reference });
        self.scope_after(invocation, &recorded.result).with("state", &state)
    }

    pub(super) fn scope_after(&self, invocation: &Invocation, result: &Json) -> Scope {
        self.scope(invocation).with_json("result", result)
    }
}
