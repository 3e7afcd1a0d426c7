//! `counterfoil schedules`: workflows that run again and again.

use counterfoil_core::Timestamp;
use counterfoil_core::ids::ScheduleName;
use counterfoil_core::run::schedule::{Became, Schedule, Standing, Ticked, Ticks};
use counterfoil_runtime::engine::RunError;
use counterfoil_runtime::engine::cron::Cron;
use counterfoil_runtime::engine::operate::Heard;
use counterfoil_runtime::engine::schedules::{Wanted, Word};
use counterfoil_runtime::shown::{self, second};
use serde_json::value::RawValue;

use super::call::{name, read_json};
use super::effects::operator;
use super::house::House;
use super::run::refused;
use crate::cli::{Global, SchedulesArgs, SchedulesCommand, SchedulesNextArgs, SchedulesPutArgs, SchedulesTellArgs};
use crate::output::{self, Exit, Refused};

pub async fn run(global: &Global, args: &SchedulesArgs) -> anyhow::Result<Exit> {
    match &args.command {
        SchedulesCommand::Put(args) => put(global, args).await,
        SchedulesCommand::List => list(global).await,
        SchedulesCommand::Show { name: typed } => {
            let name: ScheduleName = name("NAME", typed)?;
            let house = House::standing(global).await?;
            show(global, &house.runtime.schedule(&house.config.tenant, &name).await.map_err(missing)?);
            Ok(Exit::Done)
        }
        SchedulesCommand::Next(args) => next(global, args).await,
        SchedulesCommand::Pause(args) => tell(global, args, Word::Pause).await,
        SchedulesCommand::Resume(args) => tell(global, args, Word::Resume).await,
        SchedulesCommand::Remove(args) => tell(global, args, Word::Remove).await,
    }
}

async fn put(global: &Global, args: &SchedulesPutArgs) -> anyhow::Result<Exit> {
    let name: ScheduleName = name("NAME", &args.name)?;
    let input = read_json("--input", &args.input)?;
    let input =
        RawValue::from_string(input).map_err(|e| Refused::usage("invalid_schedule", format!("--input: {e}; nothing was changed")))?;
    let wanted = Wanted {
        workflow: args.workflow.clone(),
        cron: args.cron.clone(),
        zone: Some(args.zone.clone()),
        input: Some(input),
        catch_up: Some(args.catch_up.clone()),
        within: args.within.clone(),
        overlap: Some(args.overlap.clone()),
    };
    let terms = wanted.terms().map_err(missing)?;
    let house = House::open(global).await?;
    let (heard, put) = house.runtime.put_schedule(&house.config.tenant, &name, &terms, &args.by).await.map_err(missing)?;
    if heard == Heard::Before && !global.json {
        output::note("it was so already: nothing changed");
    }
    show(global, &put);
    Ok(Exit::Done)
}

async fn tell(global: &Global, args: &SchedulesTellArgs, word: Word) -> anyhow::Result<Exit> {
    let name: ScheduleName = name("NAME", &args.name)?;
    let house = House::standing(global).await?;
    let told = house.runtime.tell_schedule(&house.config.tenant, &name, word, &operator(&args.who)).await;
    let (heard, schedule) = told.map_err(missing)?;
    if heard == Heard::Before && !global.json {
        output::note("it was so already: nothing changed");
    }
    show(global, &schedule);
    Ok(Exit::Done)
}

async fn next(global: &Global, args: &SchedulesNextArgs) -> anyhow::Result<Exit> {
    let wrong = |why: String| Refused::usage("invalid_schedule", why);
    let (cron, zone, mut at) = match (&args.name, &args.cron) {
        (Some(typed), _) => {
            let name: ScheduleName = name("NAME", typed)?;
            let house = House::standing(global).await?;
            let schedule = house.runtime.schedule(&house.config.tenant, &name).await.map_err(missing)?;
            (schedule.terms.cron, schedule.terms.zone, house.runtime.now())
        }
        (None, Some(cron)) => (cron.clone(), args.zone.clone(), Timestamp(jiff::Timestamp::now().as_microsecond())),
        (None, None) => return Err(Refused::usage("no_schedule", "name a schedule, or give an expression with --cron")),
    };
    let read = Cron::parse(&cron, &zone).map_err(wrong)?;
    let mut ticks = Vec::new();
    while ticks.len() < usize::from(args.count)
        && let Some(tick) = read.next(at)
    {
        at = tick;
        ticks.push(tick);
    }
    if ticks.is_empty() {
        return Err(wrong(format!("`cron` {cron:?} never comes: no day is like that")));
    }
    if global.json {
        let ticks: Vec<String> = ticks.into_iter().map(second).collect();
        output::json(&serde_json::json!({ "cron": cron, "zone": zone, "next": ticks }));
    } else {
        for tick in ticks {
            output::data(format_args!("{}  {}", second(tick), local(tick, &zone)));
        }
    }
    Ok(Exit::Done)
}

/// As the clock there shows it.
fn local(tick: Timestamp, zone: &str) -> String {
    let zoned = jiff::Timestamp::from_microsecond(tick.0).and_then(|at| at.in_tz(zone));
    zoned.map_or_else(|_| String::new(), |zoned| zoned.strftime("%a %d %b %Y %H:%M %Z").to_string())
}

async fn list(global: &Global) -> anyhow::Result<Exit> {
    let house = House::standing(global).await?;
    let found = house.runtime.schedules(&house.config.tenant).await.map_err(refused)?;
    if global.json {
        let schedules: Vec<_> = found.iter().map(shown::schedule).collect();
        output::json(&serde_json::json!({ "schedules": schedules }));
        return Ok(Exit::Done);
    }
    if found.is_empty() {
        output::note("no schedules; `counterfoil schedules put --help` shows how to make one");
        return Ok(Exit::Done);
    }
    let mut table = output::table(&["schedule", "state", "workflow", "cron", "zone", "next", "runs", "last tick"]);
    for schedule in &found {
        let terms = &schedule.terms;
        table.add_row([
            schedule.schedule.to_string(),
            schedule.standing.word().to_owned(),
            terms.workflow.to_string(),
            terms.cron.clone(),
            terms.zone.clone(),
            coming(schedule, house.runtime.now()),
            schedule.runs.to_string(),
            schedule.last.as_ref().map(told).unwrap_or_default(),
        ]);
    }
    output::print_table(&table);
    Ok(Exit::Done)
}

/// One that is behind is waiting for a worker: that must be seen.
fn coming(schedule: &Schedule, now: Timestamp) -> String {
    match schedule.next.filter(|_| schedule.standing == Standing::Active) {
        Some(next) if next <= now => format!("{} (due; is `counterfoil serve` running?)", second(next)),
        Some(next) => second(next),
        None => "-".into(),
    }
}

/// What became of a tick, in a line.
pub fn told(ticked: &Ticked) -> String {
    let tick = second(ticked.tick);
    let missed = ticked.missed_from.map(|from| format!(", those from {} on left out", second(from))).unwrap_or_default();
    match &ticked.what {
        Became::Started { run } => format!("{tick}: started {run}{missed}"),
        Became::Skipped { why } => format!("{tick}: left out{missed}: {why}"),
        Became::Refused { message, .. } => format!("{tick}: refused: {message}{missed}"),
    }
}

fn show(global: &Global, schedule: &Schedule) {
    if global.json {
        output::json(&shown::schedule(schedule));
        return;
    }
    let terms = &schedule.terms;
    let why = match &schedule.standing {
        Standing::Paused { why } | Standing::Removed { why } if !why.is_empty() => format!(": {why}"),
        _ => String::new(),
    };
    output::data(format_args!("{}  {}{why}  (by {})", schedule.schedule, schedule.standing.word(), schedule.by));
    output::data(format_args!("workflow  {}  {}", terms.workflow, terms.input.as_str()));
    output::data(format_args!("ticks     {}  {}", terms.cron, terms.zone));
    let within = terms.within().map(|within| format!(", within {within:?}")).unwrap_or_default();
    output::data(format_args!("missed    {}{within}; while the run before goes on: {}", terms.catch_up.word(), terms.overlap.word()));
    if let Some(next) = schedule.next.filter(|_| schedule.standing == Standing::Active) {
        output::data(format_args!("next      {}  {}", second(next), local(next, &terms.zone)));
    }
    if let Some(last) = &schedule.last {
        output::data(format_args!("last      {}", told(last)));
    }
    output::data(format_args!("runs      {}", schedule.runs));
}

/// With what to do about it.
fn missing(error: RunError) -> anyhow::Error {
    match error {
        RunError::UnknownWorkflow(workflow) => Refused::refused(
            "unknown_workflow",
            format!("there is no workflow {workflow}; `counterfoil workflows put FILE` keeps one; nothing was changed"),
        ),
        RunError::NoSchedule(name) => {
            Refused::refused("schedule_not_found", format!("there is no schedule {name}; `counterfoil schedules list` shows what there is"))
        }
        RunError::Schedule(_) => Refused::usage("invalid_schedule", error.to_string()),
        other => refused(other),
    }
}
