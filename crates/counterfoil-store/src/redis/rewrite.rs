//! A Redis that has started rewrites its file before anything is appended to it.
//!
//! When its file ends in the middle of a transaction, Redis (`aof-load-truncated yes`, the default) leaves that transaction out and cuts the file behind the last whole
//! command, not before the transaction. Whatever is appended then is read at the next start as the rest of it: records that were never accepted
//! come back, and take the place of accepted ones. Nothing tells whether the file is so, but one that was written anew from memory is not (ADR 0034).
//!
//! What must stay true: no line is written to before it is known that the Redis behind it has rewritten its file since it started, or need not.

use std::time::Duration;

use redis::{ServerError, cmd};
use tokio::time::{Instant, sleep};

use super::line::{Line, Silence};
use super::settings::{Settings, shown};

/// Redis looks ten times a second whether a rewrite has ended.
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug, PartialEq, Eq)]
pub enum Rewritten {
    Yes,
    NotYet(String),
    /// It may not be asked to.
    Forbidden(String),
}

/// Has Redis rewrite its file, if it must, and waits for that until `by`.
pub async fn rewritten(line: &Line, settings: &mut Settings, by: Instant) -> Result<Rewritten, Silence> {
    let mut asked = false;
    // A rewrite that fails later does no harm to the file that is there.
    while !line.is_whole() && settings.is_perhaps_torn() {
        if !settings.is_rewriting() && !asked {
            asked = true;
            if let Err(error) = line.ask(&cmd("BGREWRITEAOF"), by).await? {
                let why = error.details().unwrap_or_default();
                match error.code() {
                    // Someone else was faster.
                    _ if why.contains("in progress") => {}
                    "NOPERM" => return Ok(forbidden("BGREWRITEAOF", &error)),
                    _ if why.contains("unknown command") => return Ok(forbidden("BGREWRITEAOF", &error)),
                    _ => return Ok(not_yet("cannot rewrite its file", &shown(&error))),
                }
            }
        } else if !settings.is_rewriting() {
            return Ok(not_yet("could not rewrite its file", "see its log, and whether its disk is full"));
        } else if Instant::now() + 2 * PAUSE >= by {
            return Ok(not_yet("rewrites its file", "this takes as long as the file is large, once for each start; ask again"));
        }
        sleep(PAUSE).await;
        if let Err(error) = settings.ask_info(line, by).await? {
            return Ok(forbidden("INFO", &error));
        }
    }
    line.set_whole();
    Ok(Rewritten::Yes)
}

fn not_yet(what: &str, detail: &str) -> Rewritten {
    Rewritten::NotYet(format!(
        "Redis has started anew and {what}, which may end in the middle of a batch; before that nothing is appended to it: {detail}"
    ))
}

fn forbidden(command: &str, error: &ServerError) -> Rewritten {
    Rewritten::Forbidden(format!("{command} is refused ({})", shown(error)))
}
