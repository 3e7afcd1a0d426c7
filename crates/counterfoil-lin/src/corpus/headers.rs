//! Headers: idempotency keys, tokens, content types, hosts, origins, floods.

use super::{Book, Expect, NO_EFFECT, REFUSED, TOOL};

pub fn write(book: &mut Book<'_>, other_token: &str) {
    keys(book);
    keys_elsewhere(book);
    tokens(book);
    tenants(book, other_token);
    types(book);
    hosts(book);
    origins(book);
    floods(book);
}

fn keys(book: &mut Book<'_>) {
    let (long, longer) = ("k".repeat(256), "k".repeat(64 * 1024));
    let quoted_long = format!("\"{long}\"");
    let malformed: [(&str, &[u8]); 20] = [
        ("empty", b""),
        ("spaces", b"   "),
        ("quoted_empty", b"\"\""),
        ("length_256", long.as_bytes()),
        ("length_64k", longer.as_bytes()),
        ("quoted_256", quoted_long.as_bytes()),
        ("utf8", "schlüssel".as_bytes()),
        ("latin1", b"schl\xfcssel"),
        ("byte_ff", b"\xff"),
        ("emoji", "🔑".as_bytes()),
        ("tab_inside", b"a\tb"),
        ("delete", b"a\x7fb"),
        ("bell", b"a\x07b"),
        ("nul", b"a\0b"),
        ("escape", b"a\x1bb"),
        ("quote_open", b"\"abc"),
        ("quote_inside", b"\"a\"b\""),
        ("quoted_bad_escape", b"\"a\\nb\""),
        ("quoted_utf8", "\"schlüssel\"".as_bytes()),
        ("quoted_then_more", b"\"abc\" def"),
    ];
    for (kind, value) in malformed {
        let name = format!("key/{kind}");
        let request = book.call(&name).set("Idempotency-Key", value);
        // What no header may hold is refused by the HTTP library.
        book.unreadable(&name, request);
    }
    // A bare key may hold a quote.
    let request = book.harmless("key/quote_close").set("Idempotency-Key", "abc\"");
    book.refused("key/quote_close", request);
    let request = book.call("key/twice_different").header("Idempotency-Key", "corpus-other");
    book.refused("key/twice_different", request);
    let request = book.call("key/three_times").header("Idempotency-Key", "corpus-b").header("Idempotency-Key", "corpus-c");
    book.refused("key/three_times", request);
    let request = book.call("key/body_differs").json(r#"{"args":{"n":1},"key":"corpus-another"}"#);
    book.refused("key/body_differs", request);
    let request =
        book.call("key/body_differs_in_case").set("Idempotency-Key", "corpus-case").json(r#"{"args":{"n":1},"key":"Corpus-Case"}"#);
    book.refused("key/body_differs_in_case", request);
    let request = book.call("key/body_length_256").without("Idempotency-Key").json(format!(r#"{{"args":{{"n":1}},"key":"{long}"}}"#));
    book.refused("key/body_length_256", request);
}

/// Missing where it is required or there is nothing to change, malformed where it is optional.
fn keys_elsewhere(book: &mut Book<'_>) {
    let posts = [
        (format!("/v1/tools/{TOOL}/call"), r#"{"args":{"n":1}}"#),
        ("/v1/effects/acquire".into(), r#"{"tool":"corpus_tool","args":{"n":1}}"#),
        (format!("/v1/effects/{NO_EFFECT}/resolve"), r#"{"verdict":"did_not_happen"}"#),
        (format!("/v1/effects/{NO_EFFECT}/cancel"), "{}"),
        (format!("/v1/effects/{NO_EFFECT}/undo"), "{}"),
        (format!("/v1/effects/{NO_EFFECT}/retry"), "{}"),
        (format!("/v1/effects/{NO_EFFECT}/heartbeat"), r#"{"fence":1}"#),
        (format!("/v1/effects/{NO_EFFECT}/commit"), r#"{"fence":1,"result":null}"#),
        (format!("/v1/effects/{NO_EFFECT}/fail"), r#"{"fence":1,"kind":"rejected"}"#),
        (format!("/v1/approvals/{NO_EFFECT}/approve"), "{}"),
        (format!("/v1/approvals/{NO_EFFECT}/deny"), "{}"),
    ];
    for (path, body) in posts {
        let name = format!("key/missing{path}");
        let request = book.request(&name, "POST", &path).without("Idempotency-Key").json(body);
        book.refused(&name, request);
    }
    // Without a key these are carried out.
    let welcome = [
        (format!("/v1/breakers/{TOOL}/open"), "{}"),
        ("/v1/admin/prune".into(), "{}"),
        ("/v1/admin/backup".into(), r#"{"name":"corpus"}"#),
        ("/v1/admin/flush".into(), r#"{"tool":"corpus_tool","confirm":true}"#),
    ];
    for (path, body) in welcome {
        let name = format!("key/malformed{path}");
        let request = book.request(&name, "POST", &path).set("Idempotency-Key", "\"a").json(body);
        book.refused(&name, request);
    }
    for (kind, value) in [("empty", ""), ("quoted_empty", "\"\""), ("open", "\"a"), ("utf8", "ü")] {
        let name = format!("key/put_{kind}");
        let spec = r#"{"http":{"method":"POST","url":"http://127.0.0.1:1/"}}"#;
        let request = book.request(&name, "PUT", "/v1/tools/corpus_never").json(spec).set("Idempotency-Key", value);
        book.unreadable(&name, request);
        let name = format!("key/delete_{kind}");
        let request = book.request(&name, "DELETE", &format!("/v1/tools/{TOOL}")).set("Idempotency-Key", value);
        book.unreadable(&name, request);
    }
}

fn tokens(book: &mut Book<'_>) {
    let token = book.token.to_string();
    let malformed: Vec<(&str, Vec<u8>)> = vec![
        ("empty", b"".into()),
        ("scheme_alone", b"Bearer".into()),
        ("scheme_and_space", b"Bearer ".into()),
        ("token_alone", token.clone().into()),
        ("wrong_token", b"Bearer corpus-wrong".into()),
        ("prefix_of_token", format!("Bearer {}", &token[..token.len() / 2]).into()),
        ("token_and_more", format!("Bearer {token}x").into()),
        ("token_then_word", format!("Bearer {token} x").into()),
        ("other_scheme", format!("Token {token}").into()),
        ("basic", b"Basic dXNlcjpwYXNz".into()),
        ("basic_garbage", b"Basic !!!".into()),
        ("digest", br#"Digest username="a""#.into()),
        ("no_space", format!("Bearer{token}").into()),
        ("comma", format!("Bearer {token}, Bearer {token}").into()),
        ("quoted", format!("Bearer \"{token}\"").into()),
        ("bearer_twice", format!("Bearer Bearer {token}").into()),
        ("utf8", "Bearer tökén".into()),
        ("byte_ff", b"Bearer \xff\xff".into()),
        ("nul", b"Bearer a\0b".into()),
        ("long", format!("Bearer {}", "t".repeat(16 * 1024)).into()),
        ("upper_case", if token.to_uppercase() == token { b"Bearer X".into() } else { format!("Bearer {}", token.to_uppercase()).into() }),
    ];
    for (kind, value) in malformed {
        let name = format!("auth/{kind}");
        let request = book.call(&name).set("Authorization", value);
        book.unreadable(&name, request);
    }
    let request = book.call("auth/missing").without("Authorization");
    book.expect("auth/missing", request, Expect::Status(401..=401));
    let request = book.call("auth/in_query").without("Authorization").target(format!("/v1/tools/{TOOL}/call?access_token={token}"));
    book.refused("auth/in_query", request);
    let request = book.call("auth/in_cookie").without("Authorization").header("Cookie", format!("token={token}"));
    book.refused("auth/in_cookie", request);
    let request =
        book.call("auth/two_headers").set("Authorization", "Bearer corpus-wrong").header("Authorization", format!("Bearer {token}"));
    book.refused("auth/two_headers", request);
    for path in ["/v1/tools", "/v1/effects", "/v1/approvals", "/v1/breakers", "/v1/events", "/v1/admin/mode"] {
        let name = format!("auth/missing{path}");
        let request = book.request(&name, "GET", path).without("Authorization");
        book.expect(&name, request, Expect::Status(401..=401));
    }
}

fn tenants(book: &mut Book<'_>, other_token: &str) {
    // What is registered for one tenant is not there for another.
    let bearer = format!("Bearer {other_token}");
    let request = book.call("tenant/call").set("Authorization", &bearer);
    book.refused("tenant/call", request);
    let acquire = r#"{"tool":"corpus_tool","args":{"n":1}}"#;
    let request = book.request("tenant/acquire", "POST", "/v1/effects/acquire").json(acquire).set("Authorization", &bearer);
    book.refused("tenant/acquire", request);
    for method in ["GET", "DELETE"] {
        let name = format!("tenant/{}_tool", method.to_lowercase());
        let request = book.request(&name, method, &format!("/v1/tools/{TOOL}")).set("Authorization", &bearer);
        book.refused(&name, request);
    }
    let request = book.request("tenant/get_effect", "GET", &format!("/v1/effects/{NO_EFFECT}")).set("Authorization", &bearer);
    book.expect("tenant/get_effect", request, Expect::Status(404..=404));
    for header in ["X-Tenant", "X-Counterfoil-Tenant", "X-Forwarded-User"] {
        let name = format!("tenant/claimed_by_{header}");
        let request = book.call(&name).set("Authorization", &bearer).header(header, "default");
        book.refused(&name, request);
    }
}

pub fn foreign(book: &mut Book<'_>, effect: &str) {
    let actions = [
        ("resolve", r#"{"verdict":"happened","result":{}}"#),
        ("cancel", "{}"),
        ("undo", "{}"),
        ("retry", "{}"),
        ("heartbeat", r#"{"fence":1}"#),
        ("commit", r#"{"fence":1,"result":{}}"#),
        ("fail", r#"{"fence":1,"kind":"rejected"}"#),
    ];
    for (action, body) in actions {
        let name = format!("foreign/{action}");
        let request = book.request(&name, "POST", &format!("/v1/effects/{effect}/{action}")).json(body);
        book.expect(&name, request, Expect::Status(404..=404));
    }
    for action in ["approve", "deny"] {
        let name = format!("foreign/{action}");
        let request = book.request(&name, "POST", &format!("/v1/approvals/{effect}/{action}")).json("{}");
        book.expect(&name, request, Expect::Status(404..=404));
    }
    let request = book.request("foreign/get", "GET", &format!("/v1/effects/{effect}"));
    book.expect("foreign/get", request, Expect::Status(404..=404));
    let request = book.request("foreign/flush", "POST", "/v1/admin/flush").json(format!(r#"{{"key":"{effect}"}}"#));
    book.refused("foreign/flush", request);
}

fn types(book: &mut Book<'_>) {
    let types = [
        ("empty", ""),
        ("text", "text/plain"),
        ("form", "application/x-www-form-urlencoded"),
        ("multipart", "multipart/form-data; boundary=x"),
        ("xml", "application/xml"),
        ("html", "text/html"),
        ("word", "json"),
        ("slash", "/"),
        ("almost", "application/jsonp"),
        ("octets", "application/octet-stream"),
    ];
    for (kind, value) in types {
        let name = format!("type/{kind}");
        let request = book.call(&name).set("Content-Type", value);
        book.refused(&name, request);
    }
    let request = book.call("type/missing").without("Content-Type");
    book.refused("type/missing", request);
    let request = book.harmless("type/two").header("Content-Type", "text/plain");
    book.refused("type/two", request);
    let wide: Vec<u8> = r#"{"args":{"n":1}}"#.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let request = book.call("type/utf16").json(wide).set("Content-Type", "application/json; charset=utf-16");
    book.refused("type/utf16", request);
    for coding in ["gzip", "br", "deflate", "corpus"] {
        let name = format!("type/encoded_{coding}");
        let request = book.call(&name).json(b"\x1f\x8b\x08\x00not what it says").header("Content-Encoding", coding);
        book.refused(&name, request);
    }
}

fn hosts(book: &mut Book<'_>) {
    let hosts: [(&str, &[u8]); 9] = [
        ("empty", b""),
        ("foreign", b"evil.example"),
        ("foreign_suffix", b"127.0.0.1.evil.example"),
        ("spaces", b"a b"),
        ("slash", b"127.0.0.1/x"),
        ("at", b"user@127.0.0.1"),
        ("port_garbage", b"127.0.0.1:port"),
        ("port_large", b"127.0.0.1:99999"),
        ("byte_ff", b"\xff"),
    ];
    for (kind, value) in hosts {
        let name = format!("host/{kind}");
        let request = book.harmless(&name).set("Host", value);
        book.unreadable(&name, request);
    }
    let request = book.harmless("host/missing").without("Host");
    book.unreadable("host/missing", request);
    let request = book.harmless("host/two").header("Host", "evil.example");
    book.unreadable("host/two", request);
}

fn origins(book: &mut Book<'_>) {
    for (kind, origin) in [
        ("foreign", "https://evil.example"),
        ("null", "null"),
        ("file", "file://"),
        ("garbage", "::"),
        ("suffix", "http://127.0.0.1.evil.example"),
    ] {
        let name = format!("origin/{kind}");
        let request = book.harmless(&name).header("Origin", origin);
        book.refused(&name, request);
    }
    let request = book.harmless("origin/cross_site").header("Origin", "https://evil.example").header("Sec-Fetch-Site", "cross-site");
    book.refused("origin/cross_site", request);
}

fn floods(book: &mut Book<'_>) {
    for count in [200, 5_000] {
        let name = format!("flood/{count}_headers");
        let request = (0..count).fold(book.harmless(&name), |request, n| request.header(format!("X-Flood-{n}"), "x"));
        book.expect(&name, request, Expect::StatusOrClosed(REFUSED));
    }
    let request = (0..150).fold(book.harmless("flood/same_header"), |request, _| request.header("X-Flood", "x"));
    book.unreadable("flood/same_header", request);
    let request = book.harmless("flood/long_value").header("X-Flood", "x".repeat(1024 * 1024));
    book.unreadable("flood/long_value", request);
    let request = book.harmless("flood/long_name").header("X".repeat(1024 * 1024), "x");
    book.unreadable("flood/long_name", request);
}
