//! The tools a runtime knows: each with its policy and the checks that stand before it.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLockReadGuard};

use counterfoil_core::policy::EffectClass;
use counterfoil_core::{CanonicalJson, Policy, Tenant, ToolName};
use thiserror::Error;

use crate::stripes::Copies;
use crate::tool::{Runs, Tool};

/// Decides from the arguments: whether a person must approve, what a call costs, or whom it is about.
pub type ArgsRule<T> = Arc<dyn Fn(&CanonicalJson) -> Result<T, String> + Send + Sync>;

/// A tool and everything the runtime needs to know of it.
#[derive(Clone)]
pub struct Registered {
    pub name: ToolName,
    pub description: Option<String>,
    pub policy: Policy,
    pub tool: Arc<dyn Tool>,
    pub input: Option<Arc<Schema>>,
    pub output: Option<Arc<Schema>>,
    /// True: a person must approve first.
    pub approval: Option<ArgsRule<bool>>,
    pub cost: Option<ArgsRule<f64>>,
    /// Whose personal data a call holds: its records are stored under their key.
    pub subject: Option<ArgsRule<String>>,
}

impl Registered {
    /// A tool with nothing but a policy.
    pub fn new(name: ToolName, tool: Arc<dyn Tool>, policy: Policy) -> Self {
        Self { name, description: None, policy, tool, input: None, output: None, approval: None, cost: None, subject: None }
    }

    pub fn runs(&self) -> Runs {
        self.tool.runs()
    }

    pub fn is_pure(&self) -> bool {
        self.policy.effect == EffectClass::Pure
    }
}

/// A compiled JSON Schema beside its source.
pub struct Schema {
    pub source: serde_json::Value,
    validator: jsonschema::Validator,
}

#[derive(Debug, Clone, Error)]
#[error("not a usable JSON Schema: {0}")]
pub struct SchemaError(String);

/// Violations named in one message.
const VIOLATIONS_SHOWN_MAX: usize = 5;

impl Schema {
    pub fn compile(source: &serde_json::Value) -> Result<Arc<Self>, SchemaError> {
        let validator = jsonschema::validator_for(source).map_err(|e| SchemaError(e.to_string()))?;
        Ok(Arc::new(Self { source: source.clone(), validator }))
    }

    /// What is wrong with `value`, in words; `None` when nothing is.
    pub fn violations(&self, value: &serde_json::Value) -> Option<String> {
        let mut errors = self.validator.iter_errors(value).peekable();
        errors.peek()?;
        let shown: Vec<String> = errors
            .take(VIOLATIONS_SHOWN_MAX)
            .map(|e| {
                let place = e.instance_path().to_string();
                if place.is_empty() { e.to_string() } else { format!("at {place}: {e}") }
            })
            .collect();
        Some(shown.join("; "))
    }
}

/// Tools of everyone, from the config or the program, and tools that tenants registered for themselves. A tenant's own never hides one of everyone's.
#[derive(Default)]
pub struct Registry {
    tools: Copies<Tools>,
}

#[derive(Default)]
struct Tools {
    everyones: BTreeMap<ToolName, Arc<Registered>>,
    own: BTreeMap<Tenant, BTreeMap<ToolName, Arc<Registered>>>,
}

impl Registry {
    pub fn put(&self, tool: Registered) {
        // What it replaces is dropped when all copies are changed: that may run what is not ours.
        let mut replaced = Vec::new();
        // A handle of its own for each copy: every call counts on it.
        self.tools.change(|tools| replaced.push(tools.everyones.insert(tool.name.clone(), Arc::new(tool.clone()))));
    }

    pub fn put_own(&self, tenant: &Tenant, tool: Registered) {
        let mut replaced = Vec::new();
        self.tools.change(|tools| {
            let own = tools.own.entry(tenant.clone()).or_default();
            replaced.push(own.insert(tool.name.clone(), Arc::new(tool.clone())));
        });
    }

    pub fn remove_own(&self, tenant: &Tenant, name: &ToolName) {
        let mut removed = Vec::new();
        self.tools.change(|tools| removed.push(tools.own.get_mut(tenant).and_then(|own| own.remove(name))));
    }

    pub fn get(&self, tenant: &Tenant, name: &ToolName) -> Option<Arc<Registered>> {
        let tools = self.read();
        let own = || tools.own.get(tenant).and_then(|own| own.get(name));
        tools.everyones.get(name).or_else(own).cloned()
    }

    /// Whether it is one of everyone's, or some tenant's own.
    pub fn is_known(&self, name: &ToolName) -> bool {
        let tools = self.read();
        tools.everyones.contains_key(name) || tools.own.values().any(|own| own.contains_key(name))
    }

    /// Whether it is one of everyone's.
    pub fn is_everyones(&self, name: &ToolName) -> bool {
        self.read().everyones.contains_key(name)
    }

    pub fn all(&self) -> Vec<Arc<Registered>> {
        self.read().everyones.values().cloned().collect()
    }

    /// Who registered tools of their own.
    pub fn tenants(&self) -> Vec<Tenant> {
        self.read().own.keys().cloned().collect()
    }

    /// Everyone's and the tenant's own, by name.
    pub fn all_of(&self, tenant: &Tenant) -> Vec<Arc<Registered>> {
        let tools = self.read();
        let mut all = tools.own.get(tenant).cloned().unwrap_or_default();
        all.extend(tools.everyones.clone());
        all.into_values().collect()
    }

    /// The known name nearest to `name`, for messages.
    pub fn nearest(&self, tenant: &Tenant, name: &str) -> Option<ToolName> {
        let known = self.all_of(tenant);
        let close = known.iter().map(|tool| (distance(tool.name.as_str(), name), &tool.name)).min_by_key(|(d, _)| *d);
        close.filter(|(d, known)| *d <= 1 + known.as_str().len() / 4).map(|(_, known)| known.clone())
    }

    fn read(&self) -> RwLockReadGuard<'_, Tools> {
        self.tools.read()
    }
}

/// Edit distance: insertions, deletions, substitutions.
pub fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
