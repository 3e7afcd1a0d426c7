//! How fast the SQLite adapter is, next to a bare file that takes the same bytes.
//!
//!     cargo run --release -p counterfoil-store --example storebench -- [effects] [directory]
//!
//! An effect is a claim and an outcome, about 700 bytes together, in two batches; each batch of outcomes also
//! writes one record to a chain. The bare file is preallocated and overwritten, one flush per batch: no index, no
//! checksum, nothing can be found in it again. Both are measured in turns, since machines are noisy.

use std::fs::File;
use std::future::Future;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::pin::pin;
use std::process::{Command, Stdio};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use counterfoil_core::summary::StreamKind;
use counterfoil_core::{RunId, StreamId, Summary, Tenant, Timestamp, ToolName};
use counterfoil_store::sqlite::{Options, Sqlite};
use counterfoil_store::{Batch, Reach, Store, Version, Write};

const RAW_BYTES: u64 = 256 << 20;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).map(String::as_str) == Some("fill") {
        return fill(Path::new(&args[2]), args[3].parse().expect("a number of effects"));
    }
    let effects: u64 = args.get(1).map_or(1_000_000, |effects| effects.parse().expect("a number of effects"));
    let effects = effects.next_multiple_of(1024);
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = args.get(2).map_or(scratch.path(), Path::new);
    let ledger = dir.join("ledger.db");

    // In a child, which dies without closing: what is opened next is what a crash leaves.
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["fill".as_ref(), ledger.as_os_str(), effects.to_string().as_ref()])
        .stdin(Stdio::piped())
        .spawn()
        .expect("a child");
    child.wait().expect("the child");
    let began = Instant::now();
    let store = Sqlite::open(&ledger, Options::default()).expect("the ledger");
    println!("open after a crash, {effects} effects: {:.0?}; {}", began.elapsed(), resident());

    let mut load = Load::new(effects);
    let mut raw = Raw::new(&dir.join("raw.log"));
    println!("{:>6} {:>12} {:>12} {:>6} {:>15}", "batch", "sqlite eff/s", "raw eff/s", "ratio", "fsyncs/effect");
    for size in [1, 64, 1024] {
        compare(&store, &mut raw, &mut load, size);
    }
    println!("{}", resident());
    // More than once: at first the pages of the ledger are not mapped yet.
    for threads in [1, 2, 2, 2] {
        println!("loads/s on {threads} threads: {:.0}", loads(&store, effects, threads));
    }
    println!("{}, {:?}", resident(), store.stats());
    let began = Instant::now();
    drop(store);
    println!("close: {:.0?}; file {} MB", began.elapsed(), ledger.metadata().expect("the ledger").len() >> 20);
}

fn fill(path: &Path, effects: u64) {
    let store = Sqlite::open(path, Options::default()).expect("the ledger");
    let mut load = Load::new(0);
    let began = Instant::now();
    while load.next < effects {
        for batch in load.batches(1024) {
            now(store.append(&batch)).expect("an append");
        }
    }
    let rate = load.next as f64 / began.elapsed().as_secs_f64();
    println!("fill: {rate:.0} effects/s; {}, {:?}", resident(), store.stats());
    // Without closing anything.
    std::process::exit(0);
}

fn compare(store: &Sqlite, raw: &mut Raw, load: &mut Load, size: u64) {
    const TURN: Duration = Duration::from_millis(1500);
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    let before = store.stats().syncs;
    let first = load.next;
    for _ in 0..5 {
        ours.push(turn(
            TURN,
            size,
            || load.batches(size),
            |batch| {
                now(store.append(&batch)).expect("an append");
            },
        ));
        let mut beside = Load::new(0);
        bare.push(turn(TURN, size, || beside.batches(size), |batch| raw.append(&batch)));
    }
    let syncs = (store.stats().syncs - before) as f64 / (load.next - first) as f64;
    let (ours, bare) = (median(ours), median(bare));
    println!("{size:>6} {ours:>12.0} {bare:>12.0} {:>6.2} {syncs:>15.4}", ours / bare);
}

/// Effects per second. Making the batches is not counted.
fn turn(lasting: Duration, size: u64, mut make: impl FnMut() -> [Batch; 2], mut append: impl FnMut(Batch)) -> f64 {
    let (mut spent, mut effects) = (Duration::ZERO, 0);
    while spent < lasting {
        let batches = make();
        let began = Instant::now();
        batches.into_iter().for_each(&mut append);
        spent += began.elapsed();
        effects += size;
    }
    effects as f64 / spent.as_secs_f64()
}

fn loads(store: &Sqlite, effects: u64, threads: u64) -> f64 {
    const LASTING: Duration = Duration::from_secs(3);
    let count = |thread: u64| {
        let (began, mut loads, mut seed) = (Instant::now(), 0_u64, thread);
        while began.elapsed() < LASTING {
            for _ in 0..100 {
                seed = mix(seed);
                let history = now(store.load(stream(seed % effects), Reach::Whole)).expect("a load");
                assert_eq!(history.records.len(), 2);
                black_box(history);
            }
            loads += 100;
        }
        loads as f64 / began.elapsed().as_secs_f64()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || count(thread + 1))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread")).sum()
    })
}

/// Makes effects, numbered from `next`.
struct Load {
    next: u64,
    chain: StreamId,
    chained: u64,
    summary: Summary,
}

impl Load {
    fn new(next: u64) -> Self {
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
        Self { next, chain: stream(mix(next) | 1 << 63), chained: 0, summary }
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
        outcomes.push(Write { stream: self.chain, ..write(0, self.chained, &"h".repeat(100), &chained) });
        self.chained += 1;
        [Batch { writes: claims }, Batch { writes: outcomes }]
    }
}

/// A bare file: the bytes, then a flush.
struct Raw {
    file: File,
    at: u64,
    buffer: Vec<u8>,
}

impl Raw {
    fn new(path: &Path) -> Self {
        let file = File::options().write(true).create(true).truncate(true).open(path).expect("a file");
        for at in (0..RAW_BYTES).step_by(1 << 20) {
            file.write_all_at(&[0; 1 << 20], at).expect("space for the bare file");
        }
        file.sync_all().expect("a flush");
        Self { file, at: 0, buffer: Vec::new() }
    }

    fn append(&mut self, batch: &Batch) {
        self.buffer.clear();
        for write in &batch.writes {
            self.buffer.extend_from_slice(&(write.body.len() as u32).to_le_bytes());
            self.buffer.extend_from_slice(&write.stream.0);
            self.buffer.extend_from_slice(&write.at.0.to_le_bytes());
            self.buffer.extend_from_slice(write.body.as_bytes());
        }
        if self.at + self.buffer.len() as u64 > RAW_BYTES {
            self.at = 0;
        }
        self.file.write_all_at(&self.buffer, self.at).expect("a write");
        self.file.sync_data().expect("a flush");
        self.at += self.buffer.len() as u64;
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

/// Memory of its own, and mapped pages of the ledger, which the system takes back when it needs them.
fn resident() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mb = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default() >> 10
    };
    format!("resident {} MB (and {} MB of mapped file)", mb("RssAnon:"), mb("RssFile:"))
}

/// The embedded adapters complete when first polled.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("an embedded adapter does not wait"),
    }
}
