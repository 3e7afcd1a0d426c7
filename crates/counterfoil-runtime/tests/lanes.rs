//! Two workers on one ledger write receipts beside each other, not one after the other: each in a lane of its own, every lane whole.

use std::collections::BTreeSet;
use std::sync::Arc;

use counterfoil_core::ids::CallKey;
use counterfoil_core::{Call, Caller, CanonicalJson, Policy, RunId, Tenant, ToolName};
use counterfoil_runtime::{Builder, FnTool, Registered, Runtime, Status};
use counterfoil_store::memory::Memory;

const CALLS: u32 = 40;

fn worker(store: Arc<Memory>) -> Runtime {
    let runtime = Builder::new(store).build().unwrap();
    let tool = FnTool::new(|_| async { Ok(serde_json::json!("sent")) });
    runtime.register(Registered::new(ToolName::new("mail").unwrap(), tool, Policy::default()));
    runtime
}

async fn call(worker: &Runtime, number: u32, run: Option<&str>) {
    let call = Call {
        tenant: Tenant::new("acme").unwrap(),
        caller: Caller::new("test").unwrap(),
        tool: ToolName::new("mail").unwrap(),
        args: CanonicalJson::empty_object(),
        key: Some(CallKey::new(&format!("mail-{number}")).unwrap()),
        run: run.map(|run| RunId::new(run).unwrap()),
        step: None,
        ordinal: 0,
    };
    assert_eq!(worker.call(call).await.status, Status::Success);
}

#[tokio::test]
async fn workers_that_meet_in_a_chain_part_for_good() {
    let store = Arc::new(Memory::default());
    let workers = [worker(store.clone()), worker(store.clone())];
    for number in 0..CALLS {
        call(&workers[number as usize % 2], number, None).await;
    }
    let receipts = workers[0].ledger().receipts(&Tenant::new("acme").unwrap(), None).await.unwrap();
    let effects: BTreeSet<String> = receipts.iter().map(|receipt| receipt.effect.to_string()).collect();
    assert_eq!((receipts.len(), effects.len()), (CALLS as usize, CALLS as usize), "each effect has one receipt");
    assert!(receipts.is_sorted_by_key(|receipt| receipt.ended));
    let lanes: BTreeSet<u16> = receipts.iter().map(|receipt| receipt.lane.0).collect();
    assert_eq!((lanes.len(), lanes.first()), (2, Some(&0)), "one stays where it was, the other moves once");
}

#[tokio::test]
async fn a_worker_that_is_alone_writes_one_chain() {
    let store = Arc::new(Memory::default());
    let alone = worker(store.clone());
    for number in 0..CALLS {
        call(&alone, number, None).await;
    }
    let receipts = alone.ledger().receipts(&Tenant::new("acme").unwrap(), None).await.unwrap();
    assert!(receipts.iter().map(|receipt| (receipt.lane.0, receipt.seq)).eq((1..=u64::from(CALLS)).map(|seq| (0, seq))));
}

#[tokio::test]
async fn a_run_has_one_chain_whoever_writes_it() {
    let store = Arc::new(Memory::default());
    let workers = [worker(store.clone()), worker(store.clone())];
    for number in 0..CALLS {
        call(&workers[number as usize % 2], number, Some("trip-1")).await;
    }
    let run = RunId::new("trip-1").unwrap();
    let receipts = workers[0].ledger().receipts(&Tenant::new("acme").unwrap(), Some(&run)).await.unwrap();
    assert!(receipts.iter().map(|receipt| (receipt.lane.0, receipt.seq)).eq((1..=u64::from(CALLS)).map(|seq| (0, seq))));
}
