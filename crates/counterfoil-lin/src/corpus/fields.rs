//! Members of the wrong type, or with values that are not allowed: one wrong member at a time in a body that is right otherwise.

use super::{Book, NO_EFFECT, TOOL};

/// A body, its members in order, each as (name, a right value, wrong ones). An empty right value: left out.
struct Body {
    part: &'static str,
    method: &'static str,
    path: String,
    members: &'static [(&'static str, &'static str, &'static [&'static str])],
}

const NOT_TEXT: &[&str] = &["1", "true", "[]", "{}", r#""""#];
const NOT_WHY: &[&str] = &["1", "true", "[]", "{}"];
const NOT_LEASE: &[&str] = &["-1", "0", "true", "[]", "{}", r#""""#, r#""-1s""#, r#""soon""#, "1e300", r#""99999999999999999999s""#];
const NOT_FENCE: &[&str] = &["-1", "1.5", "true", "null", "[]", "{}", r#""one""#, r#""""#, "18446744073709551616", "1e400"];
const NOT_NAME: &[&str] = &["1", "null", "[]", "{}", r#""""#, r#""no such tool""#, r#""../x""#, r#""a\u0000b""#];
const NOT_FILE: &[&str] = &[
    "1",
    "null",
    "[]",
    "{}",
    r#""""#,
    r#"".""#,
    r#""..""#,
    r#""../x""#,
    r#""/tmp/x""#,
    r#""a/b""#,
    r#""a\\b""#,
    r#""a\u0000b""#,
    r#""a\nb""#,
];

fn bodies() -> Vec<Body> {
    let effect = |action: &str| format!("/v1/effects/{NO_EFFECT}/{action}");
    let body = |part, method, path, members| Body { part, method, path, members };
    vec![
        body(
            "call",
            "POST",
            format!("/v1/tools/{TOOL}/call"),
            &[
                (
                    "args",
                    r#"{"n":1}"#,
                    &[
                        "1",
                        r#""x""#,
                        "true",
                        "null",
                        "[]",
                        "[1]",
                        "{}",
                        r#"{"n":"1"}"#,
                        r#"{"n":1.5}"#,
                        r#"{"n":null}"#,
                        r#"{"n":1,"m":2}"#,
                        r#"{"N":1}"#,
                    ],
                ),
                ("key", "", &["1", "true", "[]", "{}", r#""""#, r#""a\u0000b""#, r#""\u00e4""#, r#""a\nb""#]),
                ("run", "", NOT_TEXT),
                ("step", "", NOT_TEXT),
                ("metadata", "", &["1", r#""x""#, "true", "[]", r#"{"caller":1}"#, r#"{"caller":[]}"#]),
            ],
        ),
        body(
            "resolve",
            "POST",
            effect("resolve"),
            &[
                (
                    "verdict",
                    r#""did_not_happen""#,
                    &["1", "true", "null", "[]", "{}", r#""""#, r#""perhaps""#, r#""HAPPENED""#, r#""did-not-happen""#, r#"["happened"]"#],
                ),
                ("why", "", NOT_WHY),
            ],
        ),
        body("cancel", "POST", effect("cancel"), &[("why", "", NOT_WHY)]),
        body("undo", "POST", effect("undo"), &[("why", "", NOT_WHY)]),
        body("retry", "POST", effect("retry"), &[("why", "", NOT_WHY)]),
        body("approve", "POST", format!("/v1/approvals/{NO_EFFECT}/approve"), &[("why", "", NOT_WHY)]),
        body("deny", "POST", format!("/v1/approvals/{NO_EFFECT}/deny"), &[("why", "", NOT_WHY)]),
        body(
            "acquire",
            "POST",
            "/v1/effects/acquire".into(),
            &[
                ("tool", r#""corpus_tool""#, NOT_NAME),
                ("args", r#"{"n":1}"#, &["1", r#""x""#, "null", "[]", r#"{"n":"1"}"#]),
                ("key", "", &["1", "true", "[]", "{}", r#""""#, r#""\u00e4""#]),
                ("run", "", NOT_TEXT),
                ("step", "", NOT_TEXT),
                ("lease", "", NOT_LEASE),
            ],
        ),
        body("heartbeat", "POST", effect("heartbeat"), &[("fence", "1", NOT_FENCE), ("lease", "", NOT_LEASE)]),
        body("commit", "POST", effect("commit"), &[("fence", "1", NOT_FENCE), ("result", "{}", &[])]),
        body(
            "fail",
            "POST",
            effect("fail"),
            &[
                ("fence", "1", NOT_FENCE),
                ("kind", r#""rejected""#, &["1", "null", "[]", r#""""#, r#""whatever""#]),
                ("code", "", &["1", "[]", "{}"]),
                ("message", "", &["1", "[]", "{}"]),
                ("retry_after_ms", "", &["-1", "1.5", r#""soon""#, "[]", "1e400"]),
            ],
        ),
        body("flush", "POST", "/v1/admin/flush".into(), &[("key", r#""no key""#, &["1", "null", "[]", r#""""#, r#""xyz""#, r#""../..""#])]),
        body("backup", "POST", "/v1/admin/backup".into(), &[("name", r#""../corpus""#, NOT_FILE)]),
        body(
            "mode",
            "PUT",
            "/v1/admin/mode".into(),
            &[("mode", r#""corpus""#, &["1", "null", "[]", "{}", r#""""#, r#""ENFORCE""#, r#""none""#])],
        ),
        body("reset", "POST", "/v1/breakers/no_such_tool/reset".into(), &[("why", "", NOT_WHY)]),
        body("open", "POST", "/v1/breakers/no_such_tool/open".into(), &[("why", "", NOT_WHY)]),
    ]
}

pub fn write(book: &mut Book<'_>) {
    for body in bodies() {
        for (member, right, wrong) in body.members {
            for (index, value) in wrong.iter().enumerate() {
                send(book, &body, &format!("field/{}/{member}/{index}", body.part), member, Some(value));
            }
            if !right.is_empty() {
                send(book, &body, &format!("field/{}/{member}/missing", body.part), member, None);
            }
        }
    }
    tools(book);
    let request = book.request("field/flush/tool_unconfirmed", "POST", "/v1/admin/flush").json(format!(r#"{{"tool":"{TOOL}"}}"#));
    book.refused("field/flush/tool_unconfirmed", request);
    let why = "y".repeat(1024 * 1024);
    let request =
        book.request("field/cancel/why/long", "POST", &format!("/v1/effects/{NO_EFFECT}/cancel")).json(format!(r#"{{"why":"{why}"}}"#));
    book.refused("field/cancel/why/long", request);
    for (kind, name) in [("key_long", "key"), ("run_long", "run"), ("step_long", "step")] {
        let name_of_case = format!("field/call/{kind}");
        let request = book.call(&name_of_case).json(format!(r#"{{"args":{{"n":1}},"{name}":"{}"}}"#, "k".repeat(100_000)));
        book.refused(&name_of_case, request);
    }
}

/// All right members, with one of them wrong or left out.
fn send(book: &mut Book<'_>, body: &Body, name: &str, wrong: &str, value: Option<&str>) {
    let value_of = |member: &str, right: &'static str| if member == wrong { value.unwrap_or("").to_string() } else { right.to_string() };
    let members: Vec<_> = body
        .members
        .iter()
        .map(|(member, right, _)| (member, value_of(member, right)))
        .filter(|(_, value)| !value.is_empty())
        .map(|(member, value)| format!(r#""{member}":{value}"#))
        .collect();
    let request = book.request(name, body.method, &body.path).json(format!("{{{}}}", members.join(",")));
    book.refused(name, request);
}

/// Registrations that describe no tool.
fn tools(book: &mut Book<'_>) {
    let specs = [
        ("empty", "{}"),
        ("null", "null"),
        ("two_kinds", r#"{"http":{"method":"GET","url":"http://127.0.0.1:1/"},"command":["true"]}"#),
        ("http_number", r#"{"http":1}"#),
        ("http_without_url", r#"{"http":{"method":"POST"}}"#),
        ("url_scheme", r#"{"http":{"method":"POST","url":"ftp://127.0.0.1/"}}"#),
        ("url_garbage", r#"{"http":{"method":"POST","url":"::"}}"#),
        ("method_number", r#"{"http":{"method":7,"url":"http://127.0.0.1:1/"}}"#),
        ("command_text", r#"{"command":"rm -rf /"}"#),
        ("timeout_negative", r#"{"http":{"method":"POST","url":"http://127.0.0.1:1/"},"timeout":"-1s"}"#),
        ("timeout_number", r#"{"http":{"method":"POST","url":"http://127.0.0.1:1/"},"timeout":[]}"#),
        ("repeat_unknown", r#"{"http":{"method":"POST","url":"http://127.0.0.1:1/"},"repeat":"often"}"#),
        ("effect_unknown", r#"{"http":{"method":"POST","url":"http://127.0.0.1:1/"},"effect":"maybe"}"#),
        ("attempts_zero", r#"{"http":{"method":"POST","url":"http://127.0.0.1:1/"},"retry":{"attempts":0}}"#),
        ("input_no_schema", r#"{"http":{"method":"POST","url":"http://127.0.0.1:1/"},"input":{"type":"nothing"}}"#),
        ("template_broken", r#"{"http":{"method":"POST","url":"http://127.0.0.1:1/${"}}"#),
        ("member_unknown", r#"{"http":{"method":"POST","url":"http://127.0.0.1:1/"},"colour":"red"}"#),
    ];
    for (kind, spec) in specs {
        let name = format!("field/tool/{kind}");
        let request = book.request(&name, "PUT", "/v1/tools/corpus_never").json(spec);
        book.refused(&name, request);
    }
}
