//! One process as a tool: an argv list, the arguments as JSON on stdin, the result as JSON on stdout.
//!
//! Exit 0 is done. Any other exit is the command's word that it failed, not that it did nothing: it may have acted halfway, so the outcome
//! is unknown, unless the exit code is declared under `rejected_exit` or `retriable_exit`. Ended by a signal: unknown. Not started: not done.
//! The environment is empty but for `pass_env`, `env` and COUNTERFOIL_KEY, COUNTERFOIL_ATTEMPT, COUNTERFOIL_TOOL, and TRACEPARENT within a trace;
//! PATH is a fixed default unless it is named. The program is the operator's choice, never an argument's, and no argument can pose as an option.

mod process;

use std::ffi::OsString;

use counterfoil_core::{Failure, Json, Outcome, Success};
use tokio::process::Command;

use self::process::{Ended, Finished, run};
use super::answer::{Answer, AnswerHead};
use super::capture::Capture;
use super::output::{EXPRESSION_BYTES_MAX, Output};
use super::scope::Environment;
use super::{BuildError, template_failed};
use crate::spec::CommandSpec;
use crate::template::{Part, Scope, TextTemplate};
use crate::tool::Invocation;

/// Where programs are looked for when the config does not say.
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";

#[derive(Debug)]
pub(super) struct CommandAction {
    spec: CommandSpec,
    environment: Environment,
    /// The variables of `pass_env` that are set, read once at start.
    passed: Vec<(String, OsString)>,
}

impl CommandAction {
    pub(super) fn new(spec: &CommandSpec, environment: Environment) -> Result<Self, BuildError> {
        let program = spec.argv.first().ok_or_else(|| BuildError::Command("argv is empty".into()))?;
        if program.exprs().iter().any(|expr| expr.variables().iter().any(|name| name != "env")) {
            return Err(BuildError::Command("the program must not depend on arguments: only what follows it may".into()));
        }
        let passed = spec.pass_env.iter().filter_map(|name| Some((name.clone(), std::env::var_os(name)?))).collect();
        Ok(Self { spec: spec.clone(), environment, passed })
    }

    pub(super) async fn invoke(&self, invocation: &Invocation, capture: Option<&Capture>) -> Outcome {
        let scope = self.environment.scope(invocation);
        let (command, stdin) = match self.prepare(invocation, &scope) {
            Ok(prepared) => prepared,
            Err(failure) => return Outcome::NotDone(failure),
        };
        match run(command, stdin, invocation.result_bytes_max, &invocation.stop).await {
            Ok(Finished { ended: Ended::Exit(0), stdout, .. }) => Outcome::Done(done(invocation, stdout, capture)),
            Ok(finished) => self.failed(finished),
            Err(error) => Outcome::NotDone(not_started(&error)),
        }
    }

    /// The answer to a question; whether it ended with exit 0. `Err` says why there is none.
    pub(super) async fn ask(&self, invocation: &Invocation, scope: &Scope) -> Result<(Answer, bool), String> {
        let (command, stdin) = self.prepare(invocation, scope).map_err(|failure| failure.message)?;
        let finished = run(command, stdin, EXPRESSION_BYTES_MAX, &invocation.stop).await.map_err(|e| not_started(&e).message)?;
        match finished.ended {
            Ended::Exit(_) if finished.stdout.whole().is_none() => {
                Err(format!("the answer is {} bytes long; at most {EXPRESSION_BYTES_MAX} are read", finished.stdout.bytes()))
            }
            Ended::Exit(exit) => Ok((Answer::new(AnswerHead::Command { exit }, finished.stdout), exit == 0)),
            Ended::Signal(signal) => Err(format!("the question's command was ended by signal {signal}")),
            Ended::Lost => Err("the end of the question's command was not seen".into()),
        }
    }

    fn prepare(&self, invocation: &Invocation, scope: &Scope) -> Result<(Command, String), Failure> {
        let argv = self.argv(scope)?;
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).env_clear().env("PATH", PATH_DEFAULT);
        command.envs(self.passed.iter().map(|(name, value)| (name, value)));
        if let Some(trace) = &invocation.trace {
            command.env("TRACEPARENT", trace.to_string());
            // Not the state of another trace, from `pass_env`.
            match trace.state() {
                Some(state) => command.env("TRACESTATE", state),
                None => command.env_remove("TRACESTATE"),
            };
        }
        for (name, template) in &self.spec.env {
            command.env(name, template.render(scope).map_err(|e| template_failed(&e))?);
        }
        command.env("COUNTERFOIL_KEY", invocation.key.to_string());
        command.env("COUNTERFOIL_ATTEMPT", invocation.attempt.to_string());
        command.env("COUNTERFOIL_TOOL", invocation.tool.as_str());
        if let Some(cwd) = &self.spec.cwd {
            command.current_dir(cwd);
        }
        let stdin = match &self.spec.stdin {
            Some(template) => template.render_json(scope).map_err(|e| template_failed(&e))?,
            None => invocation.args.as_str().to_owned(),
        };
        Ok((command, stdin))
    }

    fn argv(&self, scope: &Scope) -> Result<Vec<String>, Failure> {
        let mut argv = Vec::with_capacity(self.spec.argv.len());
        let mut options_ended = false;
        for (place, template) in self.spec.argv.iter().enumerate() {
            let text = template.render(scope).map_err(|e| template_failed(&e))?;
            if !options_ended && is_option(template, &text) {
                let message = format!(
                    "argument {place} of the command would be taken for an option; put `--` before it in argv if it may begin with `-`"
                );
                return Err(Failure::new("argument_refused", message));
            }
            options_ended |= template.literal() == Some("--");
            argv.push(text);
        }
        Ok(argv)
    }

    /// Any end but exit 0.
    fn failed(&self, finished: Finished) -> Outcome {
        let Finished { ended, stderr, .. } = finished;
        let code = match ended {
            Ended::Exit(code) => code,
            Ended::Signal(signal) => {
                let failure = Failure::of_dependency("killed", format!("ended by signal {signal}: it may have acted before"));
                return Outcome::Unknown(evidence(failure, &stderr));
            }
            Ended::Lost => return Outcome::Unknown(Failure::of_dependency("exit_lost", "the end of the command was not seen")),
        };
        let name = format!("exit_{code}");
        if self.spec.rejected_exit.contains(&code) {
            return Outcome::NotDone(evidence(Failure::new(name, format!("exited with {code}: rejected")), &stderr));
        }
        if self.spec.retriable_exit.contains(&code) {
            return Outcome::NotDone(evidence(Failure::of_dependency(name, format!("exited with {code}: not now")), &stderr));
        }
        let message = format!(
            "exited with {code}: a command that fails may have acted halfway; if {code} means that nothing was done, declare it under rejected_exit or retriable_exit"
        );
        Outcome::Unknown(evidence(Failure::of_dependency(name, message), &stderr))
    }
}

fn done(invocation: &Invocation, stdout: Output, capture: Option<&Capture>) -> Success {
    let Some(capture) = capture else { return stdout.into_success(invocation.result_bytes_max) };
    let answer = Answer::new(AnswerHead::Command { exit: 0 }, stdout);
    let state_changed = capture.of_answer(invocation, &answer.output().value(), &answer);
    Success { state_changed, ..answer.into_output().into_success(invocation.result_bytes_max) }
}

/// Whether a value that an expression begins with reads as an option. A negative number does not; `-inf` and `-nan`, which Rust takes for
/// numbers too, are letters to everybody else.
fn is_option(template: &TextTemplate, text: &str) -> bool {
    let computed = matches!(template.parts().first(), Some(Part::Expr(expr)) if expr.variables().iter().any(|name| name != "env"));
    let negative = || text.as_bytes()[1..].first().is_some_and(|b| b.is_ascii_digit() || *b == b'.') && text.parse::<f64>().is_ok();
    computed && text.len() > 1 && text.starts_with('-') && !negative()
}

fn evidence(failure: Failure, stderr: &str) -> Failure {
    if stderr.is_empty() { failure } else { failure.with_detail(Json::string(stderr)) }
}

/// The kernel said no: nothing ran.
fn not_started(error: &std::io::Error) -> Failure {
    use std::io::ErrorKind::{ExecutableFileBusy, OutOfMemory, WouldBlock};
    let message = format!("the command could not be started: {error}");
    match error.kind() {
        // Too many processes, too little memory, a program just being replaced: these pass.
        ExecutableFileBusy | OutOfMemory | WouldBlock => Failure { retriable: true, ..Failure::new("command_not_started", message) },
        _ => Failure::new("command_not_started", message),
    }
}
