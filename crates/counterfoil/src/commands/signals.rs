//! Ctrl-C and SIGTERM, for commands that have something under way: the first asks to finish, the second quits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::output;

/// As a shell shows a program that Ctrl-C has ended.
const EXIT_QUIT: i32 = 130;

pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From now on neither ends the program by itself.
    pub fn new() -> anyhow::Result<Self> {
        let watched = |kind| signal(kind).context("signals cannot be watched");
        Ok(Self { terminate: watched(SignalKind::terminate())?, interrupt: watched(SignalKind::interrupt())? })
    }

    /// Until the first, of which `note` says what it means.
    pub async fn first(mut self, note: &str) {
        self.next().await;
        output::note(note);
        tokio::spawn(async move {
            self.next().await;
            std::process::exit(EXIT_QUIT);
        });
    }

    /// Set by the first, for work in steps; quitting in the middle of one does no harm either.
    pub fn stop(self) -> Arc<AtomicBool> {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = stop.clone();
        tokio::spawn(async move {
            self.first("stopping after this step").await;
            asked.store(true, Ordering::SeqCst);
        });
        stop
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
