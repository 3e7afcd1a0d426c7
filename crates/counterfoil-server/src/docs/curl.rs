//! An operation as a command that can be pasted.

use serde_json::Value;

use super::ADDRESS;

/// A body that is longer has a line for each member.
const BODY_CHARS_MAX: usize = 72;

/// Parameters are given with references followed.
pub fn curl(method: &str, path: &str, parameters: &[&Value], body: Option<&Value>) -> String {
    let example = |parameter: &Value| text(&parameter["example"]);
    let of = |place: &'static str| parameters.iter().filter(move |p| p["in"] == place && !p["example"].is_null());
    let name = |parameter: &Value| text(&parameter["name"]);
    let path = of("path").fold(path.to_owned(), |path, p| path.replace(&format!("{{{}}}", name(p)), &example(p)));
    let query: Vec<String> = of("query").map(|p| format!("{}={}", name(p), example(p))).collect();
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };

    let flags = if path.ends_with("/events") { " -N" } else { "" };
    let method = if method == "get" { String::new() } else { format!(" -X {}", method.to_uppercase()) };
    let mut lines = vec![format!("curl{flags}{method} {}", quoted(&format!("{ADDRESS}{path}{query}")))];
    lines.extend(of("header").map(|p| format!("-H {}", quoted(&format!("{}: {}", name(p), example(p))))));
    if let Some(body) = body {
        lines.push("-H 'Content-Type: application/json'".into());
        let short = body.to_string();
        let long = || serde_json::to_string_pretty(body).unwrap_or_default().replace('\n', "\n  ");
        lines.push(format!("-d {}", quoted(&if short.len() <= BODY_CHARS_MAX { short } else { long() })));
    }
    lines.join(" \\\n  ")
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// One word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_command_is_one_request() {
        let tool = json!({ "name": "tool", "in": "path", "example": "pay" });
        let key = json!({ "name": "Idempotency-Key", "in": "header", "example": "order-7" });
        let command = curl("post", "/v1/tools/{tool}/call", &[&tool, &key], Some(&json!({ "why": "it's due" })));
        assert_eq!(
            command,
            format!(
                "curl -X POST '{ADDRESS}/v1/tools/pay/call' \\\n  -H 'Idempotency-Key: order-7' \\\n  -H 'Content-Type: application/json' \\\n  -d '{{\"why\":\"it'\\''s due\"}}'"
            )
        );
        let state = json!({ "name": "state", "in": "query", "example": "in_doubt" });
        assert_eq!(curl("get", "/v1/effects", &[&state], None), format!("curl '{ADDRESS}/v1/effects?state=in_doubt'"));
    }
}
