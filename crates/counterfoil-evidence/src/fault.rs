//! What does not hold in a file, and where.

use std::fmt;

use serde::Serialize;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Of the file, from 1; `None`: of the whole file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Which part of it: `record 2 of effect 3f…`, `receipt 17`, `seal`.
    pub part: String,
    /// What was expected, and what is there.
    pub problem: String,
}

impl Fault {
    pub fn new(line: impl Into<Option<u64>>, part: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { line: line.into(), part: part.into(), problem: problem.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}, {}: {}", self.part, self.problem),
            None => write!(f, "{}: {}", self.part, self.problem),
        }
    }
}
