//! One process: the real runtime on a single-threaded Tokio of its own, whose time stands still until it is told to go on.
//!
//! Whoever drives the simulation decides when a process is polled and how far its time goes. Dropping it is its crash: whatever it was about to do at
//! the next await is never done.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::WorkerId;
use counterfoil_runtime::{Builder, Runtime, Threads};
use futures_util::FutureExt;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock::SimClock;
use crate::state::{Hub, Life, MS, Micros};
use crate::store::SimStore;
use crate::tools;

/// How far off the clocks of several machines may be.
const CLOCK_ERROR: Micros = 150 * MS;

pub struct Worker {
    pub life: Life,
    // Dropped in this order: the tasks before what they use.
    tokio: tokio::runtime::Runtime,
    pub runtime: Runtime,
    touched: Arc<Notify>,
    started: Instant,
    born: Micros,
}

impl Worker {
    pub fn start(hub: &Arc<Hub>, slot: usize, locks: Option<&Path>) -> anyhow::Result<Self> {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
        let (life, born, error, touched, heard, seed) = {
            let mut state = hub.lock();
            let life = state.begin_life(slot);
            let error = if state.weather.spread { state.between(0, CLOCK_ERROR) as i64 } else { 0 };
            let heard = state.weather.hearing.then(|| state.lives[life].heard.subscribe());
            (life, state.now, error, state.lives[life].touched.clone(), heard, state.rng.draw())
        };
        let (runtime, started) = tokio.block_on(async {
            let started = Instant::now();
            let store = Arc::new(SimStore { hub: hub.clone(), life });
            let clock = Arc::new(SimClock { hub: hub.clone(), life, started, born, error });
            let mut builder =
                Builder::new(store).clock(clock).worker(WorkerId::new(&format!("w{life}"))?).threads(Threads::None).seed(seed);
            // Some take every key for new, some after a few that were, some as in life.
            if let Some(after) = [Some(0), Some(1), Some(3), None][(seed % 4) as usize] {
                builder = builder.guess_after(after);
            }
            // And some have two batches on their way at once.
            builder = builder.batches_at_once(1 + (seed >> 2) as usize % 2);
            if let Some(heard) = heard {
                builder = builder.heard(heard);
            }
            if let Some(dir) = locks {
                builder = builder.workers_dir(dir);
            }
            anyhow::Ok((builder.build()?, started))
        })?;
        tools::register(&runtime, hub, life);
        let worker = Self { life, tokio, runtime, touched, started, born };
        let every = hub.lock().between(700 * MS, 2500 * MS);
        let inside = worker.tokio.enter();
        drop(worker.runtime.recover_forever(Duration::from_micros(every)));
        drop(inside);
        Ok(worker)
    }

    pub fn spawn(&self, what: impl Future<Output = ()> + Send + 'static) {
        drop(self.tokio.spawn(what));
    }

    /// Lets its tasks take some turns. No time passes.
    pub fn poll(&self, turns: usize) {
        self.tokio.block_on(async {
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
        });
    }

    /// Lets its time go on to `until`, or until it asks for something outside. Says when that was.
    pub fn go_on(&self, until: Micros) -> Micros {
        let deadline = self.started + Duration::from_micros(until.saturating_sub(self.born));
        let touched = self.tokio.block_on(async {
            // What it asked for earlier is among the events to come.
            let _ = self.touched.notified().now_or_never();
            if deadline <= Instant::now() {
                return false;
            }
            tokio::select! {
                biased;
                () = self.touched.notified() => true,
                () = tokio::time::sleep_until(deadline) => false,
            }
        });
        if touched { self.time().min(until) } else { until }
    }

    /// It was paused: all of a sudden it is later.
    pub fn jump(&self, now: Micros) {
        let behind = now.saturating_sub(self.time());
        self.tokio.block_on(tokio::time::advance(Duration::from_micros(behind)));
    }

    fn time(&self) -> Micros {
        self.tokio.block_on(async { self.born + self.started.elapsed().as_micros() as Micros })
    }
}
