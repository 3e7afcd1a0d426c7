//! The HTTP API beside the library, in one run: a server in a process of its own with a tool that does nothing, and a load generator that is nothing but
//! sockets.
//!
//! Library and HTTP are measured in turns, each on a ledger of its own on the same disk. The client's own work is part of what is measured: it runs on the
//! same cores.

use std::io::Write;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use counterfoil::compose::{self, Volatile};
use counterfoil_core::{Policy, Tenant, ToolName};
use counterfoil_runtime::{FnTool, Invocation, Registered};
use counterfoil_server::app::{App, Limits};
use counterfoil_server::guard::{Guard, Hosts};
use counterfoil_server::requests::Requests;
use counterfoil_server::router::Api;
use counterfoil_server::tools::Registrar;
use serde::Serialize;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

use super::load::{self, Load, Tally};
use super::{Folder, TURNS, machine};
use crate::cli::{BenchArgs, Global};
use crate::commands::serve;
use crate::output::{self, Exit};

/// Different keys that replays ask for.
const REPLAYED_KEYS: u64 = 1000;

#[derive(Debug, Serialize)]
struct Report {
    connections: usize,
    library_effects_per_s: f64,
    http_calls_per_s: f64,
    ratio: f64,
    call_p50_us: u64,
    call_p99_us: u64,
    http_replays_per_s: f64,
    replay_p50_us: u64,
    replay_p99_us: u64,
    /// Of the server, before its first request.
    idle_rss_mb: u64,
    /// From the start of the process to its first answer, with the ledger that --store names or an empty one.
    start_ms: u64,
}

/// The child: a server on a free port, until its stdin ends.
pub async fn server(store: &str) -> anyhow::Result<Exit> {
    let opened = compose::open_store(store, Volatile::Allowed).await?;
    let mut builder = compose::builder(&opened);
    if let Some(dir) = &opened.workers_dir {
        builder = builder.workers_dir(dir);
    }
    let runtime = builder.build()?;
    let noop = FnTool::new(|call: Invocation| async move { Ok(load::result(&call.key)) });
    runtime.register(Registered::new(ToolName::new("bench")?, noop, Policy::default()));
    let (stop, stopping) = tokio::sync::watch::channel(false);
    let app = App {
        requests: Requests::new(runtime.clone(), Duration::from_secs(3600), usize::MAX),
        runtime: runtime.clone(),
        registrar: Registrar::new(Arc::new(|_, _| Err(json!([])))),
        limits: Limits::default(),
        operator: Tenant::new("bench")?,
        backups: None,
        metrics: None,
        stopping,
        store_present: Arc::new(|| Ok(())),
        store_risks: Arc::new(Vec::new),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    output::data(listener.local_addr()?);
    let access = serve::local(&Tenant::new("bench")?, &runtime);
    let guard = Guard { hosts: Hosts(Vec::new()), access };
    let end = async move {
        let parent_gone = || std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        drop(tokio::task::spawn_blocking(parent_gone).await);
    };
    counterfoil_server::serve::serve(
        listener,
        Arc::new(Api::new(Arc::new(app), guard)),
        &Limits::default(),
        end,
        stop,
        Duration::from_secs(5),
    )
    .await;
    Ok(Exit::Done)
}

pub async fn run(global: &Global, args: &BenchArgs) -> anyhow::Result<Exit> {
    let folder = Folder::new(args.dir.as_deref())?;
    let url = |name: &str| format!("sqlite:{}", folder.path.join(name).display());
    let connections = args.concurrency[0];
    let started = Instant::now();
    let server = Server::start(&global.store.clone().unwrap_or_else(|| url("http.db"))).await?;
    Connection::open(server.address).await?.get("/readyz").await?;
    let start_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let idle_rss_mb = machine::rss_mb_of(server.pid);
    let opened = compose::open_store(&url("library.db"), Volatile::Allowed).await?;
    let library = Load::new(&opened, counterfoil_runtime::Receipts::Written).await?;
    let turn = Duration::from_secs_f64(args.seconds) / TURNS;
    let (mut ours, mut http) = (Tally::default(), Tally::default());
    let next = Arc::new(AtomicU64::new(0));
    for n in 0..TURNS {
        output::note(format_args!("measuring library and HTTP with {connections} connections, {} of {TURNS} …", n + 1));
        ours.add(library.run(connections, turn).await?);
        let next = next.clone();
        http.add(load(server.address, connections, turn, false, move || next.fetch_add(1, Ordering::Relaxed)).await?);
    }
    output::note("measuring replays …");
    let asked = Arc::new(AtomicU64::new(0));
    let again = move || asked.fetch_add(1, Ordering::Relaxed) % REPLAYED_KEYS.min(next.load(Ordering::Relaxed)).max(1);
    let replays = load(server.address, connections, Duration::from_secs_f64(args.seconds), true, again).await?;
    let report = Report {
        connections,
        library_effects_per_s: ours.per_second(),
        http_calls_per_s: http.per_second(),
        ratio: http.per_second() / ours.per_second(),
        call_p50_us: http.percentile(0.50),
        call_p99_us: http.percentile(0.99),
        http_replays_per_s: replays.per_second(),
        replay_p50_us: replays.percentile(0.50),
        replay_p99_us: replays.percentile(0.99),
        idle_rss_mb,
        start_ms,
    };
    print(global, &report);
    Ok(Exit::Done)
}

fn print(global: &Global, r: &Report) {
    if global.json {
        return output::json(r);
    }
    let mut table = output::table(&["connections", "library/s", "http/s", "ratio", "p50", "p99", "replays/s", "replay p50", "replay p99"]);
    table.add_row([
        r.connections.to_string(),
        format!("{:.0}", r.library_effects_per_s),
        format!("{:.0}", r.http_calls_per_s),
        format!("{:.2}", r.ratio),
        format!("{} µs", r.call_p50_us),
        format!("{} µs", r.call_p99_us),
        format!("{:.0}", r.http_replays_per_s),
        format!("{} µs", r.replay_p50_us),
        format!("{} µs", r.replay_p99_us),
    ]);
    output::print_table(&table);
    output::data(format_args!("ready {} ms after its start · {} MB resident before its first request", r.start_ms, r.idle_rss_mb));
}

struct Server {
    address: SocketAddr,
    pid: u32,
    /// Ends when its stdin does, and is killed when this is dropped.
    _child: Child,
}

impl Server {
    async fn start(store: &str) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["bench", "--part", "server", "--store", store])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("the server cannot be started")?;
        let pid = child.id().context("it has ended already")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("piped")?).read_line(&mut line).await?;
        let address = line.trim().parse().with_context(|| format!("the server said {line:?}"))?;
        Ok(Self { address, pid, _child: child })
    }
}

/// `connections` clients that ask one call after the other for about `span`, all of them on one thread: more would only wake each other.
async fn load(
    address: SocketAddr,
    connections: usize,
    span: Duration,
    replays: bool,
    key: impl Fn() -> u64 + Clone + Send + 'static,
) -> anyhow::Result<Tally> {
    let clients = async move {
        let stop = Arc::new(AtomicBool::new(false));
        let started = Instant::now();
        let clients: Vec<_> = (0..connections).map(|_| tokio::spawn(client(address, stop.clone(), replays, key.clone()))).collect();
        tokio::time::sleep(span).await;
        stop.store(true, Ordering::Relaxed);
        let mut latencies = Vec::new();
        for client in clients {
            latencies.extend(client.await??);
        }
        Ok(Tally::new(latencies.len() as u64, started.elapsed(), latencies))
    };
    let one_thread = || tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(clients);
    tokio::task::spawn_blocking(one_thread).await?
}

/// How long each of its calls took, in µs.
async fn client(address: SocketAddr, stop: Arc<AtomicBool>, replays: bool, key: impl Fn() -> u64) -> anyhow::Result<Vec<u32>> {
    let mut connection = Connection::open(address).await?;
    let mut latencies = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let asked = Instant::now();
        connection.call(key(), replays).await?;
        latencies.push(u32::try_from(asked.elapsed().as_micros()).unwrap_or(u32::MAX));
    }
    Ok(latencies)
}

/// One connection that is kept.
struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    out: Vec<u8>,
}

impl Connection {
    async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(4096), out: Vec::with_capacity(1024) })
    }

    async fn get(&mut self, path: &str) -> anyhow::Result<()> {
        self.out.clear();
        write!(self.out, "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")?;
        let head = self.exchange().await?;
        ensure!(head.good, "{path} was answered: {}", String::from_utf8_lossy(&self.buffer));
        Ok(())
    }

    async fn call(&mut self, n: u64, replayed: bool) -> anyhow::Result<()> {
        const HEAD: &str = "POST /v1/tools/bench/call HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
        self.out.clear();
        write!(self.out, "{HEAD}idempotency-key: order-{n}\r\ncontent-length: ")?;
        // The length stands before what it is the length of.
        let (length_at, body) = (self.out.len(), load::Args(n));
        write!(self.out, "000\r\n\r\n{{\"args\":{body}}}")?;
        let length = self.out.len() - length_at - "000\r\n\r\n".len();
        write!(&mut self.out[length_at..length_at + 3], "{length:03}")?;
        let head = self.exchange().await?;
        ensure!(head.good && head.replayed == replayed, "a call was answered: {}", String::from_utf8_lossy(&self.buffer));
        Ok(())
    }

    /// Sends what is in `out`, and reads one answer.
    async fn exchange(&mut self) -> anyhow::Result<Head> {
        self.stream.write_all(&self.out).await?;
        self.buffer.clear();
        loop {
            ensure!(self.stream.read_buf(&mut self.buffer).await? > 0, "the server closed the connection");
            if let Some(head) = Head::of(&self.buffer)?
                && self.buffer.len() >= head.answer_bytes
            {
                return Ok(head);
            }
        }
    }
}

/// What is to be known of an answer.
struct Head {
    good: bool,
    replayed: bool,
    answer_bytes: usize,
}

impl Head {
    /// `None` while it is not all there.
    fn of(answer: &[u8]) -> anyhow::Result<Option<Self>> {
        let (mut rest, mut replayed, mut length) = (answer, false, None);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line = rest[..end].trim_ascii_end();
            rest = &rest[end + 1..];
            if line.is_empty() {
                let length: usize = std::str::from_utf8(length.context("an answer has a length")?)?.parse()?;
                let answer_bytes = answer.len() - rest.len() + length;
                return Ok(Some(Self { good: answer.starts_with(b"HTTP/1.1 200"), replayed, answer_bytes }));
            }
            replayed |= line == b"idempotent-replayed: true";
            length = line.strip_prefix(b"content-length: ").or(length);
        }
        Ok(None)
    }
}
