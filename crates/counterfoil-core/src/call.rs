//! What was asked for, and which effect it is.
//!
//! A key is SHA-256 over a version tag and length-prefixed fields. No clock and no attempt number ever enters it: the
//! retry of a call is the same call. Changing a tag or the order of fields is a new ledger format.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;
use thiserror::Error;

use crate::canonical::CanonicalJson;
use crate::ids::{CallKey, Caller, Digest32, EffectKey, RunId, StepPath, StreamId, Tenant, ToolName};
use crate::policy::{ArgPath, Policy};

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub tenant: Tenant,
    pub caller: Caller,
    pub tool: ToolName,
    pub args: CanonicalJson,
    /// The caller's own key; scoped to (tenant, tool).
    pub key: Option<CallKey>,
    pub run: Option<RunId>,
    pub step: Option<StepPath>,
    /// Tells apart equal calls within one step that are meant to be two.
    pub ordinal: u32,
}

/// Which effect a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// This one, always.
    Fixed(EffectKey),
    /// The newest of a family of equal calls, as long as it ended less than the window ago.
    Windowed(Family),
    /// A new one each time.
    Fresh,
}

/// Equal calls of one caller: (tenant, caller, tool, arguments).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family(pub Digest32);

impl Family {
    pub fn stream(&self) -> StreamId {
        StreamId(self.0.0)
    }
    /// The key of the family's n-th effect. Generations are counted by the family's stream, not by a clock.
    pub fn key(&self, generation: u64) -> EffectKey {
        Digest32::of_fields("counterfoil/key/windowed/1", &[&self.0.0, &generation.to_be_bytes()])
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the policy's key names the argument {path:?}, which the call does not have")]
pub struct MissingKeyArgument {
    pub path: String,
}

impl Call {
    /// `args` are the arguments as they are stored: redacted where the policy says so.
    pub fn identity(&self, args: &CanonicalJson, policy: &Policy) -> Result<Identity, MissingKeyArgument> {
        if let Some(key) = &self.key {
            let fields = [self.tenant.as_str(), self.tool.as_str(), key.as_str()].map(str::as_bytes);
            return Ok(Identity::Fixed(Digest32::of_fields("counterfoil/key/explicit/1", &fields)));
        }
        if self.run.is_some() || policy.key.is_some() {
            return Ok(Identity::Fixed(self.derived_key(args, policy)?));
        }
        if policy.dedupe_window.is_some() {
            let fields = [self.tenant.as_str(), self.caller.as_str(), self.tool.as_str(), args.as_str()].map(str::as_bytes);
            return Ok(Identity::Windowed(Family(Digest32::of_fields("counterfoil/family/1", &fields))));
        }
        Ok(Identity::Fresh)
    }

    fn derived_key(&self, args: &CanonicalJson, policy: &Policy) -> Result<EffectKey, MissingKeyArgument> {
        let (scope_kind, scope) = match &self.run {
            Some(run) => ("run", run.as_str()),
            None => ("caller", self.caller.as_str()),
        };
        let identifying = match &policy.key {
            None => Cow::Borrowed(args.as_str()),
            Some(paths) => Cow::Owned(selected(args, paths)?),
        };
        let step = self.step.as_ref().map_or("", |s| s.as_str());
        let ordinal = self.ordinal.to_be_bytes();
        let tag = if policy.key.is_some() { "counterfoil/key/derived-by-policy/1" } else { "counterfoil/key/derived/1" };
        Ok(Digest32::of_fields(
            tag,
            &[
                self.tenant.as_str().as_bytes(),
                scope_kind.as_bytes(),
                scope.as_bytes(),
                step.as_bytes(),
                &ordinal,
                self.tool.as_str().as_bytes(),
                identifying.as_bytes(),
            ],
        ))
    }

    /// A key nobody can have used before: `nonce` is random.
    pub fn fresh_key(&self, nonce: &[u8; 16]) -> EffectKey {
        Digest32::of_fields("counterfoil/key/fresh/1", &[self.tenant.as_str().as_bytes(), self.tool.as_str().as_bytes(), nonce])
    }
}

/// The key of the effect that undoes `forward`.
pub fn undo_key(forward: &EffectKey) -> EffectKey {
    Digest32::of_fields("counterfoil/key/undo/1", &[&forward.0])
}

/// The key that a flushed effect goes by in the world. Another one for each flush: nobody there, neither a provider that honours keys nor a
/// probe, may take the new call for the one that was flushed.
pub fn renewed_key(key: &EffectKey, flush: u64) -> EffectKey {
    Digest32::of_fields("counterfoil/key/flushed/1", &[&key.0, &flush.to_be_bytes()])
}

/// What the call is, without ids: the same for every repeat and every replay of it.
pub fn spec_hash(tool: &ToolName, args: &CanonicalJson) -> Digest32 {
    Digest32::of_fields("counterfoil/spec/1", &[tool.as_str().as_bytes(), args.as_str().as_bytes()])
}

fn selected(args: &CanonicalJson, paths: &[ArgPath]) -> Result<String, MissingKeyArgument> {
    let mut out = String::new();
    for path in paths {
        let value = pick(args.as_str(), &path.0).ok_or_else(|| MissingKeyArgument { path: path.to_string() })?;
        // Each value is canonical JSON on a line of its own: lines cannot run into each other, JSON holds no raw newline.
        out.push_str(value);
        out.push('\n');
    }
    Ok(out)
}

/// The text of the member at `path`, or `None`.
pub fn pick<'a>(json: &'a str, path: &[String]) -> Option<&'a str> {
    let Some((first, rest)) = path.split_first() else { return Some(json) };
    let members: BTreeMap<Cow<'a, str>, &'a RawValue> = serde_json::from_str(json).ok()?;
    let (_, value) = members.into_iter().find(|(name, _)| name == first.as_str())?;
    pick(value.get(), rest)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn call(args: &str) -> Call {
        Call {
            tenant: Tenant::new("acme").unwrap(),
            caller: Caller::new("agent-7").unwrap(),
            tool: ToolName::new("charge").unwrap(),
            args: CanonicalJson::parse(args).unwrap(),
            key: None,
            run: Some(RunId::new("run-1").unwrap()),
            step: None,
            ordinal: 0,
        }
    }

    fn key(call: &Call) -> EffectKey {
        match call.identity(&call.args, &Policy::default()).unwrap() {
            Identity::Fixed(key) => key,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn equal_calls_have_equal_keys_and_every_field_counts() {
        let base = call(r#"{"a":1,"b":[{"c":2,"d":3}]}"#);
        assert_eq!(key(&base), key(&call(r#"{ "b": [{"d":3.0,"c":2}], "a":1.0 }"#)));
        let others = [
            Call { tenant: Tenant::new("other").unwrap(), ..base.clone() },
            Call { run: Some(RunId::new("run-2").unwrap()), ..base.clone() },
            Call { step: Some(StepPath::new("pay").unwrap()), ..base.clone() },
            Call { ordinal: 1, ..base.clone() },
            Call { tool: ToolName::new("refund").unwrap(), ..base.clone() },
            Call { args: CanonicalJson::parse(r#"{"a":1,"b":[{"c":2,"d":4}]}"#).unwrap(), ..base.clone() },
        ];
        for other in others {
            assert_ne!(key(&base), key(&other), "{other:?}");
        }
    }

    /// The key of a call is part of the ledger format: it must be the same on every host and in every version.
    #[test]
    fn keys_are_golden() {
        let mut c = call(r#"{"order_id":7}"#);
        assert_eq!(key(&c).to_string(), DERIVED);
        c.key = Some(CallKey::new("order-7").unwrap());
        assert_eq!(key(&c).to_string(), EXPLICIT);
    }
    const DERIVED: &str = "bd0d1fe17667e73f90a19828adcb767adf3b279147f2ec3bd820896e872a658f";
    const EXPLICIT: &str = "ffc683a3d7526cfdc099204fb060fc1e8a1f05bbdf801d565a13232a3176062f";

    #[test]
    fn an_explicit_key_ignores_run_and_arguments_but_not_tenant_and_tool() {
        let with_key = |c: Call| Call { key: Some(CallKey::new("k").unwrap()), ..c };
        let base = with_key(call("{}"));
        assert_eq!(key(&base), key(&with_key(Call { run: None, ..call(r#"{"x":1}"#) })));
        assert_ne!(key(&base), key(&Call { tool: ToolName::new("refund").unwrap(), ..base.clone() }));
        assert_ne!(key(&base), key(&Call { tenant: Tenant::new("other").unwrap(), ..base.clone() }));
    }

    #[test]
    fn the_policy_can_name_the_identifying_arguments() {
        let policy = Policy { key: Some(vec![ArgPath::parse("order.id").unwrap()]), ..Policy::default() };
        let a = call(r#"{"order":{"id":7},"note":"x"}"#);
        let b = call(r#"{"order":{"id":7},"note":"y"}"#);
        let identity = |call: &Call| call.identity(&call.args, &policy);
        assert_eq!(identity(&a), identity(&b));
        assert_ne!(identity(&a), identity(&call(r#"{"order":{"id":8},"note":"x"}"#)));
        assert_eq!(identity(&call("{}")).unwrap_err().path, "order.id");
    }

    #[test]
    fn a_call_without_run_and_key_is_new_unless_a_window_is_set() {
        let lone = Call { run: None, ..call("{}") };
        assert_eq!(lone.identity(&lone.args, &Policy::default()), Ok(Identity::Fresh));
        let windowed = Policy { dedupe_window: Some(Duration::from_secs(3600)), ..Policy::default() };
        let Ok(Identity::Windowed(family)) = lone.identity(&lone.args, &windowed) else { panic!("windowed") };
        assert_ne!(family.key(0), family.key(1));
    }
}
