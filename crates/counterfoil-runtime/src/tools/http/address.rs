//! The address of a request, from a template.
//!
//! Must stay true: an argument can fill in a piece of the path or of the query, never add one. Values of expressions behind the
//! host are percent-encoded, dot segments are refused. Before the host is complete, values stand as they are: there the egress rules decide.

use counterfoil_core::Failure;
use url::Url;

use crate::template::{Part, Scope, TextTemplate};
use crate::tools::template_failed;

pub(super) fn render(template: &TextTemplate, scope: &Scope) -> Result<Url, Failure> {
    let mut text = String::new();
    for part in template.parts() {
        match part {
            Part::Literal(literal) => text.push_str(literal),
            Part::Expr(_) => {
                let value = part.render(scope).map_err(|e| template_failed(&e))?;
                let behind_host = host_end(&text).is_some();
                text.push_str(&if behind_host { encode(&value) } else { value });
            }
        }
    }
    parse(&text)
}

/// The part of the template that decides the host, when an argument has no say in it: literal text, or the operator's environment.
pub(super) fn configured_origin(template: &TextTemplate, environment: &Scope) -> Option<Url> {
    let mut text = String::new();
    for part in template.parts() {
        match part {
            Part::Literal(literal) => text.push_str(literal),
            Part::Expr(expr) if expr.variables().iter().all(|name| name == "env") => text.push_str(&part.render(environment).ok()?),
            Part::Expr(_) => return None,
        }
        if let Some(end) = host_end(&text) {
            return parse(&text[..end]).ok();
        }
    }
    parse(&text).ok()
}

pub(super) fn parse(text: &str) -> Result<Url, Failure> {
    let invalid = |why: &str| Failure::new("url_invalid", format!("the address of the request {why}"));
    if has_dot_segment(text) {
        return Err(invalid("has `.` or `..` in its path"));
    }
    let url = Url::parse(text).map_err(|e| invalid(&format!("is not valid: {e}")))?;
    match (url.scheme(), url.host()) {
        ("http" | "https", Some(_)) => Ok(url),
        _ => Err(invalid("is not an http or https URL")),
    }
}

/// Where the host (with user and port) ends, once something behind it shows that it does.
fn host_end(text: &str) -> Option<usize> {
    let start = text.find("://")? + 3;
    text[start..].find(['/', '?', '#', '\\']).map(|i| start + i)
}

/// A parser would resolve them, and so leave the place the template names.
fn has_dot_segment(text: &str) -> bool {
    let path = text.split(['?', '#']).next().unwrap_or_default();
    path.split(['/', '\\']).any(|segment| matches!(&*segment.to_ascii_lowercase().replace("%2e", "."), "." | ".."))
}

/// As one component: everything but the unreserved characters of RFC 3986.
fn encode(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte as char),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scope() -> Scope {
        Scope::new().with(
            "args",
            &json!({
                "id": "a/b?c=d&e#f%", "dots": "..", "url": "https://h.example/p", "host": "evil.example/", "n": 5
            }),
        )
    }

    #[test]
    fn values_stay_inside_their_place() {
        let check = |template: &str, expected: &str| {
            let template = TextTemplate::parse(template).unwrap();
            let shown = render(&template, &scope()).map_or_else(|e| e.message, String::from);
            assert_eq!(shown, expected);
        };
        check("https://x/${args.id}?q=${args.id}", "https://x/a%2Fb%3Fc%3Dd%26e%23f%25?q=a%2Fb%3Fc%3Dd%26e%23f%25");
        check("https://x/v/${args.n}", "https://x/v/5");
        check("${args.url}/${args.id}", "https://h.example/p/a%2Fb%3Fc%3Dd%26e%23f%25");
        check("https://x/users/${args.dots}/admin", "the address of the request has `.` or `..` in its path");
        check("https://x/users/.${'.'}/admin", "the address of the request has `.` or `..` in its path");
        check("https://x/users/%2E./admin", "the address of the request has `.` or `..` in its path");
        check("https://x/a..b/...?x=../..", "https://x/a..b/...?x=../..");
        check("file:///etc/passwd", "the address of the request is not an http or https URL");
        check("https://x/${args.none}", "`args.none`: there is no member `none`");
    }

    #[test]
    fn the_host_is_configured_only_when_no_argument_has_a_say_in_it() {
        let env = Scope::new().with("env", &json!({"BASE": "http://127.0.0.1:9"}));
        let check = |template: &str, expected: Option<&str>| {
            let origin = configured_origin(&TextTemplate::parse(template).unwrap(), &env);
            assert_eq!(origin.as_ref().map(Url::as_str), expected, "{template}");
        };
        check("https://x/${args.id}", Some("https://x/"));
        check("https://x:8443?${args.id}", Some("https://x:8443/"));
        check("https://x", Some("https://x/"));
        check("${env.BASE}/v/${args.id}", Some("http://127.0.0.1:9/"));
        check("https://x${args.id}", None);
        check("https://x:${args.id}/", None);
        check("https://user@${args.id}/", None);
        check("${args.url}", None);
        check("${env.BASE}${args.id}", None);
        check("${args.n > 1 ? env.BASE : ''}/v", None);
    }
}
