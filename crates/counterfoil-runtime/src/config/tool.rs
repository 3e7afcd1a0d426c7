//! One tool of the file: what it does, how it is asked about and undone, and its policy.
//!
//! Every part is read even when another is wrong, so that all mistakes of a tool show at once; a spec comes out only when there
//! was none. What the policy promises is held against what the action can do.

use counterfoil_core::ToolName;
use counterfoil_core::policy::{EffectClass, Policy, Repeat};

use super::context::Context;
use super::http::Purpose;
use super::read::{Fields, Spot, Stranger};
use super::sees::Sees;
use super::{MODES, command, file, http, policy, schema, verify};

use crate::mode::Mode;
use crate::spec::{Action, Ask, HttpBody, ProbeSpec, ToolSpec, UndoSpec};

pub const TOOL: &[&str] = &[
    "description",
    "http",
    "command",
    "file",
    "client",
    "input",
    "output",
    "effect",
    "repeat",
    "key",
    "timeout",
    "deadline",
    "retry",
    "breaker",
    "limits",
    "cost",
    "subject",
    "retain",
    "redact",
    "approval",
    "approval_expires",
    "dedupe_window",
    "on_in_flight",
    "wait_max",
    "lease",
    "settle_after",
    "result_max",
    "probe",
    "verify",
    "confirm",
    "undo",
    "mode",
];
/// The kinds of tools: exactly one of them.
const KINDS: &[&str] = &["http", "command", "file", "client"];
/// Run by the client itself: there is nothing to say about how.
pub const CLIENT: &[&str] = &[];
pub const PROBE: &[&str] = &["http", "command", "happened", "did_not_happen", "result", "timeout", "settle_after"];
pub const UNDO: &[&str] = &["tool", "args"];

/// `None`: a mistake in it was reported.
pub fn read(name: &str, spot: &Spot<'_>, context: &Context<'_>) -> Option<ToolSpec> {
    let name = ToolName::new(name).map_err(|error| spot.wrong_whole(error.to_string())).ok();
    let tool = spot.fields_but(TOOL, belongs)?;
    let mut policy = policy::read(&tool);
    let input = tool.get("input").and_then(|s| schema::read(&s));
    let output = tool.get("output").and_then(|s| schema::read(&s));
    if let Some(input) = &input {
        for paths in ["key", "redact"].into_iter().filter_map(|name| tool.get(name)) {
            schema::check_paths(&paths, input);
        }
    }
    suits_files(&tool, &policy);
    suits_clients(&tool, &policy);
    let action = action(&tool, context);
    if let Some(action) = action.as_ref().filter(|_| policy.repeat == Repeat::Keyed) {
        sends_key(&tool, action);
    }
    let probe = tool.get("probe").and_then(|s| probe(&s, &tool, &mut policy, context));
    let verify = tool.get("verify").and_then(|s| verify::read(&s, &tool, &policy, context));
    let undo = tool.get("undo").and_then(|s| undo(&s, context));
    let approval = tool.get("approval").filter(|s| !s.is_off()).and_then(|s| context.expr(&s, Sees::ARGS));
    let cost = tool.get("cost").and_then(|s| context.expr(&s, Sees::ARGS));
    let subject = tool.get("subject").and_then(|s| context.expr(&s, Sees::ARGS));
    if tool.has("subject") && policy.effect == EffectClass::Pure {
        tool.wrong("subject", "nothing is recorded of an effect: pure tool, so there is nothing to erase; drop it");
    }
    if tool.has("approval_expires") && !tool.has("approval") {
        tool.wrong("approval_expires", "nothing here needs approval; add approval: true or an expression, or drop it");
    }
    let description = tool.get("description").and_then(|s| s.text()).map(|text| text.trim().to_owned());
    let mode = tool.get("mode").and_then(|s| mode(&s, context));
    Some(ToolSpec { name: name?, description, mode, policy, input, output, approval, cost, subject, action: action?, probe, verify, undo })
}

/// Fields that are often written one level too high.
fn belongs(field: &str) -> Stranger {
    let places: [(&'static str, &[&str]); 8] = [
        ("http", http::HTTP),
        ("command", command::COMMAND),
        ("file", file::FILE),
        ("retry", policy::RETRY),
        ("limits", policy::LIMITS),
        ("breaker", policy::BREAKER),
        ("probe", PROBE),
        ("verify", verify::VERIFY),
    ];
    places.iter().find(|(_, fields)| fields.contains(&field)).map_or(Stranger::Unknown, |(place, _)| Stranger::Belongs(place))
}

fn mode(spot: &Spot<'_>, context: &Context<'_>) -> Option<Mode> {
    let mode = spot.choice(MODES)?;
    if mode == Mode::Off && !context.accepts_duplicates {
        spot.wrong(
            "off runs this tool without any protection; add i_accept_duplicates: true at the top of the file if that is meant, \
             or write mode: shadow to only watch",
        );
    }
    Some(mode)
}

fn action(tool: &Fields<'_>, context: &Context<'_>) -> Option<Action> {
    let (kind, spot) = tool.exactly_one(KINDS)?;
    match kind {
        "http" => http::read(&spot, context, Sees::CALL, Purpose::Act).map(Action::Http),
        "command" => command::read(&spot, context, Sees::CALL).map(Action::Command),
        "file" => file::read(&spot, context, Sees::CALL).map(Action::File),
        _ => spot.fields(CLIENT).map(|_| Action::Client),
    }
}

/// What a file cannot promise.
fn suits_files(tool: &Fields<'_>, policy: &Policy) {
    if !tool.has("file") {
        return;
    }
    if policy.repeat == Repeat::Keyed {
        tool.wrong("repeat", "a file honours no Idempotency-Key; write repeat: safe if doing it twice is the same as once");
    }
    if policy.effect != EffectClass::Write {
        tool.wrong("effect", "a file tool writes, deletes or moves a file: that is effect: write");
    }
}

/// What cannot be held for those who run it themselves.
fn suits_clients(tool: &Fields<'_>, policy: &Policy) {
    if !tool.has("client") {
        return;
    }
    if policy.effect == EffectClass::Pure {
        tool.wrong(
            "effect",
            "nothing is recorded of an effect: pure tool, so its client needs no permit; drop the tool, or write effect: read",
        );
    }
    if policy.limits.concurrency.is_some() {
        let message = "limits.concurrency does not hold for a tool that clients run: only they know when an attempt ends; drop it, or use limits.rate";
        tool.wrong("limits", message);
    }
}

/// `repeat: keyed` means that the other side sees the key. A command always does, in COUNTERFOIL_KEY.
fn sends_key(tool: &Fields<'_>, action: &Action) {
    let Action::Http(http) = action else { return };
    let body = match &http.body {
        HttpBody::None => Vec::new(),
        HttpBody::Json(json) => json.exprs(),
        HttpBody::Text(text) => text.exprs(),
    };
    let headers = http.headers.iter().flat_map(|(_, value)| value.exprs());
    let mut exprs = http.url.exprs().into_iter().chain(headers).chain(body);
    if http.key_header.is_none() && !exprs.any(|expr| expr.variables().iter().any(|name| name == "key")) {
        tool.wrong("repeat", "keyed, but the key is sent nowhere: drop key_header: false, or put ${key} into the request");
    }
}

fn probe(spot: &Spot<'_>, tool: &Fields<'_>, policy: &mut Policy, context: &Context<'_>) -> Option<ProbeSpec> {
    let fields = spot.fields(PROBE)?;
    let ask = ask(&fields, context);
    let sees = Sees::CALL.with_response();
    let happened = fields.require("happened").and_then(|s| context.expr(&s, sees));
    let did_not_happen = fields.get("did_not_happen").and_then(|s| context.expr(&s, sees));
    let result = fields.get("result").and_then(|s| context.expr(&s, sees));
    let mut timeout = policy.timeout;
    fields.read("timeout", Spot::duration, &mut timeout);
    if fields.has("settle_after") && tool.has("settle_after") {
        fields.wrong("settle_after", "it is written for the whole tool already; write it once");
    }
    fields.read("settle_after", |spot| spot.duration_or_zero().map(Some), &mut policy.settle_after);
    Some(ProbeSpec { ask: ask?, happened: happened?, did_not_happen, result, timeout })
}

fn ask(fields: &Fields<'_>, context: &Context<'_>) -> Option<Ask> {
    let sees = Sees::CALL;
    let (kind, spot) = fields.exactly_one(&["http", "command"])?;
    match kind {
        "http" => http::read(&spot, context, sees, Purpose::Ask).map(Ask::Http),
        _ => command::read(&spot, context, sees).map(Ask::Command),
    }
}

fn undo(spot: &Spot<'_>, context: &Context<'_>) -> Option<UndoSpec> {
    let fields = spot.fields(UNDO)?;
    let tool = fields.require("tool").and_then(|s| {
        let text = s.text()?;
        ToolName::new(text).map_err(|error| s.wrong(error.to_string())).ok()
    });
    let args = fields.require("args").and_then(|s| context.value(&s, Sees::CALL.with_result()));
    Some(UndoSpec { tool: tool?, args: args? })
}
