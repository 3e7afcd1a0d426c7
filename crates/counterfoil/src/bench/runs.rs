//! `counterfoil bench --runs`: steps per second of workflows whose tool does nothing, beside the raw limit of the same disk in the same run.
//!
//! A step is an effect like any other: claimed, done, with a receipt. Its outcome and the claim of the next step are one append.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::ensure;
use counterfoil::compose::{self, Kind, Volatile};
use counterfoil_core::{Caller, CanonicalJson, Policy, RunId, Tenant, ToolName};
use counterfoil_runtime::engine::operate::Heard;
use counterfoil_runtime::engine::{NewRun, RunBeside};
use counterfoil_runtime::workflow::Workflow;
use counterfoil_runtime::{FnTool, Invocation, Registered, Runtime};
use serde::Serialize;

use super::load::{self, Load, Tally};
use super::{Folder, TURNS, machine, raw};
use crate::cli::{BenchArgs, Global};
use crate::output::{self, Exit, Refused};

/// Steps at the beginning and at the end of a long run that are held against each other.
const SAMPLE: usize = 1_000;

#[derive(Debug, Serialize)]
struct Figures {
    concurrency: usize,
    steps_per_run: usize,
    raw_effects_per_s: Option<f64>,
    steps_per_s: f64,
    ratio: Option<f64>,
    runs_per_s: f64,
    run_p50_us: u64,
    run_p99_us: u64,
    fsyncs_per_step: f64,
    cpu_us_per_step: f64,
    /// The last thousand steps of a long run over its first thousand.
    growth: Option<f64>,
    /// How long another process takes to read such a run, its definition included.
    load_ms: Option<u64>,
    rss_mb: u64,
}

/// `--sleeping`: what runs cost that wait for time.
pub async fn sleeping(global: &Global, args: &BenchArgs, count: usize) -> anyhow::Result<Exit> {
    let folder = Folder::new(args.dir.as_deref())?;
    let url = global.store.clone().unwrap_or_else(|| format!("sqlite:{}", folder.path.join("bench.db").display()));
    let opened = compose::open_store(&url, Volatile::Allowed).await?;
    let runtime = compose::builder(&opened).build()?;
    let workflow = Arc::new(Workflow::parse("workflow: nap\nsteps:\n  - { id: nap, sleep: 1d }\n", "nap.yaml")?);
    let next = Arc::new(AtomicU64::new(0));
    let starters: Vec<_> = (0..64)
        .map(|_| {
            let (runtime, workflow, next) = (runtime.clone(), workflow.clone(), next.clone());
            tokio::spawn(async move {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= count as u64 {
                        return Ok::<_, anyhow::Error>(());
                    }
                    let rest = begin(&runtime, &workflow, n).await?.1;
                    ensure!(
                        matches!(rest, counterfoil_runtime::engine::Rest::Parked { .. }),
                        "a run of the bench does not sleep: {rest:?}"
                    );
                }
            })
        })
        .collect();
    for starter in starters {
        starter.await??;
    }
    let worker = runtime.recover_forever(Duration::from_secs(1));
    let (cpu_before, started) = (machine::cpu_us(), Instant::now());
    tokio::time::sleep(Duration::from_secs_f64(args.seconds.max(3.0))).await;
    let cpu_share = (machine::cpu_us() - cpu_before) as f64 / started.elapsed().as_micros() as f64;
    worker.abort();
    let rss_mb = machine::rss_mb();
    if global.json {
        output::json(&serde_json::json!({ "sleeping": count, "rss_mb": rss_mb, "cpu_share": cpu_share }));
    } else {
        output::data(format_args!("{count} runs asleep: {rss_mb} MB · {:.2} % of a core", cpu_share * 100.0));
    }
    Ok(Exit::Done)
}

pub async fn run(global: &Global, args: &BenchArgs) -> anyhow::Result<Exit> {
    if let Some(count) = args.sleeping {
        return sleeping(global, args, count).await;
    }
    if args.steps == 0 || args.steps > 20_000 {
        return Err(Refused::usage("invalid_bench", "--steps is 1 to 20000"));
    }
    let folder = Folder::new(args.dir.as_deref())?;
    let url = global.store.clone().unwrap_or_else(|| format!("sqlite:{}", folder.path.join("bench.db").display()));
    let opened = compose::open_store(&url, Volatile::Allowed).await?;
    let bytes = Load::new(&opened, counterfoil_runtime::Receipts::Written).await?.bytes_per_append();
    let bench = Bench::new(&opened, args.steps)?;
    let local = matches!(opened.kind, Kind::Memory | Kind::Sqlite(_));
    for concurrency in &args.concurrency {
        let turn = Duration::from_secs_f64(args.seconds) / TURNS;
        let (mut raw, mut ours, mut syncs, mut cpu_us) = (Tally::default(), Tally::default(), 0, 0);
        bench.clear();
        for n in 0..TURNS {
            if local {
                raw.add(raw::run(&folder.path.join(format!("raw-{concurrency}-{n}")), *concurrency, turn, bytes).await?);
            }
            let (syncs_before, cpu_before) = (machine::syncs(&opened), machine::cpu_us());
            ours.add(bench.run(*concurrency, turn).await?);
            syncs += machine::syncs(&opened) - syncs_before;
            cpu_us += machine::cpu_us() - cpu_before;
        }
        let steps = (ours.count * args.steps as u64).max(1) as f64;
        let steps_per_s = ours.per_second() * args.steps as f64;
        print(
            global,
            &Figures {
                concurrency: *concurrency,
                steps_per_run: args.steps,
                raw_effects_per_s: local.then(|| raw.per_second()),
                steps_per_s,
                ratio: local.then(|| steps_per_s / raw.per_second()),
                runs_per_s: ours.per_second(),
                run_p50_us: ours.percentile(0.50),
                run_p99_us: ours.percentile(0.99),
                fsyncs_per_step: syncs as f64 / steps,
                cpu_us_per_step: cpu_us as f64 / steps,
                growth: (*concurrency == 1).then(|| bench.growth()).flatten(),
                load_ms: bench.load_ms(&opened).await?,
                rss_mb: machine::rss_mb(),
            },
        );
    }
    Ok(Exit::Done)
}

struct Bench {
    runtime: Runtime,
    workflow: Arc<Workflow>,
    next: Arc<AtomicU64>,
    /// When each step was made, of the newest run.
    made: Arc<Mutex<Vec<Instant>>>,
    steps: usize,
}

impl Bench {
    fn new(opened: &compose::Opened, steps: usize) -> anyhow::Result<Self> {
        let runtime = compose::builder(opened).build()?;
        let made: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let times = made.clone();
        let noop = FnTool::new(move |call: Invocation| {
            times.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(Instant::now());
            async move { Ok(load::result(&call.key)) }
        });
        runtime.register(Registered::new(ToolName::new("bench")?, noop, Policy::default()));
        let lines: String = (0..steps).map(|n| format!("  - {{ id: s{n}, tool: bench, args: {} }}\n", load::args(n as u64))).collect();
        let workflow = Workflow::parse(&format!("workflow: bench\nsteps:\n{lines}"), "bench.yaml")?;
        let first = u64::from(std::process::id()) << 40;
        Ok(Self { runtime, workflow: Arc::new(workflow), next: Arc::new(AtomicU64::new(first)), made, steps })
    }

    fn clear(&self) {
        self.made.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clear();
    }

    /// `concurrency` runs at once for about `span`; each is seen to its end.
    async fn run(&self, concurrency: usize, span: Duration) -> anyhow::Result<Tally> {
        let stop = Arc::new(AtomicBool::new(false));
        let started = Instant::now();
        let callers: Vec<_> = (0..concurrency)
            .map(|_| {
                let (runtime, workflow, next, stop) = (self.runtime.clone(), self.workflow.clone(), self.next.clone(), stop.clone());
                tokio::spawn(async move {
                    let mut latencies = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        let asked = Instant::now();
                        one(&runtime, &workflow, next.fetch_add(1, Ordering::Relaxed)).await?;
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

    /// Reads the newest run as a process does that takes it on.
    async fn load_ms(&self, opened: &compose::Opened) -> anyhow::Result<Option<u64>> {
        let newest = self.next.load(Ordering::Relaxed).checked_sub(1);
        let Some(newest) = newest.filter(|_| self.steps >= 2 * SAMPLE) else { return Ok(None) };
        let other = compose::builder(opened).build()?;
        let started = Instant::now();
        let (run, _) = other.run_facts(&Tenant::new("bench")?, &RunId::new(&format!("run-{newest:x}"))?).await?;
        ensure!(run.order.len() == self.steps, "the run is not whole: {} steps", run.order.len());
        Ok(Some(u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)))
    }

    /// What the last steps of a run cost over what its first did. `None`: it is too short to tell.
    fn growth(&self) -> Option<f64> {
        let made = self.made.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let run = made.get(made.len().checked_sub(self.steps)?..)?;
        let first = *run.get(SAMPLE)? - *run.first()?;
        let last = *run.last()? - *run.get(run.len().checked_sub(SAMPLE + 1)?)?;
        (run.len() >= 2 * SAMPLE).then(|| last.as_secs_f64() / first.as_secs_f64())
    }
}

async fn one(runtime: &Runtime, workflow: &Arc<Workflow>, n: u64) -> anyhow::Result<()> {
    let (fresh, rest) = begin(runtime, workflow, n).await?;
    ensure!(fresh && rest == counterfoil_runtime::engine::Rest::Ended, "a run of the bench did not end: {n:x} {rest:?}");
    Ok(())
}

async fn begin(runtime: &Runtime, workflow: &Arc<Workflow>, n: u64) -> anyhow::Result<(bool, counterfoil_runtime::engine::Rest)> {
    let new = NewRun {
        tenant: Tenant::new("bench")?,
        caller: Caller::new("bench")?,
        run: Some(RunId::new(&format!("run-{n:x}"))?),
        workflow: workflow.clone(),
        input: CanonicalJson::parse("{}")?,
        parent: None,
        tools: None,
        driven: true,
    };
    let after = runtime.start_run_beside(new, &RunBeside::default()).await?;
    let fresh = after.heard == Heard::Now;
    Ok((fresh, runtime.drive_after(after).await?))
}

fn print(global: &Global, f: &Figures) {
    if global.json {
        output::json(f);
        return;
    }
    let raw = f.raw_effects_per_s.map_or_else(|| "-".to_owned(), |raw| format!("{raw:.0}"));
    let ratio = f.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
    let growth = f.growth.map_or_else(String::new, |growth| format!(" · last thousand steps over the first: {growth:.2}"));
    let load = f.load_ms.map_or_else(String::new, |load| format!(" · read by another process in {load} ms"));
    output::data(format_args!(
        "{} runs of {} steps at once: raw {raw}/s · {:.0} steps/s · ratio {ratio} · {:.0} runs/s · run p50 {} µs, p99 {} µs · {:.3} fsyncs/step · {:.1} µs cpu/step · {} MB{growth}{load}",
        f.concurrency,
        f.steps_per_run,
        f.steps_per_s,
        f.runs_per_s,
        f.run_p50_us,
        f.run_p99_us,
        f.fsyncs_per_step,
        f.cpu_us_per_step,
        f.rss_mb
    ));
}
