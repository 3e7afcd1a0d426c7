//! What a change was going to do, written down before it is done.
//!
//! Must stay true: a note is durable before any name in the root changes, and what is overwritten is durable before the note. So no note means nothing
//! happened, and with one the files themselves tell which side of the change the world is on.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};

use counterfoil_core::{EffectKey, Failure};
use rustix::fs::Dir;
use serde::{Deserialize, Serialize};

use super::root::{Create, Inside, Place, Root, Stamp, io_failure, mode_of};
use crate::tools::Broken;

/// Bounds the reading of a note; it holds two paths at most.
const NOTE_BYTES_MAX: u64 = 64 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    /// Where a move came from; absent for the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Entry>,
    pub target: Entry,
}

/// One name, before and after the change. `None`: nothing is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub path: String,
    pub before: Option<Stamp>,
    pub after: Option<Stamp>,
}

/// Which side of the change the files are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Before,
    After,
    /// Changed by somebody else, or halfway.
    Neither,
}

impl Note {
    pub(super) fn load(root: &Root, key: &EffectKey) -> io::Result<Option<Self>> {
        let Some(file) = (Place { folder: root.kept()?, name: note_name(key) }).open()? else { return Ok(None) };
        let mut text = String::new();
        file.take(NOTE_BYTES_MAX).read_to_string(&mut text)?;
        serde_json::from_str(&text).map(Some).map_err(io::Error::from)
    }

    /// Durable when this returns.
    pub(super) fn save(&self, root: &Root, key: &EffectKey) -> io::Result<()> {
        let place = Place { folder: root.kept()?, name: note_name(key) };
        let text = serde_json::to_string(self)?;
        let temporary = format!("{key}.note.tmp");
        place.stage(&temporary, None, &mut text.as_bytes())?;
        place.commit(&temporary)?;
        place.settle()
    }

    /// Where the files stand now. A change that changes nothing counts as made.
    pub(super) fn side(&self, root: &Root) -> io::Result<Side> {
        let (mut before, mut after) = (true, true);
        for entry in self.source.iter().chain([&self.target]) {
            let now = entry.now(root)?;
            before &= now == entry.before;
            after &= now == entry.after;
        }
        Ok(match (before, after) {
            (_, true) => Side::After,
            (true, false) => Side::Before,
            (false, false) => Side::Neither,
        })
    }

    /// What the tool answers when the change is made.
    pub(super) fn result(&self) -> serde_json::Value {
        let (target, stamp) = (&self.target, |stamp: &Option<Stamp>| serde_json::json!(stamp));
        match (&self.source, target.after) {
            (Some(source), Some(after)) => serde_json::json!({
                "from": source.path, "path": target.path, "bytes": after.bytes, "sha256": after.sha256, "replaced": stamp(&target.before)
            }),
            (None, Some(after)) => serde_json::json!({
                "path": target.path, "bytes": after.bytes, "sha256": after.sha256, "replaced": stamp(&target.before)
            }),
            (_, None) => serde_json::json!({ "path": target.path, "removed": stamp(&target.before) }),
        }
    }
}

impl Entry {
    pub(super) fn place(&self, root: &Root, create: Create) -> Result<Place, Broken> {
        let path = Inside::new(&self.path).map_err(Broken::Before)?;
        root.place(&path, create).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => Broken::Before(missing(&self.path)),
            _ => Broken::Before(io_failure(&format!("{}: nothing was changed", self.path), &e)),
        })
    }

    fn now(&self, root: &Root) -> io::Result<Option<Stamp>> {
        let path = Inside::new(&self.path).map_err(|failure| io::Error::other(failure.message))?;
        match root.place(&path, Create::Nothing) {
            Ok(place) => place.stamp(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

pub(super) fn missing(path: &str) -> Failure {
    Failure::new("file_missing", format!("{path}: there is no such file; nothing was changed"))
}

/// Keeps what is at `place`, durable when this returns. `None`: there is nothing.
pub(super) fn keep(root: &Root, key: &EffectKey, place: &Place) -> io::Result<Option<Stamp>> {
    let Some(mut file) = place.open()? else { return Ok(None) };
    let kept = kept(root, key)?;
    let temporary = format!("{key}.tmp");
    let stamp = kept.stage(&temporary, Some(mode_of(&file)?), &mut file)?;
    kept.commit(&temporary)?;
    kept.settle()?;
    Ok(Some(stamp))
}

/// What was kept for `key`.
pub(super) fn open_kept(root: &Root, key: &EffectKey) -> io::Result<Option<File>> {
    kept(root, key)?.open()
}

/// The effects for which there is a note or a file.
pub(super) fn all(root: &Root) -> io::Result<Vec<EffectKey>> {
    let mut keys = BTreeSet::new();
    for entry in Dir::read_from(root.kept()?)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy();
        keys.extend(name.strip_suffix(".note").unwrap_or(&name).parse::<EffectKey>());
    }
    Ok(keys.into_iter().collect())
}

/// Removes what was kept for `key`: the note last, so that a crash in between leaves something to be found again.
pub(super) fn forget(root: &Root, key: &EffectKey) -> io::Result<()> {
    for name in [key.to_string(), note_name(key)] {
        match (Place { folder: root.kept()?, name }).remove() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed?,
        }
    }
    Ok(())
}

fn kept(root: &Root, key: &EffectKey) -> io::Result<Place> {
    Ok(Place { folder: root.kept()?, name: key.to_string() })
}

fn note_name(key: &EffectKey) -> String {
    format!("{key}.note")
}
