//! Whatever the text, reading it ends in a workflow or in mistakes that stand where they say.

use proptest::prelude::*;
use proptest::sample::Index;

use super::{EXAMPLES, FULL};
use crate::workflow::Workflow;

/// Pieces that mean something to some part of the reader. Words in a text: as a list they would be longer than the tests.
const WORDS: &str = "workflow steps id needs tool args undo retry confirm decision when then else parallel join branches map over as \
    concurrency scope budget effects tools sleep wait signal approval correlation otherwise call input output timeout on_failure retain subject \
    one two three b1 each row cell came a b all any continue 10s 0 5 -1 true off null ~ ${ } ${steps.one.result} ${steps} ${item} ${env.X} \
    steps.two.result &a *a << !!str \" ' # --- ? | é 💥 \u{feff} \u{0} [ ] { , - :";
const SPACES: &[&str] = &["\n", "\n  ", "\n  - ", "\n    ", "\n      - ", ": ", ", ", "[", "]", "{ ", " }", "[[", " ", "\t", "\r\n"];

fn piece() -> impl Strategy<Value = &'static str> {
    let words: Vec<&str> = WORDS.split_whitespace().collect();
    prop_oneof![prop::sample::select(words), prop::sample::select(SPACES)]
}

fn holds(text: &str) {
    let errors = match Workflow::parse(text, "w.yaml") {
        Ok(workflow) => {
            assert_eq!(workflow.steps.len(), workflow.plan.nodes().count());
            return;
        }
        Err(errors) => errors,
    };
    assert!(!errors.mistakes().is_empty());
    let shown = errors.to_string();
    let lines = text.lines().count();
    let mut last = 0;
    for place in errors.mistakes().iter().filter_map(|mistake| mistake.place) {
        assert!(place.line >= last, "sorted by line: {shown}");
        // A mistake at the end of the file may stand on the empty line behind it.
        assert!((1..=lines + 1).contains(&place.line) && place.column >= 1, "{shown}");
        last = place.line;
    }
    // A step that could not be read has no name, and nobody is told one.
    assert!(!shown.contains("__step_"), "{shown}");
}

fn file(which: Index) -> &'static str {
    let mut files = EXAMPLES.to_vec();
    files.push(FULL);
    files[which.index(files.len())]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_pieces(pieces in prop::collection::vec(piece(), 0..60)) {
        holds(&pieces.concat());
        holds(&format!("workflow: w\nsteps:\n  - {}", pieces.concat()));
    }

    #[test]
    fn a_good_file_with_pieces_put_in_and_taken_out(
        which in any::<Index>(),
        edits in prop::collection::vec((any::<Index>(), 0usize..6, piece()), 1..6),
    ) {
        let mut text: Vec<char> = file(which).chars().collect();
        for (at, removed, piece) in edits {
            let at = at.index(text.len() + 1);
            let end = (at + removed).min(text.len());
            text.splice(at..end, piece.chars());
        }
        holds(&text.into_iter().collect::<String>());
    }

    /// More of these are still YAML, and the mistakes are the reader's.
    #[test]
    fn a_good_file_with_words_exchanged(which in any::<Index>(), edits in prop::collection::vec((any::<Index>(), any::<Index>()), 1..4)) {
        let mut words: Vec<&str> = file(which).split_inclusive([' ', '\n']).collect();
        for (a, b) in edits {
            let (a, b) = (a.index(words.len()), b.index(words.len()));
            words.swap(a, b);
        }
        holds(&words.concat());
    }

    #[test]
    fn a_good_file_with_lines_dropped_doubled_or_moved(
        which in any::<Index>(),
        edits in prop::collection::vec((any::<Index>(), any::<Index>(), 0u8..3), 1..8),
    ) {
        let mut lines: Vec<&str> = file(which).lines().collect();
        for (from, to, kind) in edits {
            let (from, to) = (from.index(lines.len()), to.index(lines.len()));
            match kind {
                0 => { lines.remove(from); }
                1 => lines.insert(to, lines[from]),
                _ => lines.swap(from, to),
            }
        }
        holds(&lines.join("\n"));
    }
}
