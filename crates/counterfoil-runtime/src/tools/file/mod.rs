//! One change to one file inside a root: write, delete or move.
//!
//! Atomic and durable: staged beside the file, fsynced, renamed, the folder fsynced. What is overwritten or removed is kept first, under
//! `<root>/.counterfoil/kept/<key>`, with a note of the change beside it; by the note a probe can tell whether the change was made, and
//! `<name>.undo` can take it back. Files work on a blocking thread that a dropped future does not stop: one that has not
//! begun by then never does, and a probe waits for one that has.

mod change;
mod look;
mod note;
mod root;
mod undo;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use counterfoil_core::run::confirm::Finding;
use counterfoil_core::{CanonicalJson, EffectKey, Failure, Json, Outcome, StateChanged, Success, ToolName};
use serde_json::json;

use self::change::Change;
pub(super) use self::look::{Expected, digest_now, look};
use self::note::{Note, Side};
use self::root::{OWN, Root, io_failure};
pub use self::undo::FileUndo;
use self::undo::UndoArgs;
use super::scope::Environment;
use super::{Broken, BuildError, template_failed};
use crate::spec::{FileChange, FileSpec};
use crate::template::{EvalError, Scope, ValueTemplate};
use crate::tool::{Invocation, ProbeAnswer, Recorded, UndoPlan};

#[derive(Debug)]
pub(super) struct FileAction {
    root: PathBuf,
    change: FileChange,
    undo: ToolName,
    environment: Environment,
}

impl FileAction {
    pub(super) fn new(spec: &FileSpec, undo: ToolName, environment: Environment) -> Result<Self, BuildError> {
        let root = root::check(&spec.root).map_err(BuildError::File)?;
        Ok(Self { root, change: spec.change.clone(), undo, environment })
    }

    pub(super) async fn invoke(self: &Arc<Self>, invocation: Invocation) -> Outcome {
        let this = Arc::clone(self);
        blocking(move |wanted| {
            let made = this.change(&invocation).map_err(Broken::Before);
            let made = made.and_then(|change| locked(&this.root, wanted, |root| change.make(root, &invocation.key)));
            Broken::outcome(made.map(|note| success(&note)))
        })
        .await
    }

    pub(super) async fn probe(self: &Arc<Self>, invocation: Invocation) -> ProbeAnswer {
        let this = Arc::clone(self);
        blocking(move |wanted| {
            let io = |error| Broken::Before(io_failure("the file cannot be looked at", &error));
            let looked = locked(&this.root, wanted, |root| match Note::load(root, &invocation.key).map_err(io)? {
                Some(note) => note.side(root).map(|side| Some((note, side))).map_err(io),
                None => Ok(None),
            });
            match looked {
                // The note comes before the change: none, no change.
                Ok(None | Some((_, Side::Before))) => ProbeAnswer::DidNotHappen,
                Ok(Some((note, Side::After))) => ProbeAnswer::Happened(success(&note)),
                Ok(Some((_, Side::Neither))) => ProbeAnswer::CannotTell("the file was changed by somebody else since".into()),
                Err(broken) => ProbeAnswer::CannotTell(broken.into_failure().message),
            }
        })
        .await
    }

    /// By the result alone: what was written or moved is there, what was removed is gone.
    pub(super) async fn verify(self: &Arc<Self>, recorded: Recorded) -> Finding {
        let result = recorded.result.to_value();
        let Some(path) = result["path"].as_str().map(str::to_owned) else {
            return Finding::Unverified { why: "the recorded result does not say which file it was".into() };
        };
        let expected = match result["sha256"].as_str().map(str::parse) {
            Some(Ok(digest)) => Expected::Holds(digest),
            Some(Err(_)) => return Finding::Unverified { why: "the recorded result has no digest of the file".into() },
            None => Expected::Gone,
        };
        look(self.root.clone(), path, expected).await
    }

    pub(super) fn undone_by(&self) -> &ToolName {
        &self.undo
    }

    pub(super) fn undo_plan(&self, invocation: &Invocation, result: &Json) -> Result<UndoPlan, String> {
        let result = result.to_value();
        let args = json!({ "kept": invocation.key, "path": result["path"], "sha256": result["sha256"] });
        let args: UndoArgs = serde_json::from_value(args).map_err(|e| format!("the result does not say what to undo: {e}"))?;
        let args = CanonicalJson::from_value(&json!(args)).map_err(|e| e.to_string())?;
        Ok(UndoPlan { tool: self.undo.clone(), args })
    }

    pub(super) async fn kept(&self) -> Result<Vec<EffectKey>, String> {
        // Of a root where nothing was ever changed, nothing is made.
        match self.root.join(OWN).exists() {
            true => self.in_root(note::all).await,
            false => Ok(Vec::new()),
        }
    }

    pub(super) async fn forget(&self, gone: Vec<EffectKey>) -> Result<(), String> {
        self.in_root(move |root| gone.iter().try_for_each(|key| note::forget(root, key))).await
    }

    async fn in_root<T: Send + 'static>(&self, work: impl FnOnce(&Root) -> io::Result<T> + Send + 'static) -> Result<T, String> {
        let path = self.root.clone();
        let worked = tokio::task::spawn_blocking(move || {
            let root = Root::lock(&path).map_err(|failure| failure.message)?;
            work(&root).map_err(|error| error.to_string())
        });
        worked.await.unwrap_or_else(|_| Err("the look at what is kept ended without an answer".into()))
    }

    fn change(&self, invocation: &Invocation) -> Result<Change, Failure> {
        let scope = self.environment.scope(invocation);
        let change = match &self.change {
            FileChange::Write { path, content } => {
                path.render(&scope).and_then(|path| Ok(Change::Write { path, content: bytes(content, &scope)? }))
            }
            FileChange::Delete { path } => path.render(&scope).map(|path| Change::Delete { path }),
            FileChange::Move { from, to } => from.render(&scope).and_then(|from| Ok(Change::Move { from, to: to.render(&scope)? })),
        };
        let change = change.map_err(|e| template_failed(&e))?;
        change.check()?;
        Ok(change)
    }
}

fn success(note: &Note) -> Success {
    let (digest, reference) = (note.target.after.map(|after| after.sha256), Some(note.target.path.clone()));
    let state = StateChanged { digest, reference, ..StateChanged::default() };
    Success { state_changed: state.known(), ..Success::new(Json::from_value(&note.result())) }
}

/// A string as it is, anything else as JSON.
fn bytes(content: &ValueTemplate, scope: &Scope) -> Result<Vec<u8>, EvalError> {
    let text = content.render_json(scope)?;
    Ok(serde_json::from_str::<String>(&text).unwrap_or(text).into_bytes())
}

/// Runs `work` with the root locked, unless nobody waits for it any more.
fn locked<T>(root: &Path, wanted: &AtomicBool, work: impl FnOnce(&Root) -> Result<T, Broken>) -> Result<T, Broken> {
    let root = Root::lock(root).map_err(Broken::Before)?;
    if !wanted.load(Ordering::Acquire) {
        return Err(Broken::Before(Failure::new("abandoned", "given up on before it began; nothing was changed")));
    }
    work(&root)
}

/// Runs `work` on a blocking thread, and tells it when the future is dropped.
async fn blocking<T: FromLost + Send + 'static>(work: impl FnOnce(&AtomicBool) -> T + Send + 'static) -> T {
    struct Wanted(Arc<AtomicBool>);
    impl Drop for Wanted {
        fn drop(&mut self) {
            self.0.store(false, Ordering::Release);
        }
    }
    let wanted = Wanted(Arc::new(AtomicBool::new(true)));
    let flag = Arc::clone(&wanted.0);
    tokio::task::spawn_blocking(move || work(&flag)).await.unwrap_or_else(|_| T::from_lost())
}

/// What to say when the thread's answer was lost.
trait FromLost {
    fn from_lost() -> Self;
}

impl FromLost for Outcome {
    fn from_lost() -> Self {
        Self::Unknown(Failure::new("tool_panicked", "the change ended without saying how far it got"))
    }
}

impl FromLost for ProbeAnswer {
    fn from_lost() -> Self {
        Self::CannotTell("the look at the file ended without an answer".into())
    }
}
