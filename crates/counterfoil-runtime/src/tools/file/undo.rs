//! What undoes a file tool's change: the companion tool `<name>.undo`.
//!
//! Must stay true: it restores only what the note of the undone effect says, only from what was kept, and only while the file is as
//! that effect left it. Later work is never destroyed: then it refuses, and nothing is touched.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use counterfoil_core::{EffectKey, Failure, Json, Outcome, Success};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::change::{after_failed, before_failed, made_after_all, temporary};
use super::note::{Note, Side, open_kept};
use super::root::{self, Create, Root, Stamp, io_failure, mode_of};
use super::{blocking, locked};
use crate::spec::FileSpec;
use crate::tool::{Invocation, ProbeAnswer, Tool, ToolFuture};
use crate::tools::{Broken, BuildError};

/// The arguments of an undo: which effect, and for whoever has to approve it, which file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UndoArgs {
    /// The effect to undo: what it overwrote is kept under this key.
    pub kept: EffectKey,
    pub path: String,
    /// What the file must still hold; `None`: that it must still be absent.
    pub sha256: Option<counterfoil_core::ids::Digest32>,
}

#[derive(Debug)]
pub struct FileUndo {
    root: Arc<PathBuf>,
}

impl FileUndo {
    pub fn new(spec: &FileSpec) -> Result<Self, BuildError> {
        Ok(Self { root: Arc::new(root::check(&spec.root).map_err(BuildError::File)?) })
    }
}

impl Tool for FileUndo {
    fn invoke(&self, invocation: Invocation) -> ToolFuture<'_, Outcome> {
        let root = Arc::clone(&self.root);
        Box::pin(blocking(move |wanted| {
            let done = arguments(&invocation).and_then(|args| locked(&root, wanted, |root| undo(root, &args)));
            Broken::outcome(done.map(|note| Success::new(Json::from_value(&result(&note)))))
        }))
    }

    fn can_probe(&self) -> bool {
        true
    }

    fn probe(&self, invocation: Invocation) -> ToolFuture<'_, ProbeAnswer> {
        let root = Arc::clone(&self.root);
        Box::pin(blocking(move |wanted| {
            let looked = arguments(&invocation).and_then(|args| locked(&root, wanted, |root| find(root, &args)));
            match looked {
                Ok((note, Side::Before)) => ProbeAnswer::Happened(Success::new(Json::from_value(&result(&note)))),
                Ok((_, Side::After)) => ProbeAnswer::DidNotHappen,
                Ok((_, Side::Neither)) => ProbeAnswer::CannotTell("the file is neither as it was before nor as the effect left it".into()),
                Err(broken) => ProbeAnswer::CannotTell(broken.into_failure().message),
            }
        }))
    }
}

fn arguments(invocation: &Invocation) -> Result<UndoArgs, Broken> {
    serde_json::from_str(invocation.args.as_str())
        .map_err(|e| Broken::Before(Failure::new("invalid_arguments", format!("not the arguments of an undo: {e}"))))
}

/// The note, and where the files stand.
fn find(root: &Root, args: &UndoArgs) -> Result<(Note, Side), Broken> {
    let io = |error: io::Error| Broken::Before(io_failure(&args.path, &error));
    let refused = |why: &str| Broken::Before(Failure::new("undo_refused", format!("{}: {why}; nothing was changed", args.path)));
    let note = Note::load(root, &args.kept).map_err(io)?.ok_or_else(|| refused("nothing is kept under that key"))?;
    if note.target.path != args.path || note.target.after.map(|stamp| stamp.sha256) != args.sha256 {
        return Err(refused("the arguments do not match what is kept under that key"));
    }
    let side = note.side(root).map_err(io)?;
    Ok((note, side))
}

fn undo(root: &Root, args: &UndoArgs) -> Result<Note, Broken> {
    let (note, side) = find(root, args)?;
    match side {
        // A change that changed nothing is undone as it stands; so is one that was undone already.
        Side::Before => Ok(note),
        Side::After if note.target.before == note.target.after => Ok(note),
        Side::After => restore(root, &args.kept, &note).map(|()| note),
        Side::Neither => {
            let message = format!("{}: changed since; undoing would destroy later work. Nothing was changed", args.path);
            Err(Broken::Before(Failure::new("changed_since", message)))
        }
    }
}

fn restore(root: &Root, key: &EffectKey, note: &Note) -> Result<(), Broken> {
    let (path, before) = (&note.target.path, before_failed(&note.target.path));
    let target = note.target.place(root, Create::Folders)?;
    let temporary = temporary(key);
    if let Some(expected) = note.target.before {
        // Staged before anything is moved out of the way: from here on only renames are left.
        let kept = open_kept(root, key).map_err(&before)?;
        let mut kept = kept.ok_or_else(|| Broken::Before(damaged(path)))?;
        let staged = mode_of(&kept).and_then(|mode| target.stage(&temporary, Some(mode), &mut kept)).map_err(&before)?;
        if staged != expected {
            target.discard(&temporary);
            return Err(Broken::Before(damaged(path)));
        }
    }
    let mut moved = false;
    if let Some(source) = &note.source {
        let start = source.place(root, Create::Folders)?;
        let back = target.move_to(&start).or_else(|error| made_after_all(root, note, Side::Before, &error));
        back.inspect_err(|_| target.discard(&temporary))?;
        moved = true;
        start.settle().map_err(after_failed(path))?;
    }
    let last = match note.target.before {
        Some(_) => target.commit(&temporary),
        None if moved => Ok(()),
        None => target.remove(),
    };
    // Half of a move that was undone is neither here nor there.
    last.or_else(|error| if moved { Err(after_failed(path)(error)) } else { made_after_all(root, note, Side::Before, &error) })?;
    target.settle().map_err(after_failed(path))
}

fn damaged(path: &str) -> Failure {
    Failure::new("undo_refused", format!("{path}: what was kept of it is missing or damaged; nothing was changed"))
}

fn result(note: &Note) -> serde_json::Value {
    let restored: Option<Stamp> = note.source.as_ref().map_or(note.target.before, |source| source.before);
    json!({ "path": note.source.as_ref().map_or(&note.target.path, |source| &source.path), "restored": restored })
}
