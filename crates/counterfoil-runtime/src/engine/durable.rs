//! Rust functions as runs: `async fn` that survive their process.
//!
//! The function is run from its beginning each time the run is taken on; what it asked for before is given to it as it is recorded, and nothing is done
//! twice. So it must ask for the same in the same order: it may use nothing but its input and what its context gives it (`now` and `random` are there too).
//! A call is known again by what it is, tool and arguments included; one that is another than was recorded is a divergence, which names both, and the run
//! goes no further until the function fits again. What must stay true: nothing is dispatched for a function that diverged.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use counterfoil_core::ids::{Digest32, WorkflowName};
use counterfoil_core::run::Run;
use counterfoil_core::run::entry::{Awaited, Began, By, RunEntry, Started, StepEnd};
use counterfoil_core::run::{RunFoldError, StepState};
use counterfoil_core::{Call, Caller, CanonicalJson, Failure, Json, RunId, StepPath, Tenant, Timestamp, ToolName};
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::sync::Notify;

use super::RunError;
use super::beside::RunBeside;
use super::book::Book;
use super::live::What;
use super::operate::Heard;
use super::start::Second;
use super::step::{Prepared, UndoWith, with_undo};
use crate::runtime::{Runtime, fits};
use crate::tool::Runs;
use crate::workflow::{RETAIN, Workflow};

/// A function as it is registered.
pub type Function = Arc<dyn Fn(Context, Value) -> BoxFuture<'static, Result<Value, Failed>> + Send + Sync>;

/// How long until a step that was not let through is tried again.
const AGAIN_MIN: Duration = Duration::from_millis(200);

#[derive(Default)]
pub(crate) struct Functions {
    known: RwLock<HashMap<WorkflowName, Function>>,
}

impl Functions {
    pub(super) fn get(&self, name: &WorkflowName) -> Option<Function> {
        self.known.read().unwrap_or_else(|poisoned| poisoned.into_inner()).get(name).cloned()
    }
}

/// Why a function, or something it asked for, did not go through. Returned from the function, it fails the run, and what the run did is undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed(pub Failure);

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.0.code, self.0.message)
    }
}

impl std::error::Error for Failed {}

impl Failed {
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self(Failure::new(code, message))
    }
}

/// What a function sees of the world, all of it recorded. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    shared: Arc<Shared>,
    /// Of the steps that are asked for through this context.
    prefix: Arc<str>,
    asked: Arc<AtomicU32>,
}

pub(super) struct Shared {
    pub(super) runtime: Runtime,
    pub(super) book: Arc<Book>,
    /// Things that are being done for the function.
    active: AtomicUsize,
    /// Things that wait for time or for others.
    waiting: Mutex<Vec<Option<Timestamp>>>,
    /// Something of this changed, or the run did.
    pub changed: Notify,
    stopped: Mutex<Option<Stopped>>,
    /// Steps that the function asked for.
    asked: Mutex<HashSet<StepPath>>,
    /// What was asked for at each place, before and now: the place is a number, what stands there has a name.
    places: Mutex<HashMap<String, String>>,
}

/// Why the function goes no further now.
pub(super) enum Stopped {
    /// Another worker has the run.
    Away,
    Diverged(String),
    Broken(RunError),
}

/// A call that is being put together: awaited, it is made.
pub struct DurableCall {
    context: Context,
    step: StepPath,
    tool: String,
    args: Value,
    undo: Option<UndoWith>,
}

impl Runtime {
    /// A function that runs may be started by. Registered under the same name wherever its runs are driven.
    pub fn register_function<F, Fut>(&self, name: &str, function: F) -> Result<(), RunError>
    where
        F: Fn(Context, Value) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Value, Failed>> + Send + 'static,
    {
        let name = WorkflowName::new(name)?;
        let function: Function = Arc::new(move |context, input| Box::pin(function(context, input)));
        self.inner.functions.known.write().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(name, function);
        Ok(())
    }

    /// Records a run of a registered function. The same id with the same input is the same run. `true`: it is new.
    pub async fn start_function(&self, tenant: &Tenant, caller: &Caller, run: &RunId, name: &str, input: &Value) -> Result<bool, RunError> {
        let inner = &self.inner;
        let workflow = WorkflowName::new(name)?;
        if inner.functions.get(&workflow).is_none() {
            return Err(RunError::UnknownWorkflow(name.into()));
        }
        let input = CanonicalJson::parse(&input.to_string()).map_err(|error| RunError::Input(error.to_string()))?;
        let now = inner.clock.now();
        let started = Arc::new(Started {
            at: now,
            tenant: tenant.clone(),
            run: run.clone(),
            caller: caller.clone(),
            definition: Digest32::of_fields("counterfoil/function/1", &[workflow.as_str().as_bytes()]),
            workflow,
            by: By::Function,
            input,
            parent: None,
            forked: None,
            tools: None,
            deadline: None,
            lease_ms: None,
            retain_ms: u64::try_from(RETAIN.as_millis()).unwrap_or(u64::MAX),
        });
        let none = Arc::new(Workflow::without_plan(&started.workflow));
        let after = self.record_start(started, none, None, Some(Second::Owned), &RunBeside::default()).await?;
        Ok(after.heard == Heard::Now)
    }
}

impl Shared {
    pub(super) fn new(runtime: Runtime, book: Arc<Book>) -> Arc<Self> {
        let places = book.lock().run.order.iter().flat_map(|step| places(step.as_str())).collect();
        Arc::new(Self {
            runtime,
            book,
            active: AtomicUsize::new(0),
            waiting: Mutex::default(),
            changed: Notify::new(),
            stopped: Mutex::new(None),
            asked: Mutex::default(),
            places: Mutex::new(places),
        })
    }

    pub(super) fn context(self: &Arc<Self>) -> Context {
        Context { shared: self.clone(), prefix: Arc::from(""), asked: Arc::default() }
    }

    /// Nothing is being done, and something is waited for: until when, if time alone ends it.
    pub(super) fn idle(&self) -> Option<Option<Timestamp>> {
        let waiting = self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let idle = self.active.load(Ordering::SeqCst) == 0 && !waiting.is_empty();
        idle.then(|| waiting.iter().flatten().min().copied())
    }

    pub(super) fn stopped(&self) -> Option<Stopped> {
        self.stopped.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take()
    }

    /// The function goes no further: what it awaits never comes.
    async fn stop<T>(&self, why: Stopped) -> T {
        self.stopped.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(why);
        self.changed.notify_one();
        std::future::pending().await
    }

    /// Records what `say` notes, as soon as it can be.
    pub(super) async fn record(&self, say: impl Fn(&mut Run) -> Result<Vec<RunEntry>, RunFoldError>) -> Result<(), RunError> {
        let _turn = self.book.turn.lock().await;
        loop {
            if self.book.record(&self.runtime, &say).await? {
                return Ok(());
            }
            self.up_to_date().await?;
        }
    }

    /// Until the book can be written again.
    async fn up_to_date(&self) -> Result<(), RunError> {
        if self.book.lock().busy {
            // The outcome of another call is on its way.
            tokio::time::sleep(Duration::from_millis(1)).await;
            return Ok(());
        }
        self.book.renew(&self.runtime).await?;
        if !self.book.lock().owned() {
            // Another worker has the run: this function is over here.
            return self.stop(Stopped::Away).await;
        }
        Ok(())
    }

    pub(super) fn was_asked(&self, step: &StepPath) -> bool {
        self.asked.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).contains(step)
    }

    /// What is recorded at the place of a step, if it is something else.
    fn displaced(&self, step: &StepPath) -> Option<String> {
        let mut known = self.places.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for (place, name) in places(step.as_str()) {
            match known.get(&place) {
                Some(recorded) if *recorded != name => return Some(format!("{place}.{recorded}")),
                Some(_) => {}
                None => drop(known.insert(place, name)),
            }
        }
        None
    }

    fn known(&self, step: &StepPath) -> Option<(Option<Began>, Option<StepEnd>)> {
        self.asked.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(step.clone());
        let pages = self.book.lock();
        let step = pages.run.step(step)?;
        let ended = if let StepState::Ended { how, .. } = &step.state { Some(how.clone()) } else { None };
        Some((step.what.clone(), ended))
    }

    /// Waits until `until`, or until the run changed.
    pub(super) async fn wait(&self, until: Option<Timestamp>) {
        let _waiting = Waiting::begin(self, until);
        self.changed.notify_one();
        let nap = until.map_or(LOOK_EVERY, |until| until.since(self.runtime.now()).min(LOOK_EVERY));
        tokio::time::sleep(nap).await;
    }
}

/// How often what waits looks whether the run changed.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What waits is not being done, until it has waited or nobody waits for it any more.
struct Waiting<'a> {
    shared: &'a Shared,
    until: Option<Timestamp>,
}

impl<'a> Waiting<'a> {
    fn begin(shared: &'a Shared, until: Option<Timestamp>) -> Self {
        shared.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(until);
        shared.active.fetch_sub(1, Ordering::SeqCst);
        Self { shared, until }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.active.fetch_add(1, Ordering::SeqCst);
        let mut waiting = self.shared.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(place) = waiting.iter().position(|known| *known == self.until) {
            waiting.swap_remove(place);
        }
    }
}

/// Something is being done for the function.
struct Active(Arc<Shared>);

impl Active {
    fn of(shared: &Arc<Shared>) -> Self {
        shared.active.fetch_add(1, Ordering::SeqCst);
        Self(shared.clone())
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::SeqCst);
        self.0.changed.notify_one();
    }
}

impl Context {
    pub fn run(&self) -> &RunId {
        &self.shared.book.id
    }

    /// Calls a tool: once, whatever happens to this process. `.undo(…)` says how it is undone; await it to make it.
    pub fn call(&self, tool: &str, args: Value) -> DurableCall {
        DurableCall { context: self.clone(), step: self.next("call"), tool: tool.to_owned(), args, undo: None }
    }

    /// Sleeps, durably: a long sleep costs nothing, and goes on after a restart.
    pub async fn sleep(&self, length: Duration) -> Result<(), Failed> {
        let step = self.next("sleep");
        let _active = Active::of(&self.shared);
        let until = self.shared.runtime.now() + length;
        self.wait_for(&step, Began::Sleep { until }).await.map(drop)
    }

    /// Waits for a signal of this name, and gives what it carries.
    pub async fn signal(&self, name: &str) -> Result<Value, Failed> {
        self.signal_within(name, None).await
    }

    /// The same, and fails with `wait_timeout` when none came in time.
    pub async fn signal_within(&self, name: &str, timeout: Option<Duration>) -> Result<Value, Failed> {
        let step = self.next("signal");
        let _active = Active::of(&self.shared);
        let until = timeout.map(|timeout| self.shared.runtime.now() + timeout);
        let on = Awaited::Signal { name: name.to_owned(), correlation: None };
        self.wait_for(&step, Began::Wait { on, until }).await.map(|result| result.to_value())
    }

    /// The time, as it was when it was first asked for.
    pub async fn now(&self) -> Result<Timestamp, Failed> {
        let now = self.shared.runtime.now();
        let micros = self.value("now", serde_json::json!(now.0)).await?;
        Ok(Timestamp(micros.as_i64().unwrap_or_default()))
    }

    /// A random number, the same each time the function is run.
    pub async fn random(&self) -> Result<u64, Failed> {
        let [a, b, c, d, e, f, g, h, ..] = self.shared.runtime.inner.fresh.nonce();
        let drawn = self.value("random", serde_json::json!(u64::from_be_bytes([a, b, c, d, e, f, g, h]))).await?;
        Ok(drawn.as_u64().unwrap_or_default())
    }

    /// A part of the run that is undone by itself when it fails; the function may then go on another way.
    pub async fn scope<F, Fut, T>(&self, name: &str, part: F) -> Result<T, Failed>
    where
        F: FnOnce(Context) -> Fut,
        Fut: Future<Output = Result<T, Failed>>,
    {
        let path = self.next(name);
        self.in_place(&path).await;
        let inner = Context { shared: self.shared.clone(), prefix: Arc::from(format!("{path}/")), asked: Arc::default() };
        let failed = match part(inner).await {
            Ok(done) => return Ok(done),
            Err(failed) => failed,
        };
        let _active = Active::of(&self.shared);
        self.shared.undo_scope(&path, &failed).await;
        Err(failed)
    }

    /// Goes no further if something else is recorded at this place.
    async fn in_place(&self, step: &StepPath) {
        if let Some(recorded) = self.shared.displaced(step) {
            let message = format!("expected {recorded}, and the function asks for {step}");
            self.shared.stop::<()>(Stopped::Diverged(message)).await;
        }
    }

    /// The next thing that is asked for: numbered, so that two equal calls are two.
    fn next(&self, what: &str) -> StepPath {
        let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let word: String = what.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')).take(40).collect();
        StepPath::new(&format!("{}{number}.{word}", self.prefix)).unwrap_or_else(|_| {
            let digest = Digest32::of(format!("{}{number}.{word}", self.prefix).as_bytes());
            StepPath::new(&digest.to_string()).expect("hex digits are a name")
        })
    }

    /// A value that is recorded when it is first asked for.
    async fn value(&self, word: &str, value: Value) -> Result<Value, Failed> {
        let (shared, step) = (&self.shared, self.next(word));
        let _active = Active::of(shared);
        self.in_place(&step).await;
        match shared.known(&step) {
            Some((None, Some(StepEnd::Done { result, .. }))) => return Ok(result.to_value()),
            Some((what, _)) => return shared.diverged(&step, what.as_ref(), word).await,
            None => {}
        }
        let how = StepEnd::Done { result: Json::from_value(&value), way: None, undo: false };
        let at = shared.runtime.now();
        let recorded = shared
            .record(|run| {
                let entry = RunEntry::StepEnded { at, step: step.clone(), how: how.clone() };
                run.note(&entry).map(|()| vec![entry])
            })
            .await;
        match recorded {
            Ok(()) => Ok(value),
            Err(error) => shared.stop(Stopped::Broken(error)).await,
        }
    }

    /// Begins to sleep or to wait, if it has not, and waits for the end of it.
    async fn wait_for(&self, step: &StepPath, what: Began) -> Result<Json, Failed> {
        let shared = &self.shared;
        self.in_place(step).await;
        match shared.known(step) {
            None => {
                let at = shared.runtime.now();
                let recorded = shared
                    .record(|run| {
                        let entry = RunEntry::StepBegan { at, step: step.clone(), what: what.clone() };
                        run.note(&entry).map(|()| vec![entry])
                    })
                    .await;
                if let Err(error) = recorded {
                    return shared.stop(Stopped::Broken(error)).await;
                }
            }
            Some((Some(known), _)) if same_wait(&known, &what) => {}
            Some((known, _)) => return shared.diverged(step, known.as_ref(), word_of(&what)).await,
        }
        loop {
            let until = match shared.known(step) {
                Some((_, Some(how))) => return ended(how),
                Some((Some(begun), None)) => begun.until(),
                _ => None,
            };
            if let Err(error) = shared.settle_wait(step).await {
                return shared.stop(Stopped::Broken(error)).await;
            }
            if let Some((_, Some(how))) = shared.known(step) {
                return ended(how);
            }
            shared.wait(until).await;
        }
    }
}

impl Shared {
    /// Ends a step that sleeps or waits, if what it waits for is there or its time is up.
    async fn settle_wait(&self, step: &StepPath) -> Result<(), RunError> {
        if self.book.lock().stale || self.book.moved(&self.runtime).await? {
            self.book.renew(&self.runtime).await?;
        }
        let now = self.runtime.now();
        let how = {
            let pages = self.book.lock();
            let what = pages.run.step(step).and_then(|known| known.what.clone());
            let signal = match &what {
                Some(Began::Wait { on, .. }) => pages.run.signal_for(step, on).map(|signal| signal.payload.clone()),
                _ => None,
            };
            match (what, signal) {
                (_, Some(payload)) => Some(StepEnd::Done { result: payload, way: None, undo: false }),
                (Some(Began::Sleep { until }), _) if until <= now => Some(StepEnd::Done { result: Json::null(), way: None, undo: false }),
                (Some(Began::Wait { until: Some(until), .. }), None) if until <= now => {
                    Some(StepEnd::Failed { failure: Failure::new("wait_timeout", "no signal came in time"), doubt: false })
                }
                _ => None,
            }
        };
        match how {
            Some(how) => self.end(step, how).await,
            None => Ok(()),
        }
    }

    /// Records how a step ended, if that is not known yet.
    pub(super) async fn end(&self, step: &StepPath, how: StepEnd) -> Result<(), RunError> {
        let at = self.runtime.now();
        self.record(|run| {
            if !run.running.contains(step) {
                return Ok(Vec::new());
            }
            let entry = RunEntry::StepEnded { at, step: step.clone(), how: how.clone() };
            run.note(&entry).map(|()| vec![entry])
        })
        .await
    }

    /// The function asks for something else than it did before.
    async fn diverged<T>(&self, step: &StepPath, recorded: Option<&Began>, asked: &str) -> T {
        let recorded = recorded.map_or("a value".to_owned(), described);
        self.stop(Stopped::Diverged(format!("at {step}, expected {recorded}, and the function asks for {asked}"))).await
    }

    /// Undoes what a part of the run did.
    async fn undo_scope(&self, scope: &StepPath, failed: &Failed) {
        let why = format!("{scope} failed: {}", failed.0.message);
        if let Err(error) = self.runtime.stop_inside(self, &self.book, Some(scope)).await {
            return self.stop(Stopped::Broken(error)).await;
        }
        let triggered = self
            .record(|run| {
                let known = run.sagas.iter().any(|saga| saga.scope.as_ref() == Some(scope));
                let of = run.to_undo(Some(scope));
                if known || of.is_empty() {
                    return Ok(Vec::new());
                }
                let entry = RunEntry::CompensationTriggered {
                    at: self.runtime.now(),
                    scope: Some(scope.clone()),
                    by: "the run".into(),
                    why: why.clone(),
                    of,
                };
                run.note(&entry).map(|()| vec![entry])
            })
            .await;
        let undone = match triggered {
            Ok(()) => self.unwind_here().await,
            Err(error) => Err(error),
        };
        if let Err(error) = undone {
            self.stop::<()>(Stopped::Broken(error)).await;
        }
    }
}

impl DurableCall {
    /// How it is undone: by a call of `tool` with what `args` makes of the result.
    pub fn undo(mut self, tool: &str, args: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        self.undo = Some(UndoWith { tool: tool.to_owned(), args: Arc::new(args) });
        self
    }

    async fn made(self) -> Result<Value, Failed> {
        let Self { context, step, tool, args, undo } = self;
        let shared = &context.shared;
        let _active = Active::of(shared);
        context.in_place(&step).await;
        let mut prepared = shared.prepare(&step, &tool, &args, undo.clone())?;
        let key = prepared.task.key;
        match shared.known(&step) {
            Some((Some(Began::Effect { key: recorded, .. }), how)) if recorded == key => {
                if let Some(how) = how {
                    return ended(how).map(|result| result.to_value());
                }
            }
            Some((what, _)) => return shared.diverged(&step, what.as_ref(), &format!("the effect {key} of {tool}")).await,
            None => {
                if let Err(error) = shared.begin(&step, &prepared).await {
                    return shared.stop(Stopped::Broken(error)).await;
                }
            }
        }
        loop {
            prepared.task.follow = Some(super::Follow { runtime: shared.runtime.clone(), book: shared.book.clone(), step: step.clone() });
            let until = match shared.runtime.call_step(&shared.book, prepared).await {
                What::Ended(how) => {
                    if let Err(error) = shared.end(&step, how).await {
                        return shared.stop(Stopped::Broken(error)).await;
                    }
                    None
                }
                What::Held { until, why } => {
                    tracing::info!(run = %shared.book.id, %step, why, "the step waits");
                    Some(until)
                }
                What::Failed(error) => return shared.stop(Stopped::Broken(error)).await,
                _ => None,
            };
            if let Some((_, Some(how))) = shared.known(&step) {
                return ended(how).map(|result| result.to_value());
            }
            shared.wait(Some(until.unwrap_or(shared.runtime.now() + AGAIN_MIN))).await;
            prepared = shared.prepare(&step, &tool, &args, undo.clone())?;
        }
    }
}

impl std::future::IntoFuture for DurableCall {
    type Output = Result<Value, Failed>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.made())
    }
}

impl Shared {
    fn prepare(&self, step: &StepPath, tool: &str, args: &Value, undo: Option<UndoWith>) -> Result<Prepared, Failed> {
        let started = self.book.lock().run.started.clone();
        let name = ToolName::new(tool).map_err(|error| Failed::new("invalid_name", error.to_string()))?;
        let Some(registered) = self.runtime.inner.tools.get(&started.tenant, &name) else {
            return Err(Failed::new("unknown_tool", format!("there is no tool {tool}")));
        };
        let mut registered = (*registered).clone();
        registered.policy.retain = registered.policy.retain.max(Duration::from_millis(started.retain_ms));
        if let Some(undo) = undo {
            registered.tool = with_undo(registered.tool, undo);
        }
        let args = CanonicalJson::parse(&args.to_string()).map_err(|error| Failed::new("invalid_arguments", error.to_string()))?;
        let call = Call {
            tenant: started.tenant.clone(),
            caller: started.caller.clone(),
            tool: name,
            args,
            key: None,
            run: Some(started.run.clone()),
            step: Some(step.clone()),
            ordinal: 0,
        };
        let refused = |answer: Box<crate::Answer>| match answer.error {
            Some(error) => Failed::new(error.code, error.message),
            None => Failed::new("refused", "the call was refused"),
        };
        fits(&registered, &call, Runs::Here).map_err(refused)?;
        let task = self.runtime.fixed_task(Arc::new(registered), call).map_err(refused)?;
        Ok(Prepared { step: step.clone(), task })
    }

    /// Records that the step began. Its claim comes after: a function may let go of a call at any moment, and a claim that nobody uses is a doubt.
    async fn begin(&self, step: &StepPath, prepared: &Prepared) -> Result<(), RunError> {
        let (tool, key, pure) = (prepared.task.tool.name.clone(), prepared.task.key, prepared.task.tool.is_pure());
        let entry = RunEntry::StepBegan { at: self.runtime.now(), step: step.clone(), what: Began::Effect { tool, key, pure } };
        self.record(|run| if run.step(step).is_some() { Ok(Vec::new()) } else { run.note(&entry).map(|()| vec![entry.clone()]) }).await
    }
}

/// The places that a step's path goes through, each with what stands there: `2.try/1.call` is `try` at 2 and `call` at `2.try/1`.
fn places(path: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut before = 0;
    for part in path.split('/') {
        if let Some((number, name)) = part.split_once('.') {
            found.push((format!("{}{number}", &path[..before]), name.to_owned()));
        }
        before += part.len() + 1;
    }
    found
}

fn ended(how: StepEnd) -> Result<Json, Failed> {
    match how {
        StepEnd::Done { result, .. } => Ok(result),
        StepEnd::Failed { failure, .. } => Err(Failed(failure)),
        StepEnd::Cancelled { .. } => Err(Failed::new("cancelled", "the step was cancelled")),
    }
}

/// When it was begun it may have been another time: what is waited for is what counts.
fn same_wait(recorded: &Began, asked: &Began) -> bool {
    match (recorded, asked) {
        (Began::Sleep { .. }, Began::Sleep { .. }) => true,
        (Began::Wait { on: recorded, .. }, Began::Wait { on: asked, .. }) => recorded == asked,
        _ => false,
    }
}

fn word_of(what: &Began) -> &'static str {
    match what {
        Began::Sleep { .. } => "a sleep",
        Began::Wait { .. } => "another signal",
        _ => "a step",
    }
}

fn described(what: &Began) -> String {
    match what {
        Began::Effect { tool, key, .. } => format!("the effect {key} of {tool}"),
        Began::Sleep { .. } => "a sleep".into(),
        Began::Wait { on: Awaited::Signal { name, .. }, .. } => format!("the signal {name}"),
        Began::Wait { .. } => "an approval".into(),
        Began::Map { .. } => "a list".into(),
        Began::Child { run } => format!("the run {run}"),
    }
}
