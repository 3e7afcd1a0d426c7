//! How fast the Redis adapter is, next to `redis-benchmark` doing bare SETs on the same server.
//!
//!     cargo run --release -p counterfoil-store --example redisbench -- [directory]
//!
//! Starts a Redis of its own with `appendfsync always`. An effect is a claim and an outcome, about 700 bytes together, in two batches; each
//! batch of outcomes also writes one record to a chain. One batch is on its way at a time, as the ledger's writer sends them. Measured in
//! turns, since machines are noisy.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use counterfoil_core::summary::StreamKind;
use counterfoil_core::{RunId, StreamId, Summary, Tenant, Timestamp, ToolName};
use counterfoil_store::redis::{Redis, RedisOptions};
use counterfoil_store::{Batch, Reach, Store, Version, Write};

const CALLERS: u64 = 64;
const SETS: u64 = 60_000;
const TURN: Duration = Duration::from_millis(1500);

#[tokio::main]
async fn main() {
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = std::env::args().nth(1).map_or(scratch.path().to_owned(), Into::into);
    let server = Server::start(&dir);
    let store = Arc::new(server.open().await);
    let mut load = Load::new();

    let before = server.memory();
    while load.next < 100_000 {
        for batch in load.batches(500) {
            store.append(&batch).await.expect("an append");
        }
    }
    println!("bytes per effect: {:.0}", (server.memory() - before) as f64 / load.next as f64);

    println!("{:>6} {:>12} {:>12} {:>6} {:>12} {:>12}", "batch", "effects/s", "SET/s", "ratio", "CPU µs/effect", "CPU µs/SET");
    for size in [1, 16, 32, 64, 128, 512] {
        let (mut ours, mut sets, mut our_cpu, mut set_cpu) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..3 {
            let (first, cpu) = (load.next, server.cpu());
            ours.push(appends(&store, &mut load, size).await);
            our_cpu.push((server.cpu() - cpu) / (load.next - first) as f64);
            let cpu = server.cpu();
            sets.push(server.sets());
            set_cpu.push((server.cpu() - cpu) / SETS as f64);
        }
        let [ours, sets, our_cpu, set_cpu] = [ours, sets, our_cpu, set_cpu].map(median);
        println!("{size:>6} {ours:>12.0} {sets:>12.0} {:>6.2} {our_cpu:>12.1} {set_cpu:>12.1}", ours / sets);
    }
    for reach in [Reach::Whole, Reach::Newest(1)] {
        println!("loads/s of {CALLERS} callers, {reach:?}: {:.0}", loads(&store, load.next, reach).await);
    }
}

/// Effects per second. Making the batches is not counted.
async fn appends(store: &Redis, load: &mut Load, size: u64) -> f64 {
    let (mut spent, mut effects) = (Duration::ZERO, 0);
    while spent < TURN {
        let batches = load.batches(size);
        let began = Instant::now();
        for batch in &batches {
            store.append(batch).await.expect("an append");
        }
        spent += began.elapsed();
        effects += size;
    }
    effects as f64 / spent.as_secs_f64()
}

async fn loads(store: &Arc<Redis>, effects: u64, reach: Reach) -> f64 {
    let began = Instant::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let store = store.clone();
            tokio::spawn(async move {
                let (mut loads, mut seed) = (0_u64, caller);
                while began.elapsed() < TURN {
                    seed = mix(seed);
                    let history = store.load(stream(seed % effects), reach).await.expect("a load");
                    assert_eq!(history.version, Version(2));
                    loads += 1;
                }
                loads
            })
        })
        .collect();
    let mut loads = 0;
    for caller in callers {
        loads += caller.await.expect("a caller");
    }
    loads as f64 / began.elapsed().as_secs_f64()
}

struct Server {
    child: Child,
    port: String,
}

impl Server {
    fn start(dir: &Path) -> Self {
        let free = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port").local_addr().expect("an address").port();
        let port = free.to_string();
        let mut command = Command::new("redis-server");
        command
            .args(["--port", &port, "--save", "", "--appendonly", "yes", "--appendfsync", "always"])
            // Neither of the two shall pay for the other's file.
            .args(["--auto-aof-rewrite-percentage", "0"])
            .arg("--dir")
            .arg(dir);
        let child = command.stdout(Stdio::null()).spawn().expect("redis-server; on Debian: apt-get install redis-server");
        Self { child, port }
    }

    async fn open(&self) -> Redis {
        let url = format!("redis://127.0.0.1:{}", self.port);
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            match Redis::open(&url, RedisOptions::default()).await {
                Ok(redis) => return redis,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
        }
    }

    fn run(&self, program: &str, args: &[&str]) -> String {
        let output = Command::new(program).args(["-p", &self.port]).args(args).output().expect("the tools of redis");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn memory(&self) -> i64 {
        let info = self.run("redis-cli", &["info", "memory"]);
        info.lines().find_map(|line| line.strip_prefix("used_memory:")).and_then(|bytes| bytes.trim().parse().ok()).expect("used_memory")
    }

    /// What Redis's one thread has used, in microseconds: says what things cost also on a machine that is busy with others.
    fn cpu(&self) -> f64 {
        let info = self.run("redis-cli", &["info", "cpu"]);
        let seconds = |name: &str| -> f64 {
            info.lines().find_map(|line| line.strip_prefix(name)).and_then(|seconds| seconds.trim().parse().ok()).expect("CPU times")
        };
        (seconds("used_cpu_user_main_thread:") + seconds("used_cpu_sys_main_thread:")) * 1e6
    }

    fn sets(&self) -> f64 {
        let csv = self.run("redis-benchmark", &["-t", "set", "-c", "64", "-P", "1", "-n", &SETS.to_string(), "--csv"]);
        let line = csv.lines().find_map(|line| line.strip_prefix("\"SET\",\"")).expect("a line for SET");
        line.split('"').next().and_then(|rate| rate.parse().ok()).expect("a rate")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Makes effects, numbered from `next`.
struct Load {
    next: u64,
    chained: u64,
    summary: Summary,
}

impl Load {
    fn new() -> Self {
        let summary = Summary {
            kind: StreamKind::Effect,
            tenant: Tenant::new("acme").expect("a name"),
            state: "running",
            tool: Some(ToolName::new("bank.transfer").expect("a name")),
            run: Some(RunId::new("run-2026-11-15").expect("a name")),
            open: true,
            due: None,
            expires: None,
        };
        Self { next: 0, chained: 0, summary }
    }

    /// The claims of `size` effects, then their outcomes and one link of a chain.
    fn batches(&mut self, size: u64) -> [Batch; 2] {
        let effects = self.next..self.next + size;
        self.next += size;
        let at = Timestamp(1_763_000_000_000_000 + self.next as i64);
        let claimed = Summary { due: Some(at + Duration::from_secs(30)), ..self.summary.clone() };
        let done = Summary { state: "done", open: false, expires: Some(at + Duration::from_secs(86_400)), ..self.summary.clone() };
        let chained = Summary { kind: StreamKind::Chain, state: "", open: false, ..self.summary.clone() };
        let write = |effect: u64, expected, body: &str, summary: &Summary| Write {
            stream: stream(effect),
            expected: Version(expected),
            at,
            body: format!("{{\"effect\":{effect},\"body\":\"{body}\"}}"),
            summary: summary.clone(),
        };
        let claims = effects.clone().map(|effect| write(effect, 0, &"c".repeat(270), &claimed)).collect();
        let mut outcomes: Vec<Write> = effects.map(|effect| write(effect, 1, &"o".repeat(370), &done)).collect();
        outcomes.push(Write { stream: stream(u64::MAX), ..write(0, self.chained, &"h".repeat(100), &chained) });
        self.chained += 1;
        [Batch { writes: claims }, Batch { writes: outcomes }]
    }
}

fn stream(number: u64) -> StreamId {
    let mut bytes = [0; 32];
    let mut word = number;
    for chunk in bytes.chunks_exact_mut(8) {
        word = mix(word);
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    StreamId(bytes)
}

/// splitmix64
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}
