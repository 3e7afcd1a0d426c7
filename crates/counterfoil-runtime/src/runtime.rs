//! `Runtime::call`: from what was asked to which effect it is, and to its answer. What lies between is in `drive`.
//!
//! A recorded end is answered at once. Anything else goes on to its end: work that has begun is not cancelled by a caller that goes away.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil_core::call::{Family, Identity, MissingKeyArgument};
use counterfoil_core::effect::State;
use counterfoil_core::entry::Claim;
use counterfoil_core::policy::Limits;
use counterfoil_core::redact::{Salt, redact_args};
use counterfoil_core::retry::Series;
use counterfoil_core::summary::StreamKind;
use counterfoil_core::{Call, CanonicalJson, Decision, Effect, EffectKey, Fingerprint, Tenant, Timestamp, ToolName, TraceContext, Veil};
use counterfoil_store::Version;
use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use tokio::time::Instant;
use tracing::Instrument;

use crate::answer::{Answer, Ending};
use crate::clock::Clock;
use crate::drive::{Held, ledger_answer};
use crate::engine::{Definitions, Follow, Functions, Lives};
use crate::fresh::{Fresh, unguessable};
use crate::gate::Gates;
use crate::heartbeat::Heartbeat;
use crate::ledger::{Glance, Ledger, LedgerError, plain_summary};
use crate::lend::Lending;
use crate::liveness::Liveness;
use crate::mode::{Configured, Mode, Modes};
use crate::novelty::Novelty;
use crate::observe::{Meters, Served, ToolMeters};
use crate::registry::{Registered, Registry};
use crate::reports::Reports;
use crate::silence::Silences;
use crate::stripes::Stripes;
use crate::tool::{self, Runs};
use crate::trace::{self, CallContext};
use crate::undropped::{Beyond, Undropped};

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
    pub silences: Silences,
    pub modes: Modes,
    pub meters: Arc<Meters>,
    pub reports: Reports,
    pub fresh: Arc<Fresh>,
    /// Of the Tokio runtime it was built in.
    beyond: Stripes<Arc<Beyond>>,
    going_on: Reports,
    pub novelty: Novelty,
    pub salt: OnceCell<Salt>,
    /// Whether a call that comes without a trace begins one.
    begins_traces: AtomicBool,
    pub definitions: Definitions,
    pub functions: Functions,
    /// Runs that this process drives.
    pub lives: Lives,
    /// Effects were pruned for which a tool may keep something.
    pub forgettable: AtomicBool,
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
    /// The effect was taken for new, and the ledger has not shown yet whether it is.
    pub guessed: bool,
    /// A claim for it that may have been written: nothing was dispatched under it.
    pub unsure: Option<Claim>,
    pub series: Series,
    /// How long to wait for someone else.
    pub wait_until: Timestamp,
    pub runnable: bool,
    /// Someone waits for the answer: then it is worth waiting for a limit.
    pub awaited: bool,
    /// The tool was called, and what came of it is not durable yet.
    pub unrecorded: bool,
    /// As far as the ledger was read: an attempt of the effect may have happened.
    pub doubtful: bool,
    /// A client asks for the permit.
    pub lending: Option<Box<Lending>>,
    /// Where the call stands in its caller's trace.
    pub trace: Option<TraceContext>,
    /// What its records are stored under where its tool says nothing: of the run whose step it is, or of what it undoes.
    pub veil: Option<Arc<Veil>>,
    /// The run whose step it is.
    pub follow: Option<Follow>,
    /// It is a run's step, and whoever goes on with it does not drive the run: that is asked right before each claim.
    pub aside: Option<Runtime>,
    /// Its first attempt was claimed together with something else.
    pub held: Option<Held>,
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
        debug_assert_eq!(call.tool, tool.name, "a tool is found by its name");
        Box::new(Self {
            fingerprint: stored.fingerprint(),
            series: Series { attempts: 0, probes: 0, deadline: now + tool.policy.deadline },
            wait_until: now + tool.policy.wait_max,
            tool,
            call,
            stored,
            key,
            family: None,
            guessed: false,
            unsure: None,
            runnable: true,
            awaited: true,
            unrecorded: false,
            doubtful: false,
            lending: None,
            trace: None,
            veil: None,
            follow: None,
            aside: None,
            held: None,
        })
    }

    /// Whether its first claim may be tried before it is known that there is none: where nothing else must be asked or taken for a claim that a repeat
    /// of the call would not need.
    fn may_be_guessed(&self) -> bool {
        let tool = &self.tool;
        tool.approval.is_none() && tool.subject.is_none() && self.veil.is_none() && tool.policy.limits == Limits::default()
    }
}

impl Runtime {
    pub(crate) fn assemble(
        ledger: Arc<Ledger>,
        clock: Arc<dyn Clock>,
        liveness: Liveness,
        configured: Configured,
        fresh: Arc<Fresh>,
        novelty: Novelty,
    ) -> Self {
        let meters = Arc::new(Meters::new());
        let gates = Gates::new(ledger.clone(), clock.clone(), meters.clone());
        let modes = Modes::new(ledger.clone(), clock.clone(), configured);
        let heartbeat = Heartbeat::start(ledger.clone());
        let going_on = Reports::default();
        let inner = Inner {
            ledger,
            tools: Registry::default(),
            gates,
            clock,
            heartbeat,
            liveness,
            silences: Silences::default(),
            modes,
            meters,
            reports: Reports::default(),
            fresh,
            beyond: Stripes::new(|| Arc::new(Beyond { handle: Handle::current(), going_on: going_on.clone() })),
            going_on,
            novelty,
            salt: OnceCell::new(),
            begins_traces: AtomicBool::new(false),
            definitions: Definitions::default(),
            functions: Functions::default(),
            lives: Lives::default(),
            forgettable: AtomicBool::new(true),
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

    /// Waits for calls that go on although whoever made them has gone away. False: some still do.
    pub async fn calls_ended(&self, within: Duration) -> bool {
        self.inner.going_on.all_in(within).await
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
        let took = started.elapsed();
        meters.answered(told.answer.status, told.served, took);
        self.stamped(took, told.answer)
    }

    /// An answer with what names this asking of it.
    pub(crate) fn stamped(&self, took: Duration, answer: Answer) -> Answer {
        let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
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
        let effect = match self.look(&mut task, mode).await {
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
    async fn look(&self, task: &mut Task, mode: Mode) -> Result<Glance, LedgerError> {
        let Inner { ledger, novelty, .. } = &*self.inner;
        // Whether a window is over, or what shadow mode lets through, depends on more than the result.
        if task.family.is_some() || mode == Mode::Shadow {
            return ledger.load(task.key).await.map(Glance::Whole);
        }
        if novelty.is_likely() && task.may_be_guessed() && !ledger.failing() {
            task.guessed = true;
            return Ok(Glance::Whole(Effect::absent(task.key)));
        }
        let glance = ledger.glance(task.key).await?;
        novelty.saw(matches!(&glance, Glance::Whole(effect) if effect.version == 0));
        match glance {
            Glance::Settled(settled) if !settled.replays(&task.fingerprint, self.inner.clock.now()) => {
                ledger.load(task.key).await.map(Glance::Whole)
            }
            glance => Ok(glance),
        }
    }

    /// Replays at once; anything else goes on to its end, also when the caller goes away half-way.
    pub(crate) fn settle(&self, task: Box<Task>, effect: Effect) -> impl Future<Output = Told> + Send + use<> {
        // Nothing is replayed of which nothing is recorded.
        let replays = effect.version > 0 && matches!(self.inner.decide(&task, &effect), Ok(Decision::Replay));
        let going_on = if replays {
            let answer = Answer::from_ending(&effect, Ending::Recorded, self.inner.clock.now());
            Err(Told::replayed(Answer { replayed: true, ..answer }))
        } else {
            let limited = task.tool.policy.limits.shared();
            Ok(Undropped::polled(limited, self.inner.beyond(), Box::pin(self.inner.clone().see_through(task, effect))))
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
        let (key, family) = match identified(&tool, &call, &stored)? {
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

    /// The same for a call whose key depends on nothing but itself, as every call of a run's step. Nothing is waited for: the salt was fetched before.
    pub(crate) fn fixed_task(&self, tool: Arc<Registered>, call: Call) -> Result<Box<Task>, Box<Answer>> {
        let stored = match (tool.policy.redact.is_empty(), self.inner.salt.get()) {
            (true, _) => call.args.clone(),
            (false, Some(salt)) => redact_args(&call.args, &tool.policy.redact, salt),
            (false, None) => return Err(Box::new(Answer::refused("store_unavailable", "the ledger's salt is not known yet"))),
        };
        match identified(&tool, &call, &stored)? {
            Identity::Fixed(key) => Ok(Task::new(tool, call, stored, key, self.inner.clock.now())),
            Identity::Windowed(_) | Identity::Fresh => unreachable!("a call in a run has a key of its own"),
        }
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

    fn unknown_tool(&self, tenant: &Tenant, name: &ToolName) -> Answer {
        let hint = match self.inner.tools.nearest(tenant, name.as_str()) {
            Some(near) => format!("did you mean {near}?"),
            None => "`counterfoil tools list` shows what there is".into(),
        };
        Answer::refused("unknown_tool", format!("there is no tool {name}; {hint}"))
    }
}

/// Which effect the call is, by its arguments as they are stored.
fn identified(tool: &Registered, call: &Call, stored: &CanonicalJson) -> Result<Identity, Box<Answer>> {
    call.identity(stored, &tool.policy).map_err(|MissingKeyArgument { path }| {
        let message = format!("the key of {} is made from the argument {path:?}, which the call does not have", tool.name);
        Box::new(Answer::refused("invalid_arguments", message))
    })
}

/// Whether the tool is run where it is asked for, and the arguments fit it.
pub(crate) fn fits(tool: &Registered, call: &Call, runs: Runs) -> Result<(), Box<Answer>> {
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

impl Inner {
    /// For what goes on when its caller goes away.
    pub(crate) fn beyond(&self) -> Arc<Beyond> {
        self.beyond.own().clone()
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
