//! Whether a file is still what it was: a look, which changes nothing and waits for nobody.

use std::io;
use std::path::{Path, PathBuf};

use counterfoil_core::ids::Digest32;
use counterfoil_core::run::confirm::Finding;

use super::root::{Inside, Root, Stamp};

/// What the record says of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tools) enum Expected {
    Holds(Digest32),
    Gone,
}

/// Holds the file against it.
pub(in crate::tools) async fn look(root: PathBuf, path: String, expected: Expected) -> Finding {
    let looked = tokio::task::spawn_blocking(move || compare(&root, &path, expected)).await;
    looked.unwrap_or_else(|_| Finding::Unavailable { why: "the look at the file ended without an answer".into() })
}

/// The digest of what a file holds now. `None`: it is not there, or cannot be read.
pub(in crate::tools) async fn digest_now(root: PathBuf, path: String) -> Option<Digest32> {
    let looked = tokio::task::spawn_blocking(move || Root::look(&root, &Inside::new(&path).ok()?).ok().flatten());
    looked.await.ok().flatten().map(|stamp| stamp.sha256)
}

fn compare(root: &Path, path: &str, expected: Expected) -> Finding {
    let inside = match Inside::new(path) {
        Ok(inside) => inside,
        Err(failure) => return Finding::Unavailable { why: failure.message },
    };
    let found = match Root::look(root, &inside) {
        Ok(found) => found,
        // A folder or a link in its place: whatever it was, it is not there any more.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return drifted(path, expected, "something that is not a file"),
        Err(error) => return Finding::Unavailable { why: format!("{path}: the file cannot be looked at: {error}") },
    };
    match (expected, found) {
        (Expected::Gone, None) => Finding::Verified,
        (Expected::Holds(digest), Some(Stamp { sha256, .. })) if digest == sha256 => Finding::Verified,
        (_, None) => drifted(path, expected, "no such file"),
        (_, Some(Stamp { sha256, bytes })) => drifted(path, expected, &format!("{bytes} bytes with sha256 {sha256}")),
    }
}

fn drifted(path: &str, expected: Expected, found: &str) -> Finding {
    let expected = match expected {
        Expected::Holds(digest) => format!("{path} with sha256 {digest}"),
        Expected::Gone => format!("{path} gone"),
    };
    Finding::Drifted { expected, found: found.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_there_as_recorded_is_verified() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        std::fs::create_dir(at("sub")).unwrap();
        std::fs::write(at("sub/f"), "as it was").unwrap();
        let holds = Expected::Holds(Digest32::of(b"as it was"));
        let word = |path: &str, expected| compare(folder.path(), path, expected).word();
        assert_eq!(word("sub/f", holds), "verified");
        assert_eq!(word("sub/f", Expected::Gone), "drifted");
        assert_eq!((word("sub/g", holds), word("none/g", holds)), ("drifted", "drifted"));
        assert_eq!((word("sub/g", Expected::Gone), word("none/g", Expected::Gone)), ("verified", "verified"));
        assert_eq!((word("sub", holds), word("sub", Expected::Gone)), ("drifted", "drifted"), "a folder is not the file");
        std::fs::write(at("sub/f"), "edited").unwrap();
        let Finding::Drifted { expected, found } = compare(folder.path(), "sub/f", holds) else { panic!("it drifted") };
        assert!(expected.contains("sub/f") && found.contains(&Digest32::of(b"edited").to_string()), "{expected}, {found}");
        assert!(!at(".counterfoil").exists(), "a look makes nothing");
        // What cannot be looked at is not known to be gone.
        assert_eq!(word("../f", Expected::Gone), "unavailable");
        assert_eq!(compare(&at("no-root"), "f", Expected::Gone).word(), "unavailable");
        std::os::unix::fs::symlink(at("sub"), at("link")).unwrap();
        assert_eq!(word("link/f", holds), "unavailable", "links are not followed");
    }
}
