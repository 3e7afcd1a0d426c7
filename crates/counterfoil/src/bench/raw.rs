//! The limit of this disk: the same bytes appended to a plain file, group commit with fdatasync, a hash map as index, no engine.
//!
//! Its callers make their arguments and results as those of the ledger do; what is missing up to the ledger's bytes is padding.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context;
use counterfoil_core::ids::Digest32;
use tokio::sync::oneshot;

use super::load::Tally;

/// Written ahead, so that the file's growth is not part of what is measured.
const AHEAD_BYTES: u64 = 64 << 20;

struct Append {
    key: [u8; 32],
    bytes: Vec<u8>,
    done: oneshot::Sender<()>,
}

#[derive(Default)]
struct Waiting {
    appends: Vec<Append>,
    parked: bool,
    closed: bool,
}

struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

/// Two appends per effect, each answered after its flush.
pub async fn run(path: &Path, concurrency: usize, span: Duration, bytes_per_append: usize) -> anyhow::Result<Tally> {
    let file = open(path)?;
    let queue = Arc::new(Queue { waiting: Mutex::default(), arrived: Condvar::new() });
    let writer = std::thread::spawn({
        let queue = queue.clone();
        move || write(&file, &queue)
    });
    let stop = Arc::new(AtomicBool::new(false));
    let started = Instant::now();
    let callers: Vec<_> = (0..concurrency as u64)
        .map(|caller| {
            let (queue, stop) = (queue.clone(), stop.clone());
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                let mut n = caller << 32;
                while !stop.load(Ordering::Relaxed) {
                    let asked = Instant::now();
                    let key = Digest32::of(&n.to_be_bytes());
                    append(&queue, key, super::load::args(n), bytes_per_append).await?;
                    append(&queue, key, super::load::result(&key).to_string(), bytes_per_append).await?;
                    latencies.push(u32::try_from(asked.elapsed().as_micros()).unwrap_or(u32::MAX));
                    n += 1;
                }
                Ok::<_, anyhow::Error>(latencies)
            })
        })
        .collect();
    tokio::time::sleep(span).await;
    stop.store(true, Ordering::Relaxed);
    let mut latencies = Vec::new();
    for caller in callers {
        latencies.extend(caller.await??);
    }
    let elapsed = started.elapsed();
    lock(&queue).closed = true;
    queue.arrived.notify_one();
    writer.join().expect("the raw writer does not panic")?;
    std::fs::remove_file(path)?;
    Ok(Tally::new(latencies.len() as u64, elapsed, latencies))
}

async fn append(queue: &Queue, key: Digest32, text: String, bytes: usize) -> anyhow::Result<()> {
    let (done, written) = oneshot::channel();
    let mut record = text.into_bytes();
    record.resize(bytes, b' ');
    {
        let mut waiting = lock(queue);
        waiting.appends.push(Append { key: key.0, bytes: record, done });
        if waiting.parked {
            queue.arrived.notify_one();
        }
    }
    written.await.context("the raw writer stopped")
}

fn open(path: &Path) -> anyhow::Result<File> {
    let file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
    let zeros = vec![0; 1 << 20];
    for at in (0..AHEAD_BYTES).step_by(zeros.len()) {
        file.write_all_at(&zeros, at)?;
    }
    file.sync_all()?;
    Ok(file)
}

fn write(file: &File, queue: &Queue) -> std::io::Result<()> {
    let mut index: HashMap<[u8; 32], u64> = HashMap::new();
    let (mut end, mut frame) = (0, Vec::new());
    loop {
        let appends = {
            let mut waiting = lock(queue);
            while waiting.appends.is_empty() {
                if waiting.closed {
                    return Ok(());
                }
                waiting.parked = true;
                waiting = queue.arrived.wait(waiting).unwrap_or_else(|poisoned| poisoned.into_inner());
                waiting.parked = false;
            }
            std::mem::take(&mut waiting.appends)
        };
        frame.clear();
        for append in &appends {
            index.insert(append.key, end + frame.len() as u64);
            frame.extend_from_slice(&append.bytes);
        }
        file.write_all_at(&frame, end)?;
        end += frame.len() as u64;
        file.sync_data()?;
        for append in appends {
            // A caller that has gone away needs no answer.
            let (Ok(()) | Err(())) = append.done.send(());
        }
    }
}

fn lock(queue: &Queue) -> std::sync::MutexGuard<'_, Waiting> {
    queue.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
