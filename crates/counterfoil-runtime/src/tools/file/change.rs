//! Making a change: keep, note, then one rename or unlink.
//!
//! Must stay true: up to the first rename or unlink every error is `Before`, from there on every error is `After`; after an error of the rename or
//! unlink itself the files are asked. What is overwritten is kept once per effect: a second attempt under the same key must not keep the first
//! one's work as if it had been there before.

use counterfoil_core::{EffectKey, Failure};
use rustix::io::Errno;

use super::note::{Entry, Note, Side, keep, missing};
use super::root::{Create, Inside, Root, Stamp, io_failure};
use crate::tools::Broken;

/// A change with everything in it that the templates gave.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Write { path: String, content: Vec<u8> },
    Delete { path: String },
    Move { from: String, to: String },
}

impl Change {
    /// Found wrong before the root is even opened.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match self {
            Self::Write { path, .. } | Self::Delete { path } => Inside::new(path).map(drop),
            Self::Move { from, to } if Inside::new(from)? == Inside::new(to)? => {
                Err(Failure::new("path_refused", "a file cannot be moved onto itself; nothing was touched"))
            }
            Self::Move { .. } => Ok(()),
        }
    }

    pub(super) fn make(&self, root: &Root, key: &EffectKey) -> Result<Note, Broken> {
        let noted = Note::load(root, key).map_err(|e| Broken::Before(io_failure("the note of an earlier attempt cannot be read", &e)))?;
        let side =
            noted.as_ref().map(|note| note.side(root)).transpose().map_err(|e| Broken::After(io_failure("the file cannot be read", &e)))?;
        match (noted, side) {
            (Some(note), Some(Side::After)) => return Ok(note),
            (Some(_), Some(Side::Neither)) => {
                let message = "an earlier attempt under this key may have been made, and the file was changed since";
                return Err(Broken::After(Failure::new("changed_since", message)));
            }
            _ => {}
        }
        match self {
            Self::Write { path, content } => write(root, key, path, content),
            Self::Delete { path } => delete(root, key, path),
            Self::Move { from, to } => relocate(root, key, from, to),
        }
    }
}

fn write(root: &Root, key: &EffectKey, path: &str, content: &[u8]) -> Result<Note, Broken> {
    let before = before_failed(path);
    let mut entry = Entry { path: path.to_owned(), before: None, after: Some(Stamp::of(content)) };
    let place = entry.place(root, Create::Folders)?;
    entry.before = keep(root, key, &place).map_err(&before)?;
    let temporary = temporary(key);
    place.stage(&temporary, place.mode(), &mut &content[..]).map_err(&before)?;
    let note = Note { source: None, target: entry };
    note.save(root, key).inspect_err(|_| place.discard(&temporary)).map_err(&before)?;
    let made = place.commit(&temporary).or_else(|error| made_after_all(root, &note, Side::After, &error));
    made.inspect_err(|_| place.discard(&temporary))?;
    place.settle().map_err(after_failed(path))?;
    Ok(note)
}

fn delete(root: &Root, key: &EffectKey, path: &str) -> Result<Note, Broken> {
    let before = before_failed(path);
    let mut entry = Entry { path: path.to_owned(), before: None, after: None };
    let place = entry.place(root, Create::Nothing)?;
    entry.before = keep(root, key, &place).map_err(&before)?;
    if entry.before.is_none() {
        return Err(Broken::Before(missing(path)));
    }
    let note = Note { source: None, target: entry };
    note.save(root, key).map_err(&before)?;
    place.remove().or_else(|error| made_after_all(root, &note, Side::After, &error))?;
    place.settle().map_err(after_failed(path))?;
    Ok(note)
}

fn relocate(root: &Root, key: &EffectKey, from: &str, to: &str) -> Result<Note, Broken> {
    let before = before_failed(from);
    let mut source = Entry { path: from.to_owned(), before: None, after: None };
    let mut target = Entry { path: to.to_owned(), before: None, after: None };
    let start = source.place(root, Create::Nothing)?;
    let moved = start.stamp().map_err(&before)?.ok_or_else(|| Broken::Before(missing(from)))?;
    let end = target.place(root, Create::Folders)?;
    target.before = keep(root, key, &end).map_err(before_failed(to))?;
    (source.before, target.after) = (Some(moved), Some(moved));
    let note = Note { source: Some(source), target };
    note.save(root, key).map_err(&before)?;
    start.move_to(&end).or_else(|error| made_after_all(root, &note, Side::After, &error))?;
    end.settle().and_then(|()| start.settle()).map_err(after_failed(to))?;
    Ok(note)
}

/// A rename or unlink failed. Some errors say that nothing was changed; after any other (a disk that fails, a server that fell silent) it may have
/// been made all the same, and the files tell. `wanted` is the side it was to lead to.
pub(super) fn made_after_all(root: &Root, note: &Note, wanted: Side, error: &std::io::Error) -> Result<(), Broken> {
    let path = &note.target.path;
    let unchanged = || Err(Broken::Before(io_failure(&format!("{path}: nothing was changed"), error)));
    if matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::XDEV | Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOSPC)) {
        return unchanged();
    }
    match note.side(root) {
        Ok(side) if side == wanted => Ok(()),
        Ok(Side::Before | Side::After) => unchanged(),
        Ok(Side::Neither) | Err(_) => Err(Broken::After(io_failure(&format!("{path}: may have been changed"), error))),
    }
}

/// Beside the file, so that the rename stays within one filesystem; by its key, so that the next attempt clears it away.
pub(super) fn temporary(key: &EffectKey) -> String {
    format!(".counterfoil-{key}.tmp")
}

pub(super) fn before_failed(path: &str) -> impl Fn(std::io::Error) -> Broken {
    let what = format!("{path}: nothing was changed");
    move |error| Broken::Before(io_failure(&what, &error))
}

pub(super) fn after_failed(path: &str) -> impl Fn(std::io::Error) -> Broken {
    let what = format!("{path}: changed, but the disk did not confirm it");
    move |error| Broken::After(io_failure(&what, &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Error;

    #[test]
    fn after_an_error_that_proves_nothing_the_files_are_asked() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::lock(folder.path()).unwrap();
        let entry = Entry { path: "f".into(), before: Some(Stamp::of(b"old")), after: Some(Stamp::of(b"new")) };
        let note = Note { source: None, target: entry };
        let after = |content: &str, errno: Errno| {
            std::fs::write(folder.path().join("f"), content).unwrap();
            made_after_all(&root, &note, Side::After, &Error::from(errno))
        };
        assert!(after("new", Errno::IO).is_ok(), "it was made");
        assert!(matches!(after("old", Errno::IO), Err(Broken::Before(_))), "it was not");
        assert!(matches!(after("other", Errno::IO), Err(Broken::After(failure)) if failure.message.contains("may have been")));
        assert!(matches!(after("other", Errno::ROFS), Err(Broken::Before(_))), "the kernel refused");
        std::fs::remove_file(folder.path().join("f")).unwrap();
        std::fs::create_dir(folder.path().join("f")).unwrap();
        let unreadable = made_after_all(&root, &note, Side::After, &Error::from(Errno::IO));
        assert!(matches!(unreadable, Err(Broken::After(_))), "nothing can be told");
    }
}
