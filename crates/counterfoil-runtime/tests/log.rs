//! The log of receipts: sealed by several at once, proven from its tiles, the same in a copy.

use std::sync::Arc;

use counterfoil_core::ids::CallKey;
use counterfoil_core::{Call, Caller, CanonicalJson, Policy, RunId, StreamId, Tenant, ToolName};
use counterfoil_evidence::bundle;
use counterfoil_evidence::{PublicKey, SecretKey};
use counterfoil_runtime::log::seal::Sealing;
use counterfoil_runtime::{Builder, FnTool, Log, LogError, Registered, Runtime, Status};
use counterfoil_store::copy::{Side, copy};
use counterfoil_store::memory::Memory;
use counterfoil_store::sqlite::Sqlite;
use counterfoil_store::{Graves, Reach, Store};

struct House {
    runtime: Runtime,
    log: Log,
    secret: SecretKey,
}

impl House {
    async fn on(store: Arc<dyn Store>) -> Self {
        let runtime = Builder::new(store).build().unwrap();
        let tool =
            FnTool::new(|call: counterfoil_runtime::Invocation| async move { Ok(serde_json::json!({ "key": call.key.to_string() })) });
        runtime.register(Registered::new(ToolName::new("mail").unwrap(), tool, Policy::default()));
        let log = Log::new(&runtime);
        Self { runtime, log, secret: SecretKey::from_seed(&[5; 32]) }
    }

    async fn known(self) -> Self {
        assert!(self.log.introduce(&self.secret, None, "test", &[]).await.unwrap());
        self
    }

    async fn calls(&self, numbers: std::ops::Range<u32>, run: Option<&str>) {
        let calls = numbers.map(|number| {
            let call = Call {
                tenant: tenant(),
                caller: Caller::new("test").unwrap(),
                tool: ToolName::new("mail").unwrap(),
                args: CanonicalJson::parse(&format!("[{number}]")).unwrap(),
                key: Some(CallKey::new(&format!("mail-{number}")).unwrap()),
                run: run.map(|run| RunId::new(run).unwrap()),
                step: None,
                ordinal: 0,
            };
            let runtime = self.runtime.clone();
            tokio::spawn(async move { assert_eq!(runtime.call(call).await.status, Status::Success) })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await.unwrap();
        }
    }

    async fn seal(&self) -> Sealing {
        self.log.seal(&self.secret).await.unwrap()
    }

    fn keys(&self) -> [PublicKey; 1] {
        [self.secret.public()]
    }

    /// Every receipt of calls outside runs can be proven.
    async fn prove_all(&self) -> usize {
        let placed = self.log.outside_runs(&tenant()).await.unwrap();
        for placed in &placed {
            let proof = self.log.prove(placed).await.unwrap();
            assert_eq!(proof.verify(&self.keys()).unwrap(), placed.receipt);
        }
        placed.len()
    }
}

fn tenant() -> Tenant {
    Tenant::new("acme").unwrap()
}

fn sqlite(folder: &tempfile::TempDir, name: &str) -> Arc<Sqlite> {
    Arc::new(Sqlite::open(folder.path().join(name), Default::default()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sealed_in_steps_is_proven_whole_and_every_head_leads_to_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::on(sqlite(&folder, "ledger.db")).await.known().await;
    assert_eq!(house.seal().await, Sealing { newest: None, added: 0 }, "nothing was done yet");
    let mut sizes = Vec::new();
    let mut from = 0;
    for count in [1, 3, 300, 1, 500] {
        house.calls(from..from + count, None).await;
        from += count;
        assert!(house.log.is_behind().await.unwrap());
        let sealing = house.seal().await;
        assert_eq!(sealing.added, u64::from(count));
        sizes.push(sealing.newest.unwrap().head.size);
        assert_eq!(house.seal().await.added, 0, "there is nothing new");
        assert!(!house.log.is_behind().await.unwrap());
    }
    assert_eq!(sizes, [1, 4, 304, 305, 805]);
    assert_eq!(house.prove_all().await, 805);
    let heads = house.log.heads(100).await.unwrap();
    assert!(heads.iter().map(|kept| kept.number).eq((1..=5).rev()));
    for (new, old) in heads.iter().zip(&heads[1..]) {
        house.log.consistency(old, new).await.unwrap().verify(&house.keys()).unwrap();
    }
    house.log.consistency(&heads[4], &heads[0]).await.unwrap().verify(&house.keys()).unwrap();
    assert_eq!(house.log.head(2).await.unwrap().head.size, 4);
    assert!(matches!(house.log.head(6).await, Err(LogError::NoHead { number: 6, newest: 5 })));
}

#[tokio::test(flavor = "multi_thread")]
async fn several_sealers_make_one_log() {
    let store = Arc::new(Memory::default());
    let first = House::on(store.clone()).await.known().await;
    let others: Vec<House> = vec![House::on(store.clone()).await, House::on(store.clone()).await];
    let sealing: Vec<_> = others
        .into_iter()
        .map(|house| {
            tokio::spawn(async move {
                let mut added = 0;
                for _ in 0..60 {
                    added += house.seal().await.added;
                    tokio::task::yield_now().await;
                }
                added
            })
        })
        .collect();
    first.calls(0..400, None).await;
    first.calls(400..500, Some("trip")).await;
    let mut added = first.seal().await.added;
    for sealer in sealing {
        added += sealer.await.unwrap();
    }
    added += first.seal().await.added;
    assert_eq!(added, 500, "each receipt is in it once");
    assert_eq!(first.log.newest_head().await.unwrap().unwrap().head.size, 500);
    assert_eq!(first.prove_all().await, 400);
}

/// More heads than one stream of them holds.
#[tokio::test(flavor = "multi_thread")]
async fn the_newest_of_many_heads_is_found() {
    let store = Arc::new(Memory::default());
    let house = House::on(store.clone()).await.known().await;
    for number in 0..600 {
        house.calls(number..number + 1, None).await;
        house.seal().await;
    }
    let fresh = House::on(store).await;
    assert_eq!(fresh.log.newest_head().await.unwrap().unwrap().number, 600);
    for number in [1, 256, 257, 512, 513, 600] {
        assert_eq!(fresh.log.head(number).await.unwrap().head.size, number);
    }
    assert!(fresh.log.heads(300).await.unwrap().iter().map(|kept| kept.number).eq((301..=600).rev()));
    assert_eq!(fresh.prove_all().await, 600);
}

/// Positions are each store's own: a copy has none of the source's, and its log goes on all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_goes_on_with_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (sqlite(&folder, "a.db"), sqlite(&folder, "b.db"));
    let house = House::on(source.clone()).await.known().await;
    house.calls(0..50, None).await;
    house.seal().await;
    // A gap in the positions: what is pruned is not copied.
    let stream = StreamId::effect(&counterfoil_runtime::log::find::effect_of_key(
        &tenant(),
        &ToolName::new("mail").unwrap(),
        &CallKey::new("mail-3").unwrap(),
    ));
    let version = source.load(stream, Reach::Newest(0)).await.unwrap().version;
    source.entomb(&[counterfoil_store::Tombstone { stream, version }]).await.unwrap();
    house.calls(50..60, None).await;
    copy(Side { store: &*source, graves: &*source }, Side { store: &*target, graves: &*target }, |_| std::ops::ControlFlow::Continue(()))
        .await
        .unwrap();
    let copied = House::on(target).await;
    copied.calls(60..70, None).await;
    assert_eq!(copied.seal().await.added, 20);
    assert_eq!(copied.log.newest_head().await.unwrap().unwrap().head.size, 70);
    assert_eq!(copied.prove_all().await, 70);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_exported_alike_however_the_log_grows() {
    let store = Arc::new(Memory::default());
    let house = House::on(store).await.known().await;
    house.calls(0..30, Some("trip-1")).await;
    house.calls(30..60, Some("trip-2")).await;
    let run = RunId::new("trip-1").unwrap();
    let first = house.log.export_run(&tenant(), &run, &house.secret).await.unwrap();
    let verified = bundle::verify(&first.text, &house.keys()).unwrap();
    assert_eq!((verified.receipts, verified.records, verified.ended), (30, 60, true));
    house.calls(60..400, None).await;
    house.seal().await;
    let again = house.log.export_run(&tenant(), &run, &house.secret).await.unwrap();
    assert_eq!(first.text, again.text);
    // Another tenant has no such run.
    let other = Tenant::new("other").unwrap();
    assert!(matches!(house.log.export_run(&other, &run, &house.secret).await, Err(LogError::NoRun(_))));
    let effect = verified_effect(&first.text);
    let one = house.log.export_effect(&tenant(), effect, &house.secret).await.unwrap();
    assert_eq!(bundle::verify(&one.text, &house.keys()).unwrap().receipts, 1);
    assert!(matches!(house.log.export_effect(&other, effect, &house.secret).await, Err(LogError::NoEffect(_))));
}

fn verified_effect(bundle: &str) -> counterfoil_core::EffectKey {
    let line: serde_json::Value = serde_json::from_str(bundle.lines().nth(1).unwrap()).unwrap();
    line["record"]["stream"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_key_that_the_ledger_does_not_know_may_not_sign() {
    let house = House::on(Arc::new(Memory::default())).await;
    assert!(matches!(house.log.seal(&house.secret).await, Err(LogError::OtherKey { .. })));
    let house = house.known().await;
    let other = SecretKey::from_seed(&[6; 32]);
    assert!(matches!(house.log.seal(&other).await, Err(LogError::OtherKey { .. })));
    house.calls(0..2, None).await;
    house.seal().await;
    let keys = house.log.keys().await.unwrap();
    assert!(house.log.introduce(&other, Some(&house.secret), "ada", &keys).await.unwrap());
    assert!(!house.log.introduce(&other, Some(&house.secret), "ada", &keys).await.unwrap(), "somebody was faster");
    assert!(matches!(house.log.seal(&house.secret).await, Err(LogError::OtherKey { .. })));
    house.log.sign_again(&other).await.unwrap();
    let newest = house.log.newest_head().await.unwrap().unwrap();
    assert_eq!((newest.number, newest.head.size, newest.head.key), (2, 2, other.public()));
    assert_eq!(counterfoil_evidence::keys::first_unvouched(&house.log.keys().await.unwrap()), None);
}
