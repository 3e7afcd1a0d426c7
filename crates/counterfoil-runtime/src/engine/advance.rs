//! As far as a run comes without anyone else: decisions, sleeps, waits, lists, time that is up, ends. What needs a tool or a child is named, and begins
//! when this is recorded.

use counterfoil_core::run::entry::{Awaited, Began, RunEnd, RunEntry, StepEnd};
use counterfoil_core::run::flow::{Fate, Progress};
use counterfoil_core::run::{Run, RunFoldError};
use counterfoil_core::{Failure, Json, RunId, StepPath, Timestamp};

use super::sight::seen;
use super::step::{NotNow, Prepared};
use super::unwind::THE_RUN;
use crate::config::units;
use crate::runtime::Runtime;
use crate::template::Expr;
use crate::workflow::{Nap, StepSpec, Wait, WaitFor, Workflow};

/// Items of one map. Each is some steps in memory.
const ITEMS_MAX: usize = 100_000;

/// What follows from what is recorded.
#[derive(Default)]
pub(crate) struct Advanced {
    pub entries: Vec<RunEntry>,
    pub calls: Vec<Prepared>,
    /// Runs that steps start.
    pub children: Vec<(StepPath, RunId)>,
    /// Steps that cannot begin here, and why.
    pub barred: Vec<(StepPath, String)>,
}

/// Notes all that follows in `run`.
pub(crate) fn advance(runtime: &Runtime, run: &mut Run, workflow: &Workflow, now: Timestamp) -> Result<Advanced, RunFoldError> {
    let mut advancing = Advancing { runtime, workflow, now, said: Advanced::default() };
    if run.end.is_some() {
        return Ok(advancing.said);
    }
    loop {
        let before = advancing.said.entries.len();
        advancing.time(run)?;
        advancing.stop(run)?;
        advancing.signals(run)?;
        advancing.begin(run)?;
        advancing.end(run)?;
        if advancing.said.entries.len() == before || run.end.is_some() {
            return Ok(advancing.said);
        }
    }
}

struct Advancing<'a> {
    runtime: &'a Runtime,
    workflow: &'a Workflow,
    now: Timestamp,
    said: Advanced,
}

impl Advancing<'_> {
    fn note(&mut self, run: &mut Run, entry: RunEntry) -> Result<(), RunFoldError> {
        run.note(&entry)?;
        self.said.entries.push(entry);
        Ok(())
    }

    fn began(&mut self, run: &mut Run, step: StepPath, what: Began) -> Result<(), RunFoldError> {
        self.note(run, RunEntry::StepBegan { at: self.now, step, what })
    }

    fn ended(&mut self, run: &mut Run, step: StepPath, how: StepEnd) -> Result<(), RunFoldError> {
        self.note(run, RunEntry::StepEnded { at: self.now, step, how })
    }

    fn failed(&mut self, run: &mut Run, step: StepPath, failure: Failure) -> Result<(), RunFoldError> {
        self.ended(run, step, StepEnd::Failed { failure, doubt: false })
    }

    /// What time made true.
    fn time(&mut self, run: &mut Run) -> Result<(), RunFoldError> {
        let closing = |run: &Run| run.flow().is_some_and(|flow| flow.is_closing());
        if run.started.deadline.is_some_and(|deadline| deadline <= self.now) && !closing(run) {
            self.note(run, RunEntry::TimedOut { at: self.now, step: None })?;
        }
        while let Some((at, step)) = run.flow().and_then(|flow| flow.next_deadline())
            && at <= self.now
        {
            let step = step.clone();
            self.note(run, RunEntry::TimedOut { at: self.now, step: Some(step) })?;
        }
        while let Some((at, step)) = run.next_alarm()
            && at <= self.now
        {
            let step = step.clone();
            match run.step(&step).and_then(|known| known.what.clone()) {
                Some(Began::Wait { on, .. }) if run.signal_for(&step, &on).is_none() => self.missed(run, step, &on)?,
                Some(Began::Wait { on, .. }) => self.came(run, step, &on)?,
                _ => self.ended(run, step, StepEnd::Done { result: Json::null(), way: None, undo: false })?,
            }
        }
        Ok(())
    }

    /// What sleeps or waits stops at once.
    fn stop(&mut self, run: &mut Run) -> Result<(), RunFoldError> {
        let idle = |run: &Run, step: &StepPath| {
            matches!(run.step(step).and_then(|known| known.what.as_ref()), Some(Began::Sleep { .. } | Began::Wait { .. }))
        };
        let stopping: Vec<StepPath> =
            run.flow().into_iter().flat_map(|flow| flow.stopping()).filter(|step| idle(run, step)).cloned().collect();
        for step in stopping {
            self.ended(run, step, StepEnd::Cancelled { doubt: false })?;
        }
        Ok(())
    }

    fn signals(&mut self, run: &mut Run) -> Result<(), RunFoldError> {
        if run.signals.is_empty() {
            return Ok(());
        }
        let waiting: Vec<(StepPath, Awaited)> = run
            .running
            .iter()
            .filter(|step| run.flow().and_then(|flow| flow.progress(step)) == Some(Progress::Busy))
            .filter_map(|step| match &run.step(step)?.what {
                Some(Began::Wait { on, .. }) => Some((step.clone(), on.clone())),
                _ => None,
            })
            .collect();
        for (step, on) in waiting {
            // One signal may have ended what is around another step.
            let still = run.flow().and_then(|flow| flow.progress(&step)) == Some(Progress::Busy);
            if still && run.signal_for(&step, &on).is_some() {
                self.came(run, step, &on)?;
            }
        }
        Ok(())
    }

    /// What a step waited for is there.
    fn came(&mut self, run: &mut Run, step: StepPath, on: &Awaited) -> Result<(), RunFoldError> {
        let signal = run.signal_for(&step, on).expect("it was found").clone();
        let denied = matches!(on, Awaited::Approval { .. }) && signal.payload.to_value()["approved"] != true;
        let way = self.ways(run, &step, 1).then_some(0);
        match denied {
            false => self.ended(run, step, StepEnd::Done { result: signal.payload, way, undo: false }),
            true if self.ways(run, &step, 2) => self.ended(run, step, StepEnd::Done { result: signal.payload, way: Some(1), undo: false }),
            true => {
                let why = signal.payload.to_value()["why"].as_str().unwrap_or_default().to_owned();
                let failure = Failure::new("approval_denied", format!("{} said no: {why}", signal.by));
                self.failed(run, step, failure)
            }
        }
    }

    /// It did not come in time.
    fn missed(&mut self, run: &mut Run, step: StepPath, on: &Awaited) -> Result<(), RunFoldError> {
        if self.ways(run, &step, 2) {
            return self.ended(run, step, StepEnd::Done { result: Json::null(), way: Some(1), undo: false });
        }
        let failure = match on {
            Awaited::Signal { name, .. } => Failure::new("wait_timeout", format!("no signal {name:?} came in time")),
            Awaited::Approval { .. } => Failure::new("approval_denied", "nobody approved it in time"),
        };
        self.failed(run, step, failure)
    }

    /// Whether the step has so many ways to end.
    fn ways(&self, run: &Run, step: &StepPath, count: usize) -> bool {
        let node = run.flow().and_then(|flow| flow.node(step));
        node.is_some_and(|node| self.workflow.plan.node(node).skips.len() >= count)
    }

    fn begin(&mut self, run: &mut Run) -> Result<(), RunFoldError> {
        let barred = |said: &Advanced, step: &StepPath| said.barred.iter().any(|(known, _)| known == step);
        let ready: Vec<StepPath> = run.flow().into_iter().flat_map(|flow| flow.ready()).cloned().collect();
        for step in ready {
            // What one step does may end another.
            let still = run.flow().and_then(|flow| flow.progress(&step)) == Some(Progress::Ready);
            if still && !barred(&self.said, &step) {
                self.begin_one(run, step)?;
            }
        }
        Ok(())
    }

    fn begin_one(&mut self, run: &mut Run, step: StepPath) -> Result<(), RunFoldError> {
        let workflow = self.workflow;
        let node = run.flow().and_then(|flow| flow.node(&step)).expect("a step that is ready is in the plan");
        let wrong = |what: &str, error: String| Failure::new("expression_failed", format!("{what}: {error}"));
        match workflow.step(node) {
            StepSpec::Tool(spec) => self.call(run, step, spec),
            StepSpec::Decision { when } => match expected_way(run, workflow, &step, when) {
                Ok(Some(way)) => {
                    let result = Json::from_value(&serde_json::json!(way));
                    self.ended(run, step, StepEnd::Done { result, way: Some(way), undo: false })
                }
                Ok(None) => self.failed(run, step, Failure::new("no_way_chosen", "no condition held, and there is no else")),
                Err(error) => self.failed(run, step, wrong("its condition", error)),
            },
            StepSpec::Map { over, .. } => {
                let scope = seen(run, workflow, Some(&step), &over.exprs()).scope();
                match over.render_json(&scope).map_err(|error| error.to_string()).and_then(|text| listed(&text)) {
                    Ok(items) => self.began(run, step, Began::Map { items }),
                    Err(error) => self.failed(run, step, wrong("what it maps over", error)),
                }
            }
            StepSpec::Sleep(nap) => match self.nap(run, &step, nap) {
                Ok(until) => self.began(run, step, Began::Sleep { until }),
                Err(error) => self.failed(run, step, wrong("how long it sleeps", error)),
            },
            StepSpec::Wait(wait) => match self.awaited(run, &step, wait) {
                Ok(on) => {
                    let until = wait.timeout.map(|timeout| self.now + timeout);
                    self.began(run, step, Began::Wait { on, until })
                }
                Err(error) => self.failed(run, step, wrong("what it waits for", error)),
            },
            StepSpec::Call { .. } => {
                let child = child_id(&run.started.run, &step);
                self.said.children.push((step.clone(), child.clone()));
                self.began(run, step, Began::Child { run: child })
            }
            StepSpec::Parallel | StepSpec::Scope { .. } => unreachable!("such a step opens by itself"),
        }
    }

    fn call(&mut self, run: &mut Run, step: StepPath, spec: &crate::workflow::ToolStep) -> Result<(), RunFoldError> {
        let prepared = match self.runtime.prepare(run, self.workflow, &step, spec) {
            Ok(prepared) => prepared,
            Err(NotNow::Failed(failure)) => return self.failed(run, step, failure),
            Err(NotNow::NotHere(tool)) => {
                self.said.barred.push((step, format!("the tool {tool} is not registered here")));
                return Ok(());
            }
        };
        let pure = prepared.task.tool.is_pure();
        if !pure && let Err(reached) = run.flow().expect("a workflow's run has a flow").admits_effect(&step) {
            let whose = reached.scope.map_or("the run's".to_owned(), |scope| format!("that of {scope}"));
            let message = format!("the budget of {} effects is spent: {whose}", reached.effects_max);
            return self.failed(run, step, Failure::new("budget_exceeded", message));
        }
        let what = Began::Effect { tool: spec.tool.clone(), key: prepared.task.key, pure };
        self.said.calls.push(prepared);
        self.began(run, step, what)
    }

    fn nap(&self, run: &Run, step: &StepPath, nap: &Nap) -> Result<Timestamp, String> {
        let length = match nap {
            Nap::For(length) => *length,
            Nap::Until(expr) => {
                let value = expr.eval(&seen(run, self.workflow, Some(step), &[expr]).scope()).map_err(|error| error.to_string())?;
                match &value {
                    serde_json::Value::String(text) => units::duration(text).map_err(|unreadable| unreadable.why)?,
                    serde_json::Value::Number(seconds) => {
                        let seconds = seconds.as_f64().unwrap_or(f64::NAN);
                        std::time::Duration::try_from_secs_f64(seconds).map_err(|_| "it gives a number that is no duration".to_owned())?
                    }
                    _ => return Err("it gives neither a text like 90s nor a number of seconds".into()),
                }
            }
        };
        Ok(self.now + length)
    }

    fn awaited(&self, run: &Run, step: &StepPath, wait: &Wait) -> Result<Awaited, String> {
        let text = |template: &crate::template::TextTemplate| {
            template.render(&seen(run, self.workflow, Some(step), &template.exprs()).scope()).map_err(|error| error.to_string())
        };
        Ok(match &wait.on {
            WaitFor::Signal { name, correlation } => {
                Awaited::Signal { name: name.clone(), correlation: correlation.as_ref().map(text).transpose()? }
            }
            WaitFor::Approval { message } => Awaited::Approval { message: text(message)? },
        })
    }

    /// The ends of scopes and of the whole.
    fn end(&mut self, run: &mut Run) -> Result<(), RunFoldError> {
        let undoing: Vec<StepPath> = run.flow().into_iter().flat_map(|flow| flow.undoing()).cloned().collect();
        for scope in undoing {
            let known = run.sagas.iter().any(|saga| saga.scope.as_ref() == Some(&scope));
            if !known {
                let of = run.to_undo(Some(&scope));
                let why = format!("{scope} did not go through, and the run goes on without it");
                self.note(run, RunEntry::CompensationTriggered { at: self.now, scope: Some(scope), by: THE_RUN.into(), why, of })?;
            }
        }
        let Some(fate) = run.fate().cloned() else { return Ok(()) };
        let undo = match &fate {
            Fate::Failed(_) => true,
            Fate::Cancelled => run.cancel.as_ref().is_some_and(|cancel| cancel.undo),
            Fate::Done | Fate::Skipped => false,
        };
        let triggered = run.sagas.iter().any(|saga| saga.scope.is_none());
        if undo && !triggered {
            let of = run.to_undo(None);
            if !of.is_empty() {
                let (by, why) = match (&fate, &run.cancel) {
                    (Fate::Failed(failure), _) => (THE_RUN.into(), format!("it failed: {}", failure.message)),
                    (_, Some(cancel)) => (cancel.by.clone(), cancel.why.clone()),
                    _ => (THE_RUN.into(), "it was cancelled".into()),
                };
                return self.note(run, RunEntry::CompensationTriggered { at: self.now, scope: None, by, why, of });
            }
        }
        if run.saga().is_some() {
            return Ok(());
        }
        let how = match fate {
            Fate::Done | Fate::Skipped => match self.output(run) {
                Ok(output) => RunEnd::Completed { output },
                // What was done stands: there is but nothing to show for it.
                Err(error) => RunEnd::Failed { failure: Failure::new("expression_failed", format!("its output: {error}")) },
            },
            Fate::Failed(failure) => RunEnd::Failed { failure },
            Fate::Cancelled => RunEnd::Cancelled,
        };
        self.note(run, RunEntry::RunEnded { at: self.now, how })
    }

    fn output(&self, run: &Run) -> Result<Json, String> {
        let Some(output) = &self.workflow.output else { return Ok(Json::null()) };
        let text = output.render_json(&seen(run, self.workflow, None, &output.exprs()).scope()).map_err(|error| error.to_string())?;
        Json::parse(&text).map_err(|error| error.to_string())
    }
}

/// The first way of a decision whose condition holds.
pub(super) fn expected_way(run: &Run, workflow: &Workflow, step: &StepPath, when: &[Option<Expr>]) -> Result<Option<u32>, String> {
    let exprs: Vec<&Expr> = when.iter().flatten().collect();
    let scope = seen(run, workflow, Some(step), &exprs).scope();
    for (way, condition) in (0..).zip(when) {
        let holds = condition.as_ref().map_or(Ok(true), |expr| expr.eval_bool(&scope)).map_err(|error| error.to_string())?;
        if holds {
            return Ok(Some(way));
        }
    }
    Ok(None)
}

fn listed(text: &str) -> Result<Vec<Json>, String> {
    let items: Vec<Json> = serde_json::from_str(text).map_err(|_| "it gives no list".to_owned())?;
    match items.len() {
        many if many > ITEMS_MAX => Err(format!("it gives {many} items; at most {ITEMS_MAX} are allowed")),
        _ => Ok(items),
    }
}

/// The same each time it is asked for: a step has one child.
fn child_id(run: &RunId, step: &StepPath) -> RunId {
    let plain = format!("{run}/{step}");
    RunId::new(&plain).unwrap_or_else(|_| {
        let digest = counterfoil_core::ids::Digest32::of(plain.as_bytes());
        RunId::new(&format!("child-{digest}")).expect("hex digits are a name")
    })
}
