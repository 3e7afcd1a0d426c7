//! `http`: one request, as an action or as a question (`probe`, `verify`).
//!
//! A question carries no key: a provider could take it for the effect itself. Whether the operator or a caller chooses the host is
//! decided here; the address actually connected to is the tool's to check.

use std::sync::Arc;

use http::header::{HeaderName, HeaderValue};

use super::context::Context;
use super::read::{Fields, Spot};
use super::sees::Sees;
use super::suggest::nearest;
use super::units;
use crate::spec::{HttpBody, HttpSpec, ServerError, StatusClasses, StatusRange};
use crate::template::{Part, Scope, TextTemplate};

pub const HTTP: &[&str] = &[
    "method",
    "url",
    "headers",
    "json",
    "body",
    "success",
    "rejection",
    "retriable",
    "unknown",
    "server_error",
    "result",
    "key_header",
    "redirects",
];

const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
const KEY_HEADER: &str = "Idempotency-Key";
/// Followed by GET and HEAD when nothing is written; a write is never sent again by a redirect.
const REDIRECTS: u32 = 5;
const REDIRECTS_MAX: i64 = 10;

/// Whether the request is the effect itself or asks about it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Act,
    Ask,
}

pub fn read(spot: &Spot<'_>, context: &Context<'_>, sees: Sees, purpose: Purpose) -> Option<HttpSpec> {
    let fields = spot.fields(HTTP)?;
    // All of it is read before any of it is missed: no mistake hides another.
    let method = method(&fields, purpose);
    let url = fields.require("url").and_then(|s| url(&s, context, sees));
    let headers = fields.get("headers").map(|s| headers(&s, context, sees)).unwrap_or_default();
    let key_header = key_header(&fields, purpose);
    if let Some(name) = key_header.as_deref().filter(|name| headers.iter().any(|(header, _)| header.eq_ignore_ascii_case(name))) {
        fields.wrong("headers", format!("{name} carries our key already; drop it here, or write key_header: false"));
    }
    let safe_method = method.is_some_and(|m| m == "GET" || m == "HEAD");
    let body = body(&fields, context, sees);
    if let Some(method) = method.filter(|_| safe_method && !matches!(body, HttpBody::None)) {
        let name = if fields.has("json") { "json" } else { "body" };
        fields.wrong(name, format!("a {method} request carries no body; put it into the url, or use POST"));
    }
    let mut redirects_max = if safe_method { REDIRECTS } else { 0 };
    fields.read("redirects", |s| redirects(s, method, safe_method), &mut redirects_max);
    let classes = classes(&fields);
    let result = fields.get("result").and_then(|s| context.expr(&s, sees.with_response()));
    let egress = Arc::clone(&context.egress);
    Some(HttpSpec { method: method?.to_owned(), url: url?, headers, body, classes, result, key_header, redirects_max, egress })
}

fn method(fields: &Fields<'_>, purpose: Purpose) -> Option<&'static str> {
    let spot = match purpose {
        Purpose::Ask if !fields.has("method") => return Some("GET"),
        _ => fields.require("method")?,
    };
    let text = spot.text()?;
    let known = METHODS.iter().find(|method| **method == text);
    if known.is_none() {
        let mistake = spot.mistake(format!("{text:?} is not a known method")).allowed(METHODS);
        spot.report.add(mistake.suggest(nearest(text, METHODS)));
    }
    if purpose == Purpose::Ask && matches!(text, "PUT" | "PATCH" | "DELETE") {
        spot.wrong(format!("a {text} changes what it asks about; ask with GET, HEAD or POST"));
    }
    known.copied()
}

fn url(spot: &Spot<'_>, context: &Context<'_>, sees: Sees) -> Option<TextTemplate> {
    // A template that cannot be parsed is reported below; there is nothing to say about its host.
    let template = TextTemplate::parse(spot.text()?).ok();
    match template.as_ref().map(|template| host_of(template, &context.env_scope())) {
        Some(Ok(Host::Callers)) if context.egress.allow.is_empty() => spot.wrong(
            "the host comes from an expression, so a caller may choose where requests go: \
             list the hosts it may be, as in egress: { allow: [api.example.com] }",
        ),
        Some(Err(why)) => spot.wrong(why),
        Some(Ok(_)) | None => {}
    }
    context.text(spot, sees)
}

/// Who chooses the host of a url.
#[derive(Debug, PartialEq, Eq)]
pub enum Host {
    /// Whoever wrote the file, literally or by a variable of the environment.
    Operators,
    Callers,
    /// A variable it needs is missing, which is reported where it is listed.
    Missing,
}

/// Looks at what is in front of the first expression that a caller has a say in. `Err`: no url. Shows no variable's value.
fn host_of(template: &TextTemplate, env: &Scope) -> Result<Host, String> {
    let (mut text, mut open) = (String::new(), false);
    for part in template.parts() {
        match part {
            Part::Expr(expr) if expr.variables().iter().any(|name| name != "env") => {
                open = true;
                break;
            }
            Part::Expr(_) => match part.render(env) {
                Ok(value) => text.push_str(&value),
                Err(_) => return Ok(Host::Missing),
            },
            Part::Literal(literal) => text.push_str(literal),
        }
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        return match text.is_empty() && open {
            true => Ok(Host::Callers),
            false => Err("not a url; write https://host/path".into()),
        };
    };
    if !matches!(scheme, "http" | "https") {
        return Err("not an http or https url; write https://host/path".into());
    }
    let end = rest.find(['/', '?', '#', '\\']);
    if end.is_none() && open {
        return Ok(Host::Callers);
    }
    let (authority, behind) = rest.split_at(end.unwrap_or(rest.len()));
    if authority.contains('@') {
        return Err("a url must not contain a user and password: they would reach logs; send them in headers from ${env.NAME}".into());
    }
    if behind.split(['?', '#']).next().is_some_and(|path| path.split('/').any(|part| part == "." || part == "..")) {
        return Err("the path has \".\" or \"..\" in it; write where it leads".into());
    }
    match url::Url::parse(&format!("http://{authority}/")) {
        Ok(url) if url.host_str().is_some_and(|host| !host.is_empty()) => Ok(Host::Operators),
        _ => Err("the url has no valid host".into()),
    }
}

fn headers(spot: &Spot<'_>, context: &Context<'_>, sees: Sees) -> Vec<(String, TextTemplate)> {
    let mut headers: Vec<(String, _)> = Vec::new();
    for (key, value) in spot.entries().unwrap_or_default() {
        let name = &key.text;
        if HeaderName::from_bytes(name.as_bytes()).is_err() {
            value.wrong_whole(format!("{name:?} is not the name of a header"));
            continue;
        }
        if ["content-length", "transfer-encoding", "connection", "host"].iter().any(|own| name.eq_ignore_ascii_case(own)) {
            value.wrong_whole("this header is set by the HTTP client; drop it");
            continue;
        }
        if headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
            value.wrong_whole("this header is written twice; the case of a header's name does not matter");
            continue;
        }
        if value.node.as_str().is_some_and(|text| !text.contains("${") && HeaderValue::from_str(text).is_err()) {
            value.wrong("a header's value is one line of printable characters");
            continue;
        }
        if let Some(template) = context.printed(&value, sees) {
            headers.push((name.clone(), template));
        }
    }
    headers
}

fn key_header(fields: &Fields<'_>, purpose: Purpose) -> Option<String> {
    let Some(spot) = fields.get("key_header") else { return (purpose == Purpose::Act).then(|| KEY_HEADER.to_owned()) };
    if spot.is_off() {
        return None;
    }
    if purpose == Purpose::Ask {
        spot.wrong_whole("a question carries no key, which could ask for the effect itself; drop it");
        return None;
    }
    let name = spot.text()?;
    if HeaderName::from_bytes(name.as_bytes()).is_err() {
        spot.wrong(format!("{name:?} is not the name of a header; write a name, or false to send none"));
        return None;
    }
    Some(name.to_owned())
}

fn body(fields: &Fields<'_>, context: &Context<'_>, sees: Sees) -> HttpBody {
    let json = fields.get("json").and_then(|s| context.value(&s, sees)).map(HttpBody::Json);
    let text = fields.get("body").and_then(|s| context.text(&s, sees)).map(HttpBody::Text);
    if fields.has("json") && fields.has("body") {
        fields.wrong("body", "json is already written; a request has one body");
    }
    json.or(text).unwrap_or(HttpBody::None)
}

fn redirects(spot: &Spot<'_>, method: Option<&str>, safe_method: bool) -> Option<u32> {
    let count = spot.int(0..=REDIRECTS_MAX)?;
    if let Some(method) = method.filter(|_| count > 0 && !safe_method) {
        spot.wrong(format!("a {method} is never sent again by a redirect, which could do it twice; drop redirects"));
        return None;
    }
    u32::try_from(count).ok()
}

fn classes(fields: &Fields<'_>) -> StatusClasses {
    let mut listed: Vec<(StatusRange, &'static str)> = Vec::new();
    let mut class = |name: &'static str| {
        let Some(spot) = fields.get(name) else { return Vec::new() };
        // One status may be written without the brackets.
        let items = if matches!(spot.node.value, super::node::Value::List(_)) { spot.list().unwrap_or_default() } else { vec![spot] };
        let mut ranges = Vec::new();
        for item in items {
            let Some(range) = item.unit(units::status) else { continue };
            if let Some((_, other)) = listed.iter().find(|(r, other)| *other != name && r.from <= range.to && range.from <= r.to) {
                item.wrong(format!("a status cannot be both {other} and {name}; write the exact ones, as in 409 or 410-499"));
            }
            listed.push((range, name));
            ranges.push(range);
        }
        ranges
    };
    let (success, retriable) = (class("success"), class("retriable"));
    let (rejection, unknown) = (class("rejection"), class("unknown"));
    let mut server_error = ServerError::default();
    fields.read("server_error", |s| s.choice(&[("unknown", ServerError::Unknown), ("not_done", ServerError::NotDone)]), &mut server_error);
    StatusClasses { success, retriable, rejection, unknown, server_error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_chosen_by_operators_or_by_callers() {
        let env =
            Scope::new().with("env", &serde_json::json!({ "BASE": "https://bank.example/v1", "HOST": "bank.example", "BAD": "s3cret" }));
        let host = |url: &str| host_of(&TextTemplate::parse(url).unwrap(), &env);
        let check = |url: &str, expected: Host| assert_eq!(host(url), Ok(expected), "{url}");
        check("https://bank.example/charges", Host::Operators);
        check("http://127.0.0.1:8080", Host::Operators);
        check("http://[::1]:80/x", Host::Operators);
        check("https://bank.example/charges?key=${key}", Host::Operators);
        check("https://bank.example?u=https://${args.x}", Host::Operators);
        check("${env.BASE}/charges", Host::Operators);
        check("https://${env.HOST}:80/${args.x}", Host::Operators);
        check("${env.NONE}/charges", Host::Missing);
        check("${args.url}", Host::Callers);
        check("https://${args.host}/x", Host::Callers);
        check("https://api.${args.host}/x", Host::Callers);
        check("https://${env.HOST}${args.x}", Host::Callers);
        check("https://bank.example:${args.port}/x", Host::Callers);
        let bad = [
            "bank.example/x",
            "ftp://x/y",
            "https://",
            "https:///x",
            "https://user:pw@bank/x",
            "http://a b/",
            "",
            "file:///etc",
            "${env.BAD}",
        ];
        for url in bad.into_iter().chain(["https://x/a/../b", "https://x/.", "bank.example/${args.x}"]) {
            let why = host(url).expect_err(url);
            assert!(!why.contains("s3cret"), "{why}");
        }
    }
}
