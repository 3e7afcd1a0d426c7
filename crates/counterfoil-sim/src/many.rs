//! Many seeds at once: each is independent, so every core takes the next one.
//!
//! A process that spins never lets its time go on: no simulated clock notices that. So a real one does, and the program ends with the seed's name.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::bugs::Bug;
use crate::driver::{Verdict, simulate};
use crate::marks::Marks;

/// Which seeds, and when to stop.
#[derive(Debug, Clone)]
pub struct Search {
    pub from: u64,
    pub seeds: u64,
    pub bug: Option<Bug>,
    pub threads: usize,
    /// Begins no further seed after this long.
    pub within: Option<Duration>,
    /// Ends with the first violation.
    pub first_only: bool,
}

#[derive(Default)]
pub struct Tally {
    pub seeds: u64,
    pub marks: Marks,
    /// By seed, smallest first.
    pub violations: Vec<(u64, Vec<String>)>,
    pub took: Duration,
}

/// A seed takes milliseconds.
const SPINS_AFTER: Duration = Duration::from_secs(120);

/// One seed, under the eye of a real clock.
fn watched(seed: u64, bug: Option<Bug>) -> anyhow::Result<Verdict> {
    thread_local!(static WATCH: Watch = Watch::start());
    WATCH.with(|watch| {
        watch.begin(seed);
        let verdict = simulate(seed, bug, false);
        watch.end();
        verdict
    })
}

/// Looks at one thread's seed now and then.
struct Watch(Arc<Mutex<Option<(u64, Instant)>>>);

impl Watch {
    fn start() -> Self {
        let now = Arc::new(Mutex::new(None));
        let weak = Arc::downgrade(&now);
        std::thread::spawn(move || {
            while let Some(now) = weak.upgrade() {
                let under_way: Option<(u64, Instant)> = *now.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                drop(now);
                if let Some((seed, _)) = under_way.filter(|(_, since)| since.elapsed() > SPINS_AFTER) {
                    eprintln!("seed {seed} does not end: a process spins, and its time does not go on");
                    std::process::exit(1);
                }
                std::thread::sleep(Duration::from_secs(1));
            }
        });
        Self(now)
    }

    fn set(&self, under_way: Option<(u64, Instant)>) {
        *self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = under_way;
    }

    fn begin(&self, seed: u64) {
        self.set(Some((seed, Instant::now())));
    }

    fn end(&self) {
        self.set(None);
    }
}

pub fn search(search: &Search, progress: impl Fn(u64, Duration) + Sync) -> anyhow::Result<Tally> {
    let (next, stopped, tally) = (AtomicU64::new(search.from), AtomicBool::new(false), Mutex::new(Tally::default()));
    let started = Instant::now();
    let work = || -> anyhow::Result<()> {
        let mut own = Tally::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let over = seed >= search.from + search.seeds || search.within.is_some_and(|within| started.elapsed() > within);
            if over || stopped.load(Ordering::Relaxed) {
                break;
            }
            let verdict = watched(seed, search.bug)?;
            own.seeds += 1;
            own.marks.add(&verdict.marks);
            if !verdict.violations.is_empty() {
                own.violations.push((seed, verdict.violations));
                stopped.fetch_or(search.first_only, Ordering::Relaxed);
            }
            if (seed - search.from + 1).is_multiple_of(10_000) {
                progress(seed - search.from + 1, started.elapsed());
            }
        }
        let mut sum = tally.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        sum.seeds += own.seeds;
        sum.marks.add(&own.marks);
        sum.violations.append(&mut own.violations);
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..search.threads.max(1)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let mut tally = tally.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    tally.violations.sort_by_key(|(seed, _)| *seed);
    tally.took = started.elapsed();
    Ok(tally)
}
