//! A world whose tools keep their own count, and processes that can die at any append.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil_core::policy::{Jitter, RetryPolicy};
use counterfoil_core::{
    Caller, CanonicalJson, EffectClass, Failure, Json, Outcome, Policy, RunId, StepPath, StreamId, Success, Tenant, Timestamp, ToolName,
};
use counterfoil_runtime::engine::{NewRun, RunView, StepView};
use counterfoil_runtime::tool::ToolFuture;
use counterfoil_runtime::workflow::Workflow;
use counterfoil_runtime::{Builder, Clock, Invocation, ProbeAnswer, Registered, Runtime, SystemClock, Tool};
use counterfoil_store::memory::Memory;
use counterfoil_store::{
    AppendError, Batch, Eventually, History, Page, Position, Pruned, Query, Reach, Recorded, Store, StoreError, Written,
};
use tokio::sync::Notify;

/// What the world does with a request of a tool, by the value of `args.do`.
///
/// `ok` acts and answers; `no` refuses; `lose` acts, and the answer is lost; `flaky` fails once, then acts; `hang` acts when told to stop; `wait` acts when
/// let go; `sleepy` never acts and never answers.
#[derive(Default)]
pub struct World {
    /// What was done, by the key it was done under.
    pub done: Mutex<BTreeMap<String, String>>,
    /// In the order in which it was done: `tool` or `tool what`.
    pub log: Mutex<Vec<String>>,
    requests: Mutex<HashMap<String, u32>>,
    pub let_go: Notify,
    pub at_once: AtomicU64,
    pub at_once_max: AtomicU64,
    pub begun: Notify,
}

impl World {
    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// How often the tool acted.
    pub fn count(&self, tool: &str) -> usize {
        self.log().iter().filter(|line| line.split(' ').next() == Some(tool)).count()
    }

    fn act(&self, invocation: &Invocation) -> Outcome {
        let args = invocation.args.to_value();
        let what = args["what"].as_str().map(|what| format!(" {what}")).unwrap_or_default();
        self.log.lock().unwrap().push(format!("{}{what}", invocation.tool));
        let result = serde_json::json!({ "id": format!("{}-{}", invocation.tool, self.log().len()), "price": 100, "args": args });
        let result = result.to_string();
        self.done.lock().unwrap().insert(invocation.key.to_string(), result.clone());
        Outcome::Done(Success::new(Json::parse(&result).unwrap()))
    }
}

pub struct WorldTool(pub Arc<World>);

impl Tool for WorldTool {
    fn invoke(&self, invocation: Invocation) -> ToolFuture<'_, Outcome> {
        let world = self.0.clone();
        Box::pin(async move {
            let now = world.at_once.fetch_add(1, Ordering::SeqCst) + 1;
            world.at_once_max.fetch_max(now, Ordering::SeqCst);
            world.begun.notify_one();
            let requests = {
                let mut requests = world.requests.lock().unwrap();
                let count = requests.entry(invocation.key.to_string()).or_default();
                *count += 1;
                *count
            };
            let word = invocation.args.to_value()["do"].as_str().unwrap_or("ok").to_owned();
            let outcome = match word.as_str() {
                "no" => Outcome::NotDone(Failure::new("no", "the world said no")),
                "lose" if requests == 1 => {
                    world.act(&invocation);
                    Outcome::Unknown(Failure::of_dependency("connection_lost", "hung up"))
                }
                "flaky" if requests == 1 => Outcome::NotDone(Failure::of_dependency("busy", "come back")),
                "down" => Outcome::NotDone(Failure::of_dependency("busy", "come back")),
                "hang" => {
                    invocation.stop.asked().await;
                    world.act(&invocation)
                }
                "stops" => {
                    invocation.stop.asked().await;
                    Outcome::NotDone(Failure::new("stopped", "it stopped"))
                }
                "wait" => {
                    world.let_go.notified().await;
                    world.act(&invocation)
                }
                _ => {
                    tokio::task::yield_now().await;
                    world.act(&invocation)
                }
            };
            world.at_once.fetch_sub(1, Ordering::SeqCst);
            outcome
        })
    }

    fn can_probe(&self) -> bool {
        true
    }

    fn probe(&self, invocation: Invocation) -> ToolFuture<'_, ProbeAnswer> {
        let found = self.0.done.lock().unwrap().get(&invocation.key.to_string()).cloned();
        Box::pin(async move {
            match found {
                Some(result) => ProbeAnswer::Happened(Success::new(Json::parse(&result).unwrap())),
                None => ProbeAnswer::DidNotHappen,
            }
        })
    }
}

/// A request that is on its way when its process dies: the world acts on it when let go, whoever hears of it.
pub struct Posted {
    pub world: Arc<World>,
    /// Of a runtime that outlives the process.
    pub world_lives: tokio::runtime::Handle,
}

impl Tool for Posted {
    fn invoke(&self, invocation: Invocation) -> ToolFuture<'_, Outcome> {
        let world = self.world.clone();
        let acting = self.world_lives.spawn(async move {
            world.begun.notify_one();
            world.let_go.notified().await;
            let outcome = world.act(&invocation);
            world.begun.notify_one();
            outcome
        });
        Box::pin(async move { acting.await.unwrap() })
    }

    fn can_probe(&self) -> bool {
        true
    }

    fn probe(&self, invocation: Invocation) -> ToolFuture<'_, ProbeAnswer> {
        let found = self.world.done.lock().unwrap().get(&invocation.key.to_string()).cloned();
        Box::pin(async move {
            found.map_or(ProbeAnswer::DidNotHappen, |result| ProbeAnswer::Happened(Success::new(Json::parse(&result).unwrap())))
        })
    }
}

/// A tool about which nobody can be asked.
pub struct Silent(pub WorldTool);

impl Tool for Silent {
    fn invoke(&self, invocation: Invocation) -> ToolFuture<'_, Outcome> {
        self.0.invoke(invocation)
    }
}

/// A clock that tests can move, on top of real time.
#[derive(Default)]
pub struct MovedClock(AtomicI64);

impl MovedClock {
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_micros() as i64, Ordering::SeqCst);
    }
}

impl Clock for MovedClock {
    fn now(&self) -> Timestamp {
        Timestamp(SystemClock.now().0 + self.0.load(Ordering::SeqCst))
    }
}

/// When a process dies: at its n-th append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    Never,
    /// The append is not written.
    Before(u64),
    /// It is written, and nobody hears of it.
    After(u64),
}

/// A store that a process loses when it dies.
pub struct Mortal {
    store: Arc<Memory>,
    death: Death,
    appends: AtomicU64,
    dead: std::sync::atomic::AtomicBool,
    fails: Mutex<Option<StreamId>>,
}

impl Mortal {
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Ready when the process is dead.
    pub async fn death(&self) {
        while !self.is_dead() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// The next read of this stream fails.
    pub fn fail_next_load(&self, stream: StreamId) {
        *self.fails.lock().unwrap() = Some(stream);
    }

    fn gone<T>(&self) -> Option<Result<T, StoreError>> {
        let dead = self.dead.load(Ordering::SeqCst);
        dead.then(|| Err(StoreError::Unavailable { message: "this process is dead".into(), written: Written::Perhaps }))
    }
}

impl Store for Mortal {
    fn load(&self, stream: StreamId, reach: Reach) -> Eventually<'_, Result<History, StoreError>> {
        if self.fails.lock().unwrap().take_if(|fails| *fails == stream).is_some() {
            return Box::pin(async { Err(StoreError::Unavailable { message: "a hiccup".into(), written: Written::No }) });
        }
        match self.gone() {
            Some(gone) => Box::pin(async { gone }),
            None => self.store.load(stream, reach),
        }
    }
    fn append<'a>(&'a self, batch: &'a Batch) -> Eventually<'a, Result<Position, AppendError>> {
        Box::pin(async move {
            if let Some(gone) = self.gone::<Position>() {
                return gone.map_err(AppendError::Store);
            }
            let number = self.appends.fetch_add(1, Ordering::SeqCst) + 1;
            if self.death == Death::Before(number) {
                self.dead.store(true, Ordering::SeqCst);
            }
            if let Some(gone) = self.gone::<Position>() {
                return gone.map_err(AppendError::Store);
            }
            let appended = self.store.append(batch).await;
            if self.death == Death::After(number) {
                self.dead.store(true, Ordering::SeqCst);
            }
            match self.gone::<Position>() {
                Some(gone) => gone.map_err(AppendError::Store),
                None => appended,
            }
        })
    }
    fn due(&self, now: Timestamp, limit: usize) -> Eventually<'_, Result<Vec<StreamId>, StoreError>> {
        self.store.due(now, limit)
    }
    fn tail(&self, after: Position, limit: usize) -> Eventually<'_, Result<Vec<Recorded>, StoreError>> {
        self.store.tail(after, limit)
    }
    fn search(&self, query: Query) -> Eventually<'_, Result<Page, StoreError>> {
        self.store.search(query)
    }
    fn prune(&self, before: Timestamp, limit: usize) -> Eventually<'_, Result<Pruned, StoreError>> {
        self.store.prune(before, limit)
    }
}

/// The ledger, the world and the time that processes share.
#[derive(Clone, Default)]
pub struct Town {
    pub store: Arc<Memory>,
    pub world: Arc<World>,
    pub clock: Arc<MovedClock>,
}

pub const TOOLS: [&str; 8] = ["book_flight", "cancel_flight", "book_hotel", "cancel_hotel", "charge", "refund", "act", "undo_act"];

impl Town {
    /// A process. Must be called inside a Tokio runtime.
    pub fn process(&self) -> House {
        self.process_that_dies(Death::Never).0
    }

    pub fn process_that_dies(&self, death: Death) -> (House, Arc<Mortal>) {
        let mortal =
            Arc::new(Mortal { store: self.store.clone(), death, appends: AtomicU64::new(0), dead: false.into(), fails: Mutex::default() });
        let runtime = Builder::new(mortal.clone()).clock(self.clock.clone()).build().unwrap();
        let retry =
            RetryPolicy { first: Duration::from_millis(1), max: Duration::from_millis(2), jitter: Jitter::Off, ..RetryPolicy::default() };
        for name in TOOLS {
            let policy = Policy { retry, settle_after: Some(Duration::ZERO), ..Policy::default() };
            runtime.register(Registered::new(ToolName::new(name).unwrap(), Arc::new(WorldTool(self.world.clone())), policy));
        }
        let policy = Policy { retry, ..Policy::default() };
        runtime.register(Registered::new(
            ToolName::new("silent").unwrap(),
            Arc::new(Silent(WorldTool(self.world.clone()))),
            policy.clone(),
        ));
        let pure = Policy { effect: EffectClass::Pure, ..policy };
        runtime.register(Registered::new(ToolName::new("think").unwrap(), Arc::new(WorldTool(self.world.clone())), pure));
        (House { runtime, town: self.clone() }, mortal)
    }
}

pub struct House {
    pub runtime: Runtime,
    pub town: Town,
}

impl House {
    pub async fn start(&self, yaml: &str, input: &str, run: &str) -> RunId {
        let workflow = Arc::new(workflow(yaml));
        self.runtime.start_run(new_run(&workflow, input, run)).await.unwrap().0
    }

    /// Starts a run and sees it to its end.
    pub async fn run(&self, yaml: &str, input: &str) -> RunView {
        let run = self.start(yaml, input, "r").await;
        self.see(&run).await
    }

    pub async fn see(&self, run: &RunId) -> RunView {
        let acme = tenant();
        let seen = self.runtime.see_run_through(&acme, run);
        tokio::time::timeout(Duration::from_secs(30), seen).await.expect("the run ends").unwrap();
        self.view(run).await
    }

    pub async fn view(&self, run: &RunId) -> RunView {
        self.runtime.run(&tenant(), run).await.unwrap()
    }

    pub fn world(&self) -> &World {
        &self.town.world
    }
}

pub fn new_run(workflow: &Arc<Workflow>, input: &str, run: &str) -> NewRun {
    NewRun {
        tenant: tenant(),
        caller: Caller::new("test").unwrap(),
        run: Some(RunId::new(run).unwrap()),
        workflow: workflow.clone(),
        input: CanonicalJson::parse(input).unwrap(),
        parent: None,
        tools: None,
        driven: true,
    }
}

pub fn workflow(yaml: &str) -> Workflow {
    Workflow::parse(yaml, "test.yaml").unwrap_or_else(|errors| panic!("{errors}"))
}

pub fn tenant() -> Tenant {
    Tenant::new("acme").unwrap()
}

pub fn path(step: &str) -> StepPath {
    StepPath::new(step).unwrap()
}

/// A step by its path.
pub fn step<'a>(view: &'a RunView, path: &str) -> &'a StepView {
    fn find<'a>(steps: &'a [StepView], path: &str) -> Option<&'a StepView> {
        steps.iter().find_map(|step| if step.step == path { Some(step) } else { find(&step.steps, path) })
    }
    find(&view.steps, path).unwrap_or_else(|| panic!("no step {path} in {view:?}"))
}

/// Each step with its status, in the order of the file.
pub fn statuses(view: &RunView) -> String {
    fn all(steps: &[StepView], out: &mut Vec<String>) {
        for step in steps {
            out.push(format!("{}:{}", step.step, step.status));
            all(&step.steps, out);
        }
    }
    let mut out = Vec::new();
    all(&view.steps, &mut out);
    out.join(" ")
}
