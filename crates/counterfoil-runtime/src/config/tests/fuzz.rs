//! Whatever the text, reading it ends in a config or in mistakes that stand where they say.

use proptest::prelude::*;
use proptest::sample::Index;

use super::config::environment;
use crate::config::{Config, STARTER};

/// Pieces that mean something to some part of the reader.
const PIECES: &[&str] = &[
    "tools",
    ":",
    ": ",
    "\n",
    "\n  ",
    "\n    ",
    "- ",
    "{",
    "}",
    "[",
    "]",
    ", ",
    "&a ",
    "*a",
    "<<",
    "!!str ",
    "!x ",
    "\"",
    "'",
    "|\n",
    ">-\n",
    "# ",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "\t",
    "\r\n",
    "\u{feff}",
    "\u{0}",
    "é",
    "日本",
    "💥",
    "${",
    "${args.x}",
    "${env.X}",
    "$${",
    "}",
    "http",
    "command",
    "file",
    "client",
    "input",
    "timeout",
    "10s",
    "10",
    "-1",
    "1e999",
    ".nan",
    "0x",
    "99999999999999999999",
    "true",
    "off",
    "null",
    "~",
    "2xx",
    "https://",
    "$ref",
    "type",
    "key",
    "undo",
    "tool",
    "? ",
];

fn holds(text: &str) {
    let Err(errors) = Config::parse(text, "c.yaml", &environment()) else { return };
    assert!(!errors.mistakes().is_empty());
    let shown = errors.to_string();
    assert!(shown.ends_with(" in c.yaml"), "{shown}");
    let lines = text.lines().count();
    let mut last = 0;
    for place in errors.mistakes().iter().filter_map(|mistake| mistake.place) {
        assert!(place.line >= last, "sorted by line: {shown}");
        // A mistake at the end of the file may stand on the empty line behind it.
        assert!((1..=lines + 1).contains(&place.line) && place.column >= 1, "{shown}");
        last = place.line;
    }
    serde_json::to_string(&errors).expect("mistakes are plain data");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text(text in any::<String>()) {
        holds(&text);
    }

    #[test]
    fn any_pieces(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..60)) {
        holds(&pieces.concat());
    }

    #[test]
    fn a_good_file_with_pieces_put_in_and_taken_out(
        starter in any::<bool>(),
        edits in prop::collection::vec((any::<Index>(), 0usize..6, prop::sample::select(PIECES)), 1..6),
    ) {
        let file = if starter { STARTER } else { include_str!("golden/full.yaml") };
        let mut text: Vec<char> = file.chars().collect();
        for (at, removed, piece) in edits {
            let at = at.index(text.len() + 1);
            let end = (at + removed).min(text.len());
            text.splice(at..end, piece.chars());
        }
        holds(&text.into_iter().collect::<String>());
    }

    #[test]
    fn a_good_file_with_lines_dropped_doubled_or_moved(
        edits in prop::collection::vec((any::<Index>(), any::<Index>(), 0u8..3), 1..8),
        crlf in any::<bool>(),
    ) {
        let mut lines: Vec<&str> = include_str!("golden/full.yaml").lines().collect();
        for (from, to, kind) in edits {
            if lines.is_empty() {
                break;
            }
            let line = lines[from.index(lines.len())];
            match kind {
                0 => { lines.remove(from.index(lines.len())); }
                1 => lines.insert(to.index(lines.len() + 1), line),
                _ => { let (a, b) = (from.index(lines.len()), to.index(lines.len())); lines.swap(a, b); }
            }
        }
        holds(&lines.join(if crlf { "\r\n" } else { "\n" }));
    }
}

#[test]
fn line_ends_do_not_matter() {
    let text = include_str!("golden/full.yaml");
    let config = |text: &str| format!("{:?}", Config::parse(text, "c.yaml", &environment()).unwrap());
    assert_eq!(config(text), config(&text.replace('\n', "\r\n")));
}

#[test]
fn large_files_are_answered_quickly() {
    let many = |line: &dyn Fn(usize) -> String| (0..40_000).map(line).collect::<String>();
    let started = std::time::Instant::now();
    holds(&many(&|i| format!("k{i}: 1\n")));
    holds(&many(&|_| "k: 1\n".into()));
    holds(&format!("tools:\n{}", many(&|i| format!("  t{i}: {{}}\n"))));
    holds(&format!("tools:\n  t: {{ command: [echo] }}\n{}", many(&|i| format!("  - x{i}\n"))));
    holds(&"[".repeat(1 << 20));
    holds(&"a: ".repeat(300_000));
    assert!(started.elapsed() < std::time::Duration::from_secs(60), "{:?}", started.elapsed());
}
