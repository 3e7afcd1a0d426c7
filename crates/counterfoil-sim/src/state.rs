//! What all simulated processes share: the time, the events to come, the durable log, the world, and who watches over them.
//!
//! One seed is one `State` behind one lock on one thread. Whatever is random comes from its generator, in the order in which it is asked for; whatever
//! takes time is an event. So a seed gives the same bytes each time. No lock is held across an await.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::{Arc, Mutex, MutexGuard};

use counterfoil_core::Call;
use counterfoil_lin::Rng;
use counterfoil_store::remote::Heard;
use tokio::sync::{Notify, broadcast};

use crate::bugs::Bug;
use crate::checker::Checker;
use crate::driver::Op;
use crate::log::Log;
use crate::marks::{Mark, Marks};
use crate::model::Model;
use crate::weather::Weather;
use crate::world::World;

/// Microseconds of simulated time.
pub type Micros = u64;

pub const MS: Micros = 1_000;
pub const SECOND: Micros = 1_000_000;

/// Commits that a process may miss before it is told to look at everything.
const HEARD_MAX: usize = 64;

/// One life of a process: from its start to its crash.
pub type Life = usize;

pub struct Hub(Mutex<State>);

impl Hub {
    pub fn new(state: State) -> Arc<Self> {
        Arc::new(Self(Mutex::new(state)))
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nothing panics while it holds the state")
    }
}

pub struct State {
    pub now: Micros,
    /// The newest time that any process has seen: one machine's clock never shows two processes different times.
    pub high: Micros,
    /// How far the wall clock was set, in microseconds.
    pub clock_set: i64,
    pub rng: Rng,
    pub weather: Weather,
    /// How long the first phase lasts.
    pub horizon: Micros,
    /// Faults have stopped: from now on everything must settle.
    pub calm: bool,
    pub bug: Option<Bug>,
    pub log: Log,
    pub world: World,
    pub checker: Checker,
    pub model: Model,
    pub marks: Marks,
    pub trace: Option<Vec<String>>,
    pub lives: Vec<Link>,
    /// Disk full until then.
    pub full_until: Micros,
    /// Acknowledged, and not flushed: only a broken store has any.
    pub unflushed: Vec<(Micros, counterfoil_store::Position)>,
    /// The first call under a name: only a broken caller asks for it.
    pub first: BTreeMap<(String, String, Option<String>), Call>,
    events: BinaryHeap<Reverse<Due>>,
    count: u64,
}

/// A process as its surroundings see it.
pub struct Link {
    pub slot: usize,
    pub alive: bool,
    /// To be killed before it is polled again.
    pub doomed: bool,
    /// Something was delivered to it.
    pub dirty: bool,
    /// Appends of it that are on their way.
    pub appending: u32,
    /// Cut off from the store until then.
    pub cut_until: Micros,
    pub paused: bool,
    /// How long it was, all in all.
    pub slept: Micros,
    /// It waits for an answer from outside: its time must not run ahead.
    pub touched: Arc<Notify>,
    pub heard: broadcast::Sender<Heard>,
}

struct Due {
    at: Micros,
    count: u64,
    event: Event,
}

pub enum Event {
    /// Something outside of the processes: a request arrives, an answer is delivered.
    Outside(Box<dyn FnOnce(&mut State) + Send>),
    /// Something that is done to processes, or with them.
    Op(Op),
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.count) == (other.at, other.count)
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.count).cmp(&(other.at, other.count))
    }
}

impl State {
    pub fn new(seed: u64, bug: Option<Bug>, traced: bool) -> Self {
        let mut rng = Rng::new(seed);
        // Neighbouring seeds shall not begin alike.
        rng.draw();
        let weather = Weather::of(&mut rng);
        Self {
            now: 0,
            high: 0,
            clock_set: 0,
            rng,
            weather,
            horizon: 0,
            calm: false,
            bug,
            log: Log::default(),
            world: World::default(),
            checker: Checker::default(),
            model: Model::default(),
            marks: Marks::default(),
            trace: traced.then(Vec::new),
            lives: Vec::new(),
            full_until: 0,
            unflushed: Vec::new(),
            first: BTreeMap::new(),
            events: BinaryHeap::new(),
            count: 0,
        }
    }

    pub fn begin_life(&mut self, slot: usize) -> Life {
        let heard = broadcast::Sender::new(HEARD_MAX);
        self.lives.push(Link {
            slot,
            alive: true,
            doomed: false,
            dirty: true,
            appending: 0,
            cut_until: 0,
            paused: false,
            slept: 0,
            touched: Arc::new(Notify::new()),
            heard,
        });
        self.lives.len() - 1
    }

    pub fn at(&mut self, at: Micros, event: Event) {
        self.count += 1;
        self.events.push(Reverse(Due { at: at.max(self.now), count: self.count, event }));
    }

    pub fn after(&mut self, wait: Micros, event: impl FnOnce(&mut State) + Send + 'static) {
        self.at(self.now + wait, Event::Outside(Box::new(event)));
    }

    pub fn op_after(&mut self, wait: Micros, op: Op) {
        self.at(self.now + wait, Event::Op(op));
    }

    pub fn next_event(&self) -> Option<Micros> {
        self.events.peek().map(|Reverse(due)| due.at)
    }

    pub fn pop_due(&mut self) -> Option<Event> {
        if self.next_event()? > self.now {
            return None;
        }
        self.events.pop().map(|Reverse(due)| due.event)
    }

    /// The process waits for something from outside.
    pub fn touch(&self, life: Life) {
        self.lives[life].touched.notify_one();
    }

    /// Something was delivered to the process.
    pub fn delivered(&mut self, life: Life) {
        self.lives[life].dirty = true;
    }

    pub fn is_alive(&self, life: Life) -> bool {
        self.lives[life].alive && !self.lives[life].doomed
    }

    pub fn doom(&mut self, life: Life) {
        self.lives[life].doomed = true;
        self.touch(life);
    }

    pub fn mark(&mut self, mark: Mark) {
        self.marks.hit(mark);
    }

    pub fn chance(&mut self, permille: u32) -> bool {
        permille > 0 && self.rng.below(1000) < permille as usize
    }

    /// From `low` up to, not including, `high`.
    pub fn between(&mut self, low: Micros, high: Micros) -> Micros {
        low + self.rng.draw() % (high - low).max(1)
    }

    pub fn say(&mut self, line: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>4}.{:06} {}", now / SECOND, now % SECOND, line()));
        }
    }
}
