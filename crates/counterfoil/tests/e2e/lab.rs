//! What every test needs: a directory with a config and a ledger, a world, and the command line.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use counterfoil::prelude::*;
use counterfoil_runtime::config::Config;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::parts::{Part, Process};
use crate::world::Seen;

pub const EXIT_DONE: i32 = 0;
pub const EXIT_BROKEN: i32 = 1;
pub const EXIT_USAGE: i32 = 2;
pub const EXIT_REFUSED: i32 = 3;
pub const EXIT_FAILED: i32 = 4;
pub const EXIT_IN_DOUBT: i32 = 5;
pub const EXIT_PENDING: i32 = 6;
pub const EXIT_CANCELLED: i32 = 7;
pub const EXIT_DRIFTED: i32 = 8;

/// A world in a process of its own.
pub struct World {
    pub port: u16,
    _part: Part,
}

impl World {
    pub fn start() -> Self {
        Self::start_at(0)
    }

    pub fn start_at(port: u16) -> Self {
        let mut part = Part::start(&format!("world {port}"), &[]);
        let said = part.hear().expect("the world says its port");
        let port = said.strip_prefix("port ").and_then(|n| n.parse().ok()).expect("a port");
        Self { port, _part: part }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Every request to `path` from now on.
    pub fn then(&self, path: &str, rule: Value) {
        self.rules(path, json!({ "then": rule }));
    }

    pub fn rules(&self, path: &str, rules: Value) {
        self.ask(&format!("/_rules?path={path}"), &rules.to_string());
    }

    /// Lets go of what is held at `path`, and holds nothing there until the next rule.
    pub fn release(&self, path: &str) {
        self.ask(&format!("/_release?path={path}"), "");
    }

    /// What is held at `path` neither acts nor is answered, until the next rule.
    pub fn drop_held(&self, path: &str) {
        self.ask(&format!("/_drop?path={path}"), "");
    }

    /// Blocks until nothing is under way that was sent before.
    pub fn wait_quiet(&self) {
        self.ask("/_quiet", "");
    }

    pub fn seen(&self, path: &str) -> Seen {
        self.told(&format!("/_seen?path={path}"))
    }

    /// Blocks until that many requests are held.
    pub fn wait_holding(&self, path: &str, n: u64) -> Seen {
        self.told(&format!("/_wait?path={path}&holding={n}"))
    }

    /// What was answered first under a key, as a provider would tell.
    pub fn found(&self, key: &str) -> Vec<Value> {
        let told: Value = serde_json::from_str(&self.ask(&format!("/find?key={key}"), "")).expect("what was found");
        told["data"].as_array().expect("a list").clone()
    }

    /// How many effects were made.
    pub fn acted(&self, path: &str) -> u64 {
        self.seen(path).acted
    }

    fn told(&self, target: &str) -> Seen {
        serde_json::from_str(&self.ask(target, "")).expect("what was seen")
    }

    fn ask(&self, target: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the world is there");
        write!(stream, "POST {target} HTTP/1.1\r\ncontent-length: {}\r\n\r\n{body}", body.len()).expect("the world listens");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the world answers");
        answer.split_once("\r\n\r\n").expect("an answer has a head").1.to_owned()
    }
}

/// A directory with `counterfoil.yaml` and its ledger.
pub struct Lab {
    pub dir: TempDir,
    pub world: World,
}

impl Lab {
    /// `WORLD` in the config stands for the world's address.
    pub fn new(config: &str) -> Self {
        let lab = Self { dir: tempfile::tempdir().expect("a temporary directory"), world: World::start() };
        lab.config(config);
        lab
    }

    /// One tool `charge` at `/charge`, with these members beside its action.
    pub fn charging(policy: &str) -> Self {
        Self::new(&charge(policy))
    }

    pub fn config(&self, text: &str) {
        self.write("counterfoil.yaml", &text.replace("WORLD", &self.world.url()));
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("the directory can be written");
        path
    }

    /// An empty one.
    pub fn make_ledger(&self) {
        drop(counterfoil_store::sqlite::Sqlite::open(self.ledger(), Default::default()).expect("a ledger"));
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn ledger(&self) -> PathBuf {
        self.path("counterfoil.db")
    }

    /// The command line, with nothing of this process's own settings.
    pub fn command(&self, args: &[&str]) -> Command {
        command(self.dir.path(), args)
    }

    pub fn run(&self, args: &[&str]) -> Run {
        Run::of(counterfoil_servers::in_time(&mut self.command(args)).expect("the binary runs"))
    }

    /// With `--json`.
    pub fn json(&self, args: &[&str]) -> Run {
        self.run(&[args, &["--json"]].concat())
    }

    /// A call with a key of the caller's.
    pub fn call(&self, tool: &str, args: &str, key: &str) -> Run {
        self.json(&["call", tool, "--args", args, "--key", key])
    }

    /// The same, not waited for.
    pub fn call_begins(&self, tool: &str, args: &str, key: &str) -> Process {
        let mut command = self.command(&["call", tool, "--args", args, "--key", key, "--json"]);
        Process::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    /// A runtime in this process, on this config and ledger. Must be called inside a Tokio runtime.
    pub async fn runtime(&self) -> Runtime {
        open(&self.path("counterfoil.yaml")).await
    }

    /// The effects in a state, as the operator sees them.
    pub fn listed(&self, state: &str) -> Vec<Value> {
        let listed = self.json(&["effects", "list", "--state", state, "--limit", "10000"]);
        assert_eq!(listed.code, EXIT_DONE, "{listed:?}");
        listed.value()["effects"].as_array().expect("a list").clone()
    }
}

pub fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
    command.args(args).current_dir(dir).env_clear().stdin(Stdio::null());
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}

pub async fn open(config: &Path) -> Runtime {
    let config = Config::load(config).expect("the config has no mistakes");
    let opened = counterfoil::compose::open_store(&config.store, counterfoil::compose::Volatile::Refused).await.expect("the ledger opens");
    counterfoil::compose::runtime(&opened, &config).expect("the tools can be built")
}

pub fn charge(policy: &str) -> String {
    tool("charge", policy)
}

/// A tool of the config that posts its arguments to the path of its name.
pub fn tool(name: &str, policy: &str) -> String {
    let policy: String = policy.lines().map(|line| format!("    {}\n", line.trim_start_matches("    "))).collect();
    format!("tools:\n  {name}:\n    http: {{ method: POST, url: \"WORLD/{name}\", json: \"${{args}}\" }}\n{policy}")
}

/// What a command said.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Run {
    pub fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("output is text");
        // A signal ended it: no exit code of ours.
        Self { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    pub fn ended(process: Process) -> Self {
        let mut process = process;
        let read = |pipe: Option<&mut dyn Read>| {
            let mut text = String::new();
            pipe.map(|pipe| pipe.read_to_string(&mut text)).transpose().expect("output is text");
            text
        };
        let stdout = read(process.child.stdout.as_mut().map(|p| p as &mut dyn Read));
        let stderr = read(process.child.stderr.as_mut().map(|p| p as &mut dyn Read));
        let code = process.child.wait().expect("it can be waited for").code().unwrap_or(-1);
        Self { code, stdout, stderr }
    }

    #[track_caller]
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("stdout is not one JSON value ({e}): {self:?}"))
    }

    #[track_caller]
    pub fn at(&self, pointer: &str) -> Value {
        self.value().pointer(pointer).cloned().unwrap_or(Value::Null)
    }

    #[track_caller]
    pub fn text(&self, pointer: &str) -> String {
        self.at(pointer).as_str().map(str::to_owned).unwrap_or_else(|| panic!("no text at {pointer}: {self:?}"))
    }

    /// The effect's 64 digits.
    #[track_caller]
    pub fn effect(&self) -> String {
        self.text("/effect")
    }

    #[track_caller]
    pub fn expect(self, code: i32, status: &str) -> Self {
        assert_eq!((self.code, self.at("/status")), (code, json!(status)), "{self:?}");
        self
    }

    /// It was done for this very answer.
    #[track_caller]
    pub fn done(self) -> Self {
        let run = self.expect(EXIT_DONE, "success");
        assert_eq!(run.at("/replayed"), false, "{run:?}");
        run
    }

    /// It was answered from the record.
    #[track_caller]
    pub fn replayed(self) -> Self {
        let run = self.expect(EXIT_DONE, "success");
        assert_eq!(run.at("/replayed"), true, "{run:?}");
        run
    }

    #[track_caller]
    pub fn in_doubt(self) -> Self {
        self.expect(EXIT_IN_DOUBT, "in_doubt")
    }

    /// An answer that is an error with this code.
    #[track_caller]
    pub fn error(self, exit: i32, code: &str) -> Self {
        assert_eq!((self.code, self.at("/error/code")), (exit, json!(code)), "{self:?}");
        self
    }
}

/// Calls all of them at once in this process, and gives the answers in their order.
pub async fn all_at_once(runtime: &Runtime, calls: Vec<counterfoil_core::Call>) -> Vec<Answer> {
    let runtime = Arc::new(runtime.clone());
    let tasks: Vec<_> = calls
        .into_iter()
        .map(|call| {
            let runtime = runtime.clone();
            tokio::spawn(async move { runtime.call(call).await })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.expect("no call panics"));
    }
    answers
}

pub fn library_call(tool: &str, args: Value, key: &str) -> counterfoil_core::Call {
    counterfoil::call(tool, args).and_then(|call| call.key(key)).expect("a call").build()
}
