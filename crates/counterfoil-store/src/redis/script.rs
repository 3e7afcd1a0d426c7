//! The scripts, and how they are run: by digest, and by text where Redis has forgotten them.

use redis::{Cmd, ServerError, Value, cmd};
use tokio::time::Instant;

use super::line::{Line, Silence};

pub struct Scripts {
    pub append: Script,
    pub prune: Script,
}

pub struct Script {
    text: &'static str,
    digest: String,
}

const APPEND: &str = include_str!("append.lua");
const PRUNE: &str = concat!(include_str!("bury.lua"), include_str!("prune.lua"));
const ENTOMB: &str = concat!(include_str!("bury.lua"), include_str!("entomb.lua"));
const TOMBSTONES: &str = include_str!("tombstones.lua");
const STAMP: &str = include_str!("stamp.lua");
const REHEARSE: &str = include_str!("rehearse.lua");

impl Scripts {
    pub async fn load(line: &Line, by: Instant) -> Result<Result<Self, ServerError>, Silence> {
        let append = match Script::load(APPEND, line, by).await? {
            Ok(script) => script,
            Err(error) => return Ok(Err(error)),
        };
        Ok(Script::load(PRUNE, line, by).await?.map(|prune| Self { append, prune }))
    }
}

impl Script {
    async fn load(text: &'static str, line: &Line, by: Instant) -> Result<Result<Self, ServerError>, Silence> {
        match line.ask(cmd("SCRIPT").arg("LOAD").arg(text), by).await? {
            Ok(Value::BulkString(digest)) => Ok(Ok(Self { text, digest: String::from_utf8_lossy(&digest).into_owned() })),
            Ok(other) => Err(Silence(format!("SCRIPT LOAD was answered with {other:?}"))),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Runs it once. A script that Redis does not know has not run, so its text may be sent after it.
    pub async fn run(&self, line: &Line, args: impl Fn(&mut Cmd), by: Instant) -> Result<Result<Value, ServerError>, Silence> {
        let mut command = cmd("EVALSHA");
        args(command.arg(&self.digest).arg(1));
        match line.ask(&command, by).await? {
            Err(error) if error.code() == "NOSCRIPT" => {
                let mut command = cmd("EVAL");
                args(command.arg(self.text).arg(1));
                line.ask(&command, by).await
            }
            answer => Ok(answer),
        }
    }
}

pub fn stamp(meta: &str, format: u32, nonce: u64) -> Cmd {
    let mut command = cmd("EVAL");
    command.arg(STAMP).arg(1).arg(meta).arg(format).arg(nonce);
    command
}

/// Sent whole: it is needed once in a ledger's life.
pub fn entomb() -> Cmd {
    let mut command = cmd("EVAL");
    command.arg(ENTOMB).arg(1);
    command
}

pub fn tombstones() -> Cmd {
    let mut command = cmd("EVAL");
    command.arg(TOMBSTONES).arg(1);
    command
}

pub fn rehearse(meta: &str) -> Cmd {
    let mut command = cmd("EVAL");
    command.arg(REHEARSE).arg(1).arg(meta);
    command
}
