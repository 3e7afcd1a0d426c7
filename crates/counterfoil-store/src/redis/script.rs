//! The scripts, and how they are run: by digest, and by text where Redis has forgotten them.

use redis::{Cmd, Pipeline, ServerError, Value, cmd, pipe};
use tokio::time::Instant;

use super::line::{Line, Silence, said};

pub struct Scripts {
    pub append: Script,
    pub prune: Script,
}

pub struct Script {
    text: &'static str,
    digest: String,
}

const APPEND: &str = include_str!("append.lua");
const FETCH: &str = include_str!("fetch.lua");
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
        let known = line.ask(&self.by_digest(&args), by).await?;
        if is_unknown(&known) { line.ask(&self.by_text(&args), by).await } else { Ok(known) }
    }

    /// The same in a transaction, behind `before` and ahead of `after`, whose own answers nobody needs.
    pub async fn run_between(
        &self,
        line: &Line,
        before: &[Cmd],
        args: impl Fn(&mut Cmd),
        after: &Cmd,
        by: Instant,
    ) -> Result<Result<Value, ServerError>, Silence> {
        let known = between(line, before, self.by_digest(&args), after, by).await?;
        if is_unknown(&known) { between(line, before, self.by_text(&args), after, by).await } else { Ok(known) }
    }

    fn by_digest(&self, args: impl Fn(&mut Cmd)) -> Cmd {
        let mut command = cmd("EVALSHA");
        args(command.arg(&self.digest).arg(1));
        command
    }

    fn by_text(&self, args: impl Fn(&mut Cmd)) -> Cmd {
        let mut command = cmd("EVAL");
        args(command.arg(self.text).arg(1));
        command
    }
}

fn is_unknown(answer: &Result<Value, ServerError>) -> bool {
    matches!(answer, Err(error) if error.code() == "NOSCRIPT")
}

/// What is not taken into the transaction is refused at once, and then nothing of it is done. Where there is no transaction, because it may not be begun
/// or ended, nobody knows what is done, and the line is of no use any more.
async fn between(line: &Line, before: &[Cmd], script: Cmd, after: &Cmd, by: Instant) -> Result<Result<Value, ServerError>, Silence> {
    let mut transaction = pipe();
    transaction.add_command(cmd("MULTI"));
    before.iter().for_each(|command| {
        transaction.add_command(command.clone());
    });
    transaction.add_command(script).add_command(after.clone()).add_command(cmd("EXEC"));
    let mut answers = line.ask_each(&transaction, by).await?;
    let ended = answers.pop();
    let mut taken = answers.into_iter();
    if let Some(Err(error)) = taken.next() {
        return Err(Silence(format!("no transaction was begun: {error}")));
    }
    match ended {
        Some(Ok(Value::Array(mut done))) if done.len() == before.len() + 2 => Ok(said(done.swap_remove(before.len()))),
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

/// Sent whole: it is short, and a read that Redis has forgotten the script of would have to be asked again.
pub fn fetch() -> Cmd {
    let mut command = cmd("EVAL");
    command.arg(FETCH).arg(1);
    command
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
