//! How long a proof of one receipt takes out of many, on SQLite, by the real code from the call to the proof:
//! `cargo run --release -p counterfoil-runtime --example proof_speed -- 1000000 FOLDER`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use counterfoil_core::ids::CallKey;
use counterfoil_core::{Call, Caller, CanonicalJson, Policy, Tenant, ToolName};
use counterfoil_evidence::SecretKey;
use counterfoil_runtime::log::find::effect_of_key;
use counterfoil_runtime::{Builder, FnTool, Log, Registered, Runtime, Status};
use counterfoil_store::sqlite::Sqlite;
use futures_util::{StreamExt, stream};

const CALLERS: usize = 512;
const SAMPLES: u64 = 1_000;

fn call(n: u64) -> Call {
    Call {
        tenant: Tenant::new("acme").expect("a name"),
        caller: Caller::new("speed").expect("a name"),
        tool: ToolName::new("mail").expect("a name"),
        args: CanonicalJson::parse(&format!("[{n}]")).expect("JSON"),
        key: Some(CallKey::new(&format!("mail-{n}")).expect("a key")),
        run: None,
        step: None,
        ordinal: 0,
    }
}

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let receipts: u64 = args.next().and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let folder = args.next().unwrap_or_else(|| ".".into());
    let path = std::path::Path::new(&folder).join("proof-speed.db");
    let store = Arc::new(Sqlite::open(&path, Default::default()).expect("a new ledger"));
    let runtime: Runtime = Builder::new(store).build().expect("a runtime");
    let tool = FnTool::new(|_| async { Ok(serde_json::json!("sent")) });
    runtime.register(Registered::new(ToolName::new("mail").expect("a name"), tool, Policy::default()));
    let started = Instant::now();
    let calls = stream::iter(0..receipts).map(|n| {
        let runtime = runtime.clone();
        async move { assert_eq!(runtime.call(call(n)).await.status, Status::Success) }
    });
    calls.buffer_unordered(CALLERS).for_each(|()| async {}).await;
    println!("{receipts} calls in {:.1} s", started.elapsed().as_secs_f64());
    let (log, secret) = (Log::new(&runtime), SecretKey::from_seed(&[1; 32]));
    log.introduce(&secret, None, "speed", &[]).await.expect("a key");
    let started = Instant::now();
    let sealing = log.seal(&secret).await.expect("a sealing");
    println!("{} receipts sealed in {:.1} s", sealing.added, started.elapsed().as_secs_f64());
    let (mut found, mut proven) = (Vec::new(), Vec::new());
    for sample in 0..SAMPLES {
        let n = sample.wrapping_mul(0x9e37_79b9_7f4a_7c15) % receipts;
        let Call { tenant, tool, key, .. } = call(n);
        let effect = effect_of_key(&tenant, &tool, &key.expect("it has one"));
        let started = Instant::now();
        let placed = log.of_effect(&tenant, effect, None).await.expect("its receipt").remove(0);
        found.push(started.elapsed());
        let started = Instant::now();
        let proof = log.prove(&placed).await.expect("a proof");
        proven.push(started.elapsed());
        proof.verify(&[secret.public()]).expect("it holds");
    }
    told("its receipt found, by its effect", found);
    told("its inclusion proven", proven);
    drop((log, runtime));
    for suffix in ["", "-wal", "-shm"] {
        drop(std::fs::remove_file(format!("{}{suffix}", path.display())));
    }
}

fn told(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
    println!("{what}: median {:.3} ms, 99 % {:.3} ms, slowest {:.3} ms of {}", at(0.5), at(0.99), at(1.0), times.len());
}
