//! The tools of a config: HTTP requests, processes, files, and those that clients run themselves.
//!
//! Each makes one attempt and says what it knows about the world. Must stay true: whatever can be checked without an invocation
//! is checked by [`build`], and a failure after that says whether the world may have changed.

mod answer;
mod asker;
mod capture;
mod command;
mod exprs;
mod file;
mod http;
pub(crate) mod output;
mod probe;
mod scope;
mod verify;

use std::sync::Arc;

use counterfoil_core::run::confirm::Finding;
use counterfoil_core::{CanonicalJson, EffectKey, Failure, Json, Outcome, StateChanged, Success, ToolName};
use thiserror::Error;

use self::capture::Capture;
use self::command::CommandAction;
use self::file::FileAction;
pub use self::file::FileUndo;
use self::http::HttpAction;
/// For every other HTTP client of the program: they trust whom the tools trust.
pub use self::http::tls_config;
use self::probe::Probe;
use self::scope::Environment;
use self::verify::Verify;
use crate::spec::{Action, FileLook, Look, ToolSpec, UndoSpec, VerifySpec};
use crate::template::EvalError;
use crate::tool::{ClientTool, Invocation, ProbeAnswer, Recorded, Runs, Tool, ToolFuture, UndoPlan};

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BuildError {
    #[error("the environment variable {name} is named by a template but not set")]
    EnvironmentMissing { name: String },
    #[error("http: {0}")]
    Http(String),
    #[error("command: {0}")]
    Command(String),
    #[error("file: {0}")]
    File(String),
}

/// A tool and the name it is registered under.
pub type Named = (ToolName, Arc<dyn Tool>);

/// The tool, and what undoes it where it brings that along: a file tool's companion is named `<name>.undo`.
pub fn build(spec: &ToolSpec) -> Result<Vec<Named>, BuildError> {
    let looked_at = spec.verify.iter().flat_map(exprs::of_file_look);
    let environment =
        Environment::read(exprs::of_action(&spec.action).into_iter().chain(spec.undo.iter().flat_map(exprs::of_undo)).chain(looked_at))?;
    let mut tools: Vec<Named> = Vec::new();
    let does = match &spec.action {
        Action::Http(http) => Does::Http(Box::new(HttpAction::new(http, &spec.policy, environment.clone())?)),
        Action::Command(command) => Does::Command(Box::new(CommandAction::new(command, environment.clone())?)),
        Action::File(file) => {
            let name = undo_name(&spec.name)?;
            tools.push((name.clone(), Arc::new(FileUndo::new(file)?)));
            Does::File(Arc::new(FileAction::new(file, name, environment.clone())?))
        }
        Action::Client => Does::NothingHere,
    };
    let probe = spec.probe.as_ref().map(|probe| Probe::new(probe, &spec.policy)).transpose()?;
    let verify = spec.verify.as_ref().map(|verify| Verify::new(verify, &spec.policy)).transpose()?;
    let capture = spec.verify.as_ref().zip(verify.as_ref()).and_then(|(spec, verify)| Capture::new(spec, verify.environment()));
    let file_look = match &spec.verify {
        Some(VerifySpec { look: Look::File(look), gone: false, .. }) if look.sha256.is_none() => Some(look.clone()),
        _ => None,
    };
    let tool = Configured { does, probe, verify, capture, file_look, undo: spec.undo.clone(), environment };
    tools.insert(0, (spec.name.clone(), Arc::new(tool)));
    Ok(tools)
}

fn undo_name(name: &ToolName) -> Result<ToolName, BuildError> {
    ToolName::new(&format!("{name}.undo")).map_err(|e| BuildError::File(format!("no name for what undoes it: {e}")))
}

/// One tool of the config.
struct Configured {
    does: Does,
    probe: Option<Probe>,
    verify: Option<Verify>,
    capture: Option<Capture>,
    /// A file whose digest is taken when the effect is done.
    file_look: Option<FileLook>,
    undo: Option<UndoSpec>,
    environment: Environment,
}

enum Does {
    Http(Box<HttpAction>),
    Command(Box<CommandAction>),
    File(Arc<FileAction>),
    /// The client does it.
    NothingHere,
}

impl Tool for Configured {
    fn runs(&self) -> Runs {
        if let Does::NothingHere = self.does { Runs::Elsewhere } else { Runs::Here }
    }

    fn invoke(&self, invocation: Invocation) -> ToolFuture<'_, Outcome> {
        Box::pin(async move {
            match &self.does {
                Does::Http(http) => self.stamped(&invocation, http.invoke(&invocation, self.capture.as_ref()).await).await,
                Does::Command(command) => self.stamped(&invocation, command.invoke(&invocation, self.capture.as_ref()).await).await,
                Does::File(file) => file.invoke(invocation).await,
                Does::NothingHere => ClientTool.invoke(invocation).await,
            }
        })
    }

    fn can_probe(&self) -> bool {
        self.probe.is_some() || matches!(self.does, Does::File(_))
    }

    /// The configured question goes first: whoever wrote one knows better than the file's digest.
    fn probe(&self, invocation: Invocation) -> ToolFuture<'_, ProbeAnswer> {
        Box::pin(async move {
            match (&self.probe, &self.does) {
                (Some(probe), _) => probe.ask(&invocation).await,
                (None, Does::File(file)) => file.probe(invocation).await,
                (None, _) => ProbeAnswer::CannotTell("this tool has no probe".into()),
            }
        })
    }

    fn can_verify(&self) -> bool {
        self.verify.is_some() || matches!(self.does, Does::File(_))
    }

    /// Likewise.
    fn verify(&self, invocation: Invocation, recorded: Recorded) -> ToolFuture<'_, Finding> {
        Box::pin(async move {
            match (&self.verify, &self.does) {
                (Some(verify), _) => verify.ask(&invocation, &recorded).await,
                (None, Does::File(file)) => file.verify(recorded).await,
                (None, _) => Finding::Unverified { why: "this tool has no verifier".into() },
            }
        })
    }

    fn captured(&self, invocation: &Invocation, result: &Json) -> Option<Box<StateChanged>> {
        match (&self.capture, &self.does) {
            (Some(capture), Does::NothingHere) => capture.of_result(invocation, result),
            _ => None,
        }
    }

    fn kept(&self) -> ToolFuture<'_, Result<Vec<EffectKey>, String>> {
        Box::pin(async move {
            match &self.does {
                Does::File(file) => file.kept().await,
                _ => Ok(Vec::new()),
            }
        })
    }

    fn forget(&self, gone: Vec<EffectKey>) -> ToolFuture<'_, Result<(), String>> {
        Box::pin(async move {
            match &self.does {
                Does::File(file) => file.forget(gone).await,
                _ => Ok(()),
            }
        })
    }

    fn undone_by(&self) -> Option<&ToolName> {
        match (&self.undo, &self.does) {
            (Some(undo), _) => Some(&undo.tool),
            (None, Does::File(file)) => Some(file.undone_by()),
            (None, _) => None,
        }
    }

    fn undo_plan(&self, invocation: &Invocation, result: &Json) -> Result<Option<UndoPlan>, String> {
        match (&self.undo, &self.does) {
            (Some(undo), _) => {
                let scope = self.environment.scope_after(invocation, result);
                let args = undo.args.render_json(&scope).map_err(|e| e.to_string())?;
                let args = CanonicalJson::parse(&args).map_err(|e| e.to_string())?;
                Ok(Some(UndoPlan { tool: undo.tool.clone(), args }))
            }
            (None, Does::File(file)) => file.undo_plan(invocation, result).map(Some),
            (None, _) => Ok(None),
        }
    }
}

impl Configured {
    /// With the digest of the file that the effect wrote, where the verifier looks at one.
    async fn stamped(&self, invocation: &Invocation, outcome: Outcome) -> Outcome {
        let (Some(look), Outcome::Done(success)) = (&self.file_look, &outcome) else { return outcome };
        let mut success = success.clone();
        if let Ok(path) = look.path.render(&self.environment.scope_after(invocation, &success.result)) {
            let mut state = success.state_changed.take().map_or_else(StateChanged::default, |state| *state);
            state.digest = file::digest_now(look.root.clone(), path).await;
            success.state_changed = state.known();
        }
        Outcome::Done(success)
    }
}

/// An attempt that ended without a success.
#[derive(Debug)]
enum Broken {
    /// Nothing was done.
    Before(Failure),
    /// It may have been done.
    After(Failure),
}

impl Broken {
    fn outcome(attempt: Result<Success, Self>) -> Outcome {
        match attempt {
            Ok(success) => Outcome::Done(success),
            Err(Self::Before(failure)) => Outcome::NotDone(failure),
            Err(Self::After(failure)) => Outcome::Unknown(failure),
        }
    }

    fn into_failure(self) -> Failure {
        match self {
            Self::Before(failure) | Self::After(failure) => failure,
        }
    }
}

/// A template that does not fit the arguments: found before anything was sent.
fn template_failed(error: &EvalError) -> Failure {
    Failure::new("template_failed", error.to_string())
}
