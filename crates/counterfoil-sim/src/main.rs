//! `counterfoil-sim`: many seeds, as fast as they go; or one, with all that happened.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use counterfoil_sim::many::{Search, Tally, search};
use counterfoil_sim::{Bug, simulate};

/// Seeds of a night.
const NIGHT: u64 = 10_000_000;
/// A bug must be found within so many seeds.
const FOUND_WITHIN: u64 = 10_000;
/// After so many seeds every mark must have been hit.
const MARKED_BY: u64 = 2_000;
/// Seeds with violations that are shown.
const SHOWN_MAX: usize = 5;

/// Lives through seeds and looks for a broken promise. Ends with 1 if there is one, if a mark was never hit, or if a bug was not found.
#[derive(Parser)]
#[command(name = "counterfoil-sim", version)]
struct Args {
    /// How many seeds.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// This one alone.
    #[arg(long)]
    seed: Option<u64>,
    /// Prints all that happens in `--seed`.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// With this deliberate bug. `list` names them.
    #[arg(long)]
    bug: Option<String>,
    /// With each deliberate bug in turn: each must be found.
    #[arg(long)]
    bugs: bool,
    /// Ten million seeds.
    #[arg(long)]
    night: bool,
    /// Begins no further seed after so many seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// One for each core by default.
    #[arg(long)]
    threads: Option<usize>,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    if args.bug.as_deref() == Some("list") {
        Bug::ALL.iter().for_each(|bug| println!("{}", bug.name()));
        return Ok(ExitCode::SUCCESS);
    }
    let bug = match &args.bug {
        None => None,
        Some(name) => Some(Bug::named(name).ok_or_else(|| anyhow::anyhow!("there is no bug {name}; --bug list names them"))?),
    };
    let holds = match args.seed {
        Some(seed) => one(seed, bug, args.trace)?,
        None if args.bugs => bugs(&args)?,
        None => many(&args, bug)?,
    };
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn one(seed: u64, bug: Option<Bug>, traced: bool) -> anyhow::Result<bool> {
    let verdict = simulate(seed, bug, traced)?;
    verdict.trace.iter().for_each(|line| println!("{line}"));
    verdict.violations.iter().for_each(|violation| println!("seed {seed}: {violation}"));
    println!("seed {seed}: {} violations", verdict.violations.len());
    Ok(verdict.violations.is_empty())
}

fn threads(args: &Args) -> usize {
    args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

fn many(args: &Args, bug: Option<Bug>) -> anyhow::Result<bool> {
    let seeds = if args.night { NIGHT } else { args.seeds };
    let within = args.seconds.map(Duration::from_secs);
    let wanted = Search { from: args.from, seeds, bug, threads: threads(args), within, first_only: bug.is_some() };
    let tally = search(&wanted, |seeds, took| eprintln!("{seeds} seeds, {:.0} seeds/s", rate(seeds, took)))?;
    print!("{}", tally.marks);
    shown(&tally, bug);
    let missed = if tally.seeds >= MARKED_BY && bug.is_none() { tally.marks.missed() } else { Vec::new() };
    missed.iter().for_each(|mark| println!("never hit: {}", mark.what()));
    let speed = rate(tally.seeds, tally.took);
    let (broken, hit) = (tally.violations.len(), tally.marks.hit_count());
    println!("sim: {} seeds, {broken} violations, {hit} marks hit, {} missed, {speed:.0} seeds/s", tally.seeds, missed.len());
    Ok(tally.violations.is_empty() && missed.is_empty())
}

fn bugs(args: &Args) -> anyhow::Result<bool> {
    let mut found = 0;
    for bug in Bug::ALL {
        let wanted =
            Search { from: args.from, seeds: FOUND_WITHIN, bug: Some(bug), threads: threads(args), within: None, first_only: true };
        let tally = search(&wanted, |_, _| {})?;
        match tally.violations.first() {
            Some((seed, violations)) => {
                found += 1;
                println!("{}: found after {} seeds, in seed {seed}: {}", bug.name(), tally.seeds, violations[0]);
            }
            None => println!("{}: NOT found in {} seeds", bug.name(), tally.seeds),
        }
    }
    println!("sim: {found} of {} bugs found", Bug::ALL.len());
    Ok(found == Bug::ALL.len())
}

fn shown(tally: &Tally, bug: Option<Bug>) {
    let with = bug.map(|bug| format!(" --bug {}", bug.name())).unwrap_or_default();
    for (seed, violations) in tally.violations.iter().take(SHOWN_MAX) {
        violations.iter().for_each(|violation| println!("seed {seed}: {violation}"));
        println!("  again: counterfoil-sim --seed {seed}{with} --trace");
    }
}

fn rate(seeds: u64, took: Duration) -> f64 {
    seeds as f64 / took.as_secs_f64().max(0.001)
}
