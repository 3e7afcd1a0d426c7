//! A Redis that has started rewrites its file before anything is appended to it.
//!
//! When its file ends in the middle of a transaction, Redis (`aof-load-truncated yes`, the default) leaves that transaction out and cuts the file behind the last whole
//! command, not before the transaction. Whatever is appended then is read at the next start as the rest of it: records that were never accepted
//! come back, and take the place of accepted ones. Nothing tells whether the file is so, but one that was written anew from memory is not (ADR 0034).
//! (`aof-load-truncated` itself does not tell either: it may have been changed since.)
//!
//! What must stay true: no line is written to before its [`File`] is known, nor where that is `Doubtful`, unless loss was accepted.

use std::time::Duration;

use redis::{ServerError, cmd};
use tokio::time::{Instant, sleep};

use super::line::{Line, Silence};
use super::settings::{shown, text};

/// Between two steps. Redis looks ten times a second whether a rewrite has ended.
pub const PAUSE: Duration = Duration::from_millis(50);

pub const UNDER_WAY: &str = "Redis has started anew and rewrites its file, which may end in the middle of a batch, before anything is appended to it; \
                             this takes as long as the file is large, once for each start: ask again";

/// The file of the Redis behind a line: known once, and true for as long as the line lasts. A rewrite that fails later does it no harm.
#[derive(Debug, PartialEq, Eq)]
pub enum File {
    /// Written anew since Redis started, or there is none.
    Whole,
    /// It cannot be told, for this reason.
    Doubtful(String),
}

pub enum Step {
    Known,
    UnderWay,
    /// It is to be asked for again, later.
    Failed(String),
}

/// Looks how far Redis is, and asks for a rewrite where there was none, once.
pub async fn step(line: &Line, asked: &mut bool, by: Instant) -> Result<Step, Silence> {
    if line.file.get().is_some() {
        return Ok(Step::Known);
    }
    let info = match line.ask(cmd("INFO").arg("persistence"), by).await? {
        Ok(info) => Persistence::read(&text(info).unwrap_or_default()),
        Err(error) if is_forbidden(&error) => return Ok(doubtful(line, "INFO", &error)),
        Err(error) => return Ok(failed(&shown(&error))),
    };
    if info.file_is_whole() {
        return Ok(known(line, File::Whole));
    }
    if info.rewriting {
        return Ok(Step::UnderWay);
    }
    if *asked {
        return Ok(failed("see its log, and whether its disk is full"));
    }
    *asked = true;
    match line.ask(&cmd("BGREWRITEAOF"), by).await? {
        Ok(_) => Ok(Step::UnderWay),
        Err(error) if is_forbidden(&error) => Ok(doubtful(line, "BGREWRITEAOF", &error)),
        // Someone else was faster.
        Err(error) if says(&error, "in progress") => Ok(Step::UnderWay),
        Err(error) => Ok(failed(&shown(&error))),
    }
}

/// Not now and not later.
fn is_forbidden(error: &ServerError) -> bool {
    error.code() == "NOPERM" || says(error, "unknown command")
}

fn says(error: &ServerError, words: &str) -> bool {
    error.details().is_some_and(|details| details.contains(words))
}

/// Until the file is known, or it is clear that it will not be by then.
pub async fn wait(line: &Line, by: Instant) -> Result<Result<(), String>, Silence> {
    let mut asked = false;
    loop {
        match step(line, &mut asked, by).await? {
            Step::Known => return Ok(Ok(())),
            Step::Failed(why) => return Ok(Err(why)),
            Step::UnderWay if Instant::now() + 2 * PAUSE >= by => return Ok(Err(UNDER_WAY.into())),
            Step::UnderWay => sleep(PAUSE).await,
        }
    }
}

fn known(line: &Line, file: File) -> Step {
    line.file.get_or_init(|| file);
    Step::Known
}

fn doubtful(line: &Line, command: &str, error: &ServerError) -> Step {
    let why = format!(
        "{command} is refused ({}), so Redis cannot be made to rewrite its file after a start: if it was killed in the middle of a batch, its second start can \
         bring that batch back in the place of acknowledged ones; allow this user INFO and BGREWRITEAOF",
        shown(error)
    );
    known(line, File::Doubtful(why))
}

fn failed(detail: &str) -> Step {
    Step::Failed(format!(
        "Redis could not rewrite its file, which may end in the middle of a batch, and before that nothing is appended to it: {detail}"
    ))
}

/// What `INFO persistence` says of the append-only file.
#[derive(Debug, Default)]
struct Persistence {
    no_file: bool,
    /// A rewrite is under way, or will be.
    rewriting: bool,
    /// One has ended since Redis started.
    ended: bool,
    last_failed: bool,
}

impl Persistence {
    fn read(info: &str) -> Self {
        let mut read = Self::default();
        for (name, value) in info.lines().filter_map(|line| line.trim_end().split_once(':')) {
            match name {
                "aof_enabled" => read.no_file = value == "0",
                "aof_rewrite_in_progress" | "aof_rewrite_scheduled" => read.rewriting |= value == "1",
                "aof_last_rewrite_time_sec" => read.ended = value != "-1",
                "aof_last_bgrewrite_status" => read.last_failed = value != "ok",
                _ => {}
            }
        }
        read
    }

    /// Where one has failed after another that did not, nothing tells: it is then rewritten once more.
    fn file_is_whole(&self) -> bool {
        self.no_file || self.ended && !self.last_failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_whole_when_it_was_rewritten_since_the_start() {
        let started = "aof_enabled:1\r\naof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0\r\naof_last_rewrite_time_sec:-1\r\naof_last_bgrewrite_status:ok\r\n";
        let check = |info: &str, whole: bool, rewriting: bool| {
            let read = Persistence::read(info);
            assert_eq!((read.file_is_whole(), read.rewriting), (whole, rewriting), "{info}");
        };
        check("", false, false);
        check(started, false, false);
        check(&started.replace("enabled:1", "enabled:0"), true, false);
        check(&started.replace("in_progress:0", "in_progress:1"), false, true);
        check(&started.replace("scheduled:0", "scheduled:1"), false, true);
        check(&started.replace("sec:-1", "sec:0"), true, false);
        check(&started.replace("sec:-1", "sec:3").replace("ok", "err"), false, false);
    }
}
