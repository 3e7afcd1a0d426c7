//! Specs and invocations, with everything a test does not care about filled in.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::ids::Digest32;
use counterfoil_core::{CanonicalJson, EffectClass, Failure, Outcome, Policy, Repeat, RunId, Success, Tenant, ToolName};
use counterfoil_runtime::spec::{Action, Egress, HttpBody, HttpSpec, ProbeSpec, StatusClasses, ToolSpec};
use counterfoil_runtime::template::{Expr, TextTemplate, ValueTemplate};
use counterfoil_runtime::tool::{Invocation, Tool};
use counterfoil_runtime::tools::build;

pub fn text(template: &str) -> TextTemplate {
    TextTemplate::parse(template).unwrap()
}

pub fn value(template: serde_json::Value) -> ValueTemplate {
    ValueTemplate::parse(&template).unwrap()
}

pub fn expr(source: &str) -> Expr {
    Expr::parse(source).unwrap()
}

pub fn http(method: &str, url: &str) -> HttpSpec {
    HttpSpec {
        method: method.into(),
        url: text(url),
        headers: Vec::new(),
        body: if method == "GET" { HttpBody::None } else { HttpBody::Json(value(serde_json::json!("${args}"))) },
        classes: StatusClasses::default(),
        result: None,
        key_header: Some("Idempotency-Key".into()),
        redirects_max: 0,
        egress: Arc::new(Egress::default()),
    }
}

pub fn spec(action: Action) -> ToolSpec {
    ToolSpec {
        name: ToolName::new("bank.charge").unwrap(),
        description: None,
        subject: None,
        mode: None,
        policy: Policy::default(),
        input: None,
        output: None,
        approval: None,
        cost: None,
        action,
        probe: None,
        verify: None,
        undo: None,
    }
}

pub fn http_tool(http: HttpSpec) -> Arc<dyn Tool> {
    tool(&spec(Action::Http(http)))
}

pub fn tool(spec: &ToolSpec) -> Arc<dyn Tool> {
    let (name, tool) = build(spec).unwrap().into_iter().next().unwrap();
    assert_eq!(name, spec.name);
    tool
}

pub fn repeatable(spec: ToolSpec) -> ToolSpec {
    ToolSpec { policy: Policy { repeat: Repeat::Keyed, ..spec.policy.clone() }, ..spec }
}

pub fn read_only(spec: ToolSpec) -> ToolSpec {
    ToolSpec { policy: Policy { effect: EffectClass::Read, ..spec.policy.clone() }, ..spec }
}

pub fn probed(spec: ToolSpec, probe: ProbeSpec) -> ToolSpec {
    ToolSpec { probe: Some(probe), ..spec }
}

pub fn call(args: serde_json::Value) -> Invocation {
    Invocation {
        tool: ToolName::new("bank.charge").unwrap(),
        tenant: Tenant::new("acme").unwrap(),
        key: Digest32::of(b"the key"),
        attempt: 1,
        run: Some(RunId::new("r1").unwrap()),
        args: CanonicalJson::from_value(&args).unwrap(),
        timeout: Duration::from_secs(30),
        result_bytes_max: 1 << 20,
        stop: Default::default(),
        trace: None,
    }
}

#[track_caller]
pub fn done(outcome: Outcome) -> Success {
    match outcome {
        Outcome::Done(success) => success,
        other => panic!("expected done, found {other:?}"),
    }
}

#[track_caller]
pub fn not_done(outcome: Outcome) -> Failure {
    match outcome {
        Outcome::NotDone(failure) => failure,
        other => panic!("expected not done, found {other:?}"),
    }
}

#[track_caller]
pub fn unknown(outcome: Outcome) -> Failure {
    match outcome {
        Outcome::Unknown(failure) => failure,
        other => panic!("expected unknown, found {other:?}"),
    }
}
