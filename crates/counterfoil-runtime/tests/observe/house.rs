//! A runtime on one thread under a recorder of its own, with tools that answer by a script.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil_core::ids::CallKey;
use counterfoil_core::policy::{Jitter, RetryPolicy};
use counterfoil_core::{Call, Caller, CanonicalJson, Failure, Json, Outcome, Policy, Success, Tenant, Timestamp, ToolName};
use counterfoil_runtime::tool::{ToolFuture, UndoPlan};
use counterfoil_runtime::{Builder, Clock, Invocation, Registered, Runtime, SystemClock, Tool, observe};
use counterfoil_store::memory::Memory;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

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

pub struct House {
    pub runtime: Runtime,
    pub clock: Arc<MovedClock>,
    handle: PrometheusHandle,
    before: Mutex<BTreeMap<String, f64>>,
}

/// Runs a test with a recorder that is its own.
pub fn observed(builder: impl FnOnce(Builder) -> Builder, test: impl AsyncFnOnce(&House)) {
    let mut prometheus = PrometheusBuilder::new();
    for (name, buckets) in observe::buckets() {
        prometheus = prometheus.set_buckets_for_metric(Matcher::Full(name.into()), buckets).expect("buckets that are not empty");
    }
    let recorder = prometheus.build_recorder();
    let handle = recorder.handle();
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    metrics::with_local_recorder(&recorder, || {
        observe::describe();
        tokio.block_on(async {
            let clock = Arc::new(MovedClock::default());
            let runtime = builder(Builder::new(Arc::new(Memory::default())).clock(clock.clone())).build().expect("a runtime");
            test(&House { runtime, clock, handle, before: Mutex::default() }).await;
        });
    });
}

impl House {
    pub fn tool(&self, name: &str, policy: Policy, script: impl IntoIterator<Item = Outcome>) {
        self.undoable(name, policy, script, None);
    }

    pub fn undoable(&self, name: &str, policy: Policy, script: impl IntoIterator<Item = Outcome>, undo: Option<&str>) {
        let scripted = Scripted { script: Mutex::new(script.into_iter().collect()), undo: undo.map(|name| ToolName::new(name).unwrap()) };
        self.runtime.register(Registered::new(ToolName::new(name).unwrap(), Arc::new(scripted), policy));
    }

    pub fn exposition(&self) -> String {
        self.handle.render()
    }

    /// Every series that is not a time or the ledger's own, by how much it moved since this was last asked.
    pub fn moved(&self) -> Vec<(String, f64)> {
        let own = |name: &str| !name.starts_with("ledger_") && !name.contains("_bucket") && !name.contains("_seconds_sum");
        let now: BTreeMap<String, f64> = series(&self.exposition()).into_iter().filter(|(name, _)| own(name)).collect();
        let mut before = self.before.lock().unwrap();
        let moved = now.iter().map(|(name, value)| (name.clone(), value - before.get(name).copied().unwrap_or(0.0)));
        let moved = moved.filter(|(_, by)| *by != 0.0).collect();
        *before = now;
        moved
    }

    #[track_caller]
    pub fn moved_exactly(&self, expected: &[(&str, f64)]) {
        let mut expected: Vec<(String, f64)> = expected.iter().map(|(name, by)| ((*name).to_owned(), *by)).collect();
        expected.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(self.moved(), expected);
    }
}

pub fn series(exposition: &str) -> BTreeMap<String, f64> {
    let lines = exposition.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| line.rsplit_once(' ').expect("a value")).map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
}

/// Answers as it is told, one after the other; done when the script is over.
struct Scripted {
    script: Mutex<VecDeque<Outcome>>,
    undo: Option<ToolName>,
}

impl Tool for Scripted {
    fn invoke(&self, _: Invocation) -> ToolFuture<'_, Outcome> {
        let next = self.script.lock().unwrap().pop_front();
        Box::pin(async move { next.unwrap_or_else(|| done("1")) })
    }

    /// What was paid by card cannot be taken back, and it says so too loudly.
    fn undo_plan(&self, invocation: &Invocation, _: &Json) -> Result<Option<UndoPlan>, String> {
        if let Some(card) = invocation.args.to_value()["card"].as_str() {
            return Err(format!("{card} gives no money back"));
        }
        Ok(self.undo.clone().map(|tool| UndoPlan { tool, args: CanonicalJson::parse("{}").unwrap() }))
    }
}

pub fn done(json: &str) -> Outcome {
    Outcome::Done(Success::new(Json::parse(json).unwrap()))
}

pub fn busy() -> Outcome {
    Outcome::NotDone(Failure::of_dependency("http_503", "busy"))
}

pub fn rejected(message: &str) -> Outcome {
    Outcome::NotDone(Failure::new("http_400", message))
}

pub fn lost(message: &str) -> Outcome {
    Outcome::Unknown(Failure::of_dependency("connection_lost", message))
}

pub fn quick() -> Policy {
    let retry = RetryPolicy { first: Duration::from_millis(1), jitter: Jitter::Off, ..RetryPolicy::default() };
    Policy { retry, ..Policy::default() }
}

pub fn call(tool: &str, key: &str, args: &str) -> Call {
    Call {
        tenant: Tenant::new("acme").unwrap(),
        caller: Caller::new("test").unwrap(),
        tool: ToolName::new(tool).unwrap(),
        args: CanonicalJson::parse(args).unwrap(),
        key: Some(CallKey::new(key).unwrap()),
        run: None,
        step: None,
        ordinal: 0,
    }
}
