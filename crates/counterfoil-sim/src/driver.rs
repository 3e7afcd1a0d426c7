//! One seed from its beginning to its verdict: who is started, asked, crashed and paused when, and that everything settles when nothing goes wrong any more.
//!
//! One loop: let processes take turns, let what is due happen, let time go on to whatever is next. In the first phase faults come as the seed's
//! weather has it; in the second there are none, callers ask until they know, and every call and run must come to its end.

use std::path::PathBuf;
use std::sync::Arc;

use counterfoil_core::ids::CallKey;
use counterfoil_core::{Call, CanonicalJson, RunId, StepPath};

use crate::bugs::Bug;
use crate::checker::Subject;
use crate::marks::{Mark, Marks};
use crate::people::{Asked, Desk, caller, tenant};
use crate::runs::Script;
use crate::sabotage;
use crate::state::{Event, Hub, Life, MS, Micros, SECOND, State};
use crate::tools::{Kind, LEASE};
use crate::worker::Worker;

/// Nobody's time goes on by more than this at once: others may have something to say.
const STEP_MAX: Micros = 250 * MS;
/// How often callers ask again when all is well.
const ROUND: Micros = 2 * SECOND;
/// By then everything has settled: a run's owner that died is noticed after 30 seconds, a doubt is looked at every minute or so.
const ROUNDS_MAX: usize = 150;
const TENANTS: [&str; 2] = ["acme", "bolt"];

/// What is done to processes, or with them.
pub enum Op {
    Ask { asked: usize, slot: usize, patience: Option<Micros> },
    Cancel { asked: usize, slot: usize },
    Undo { asked: usize, slot: usize },
    Operate { slot: usize },
    StartRun { run: usize, slot: usize, changed: bool },
    View { run: usize, slot: usize },
    Signal { run: usize, slot: usize },
    CancelRun { run: usize, slot: usize, undo: bool },
    PutWorkflow { slot: usize },
    Prune { slot: usize },
    Audit { slot: usize },
    Crash { slot: usize },
    PowerCut,
    Start { slot: usize },
    Pause { slot: usize, long: Micros },
    Resume { life: Life, slept: Micros },
    Partition { slot: usize, long: Micros },
    FullDisk { long: Micros },
    SetClock { by: i64 },
}

/// What came of a seed.
pub struct Verdict {
    pub violations: Vec<String>,
    pub marks: Marks,
    pub trace: Vec<String>,
}

pub struct Driver {
    hub: Arc<Hub>,
    slots: Vec<Option<Worker>>,
    asked: Vec<Asked>,
    runs: Vec<(Script, Subject)>,
    locks: Option<PathBuf>,
}

/// Lives through one seed.
pub fn simulate(seed: u64, bug: Option<Bug>, traced: bool) -> anyhow::Result<Verdict> {
    let mut driver = Driver::new(seed, bug, traced)?;
    let lived = driver.live();
    let Driver { hub, slots, locks, .. } = driver;
    drop(slots);
    if let Some(dir) = locks {
        std::fs::remove_dir_all(dir)?;
    }
    lived?;
    let mut state = hub.lock();
    Ok(Verdict {
        violations: std::mem::take(&mut state.checker.violations),
        marks: state.marks.clone(),
        trace: state.trace.take().unwrap_or_default(),
    })
}

impl Driver {
    fn new(seed: u64, bug: Option<Bug>, traced: bool) -> anyhow::Result<Self> {
        let mut state = State::new(seed, bug, traced);
        let workers = [1, 2, 2, 3][state.rng.below(4)];
        let asked = asked(&mut state);
        let runs = runs(&mut state);
        let horizon = state.between(6 * SECOND, 14 * SECOND);
        let locks = state.weather.locks.then(|| {
            let name = format!("counterfoil-sim-{}-{:?}-{seed}", std::process::id(), std::thread::current().id());
            std::env::temp_dir().join(name)
        });
        plan(&mut state, workers, &asked, &runs, horizon);
        let mut driver = Self { hub: Hub::new(state), slots: Vec::new(), asked, runs, locks };
        for slot in 0..workers {
            driver.slots.push(None);
            driver.start(slot)?;
        }
        Ok(driver)
    }

    fn live(&mut self) -> anyhow::Result<()> {
        let horizon = self.hub.lock().horizon;
        self.go_on(horizon)?;
        self.calm_down()?;
        for _ in 0..ROUNDS_MAX {
            if self.is_broken() || self.is_settled() {
                break;
            }
            self.round();
            let until = self.hub.lock().now + ROUND;
            self.go_on(until)?;
        }
        if !self.is_broken() {
            self.last_look()?;
        }
        Ok(())
    }

    /// Faults end here.
    fn calm_down(&mut self) -> anyhow::Result<()> {
        {
            let mut state = self.hub.lock();
            state.calm = true;
            state.weather = state.weather.fine();
            state.full_until = 0;
            state.lives.iter_mut().for_each(|link| link.cut_until = 0);
            state.say(|| "all is well from now on".into());
        }
        for slot in 0..self.slots.len() {
            match &self.slots[slot] {
                None => self.start(slot)?,
                Some(worker) => {
                    let (life, now) = (worker.life, self.hub.lock().now);
                    let paused = std::mem::take(&mut self.hub.lock().lives[life].paused);
                    if paused {
                        worker.jump(now);
                    }
                }
            }
        }
        Ok(())
    }

    fn round(&mut self) {
        let mut state = self.hub.lock();
        let slots = self.slots.len();
        let slot = state.rng.below(slots);
        state.op_after(0, Op::Operate { slot });
        for (asked, what) in self.asked.iter().enumerate() {
            if !state.checker.is_settled(&what.subject) {
                let slot = state.rng.below(slots);
                state.op_after(MS, Op::Ask { asked, slot, patience: None });
            }
        }
        for (run, (script, subject)) in self.runs.iter().enumerate() {
            if !state.checker.is_over(subject) {
                let slot = state.rng.below(slots);
                state.op_after(MS, Op::StartRun { run, slot, changed: false });
                if script.waits() {
                    state.op_after(2 * MS, Op::Signal { run, slot });
                }
                state.op_after(ROUND - MS, Op::View { run, slot });
            }
        }
    }

    fn is_broken(&self) -> bool {
        !self.hub.lock().checker.violations.is_empty()
    }

    fn is_settled(&self) -> bool {
        let state = self.hub.lock();
        self.asked.iter().all(|asked| state.checker.is_settled(&asked.subject))
            && self.runs.iter().all(|(_, run)| state.checker.is_over(run))
            && state.world.is_quiet()
    }

    /// Everyone is asked once more, and tells the same.
    fn last_look(&mut self) -> anyhow::Result<()> {
        if !self.is_settled() {
            let mut state = self.hub.lock();
            for asked in &self.asked {
                if !state.checker.is_settled(&asked.subject) {
                    state.checker.violated(format!("{:?} {} has not come to an end", asked.kind, asked.subject));
                }
            }
            for (_, run) in &self.runs {
                if !state.checker.is_over(run) {
                    state.checker.violated(format!("the run {run} has not come to an end"));
                }
            }
            return Ok(());
        }
        {
            let mut state = self.hub.lock();
            for slot in 0..self.slots.len() {
                (0..self.asked.len()).for_each(|asked| state.op_after(0, Op::Ask { asked, slot, patience: None }));
                (0..self.runs.len()).for_each(|run| state.op_after(0, Op::View { run, slot }));
            }
            state.op_after(SECOND, Op::Audit { slot: 0 });
        }
        let until = self.hub.lock().now + 2 * SECOND;
        self.go_on(until)?;
        let mut state = self.hub.lock();
        let State { checker, world, .. } = &mut *state;
        checker.at_the_end(world, &self.runs);
        if !checker.was_audited() {
            checker.violated("the receipts were not to be had".into());
        }
        Ok(())
    }

    /// The loop.
    fn go_on(&mut self, until: Micros) -> anyhow::Result<()> {
        while self.goes_on(until) {
            self.turns();
            self.bury()?;
            let event = self.hub.lock().pop_due();
            match event {
                Some(Event::Outside(happens)) => happens(&mut self.hub.lock()),
                Some(Event::Op(op)) => self.perform(op)?,
                None => self.let_time_pass(until),
            }
            self.bury()?;
        }
        Ok(())
    }

    fn goes_on(&self, until: Micros) -> bool {
        let state = self.hub.lock();
        state.now < until && state.checker.violations.is_empty()
    }

    /// Processes to which something was delivered, in any order, for some turns.
    fn turns(&mut self) {
        let mut order: Vec<(usize, usize)> = Vec::new();
        {
            let mut state = self.hub.lock();
            for (slot, worker) in self.slots.iter().enumerate() {
                let Some(worker) = worker else { continue };
                let link = &mut state.lives[worker.life];
                if !link.paused && std::mem::take(&mut link.dirty) {
                    let turns = 2 + state.rng.below(8);
                    order.push((slot, turns));
                }
            }
            shuffle(&mut state, &mut order);
        }
        for (slot, turns) in order {
            if let Some(worker) = &self.slots[slot] {
                worker.poll(turns);
            }
        }
    }

    fn let_time_pass(&mut self, until: Micros) {
        let (mut next, mut order) = {
            let state = self.hub.lock();
            let next = state.next_event().unwrap_or(until).min(state.now + STEP_MAX).min(until);
            let runs = |slot: &usize| self.slots[*slot].as_ref().is_some_and(|worker| !state.lives[worker.life].paused);
            (next, (0..self.slots.len()).filter(runs).collect::<Vec<usize>>())
        };
        shuffle(&mut self.hub.lock(), &mut order);
        for slot in order {
            if let Some(worker) = &self.slots[slot] {
                next = worker.go_on(next).min(next);
            }
        }
        let mut state = self.hub.lock();
        state.now = state.now.max(next);
    }

    /// Those who are to die are dead from here on.
    fn bury(&mut self) -> anyhow::Result<()> {
        for slot in 0..self.slots.len() {
            let Some(worker) = &self.slots[slot] else { continue };
            if self.hub.lock().lives[worker.life].doomed {
                self.crash(slot);
            }
        }
        Ok(())
    }

    fn crash(&mut self, slot: usize) {
        let Some(worker) = self.slots[slot].take() else { return };
        {
            let mut state = self.hub.lock();
            let link = &mut state.lives[worker.life];
            (link.alive, link.doomed) = (false, true);
            state.say(|| format!("crash: w{}", worker.life));
            let wait = state.between(20 * MS, 5 * SECOND);
            state.op_after(wait, Op::Start { slot });
        }
        drop(worker);
    }

    fn start(&mut self, slot: usize) -> anyhow::Result<()> {
        if self.slots[slot].is_none() {
            let worker = Worker::start(&self.hub, slot, self.locks.as_deref())?;
            self.hub.lock().say(|| format!("start: w{} in slot {slot}", worker.life));
            self.slots[slot] = Some(worker);
        }
        Ok(())
    }

    fn perform(&mut self, op: Op) -> anyhow::Result<()> {
        match op {
            Op::Ask { asked, slot, patience } => {
                let asked = self.asked[asked].clone();
                self.at(slot, |desk| desk.ask(asked, patience));
            }
            Op::Cancel { asked, slot } => {
                let asked = self.asked[asked].clone();
                self.at(slot, |desk| desk.cancel(asked));
            }
            Op::Undo { asked, slot } => {
                let asked = self.asked[asked].clone();
                self.at(slot, |desk| desk.undo(asked));
            }
            Op::Operate { slot } => TENANTS.iter().for_each(|name| self.at(slot, |desk| desk.operate(tenant(name)))),
            Op::StartRun { run, slot, changed } => {
                let (script, run) = self.runs[run].clone();
                self.at(slot, |desk| desk.start_run(script, run, changed));
            }
            Op::View { run, slot } => {
                let (script, run) = self.runs[run].clone();
                self.at(slot, |desk| desk.view(script, run));
            }
            Op::Signal { run, slot } => {
                let run = self.runs[run].1.clone();
                self.at(slot, |desk| desk.signal(run));
            }
            Op::CancelRun { run, slot, undo } => {
                let run = self.runs[run].1.clone();
                self.at(slot, |desk| desk.cancel_run(run, undo));
            }
            Op::PutWorkflow { slot } => {
                if let Some((script, run)) = self.runs.first().cloned() {
                    self.at(slot, |desk| desk.put_workflow(run.tenant, script));
                }
            }
            Op::Prune { slot } => self.at(slot, Desk::prune),
            Op::Audit { slot } => {
                for name in TENANTS {
                    let of_run = |run: &Subject| (run.tenant == name).then(|| run_id(&run.token));
                    let mut runs: Vec<RunId> = self.runs.iter().filter_map(|(_, run)| of_run(run)).collect();
                    runs.extend(self.asked.iter().filter(|asked| asked.subject.tenant == name).filter_map(|asked| asked.call.run.clone()));
                    runs.dedup();
                    self.at(slot, |desk| desk.audit(tenant(name), runs));
                }
            }
            Op::Crash { slot } => self.crash(slot),
            Op::PowerCut => {
                self.hub.lock().mark(Mark::PowerCut);
                (0..self.slots.len()).for_each(|slot| self.crash(slot));
                sabotage::power_cut(&mut self.hub.lock());
            }
            Op::Start { slot } => self.start(slot)?,
            Op::Pause { slot, long } => {
                if let Some(worker) = &self.slots[slot] {
                    let mut state = self.hub.lock();
                    state.say(|| format!("pause: w{} for {long} µs", worker.life));
                    state.lives[worker.life].paused = true;
                    if u128::from(long) > LEASE.as_micros() {
                        state.mark(Mark::PausedPastLease);
                    }
                    state.op_after(long, Op::Resume { life: worker.life, slept: long });
                }
            }
            Op::Resume { life, slept } => {
                let worker = self.slots.iter().flatten().find(|worker| worker.life == life);
                let paused = std::mem::take(&mut self.hub.lock().lives[life].paused);
                if let Some(worker) = worker.filter(|_| paused) {
                    self.hub.lock().lives[life].slept += slept;
                    let now = self.hub.lock().now;
                    worker.jump(now);
                }
            }
            Op::Partition { slot, long } => {
                if let Some(worker) = &self.slots[slot] {
                    let mut state = self.hub.lock();
                    state.say(|| format!("partition: w{} for {long} µs", worker.life));
                    state.lives[worker.life].cut_until = state.now + long;
                }
            }
            Op::FullDisk { long } => {
                let mut state = self.hub.lock();
                state.full_until = state.now + long;
            }
            Op::SetClock { by } => {
                let mut state = self.hub.lock();
                state.say(|| format!("clock: set by {by} µs"));
                state.clock_set += by;
                if by > 0 {
                    state.world.forget_probed();
                }
                state.mark(if by < 0 { Mark::ClockBack } else { Mark::ClockForward });
            }
        }
        Ok(())
    }

    /// Somebody uses the process in this slot, if there is one.
    fn at<F: Future<Output = ()> + Send + 'static>(&self, slot: usize, what: impl FnOnce(Desk) -> F) {
        if let Some(worker) = &self.slots[slot] {
            let desk = Desk { hub: self.hub.clone(), life: worker.life, runtime: worker.runtime.clone() };
            worker.spawn(what(desk));
            self.hub.lock().delivered(worker.life);
        }
    }
}

fn run_id(token: &str) -> RunId {
    RunId::new(token).expect("a plain word")
}

fn shuffle<T>(state: &mut State, list: &mut [T]) {
    for place in (1..list.len()).rev() {
        let other = state.rng.below(place + 1);
        list.swap(place, other);
    }
}

/// What callers will ask for.
fn asked(state: &mut State) -> Vec<Asked> {
    let mut asked: Vec<Asked> = Vec::new();
    for number in 0..1 + state.rng.below(6) {
        let kind = *state.rng.pick(&Kind::ASKED);
        let who = TENANTS[state.rng.below(2)];
        let token = format!("c{number}");
        let args = CanonicalJson::from_value(&serde_json::json!({ "t": token })).expect("plain data");
        let mut call =
            Call { tenant: tenant(who), caller: caller(), tool: kind.name(), args, key: None, run: None, step: None, ordinal: 0 };
        if state.rng.percent(70) {
            call.key = Some(CallKey::new(&format!("k{number}")).expect("plain letters"));
        } else {
            call.run = Some(run_id(&format!("turn{number}")));
            call.step = Some(StepPath::new("act").expect("a plain word"));
        }
        let one = Asked { kind, subject: Subject { tenant: who.into(), token }, call };
        if one.call.key.is_some() && state.rng.percent(15) {
            // The same key, and something else is meant.
            let mut other = one.clone();
            other.subject.token = format!("x{number}");
            other.call.args = CanonicalJson::from_value(&serde_json::json!({ "t": other.subject.token })).expect("plain data");
            asked.push(other);
        }
        if state.rng.percent(20) {
            // The same call of somebody else.
            let mut other = one.clone();
            other.subject.tenant = TENANTS.into_iter().find(|name| *name != who).expect("there are two").into();
            other.call.tenant = tenant(&other.subject.tenant);
            asked.push(other);
        }
        asked.push(one);
    }
    asked
}

fn runs(state: &mut State) -> Vec<(Script, Subject)> {
    let count = [0, 0, 1, 1, 2][state.rng.below(5)];
    let mut one = |number: usize| {
        let script = *state.rng.pick(&Script::ALL);
        let token = format!("{}{number}", script.letter());
        (script, Subject { tenant: TENANTS[state.rng.below(2)].into(), token })
    };
    (0..count).map(&mut one).collect()
}

/// Who does what when, and what goes wrong.
fn plan(state: &mut State, workers: usize, asked: &[Asked], runs: &[(Script, Subject)], horizon: Micros) {
    state.horizon = horizon;
    let slot = |state: &mut State| state.rng.below(workers);
    for (place, what) in asked.iter().enumerate() {
        for _ in 0..1 + state.rng.below(4) {
            let (slot, wait) = (slot(state), state.between(0, horizon));
            let patience = state.rng.percent(15).then(|| state.between(MS, 1500 * MS));
            state.op_after(wait, Op::Ask { asked: place, slot, patience });
        }
        if state.rng.percent(10) {
            let (slot, wait) = (slot(state), state.between(0, horizon));
            state.op_after(wait, Op::Cancel { asked: place, slot });
        }
        if what.kind == Kind::Book && state.rng.percent(30) {
            let (slot, wait) = (slot(state), state.between(0, horizon));
            state.op_after(wait, Op::Undo { asked: place, slot });
        }
    }
    for (run, (script, _)) in runs.iter().enumerate() {
        for _ in 0..1 + state.rng.below(3) {
            let (slot, wait) = (slot(state), state.between(0, horizon / 2));
            let changed = state.rng.percent(15);
            state.op_after(wait, Op::StartRun { run, slot, changed });
        }
        let (viewer, wait) = (slot(state), state.between(0, horizon));
        state.op_after(wait, Op::View { run, slot: viewer });
        if state.rng.percent(20) {
            let (slot, wait, undo) = (slot(state), state.between(0, horizon), state.rng.percent(50));
            state.op_after(wait, Op::CancelRun { run, slot, undo });
        }
        if script.waits() {
            for _ in 0..1 + state.rng.below(2) {
                let (slot, wait) = (slot(state), state.between(0, horizon));
                state.op_after(wait, Op::Signal { run, slot });
            }
        }
        if state.rng.percent(20) {
            let (slot, wait) = (slot(state), state.between(0, horizon));
            state.op_after(wait, Op::PutWorkflow { slot });
        }
    }
    for _ in 0..2 {
        let (person, wait) = (slot(state), state.between(SECOND, horizon));
        state.op_after(wait, Op::Operate { slot: person });
        let (pruner, wait) = (slot(state), state.between(SECOND, horizon));
        state.op_after(wait, Op::Prune { slot: pruner });
    }
    faults(state, workers, horizon);
}

fn faults(state: &mut State, workers: usize, horizon: Micros) {
    let weather = state.weather.clone();
    for _ in 0..weather.crashes {
        let (slot, wait) = (state.rng.below(workers), state.between(0, horizon));
        state.op_after(wait, Op::Crash { slot });
    }
    for _ in 0..weather.power_cuts {
        let wait = state.between(0, horizon);
        state.op_after(wait, Op::PowerCut);
    }
    for _ in 0..weather.pauses {
        let (slot, wait, long) = (state.rng.below(workers), state.between(0, horizon), state.between(100 * MS, 7 * SECOND));
        state.op_after(wait, Op::Pause { slot, long });
    }
    for _ in 0..weather.partitions {
        let (slot, wait, long) = (state.rng.below(workers), state.between(0, horizon), state.between(100 * MS, 5 * SECOND));
        state.op_after(wait, Op::Partition { slot, long });
    }
    for _ in 0..weather.full_disks {
        let (wait, long) = (state.between(0, horizon), state.between(100 * MS, 3 * SECOND));
        state.op_after(wait, Op::FullDisk { long });
    }
    for _ in 0..weather.clock_steps {
        let (wait, by) = (state.between(0, horizon), state.between(50 * MS, 10 * SECOND) as i64);
        let by = if state.rng.percent(50) { -by } else { by };
        state.op_after(wait, Op::SetClock { by });
    }
}
