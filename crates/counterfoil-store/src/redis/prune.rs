//! Prune, in small steps, so that appends get in between.

use counterfoil_core::Timestamp;
use redis::Value;

use super::fault::perhaps_written;
use super::fold;
use super::link::Link;
use crate::{Pruned, StoreError};

/// Streams per step: some milliseconds of Redis's time. A step ends sooner where many batches must be written again.
const STEP: usize = 100;

pub async fn prune(link: &Link, before: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
    // Only what the index knows of is buried.
    fold::fold_if_possible(link).await?;
    let mut total = Pruned::default();
    loop {
        let left = limit - total.streams as usize;
        let step = prune_step(link, before, left.min(STEP)).await?;
        total = Pruned { streams: total.streams + step.streams, more: step.more };
        if !step.more || total.streams as usize >= limit {
            return Ok(total);
        }
    }
}

async fn prune_step(link: &Link, before: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
    let by = link.deadline();
    let line = link.line_to_write(by).await?;
    let args = |command: &mut redis::Cmd| {
        command.arg(&link.keys.meta).arg(&link.id).arg(before.0).arg(before.0 >> 32).arg(before.0 & 0xffff_ffff).arg(limit);
    };
    match link.scripts.prune.run(&line, args, by).await {
        Ok(Ok(Value::Array(counts))) => match counts.as_slice() {
            [Value::Int(streams), Value::Int(left)] => Ok(Pruned { streams: streams.cast_unsigned(), more: *left > 0 }),
            other => Err(odd(link, &format!("{other:?}"))),
        },
        Ok(Ok(other)) => Err(odd(link, &format!("{other:?}"))),
        Ok(Err(error)) => Err(link.refused(&line, &error)),
        Err(silence) => {
            link.lost(&line);
            Err(perhaps_written(&silence))
        }
    }
}

fn odd(link: &Link, answer: &str) -> StoreError {
    StoreError::Corrupt { place: link.address.label(), message: format!("a prune was answered with {answer}") }
}
