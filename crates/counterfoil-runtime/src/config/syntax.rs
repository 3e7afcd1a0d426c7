//! The YAML parser's errors in the words of somebody who writes a config rather than a parser.
//!
//! A parser says what it expected; people need to know what to change. The ones they meet have their own words here, the rest
//! keep the parser's.

use serde_saphyr::granit_parser::{ErrorKind, ScanError};

use super::mistake::{Mistake, Place};
use super::tree::DEPTH_MAX;

/// `text` is what was parsed.
pub fn mistake(error: &ScanError, text: &str) -> Mistake {
    let place = Place { line: error.marker().line().max(1), column: error.marker().col() + 1, width: 1 };
    let message = match error.kind() {
        ErrorKind::TabNotAllowed | ErrorKind::TabInBlockIndentation | ErrorKind::TabInIndentation | ErrorKind::TabInPlainScalar => {
            "a tab indents this line; YAML is indented with spaces".to_owned()
        }
        ErrorKind::UnclosedFlowCollection { open } => format!("this {open:?} is never closed"),
        ErrorKind::UnclosedQuotedScalar => "this quoted text is never closed".to_owned(),
        ErrorKind::InvalidQuotedScalarIndent => {
            "the quoted text that began above is never closed, or goes on here without being indented".to_owned()
        }
        ErrorKind::RecursionLimitExceeded => return too_deep(place),
        ErrorKind::MappingValueNotAllowed | ErrorKind::InvalidColonPlacement => {
            "a \":\" is not expected here; quote a text that contains \": \", and check the indentation".to_owned()
        }
        ErrorKind::InvalidIndentation | ErrorKind::ExpectedBlockMappingKey | ErrorKind::SimpleKeyExpected => {
            format!("not valid YAML: {}; check the indentation and that each key is followed by \": \"", error.info())
        }
        ErrorKind::ExpectedFlowMappingSeparator | ErrorKind::ExpectedFlowSequenceSeparator if after_dollar(text, place) => {
            "inside { } and [ ] a text with ${…} must be quoted, as in \"${args}\"".to_owned()
        }
        ErrorKind::InvalidTrailingDoubleQuotedScalar | ErrorKind::InvalidTrailingSingleQuotedScalar => {
            "something follows the closing quote; quote the whole of it, as in '\"a\" == args.x'".to_owned()
        }
        ErrorKind::UnexpectedCharacter { character } => format!("a text that begins with {character} must be quoted"),
        _ => format!("not valid YAML: {}", error.info()),
    };
    Mistake::new(place, "", message)
}

/// Whether the parser stumbled over the brace of a `${`.
fn after_dollar(text: &str, place: Place) -> bool {
    let line = text.lines().nth(place.line - 1).unwrap_or_default();
    place.column >= 2 && line.chars().skip(place.column - 2).take(2).eq("${".chars())
}

pub fn too_deep(place: Place) -> Mistake {
    Mistake::new(place, "", format!("nested more than {DEPTH_MAX} levels deep"))
}
