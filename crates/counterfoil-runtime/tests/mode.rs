//! Modes at run time: who may switch, what then holds, and what a ledger that cannot be read changes about it.

#[macro_use]
mod passed_on;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use counterfoil_core::ids::CallKey;
use counterfoil_core::mode::Source;
use counterfoil_core::policy::BreakerPolicy;
use counterfoil_core::{Call, Caller, CanonicalJson, Policy, StreamId, Tenant, ToolName};
use counterfoil_runtime::{Builder, FnTool, Mode, ModeError, Operator, Registered, Runtime, Shadowed, Switch};
use counterfoil_store::memory::Memory;
use counterfoil_store::{Eventually, History, Reach, Store, StoreError, Written};

/// Cannot be read while it is told so.
#[derive(Default)]
struct Blind {
    inner: Memory,
    closed: AtomicBool,
}

impl Store for Blind {
    fn load(&self, stream: StreamId, reach: Reach) -> Eventually<'_, Result<History, StoreError>> {
        if self.closed.load(Ordering::SeqCst) {
            return Box::pin(async { Err(StoreError::Unavailable { message: "the disk is gone".into(), written: Written::No }) });
        }
        self.inner.load(stream, reach)
    }
    passed_on!(inner: append, due, tail, search, prune);
}

struct House {
    runtime: Runtime,
    acted: Arc<AtomicU32>,
}

fn house(builder: Builder) -> House {
    let runtime = builder.build().unwrap();
    let acted = Arc::new(AtomicU32::new(0));
    for tool in ["charge", "mail"] {
        let counted = acted.clone();
        let tool_fn = FnTool::new(move |_| {
            let counted = counted.clone();
            async move { Ok(serde_json::json!(counted.fetch_add(1, Ordering::SeqCst) + 1)) }
        });
        runtime.register(Registered::new(name(tool), tool_fn, Policy::default()));
    }
    House { runtime, acted }
}

impl House {
    /// How often two calls with one key act.
    async fn twice(&self, tool: &str, key: &str) -> u32 {
        let before = self.acted.load(Ordering::SeqCst);
        for _ in 0..2 {
            self.runtime.call(call(tool, key, "{}")).await;
        }
        self.acted.load(Ordering::SeqCst) - before
    }
    async fn switch(&self, tool: Option<&str>, mode: Option<Mode>) {
        let switch = Switch { tool: tool.map(name), mode, accept_duplicates: true };
        self.runtime.switch_mode(switch, &ann()).await.unwrap();
    }
    async fn in_force(&self, tool: Option<&str>) -> (Mode, Source) {
        let modes = self.runtime.modes().await.unwrap();
        let found = modes.iter().find(|m| m.tool.as_ref().map(|t| t.as_str()) == tool).unwrap();
        (found.mode, found.source)
    }
}

fn name(tool: &str) -> ToolName {
    ToolName::new(tool).unwrap()
}

fn ann() -> Operator {
    Operator::new("ann", "trying it out")
}

fn call(tool: &str, key: &str, args: &str) -> Call {
    Call {
        tenant: Tenant::new("acme").unwrap(),
        caller: Caller::new("test").unwrap(),
        tool: name(tool),
        args: CanonicalJson::parse(args).unwrap(),
        key: CallKey::new(key).ok(),
        run: None,
        step: None,
        ordinal: 0,
    }
}

#[tokio::test]
async fn the_nearest_word_holds_at_once_and_survives_a_restart() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let builder = || Builder::new(store.clone()).mode(Mode::Shadow).tool_mode(name("charge"), Mode::Enforce);
    let house = house(builder());
    assert_eq!((house.twice("charge", "a").await, house.twice("mail", "a").await), (1, 2));
    assert_eq!(house.in_force(Some("charge")).await, (Mode::Enforce, Source::ToolConfig));
    assert_eq!(house.in_force(Some("mail")).await, (Mode::Shadow, Source::Config));
    house.switch(None, Some(Mode::Enforce)).await;
    assert_eq!(house.twice("mail", "b").await, 1);
    house.switch(Some("charge"), Some(Mode::Off)).await;
    assert_eq!(house.twice("charge", "b").await, 2);
    assert_eq!(house.in_force(Some("charge")).await, (Mode::Off, Source::ToolSwitch));
    assert_eq!(house.in_force(None).await, (Mode::Enforce, Source::Switch));
    drop(house);
    let restarted = self::house(builder());
    assert_eq!((restarted.twice("charge", "c").await, restarted.twice("mail", "c").await), (2, 1));
    restarted.switch(Some("charge"), None).await;
    assert_eq!(restarted.twice("charge", "d").await, 1);
    restarted.switch(None, None).await;
    assert_eq!((restarted.twice("charge", "e").await, restarted.twice("mail", "e").await), (1, 2));
    let switched = restarted.runtime.modes().await.unwrap()[0].switched.clone().unwrap();
    assert_eq!((switched.mode, switched.by.as_str(), switched.why.as_str()), (None, "ann", "trying it out"));
}

#[tokio::test]
async fn off_runs_without_a_trace_and_must_be_accepted() {
    let house = house(Builder::new(Arc::new(Memory::default())));
    let off = Switch { mode: Some(Mode::Off), ..Switch::default() };
    assert!(matches!(house.runtime.switch_mode(off, &ann()).await, Err(ModeError::NotAccepted)));
    assert_eq!(house.twice("charge", "a").await, 1, "nothing was switched");
    let unknown = Switch { tool: Some(name("chrge")), mode: Some(Mode::Shadow), ..Switch::default() };
    assert!(matches!(house.runtime.switch_mode(unknown, &ann()).await, Err(ModeError::UnknownTool(_))));
    let before = house.runtime.ledger().tail(Default::default(), 100).await.unwrap().len();
    house.switch(None, Some(Mode::Off)).await;
    assert_eq!(house.twice("charge", "b").await, 2);
    let tail = house.runtime.ledger().tail(Default::default(), 100).await.unwrap();
    assert_eq!(tail.len(), before + 1, "the switch itself, and nothing else");
    let summary = &tail.last().unwrap().summary;
    assert_eq!((summary.tenant.as_str(), summary.state, summary.open), ("counterfoil", "off", false));
}

#[tokio::test]
async fn another_process_follows_within_two_seconds() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let (here, there) = (house(Builder::new(store.clone())), house(Builder::new(store)));
    assert_eq!(there.runtime.mode_of(&name("charge")).await, Mode::Enforce);
    here.switch(Some("charge"), Some(Mode::Shadow)).await;
    let began = Instant::now();
    while there.runtime.mode_of(&name("charge")).await != Mode::Shadow {
        assert!(began.elapsed() < Duration::from_secs(2), "it was never told");
        tokio::task::yield_now().await;
    }
    assert_eq!(there.twice("charge", "k").await, 2);
    assert_eq!(there.twice("mail", "k").await, 1);
}

#[tokio::test]
async fn a_ledger_that_cannot_be_read_never_makes_it_laxer() {
    let store = Arc::new(Blind::default());
    let builder = || Builder::new(store.clone()).mode(Mode::Off);
    let (old, new) = (house(builder()), house(builder()));
    assert_eq!(old.runtime.mode_of(&name("charge")).await, Mode::Off);
    old.switch(None, Some(Mode::Enforce)).await;
    assert_eq!(old.runtime.mode_of(&name("charge")).await, Mode::Enforce);
    store.closed.store(true, Ordering::SeqCst);
    // Longer than it trusts what it read: it must have looked in vain.
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(1100) {
        assert_eq!(old.runtime.mode_of(&name("charge")).await, Mode::Enforce, "the last one known");
        tokio::task::yield_now().await;
    }
    assert_eq!(new.runtime.mode_of(&name("charge")).await, Mode::Enforce, "none is known: the config's off is not enough");
    assert_eq!((old.twice("charge", "k").await, new.twice("charge", "k").await), (0, 0), "no ledger, no execution");
    store.closed.store(false, Ordering::SeqCst);
    old.switch(None, None).await;
    assert_eq!(old.twice("charge", "k").await, 2);
}

#[tokio::test]
async fn shadow_counts_what_it_would_have_stopped() {
    let house = house(Builder::new(Arc::new(Memory::default())).mode(Mode::Shadow));
    let policy = Policy { breaker: BreakerPolicy { enabled: true, ..BreakerPolicy::default() }, ..Policy::default() };
    let tool = FnTool::new(|_| async { Ok(serde_json::json!(1)) });
    let approval: counterfoil_runtime::registry::ArgsRule<bool> = Arc::new(|_| Ok(true));
    house.runtime.register(Registered { approval: Some(approval), ..Registered::new(name("asks"), tool.clone(), policy.clone()) });
    house.runtime.register(Registered::new(name("broken"), tool, policy));
    assert_eq!(house.runtime.shadowed(), Shadowed::default());
    for args in ["{}", "{}", "{}", "[1]"] {
        house.runtime.call(call("charge", "k", args)).await;
    }
    house.runtime.call(call("asks", "k", "{}")).await;
    let broken = house.runtime.registry().get(&Tenant::new("acme").unwrap(), &name("broken")).unwrap();
    house.runtime.set_breaker(&Tenant::new("acme").unwrap(), &broken, |b, now| b.force_open(now, "down".into())).await.unwrap();
    let through = house.runtime.call(call("broken", "k", "{}")).await;
    assert_eq!(through.data.map(|d| d.to_string()), Some("1".into()), "it only watches");
    assert_eq!(house.runtime.shadowed(), Shadowed { replayed: 2, refused: 2, held: 1 });
}
