//! What a configured tool is, as values: the config reader makes these, the tools run from them.
//!
//! Every expression in here was parsed at load time; a typo is an error at start and not at 3 a.m.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::{Policy, ToolName};

use crate::mode::Mode;
use crate::template::{Expr, TextTemplate, ValueTemplate};

/// One tool of `counterfoil.yaml`.
#[derive(Debug, Clone)]
pub struct ToolSpec {
    pub name: ToolName,
    pub description: Option<String>,
    /// What the config says for this tool, whatever it says for all.
    pub mode: Option<Mode>,
    pub policy: Policy,
    /// JSON Schema of the arguments and of the result.
    pub input: Option<serde_json::Value>,
    pub output: Option<serde_json::Value>,
    /// True: a person must approve first. Sees `args`.
    pub approval: Option<Expr>,
    /// What one effect costs, for `limits.cost_per_run`. Sees `args`.
    pub cost: Option<Expr>,
    /// Whose personal data a call holds. Sees `args`.
    pub subject: Option<Expr>,
    pub action: Action,
    pub probe: Option<ProbeSpec>,
    pub verify: Option<VerifySpec>,
    pub undo: Option<UndoSpec>,
}

impl ToolSpec {
    /// With these rules wherever it connects to something.
    pub fn confined(mut self, egress: &Arc<Egress>) -> Self {
        if let Some(ProbeSpec { ask: Ask::Http(http), .. }) = &mut self.probe {
            http.egress = egress.clone();
        }
        if let Some(VerifySpec { look: Look::Http(http), .. }) = &mut self.verify {
            http.egress = egress.clone();
        }
        if let Action::Http(http) = &mut self.action {
            http.egress = egress.clone();
        }
        self
    }
}

#[derive(Debug, Clone)]
pub enum Action {
    Http(HttpSpec),
    Command(CommandSpec),
    File(FileSpec),
    /// Run by the client itself, under a permit.
    Client,
}

/// One HTTP request. Templates see `args`, `key`, `tool`, `tenant`, `run`, `attempt`, `env` (named variables only);
/// in `probe` likewise; in `verify` and `undo` also `result`. `run` is `{id}`, or null outside a run. A value that stands behind the
/// host of `url` is percent-encoded: it fills in a piece of the path or the query and cannot add one.
#[derive(Debug, Clone)]
pub struct HttpSpec {
    pub method: String,
    pub url: TextTemplate,
    pub headers: Vec<(String, TextTemplate)>,
    pub body: HttpBody,
    pub classes: StatusClasses,
    /// What the response becomes as the tool's result. `None`: the JSON body, or the text as a string, or null when empty.
    pub result: Option<Expr>,
    /// Name of the header that carries our key downstream; `None` sends none. Default `Idempotency-Key`.
    pub key_header: Option<String>,
    /// Redirects followed: for GET and HEAD only. A write is never sent again by a redirect.
    pub redirects_max: u32,
    pub egress: Arc<Egress>,
}

#[derive(Debug, Clone)]
pub enum HttpBody {
    None,
    Json(ValueTemplate),
    Text(TextTemplate),
}

/// What a status means. A status is looked for in `success`, `retriable`, `rejection`, `unknown`, in that order of the
/// explicit lists; then the defaults apply: 2xx success; 408, 425, 429, 503 retriable; 304, 307, 308 and other 4xx
/// rejection; other 3xx unknown but for GET and HEAD (Post/Redirect/Get: it was done), where they are a rejection; other 5xx unknown (not
/// done and retriable when `server_error` says so).
#[derive(Debug, Clone, Default)]
pub struct StatusClasses {
    pub success: Vec<StatusRange>,
    pub retriable: Vec<StatusRange>,
    pub rejection: Vec<StatusRange>,
    pub unknown: Vec<StatusRange>,
    pub server_error: ServerError,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusRange {
    pub from: u16,
    pub to: u16,
}

/// What a plain 500 says about the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServerError {
    /// It may have happened before the server failed.
    #[default]
    Unknown,
    /// The provider promises that 5xx means "not done".
    NotDone,
}

/// Where HTTP tools may connect. A host written literally in the config, or by an expression that reads nothing but `env`, is allowed;
/// one that comes from any other expression or from a redirect must be on the list, and then private, loopback and link-local
/// addresses are refused on the address actually connected to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Egress {
    /// `api.example.com`, or `*.example.com` for any host below it.
    pub allow: Vec<String>,
    /// Lets allow-listed hosts be private addresses (for tests and private networks).
    pub allow_private: bool,
    /// Also what is written literally must be on the list: for tools that do not come from the operator's own file.
    pub strict: bool,
}

/// One process: an argv list, never a shell string. The program must not depend on arguments, and a value that begins with `-` is refused
/// where it could be taken for an option (put `--` before it). The arguments go in as JSON on stdin; stdout is the result as JSON.
#[derive(Debug, Clone)]
pub struct CommandSpec {
    pub argv: Vec<TextTemplate>,
    /// What goes to stdin. `None`: the arguments as JSON.
    pub stdin: Option<ValueTemplate>,
    pub cwd: Option<PathBuf>,
    /// Variables set literally; the environment is otherwise empty but for `pass_env` and COUNTERFOIL_KEY, _ATTEMPT and _TOOL. PATH is
    /// /usr/local/bin:/usr/bin:/bin unless it is set or passed here.
    pub env: BTreeMap<String, TextTemplate>,
    pub pass_env: Vec<String>,
    /// Exit codes that promise "nothing was done": the failure is final, or retriable.
    pub rejected_exit: Vec<i32>,
    pub retriable_exit: Vec<i32>,
}

/// One change to one file inside `root`.
#[derive(Debug, Clone)]
pub struct FileSpec {
    pub root: PathBuf,
    pub change: FileChange,
}

#[derive(Debug, Clone)]
pub enum FileChange {
    Write { path: TextTemplate, content: ValueTemplate },
    Delete { path: TextTemplate },
    Move { from: TextTemplate, to: TextTemplate },
}

/// How to ask the world whether an effect happened.
#[derive(Debug, Clone)]
pub struct ProbeSpec {
    pub ask: Ask,
    /// Sees `response` (http: status, headers, json, text; command: exit, json, text) beside what the action sees.
    pub happened: Expr,
    /// True: it certainly did not happen. `None`: whatever was answered with a success class and is not `happened`.
    /// A 404 is not: a wrong path and a server in deployment say it too.
    pub did_not_happen: Option<Expr>,
    /// The effect's result when it happened. `None`: `response.json`.
    pub result: Option<Expr>,
    pub timeout: Duration,
}

#[derive(Debug, Clone)]
pub enum Ask {
    Http(HttpSpec),
    Command(CommandSpec),
}

/// How to ask the world whether it still agrees with what is recorded. Changes nothing. What a later answer is compared with is captured when the effect
/// is done, from its own answer: no second request is made for it.
#[derive(Debug, Clone)]
pub struct VerifySpec {
    pub look: Look,
    /// Sees `response`, `result` and `state` (what was captured: version, etag, digest, ref) beside what the action sees. `None`: for http that the thing
    /// is there, for a command `response.json.holds`.
    pub holds: Option<Expr>,
    /// The effect removed something: it holds as long as that is gone.
    pub gone: bool,
    /// The answer must have the ETag that the effect's own answer had.
    pub etag: bool,
    pub version: Option<VersionSpec>,
    /// What the thing is called out there: captured and shown, not compared. Sees `result` and `response`, the effect's own.
    pub reference: Option<Expr>,
    /// Members of the answer that must be as they are in the recorded result.
    pub same: Vec<Same>,
    pub timeout: Duration,
}

#[derive(Debug, Clone)]
pub enum Look {
    Http(HttpSpec),
    Command(CommandSpec),
    File(FileLook),
}

/// Must be equal.
#[derive(Debug, Clone)]
pub struct VersionSpec {
    /// Over the effect's own `result` and `response`, when it is done.
    pub was: Expr,
    /// Over the `response` to the question.
    pub is: Expr,
}

/// One file inside `root`.
#[derive(Debug, Clone)]
pub struct FileLook {
    pub root: PathBuf,
    pub path: TextTemplate,
    /// What it must hold. `None`: what it held right after the effect.
    pub sha256: Option<TextTemplate>,
}

/// JSON pointers. Of `recorded`, the first that the result has; where it has none, there is nothing to compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Same {
    pub name: &'static str,
    pub recorded: &'static [&'static str],
    pub answered: &'static str,
}

#[derive(Debug, Clone)]
pub struct UndoSpec {
    pub tool: ToolName,
    pub args: ValueTemplate,
}
