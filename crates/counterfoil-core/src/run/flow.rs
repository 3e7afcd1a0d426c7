//! What may start next: the plan, and how far its steps have come.
//!
//! A pure function of the plan and the run's entries: live or taken over, the same entries give the same flow. Each entry costs what it changes and not
//! what there is: a run of ten thousand steps is as quick at its end as at its beginning.
//!
//! | a step that is | becomes |
//! |---|---|
//! | blocked | ready, when all it needs have ended; open, if it has steps inside; skipped, if no way that was taken leads to it |
//! | ready   | busy, by `step_began`; ended, by `step_ended` (a decision) |
//! | busy    | ended, by `step_ended`; told to stop, when what it is inside closes or its time is up |
//! | open    | ended, when what is inside has ended; closing, when it need not or cannot go on |
//! | closing | ended, when the last step inside has; undoing first, if it failed and what follows runs all the same |
//! | undoing | ended, when what it did is undone |

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use thiserror::Error;

use super::confirm::Judgement;
use super::entry::{Began, RunEntry, StepEnd};
use super::plan::{BlockId, Join, NodeId, OnFailure, Plan, Shape};
use crate::ids::StepPath;
use crate::outcome::Failure;
use crate::time::Timestamp;

/// How a step, or the whole, came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    Done,
    Failed(Failure),
    /// No way that was taken leads to it. Who needs it may run.
    Skipped,
    Cancelled,
}

/// How far a step has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress<'a> {
    Blocked,
    Ready,
    Busy,
    /// Told to stop, and has not ended yet.
    Stopping,
    Open,
    Undoing,
    Ended(&'a Fate),
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FlowError {
    #[error("there is no step {0} now")]
    Unknown(StepPath),
    #[error("the step {step} is {is}: {what} cannot follow")]
    Illegal { step: StepPath, is: &'static str, what: &'static str },
}

/// A bound on effects that is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetReached {
    /// `None`: that of the whole run.
    pub scope: Option<StepPath>,
    pub effects_max: u64,
}

#[derive(Debug, Clone)]
pub struct Flow {
    plan: Arc<Plan>,
    effects_max: Option<u64>,
    places: HashMap<StepPath, Place>,
    root: Open,
    /// How the whole ended.
    fate: Option<Fate>,
    /// In the order in which they became so.
    ready: BTreeMap<u64, StepPath>,
    stopping: BTreeSet<StepPath>,
    /// Steps that failed and after which the run goes on: what they did must be undone first.
    undoing: BTreeSet<StepPath>,
    timers: BTreeSet<(Timestamp, StepPath)>,
    counted: u64,
}

/// One step: of a `map`'s body, there is one for each item.
#[derive(Debug, Clone)]
struct Place {
    node: NodeId,
    /// The step it is inside of, and which branch or item of it.
    within: Option<StepPath>,
    lane: u32,
    /// Of the maps around it, outermost first.
    items: Arc<[u32]>,
    waiting: u32,
    skipped: bool,
    state: State,
}

#[derive(Debug, Clone)]
enum State {
    Blocked,
    Ready(u64),
    Busy {
        deadline: Option<Timestamp>,
        stop: Option<Why>,
    },
    Open(Box<Open>),
    /// Its steps have ended.
    Undoing(Fate),
    Ended(Fate),
}

/// Why a busy step was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Cancelled,
    TimedOut,
}

/// A step with others inside, or the whole.
#[derive(Debug, Clone, Default)]
struct Open {
    lanes: BTreeMap<u32, Lane>,
    /// Branches or items there are, were begun, ended well, and failed.
    total: u32,
    begun: u32,
    done: u32,
    lost: u32,
    closing: Option<Fate>,
    /// Steps inside that have not ended.
    live: u32,
    /// That were begun inside, however deep.
    effects: u64,
    /// Something was begun inside that may have to be undone.
    touched: bool,
    /// What was done inside is to be undone when it has ended.
    undo: bool,
    deadline: Option<Timestamp>,
}

#[derive(Debug, Clone, Default)]
struct Lane {
    remaining: u32,
    steps: Vec<StepPath>,
}

impl Flow {
    /// At the beginning: the steps that need nothing are ready.
    pub fn new(plan: Arc<Plan>, effects_max: Option<u64>, at: Timestamp) -> Self {
        let mut flow = Self {
            plan,
            effects_max,
            places: HashMap::new(),
            root: Open { total: 1, ..Open::default() },
            fate: None,
            ready: BTreeMap::new(),
            stopping: BTreeSet::new(),
            undoing: BTreeSet::new(),
            timers: BTreeSet::new(),
            counted: 0,
        };
        let mut todo = VecDeque::new();
        flow.begin_lane(&None, 0, &mut todo);
        flow.work(todo, at);
        flow
    }

    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Steps that may begin.
    pub fn ready(&self) -> impl Iterator<Item = &StepPath> {
        self.ready.values()
    }

    /// Busy steps that are to end as soon as they can.
    pub fn stopping(&self) -> impl Iterator<Item = &StepPath> {
        self.stopping.iter()
    }

    /// Steps that wait until what they did is undone.
    pub fn undoing(&self) -> impl Iterator<Item = &StepPath> {
        self.undoing.iter()
    }

    /// How the whole ended, if it has.
    pub fn fate(&self) -> Option<&Fate> {
        self.fate.as_ref()
    }

    /// It goes to its end: nothing new begins.
    pub fn is_closing(&self) -> bool {
        self.root.closing.is_some()
    }

    /// When the next step's time is up.
    pub fn next_deadline(&self) -> Option<(Timestamp, &StepPath)> {
        self.timers.first().map(|(at, step)| (*at, step))
    }

    pub fn node(&self, step: &StepPath) -> Option<NodeId> {
        self.places.get(step).map(|place| place.node)
    }

    /// Which item of each map around a step it belongs to, outermost first.
    pub fn items(&self, step: &StepPath) -> Option<&[u32]> {
        self.places.get(step).map(|place| &*place.items)
    }

    pub fn progress(&self, step: &StepPath) -> Option<Progress<'_>> {
        Some(match &self.places.get(step)?.state {
            State::Blocked => Progress::Blocked,
            State::Ready(_) => Progress::Ready,
            State::Busy { stop: None, .. } => Progress::Busy,
            State::Busy { .. } => Progress::Stopping,
            State::Open(_) => Progress::Open,
            State::Undoing(_) => Progress::Undoing,
            State::Ended(fate) => Progress::Ended(fate),
        })
    }

    /// Where the step `node` stands for a step with these items.
    pub fn path(&self, node: NodeId, items: &[u32]) -> StepPath {
        path(&self.plan, node, items)
    }

    /// Whether `step` is `scope` or inside of it.
    pub fn is_within(&self, step: &StepPath, scope: &StepPath) -> bool {
        let mut at = Some(step);
        while let Some(path) = at {
            if path == scope {
                return true;
            }
            at = self.places.get(path).and_then(|place| place.within.as_ref());
        }
        false
    }

    /// Whether one more effect fits into every bound around `step`.
    pub fn admits_effect(&self, step: &StepPath) -> Result<(), BudgetReached> {
        let reached = |effects_max: Option<u64>, open: &Open| effects_max.filter(|max| open.effects >= *max);
        let mut within = self.places.get(step).and_then(|place| place.within.as_ref());
        while let Some(path) = within {
            let place = &self.places[path];
            if let (Shape::Scope { effects_max, .. }, State::Open(open)) = (&self.plan.node(place.node).shape, &place.state)
                && let Some(effects_max) = reached(*effects_max, open)
            {
                return Err(BudgetReached { scope: Some(path.clone()), effects_max });
            }
            within = place.within.as_ref();
        }
        reached(self.effects_max, &self.root).map_or(Ok(()), |effects_max| Err(BudgetReached { scope: None, effects_max }))
    }

    pub fn apply(&mut self, entry: &RunEntry) -> Result<(), FlowError> {
        match entry {
            RunEntry::StepBegan { at, step, what } => self.began(step, what, *at),
            RunEntry::StepEnded { at, step, how } => self.step_ended(step, how, *at),
            RunEntry::TimedOut { at, step: Some(step) } => self.stop(step, Why::TimedOut, false, *at),
            RunEntry::CancelAsked { at, step: Some(step), undo, .. } => self.stop(step, Why::Cancelled, *undo, *at),
            RunEntry::TimedOut { at, step: None } => {
                let failure = Failure::new("run_timeout", "the run took longer than its timeout allows");
                self.close_whole(Fate::Failed(failure), *at);
                Ok(())
            }
            RunEntry::CancelAsked { at, step: None, .. } => {
                self.close_whole(Fate::Cancelled, *at);
                Ok(())
            }
            RunEntry::Confirmed(confirmed) if confirmed.judged() == Judgement::Fails => {
                self.fail_whole(confirmed.failure(), confirmed.at);
                Ok(())
            }
            // What a person says about it, the run knows to be a failure or not.
            RunEntry::ConfirmDecided { .. }
            | RunEntry::Confirmed(_)
            | RunEntry::RunStarted(_)
            | RunEntry::Owned { .. }
            | RunEntry::Parked { .. }
            | RunEntry::Signalled(_)
            | RunEntry::Stirred { .. }
            | RunEntry::FinishAsked { .. }
            | RunEntry::CompensationTriggered { .. }
            | RunEntry::CompensationCompleted { .. }
            | RunEntry::CompensationFailed { .. }
            | RunEntry::RunEnded { .. } => Ok(()),
        }
    }

    /// All that `scope` did is undone, as far as it could be: what follows it may run.
    pub fn undone(&mut self, scope: &StepPath, at: Timestamp) {
        let Some(Place { state: State::Undoing(fate), .. }) = self.places.get(scope) else { return };
        let fate = fate.clone();
        self.undoing.remove(scope);
        self.work(VecDeque::from([Event::Ended(scope.clone(), fate, None)]), at);
    }

    fn began(&mut self, step: &StepPath, what: &Began, at: Timestamp) -> Result<(), FlowError> {
        let place = self.places.get(step).ok_or_else(|| FlowError::Unknown(step.clone()))?;
        let State::Ready(number) = place.state else { return Err(illegal(step, place, "step_began")) };
        if self.plan.node(place.node).maps != matches!(what, Began::Map { .. }) {
            return Err(illegal(step, place, "the beginning of another kind of step"));
        }
        self.ready.remove(&number);
        if let Began::Map { items } = what {
            let todo = self.open(step, items.len() as u32, at);
            self.work(todo, at);
            return Ok(());
        }
        match what {
            Began::Effect { pure: false, .. } => self.touched(step, 1),
            Began::Child { .. } => self.touched(step, 0),
            _ => {}
        }
        let place = self.places.get_mut(step).expect("it was found");
        let deadline = self.plan.node(place.node).timeout.map(|timeout| at + timeout);
        place.state = State::Busy { deadline, stop: None };
        self.timers.extend(deadline.map(|deadline| (deadline, step.clone())));
        Ok(())
    }

    /// `step` began so many effects.
    fn touched(&mut self, step: &StepPath, effects: u64) {
        let mut within = self.places[step].within.clone();
        self.root.effects += effects;
        while let Some(path) = within {
            let place = self.places.get_mut(&path).expect("what a step is inside of is known");
            if let State::Open(open) = &mut place.state {
                open.effects += effects;
                open.touched = true;
            }
            within = place.within.clone();
        }
    }

    fn step_ended(&mut self, step: &StepPath, how: &StepEnd, at: Timestamp) -> Result<(), FlowError> {
        let place = self.places.get(step).ok_or_else(|| FlowError::Unknown(step.clone()))?;
        let timed_out = || Failure::new("step_timeout", "the step took longer than its timeout allows");
        let fate = match (&place.state, how) {
            (State::Ready(_) | State::Busy { stop: None, .. }, StepEnd::Done { .. }) => Fate::Done,
            // It came after all; the step had been given up by then.
            (State::Busy { stop: Some(Why::TimedOut), .. }, _) => Fate::Failed(timed_out()),
            (State::Busy { stop: Some(Why::Cancelled), .. }, _) => Fate::Cancelled,
            (State::Ready(_) | State::Busy { .. }, StepEnd::Failed { failure, .. }) => Fate::Failed(failure.clone()),
            (State::Ready(_) | State::Busy { .. }, StepEnd::Cancelled { .. }) => Fate::Cancelled,
            _ => return Err(illegal(step, place, "step_ended")),
        };
        let way = if let StepEnd::Done { way, .. } = how { *way } else { None };
        self.work(VecDeque::from([Event::Ended(step.clone(), fate, way)]), at);
        Ok(())
    }

    /// Stops one step, with all that is inside it. One that has ended stays as it is.
    fn stop(&mut self, step: &StepPath, why: Why, undo: bool, at: Timestamp) -> Result<(), FlowError> {
        let place = self.places.get_mut(step).ok_or_else(|| FlowError::Unknown(step.clone()))?;
        let fate = match why {
            Why::Cancelled => Fate::Cancelled,
            Why::TimedOut => Fate::Failed(Failure::new("step_timeout", "the step took longer than its timeout allows")),
        };
        let mut todo = VecDeque::new();
        match &mut place.state {
            State::Blocked | State::Ready(_) => todo.push_back(Event::Ended(step.clone(), fate, None)),
            State::Busy { stop: stopped @ None, .. } => {
                *stopped = Some(why);
                self.stopping.insert(step.clone());
                self.forget_timer(step);
            }
            State::Open(open) => {
                open.undo |= undo;
                self.forget_timer(step);
                self.close(&Some(step.clone()), fate, &mut todo);
            }
            State::Busy { .. } | State::Undoing(_) | State::Ended(_) => {}
        }
        self.work(todo, at);
        Ok(())
    }

    /// The whole goes no further.
    pub fn fail_whole(&mut self, failure: Failure, at: Timestamp) {
        self.close_whole(Fate::Failed(failure), at);
    }

    fn close_whole(&mut self, fate: Fate, at: Timestamp) {
        let mut todo = VecDeque::new();
        self.close(&None, fate, &mut todo);
        self.work(todo, at);
    }

    /// Follows what one change leads to, until nothing more does. A list and no recursion: ten thousand skipped steps are no deeper than one.
    fn work(&mut self, mut todo: VecDeque<Event>, at: Timestamp) {
        while let Some(event) = todo.pop_front() {
            match event {
                Event::Ended(step, fate, way) => self.ended(&step, fate, way, &mut todo),
                Event::Unblocked(step) => self.unblocked(&step, at, &mut todo),
                Event::NextLane(step) => self.next_lane(&step, &mut todo),
                Event::Emptied(step) => self.emptied(&step, &mut todo),
            }
        }
    }

    fn ended(&mut self, step: &StepPath, fate: Fate, way: Option<u32>, todo: &mut VecDeque<Event>) {
        self.forget_timer(step);
        self.stopping.remove(step);
        let place = self.places.get_mut(step).expect("a step that ends is known");
        if let State::Ended(_) = place.state {
            return; // several things may have led to it
        }
        if let State::Ready(number) = place.state {
            self.ready.remove(&number);
        }
        place.state = State::Ended(fate.clone());
        let (node, within, lane, items) = (place.node, place.within.clone(), place.lane, place.items.clone());
        let open = self.opened(&within);
        open.live -= 1;
        let Some(around) = open.lanes.get_mut(&lane) else {
            // Its branch was given up, or all that is around it.
            todo.push_back(Event::Emptied(within));
            return;
        };
        around.remaining -= 1;
        let lane_over = around.remaining == 0;
        let plan = self.plan.clone();
        match fate {
            Fate::Failed(failure) if plan.node(node).on_failure == OnFailure::Fail => self.lost(&within, lane, failure, todo),
            _ => {
                for skipped in way.and_then(|way| plan.node(node).skips.get(way as usize)).into_iter().flatten() {
                    if let Some(place) = self.places.get_mut(&path(&plan, *skipped, &items)) {
                        place.skipped = true;
                    }
                }
                for dependent in &plan.node(node).dependents {
                    let path = path(&plan, *dependent, &items);
                    let place = self.places.get_mut(&path).expect("it is in the same block");
                    place.waiting -= 1;
                    if place.waiting == 0 {
                        todo.push_back(Event::Unblocked(path));
                    }
                }
                if lane_over {
                    self.opened(&within).lanes.remove(&lane);
                    self.opened(&within).done += 1;
                    todo.push_back(Event::NextLane(within.clone()));
                }
            }
        }
        todo.push_back(Event::Emptied(within));
    }

    /// All it needs have ended.
    fn unblocked(&mut self, step: &StepPath, at: Timestamp, todo: &mut VecDeque<Event>) {
        let place = self.places.get_mut(step).expect("a step that is unblocked is known");
        let State::Blocked = place.state else { return };
        if place.skipped {
            todo.push_back(Event::Ended(step.clone(), Fate::Skipped, None));
            return;
        }
        match &self.plan.node(place.node).shape {
            Shape::Act | Shape::Map { .. } => {
                self.counted += 1;
                place.state = State::Ready(self.counted);
                self.ready.insert(self.counted, step.clone());
            }
            Shape::Parallel { branches, .. } => {
                let count = branches.len() as u32;
                todo.append(&mut self.open(step, count, at));
            }
            Shape::Scope { .. } => todo.append(&mut self.open(step, 1, at)),
        }
    }

    /// Opens a step with others inside: so many branches or items.
    fn open(&mut self, step: &StepPath, total: u32, at: Timestamp) -> VecDeque<Event> {
        let place = self.places.get_mut(step).expect("a step that opens is known");
        let deadline = self.plan.node(place.node).timeout.map(|timeout| at + timeout);
        place.state = State::Open(Box::new(Open { total, deadline, ..Open::default() }));
        self.timers.extend(deadline.map(|deadline| (deadline, step.clone())));
        VecDeque::from([Event::NextLane(Some(step.clone()))])
    }

    /// Begins branches or items as long as there may be more at once; ends the step when enough have ended well.
    fn next_lane(&mut self, step: &Option<StepPath>, todo: &mut VecDeque<Event>) {
        let plan = self.plan.clone();
        let node = step.as_ref().map(|step| plan.node(self.places[step].node));
        let (at_once, enough) = match node.map(|node| &node.shape) {
            Some(Shape::Map { at_once, .. }) => (*at_once, None),
            Some(Shape::Parallel { join: Join::Some(n), .. }) => (u32::MAX, Some(*n)),
            _ => (u32::MAX, None),
        };
        let open = self.opened(step);
        if open.closing.is_some() {
            return;
        }
        if open.done >= enough.unwrap_or(open.total) {
            self.close(step, Fate::Done, todo);
            return;
        }
        while {
            let open = self.opened(step);
            open.begun < open.total && (open.lanes.len() as u32) < at_once
        } {
            let lane = self.opened(step).begun;
            self.begin_lane(step, lane, todo);
        }
    }

    fn begin_lane(&mut self, within: &Option<StepPath>, lane: u32, todo: &mut VecDeque<Event>) {
        let plan = self.plan.clone();
        let (block, items): (BlockId, Arc<[u32]>) = match within {
            None => (Plan::ROOT, Arc::from([])),
            Some(step) => {
                let place = &self.places[step];
                match &plan.node(place.node).shape {
                    Shape::Parallel { branches, .. } => (branches[lane as usize], place.items.clone()),
                    Shape::Map { body, .. } => (*body, place.items.iter().copied().chain([lane]).collect()),
                    Shape::Scope { body, .. } => (*body, place.items.clone()),
                    Shape::Act => unreachable!("nothing is inside such a step"),
                }
            }
        };
        let nodes = &plan.block(block).nodes;
        let mut steps = Vec::with_capacity(nodes.len());
        for node in nodes {
            let step = path(&plan, *node, &items);
            let waiting = plan.node(*node).needs.len() as u32;
            let place =
                Place { node: *node, within: within.clone(), lane, items: items.clone(), waiting, skipped: false, state: State::Blocked };
            self.places.insert(step.clone(), place);
            if waiting == 0 {
                todo.push_back(Event::Unblocked(step.clone()));
            }
            steps.push(step);
        }
        let open = self.opened(within);
        open.begun += 1;
        open.live += steps.len() as u32;
        open.lanes.insert(lane, Lane { remaining: steps.len() as u32, steps });
    }

    /// A branch or an item failed.
    fn lost(&mut self, step: &Option<StepPath>, lane: u32, failure: Failure, todo: &mut VecDeque<Event>) {
        let join = step.as_ref().map(|step| &self.plan.node(self.places[step].node).shape);
        let enough = if let Some(Shape::Parallel { join: Join::Some(n), .. }) = join { Some(*n) } else { None };
        let open = self.opened(step);
        open.lost += 1;
        match enough {
            Some(enough) if open.total - open.lost >= enough => {
                let given_up = open.lanes.remove(&lane).map(|lane| lane.steps).unwrap_or_default();
                self.give_up(given_up, todo);
            }
            _ => self.close(step, Fate::Failed(failure), todo),
        }
    }

    /// Ends what is inside; the step itself ends when the last of it has.
    fn close(&mut self, step: &Option<StepPath>, fate: Fate, todo: &mut VecDeque<Event>) {
        let open = self.opened(step);
        if open.closing.is_some() {
            return;
        }
        open.closing = Some(fate);
        let lanes = std::mem::take(&mut open.lanes);
        self.give_up(lanes.into_values().flat_map(|lane| lane.steps).collect(), todo);
        todo.push_back(Event::Emptied(step.clone()));
    }

    fn give_up(&mut self, steps: Vec<StepPath>, todo: &mut VecDeque<Event>) {
        for step in steps {
            match &mut self.places.get_mut(&step).expect("it is inside").state {
                State::Blocked | State::Ready(_) => todo.push_back(Event::Ended(step, Fate::Cancelled, None)),
                State::Busy { stop, .. } => {
                    stop.get_or_insert(Why::Cancelled);
                    self.stopping.insert(step.clone());
                    self.forget_timer(&step);
                }
                State::Open(_) => {
                    self.forget_timer(&step);
                    self.close(&Some(step), Fate::Cancelled, todo);
                }
                // What it did is undone by whoever undoes all of this.
                State::Undoing(fate) => {
                    let fate = fate.clone();
                    self.undoing.remove(&step);
                    todo.push_back(Event::Ended(step, fate, None));
                }
                State::Ended(_) => {}
            }
        }
    }

    /// Something inside `step` ended: if it closes and that was the last, it ends too.
    fn emptied(&mut self, step: &Option<StepPath>, todo: &mut VecDeque<Event>) {
        if step.as_ref().is_some_and(|step| !matches!(self.places[step].state, State::Open(_))) {
            return;
        }
        let open = self.opened(step);
        if open.live > 0 {
            return;
        }
        let Some(fate) = open.closing.clone() else { return };
        let (touched, undo) = (open.touched, open.undo);
        let Some(step) = step else {
            self.fate.get_or_insert(fate);
            return;
        };
        self.forget_timer(step);
        let place = self.places.get_mut(step).expect("it is open");
        let goes_on = self.plan.node(place.node).on_failure == OnFailure::Continue;
        if touched && (undo || goes_on && matches!(fate, Fate::Failed(_))) {
            place.state = State::Undoing(fate);
            self.undoing.insert(step.clone());
        } else {
            todo.push_back(Event::Ended(step.clone(), fate, None));
        }
    }

    fn opened(&mut self, step: &Option<StepPath>) -> &mut Open {
        match step {
            None => &mut self.root,
            Some(step) => match &mut self.places.get_mut(step).expect("what a step is inside of is known").state {
                State::Open(open) => open,
                _ => unreachable!("what has live steps inside is open"),
            },
        }
    }

    fn forget_timer(&mut self, step: &StepPath) {
        let deadline = match &self.places[step].state {
            State::Busy { deadline, .. } => *deadline,
            State::Open(open) => open.deadline,
            _ => None,
        };
        if let Some(deadline) = deadline {
            self.timers.remove(&(deadline, step.clone()));
        }
    }
}

/// What one change leads to.
enum Event {
    /// By the way it ended, where it has several.
    Ended(StepPath, Fate, Option<u32>),
    Unblocked(StepPath),
    NextLane(Option<StepPath>),
    Emptied(Option<StepPath>),
}

fn illegal(step: &StepPath, place: &Place, what: &'static str) -> FlowError {
    let is = match place.state {
        State::Blocked => "blocked",
        State::Ready(_) => "ready",
        State::Busy { .. } => "busy",
        State::Open(_) => "open",
        State::Undoing(_) => "undoing",
        State::Ended(_) => "ended",
    };
    FlowError::Illegal { step: step.clone(), is, what }
}

/// `each[3].upload`: the maps around a step with the item of each, then its id.
fn path(plan: &Plan, node: NodeId, items: &[u32]) -> StepPath {
    let id = &plan.node(node).id;
    if items.is_empty() {
        return StepPath::new(id).expect("a plan's ids are names");
    }
    let mut maps: Vec<NodeId> = plan.around(node).filter(|n| plan.node(*n).maps).collect();
    maps.reverse();
    let around: String = maps.iter().zip(items).map(|(map, item)| format!("{}[{item}].", plan.node(*map).id)).collect();
    StepPath::new(&format!("{around}{id}")).expect("ids and depth are bounded: the longest path is a name")
}
