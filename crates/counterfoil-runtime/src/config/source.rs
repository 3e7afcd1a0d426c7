//! The kinds of file that people write for us, and their text.
//!
//! What a file may hold is bounded before it is looked at: by its kind, since a config is a few pages and a workflow may be made by a program.

use std::io::{ErrorKind, Read as _};
use std::path::Path;

/// What is read here, and how much of it.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    pub name: &'static str,
    pub bytes_max: usize,
    /// All values together, those that aliases repeat included.
    pub nodes_max: usize,
    /// What to do where there is no such file.
    pub if_missing: &'static str,
}

/// A config for people is a few hundred lines.
pub const CONFIG: Kind =
    Kind { name: "a config file", bytes_max: 1 << 20, nodes_max: 100_000, if_missing: "; `counterfoil init` writes one to start from" };

impl Default for Kind {
    fn default() -> Self {
        CONFIG
    }
}

impl Kind {
    /// The text of a file, or why there is none.
    pub fn read(&self, path: &Path) -> Result<String, String> {
        let mut bytes = Vec::new();
        // One byte more than allowed tells "too long" without reading all of it.
        let limit = self.bytes_max as u64 + 1;
        let read = std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes));
        match read {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(format!("there is no such file{}", self.if_missing));
            }
            Err(error) => return Err(format!("cannot be read: {error}")),
            Ok(_) => {}
        }
        String::from_utf8(bytes).map_err(|error| {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
            format!("is not UTF-8 text; the first wrong byte is in line {line}")
        })
    }
}
