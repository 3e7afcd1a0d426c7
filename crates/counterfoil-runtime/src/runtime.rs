//! `Runtime::call`: the whole story on one screen (`drive`).
//!
//! Load, decide, do, record; again until there is an answer. The same loop serves a live call, a retry, a recovered effect and an undo: there is no
//! second path. Work that has begun is not cancelled by a caller that goes away.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use counterfoil_core::call::{Family, Identity, MissingKeyArgument};
use counterfoil_core::decide::Attempt;
use counterfoil_core::effect::{State, WorldSemantics};
use counterfoil_core::entry::{Entry, Opened};
use counterfoil_core::limit::Place;
use counterfoil_core::redact::{Salt, redact_args};
use counterfoil_core::retry::Series;
use counterfoil_core::summary::StreamKind;
use counterfoil_core::{
    Call, CanonicalJson, Conditions, Decision, Effect, EffectKey, Fence, Fingerprint, Outcome, Tenant, Timestamp, ToolName, TraceContext,
    decide,
};
use counterfoil_store::{StoreError, Version, Written};
use tokio::sync::OnceCell;
use tracing::Instrument;

use crate::answer::{Answer, AnswerError, Ending, Status};
use crate::budget;
use crate::clock::Clock;
use crate::conclude::{self, Concluding};
use crate::execute;
use crate::fresh::{Fresh, unguessable};
use crate::gate::Gates;
use crate::heartbeat::Heartbeat;
use crate::ledger::{Glance, Ledger, LedgerError, plain_summary};
use crate::lend::{self, Lending};
use crate::liveness::Liveness;
use crate::mode::{Configured, Mode, Modes, Stopped};
use crate::observe::{Meters, Served, ToolMeters, decision_word};
use crate::registry::{Registered, Registry};
use crate::reports::Reports;
use crate::tool::{self, Invocation, Runs, Stop};
use crate::trace::{self, CallContext};
use crate::undropped::Undropped;

/// Embeds the whole of Counterfoil. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub ledger: Arc<Ledger>,
    pub tools: Registry,
    pub gates: Gates,
    pub clock: Arc<dyn Clock>,
    pub heartbeat: Heartbeat,
    pub liveness: Liveness,
    pub modes: Modes,
    pub meters: Arc<Meters>,
    reports: Reports,
    pub fresh: Fresh,
    salt: OnceCell<Salt>,
    /// Whether a call that comes without a trace begins one.
    begins_traces: AtomicBool,
    /// Told of; see [`Runtime::know_tenants`].
    tenants: Mutex<BTreeSet<Tenant>>,
}

/// One call on its way: what was asked, and what is known of it.
pub(crate) struct Task {
    pub tool: Arc<Registered>,
    pub call: Call,
    /// The arguments as they are stored.
    pub stored: CanonicalJson,
    /// Of the arguments as they are stored.
    pub fingerprint: Fingerprint,
    pub key: EffectKey,
    /// The newest generation of a family of equal calls, and its stream's version.
    pub family: Option<(Family, Version)>,
    pub series: Series,
    /// How long to wait for someone else.
    pub wait_until: Timestamp,
    pub runnable: bool,
    /// The tool was called, and what came of it is not durable yet.
    pub unrecorded: bool,
    /// As far as the ledger was read: an attempt of the effect may have happened.
    pub doubtful: bool,
    /// A client asks for the permit.
    pub lending: Option<Box<Lending>>,
    /// Where the call stands in its caller's trace.
    pub trace: Option<TraceContext>,
}

/// An answer, and where it came from.
pub(crate) struct Told {
    pub answer: Answer,
    pub served: Served,
}

impl Told {
    fn replayed(answer: Answer) -> Self {
        Self { answer, served: Served::FromLedger }
    }
}

/// Nothing was run for it.
impl From<Answer> for Told {
    fn from(answer: Answer) -> Self {
        Self { answer, served: Served::Otherwise }
    }
}

impl Task {
    /// Boxed: it is passed on from future to future.
    pub fn new(tool: Arc<Registered>, call: Call, stored: CanonicalJson, key: EffectKey, now: Timestamp) -> Box<Self> {
        Box::new(Self {
            fingerprint: stored.fingerprint(),
            series: Series { attempts: 0, probes: 0, deadline: now + tool.policy.deadline },
            wait_until: now + tool.policy.wait_max,
            tool,
            call,
            stored,
            key,
            family: None,
            runnable: true,
            unrecorded: false,
            doubtful: false,
            lending: None,
            trace: None,
        })
    }
}

impl Runtime {
    pub(crate) fn assemble(ledger: Arc<Ledger>, clock: Arc<dyn Clock>, liveness: Liveness, configured: Configured) -> Self {
        let meters = Arc::new(Meters::new());
        let gates = Gates::new(ledger.clone(), clock.clone(), meters.clone());
        let modes = Modes::new(ledger.clone(), clock.clone(), configured);
        let heartbeat = Heartbeat::start(ledger.clone());
        let inner = Inner {
            ledger,
            tools: Registry::default(),
            gates,
            clock,
            heartbeat,
            liveness,
            modes,
            meters,
            reports: Reports::default(),
            fresh: Fresh::new(),
            salt: OnceCell::new(),
            begins_traces: AtomicBool::new(false),
            tenants: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    pub fn register(&self, tool: Registered) {
        self.inner.tools.put(tool);
    }

    pub fn tools(&self) -> Vec<Arc<Registered>> {
        self.inner.tools.all()
    }

    /// The tools of everyone and those that this tenant registered.
    pub fn registry(&self) -> &Registry {
        &self.inner.tools
    }

    /// Waits for reports that could not be recorded at once: a program that ends calls this first. False: some are still not in.
    pub async fn reports_in(&self, within: Duration) -> bool {
        self.inner.reports.all_in(within).await
    }

    /// Whether a worker of this ledger is certainly dead.
    pub fn worker_gone(&self, worker: &counterfoil_core::WorkerId) -> bool {
        self.inner.liveness.gone(worker)
    }

    pub fn ledger(&self) -> &Ledger {
        &self.inner.ledger
    }

    /// From now on a call that comes without a trace begins one: for programs that export traces.
    pub fn begin_traces(&self) {
        self.inner.begins_traces.store(true, Ordering::Relaxed);
    }

    /// Tenants whose open doubts [`crate::observe::scrape`] is to count from the start on. Whoever calls is known by then.
    pub fn know_tenants(&self, tenants: impl IntoIterator<Item = Tenant>) {
        // A set of names: whole at every moment.
        self.inner.tenants.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).extend(tenants);
    }

    /// Asks for a side effect. Same key and arguments: the same answer, and the world is touched at most once on a guess-free path.
    pub async fn call(&self, call: Call) -> Answer {
        self.call_in(CallContext::default(), call).await
    }

    /// The same, with what comes along with the call and is no part of it.
    pub async fn call_in(&self, context: CallContext, call: Call) -> Answer {
        let started = Instant::now();
        let trace = self.inner.below(context.trace.as_ref());
        let span = trace::call_span(&call, context.trace.as_ref(), trace.as_ref());
        let tool = self.inner.tools.get(&call.tenant, &call.tool);
        let meters = tool.as_ref().map_or_else(|| self.inner.meters.other(), |tool| self.inner.meters.of(&tool.name));
        let told = match tool {
            // A span around a future makes room for it once more: not where nobody listens.
            Some(tool) if span.is_disabled() => self.answer(tool, call, trace).await,
            Some(tool) => Box::pin(self.answer(tool, call, trace)).instrument(span.clone()).await,
            None => self.unknown_tool(&call.tenant, &call.tool).into(),
        };
        trace::answered(&span, &told.answer);
        self.counted(&meters, started, told)
    }

    /// An answer that somebody waits for: counted, and with what names this asking of it.
    pub(crate) fn counted(&self, meters: &ToolMeters, started: Instant, told: Told) -> Answer {
        meters.answered(told.answer.status, told.served, started.elapsed());
        self.stamped(started, told.answer)
    }

    /// An answer with what names this asking of it.
    pub(crate) fn stamped(&self, started: Instant, answer: Answer) -> Answer {
        let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        Answer { duration_ms, execution_id: self.execution_id(), ..answer }
    }

    /// A new name for one asking.
    pub fn execution_id(&self) -> String {
        self.inner.fresh.uuid(self.inner.clock.now())
    }

    async fn answer(&self, tool: Arc<Registered>, call: Call, trace: Option<TraceContext>) -> Told {
        if let Err(refused) = fits(&tool, &call, Runs::Here) {
            return (*refused).into();
        }
        let mode = if tool.is_pure() { Mode::Off } else { self.inner.modes.of(&tool.name).await };
        if mode == Mode::Off {
            return Box::pin(self.unrecorded(&tool, &call, trace.as_ref())).await;
        }
        let mut task = match self.task(tool, call).await {
            Ok(task) => task,
            Err(answer) => return (*answer).into(),
        };
        task.trace = trace;
        let effect = match self.look(&task, mode).await {
            Ok(Glance::Whole(effect)) => effect,
            Ok(Glance::Settled(settled)) => return Told::replayed(Answer::replayed(task.key, settled.done)),
            Err(error) => return ledger_answer(&error, None).into(),
        };
        let (task, effect) = match task.family {
            None => (task, effect),
            Some(_) => match Box::pin(self.renew_window(task, effect)).await {
                Ok(renewed) => renewed,
                Err(answer) => return (*answer).into(),
            },
        };
        match mode {
            Mode::Shadow => Box::pin(self.let_through(task, effect)).await,
            _ => self.settle(task, effect).await,
        }
    }

    /// The tool that is asked for, if it is run where it is asked for and the arguments fit it. Nothing is recorded of a refusal.
    pub(crate) fn tool_for(&self, call: &Call, runs: Runs) -> Result<Arc<Registered>, Box<Answer>> {
        let Some(tool) = self.inner.tools.get(&call.tenant, &call.tool) else {
            return Err(Box::new(self.unknown_tool(&call.tenant, &call.tool)));
        };
        fits(&tool, call, runs).map(|()| tool)
    }

    /// `Settled` only where its recorded result is the answer.
    async fn look(&self, task: &Task, mode: Mode) -> Result<Glance, LedgerError> {
        let ledger = &self.inner.ledger;
        // Whether a window is over, or what shadow mode lets through, depends on more than the result.
        if task.family.is_some() || mode == Mode::Shadow {
            return ledger.load(task.key).await.map(Glance::Whole);
        }
        match ledger.glance(task.key).await? {
            Glance::Settled(settled) if !settled.replays(&task.fingerprint, self.inner.clock.now()) => {
                ledger.load(task.key).await.map(Glance::Whole)
            }
            glance => Ok(glance),
        }
    }

    /// Replays at once; anything else goes on to its end, also when the caller goes away half-way.
    pub(crate) fn settle(&self, task: Box<Task>, effect: Effect) -> impl Future<Output = Told> + Send + use<> {
        let going_on = if matches!(self.inner.decide(&task, &effect), Ok(Decision::Replay)) {
            let answer = Answer::from_ending(&effect, Ending::Recorded, self.inner.clock.now());
            Err(Told::replayed(Answer { replayed: true, ..answer }))
        } else {
            Ok(Undropped::new(self.inner.clone().see_through(task, effect)))
        };
        async move {
            match going_on {
                Ok(told) => told.await,
                Err(replayed) => replayed,
            }
        }
    }

    /// For what no live call asks for: recovery, undos, operators. No caller's trace reaches here; it may begin one of its own.
    pub(crate) async fn settle_traced(&self, mut task: Box<Task>, effect: Effect) -> Told {
        let trace = self.inner.below(None);
        let span = trace::call_span(&task.call, None, trace.as_ref());
        task.trace = trace;
        let told = self.settle(task, effect).instrument(span.clone()).await;
        trace::answered(&span, &told.answer);
        told
    }

    /// Shadow mode: a live call is never stopped, only told of. Recovery, undo and operators do not come through here: they always enforce.
    async fn let_through(&self, mut task: Box<Task>, effect: Effect) -> Told {
        let stopped = match self.inner.decide(&task, &effect) {
            Ok(Decision::Execute(_)) => None,
            Ok(decision) => {
                let stopped = match &decision {
                    Decision::Replay => Stopped::Replayed,
                    Decision::Refuse(_) => Stopped::Refused,
                    _ => Stopped::Held,
                };
                Some((stopped, decision_word(&decision)))
            }
            Err(_) => Some((Stopped::Refused, "refuse")),
        };
        if let Some((stopped, decision)) = stopped {
            return self.shadow(&task, stopped, decision, &format!("the effect is {}", effect.state.word())).await;
        }
        let runtime = self.clone();
        Undropped::new(async move {
            match runtime.inner.drive(&mut task, effect).await {
                // Limits and breakers stop nothing either.
                Ok((_, Ending::NotAdmitted(_, error))) => runtime.shadow(&task, Stopped::Refused, &error.code, &error.message).await,
                driven => runtime.inner.dress(&task, driven),
            }
        })
        .await
    }

    /// Finds out which effect the call is.
    pub(crate) async fn task(&self, tool: Arc<Registered>, call: Call) -> Result<Box<Task>, Box<Answer>> {
        let inner = &self.inner;
        let now = inner.clock.now();
        let failed = |error: &LedgerError| Box::new(ledger_answer(error, None));
        let stored = if tool.policy.redact.is_empty() {
            call.args.clone()
        } else {
            redact_args(&call.args, &tool.policy.redact, &inner.salt(&call.tenant).await.map_err(|e| failed(&e))?)
        };
        // Identity is taken from what is stored, so that it can be checked from the ledger alone.
        let identity = call.identity(&stored, &tool.policy).map_err(|MissingKeyArgument { path }| {
            let message = format!("the key of {} is made from the argument {path:?}, which the call does not have", tool.name);
            Box::new(Answer::refused("invalid_arguments", message))
        })?;
        let (key, family) = match identity {
            Identity::Fixed(key) => (key, None),
            Identity::Fresh => (call.fresh_key(&self.inner.fresh.nonce()), None),
            Identity::Windowed(family) => {
                let (generation, _) = inner.ledger.newest::<u64>(family.stream()).await.map_err(|e| failed(&e))?;
                (family.key(generation.0), Some((family, generation)))
            }
        };
        let mut task = Task::new(tool, call, stored, key, now);
        task.family = family;
        Ok(task)
    }

    /// A windowed call whose last equal call ended too long ago is a new effect: the next of its family.
    pub(crate) async fn renew_window(&self, mut task: Box<Task>, effect: Effect) -> Result<(Box<Task>, Effect), Box<Answer>> {
        let (Some((family, generation)), Some(window)) = (task.family, task.tool.policy.dedupe_window) else { return Ok((task, effect)) };
        let ended = match &effect.state {
            State::Done(done) => Some(done.at),
            State::Failed { at, .. } | State::Cancelled { at, .. } | State::Undone { at, .. } | State::Flushed { at, .. } => Some(*at),
            _ => None,
        };
        let over = effect.expired || ended.is_some_and(|at| at + window <= self.inner.clock.now());
        if !over {
            return Ok((task, effect));
        }
        let next = generation.next();
        let summary = plain_summary(StreamKind::Window, task.call.tenant.clone());
        let moved = self.inner.ledger.append(vec![self.inner.ledger.replacing(family.stream(), generation, &next.0, summary)]).await;
        let generation = match moved {
            Ok(()) => next,
            // An equal call was faster: join its effect.
            Err(LedgerError::Conflict) => match self.inner.ledger.newest::<u64>(family.stream()).await {
                Ok((generation, _)) => generation,
                Err(error) => return Err(Box::new(ledger_answer(&error, None))),
            },
            Err(error) => return Err(Box::new(ledger_answer(&error, None))),
        };
        task.key = family.key(generation.0);
        task.family = Some((family, generation));
        match self.inner.ledger.load(task.key).await {
            Ok(effect) => Ok((task, effect)),
            Err(error) => Err(Box::new(ledger_answer(&error, None))),
        }
    }

    async fn unrecorded(&self, tool: &Registered, call: &Call, within: Option<&TraceContext>) -> Told {
        let key = call.fresh_key(&self.inner.fresh.nonce());
        let trace = within.map(|within| self.inner.fresh.below(within));
        let span = trace::attempt_span(1, Fence(0), within, trace.as_ref());
        let invocation = Invocation { trace, ..invocation(tool, call, key, 1, Stop::default()) };
        let outcome = execute::unrecorded(&*tool.tool, invocation).instrument(span.clone()).await;
        trace::attempted(&span, &outcome);
        self.inner.meters.of(&tool.name).attempted(&outcome);
        let blank = Answer { attempt: 1, ..Answer::refused("", "") };
        let answer = match outcome {
            Outcome::Done(success) => {
                let world = if tool.is_pure() { WorldSemantics::Pure } else { WorldSemantics::SideEffectCommitted };
                Answer {
                    status: Status::Success,
                    data: Some(success.result),
                    error: None,
                    flags: success.flags,
                    outcome: world.word(),
                    ..blank
                }
            }
            Outcome::NotDone(failure) => {
                Answer { error: Some((&failure).into()), outcome: WorldSemantics::PermanentFailure.word(), ..blank }
            }
            Outcome::Unknown(failure) => {
                let status = if failure.code == "timeout" { Status::Timeout } else { Status::Error };
                let world = if tool.is_pure() { WorldSemantics::PermanentFailure } else { WorldSemantics::InDoubt };
                Answer { status, error: Some((&failure).into()), outcome: world.word(), ..blank }
            }
        };
        Told { answer, served: Served::Ran { recorded: false } }
    }

    /// What shadow mode does instead of stopping a call: says so, and runs it unprotected.
    async fn shadow(&self, task: &Task, stopped: Stopped, decision: &str, why: &str) -> Told {
        tracing::warn!(effect = %task.key, tool = %task.tool.name, decision, why, "shadow: this call would have been stopped; it runs unprotected");
        self.inner.modes.count(stopped);
        self.inner.meters.of(&task.tool.name).shadowed(decision);
        self.unrecorded(&task.tool, &task.call, task.trace.as_ref()).await
    }

    fn unknown_tool(&self, tenant: &Tenant, name: &ToolName) -> Answer {
        let hint = match self.inner.tools.nearest(tenant, name.as_str()) {
            Some(near) => format!("did you mean {near}?"),
            None => "`counterfoil tools list` shows what there is".into(),
        };
        Answer::refused("unknown_tool", format!("there is no tool {name}; {hint}"))
    }
}

/// Whether the tool is run where it is asked for, and the arguments fit it.
fn fits(tool: &Registered, call: &Call, runs: Runs) -> Result<(), Box<Answer>> {
    let name = &tool.name;
    let refused = |code: &str, message: String| Err(Box::new(Answer::refused(code, message)));
    match (runs, tool.runs()) {
        (Runs::Here, Runs::Elsewhere) => {
            let failure = tool::runs_elsewhere(name);
            return refused(&failure.code, failure.message);
        }
        (Runs::Elsewhere, Runs::Here) => {
            let message = format!("{name} is run by this runtime, under permits of its own: call it instead of acquiring a permit");
            return refused("tool_runs_here", message);
        }
        _ => {}
    }
    match tool.input.as_ref().and_then(|schema| schema.violations(&call.args.to_value())) {
        Some(wrong) => refused("invalid_arguments", format!("the arguments of {name} do not fit its input schema: {wrong}")),
        None => Ok(()),
    }
}

pub(crate) fn invocation(tool: &Registered, call: &Call, key: EffectKey, attempt: u32, stop: Stop) -> Invocation {
    Invocation {
        tool: tool.name.clone(),
        tenant: call.tenant.clone(),
        key,
        attempt,
        run: call.run.clone(),
        args: call.args.clone(),
        timeout: tool.policy.timeout,
        result_bytes_max: tool.policy.result_bytes_max,
        stop,
        trace: None,
    }
}

impl Inner {
    async fn see_through(self: Arc<Self>, mut task: Box<Task>, effect: Effect) -> Told {
        let driven = self.drive(&mut task, effect).await;
        self.dress(&task, driven)
    }

    /// The loop. Everything that happens to an effect, live or recovered, happens here.
    pub(crate) async fn drive(&self, task: &mut Task, mut effect: Effect) -> Result<(Effect, Ending), LedgerError> {
        loop {
            task.doubtful = effect.doubtful();
            let decision = match self.decide(task, &effect) {
                Ok(decision) => decision,
                Err(answer) => return Ok((effect, answer)),
            };
            let step = match decision {
                Decision::Replay => return Ok((effect, Ending::Recorded)),
                Decision::Refuse(refusal) => return Ok((effect, Ending::Refused(refusal))),
                Decision::Hold(hold) => return Ok((effect, Ending::Held(hold))),
                Decision::Wait { until } if task.lending.is_some() => {
                    let ending = lend::not_now(&effect, until, self.clock.now());
                    return Ok((effect, ending));
                }
                Decision::Wait { until } => match Box::pin(self.wait(task, &effect, until)).await? {
                    Some(changed) => Ok(changed),
                    None => return Ok((effect, Ending::StillRunning)),
                },
                // Boxed, here and below: what is rare takes no room in every call.
                Decision::Record(entry) => Box::pin(self.ledger.record(&effect, vec![entry.clone()], conclude::seal_of_fact(&entry))).await,
                Decision::AskApproval => Box::pin(self.ask_approval(task, &effect)).await,
                Decision::Probe => Box::pin(self.probe(task, &effect)).await,
                Decision::Execute(attempt) if task.tool.runs() == Runs::Elsewhere => {
                    match Box::pin(self.lend(task, &effect, attempt)).await {
                        Ok(lent) => return Ok(lent),
                        Err(error) => Err(error),
                    }
                }
                Decision::Execute(attempt) => match self.execute(task, &effect, attempt).await {
                    Ok(Ok(effect)) => Ok(effect),
                    Ok(Err(barred)) => return Ok((effect, barred)),
                    Err(error) => Err(error),
                },
            };
            effect = match step {
                Ok(effect) => effect,
                // Someone else wrote first: look again and decide anew.
                Err(LedgerError::Conflict) => self.ledger.load(task.key).await?,
                Err(error) => return Err(error),
            };
        }
    }

    async fn execute(&self, task: &mut Task, effect: &Effect, attempt: Attempt) -> Result<Result<Effect, Ending>, LedgerError> {
        let policy = &task.tool.policy;
        let place = Place { effect: task.key, fence: attempt.fence };
        let mut pass = match self.gates.pass(&task.call.tenant, &task.tool.name, policy, place, task.series.deadline).await? {
            Ok(pass) => pass,
            Err(barred) => return Ok(Err(Ending::NotAdmitted(barred.0, barred.1))),
        };
        let mut beside = match budget::spend(&self.ledger, task, effect).await? {
            Ok(writes) => writes,
            Err(message) => return Ok(Err(Ending::NotAdmitted(Status::Error, AnswerError::new("budget_exceeded", message)))),
        };
        beside.append(&mut pass.writes());
        let opened = effect.opened.is_none().then(|| Entry::Opened(self.opened(task)));
        let unsettled = self.liveness.claiming();
        let claim = self.ledger.claim(attempt, policy.lease);
        let permit = match self.ledger.begin(effect, &claim, policy.lease, opened.into_iter().collect(), beside).await {
            Ok(permit) => permit, // the claim is durable
            Err(LedgerError::Conflict) => {
                unsettled.settled();
                return Err(LedgerError::Conflict);
            }
            Err(LedgerError::Store(StoreError::Unavailable { message, written: Written::Perhaps })) => {
                conclude::release(self.ledger.clone(), task.key, claim, unsettled, self.reports.begin());
                return Err(StoreError::Unavailable { message, written: Written::Perhaps }.into());
            }
            Err(error) => {
                unsettled.settled();
                return Err(error);
            }
        };
        pass.claimed();
        task.series.attempts += 1;
        task.unrecorded = true;
        let alive = self.heartbeat.watch(&permit);
        let trace = task.trace.as_ref().map(|within| self.fresh.below(within));
        let span = trace::attempt_span(attempt.number, attempt.fence, task.trace.as_ref(), trace.as_ref());
        let invocation = Invocation { trace, ..invocation(&task.tool, &task.call, effect.sent_key(), attempt.number, permit.stop()) };
        let attempting = execute::attempt(&permit, self.clock.latest(), &*task.tool.tool, invocation.clone());
        let outcome = match span.is_disabled() {
            true => attempting.await,                                     // the world changes
            false => Box::pin(attempting).instrument(span.clone()).await, // the same, told of
        };
        trace::attempted(&span, &outcome);
        drop(span);
        self.meters.of(&task.tool.name).attempted(&outcome);
        let concluding = Concluding {
            tool: task.tool.clone(),
            invocation,
            series: task.series,
            outcome,
            salt: self.salt.get().cloned(),
            jitter: self.fresh.jitter(),
        };
        let recorded = conclude::finish(&self.ledger, &permit, &concluding).await; // the outcome and its receipt are durable
        drop(alive);
        match recorded {
            Ok(effect) => {
                unsettled.settled();
                task.unrecorded = false;
                if let Err(error) = self.gates.report(pass, policy, &concluding.outcome, concluding.invocation.stop.is_asked()).await {
                    // The outcome stands; the breaker will count the next one.
                    tracing::error!(tool = %task.tool.name, %error, "the breaker could not be written");
                }
                Ok(Ok(effect))
            }
            Err(error) => {
                // Not recorded, so not answered. The report is kept and brought in when the store is back.
                conclude::keep_trying(self.ledger.clone(), permit, concluding, unsettled, self.reports.begin());
                Err(error)
            }
        }
    }

    async fn probe(&self, task: &mut Task, effect: &Effect) -> Result<Effect, LedgerError> {
        task.series.probes += 1;
        let trace = task.trace.as_ref().map(|within| self.fresh.below(within));
        let span = trace::probe_span(task.trace.as_ref(), trace.as_ref());
        let invocation = Invocation { trace, ..invocation(&task.tool, &task.call, effect.sent_key(), effect.attempts, Stop::default()) };
        let asking = execute::probe(&*task.tool.tool, invocation.clone(), task.tool.policy.timeout);
        let answer = asking.instrument(span.clone()).await;
        trace::probed(&span, &answer);
        drop(span);
        let salt = if task.tool.policy.redact.is_empty() { None } else { Some(self.salt(&task.call.tenant).await?) };
        conclude::probed(&self.ledger, effect, &task.tool, &invocation, answer, salt.as_ref(), self.clock.now()).await
    }

    async fn ask_approval(&self, task: &Task, effect: &Effect) -> Result<Effect, LedgerError> {
        let now = self.clock.now();
        let opened = effect.opened.is_none().then(|| Entry::Opened(self.opened(task)));
        let asked = Entry::ApprovalAsked { at: now, expires: now + task.tool.policy.approval_expires };
        self.ledger.record(effect, opened.into_iter().chain([asked]).collect(), None).await
    }

    /// `None` when the time to wait is over and nothing changed.
    async fn wait(&self, task: &Task, effect: &Effect, until: Timestamp) -> Result<Option<Effect>, LedgerError> {
        let waiter = self.ledger.wakeups().register(counterfoil_core::StreamId::effect(&task.key));
        loop {
            let woken = waiter.notify.notified();
            let current = self.ledger.load(task.key).await?;
            let now = self.clock.now();
            if current.version != effect.version || until <= now {
                return Ok(Some(current));
            }
            // Its own retries wait for as long as the deadline allows, someone else's work for `wait_max`.
            let patience = if task.series.attempts > 0 { task.series.deadline } else { task.wait_until };
            if patience <= now {
                return Ok(None);
            }
            let foreign = matches!(&current.state, State::Running(claim) if claim.worker != *self.ledger.worker());
            if foreign && self.holder_gone(&current) {
                return Ok(Some(current));
            }
            let nap = until.min(patience).since(now);
            let nap = if foreign { nap.min(self.ledger.wakeups().look_every()) } else { nap };
            tracing::debug!(effect = %task.key, foreign, "waits");
            // Either end leads to another look.
            let told = tokio::time::timeout(nap, woken).await.is_ok();
            tracing::debug!(effect = %task.key, told, "looks again");
        }
    }

    fn decide(&self, task: &Task, effect: &Effect) -> Result<Decision, Ending> {
        let needs_approval = match &task.tool.approval {
            Some(rule) if !effect.approved => match rule(&task.call.args) {
                Ok(needed) => needed,
                Err(message) => return Err(Ending::NotAdmitted(Status::Error, AnswerError::new("approval_rule_failed", message))),
            },
            _ => false,
        };
        Ok(decide(
            effect,
            &Conditions {
                now: self.clock.now(),
                policy: &task.tool.policy,
                series: task.series,
                fingerprint: task.fingerprint,
                can_probe: task.tool.tool.can_probe(),
                needs_approval,
                holder_gone: self.holder_gone(effect),
                runnable: task.runnable,
            },
        ))
    }

    pub(crate) fn holder_gone(&self, effect: &Effect) -> bool {
        matches!(&effect.state, State::Running(claim) if self.liveness.gone(&claim.worker))
    }

    pub(crate) fn opened(&self, task: &Task) -> Opened {
        let policy = &task.tool.policy;
        let lent = task.tool.runs() == Runs::Elsewhere;
        Opened {
            at: self.clock.now(),
            tenant: task.call.tenant.clone(),
            caller: task.call.caller.clone(),
            tool: task.tool.name.clone(),
            args: task.stored.clone(),
            fingerprint: task.fingerprint,
            run: task.call.run.clone(),
            step: task.call.step.clone(),
            redacted: task.stored != task.call.args,
            settles: policy.repeatable() && !lent || task.tool.tool.can_probe(),
            lent,
            retain_ms: u64::try_from(policy.retain.as_millis()).unwrap_or(u64::MAX),
        }
    }

    pub(crate) fn dress(&self, task: &Task, driven: Result<(Effect, Ending), LedgerError>) -> Told {
        let answer = match driven {
            Ok((effect, ending)) => {
                let recorded = matches!(ending, Ending::Recorded);
                let replayed = recorded && task.series.attempts == 0 && task.series.probes == 0;
                // Whoever made attempts and is answered with a failure that may be tried again has run out of attempts or of time.
                let given_up =
                    recorded && task.series.attempts > 0 && matches!(&effect.state, State::Retrying(failed) if failed.receipt.is_none());
                let answer = Answer::from_ending(&effect, ending, self.clock.now());
                Answer { replayed, ..if given_up { answer.given_up() } else { answer } }
            }
            Err(error) => ledger_answer(&error, Some(task)),
        };
        let served = match answer.replayed {
            true => Served::FromLedger,
            false if task.series.attempts > 0 => Served::Ran { recorded: true },
            false => Served::Otherwise,
        };
        Told { answer, served }
    }

    /// Where a call stands that came from there. Nowhere, if neither its caller nor this program traces.
    pub(crate) fn below(&self, caller: Option<&TraceContext>) -> Option<TraceContext> {
        match caller {
            Some(caller) => Some(self.fresh.below(caller)),
            None => self.begins_traces.load(Ordering::Relaxed).then(|| self.fresh.root()),
        }
    }

    /// Those it was told of, those that called, those with tools of their own.
    pub(crate) fn known_tenants(&self) -> BTreeSet<Tenant> {
        let mut known = self.tenants.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        known.extend(self.gates.tenants());
        known.extend(self.tools.tenants());
        known
    }

    pub(crate) async fn salt(&self, tenant: &Tenant) -> Result<Salt, LedgerError> {
        self.salt.get_or_try_init(|| self.ledger.salt(unguessable, tenant)).await.cloned()
    }
}

/// The answer when the ledger itself failed. Whether the world was touched depends on how far the call had come.
pub(crate) fn ledger_answer(error: &LedgerError, task: Option<&Task>) -> Answer {
    let code = error.code();
    match task {
        Some(task) if task.unrecorded || task.doubtful => {
            let why = match task.unrecorded {
                true => "The tool was called, and what it answered could not be recorded",
                false => "An attempt may have happened, and no more is known",
            };
            let message = format!("{error}. {why}: the effect {} is in doubt until the ledger is back", task.key);
            let answer = Answer::unrecorded(Status::InDoubt, AnswerError::new(code, message));
            Answer { effect: Some(task.key), attempt: task.series.attempts, outcome: WorldSemantics::InDoubt.word(), ..answer }
        }
        Some(task) if task.series.attempts > 0 => {
            let message = format!("{error}. The last attempt certainly did not happen; no further one was made");
            let error = AnswerError::new(code, message).retriable(Some(Duration::from_secs(1)));
            let answer = Answer::unrecorded(Status::Error, error);
            Answer { effect: Some(task.key), attempt: task.series.attempts, outcome: WorldSemantics::RetryableFailure.word(), ..answer }
        }
        _ => {
            let refused = AnswerError::new(code, format!("{error}. Nothing was run: no ledger, no execution"));
            // A damaged ledger does not mend by waiting.
            let error = if code == "store_unavailable" { refused.retriable(Some(Duration::from_secs(1))) } else { refused };
            Answer { effect: task.map(|t| t.key), ..Answer::unrecorded(Status::Error, error) }
        }
    }
}
