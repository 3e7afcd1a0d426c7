//! The variables an expression sees.
//!
//! Each is converted once, when it is put in; evaluating many expressions against one scope copies nothing.
//! `args` is kept as text besides, so that `${args}` passes it on byte for byte.

use std::fmt;
use std::sync::Arc;

use cel::Context;
use counterfoil_core::{CanonicalJson, Json};

use super::{arithmetic, convert};

/// What every template of a tool sees. `result` and `response` come on top where there is one.
pub const CALL_VARIABLES: &[&str] = &["args", "attempt", "env", "key", "run", "tenant", "tool"];

pub struct Scope {
    context: Context<'static, 'static>,
    names: Vec<String>,
    args: Option<CanonicalJson>,
    /// Bounds what a loop over all of it can cost.
    size: usize,
}

impl Scope {
    pub fn new() -> Self {
        Self { context: Context::with_env(Arc::clone(arithmetic::environment())), names: Vec::new(), args: None, size: 0 }
    }

    pub fn with(mut self, name: &str, value: &serde_json::Value) -> Self {
        let mut size = 0;
        let value = convert::from_json(value, &mut size);
        self.bind(name, value, size);
        self
    }

    /// From JSON text: keeps the digits that a `serde_json::Value` would round away.
    pub fn with_json(mut self, name: &str, json: &Json) -> Self {
        self.bind_text(name, json.as_str());
        self
    }

    /// The variable `args`.
    pub fn with_args(mut self, args: &CanonicalJson) -> Self {
        self.bind_text("args", args.as_str());
        self.args = Some(args.clone());
        self
    }

    fn bind_text(&mut self, name: &str, text: &str) {
        let (value, size) = convert::from_text(text);
        self.bind(name, value, size);
    }

    fn bind(&mut self, name: &str, value: cel::Value, size: usize) {
        if name == "args" {
            self.args = None;
        }
        self.size += size;
        self.names.push(name.to_owned());
        self.context.add_variable_from_value(name, value);
    }

    pub(super) fn context(&self) -> &Context<'static, 'static> {
        &self.context
    }

    pub(super) fn args_text(&self) -> Option<&str> {
        self.args.as_ref().map(CanonicalJson::as_str)
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }
}

impl Default for Scope {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Scope {
    /// Names only: values may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("names", &self.names).finish_non_exhaustive()
    }
}
