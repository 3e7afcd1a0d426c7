//! A whole server over a ledger in memory, without a socket: the same guard, router and handlers that answer on the wire, and a world that counts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use counterfoil_core::policy::OnInFlight;
use counterfoil_core::summary::StreamKind;
use counterfoil_core::token::{Right, Rights};
use counterfoil_core::{Caller, EffectKey, Policy, Tenant};
use counterfoil_runtime::{Builder, ClientTool, FnTool, Invocation, NewToken, Operator, Registered, Runtime, Tokens};
use counterfoil_server::app::{App, Limits};
use counterfoil_server::guard::{Guard, Hosts};
use counterfoil_server::requests::Requests;
use counterfoil_server::router::Api;
use counterfoil_server::tools::Registrar;
use counterfoil_server::who::{Access, Who};
use counterfoil_store::Position;
use counterfoil_store::memory::Memory;
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};

/// Calls that wait for another one wait no longer than this: an input must not take seconds.
const WAIT: Duration = Duration::from_millis(5);
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// How often each effect acted.
type World = Arc<Mutex<HashMap<EffectKey, u32>>>;

pub struct Server {
    api: Api,
    runtime: Runtime,
    world: World,
    /// What a caller presents, where tokens are needed.
    pub secret: Option<String>,
    // Last: what the others leave behind ends on it.
    tokio: tokio::runtime::Runtime,
}

pub struct Asked<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub headers: HeaderMap,
    pub body: &'a str,
}

pub struct Answered {
    pub status: u16,
    pub headers: HeaderMap,
    /// `None`: a feed, which does not end.
    pub body: Option<String>,
}

impl Answered {
    pub fn json(&self) -> Value {
        self.body.as_deref().map_or(Value::Null, |body| serde_json::from_str(body).expect("every answer is JSON"))
    }

    /// Refused for what it is, and not for what is under way: this must leave no trace.
    pub fn is_refusal(&self) -> bool {
        matches!(self.status, 400 | 401 | 403 | 404 | 405 | 413 | 415 | 421 | 422)
    }
}

impl Server {
    /// Everyone who asks may do everything.
    pub fn open() -> Self {
        Self::new(false)
    }

    /// Only who has the token.
    pub fn locked() -> Self {
        Self::new(true)
    }

    fn new(locked: bool) -> Self {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let world = World::default();
        let (runtime, access, secret) = tokio.block_on(async {
            let runtime = Builder::new(Arc::new(Memory::new())).build().expect("without a folder nothing can fail");
            register(&runtime, world.clone());
            let (tenant, caller) = (Tenant::new("acme").expect("a name"), Caller::new("fuzz").expect("a name"));
            let rights = Rights::up_to(Right::Admin);
            let tokens = Arc::new(Tokens::new(&runtime));
            if !locked {
                let who = Who { tenant, caller, rights };
                return (runtime.clone(), Access::new(&runtime, tokens, Some(who)), None);
            }
            let new = NewToken { tenant, caller, rights, label: None, expires: None, rate: None };
            let (_, secret) = tokens.create(new, &Operator::new("fuzz", "")).await.expect("memory keeps it");
            (runtime.clone(), Access::new(&runtime, tokens, None), Some(secret.reveal().to_owned()))
        });
        let app = App {
            requests: Requests::new(runtime.clone(), Duration::from_secs(3600), 10_000),
            runtime: runtime.clone(),
            // Nothing that is sent here may reach out of this process.
            registrar: Registrar::new(Arc::new(|name, _| Ok(vec![Registered::new(name.clone(), Arc::new(ClientTool), quick())]))),
            limits: Limits { answer_within: ANSWER_WITHIN, ..Limits::default() },
            operator: Tenant::new("acme").expect("a name"),
            backups: None,
            metrics: None,
            stopping: tokio::sync::watch::channel(false).1,
            store_present: Arc::new(|| Ok(())),
            store_risks: Arc::new(Vec::new),
        };
        let api = Api::new(Arc::new(app), Guard { hosts: Hosts(Vec::new()), access });
        Self { api, runtime, world, secret, tokio }
    }

    /// `None`: not a request that could have come in over HTTP.
    pub fn ask(&self, asked: &Asked<'_>) -> Option<Answered> {
        let mut request = Request::builder().method(asked.method).uri(asked.path).body(Body::from(asked.body.to_owned())).ok()?;
        *request.headers_mut() = asked.headers.clone();
        self.tokio.block_on(async {
            let (parts, body) = self.api.answer(request).await.into_parts();
            let feed = parts.headers.get("content-type").is_some_and(|of| of.as_bytes().starts_with(b"text/event-stream"));
            let body = match feed {
                true => None,
                false => Some(String::from_utf8(body.collect().await.expect("a body").to_bytes().into()).expect("answers are text")),
            };
            Some(Answered { status: parts.status.as_u16(), headers: parts.headers, body })
        })
    }

    /// Records of everything but what the ledger knows of itself.
    pub fn records(&self) -> usize {
        let all = self.tokio.block_on(self.runtime.ledger().tail(Position(0), usize::MAX)).expect("memory can be read");
        all.iter().filter(|recorded| recorded.summary.kind != StreamKind::Meta).count()
    }

    /// How often the effect that acted most did: once at most, whatever was sent.
    pub fn most_acts(&self) -> u32 {
        self.world.lock().expect("whole").values().copied().max().unwrap_or(0)
    }
}

fn quick() -> Policy {
    Policy { on_in_flight: OnInFlight::Conflict, wait_max: WAIT, timeout: ANSWER_WITHIN, ..Policy::default() }
}

/// `charge` acts, `refund` undoes it, `lend` is run by the client.
fn register(runtime: &Runtime, world: World) {
    let act = FnTool::new(move |call: Invocation| {
        *world.lock().expect("whole").entry(call.key).or_default() += 1;
        async move { Ok(json!({ "acted": true })) }
    });
    for name in ["charge", "refund"] {
        runtime.register(Registered::new(name.parse().expect("a name"), act.clone(), quick()));
    }
    runtime.register(Registered::new("lend".parse().expect("a name"), Arc::new(ClientTool), quick()));
}
