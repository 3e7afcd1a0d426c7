//! What is wrong with a config file: every mistake at once, each with its place, what is allowed and a suggestion.
//!
//! Two forms of the same facts: `Display` for people (one line per mistake, the source line, a caret) and `Serialize`
//! for `--json`. Source lines are in the first only: they may hold what somebody pasted.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Longest part of a source line that is shown; of a longer one, the part around the mistake.
const SHOWN_CHARS_MAX: usize = 120;

/// Longer lists of what is allowed are left out where there is a suggestion.
const ALLOWED_SHOWN_MAX: usize = 8;

/// A place in the file, both counted from 1, the column in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    pub line: usize,
    pub column: usize,
    /// How many characters the caret underlines.
    #[serde(skip)]
    pub width: usize,
}

impl Place {
    pub const START: Place = Place { line: 1, column: 1, width: 1 };
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mistake {
    /// `None`: the file as a whole.
    #[serde(flatten)]
    pub place: Option<Place>,
    /// `tools.charge_card.retry.attempts`; empty at the top.
    pub path: String,
    /// What was found and why it will not do.
    pub message: String,
    /// What may stand here, where that is a short list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<String>,
    /// What was probably meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
}

impl Mistake {
    pub fn new(place: Place, path: &str, message: impl Into<String>) -> Self {
        Self { place: Some(place), path: path.to_owned(), message: message.into(), allowed: Vec::new(), suggestion: None }
    }

    pub fn of_file(message: impl Into<String>) -> Self {
        Self { place: None, path: String::new(), message: message.into(), allowed: Vec::new(), suggestion: None }
    }

    pub fn allowed<I: IntoIterator<Item: Into<String>>>(mut self, allowed: I) -> Self {
        self.allowed = allowed.into_iter().map(Into::into).collect();
        self
    }

    pub fn suggest(mut self, suggestion: Option<impl Into<String>>) -> Self {
        self.suggestion = suggestion.map(Into::into);
        self
    }
}

/// Without the file's name, which all mistakes share.
impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, "; did you mean {suggestion:?}?"),
            None if !self.allowed.is_empty() => write!(f, "; allowed: {}", self.allowed.join(", ")),
            None => Ok(()),
        }
    }
}

/// All mistakes of one file, from the top down. Never empty.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct ConfigErrors {
    file: PathBuf,
    mistakes: Vec<Mistake>,
    #[serde(skip)]
    source: String,
}

impl ConfigErrors {
    pub(crate) fn new(file: &Path, source: &str, mut mistakes: Vec<Mistake>) -> Self {
        // The sort is stable: mistakes of one place stay in the order they were found.
        mistakes.sort_by_key(|mistake| mistake.place.map(|place| (place.line, place.column)));
        mistakes.dedup();
        Self { file: file.to_owned(), mistakes, source: source.to_owned() }
    }

    pub fn file(&self) -> &Path {
        &self.file
    }

    pub fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }

    /// One line per mistake, as compilers print them: `file:line:column: path: message`.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.mistakes.iter().map(|mistake| match mistake.place {
            Some(place) => format!("{}:{}:{}: {mistake}", self.file.display(), place.line, place.column),
            None => format!("{}: {mistake}", self.file.display()),
        })
    }
}

impl std::error::Error for ConfigErrors {}

impl fmt::Debug for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigErrors").field("file", &self.file).field("mistakes", &self.mistakes).finish_non_exhaustive()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.mistakes.iter().filter_map(|m| m.place).map(|p| p.line).max().unwrap_or(1).to_string().len();
        // Lines as YAML counts them: a carriage return alone ends one too.
        let source = self.source.replace("\r\n", "\n");
        let source_lines: Vec<&str> = source.split(['\n', '\r']).collect();
        for (mistake, line) in self.mistakes.iter().zip(self.lines()) {
            writeln!(f, "{line}")?;
            let Some(place) = mistake.place else { continue };
            let Some(source) = source_lines.get(place.line - 1) else { continue };
            let (shown, caret) = excerpt(source, place);
            writeln!(f, "  {:>digits$} | {shown}", place.line)?;
            writeln!(f, "  {:>digits$} | {caret}", "")?;
            // The one-line form drops the list when there is a suggestion; here is room for both.
            if mistake.suggestion.is_some() && (1..=ALLOWED_SHOWN_MAX).contains(&mistake.allowed.len()) {
                writeln!(f, "  {:>digits$} = allowed: {}", "", mistake.allowed.join(", "))?;
            }
        }
        match self.mistakes.len() {
            1 => write!(f, "1 mistake in {}", self.file.display()),
            n => write!(f, "{n} mistakes in {}", self.file.display()),
        }
    }
}

/// The part of a line worth showing and the caret line below it.
fn excerpt(source: &str, place: Place) -> (String, String) {
    // Control characters, tabs among them, are one cell wide here or the caret would stand in the wrong place.
    let chars: Vec<char> = source.trim_end().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let at = (place.column - 1).min(chars.len());
    let from = if at < SHOWN_CHARS_MAX * 3 / 4 { 0 } else { at - SHOWN_CHARS_MAX / 2 };
    let to = chars.len().min(from + SHOWN_CHARS_MAX);
    let mut shown: String = chars[from..to].iter().collect();
    let mut indent = at - from;
    if from > 0 {
        shown.insert(0, '…');
        indent += 1;
    }
    if to < chars.len() {
        shown.push('…');
    }
    let width = place.width.clamp(1, to.saturating_sub(at).max(1));
    (shown, format!("{}{}", " ".repeat(indent), "^".repeat(width)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: usize, column: usize, width: usize) -> Place {
        Place { line, column, width }
    }

    #[test]
    fn people_see_the_line_and_a_caret() {
        let source = "store: x\ntools:\n\tmöde: y\n";
        let mistakes = vec![
            Mistake::new(at(3, 2, 4), "tools.möde", "unknown field").allowed(["mode", "store"]).suggest(Some("mode")),
            Mistake::new(at(1, 8, 1), "store", "unknown store").allowed(["sqlite:", "memory:"]),
        ];
        let errors = ConfigErrors::new(Path::new("c.yaml"), source, mistakes);
        let expected = "\
c.yaml:1:8: store: unknown store; allowed: sqlite:, memory:
  1 | store: x
    |        ^
c.yaml:3:2: tools.möde: unknown field; did you mean \"mode\"?
  3 |  möde: y
    |  ^^^^
    = allowed: mode, store
2 mistakes in c.yaml";
        assert_eq!(errors.to_string(), expected);
    }

    #[test]
    fn machines_get_the_same_without_the_source() {
        let mistakes = vec![Mistake::new(at(1, 8, 1), "mode", "unknown mode").suggest(Some("off")), Mistake::of_file("cannot be read")];
        let errors = ConfigErrors::new(Path::new("c.yaml"), "mode: of\n", mistakes);
        assert_eq!(
            serde_json::to_value(&errors).unwrap(),
            serde_json::json!({ "file": "c.yaml", "mistakes": [
                { "path": "", "message": "cannot be read" },
                { "line": 1, "column": 8, "path": "mode", "message": "unknown mode", "suggestion": "off" },
            ]})
        );
    }

    #[test]
    fn long_lines_are_cut_around_the_mistake() {
        let source = "x".repeat(1000);
        let (shown, caret) = excerpt(&source, at(1, 501, 3));
        assert_eq!(shown.chars().count(), SHOWN_CHARS_MAX + 2);
        assert_eq!(caret.trim_start(), "^^^");
        // A place beyond the end of its line (an unclosed quote) still gets a caret.
        assert_eq!(excerpt("ab", at(1, 9, 4)), ("ab".into(), "  ^".into()));
    }
}
