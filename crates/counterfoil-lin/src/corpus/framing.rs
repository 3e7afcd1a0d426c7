//! Where a request begins and ends: smuggling, lengths, chunks, request lines.

use super::{Book, Expect, NO_EFFECT, REFUSED, TOOL};

pub fn write(book: &mut Book<'_>) {
    smuggling(book);
    lengths(book);
    chunks(book);
    lines(book);
}

/// Two readings, of which one hides a second request. That one must not be carried out either.
fn smuggling(book: &mut Book<'_>) {
    let body = r#"{"args":{"n":1}}"#;
    let hidden = format!(
        "POST /v1/tools/{TOOL}/call HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nIdempotency-Key: corpus-hidden\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        book.host,
        book.token,
        body.len()
    );
    let ends_early = format!("0\r\n\r\n{hidden}");
    let chunked = [
        ("length_and_chunked", "Transfer-Encoding", "chunked"),
        ("length_and_chunked_upper", "Transfer-Encoding", "CHUNKED"),
        ("length_and_identity", "Transfer-Encoding", "identity"),
        ("length_and_chunked_twice", "Transfer-Encoding", "chunked, chunked"),
        ("length_and_chunked_then_gzip", "Transfer-Encoding", "chunked, gzip"),
        ("length_and_xchunked", "Transfer-Encoding", "xchunked"),
        ("length_and_chunked_tab", "Transfer-Encoding", "\tchunked"),
        ("length_and_chunked_vertical_tab", "Transfer-Encoding", "\u{b}chunked"),
        ("length_and_chunked_quoted", "Transfer-Encoding", "\"chunked\""),
        ("length_and_space_before_colon", "Transfer-Encoding ", "chunked"),
    ];
    for (kind, header, value) in chunked {
        let name = format!("smuggle/{kind}");
        let request = book.harmless(&name).set("Content-Length", ends_early.len().to_string()).header(header, value).body(&ends_early);
        book.unreadable(&name, request);
    }
    for (kind, first, second) in [("two_lengths", hidden.len(), 0), ("two_lengths_swapped", 0, hidden.len()), ("two_lengths_close", 2, 3)] {
        let name = format!("smuggle/{kind}");
        let body = if kind == "two_lengths_close" { "{} ".to_string() } else { hidden.clone() };
        let request = book.harmless(&name).set("Content-Length", first.to_string()).header("Content-Length", second.to_string()).body(body);
        book.unreadable(&name, request);
    }
    let request = book.harmless("smuggle/length_list").set("Content-Length", "2, 2");
    book.unreadable("smuggle/length_list", request);
    let request = book.harmless("smuggle/folded_header").header("X-Folded", "a\r\n b");
    book.unreadable("smuggle/folded_header", request);
    let request = book.harmless("smuggle/folded_chunked").header("Transfer-Encoding", "\r\n chunked");
    book.unreadable("smuggle/folded_chunked", request);
    let request = book.harmless("smuggle/bare_return").header("X-Bare", "a\rTransfer-Encoding: chunked");
    book.unreadable("smuggle/bare_return", request);
    let request = book.harmless("smuggle/nul_in_name").header("Transfer\0Encoding", "chunked");
    book.unreadable("smuggle/nul_in_name", request);
    let request = book.request("smuggle/chunked_in_1_0", "POST", &format!("/v1/effects/{NO_EFFECT}/cancel")).version("HTTP/1.0");
    let request = request.header("Content-Type", "application/json").header("Transfer-Encoding", "chunked").body("2\r\n{}\r\n0\r\n\r\n");
    book.unreadable("smuggle/chunked_in_1_0", request);
}

fn lengths(book: &mut Book<'_>) {
    let wrong = [
        ("negative", "-1"),
        ("minus_zero", "-0"),
        ("plus", "+16"),
        ("word", "ten"),
        ("empty", ""),
        ("hex", "0x10"),
        ("point", "16.0"),
        ("exponent", "1e1"),
        ("spaces", "1 6"),
        ("beyond_u64", "18446744073709551616"),
        ("beyond_all", "99999999999999999999999999999999999999"),
        ("utf8_digits", "１６"),
    ];
    for (kind, length) in wrong {
        let name = format!("length/{kind}");
        let request = book.call(&name).set("Content-Length", length);
        book.unreadable(&name, request);
    }
    let request = book.call("length/missing").without("Content-Length");
    book.unreadable("length/missing", request);
    let request = book.call("length/short").set("Content-Length", "15");
    book.unreadable("length/short", request);
    let request = book.call("length/zero").set("Content-Length", "0");
    book.unreadable("length/zero", request);
    // The rest never comes.
    let request = book.call("length/long").set("Content-Length", "17");
    book.unreadable("length/long", request);
}

fn chunks(book: &mut Book<'_>) {
    let right = "10\r\n{\"args\":{\"n\":1}}\r\n0\r\n\r\n";
    let long_extension = right.replacen("10\r\n", &format!("10;{}\r\n", "x".repeat(1024 * 1024)), 1);
    let long_trailer = right.replacen("0\r\n\r\n", &format!("0\r\nX-Trailer: {}\r\n\r\n", "x".repeat(1024 * 1024)), 1);
    let wrong = [
        ("size_no_hex", right.replacen("10", "zz", 1)),
        ("size_negative", right.replacen("10", "-10", 1)),
        ("size_prefixed", right.replacen("10", "0x10", 1)),
        ("size_empty", right.replacen("10", "", 1)),
        ("size_huge", right.replacen("10", "ffffffffffffffff", 1)),
        ("size_beyond", right.replacen("10", "10000000000000000", 1)),
        ("size_zeros", right.replacen("10", &"0".repeat(10_000), 1)),
        ("size_small", right.replacen("10", "f", 1)),
        ("size_large", right.replacen("10", "11", 1)),
        ("bare_newlines", right.replace("\r\n", "\n")),
        ("no_end", right.replacen("0\r\n\r\n", "", 1)),
        ("cut_off", right[..10].into()),
        ("extension_long", long_extension),
        ("trailer_long", long_trailer),
        ("trailer_broken", right.replacen("0\r\n\r\n", "0\r\nno colon here\r\n\r\n", 1)),
    ];
    for (kind, body) in wrong {
        let name = format!("chunk/{kind}");
        // What a lenient reader could still take for a whole body must find nothing to do.
        let lenient = ["size_prefixed", "bare_newlines", "extension_long", "trailer_long", "trailer_broken", "size_zeros"].contains(&kind);
        let request = if lenient { book.harmless(&name) } else { book.call(&name) };
        let request = request.without("Content-Length").header("Transfer-Encoding", "chunked").body(body);
        book.unreadable(&name, request);
    }
}

fn lines(book: &mut Book<'_>) {
    for version in [
        "HTTP/0.9",
        "HTTP/1.2",
        "HTTP/2.0",
        "HTTP/3.0",
        "HTTP/9.9",
        "HTTP/1",
        "HTTP/",
        "http/1.1",
        "HTTPS/1.1",
        "ICY/1.1",
        "HTTP/1.1 x",
        "",
    ] {
        let name = format!("line/version_{version}");
        let request = book.harmless(&name).version(version);
        book.unreadable(&name, request);
    }
    let raw: [(&str, &[u8]); 16] = [
        ("http_0_9", b"GET /v1/tools\r\n"),
        ("http_0_9_post", b"POST /v1/admin/prune\r\n\r\n{}"),
        ("nothing_but_newlines", b"\r\n\r\n\r\n\r\n"),
        ("method_alone", b"GET\r\n\r\n"),
        ("no_target", b"GET  HTTP/1.1\r\n\r\n"),
        ("tabs", b"GET\t/v1/tools\tHTTP/1.1\r\n\r\n"),
        ("space_first", b" GET /v1/tools HTTP/1.1\r\n\r\n"),
        ("space_before_header", b"GET /v1/tools HTTP/1.1\r\n Host: a\r\n\r\n"),
        ("header_without_colon", b"GET /v1/tools HTTP/1.1\r\nHost\r\n\r\n"),
        ("header_without_name", b"GET /v1/tools HTTP/1.1\r\n: a\r\n\r\n"),
        ("tls_hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03corpus\r\n\r\n"),
        ("http_2_preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        ("binary", b"\x00\x01\x02\x03\xff\xfe\xfd\r\n\r\n"),
        ("ssh", b"SSH-2.0-corpus\r\n"),
        ("never_ends", b"GET /v1/tools HTTP/1.1\r\nHost: a\r\nX-Half"),
        ("redis", b"*1\r\n$4\r\nPING\r\n"),
    ];
    for (kind, raw) in raw {
        book.raw(format!("line/{kind}"), raw.to_vec(), Expect::StatusOrClosed(REFUSED));
    }
    for (kind, target) in [
        ("absolute_foreign", format!("http://evil.example/v1/effects/{NO_EFFECT}/cancel")),
        ("absolute_https", format!("https://evil.example/v1/effects/{NO_EFFECT}/cancel")),
        ("absolute_file", "file:///etc/passwd".into()),
        ("absolute_user", format!("http://a:b@evil.example/v1/effects/{NO_EFFECT}/cancel")),
        ("authority", "evil.example:443".into()),
        ("asterisk", "*".into()),
    ] {
        let name = format!("line/{kind}");
        let request = book.harmless(&name).target(target);
        book.unreadable(&name, request);
    }
    let request = book.request("line/connect", "CONNECT", "evil.example:443");
    book.unreadable("line/connect", request);
}
