//! Database servers that a test starts for itself: on a free port, in a folder that goes away, ended by their process id.
//!
//! For tests alone. Nothing here relies on a server that happens to run, and none outlives the value that started it.

pub mod postgres;
pub mod redis;

use tempfile::TempDir;

/// Where a server lives, and in what environment.
pub struct Home {
    pub dir: TempDir,
    pub env: Vec<(String, String)>,
}

impl Default for Home {
    fn default() -> Self {
        Self { dir: tempfile::tempdir().expect("a directory"), env: Vec::new() }
    }
}
