//! Making a change: keep, note, then one rename or unlink.
//!
//! Must stay true: up to the first rename or unlink every error is `Before`, from there on every error is `After`. What is overwritten is kept once per effect:
//! a second attempt under the same key must not keep the first one's work as if it had been there before.

use counterfoil_core::{EffectKey, Failure};

use super::note::{Entry, Note, Side, keep};
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
    place.stage(&temporary, &mut &content[..]).map_err(&before)?;
    let note = Note { source: None, target: entry };
    let noted = note.save(root, key).and_then(|()| place.commit(&temporary));
    noted.inspect_err(|_| place.discard(&temporary)).map_err(&before)?;
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
    note.save(root, key).and_then(|()| place.remove()).map_err(&before)?;
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
    note.save(root, key).and_then(|()| start.move_to(&end)).map_err(&before)?;
    end.settle().and_then(|()| start.settle()).map_err(after_failed(to))?;
    Ok(note)
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

fn missing(path: &str) -> Failure {
    Failure::new("file_missing", format!("{path}: there is no such file; nothing was changed"))
}
