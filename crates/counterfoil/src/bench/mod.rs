//! `counterfoil bench`: durable effects per second on this disk, beside the raw limit of the same disk in the same run.
//!
//! Raw and ledger are measured in turns, so that what else the machine does hits both. Every effect is two flushed appends (claim, outcome
//! with receipt), answered only then. The tool does nothing: this measures the ledger, not the world.

mod http;
mod load;
mod machine;
mod raw;
mod receipts;
mod runs;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use counterfoil::compose::{self, Kind, Opened, Volatile};
use counterfoil_runtime::Receipts;
use serde::Serialize;

use self::load::Load;
use crate::cli::{BenchArgs, Global};
use crate::output::{self, Exit, Refused};

/// Raw and ledger take turns this often.
const TURNS: u32 = 2;

#[derive(Debug, Clone, Serialize)]
struct Figures {
    concurrency: usize,
    /// The same bytes appended to a plain file with group commit and fdatasync, no engine. Nothing for a store behind a network, whose limit is not this disk.
    raw_effects_per_s: Option<f64>,
    effects_per_s: f64,
    ratio: Option<f64>,
    p50_us: u64,
    p99_us: u64,
    fsyncs_per_effect: f64,
    cpu_us_per_effect: f64,
    disk_bytes_per_effect: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    first: Figures,
    replay_hits_per_s: f64,
    rss_mb: u64,
    effects_in_ledger: u64,
    open_ms: u64,
    runs: Vec<Figures>,
}

pub async fn run(global: &Global, args: &BenchArgs) -> anyhow::Result<Exit> {
    if args.concurrency.iter().any(|c| *c == 0 || *c > 100_000) || !(0.1..=3600.0).contains(&args.seconds) {
        return Err(Refused::usage("invalid_bench", "--concurrency is 1 to 100000, --seconds 0.1 to 3600"));
    }
    if args.part.as_deref() == Some("server") {
        return http::server(global.store.as_deref().unwrap_or("memory:")).await;
    }
    if args.http {
        return http::run(global, args).await;
    }
    if args.receipts {
        return receipts::run(global, args).await;
    }
    if args.runs {
        return runs::run(global, args).await;
    }
    let folder = Folder::new(args.dir.as_deref())?;
    let url = global.store.clone().unwrap_or_else(|| format!("sqlite:{}", folder.path.join("bench.db").display()));
    let opening = Instant::now();
    let opened = compose::open_store(&url, Volatile::Allowed).await?;
    let open_ms = u64::try_from(opening.elapsed().as_millis()).unwrap_or(u64::MAX);
    let load = Load::new(&opened, Receipts::Written).await?;
    if args.fill > 0 {
        load.fill(args.fill, |done| output::note(format_args!("filling: {done} of {}", args.fill))).await?;
    }
    let seconds = Duration::from_secs_f64(args.seconds);
    let mut runs = Vec::new();
    for concurrency in &args.concurrency {
        if !global.json {
            output::note(format_args!("measuring {concurrency} at once …"));
        }
        runs.push(measure(&load, &opened, &folder.path, *concurrency, seconds).await?);
    }
    let replay_hits_per_s = load.replays(seconds).await?;
    let report =
        Report { first: runs[0].clone(), replay_hits_per_s, rss_mb: machine::rss_mb(), effects_in_ledger: load.made(), open_ms, runs };
    print(global, &report);
    Ok(Exit::Done)
}

async fn measure(load: &Load, opened: &Opened, folder: &Path, concurrency: usize, seconds: Duration) -> anyhow::Result<Figures> {
    let turn = seconds / TURNS;
    let (mut raw, mut ours) = (load::Tally::default(), load::Tally::default());
    let (mut syncs, mut cpu_us) = (0, 0);
    let disk_before = machine::disk_bytes(opened.sqlite().map(AsRef::as_ref));
    let local = matches!(opened.kind, Kind::Memory | Kind::Sqlite(_));
    for n in 0..TURNS {
        if local {
            raw.add(raw::run(&folder.join(format!("raw-{concurrency}-{n}")), concurrency, turn, load.bytes_per_append()).await?);
        }
        let (syncs_before, cpu_before) = (machine::syncs(opened), machine::cpu_us());
        ours.add(load.run(concurrency, turn).await?);
        syncs += machine::syncs(opened) - syncs_before;
        cpu_us += machine::cpu_us() - cpu_before;
    }
    let effects = ours.count.max(1) as f64;
    let grown = machine::disk_bytes(opened.sqlite().map(AsRef::as_ref)).saturating_sub(disk_before);
    Ok(Figures {
        concurrency,
        raw_effects_per_s: local.then(|| raw.per_second()),
        effects_per_s: ours.per_second(),
        ratio: local.then(|| ours.per_second() / raw.per_second()),
        p50_us: ours.percentile(0.50),
        p99_us: ours.percentile(0.99),
        fsyncs_per_effect: syncs as f64 / effects,
        cpu_us_per_effect: cpu_us as f64 / effects,
        disk_bytes_per_effect: grown as f64 / effects,
    })
}

fn print(global: &Global, report: &Report) {
    if global.json {
        output::json(report);
        return;
    }
    let header = ["callers", "raw/s", "effects/s", "ratio", "p50", "p99", "fsyncs/effect", "cpu/effect", "disk/effect"];
    let mut table = output::table(&header);
    for f in &report.runs {
        table.add_row([
            f.concurrency.to_string(),
            f.raw_effects_per_s.map_or_else(|| "-".to_owned(), |raw| format!("{raw:.0}")),
            format!("{:.0}", f.effects_per_s),
            f.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
            format!("{} µs", f.p50_us),
            format!("{} µs", f.p99_us),
            format!("{:.3}", f.fsyncs_per_effect),
            format!("{:.1} µs", f.cpu_us_per_effect),
            format!("{:.0} B", f.disk_bytes_per_effect),
        ]);
    }
    output::print_table(&table);
    output::data(format_args!(
        "{:.0} replays/s · {} effects in the ledger · opened in {} ms · {} MB resident",
        report.replay_hits_per_s, report.effects_in_ledger, report.open_ms, report.rss_mb
    ));
}

/// A folder on the disk that is measured, removed at the end.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn new(dir: Option<&Path>) -> anyhow::Result<Self> {
        let parent = dir.unwrap_or(Path::new("."));
        let path = parent.join(format!(".counterfoil-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| format!("{} cannot be made", path.display()))?;
        Ok(Self { path })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Best effort: what is left is named after us.
        drop(std::fs::remove_dir_all(&self.path));
    }
}
