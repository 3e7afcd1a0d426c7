use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::policy::{BreakerPolicy, RetryPolicy};
use counterfoil_core::{EffectClass, Policy, StreamId, Tenant, Timestamp, ToolName};
use counterfoil_runtime::{Builder, Mode, Operator, Resolution, Status, observe};
use counterfoil_store::memory::Memory;
use counterfoil_store::{
    AppendError, Batch, Eventually, History, Page, Position, Pruned, Query, Reach, Recorded, Store, StoreError, Written,
};

use crate::house::*;

const RAN: [(&str, f64); 4] = [
    (r#"idempotency_cache_misses_total{tool="pay"}"#, 1.0),
    (r#"tool_attempts_total{tool="pay",outcome="done"}"#, 1.0),
    (r#"tool_duration_seconds_count{tool="pay"}"#, 1.0),
    (r#"tool_execution_total{tool="pay",status="success"}"#, 1.0),
];

#[test]
fn a_success_and_its_replay() {
    observed(
        |b| b,
        async |house| {
            house.tool("pay", quick(), []);
            house.runtime.call(call("pay", "k1", "{}")).await;
            house.moved_exactly(&RAN);

            let again = house.runtime.call(call("pay", "k1", "{}")).await;
            assert!(again.replayed);
            house.moved_exactly(&[
                (r#"idempotency_cache_hits_total{tool="pay"}"#, 1.0),
                (r#"tool_execution_total{tool="pay",status="success"}"#, 1.0),
            ]);

            // Refused: neither run nor replayed.
            let refused = house.runtime.call(call("pay", "k1", r#"{"other":1}"#)).await;
            assert_eq!(refused.error.unwrap().code, "key_reuse_mismatch");
            house.moved_exactly(&[(r#"tool_execution_total{tool="pay",status="error"}"#, 1.0)]);
        },
    );
}

#[test]
fn a_failure_that_is_remembered_is_a_hit_too() {
    observed(
        |b| b,
        async |house| {
            house.tool("pay", quick(), [rejected("no")]);
            house.runtime.call(call("pay", "k1", "{}")).await;
            house.moved_exactly(&[
                (r#"idempotency_cache_misses_total{tool="pay"}"#, 1.0),
                (r#"tool_attempts_total{tool="pay",outcome="not_done"}"#, 1.0),
                (r#"tool_duration_seconds_count{tool="pay"}"#, 1.0),
                (r#"tool_execution_total{tool="pay",status="error"}"#, 1.0),
            ]);
            assert!(house.runtime.call(call("pay", "k1", "{}")).await.replayed);
            house.moved_exactly(&[
                (r#"idempotency_cache_hits_total{tool="pay"}"#, 1.0),
                (r#"tool_execution_total{tool="pay",status="error"}"#, 1.0),
            ]);
        },
    );
}

#[test]
fn retries_are_attempts_of_one_call() {
    observed(
        |b| b,
        async |house| {
            house.tool("pay", quick(), [busy(), busy()]);
            assert_eq!(house.runtime.call(call("pay", "k1", "{}")).await.status, Status::Success);
            let mut expected = RAN.to_vec();
            expected.push((r#"tool_attempts_total{tool="pay",outcome="not_done"}"#, 2.0));
            house.moved_exactly(&expected);
        },
    );
}

#[test]
fn a_doubt_is_counted_as_long_as_it_is_open() {
    observed(
        |b| b,
        async |house| {
            house.tool("pay", quick(), [lost("hung up")]);
            observe::scrape(&house.runtime).await.unwrap();
            house.moved_exactly(&[]);
            let doubt = house.runtime.call(call("pay", "k1", "{}")).await;
            house.moved_exactly(&[
                (r#"idempotency_cache_misses_total{tool="pay"}"#, 1.0),
                (r#"tool_attempts_total{tool="pay",outcome="unknown"}"#, 1.0),
                (r#"tool_duration_seconds_count{tool="pay"}"#, 1.0),
                (r#"tool_execution_total{tool="pay",status="in_doubt"}"#, 1.0),
            ]);
            // Asked again: answered so again, and nothing ran.
            house.runtime.call(call("pay", "k1", "{}")).await;
            house.moved_exactly(&[(r#"tool_execution_total{tool="pay",status="in_doubt"}"#, 1.0)]);

            house.clock.advance(Duration::from_secs(100));
            observe::scrape(&house.runtime).await.unwrap();
            let found = series(&house.exposition());
            assert_eq!(found["effects_in_doubt"], 1.0);
            let oldest = found["effects_in_doubt_oldest_seconds"];
            assert!((100.0..160.0).contains(&oldest), "{oldest}");
            assert_eq!(found[r#"circuit_breaker_state{tool="pay",state="closed"}"#], 1.0);

            let operator = Operator::new("ann", "looked at the bank's list");
            house.runtime.resolve(doubt.effect.unwrap(), Resolution::DidNotHappen, &operator).await.unwrap();
            observe::scrape(&house.runtime).await.unwrap();
            let found = series(&house.exposition());
            assert_eq!((found["effects_in_doubt"], found["effects_in_doubt_oldest_seconds"]), (0.0, 0.0));
        },
    );
}

#[test]
fn doubts_of_a_tenant_that_has_not_called_yet_are_counted_once_it_is_known() {
    let store = Arc::new(Memory::default());
    let (ours, theirs) = (store.clone(), store);
    observed(
        move |_| Builder::new(ours),
        async move |house| {
            house.tool("pay", quick(), [lost("hung up")]);
            house.runtime.call(call("pay", "k1", "{}")).await;
            // Another process on the same ledger, just started.
            let restarted = Builder::new(theirs).build().unwrap();
            observe::scrape(&restarted).await.unwrap();
            assert_eq!(series(&house.exposition())["effects_in_doubt"], 0.0);
            restarted.know_tenants([Tenant::new("other").unwrap(), Tenant::new("acme").unwrap()]);
            observe::scrape(&restarted).await.unwrap();
            assert_eq!(series(&house.exposition())["effects_in_doubt"], 1.0);
        },
    );
}

#[test]
fn an_open_breaker_answers_without_an_attempt() {
    observed(
        |b| b,
        async |house| {
            let breaker = BreakerPolicy { consecutive: 2, reset: Duration::from_secs(30), ..BreakerPolicy::default() };
            let retry = RetryPolicy { attempts: 1, ..quick().retry };
            house.tool("pay", Policy { breaker, retry, ..quick() }, [busy(), busy()]);
            house.runtime.call(call("pay", "k1", "{}")).await;
            house.runtime.call(call("pay", "k2", "{}")).await;
            let state = |word: &str| series(&house.exposition())[&format!("circuit_breaker_state{{tool=\"pay\",state=\"{word}\"}}")];
            assert_eq!((state("closed"), state("open"), state("half_open")), (0.0, 1.0, 0.0));

            house.moved();
            let refused = house.runtime.call(call("pay", "k3", "{}")).await;
            assert_eq!(refused.status, Status::CircuitOpen);
            house.moved_exactly(&[(r#"tool_execution_total{tool="pay",status="circuit_open"}"#, 1.0)]);

            // Half-open is "open, and the time is up": nothing happens then, so it is found by looking.
            house.clock.advance(Duration::from_secs(31));
            observe::scrape(&house.runtime).await.unwrap();
            assert_eq!((state("closed"), state("open"), state("half_open")), (0.0, 0.0, 1.0));
            assert_eq!(house.runtime.call(call("pay", "k4", "{}")).await.status, Status::Success);
            assert_eq!((state("closed"), state("open"), state("half_open")), (1.0, 0.0, 0.0));
        },
    );
}

#[test]
fn of_several_tenants_breakers_the_worst_is_shown() {
    observed(
        |b| b,
        async |house| {
            house.tool("pay", quick(), []);
            let ours = call("pay", "k1", "{}");
            let theirs = counterfoil_core::Call { tenant: Tenant::new("other").unwrap(), ..ours.clone() };
            for call in [ours.clone(), theirs] {
                house.runtime.call(call).await;
            }
            let tool = house.runtime.registry().get(&ours.tenant, &ours.tool).unwrap();
            house.runtime.set_breaker(&ours.tenant, &tool, |breaker, now| breaker.force_open(now, "maintenance".into())).await.unwrap();
            observe::scrape(&house.runtime).await.unwrap();
            let found = series(&house.exposition());
            assert_eq!(found[r#"circuit_breaker_state{tool="pay",state="open"}"#], 1.0);
            assert_eq!(found[r#"circuit_breaker_state{tool="pay",state="closed"}"#], 0.0);
        },
    );
}

#[test]
fn pure_tools_are_neither_hit_nor_miss() {
    observed(
        |b| b,
        async |house| {
            house.tool("sum", Policy { effect: EffectClass::Pure, ..quick() }, []);
            house.runtime.call(call("sum", "k1", "{}")).await;
            house.moved_exactly(&[
                (r#"tool_attempts_total{tool="sum",outcome="done"}"#, 1.0),
                (r#"tool_duration_seconds_count{tool="sum"}"#, 1.0),
                (r#"tool_execution_total{tool="sum",status="success"}"#, 1.0),
            ]);
        },
    );
}

#[test]
fn an_undo_is_a_compensation() {
    observed(
        |b| b,
        async |house| {
            house.undoable("pay", quick(), [], Some("refund"));
            house.tool("refund", quick(), [rejected("too late")]);
            let paid = house.runtime.call(call("pay", "k1", "{}")).await.effect.unwrap();
            house.moved();
            let operator = Operator::new("ann", "wrong order");
            house.runtime.undo(paid, &operator).await.unwrap();
            house.moved_exactly(&[
                ("compensation_duration_seconds_count", 1.0),
                ("compensations_total", 1.0),
                (r#"idempotency_cache_misses_total{tool="refund"}"#, 1.0),
                (r#"tool_attempts_total{tool="refund",outcome="not_done"}"#, 1.0),
                (r#"tool_duration_seconds_count{tool="refund"}"#, 1.0),
                (r#"tool_execution_total{tool="refund",status="error"}"#, 1.0),
            ]);
            house.runtime.undo(paid, &operator).await.unwrap();
            house.moved_exactly(&[
                ("compensation_duration_seconds_count", 1.0),
                ("compensations_succeeded_total", 1.0),
                ("compensations_total", 1.0),
                (r#"idempotency_cache_misses_total{tool="refund"}"#, 1.0),
                (r#"tool_attempts_total{tool="refund",outcome="done"}"#, 1.0),
                (r#"tool_duration_seconds_count{tool="refund"}"#, 1.0),
                (r#"tool_execution_total{tool="refund",status="success"}"#, 1.0),
            ]);
        },
    );
}

#[test]
fn shadow_mode_says_what_it_let_through() {
    observed(
        |b| b.mode(Mode::Shadow),
        async |house| {
            house.tool("pay", quick(), []);
            house.runtime.call(call("pay", "k1", "{}")).await;
            house.moved_exactly(&RAN);
            house.runtime.call(call("pay", "k1", "{}")).await;
            house.moved_exactly(&[
                (r#"shadow_would_have_total{tool="pay",decision="replay"}"#, 1.0),
                (r#"tool_attempts_total{tool="pay",outcome="done"}"#, 1.0),
                (r#"tool_duration_seconds_count{tool="pay"}"#, 1.0),
                (r#"tool_execution_total{tool="pay",status="success"}"#, 1.0),
            ]);
        },
    );
}

#[test]
fn names_that_nobody_registered_are_one_label() {
    observed(
        |b| b,
        async |house| {
            house.tool("pay", quick(), []);
            house.runtime.call(call("pay", "k1", "{}")).await;
            house.moved();
            let before = series(&house.exposition()).len();
            for n in 0..1000 {
                house.runtime.call(call(&format!("made_up_{n}"), "k1", "{}")).await;
            }
            house.moved_exactly(&[(r#"tool_execution_total{tool="other",status="error"}"#, 1000.0)]);
            assert_eq!(series(&house.exposition()).len(), before);
        },
    );
}

#[test]
fn tools_that_are_too_many_share_a_label() {
    observed(
        |b| b,
        async |house| {
            let acme = Tenant::new("acme").unwrap();
            house.tool("pay", quick(), []);
            let pay = house.runtime.registry().get(&acme, &ToolName::new("pay").unwrap()).unwrap();
            for n in 0..600 {
                let name = ToolName::new(&format!("own_{n}")).unwrap();
                house.runtime.registry().put_own(&acme, counterfoil_runtime::Registered { name, ..(*pay).clone() });
                house.runtime.call(call(&format!("own_{n}"), "k1", "{}")).await;
            }
            let executed = |name: &String| name.starts_with("tool_execution_total") && name.contains("success");
            let found = series(&house.exposition());
            assert_eq!(found.keys().filter(|name| executed(name)).count(), 501);
            assert_eq!(found[r#"tool_execution_total{tool="other",status="success"}"#], 100.0);
        },
    );
}

#[test]
fn the_ledger_says_how_it_writes_and_every_metric_is_described() {
    observed(
        |b| b,
        async |house| {
            house.tool("pay", quick(), []);
            house.runtime.call(call("pay", "k1", "{}")).await;
            observe::scrape(&house.runtime).await.unwrap();
            let text = house.exposition();
            let found = series(&text);
            // A claim and an end, each in a batch of its own.
            assert_eq!((found["ledger_append_batch_size_count"], found["ledger_append_batch_size_sum"]), (2.0, 2.0));
            assert_eq!((found["ledger_append_seconds_count"], found["ledger_queue_depth"]), (2.0, 0.0));
            assert_eq!(found[r#"ledger_append_seconds_bucket{le="+Inf"}"#], 2.0);
            for line in text.lines().filter(|line| line.starts_with("# TYPE ")) {
                let name = line.split(' ').nth(2).unwrap();
                assert!(text.contains(&format!("# HELP {name} ")), "{name} has no help");
                assert!(!line.ends_with("summary"), "{name} has no buckets");
            }
        },
    );
}

/// Takes nothing and finds nothing.
#[derive(Default)]
struct Down(Memory);

impl Store for Down {
    fn load(&self, stream: StreamId, reach: Reach) -> Eventually<'_, Result<History, StoreError>> {
        self.0.load(stream, reach)
    }
    fn append<'a>(&'a self, _: &'a Batch) -> Eventually<'a, Result<Position, AppendError>> {
        Box::pin(async { Err(StoreError::Unavailable { message: "no space left".into(), written: Written::No }.into()) })
    }
    fn due(&self, now: Timestamp, limit: usize) -> Eventually<'_, Result<Vec<StreamId>, StoreError>> {
        self.0.due(now, limit)
    }
    fn tail(&self, after: Position, limit: usize) -> Eventually<'_, Result<Vec<Recorded>, StoreError>> {
        self.0.tail(after, limit)
    }
    fn search(&self, _: Query) -> Eventually<'_, Result<Page, StoreError>> {
        Box::pin(async { Err(StoreError::Corrupt { place: "record 7".into(), message: "wrong sum".into() }) })
    }
    fn prune(&self, before: Timestamp, limit: usize) -> Eventually<'_, Result<Pruned, StoreError>> {
        self.0.prune(before, limit)
    }
}

#[test]
fn failures_of_the_store_are_counted_by_kind() {
    observed(
        |_| Builder::new(Arc::new(Down::default())),
        async |house| {
            house.tool("pay", quick(), []);
            let answer = house.runtime.call(call("pay", "k1", "{}")).await;
            assert_eq!(answer.error.unwrap().code, "store_unavailable");
            house.moved_exactly(&[
                (r#"store_errors_total{kind="unavailable"}"#, 1.0),
                (r#"tool_execution_total{tool="pay",status="error"}"#, 1.0),
            ]);
            house.runtime.know_tenants([Tenant::new("acme").unwrap()]);
            observe::scrape(&house.runtime).await.unwrap_err();
            let found = series(&house.exposition());
            assert_eq!(found[r#"store_errors_total{kind="corrupt"}"#], 1.0);
        },
    );
}
