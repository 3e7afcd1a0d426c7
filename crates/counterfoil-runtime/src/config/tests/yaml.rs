//! Text to tree: places, limits and everything YAML can do to a reader.

use std::fmt::Write as _;

use crate::config::node::{Node, Value};
use crate::config::tree::parse;

fn tree(text: &str) -> Node {
    let (root, mistakes) = parse(text);
    assert!(mistakes.is_empty(), "{mistakes:?}");
    root.expect("a document")
}

/// Every mistake as `line:column message`.
fn mistakes(text: &str) -> Vec<String> {
    let (_, mistakes) = parse(text);
    let shown = |m: &crate::config::Mistake| match m.place {
        Some(place) => format!("{}:{} {m}", place.line, place.column),
        None => m.to_string(),
    };
    mistakes.iter().map(shown).collect()
}

fn place_of(node: &Node) -> (usize, usize, usize) {
    (node.place.line, node.place.column, node.place.width)
}

#[test]
fn values_know_their_places() {
    let root = tree("store: sqlite:x\ntools:\n  a: { timeout: 10s }\n  b:\n  c: 'quo''ted'\n");
    assert_eq!(place_of(root.get("store").unwrap()), (1, 8, 8));
    let tools = root.get("tools").unwrap();
    assert_eq!(place_of(tools.get("a").unwrap().get("timeout").unwrap()), (3, 17, 3));
    // Nothing after `b:` stands where `b` stands.
    assert_eq!(place_of(tools.get("b").unwrap()), (4, 3, 1));
    assert_eq!(tools.get("c").unwrap().as_str(), Some("quo'ted"));
}

#[test]
fn columns_count_characters_and_lines_survive_crlf() {
    let root = tree("a: é\r\n\"ключ\": [日本, x]\r\n");
    let list = root.get("ключ").unwrap();
    let Value::List(items) = &list.value else { panic!("{list:?}") };
    assert_eq!(place_of(&items[0]), (2, 10, 2));
    assert_eq!(place_of(&items[1]), (2, 14, 1));
    assert_eq!(root.get("a").unwrap().as_str(), Some("é"));
}

#[test]
fn empty_files_hold_nothing() {
    for text in ["", "\n\n", "# only a comment\n", "---\n"] {
        let (root, mistakes) = parse(text);
        assert!(mistakes.is_empty(), "{text:?}: {mistakes:?}");
        assert!(root.is_none_or(|node| node.value == Value::Null), "{text:?}");
    }
}

#[test]
fn anchors_and_merges_unfold() {
    let root = tree("x-d: &d { timeout: 10s, lease: 1s }\nt:\n  <<: *d\n  lease: 2s\nu: *d\n");
    let t = root.get("t").unwrap();
    assert_eq!(t.get("timeout").unwrap().as_str(), Some("10s"));
    assert_eq!(t.get("lease").unwrap().as_str(), Some("2s"));
    assert_eq!(root.get("u").unwrap(), root.get("x-d").unwrap());
}

#[test]
fn mistakes_name_their_cause() {
    let check = |text: &str, expected: &[&str]| assert_eq!(mistakes(text), expected, "{text:?}");
    check(
        "a: 1\nb: 2\na: 3\nb: 4\n",
        &["3:1 a: duplicate key; it was first written in line 1", "4:1 b: duplicate key; it was first written in line 2"],
    );
    check("a: 1\n---\nb: 2\n", &["2:1 a second document (---) starts here; a config file has one"]);
    check(
        "a: &base 1\nb: *bsae\n",
        &["2:4 b: no anchor &bsae was written above this alias; quote a text that begins with *; did you mean \"*base\"?"],
    );
    check("a: &a [*a]\n", &["1:8 this alias stands inside the very value that it names"]);
    check("a: !secret x\n", &["1:4 a: the tag !secret has no meaning here; quote a text or an expression that begins with !"]);
    check("? [a, b]\n: 1\nc: 2\n", &["1:3 a key is a word; found a list"]);
    check(
        "a: 99999999999999999999\n",
        &["1:4 a: the number 99999999999999999999 is too large to be kept exactly; quote it if it is an identifier"],
    );
    check("tools:\n\ta: 1\n", &["2:2 a tab indents this line; YAML is indented with spaces"]);
    check("a: [1, 2\n", &["1:4 this '[' is never closed"]);
    check("a: 'x\n", &["2:1 the quoted text that began above is never closed, or goes on here without being indented"]);
    check("a: { b: ${args} }\n", &["1:10 inside { } and [ ] a text with ${…} must be quoted, as in \"${args}\""]);
    check("a: [${args}]\n", &["1:6 inside { } and [ ] a text with ${…} must be quoted, as in \"${args}\""]);
    check("a: \"x\" == y\n", &["1:8 something follows the closing quote; quote the whole of it, as in '\"a\" == args.x'"]);
    check("a: @x\n", &["1:4 a text that begins with @ must be quoted"]);
    check("<<: 3\n", &["1:5 << takes a map, as in <<: *defaults"]);
}

#[test]
fn a_few_lines_of_aliases_do_not_fill_memory() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..12 {
        let above = vec![format!("*a{}", i - 1); 10].join(", ");
        writeln!(text, "a{i}: &a{i} [{above}]").unwrap();
    }
    let found = mistakes(&text);
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("unfolds to more than 100000 values"), "{found:?}");
}

#[test]
fn depth_is_bounded_also_through_aliases() {
    let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    assert!(parse(&deep(60)).0.is_some());
    assert_eq!(mistakes(&deep(300)), ["1:65 nested more than 64 levels deep"]);
    assert_eq!(mistakes(&format!("{}x", "- ".repeat(5000))), ["1:129 nested more than 64 levels deep"]);
    let through_alias = format!("a: &a {}\nb: {}*a{}\n", deep(40), "[".repeat(40), "]".repeat(40));
    assert_eq!(mistakes(&through_alias), ["2:44 nested more than 64 levels deep"]);
}

#[test]
fn size_is_bounded() {
    let text = format!("a: {}", "x".repeat(1 << 20));
    assert_eq!(mistakes(&text), ["is 1048579 bytes long; at most 1048576 are read"]);
}
