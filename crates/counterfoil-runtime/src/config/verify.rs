//! `verify`: how to ask whether what was done still holds.
//!
//! A question, like `probe`: it carries no key and changes nothing. What it compares with is captured when the effect is done, so each part is held
//! against what the tool's own answer can say.

use counterfoil_core::policy::{EffectClass, Policy};

use super::context::Context;
use super::file::inside;
use super::http::Purpose;
use super::read::{Fields, Spot};
use super::sees::Sees;
use super::{command, github, http};

use crate::config::node::Value;
use crate::spec::{FileLook, HttpSpec, Look, VerifySpec, VersionSpec};

pub const VERIFY: &[&str] = &["http", "command", "file", "github", "holds", "gone", "etag", "version", "ref", "timeout"];
pub const FILE: &[&str] = &["root", "path", "sha256"];
pub const VERSION: &[&str] = &["was", "is"];
const KINDS: &[&str] = &["http", "command", "file", "github"];

pub fn read(spot: &Spot<'_>, tool: &Fields<'_>, policy: &Policy, context: &Context<'_>) -> Option<VerifySpec> {
    let fields = spot.fields(VERIFY)?;
    let sees = Sees::CALL.with_result().with_state();
    let kind = fields.exactly_one(KINDS);
    let asked = kind.as_ref().and_then(|(kind, spot)| match *kind {
        "http" => looking(spot, context, sees).map(|http| (Look::Http(http), Vec::new())),
        "command" => command::read(spot, context, sees).map(|command| (Look::Command(command), Vec::new())),
        "file" => file(spot, context, sees).map(|look| (Look::File(look), Vec::new())),
        _ => github::read(spot, context, sees).map(|(http, same)| (Look::Http(http), same)),
    });
    let holds = fields.get("holds").and_then(|s| context.expr(&s, sees.with_response()));
    let (mut gone, mut etag) = (false, false);
    fields.read("gone", Spot::bool, &mut gone);
    fields.read("etag", Spot::bool, &mut etag);
    let version = fields.get("version").and_then(|s| version(&s, context));
    let reference = fields.get("ref").and_then(|s| context.expr(&s, Sees::CALL.with_result().with_response()));
    let mut timeout = policy.timeout;
    fields.read("timeout", Spot::duration, &mut timeout);
    suits(&fields, tool, kind.map(|(kind, _)| kind), gone, policy);
    let (look, same) = asked?;
    Some(VerifySpec { look, holds, gone, etag, version, reference, same: if gone { Vec::new() } else { same }, timeout })
}

/// Asked again and again, and never by a person who would notice: so with what certainly changes nothing.
fn looking(spot: &Spot<'_>, context: &Context<'_>, sees: Sees) -> Option<HttpSpec> {
    let http = http::read(spot, context, sees, Purpose::Ask)?;
    if http.method == "POST" {
        spot.wrong_whole("a POST may change what it asks about; verify with GET or HEAD, or by a command");
    }
    Some(http)
}

/// What the parts make of each other.
fn suits(fields: &Fields<'_>, tool: &Fields<'_>, kind: Option<&str>, gone: bool, policy: &Policy) {
    if policy.effect == EffectClass::Pure {
        tool.wrong("verify", "nothing is recorded of an effect: pure tool, so there is nothing to verify; drop it");
    }
    for name in ["holds", "etag", "version"] {
        if gone && fields.has(name) {
            fields.wrong(name, "gone: true says all: it holds while the thing is not there; drop one of the two");
        } else if kind == Some("file") && fields.has(name) {
            fields.wrong(name, "a file is compared by its digest; drop it, or ask with command");
        }
    }
    if kind == Some("command") && gone {
        fields.wrong("gone", "a command says itself whether it holds; drop it");
    }
    if fields.has("etag") && (kind == Some("command") || !tool.has("http")) {
        fields.wrong(
            "etag",
            "an ETag is captured from the answer of an http tool and compared with the answer of an http question; use version",
        );
    }
}

/// One expression for both sides, or one for each.
fn version(spot: &Spot<'_>, context: &Context<'_>) -> Option<VersionSpec> {
    let captured = Sees::CALL.with_result().with_response();
    let Value::Map(_) = spot.node.value else {
        let both = context.expr(spot, captured)?;
        return Some(VersionSpec { was: both.clone(), is: both });
    };
    let fields = spot.fields(VERSION)?;
    let was = fields.require("was").and_then(|s| context.expr(&s, captured));
    let is = fields.require("is").and_then(|s| context.expr(&s, captured.with_state()));
    Some(VersionSpec { was: was?, is: is? })
}

fn file(spot: &Spot<'_>, context: &Context<'_>, sees: Sees) -> Option<FileLook> {
    let fields = spot.fields(FILE)?;
    let mut root = context.beside(".");
    fields.read("root", |s| context.path(s), &mut root);
    let path = fields.require("path").and_then(|s| inside(&s, context, sees));
    let sha256 = fields.get("sha256").map(|s| context.text(&s, sees));
    Some(FileLook { root, path: path?, sha256: sha256.map_or(Some(None), |text| text.map(Some))? })
}
