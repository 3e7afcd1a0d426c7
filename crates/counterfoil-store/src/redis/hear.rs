//! Hearing of commits, on a connection of its own. What was missed while there was none is told as "anything".
//!
//! What this process commits itself is told here and not by Redis, unless others listen as well: a message costs Redis, and wakes who asked for the commit
//! before its answer does.

use std::sync::Arc;
use std::time::Duration;

use redis::{PushInfo, PushKind, Value, cmd};
use tokio::sync::broadcast;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, sleep};

use super::line::Line;
use super::link::Link;
use crate::Batch;
use crate::remote::{Heard, StreamPrefix};

const PAUSE: Duration = Duration::from_millis(200);

/// What this process has committed.
pub fn own(batch: &Batch) -> Heard {
    Heard::Streams(batch.writes.iter().map(|write| StreamPrefix::from(&write.stream)).collect())
}

/// Runs until it is dropped.
pub async fn listen(link: Arc<Link>, tell: broadcast::Sender<Heard>) {
    loop {
        let (sender, pushes) = unbounded_channel();
        if let Ok((line, _)) = Line::open(&link.address, Some(sender), link.options.connect_within).await {
            let by = Instant::now() + link.options.answer_within;
            if let Ok(Ok(_)) = line.ask(cmd("SUBSCRIBE").arg(&link.keys.heard), by).await {
                link.set_listens(true);
                // Nobody can have counted on this connection before it was there: also the first one may have missed something.
                drop(tell.send(Heard::Anything));
                attend(&link, &line, pushes, &tell).await;
                link.set_listens(false);
            }
        }
        sleep(PAUSE).await;
    }
}

/// Returns when the line has ended, or does not answer: a connection on which nothing is said could be dead for long.
async fn attend(link: &Link, line: &Line, mut pushes: UnboundedReceiver<PushInfo>, tell: &broadcast::Sender<Heard>) {
    loop {
        tokio::select! {
            push = pushes.recv() => match push {
                Some(PushInfo { kind: PushKind::Message, data }) => {
                    if let Some(Value::BulkString(prefixes)) = data.into_iter().nth(1) {
                        let prefixes = prefixes.as_chunks::<8>().0.iter().map(|prefix| StreamPrefix(*prefix)).collect();
                        // Nobody may be listening.
                        drop(tell.send(Heard::Streams(prefixes)));
                    }
                }
                Some(PushInfo { kind: PushKind::Disconnection, .. }) | None => return,
                Some(_) => {}
            },
            () = sleep(link.options.look_every) => {
                let by = Instant::now() + link.options.answer_within;
                if !matches!(line.ask(&cmd("PING"), by).await, Ok(Ok(_))) {
                    return;
                }
                link.set_listens(true);
            }
        }
    }
}
