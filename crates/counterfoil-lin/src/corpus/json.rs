//! Bodies that are no JSON, or JSON that nobody may take: broken, ambiguous, too deep, too large.

use super::{Book, Expect, NO_EFFECT, OVERSIZE, REFUSED};

/// Broken in a way of its own each.
const BROKEN: &[(&str, &[u8])] = &[
    ("empty", b""),
    ("only_space", b"   \r\n\t "),
    ("open_object", b"{"),
    ("close_object", b"}"),
    ("open_array", b"["),
    ("member_without_value", br#"{"args":}"#),
    ("member_without_colon", br#"{"args" {}}"#),
    ("member_cut_off", br#"{"args":{"n":1}"#),
    ("string_cut_off", br#"{"args":{"n":1},"run":"a"#),
    ("escape_cut_off", br#"{"run":"a\"#),
    ("number_cut_off", br#"{"args":{"n":1."#),
    ("literal_cut_off", br#"{"args":tru"#),
    ("trailing_comma", br#"{"args":{"n":1},}"#),
    ("leading_comma", br#"{,"args":{"n":1}}"#),
    ("double_comma", br#"{"args":{"n":1},,"run":"a"}"#),
    ("array_trailing_comma", br#"{"args":[1,]}"#),
    ("missing_comma", br#"{"args":{"n":1} "run":"a"}"#),
    ("single_quotes", b"{'args':{'n':1}}"),
    ("bare_member", br#"{args:{"n":1}}"#),
    ("line_comment", b"{\"args\":{\"n\":1}} // ok"),
    ("block_comment", br#"{/* no */"args":{"n":1}}"#),
    ("hash_comment", b"{\"args\":{\"n\":1}} # ok"),
    ("two_values", br#"{"args":{"n":1}}{"args":{"n":1}}"#),
    ("garbage_after", br#"{"args":{"n":1}}x"#),
    ("nul_after", b"{\"args\":{\"n\":1}}\0"),
    ("bom_before", b"\xef\xbb\xbf{\"args\":{\"n\":1}} x"),
    ("nan", br#"{"args":{"n":NaN}}"#),
    ("infinity", br#"{"args":{"n":Infinity}}"#),
    ("minus_infinity", br#"{"args":{"n":-Infinity}}"#),
    ("overflowing_number", br#"{"args":{"n":1e999}}"#),
    ("minus_overflowing_number", br#"{"args":{"n":-1e999}}"#),
    ("leading_zero", br#"{"args":{"n":01}}"#),
    ("plus_sign", br#"{"args":{"n":+1}}"#),
    ("hex_number", br#"{"args":{"n":0x1}}"#),
    ("bare_point", br#"{"args":{"n":.5}}"#),
    ("trailing_point", br#"{"args":{"n":1.}}"#),
    ("bare_exponent", br#"{"args":{"n":1e}}"#),
    ("underscore_number", br#"{"args":{"n":1_000}}"#),
    ("minus_alone", br#"{"args":{"n":-}}"#),
    ("upper_case_true", br#"{"args":TRUE}"#),
    ("undefined", br#"{"args":undefined}"#),
    ("python_none", br#"{"args":None}"#),
    ("raw_newline_in_string", b"{\"run\":\"a\nb\",\"args\":{\"n\":1}}"),
    ("raw_nul_in_string", b"{\"run\":\"a\0b\",\"args\":{\"n\":1}}"),
    ("unknown_escape", br#"{"run":"\x41","args":{"n":1}}"#),
    ("short_unicode_escape", br#"{"run":"\u12","args":{"n":1}}"#),
    ("lone_high_surrogate", br#"{"run":"\ud800","args":{"n":1}}"#),
    ("lone_low_surrogate", br#"{"run":"\udc00","args":{"n":1}}"#),
    ("reversed_surrogates", br#"{"run":"\udc00\ud800","args":{"n":1}}"#),
    ("invalid_utf8", b"{\"run\":\"\xff\xfe\",\"args\":{\"n\":1}}"),
    ("overlong_utf8", b"{\"run\":\"\xc0\xaf\",\"args\":{\"n\":1}}"),
    ("surrogate_in_utf8", b"{\"run\":\"\xed\xa0\x80\",\"args\":{\"n\":1}}"),
    ("utf8_cut_off", b"{\"run\":\"\xe2\x82\",\"args\":{\"n\":1}}"),
    ("beyond_unicode", b"{\"run\":\"\xf4\x90\x80\x80\",\"args\":{\"n\":1}}"),
    ("utf16", b"{\0\"\0a\0\"\0:\x001\0}\0"),
    ("duplicate_member", br#"{"args":{"n":1},"args":{"n":2}}"#),
    ("duplicate_escaped_member", br#"{"args":{"n":1},"\u0061rgs":{"n":2}}"#),
    ("duplicate_argument", br#"{"args":{"n":1,"n":2}}"#),
    ("array_for_object", b"[]"),
    // Its elements are not the members in their order, neither of a call nor of a resolution.
    ("array_of_call_members", br#"[null,{"n":1},null,null,0,{}]"#),
    ("array_of_resolve_members", br#"["did_not_happen",null,null]"#),
    ("string_for_object", br#""args""#),
    ("number_for_object", b"17"),
    ("null_for_object", b"null"),
    ("true_for_object", b"true"),
    ("form", b"args=1&key=2"),
    ("xml", b"<args><n>1</n></args>"),
    ("yaml", b"args:\n  n: 1\n"),
];

pub fn write(book: &mut Book<'_>) {
    for (kind, body) in BROKEN {
        let name = format!("json/call/{kind}");
        let request = book.call(&name).json(body);
        book.refused(&name, request);
    }
    // Where no tool's schema stands in between: the same mistakes, for an effect that does not exist.
    for (kind, body) in BROKEN.iter().filter(|(kind, _)| !kind.starts_with("empty") && !kind.starts_with("only")) {
        let name = format!("json/resolve/{kind}");
        let request = book.request(&name, "POST", &format!("/v1/effects/{NO_EFFECT}/resolve")).json(body);
        book.refused(&name, request);
    }
    deep(book);
    oversize(book);
}

fn deep(book: &mut Book<'_>) {
    const DEPTH: usize = 10_000;
    let nested = |open: &str, middle: &str, close: &str| [open.repeat(DEPTH), middle.into(), close.repeat(DEPTH)].concat();
    let bodies = [
        ("arrays", format!(r#"{{"args":{}}}"#, nested("[", "1", "]"))),
        ("objects", format!(r#"{{"args":{}}}"#, nested(r#"{"n":"#, "1", "}"))),
        ("arrays_never_closed", format!(r#"{{"args":{}"#, "[".repeat(DEPTH))),
        ("mixed", format!(r#"{{"args":{}}}"#, nested(r#"[{"n":"#, "1", "}]"))),
        ("in_metadata", format!(r#"{{"args":{{"n":1}},"metadata":{}}}"#, nested("[", "1", "]"))),
        ("alone", nested("[", "", "]")),
    ];
    for (kind, body) in bodies {
        let name = format!("json/deep/{kind}");
        let request = book.call(&name).json(&body);
        book.refused(&name, request);
    }
}

fn oversize(book: &mut Book<'_>) {
    let long = format!(r#"{{"args":{{"n":1,"x":"{}"}}}}"#, "x".repeat(OVERSIZE));
    // A server may answer and close before it has read all of it; then the answer can be lost with the connection.
    let expect = || Expect::StatusOrClosed(REFUSED);
    let request = book.call("size/sent").json(&long);
    book.expect("size/sent", request, expect());
    let request = book.request("size/put", "PUT", "/v1/tools/corpus_large").json(&long);
    book.expect("size/put", request, expect());
    let request = book.call("size/spaces").json(" ".repeat(OVERSIZE));
    book.expect("size/spaces", request, expect());
    let chunk = 64 * 1024;
    let mut chunked = Vec::new();
    for _ in 0..OVERSIZE.div_ceil(chunk) {
        chunked.extend(format!("{chunk:x}\r\n{}\r\n", " ".repeat(chunk)).into_bytes());
    }
    chunked.extend(b"0\r\n\r\n");
    let request = book.call("size/chunked").without("Content-Length").header("Transfer-Encoding", "chunked").body(&chunked);
    book.expect("size/chunked", request, expect());
    for (kind, length) in [("declared_8_mib", OVERSIZE as u64), ("declared_10_gib", 10 << 30), ("declared_1_eib", 1 << 60)] {
        let name = format!("size/{kind}");
        let request = book.call(&name).set("Content-Length", length.to_string());
        book.expect(&name, request, expect());
    }
}
