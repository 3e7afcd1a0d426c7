//! The load: callers that ask for distinct effects of a tool that does nothing, through the whole runtime.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use counterfoil::compose::{self, Opened, Volatile};
use counterfoil_core::ids::CallKey;
use counterfoil_core::{Call, Caller, CanonicalJson, EffectKey, Policy, Tenant, ToolName};
use counterfoil_runtime::{FnTool, Invocation, Receipts, Registered, Runtime, Status};
use counterfoil_store::Position;

/// Callers while filling.
const FILL_CALLERS: usize = 1024;
/// A caller yields after this many replays, as a server's task would.
const REPLAYS_PER_TURN: u32 = 64;
/// More than one effect leaves.
const RECORDS_MAX: usize = 100;

pub struct Load {
    runtime: Runtime,
    next: Arc<AtomicU64>,
    first: u64,
    bytes_per_append: usize,
}

/// What one measured stretch gave.
#[derive(Default)]
pub struct Tally {
    pub count: u64,
    elapsed: Duration,
    latencies_us: Vec<u32>,
}

impl Tally {
    pub fn new(count: u64, elapsed: Duration, latencies_us: Vec<u32>) -> Self {
        Self { count, elapsed, latencies_us }
    }
    pub fn add(&mut self, other: Self) {
        self.count += other.count;
        self.elapsed += other.elapsed;
        self.latencies_us.extend(other.latencies_us);
    }
    pub fn per_second(&self) -> f64 {
        self.count as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
    pub fn percentile(&self, share: f64) -> u64 {
        let mut sorted = self.latencies_us.clone();
        sorted.sort_unstable();
        let place = ((sorted.len() as f64 - 1.0) * share).round().max(0.0) as usize;
        sorted.get(place).copied().map_or(0, u64::from)
    }
}

impl Load {
    pub async fn new(opened: &Opened, receipts: Receipts) -> anyhow::Result<Self> {
        let runtime = runtime(opened, receipts)?;
        // Each benchmark has keys of its own, also on a ledger that another one fills.
        let first = u64::from(std::process::id()) << 40;
        let bytes_per_append = stored_bytes(receipts, first).await? / 2;
        // Whatever is done once is not measured.
        one(&runtime, first).await?;
        Ok(Self { runtime, next: Arc::new(AtomicU64::new(first + 1)), first, bytes_per_append })
    }

    /// What the ledger stores for one effect, halved: the raw file writes as much in as many appends.
    pub fn bytes_per_append(&self) -> usize {
        self.bytes_per_append
    }

    /// Effects made by this load.
    pub fn made(&self) -> u64 {
        self.next.load(Ordering::Relaxed) - self.first
    }

    pub async fn fill(&self, count: u64, progress: impl Fn(u64)) -> anyhow::Result<()> {
        let until = self.next.load(Ordering::Relaxed) + count;
        let callers: Vec<_> = (0..FILL_CALLERS)
            .map(|_| {
                let (runtime, next) = (self.runtime.clone(), self.next.clone());
                tokio::spawn(async move {
                    loop {
                        let n = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < until).then_some(n + 1));
                        let Ok(n) = n else { return Ok::<_, anyhow::Error>(()) };
                        one(&runtime, n).await?;
                    }
                })
            })
            .collect();
        let mut shown = Instant::now();
        while self.next.load(Ordering::Relaxed) < until {
            tokio::time::sleep(Duration::from_millis(100)).await;
            if shown.elapsed() > Duration::from_secs(5) {
                progress(count - until.saturating_sub(self.next.load(Ordering::Relaxed)));
                shown = Instant::now();
            }
        }
        for caller in callers {
            caller.await??;
        }
        Ok(())
    }

    /// `concurrency` callers for about `span`.
    pub async fn run(&self, concurrency: usize, span: Duration) -> anyhow::Result<Tally> {
        let stop = Arc::new(AtomicBool::new(false));
        let started = Instant::now();
        let callers: Vec<_> = (0..concurrency)
            .map(|_| {
                let (runtime, next, stop) = (self.runtime.clone(), self.next.clone(), stop.clone());
                tokio::spawn(async move {
                    let mut latencies = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        let asked = Instant::now();
                        one(&runtime, next.fetch_add(1, Ordering::Relaxed)).await?;
                        latencies.push(u32::try_from(asked.elapsed().as_micros()).unwrap_or(u32::MAX));
                    }
                    Ok::<_, anyhow::Error>(latencies)
                })
            })
            .collect();
        tokio::time::sleep(span).await;
        stop.store(true, Ordering::Relaxed);
        let mut latencies = Vec::new();
        for caller in callers {
            latencies.extend(caller.await??);
        }
        Ok(Tally::new(latencies.len() as u64, started.elapsed(), latencies))
    }

    /// Asks for effects that are done, all over the ledger, on all cores.
    pub async fn replays(&self, span: Duration) -> anyhow::Result<f64> {
        let made = self.made();
        let first = self.first;
        let stop = Arc::new(AtomicBool::new(false));
        let started = Instant::now();
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let callers: Vec<_> = (0..cores as u64)
            .map(|caller| {
                let (runtime, stop) = (self.runtime.clone(), stop.clone());
                tokio::spawn(async move {
                    let (mut hits, mut random) = (0u64, caller + 1);
                    while !stop.load(Ordering::Relaxed) {
                        for _ in 0..REPLAYS_PER_TURN {
                            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                            let answer = runtime.call(call(first + (random >> 20) % made)).await;
                            ensure!(answer.replayed, "an effect of the bench was not replayed: {answer:?}");
                        }
                        hits += u64::from(REPLAYS_PER_TURN);
                        tokio::task::yield_now().await;
                    }
                    Ok(hits)
                })
            })
            .collect();
        tokio::time::sleep(span).await;
        stop.store(true, Ordering::Relaxed);
        let mut hits = 0;
        for caller in callers {
            hits += caller.await??;
        }
        Ok(hits as f64 / started.elapsed().as_secs_f64())
    }
}

fn runtime(opened: &Opened, receipts: Receipts) -> anyhow::Result<Runtime> {
    let runtime = compose::builder(opened).receipts(receipts).build()?;
    let noop = FnTool::new(|call: Invocation| async move { Ok(result(&call.key)) });
    runtime.register(Registered::new(ToolName::new("bench")?, noop, Policy::default()));
    Ok(runtime)
}

/// What a ledger stores for one effect. Read off one that holds nothing else: the one that is measured may be large, and others may write to it.
async fn stored_bytes(receipts: Receipts, n: u64) -> anyhow::Result<usize> {
    let runtime = runtime(&compose::open_store("memory:", Volatile::Allowed).await?, receipts)?;
    one(&runtime, n).await?;
    let records = runtime.ledger().tail(Position::default(), RECORDS_MAX).await?;
    Ok(records.iter().map(|r| r.record.body.len() + 32).sum())
}

async fn one(runtime: &Runtime, n: u64) -> anyhow::Result<()> {
    let answer = runtime.call(call(n)).await;
    ensure!(answer.status == Status::Success && !answer.replayed, "an effect of the bench did not run: {answer:?}");
    Ok(())
}

/// About what an agent's call looks like: 200 bytes of arguments, 300 of result.
fn call(n: u64) -> Call {
    Call {
        tenant: Tenant::new("bench").expect("a plain word"),
        caller: Caller::new("bench").expect("a plain word"),
        tool: ToolName::new("bench").expect("a plain word"),
        args: CanonicalJson::parse(&args(n)).expect("JSON"),
        key: Some(CallKey::new(&format!("order-{n}")).expect("printable")),
        run: None,
        step: None,
        ordinal: 0,
    }
}

pub fn args(n: u64) -> String {
    Args(n).to_string()
}

/// About 200 bytes.
pub struct Args(pub u64);

impl fmt::Display for Args {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0;
        write!(
            f,
            r#"{{"body":{{"amount":1999,"currency":"EUR","customer":"cus_{n:016x}","note":"{n:032x}"}},"method":"POST","url":"https://api.example.com/v1/orders/{n:016x}"}}"#
        )
    }
}

pub fn result(key: &EffectKey) -> serde_json::Value {
    let key = key.to_string();
    serde_json::json!({
        "status": 201, "id": format!("ord_{}", &key[..16]), "object": "order", "state": "accepted", "amount": 1999,
        "currency": "EUR", "created": 1_763_234_567, "etag": key, "livemode": false,
        "headers": { "content-type": "application/json", "x-request-id": &key[16..48] },
    })
}
