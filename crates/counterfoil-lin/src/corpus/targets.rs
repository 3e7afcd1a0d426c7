//! Methods, routes, paths and query parameters that do not exist or mean something else than they look like.

use super::{Book, Expect, NO_EFFECT, REFUSED, TOOL};

pub fn write(book: &mut Book<'_>) {
    methods(book);
    routes(book);
    paths(book);
    queries(book);
}

fn methods(book: &mut Book<'_>) {
    let call = format!("/v1/tools/{TOOL}/call");
    let wrong = [
        ("GET", call.as_str()),
        ("PUT", &call),
        ("PATCH", &call),
        ("DELETE", &call),
        ("TRACE", &call),
        ("CORPUS", &call),
        ("post", &call),
        ("POST", "/v1/tools"),
        ("PATCH", "/v1/tools/corpus_tool"),
        ("POST", "/v1/tools/corpus_tool"),
        ("DELETE", "/v1/effects"),
        ("PUT", "/v1/effects"),
        ("POST", "/v1/events"),
        ("DELETE", "/v1/approvals"),
        ("POST", "/v1/breakers"),
        ("GET", "/v1/admin/flush"),
        ("GET", "/v1/admin/prune"),
    ];
    for (method, path) in wrong {
        let name = format!("method/{method}{path}");
        let request = book.request(&name, method, path).set("Idempotency-Key", super::key(&name)).json(r#"{"args":{"n":1}}"#);
        book.unreadable(&name, request);
    }
    for (kind, method) in [("empty", ""), ("space", "PO ST"), ("symbols", "P{}T"), ("long", &"P".repeat(20_000)), ("utf8", "PÖST")] {
        let name = format!("method/{kind}");
        let request = book.call(&name).method(method);
        book.unreadable(&name, request);
    }
}

fn routes(book: &mut Book<'_>) {
    let unknown = [
        "/v1",
        "/v1/",
        "/v2/tools",
        "/v1/tool",
        "/v1/admin",
        "/v1/admin/shutdown",
        "/v1/effects/acquire/now",
        "/V1/TOOLS",
        "/v1/tools/corpus_tool/call/again",
        "/v1/tools/no_such_tool",
        "/.git/config",
        "/.env",
        "/v1/../etc/passwd",
        "/wp-login.php",
    ];
    for path in unknown {
        let name = format!("route/GET{path}");
        let request = book.request(&name, "GET", path);
        book.refused(&name, request);
    }
    let request = book.call("route/no_such_tool").target("/v1/tools/no_such_tool/call");
    book.refused("route/no_such_tool", request);
}

fn paths(book: &mut Book<'_>) {
    let names: Vec<(&str, Vec<u8>)> = vec![
        ("dots", b"..".into()),
        ("encoded_dots", b"%2e%2e".into()),
        ("encoded_dots_upper", b"%2E%2E".into()),
        ("twice_encoded_dots", b"%252e%252e".into()),
        ("dot", b".".into()),
        ("empty", b"".into()),
        ("nul", b"a%00b".into()),
        ("nul_end", b"corpus_tool%00".into()),
        ("encoded_slash", b"a%2fb".into()),
        ("encoded_up", b"..%2f..%2fetc%2fpasswd".into()),
        ("backslash", b"..%5c..%5c".into()),
        ("newline", b"a%0d%0ab".into()),
        ("space", b"a%20b".into()),
        ("percent_alone", b"a%".into()),
        ("percent_short", b"a%4".into()),
        ("percent_no_hex", b"a%zz".into()),
        ("invalid_utf8", b"%ff%fe".into()),
        ("overlong_utf8", b"%c0%ae%c0%ae".into()),
        ("raw_ff", b"\xff".into()),
        ("utf8", "w%C3%A4hrung".into()),
        ("semicolon", b"corpus_tool;x=1".into()),
        ("colon", b"a%3ab".into()),
        ("long", "a".repeat(4_096).into()),
        ("longer", "a".repeat(100_000).into()),
        ("longest", "a".repeat(2_000_000).into()),
        ("many_parts", "a/".repeat(5_000).into()),
    ];
    for (kind, tool) in &names {
        let name = format!("path/tool_{kind}");
        let request = book.call(&name).target([b"/v1/tools/", tool.as_slice(), b"/call"].concat());
        book.unreadable(&name, request);
    }
    let keys: Vec<(&str, String)> = vec![
        ("short", NO_EFFECT[..63].into()),
        ("long", format!("{NO_EFFECT}0")),
        ("no_hex", NO_EFFECT.replace('c', "g")),
        ("dots", "..".into()),
        ("encoded_dots", "%2e%2e".into()),
        ("nul", "%00".into()),
        ("quote", "%27%20OR%201=1--".into()),
        ("wildcard", "%25".into()),
        ("huge", "f".repeat(100_000)),
        ("unknown", NO_EFFECT.into()),
    ];
    for (kind, key) in keys {
        let name = format!("path/effect_{kind}");
        let request = book.request(&name, "GET", &format!("/v1/effects/{key}"));
        book.unreadable(&name, request);
    }
    for (kind, target) in [
        ("double_slash", format!("//v1//tools//{TOOL}//call")),
        ("slash_at_the_end", format!("/v1/tools/{TOOL}/call/")),
        ("up_and_down", format!("/v1/x/../tools/{TOOL}/call")),
        ("encoded_letter_of_v1", format!("/%761/tools/{TOOL}/calls")),
        ("fragment", format!("/v1/tools/{TOOL}#/call")),
        ("no_slash", format!("v1/tools/{TOOL}/call")),
        ("question_only", "?".into()),
    ] {
        let name = format!("path/{kind}");
        let request = book.call(&name).target(target);
        book.unreadable(&name, request);
    }
}

fn queries(book: &mut Book<'_>) {
    let huge = format!("cursor={}", "A".repeat(60_000));
    let wrong = [
        "limit=-1",
        "limit=0",
        "limit=ten",
        "limit=1.5",
        "limit=1e3",
        "limit=99999999999999999999",
        "limit=%00",
        "state=nonsense",
        "state=DONE",
        "state=done&state=nonsense",
        "state=%ff",
        "state=done%00",
        "older_than=-1s",
        "older_than=soon",
        "older_than=99999999999999999999h",
        "cursor=garbage",
        "cursor=-1",
        "cursor=%00",
        "cursor=18446744073709551616",
        "cursor=%ff%fe",
        &huge,
    ];
    // May be read as nothing asked for, as a bound, or as a filter that nothing passes.
    let odd = [
        "limit=",
        "limit=1000000000",
        "limit=1&limit=2",
        "state=",
        "tool=",
        "tool=%2e%2e",
        "tool=a%20b",
        "run=",
        "run=%00",
        "older_than=",
        "cursor=",
    ];
    let wrong = wrong.iter().map(|query| (query, Expect::StatusOrClosed(REFUSED)));
    for (index, (query, expect)) in wrong.chain(odd.iter().map(|query| (query, Expect::Status(200..=499)))).enumerate() {
        let shown: String = query.chars().take(24).collect();
        let name = format!("query/{index}/{shown}");
        let request = book.request(&name, "GET", &format!("/v1/effects?{query}"));
        book.expect(&name, request, expect);
    }
}
