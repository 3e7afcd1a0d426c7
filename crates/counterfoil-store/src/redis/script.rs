//! The scripts, and how they are run: by digest, and by text where Redis has forgotten them.

use redis::{Cmd, Pipeline, ServerError, Value, cmd, pipe};
use tokio::time::Instant;

use super::line::{Line, Silence, said};

pub struct Scripts {
    /// Sent whole each time: a script that Redis has forgotten would leave the records of its transaction unaccepted.
    accept: String,
    pub fold: Script,
    pub prune: Script,
}

pub struct Script {
    text: &'static str,
    digest: String,
}

const ACCEPT: &str = include_str!("accept.lua");
const FOLD: &str = concat!(include_str!("newest.lua"), include_str!("fold.lua"));
const LOAD: &str = concat!(include_str!("newest.lua"), include_str!("load.lua"));
const STANDS: &str = concat!(include_str!("newest.lua"), include_str!("stands.lua"));
const PRUNE: &str = concat!(include_str!("newest.lua"), include_str!("bury.lua"), include_str!("prune.lua"));
const ENTOMB: &str = concat!(include_str!("newest.lua"), include_str!("bury.lua"), include_str!("entomb.lua"));
const STAMP: &str = include_str!("stamp.lua");
const REHEARSE: &str = include_str!("rehearse.lua");

impl Scripts {
    pub async fn load(line: &Line, by: Instant) -> Result<Result<Self, ServerError>, Silence> {
        let fold = match Script::load(FOLD, line, by).await? {
            Ok(script) => script,
            Err(error) => return Ok(Err(error)),
        };
        let loaded = Script::load(PRUNE, line, by).await?;
        Ok(loaded.map(|prune| Self { accept: without_comments(ACCEPT), fold, prune }))
    }

    pub fn accept(&self) -> Cmd {
        whole(&self.accept)
    }
}

/// What Redis need not read.
fn without_comments(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("--"));
    lines.collect::<Vec<_>>().join("\n")
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
        let mut known = self.by_digest();
        args(&mut known);
        match line.ask(&known, by).await? {
            Err(error) if error.code() == "NOSCRIPT" => {
                let mut text = whole(self.text);
                args(&mut text);
                line.ask(&text, by).await
            }
            answer => Ok(answer),
        }
    }

    pub fn by_digest(&self) -> Cmd {
        let mut command = cmd("EVALSHA");
        command.arg(&self.digest).arg(1);
        command
    }
}

/// `commands`, all of them or none, and the answer to each. What is not taken into the transaction is refused at once, and then nothing of it is done. Where there is no transaction, because it may not be begun
/// or ended, nobody knows what is done, and the line is of no use any more.
pub async fn transaction(
    line: &Line,
    commands: Vec<Cmd>,
    by: Instant,
) -> Result<Result<Vec<Result<Value, ServerError>>, ServerError>, Silence> {
    let count = commands.len();
    let mut transaction = pipe();
    transaction.add_command(cmd("MULTI"));
    commands.into_iter().for_each(|command| {
        transaction.add_command(command);
    });
    transaction.add_command(cmd("EXEC"));
    let mut answers = line.ask_each(&transaction, by).await?;
    let ended = answers.pop();
    let mut taken = answers.into_iter();
    if let Some(Err(error)) = taken.next() {
        return Err(Silence(format!("no transaction was begun: {error}")));
    }
    match ended {
        Some(Ok(Value::Array(done))) if done.len() == count => Ok(Ok(done.into_iter().map(said).collect())),
        Some(Err(error)) if error.code() == "EXECABORT" => Ok(Err(taken.find_map(Result::err).unwrap_or(error))),
        other => Err(Silence(format!("no transaction was ended: {other:?}"))),
    }
}

/// Nothing, in a transaction: whether a user may.
pub fn rehearse_transaction() -> Pipeline {
    let mut transaction = pipe();
    transaction.add_command(cmd("MULTI")).add_command(cmd("EXEC"));
    transaction
}

/// Sent whole: a read that Redis has forgotten the script of would have to be asked again.
pub fn load() -> Cmd {
    whole(LOAD)
}

/// Sent whole: only who lost a race needs it.
pub fn stands(meta: &str) -> Cmd {
    let mut command = whole(STANDS);
    command.arg(meta);
    command
}

/// Sent whole: it is needed once in a ledger's life.
pub fn entomb() -> Cmd {
    whole(ENTOMB)
}

pub fn stamp(meta: &str, format: u32, nonce: u64) -> Cmd {
    let mut command = whole(STAMP);
    command.arg(meta).arg(format).arg(nonce);
    command
}

pub fn rehearse(meta: &str) -> Cmd {
    let mut command = whole(REHEARSE);
    command.arg(meta);
    command
}

fn whole(text: &str) -> Cmd {
    let mut command = cmd("EVAL");
    command.arg(text).arg(1);
    command
}
