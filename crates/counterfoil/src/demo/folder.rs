//! The demo's folder: made for this run alone, and gone when it ends, unless it is kept.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Names that are tried: in a container every run may have the same pid, and earlier ones may have been kept.
const NAMES_MAX: u32 = 1000;
/// A worker that was killed a moment ago may still be in the middle of a write.
const REMOVALS_MAX: u32 = 5;

#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    kept: bool,
}

impl Folder {
    pub fn new() -> anyhow::Result<Self> {
        let parent = std::env::temp_dir();
        let name = format!("counterfoil-demo-{}", std::process::id());
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        for n in 1..=NAMES_MAX {
            let path = parent.join(if n == 1 { name.clone() } else { format!("{name}-{n}") });
            // Never one that is there already: it is not ours to remove.
            match builder.create(&path) {
                Ok(()) => return Ok(Self { path, kept: false }),
                Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(e).with_context(|| format!("{} cannot be made", path.display())),
            }
        }
        anyhow::bail!("{} is full of folders of earlier demos", parent.display())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn keep(&mut self) -> &Path {
        self.kept = true;
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let gone = (0..REMOVALS_MAX).any(|_| std::fs::remove_dir_all(&self.path).is_ok());
        if !gone {
            crate::output::note(format_args!("counterfoil: {} could not be removed", self.path.display()));
        }
    }
}
