//! What the clients of a history send, and what they were told, in the words of the models.
//!
//! Every answer that the API does not document for its request fails the test: a status, a code, a missing mark of a replay.

use std::net::SocketAddr;
use std::sync::{PoisonError, RwLock};

use counterfoil_lin::resource::{Answer, Op};
use counterfoil_lin::workload::Disconnect;
use counterfoil_lin::{Text, invocation, resource};
use serde_json::{Value, json};

use crate::http::server::{Asking, Reply, Server, request};
use crate::lab::Lab;

/// The tool of the config that the world stands behind: never repeated, and nobody can be asked about it.
pub const TOOL: &str = "never";

const HOST: &str = ".example.com";

/// A server that dies and comes back, and how to reach it.
pub struct Site {
    pub lab: Lab,
    server: RwLock<Option<Server>>,
    /// Clients go through this instead.
    pub via: Option<SocketAddr>,
}

/// A request without its address.
pub struct Message {
    pub method: &'static str,
    pub path: String,
    pub key: Option<String>,
    pub body: String,
}

/// What became of a request.
pub enum Outcome {
    Told(Reply),
    /// Sent whole; nobody knows.
    Unknown,
    /// Never sent whole.
    Unsent,
}

impl Site {
    pub fn new(config: &str) -> Self {
        let lab = Lab::new(config);
        let server = RwLock::new(Some(Server::start(&lab)));
        Self { lab, server, via: None }
    }

    pub fn address(&self) -> SocketAddr {
        self.server.read().unwrap_or_else(PoisonError::into_inner).as_ref().expect("it is back before anyone looks").address
    }

    /// SIGKILL, whatever is under way, and a new process. Nobody connects meanwhile: the old port may be another test's by now.
    pub fn restart(&self) {
        let mut server = self.server.write().unwrap_or_else(PoisonError::into_inner);
        server.take().expect("one at a time").kill();
        // What the dead one still had on its way acts before anyone asks about it.
        self.lab.world.wait_quiet();
        *server = Some(Server::start(&self.lab));
    }

    fn connect(&self) -> (SocketAddr, Asking) {
        let server = self.server.read().unwrap_or_else(PoisonError::into_inner);
        let address = self.via.unwrap_or(server.as_ref().expect("it is back before anyone looks").address);
        (address, Asking::to(address).expect("it listens as long as it lives"))
    }

    pub fn send(&self, message: &Message, disconnect: Option<Disconnect>) -> Outcome {
        let (address, mut asking) = self.connect();
        let headers: Vec<_> = message.key.iter().map(|key| ("idempotency-key", key.as_str())).collect();
        let text = request(address, message.method, &message.path, &headers, &message.body);
        match disconnect {
            Some(Disconnect::MidRequest) => {
                // Whether half of it arrives does not matter, nor whether the other side is there any more.
                drop(asking.send(&text.as_bytes()[..text.len() / 2]));
                Outcome::Unsent
            }
            Some(Disconnect::AfterRequest) => {
                drop(asking.send(text.as_bytes()));
                Outcome::Unknown
            }
            Some(Disconnect::MidAnswer) => {
                drop(asking.send(text.as_bytes()).and_then(|()| asking.first_byte()));
                Outcome::Unknown
            }
            None => match asking.send(text.as_bytes()).and_then(|()| asking.reply()) {
                Ok(reply) => Outcome::Told(reply),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("no answer: {text}"),
                // Killed.
                Err(_) => Outcome::Unknown,
            },
        }
    }

    /// How often each effect happened.
    pub fn happened(&self) -> std::collections::BTreeMap<String, u64> {
        self.lab.world.seen(&format!("/{TOOL}")).by_key
    }
}

/// Of a tool's put, get and delete. `prefix` keeps the histories of one ledger apart.
pub fn tool_message(prefix: &str, on: &Text, op: &Op) -> Message {
    let (method, body) = match op {
        Op::Put { version, .. } => ("PUT", put_body(version)),
        Op::Get => ("GET", String::new()),
        Op::Delete { .. } => ("DELETE", String::new()),
    };
    Message { method, path: format!("/v1/tools/{prefix}{on}"), key: op.key().map(|key| format!("{prefix}{key}")), body }
}

/// The tool goes to a host that is named like its version, and never gets there.
pub fn put_body(version: &str) -> String {
    json!({ "http": { "method": "POST", "url": format!("https://{version}{HOST}/") }, "description": version }).to_string()
}

/// A look at a tool by calling it, under a key of its own.
pub fn use_message(prefix: &str, on: &Text, key: String) -> Message {
    Message { method: "POST", path: format!("/v1/tools/{prefix}{on}/call"), key: Some(key), body: "{}".into() }
}

pub fn call_message(prefix: &str, on: &Text, args: &Text) -> Message {
    let (path, body) = (format!("/v1/tools/{TOOL}/call"), json!({ "args": { "say": args.as_ref() } }).to_string());
    Message { method: "POST", path, key: Some(format!("{prefix}{on}")), body }
}

pub fn resolve_message(effect: &str, key: String, said: &invocation::Said) -> Message {
    let body = match said {
        invocation::Said::Happened { result } => json!({ "verdict": "happened", "result": result.map(result_of) }),
        invocation::Said::DidNotHappen => json!({ "verdict": "did_not_happen" }),
    };
    Message { method: "POST", path: format!("/v1/effects/{effect}/resolve"), key: Some(key), body: body.to_string() }
}

/// As the world answers its `n`th effect.
fn result_of(n: u64) -> Value {
    json!({ "id": format!("e-{n}") })
}

pub fn number_of(result: &Value) -> u64 {
    let id = result["id"].as_str().and_then(|id| id.strip_prefix("e-")?.parse().ok());
    id.unwrap_or_else(|| panic!("the world gave no such result: {result}"))
}

pub fn tool_ret(op: &Op, reply: &Reply) -> resource::Ret {
    let marked = |answer| if reply.is_replay() { resource::Ret::Replayed(answer) } else { resource::Ret::Fresh(answer) };
    let fresh = |answer| {
        assert!(!reply.is_replay(), "a refusal or a look is never replayed: {reply:?}");
        resource::Ret::Fresh(answer)
    };
    match (op, reply.status) {
        (Op::Put { .. }, 201) => marked(Answer::Created(version(reply))),
        (Op::Put { .. }, 200) => marked(Answer::Updated(version(reply))),
        (Op::Get, 200) => {
            assert_eq!(reply.at("/description"), reply.at("/spec/description"), "{reply:?}");
            fresh(Answer::Found(version(reply)))
        }
        (Op::Delete { .. }, 200) => {
            assert_eq!(reply.at("/removed"), json!(true), "{reply:?}");
            marked(Answer::Deleted)
        }
        (Op::Get | Op::Delete { .. }, 404) => {
            reply.clone().problem(404, "unknown_tool");
            fresh(Answer::NotFound)
        }
        (Op::Put { key: Some(_), .. } | Op::Delete { key: Some(_) }, 409) => {
            reply.clone().problem(409, "request_in_flight");
            resource::Ret::InFlight
        }
        (Op::Put { key: Some(_), .. } | Op::Delete { key: Some(_) }, 422) => {
            reply.clone().problem(422, "idempotency_key_reused");
            resource::Ret::Mismatch
        }
        _ => panic!("{op} is never answered so: {reply:?}"),
    }
}

/// Which version was called: the refusal names its host.
pub fn use_ret(reply: &Reply) -> resource::Ret {
    if reply.status == 404 {
        reply.clone().problem(404, "unknown_tool");
        return resource::Ret::Fresh(Answer::NotFound);
    }
    let refused = reply.clone().envelope(200, "error");
    assert_eq!(refused.at("/error/code"), json!("egress_refused"), "{refused:?}");
    let message = refused.text("/error/message");
    let version = message.split(HOST).next().and_then(|before| before.split(|c: char| !c.is_ascii_alphanumeric()).next_back());
    resource::Ret::Fresh(Answer::Found(version.unwrap_or_else(|| panic!("{refused:?}")).into()))
}

/// What was put is called a version here: the tool's description.
fn version(reply: &Reply) -> Text {
    assert!(reply.at("/version").as_u64().is_some_and(|n| n > 0), "{reply:?}");
    reply.text("/spec/description").into()
}

pub fn call_ret(reply: &Reply) -> invocation::Ret {
    match reply.status {
        422 => {
            reply.clone().problem(422, "key_reuse_mismatch");
            invocation::Ret::Mismatch
        }
        200 | 202 => {
            assert_eq!(reply.at("/replayed"), json!(reply.is_replay()), "{reply:?}");
            match (reply.status, reply.text("/status").as_str()) {
                (200, "success") => invocation::Ret::Done { result: Some(number_of(&reply.at("/data"))), replayed: reply.is_replay() },
                (200, "in_doubt") => invocation::Ret::InDoubt,
                (202, "pending") => invocation::Ret::Pending,
                _ => panic!("a call is never answered so: {reply:?}"),
            }
        }
        _ => panic!("a call is never answered so: {reply:?}"),
    }
}

pub fn resolve_ret(reply: &Reply) -> invocation::Ret {
    match reply.status {
        200 => invocation::Ret::Resolved,
        409 => {
            reply.clone().problem(409, "wrong_state");
            invocation::Ret::NotInDoubt
        }
        _ => panic!("a person is never answered so: {reply:?}"),
    }
}
