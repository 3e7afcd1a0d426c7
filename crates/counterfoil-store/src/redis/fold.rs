//! Fold: what is due, what people search for and what effects are called is made from the log, behind the appends, by whoever asks for it.
//!
//! What must stay true: the index is complete up to its watermark, and says of nothing that it does not know. An append changes none of it, unless
//! it is a small one.

use redis::{Cmd, Value};
use tokio::time::Instant;

use super::fault::unread;
use super::link::Link;
use crate::{StoreError, Written};

/// Brings the index up to what was committed before this was called.
pub async fn fold(link: &Link) -> Result<(), StoreError> {
    let mut wanted = None;
    loop {
        let (folded, last) = step(link).await?;
        // What comes meanwhile is not waited for.
        if folded >= *wanted.get_or_insert(last) {
            return Ok(());
        }
    }
}

/// The same for whoever can do with the index as it is, where nothing can be written at the moment.
pub async fn fold_if_possible(link: &Link) -> Result<(), StoreError> {
    match fold(link).await {
        Err(StoreError::Unavailable { written: Written::No, .. }) | Ok(()) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Records in a slice, about: some milliseconds of Redis's time.
const SLICE: usize = 512;

/// The index is brought up along with an append where it is no further behind than this: few callers can wait for so little.
const ALONG_MAX: u64 = 64;

/// What `fold.lua` needs to know.
fn ask(link: &Link, command: &mut Cmd, behind_max: u64) {
    command.arg(&link.keys.meta).arg(&link.id).arg(SLICE).arg(behind_max);
}

/// A fold that goes with an append. Should Redis have forgotten the script, the next who folds brings it again.
pub fn along(link: &Link) -> Cmd {
    let mut command = link.scripts.fold.by_digest();
    ask(link, &mut command, ALONG_MAX);
    command
}

/// The watermark, and the last position. Asked once more when the line broke: folding twice does no harm.
async fn step(link: &Link) -> Result<(i64, i64), StoreError> {
    let by = link.deadline();
    let mut broken = false;
    loop {
        let line = link.line_to_write(by).await?;
        match link.scripts.fold.run(&line, |command| ask(link, command, u64::MAX), by).await {
            Ok(Ok(Value::Array(answer))) => match answer.as_slice() {
                [Value::Int(folded), Value::Int(last)] => return Ok((*folded, *last)),
                other => return Err(odd(link, &format!("{other:?}"))),
            },
            Ok(Ok(other)) => return Err(odd(link, &format!("{other:?}"))),
            Ok(Err(error)) => return Err(link.refused(&line, &error)),
            Err(silence) => {
                link.lost(&line);
                if broken || Instant::now() >= by {
                    return Err(unread(&silence));
                }
                broken = true;
            }
        }
    }
}

fn odd(link: &Link, answer: &str) -> StoreError {
    StoreError::Corrupt { place: link.address.label(), message: format!("a fold was answered with {answer}") }
}
