//! `counterfoil runs`: what runs there are, how far they have come, and what a person does about them.

use std::collections::BTreeSet;

use counterfoil_core::run::{RunState, entry_word};
use counterfoil_core::summary::{StreamKind, state_word};
use counterfoil_core::{Json, RunId, StepPath};
use counterfoil_runtime::engine::operate::{Cancelling, Heard, Signal};
use counterfoil_runtime::engine::view::{ConfirmationView, FindingView};
use counterfoil_runtime::engine::{RunError, RunView, StepView};
use counterfoil_runtime::shown::{self, time};
use counterfoil_store::{Position, Query};

use super::call::{name, read_json};
use super::effects::operator;
use super::foreground::{self, Until};
use super::house::House;
use super::progress::Progress;
use super::run::{refused, see_through};
use crate::cli::{Global, GoOnArgs, RunsArgs, RunsCommand, RunsListArgs, RunsSignalArgs, RunsStepArgs};
use crate::output::{self, Exit, Refused};

pub async fn run(global: &Global, args: &RunsArgs) -> anyhow::Result<Exit> {
    match &args.command {
        RunsCommand::List(args) => list(global, args).await,
        RunsCommand::Show { run, entries, entry } => show(global, run, *entries, entry.as_deref()).await,
        RunsCommand::Watch { run } => watch(global, run).await,
        RunsCommand::Resume { run } => {
            let run: RunId = name("RUN", run)?;
            let house = House::standing(global).await?;
            match house.runtime.resume_run(&house.config.tenant, &run).await {
                // One that has ended is shown as it ended.
                Ok(()) | Err(RunError::WrongState { .. }) => {}
                Err(error) => return Err(refused(error)),
            }
            see_through(global, &house, &house.config.tenant, &run).await
        }
        RunsCommand::Replay { run, workflow } => super::replay::run(global, run, workflow.as_deref()).await,
        RunsCommand::Confirm(args) => {
            let run: RunId = name("RUN", &args.run)?;
            let house = House::standing(global).await?;
            let heard = house.runtime.decide_confirm(&house.config.tenant, &run, args.accept, &operator(&args.go.who)).await;
            go_on(global, &house, run, heard, &args.go).await
        }
        RunsCommand::Cancel(args) => {
            let (run, step) = (name("RUN", &args.run)?, args.step.as_deref().map(|s| name("--step", s)).transpose()?);
            let house = House::standing(global).await?;
            let cancel = Cancelling { step, undo: args.undo, by: args.go.who.by.clone(), why: args.go.who.why.clone() };
            let heard = house.runtime.cancel_run(&house.config.tenant, &run, cancel).await;
            go_on(global, &house, run, heard, &args.go).await
        }
        RunsCommand::Undo(args) => {
            let (run, from): (RunId, Option<StepPath>) =
                (name("RUN", &args.run)?, args.from.as_deref().map(|s| name("--from", s)).transpose()?);
            let house = House::standing(global).await?;
            let heard = house.runtime.undo_run(&house.config.tenant, &run, from.as_ref(), &operator(&args.go.who)).await;
            let exit = go_on(global, &house, run.clone(), heard, &args.go).await?;
            undone(&house, &run, exit).await
        }
        RunsCommand::Skip(args) => {
            let (run, step) = step_of(args)?;
            let house = House::standing(global).await?;
            let heard = house.runtime.skip_undo(&house.config.tenant, &run, &step, &operator(&args.go.who)).await;
            let exit = go_on(global, &house, run.clone(), heard, &args.go).await?;
            undone(&house, &run, exit).await
        }
        RunsCommand::Approve(args) => answer(global, args, true).await,
        RunsCommand::Deny(args) => answer(global, args, false).await,
        RunsCommand::Signal(args) => signal(global, args).await,
        RunsCommand::Fork(args) => {
            let (run, at): (RunId, StepPath) = (name("RUN", &args.run)?, name("--at", &args.at)?);
            let new: Option<RunId> = args.new.as_deref().map(|r| name("--as", r)).transpose()?;
            let house = House::standing(global).await?;
            let new = match new {
                Some(new) => new,
                None => name("--as", &house.runtime.execution_id())?,
            };
            let forked = house.runtime.fork_run(&house.config.tenant, &run, &at, new, &operator(&args.go.who)).await.map_err(refused)?;
            if !global.json {
                output::note(format_args!("forked as {forked}"));
            }
            go_on(global, &house, forked, Ok(Heard::Now), &args.go).await
        }
    }
}

fn step_of(args: &RunsStepArgs) -> anyhow::Result<(RunId, StepPath)> {
    Ok((name("RUN", &args.run)?, name("STEP", &args.step)?))
}

/// That it is undone is what was asked for, however the run itself had ended.
async fn undone(house: &House, run: &RunId, exit: Exit) -> anyhow::Result<Exit> {
    let state = house.runtime.run(&house.config.tenant, run).await.map_err(refused)?.state;
    Ok(if state == RunState::Compensated.word() { Exit::Done } else { exit })
}

async fn answer(global: &Global, args: &RunsStepArgs, approved: bool) -> anyhow::Result<Exit> {
    let (run, step) = step_of(args)?;
    let house = House::standing(global).await?;
    let heard = house.runtime.answer_step(&house.config.tenant, &run, &step, approved, &operator(&args.go.who)).await;
    go_on(global, &house, run, heard, &args.go).await
}

async fn signal(global: &Global, args: &RunsSignalArgs) -> anyhow::Result<Exit> {
    let run: RunId = name("RUN", &args.run)?;
    let payload = read_json("--payload", &args.payload)?;
    let payload = Json::parse(&payload).map_err(|e| Refused::usage("invalid_signal", format!("--payload: {e}; nothing was sent")))?;
    let house = House::standing(global).await?;
    let id = args.id.clone().unwrap_or_else(|| house.runtime.execution_id());
    let signal = Signal { id, name: args.name.clone(), correlation: args.correlation.clone(), payload, by: args.go.who.by.clone() };
    let heard = house.runtime.signal_run(&house.config.tenant, &run, signal).await;
    go_on(global, &house, run, heard, &args.go).await
}

/// What was said is recorded; now the run acts on it.
async fn go_on(global: &Global, house: &House, run: RunId, heard: Result<Heard, RunError>, go: &GoOnArgs) -> anyhow::Result<Exit> {
    let heard = heard.map_err(refused)?;
    if heard == Heard::Before && !global.json {
        output::note("it was so already: nothing changed");
    }
    let tenant = &house.config.tenant;
    if !go.detach {
        foreground::drive(global, &house.runtime, tenant, &run, Until::Rest).await?;
    }
    let view = house.runtime.run(tenant, &run).await.map_err(refused)?;
    Ok(show_end(global, &view))
}

async fn list(global: &Global, args: &RunsListArgs) -> anyhow::Result<Exit> {
    let known = |text: &String| {
        let states = "running, waiting, cancelling, compensating, completed, failed, cancelled, compensated, compensation_failed";
        let word = state_word(text).filter(|word| states.split(", ").any(|state| state == *word));
        word.ok_or_else(|| Refused::usage("invalid_state", format!("--state {text:?}: there is no such state; there are {states}")))
    };
    let states = args.state.iter().map(known).collect::<anyhow::Result<Vec<_>>>()?;
    let house = House::standing(global).await?;
    let query = Query {
        kind: StreamKind::Run,
        states,
        tool: args.workflow.as_deref().map(|workflow| name("--workflow", workflow)).transpose()?,
        below: args.below.map(Position),
        limit: args.limit.clamp(1, 10_000),
        ..Query::effects(house.config.tenant.clone())
    };
    let page = house.runtime.runs(query).await.map_err(refused)?;
    if global.json {
        let runs: Vec<_> = page.found.iter().map(shown::run).collect();
        output::json(&serde_json::json!({ "runs": runs, "next": page.next.map(|p| p.0) }));
        return Ok(Exit::Done);
    }
    if page.found.is_empty() {
        output::note("no runs");
        return Ok(Exit::Done);
    }
    let mut table = output::table(&["run", "workflow", "state", "last change"]);
    for f in &page.found {
        let (run, workflow) = (f.summary.run.as_ref().map(ToString::to_string), f.summary.tool.as_ref().map(ToString::to_string));
        table.add_row([run.unwrap_or_default(), workflow.unwrap_or_default(), f.summary.state.to_owned(), time(f.at)]);
    }
    output::print_table(&table);
    if let Some(next) = page.next {
        output::note(format_args!("more: --below {}", next.0));
    }
    Ok(Exit::Done)
}

async fn show(global: &Global, run: &str, entries: bool, entry: Option<&str>) -> anyhow::Result<Exit> {
    let run: RunId = name("RUN", run)?;
    let named = |text| {
        entry_word(text).ok_or_else(|| {
            Refused::usage("invalid_entry", format!("--entry {text:?}: no entry of a run is called so; docs/ledger-format.md lists them"))
        })
    };
    let only = entry.map(named).transpose()?;
    let house = House::standing(global).await?;
    let tenant = &house.config.tenant;
    if entries || only.is_some() {
        let entries = house.runtime.run_entries(tenant, &run, only).await.map_err(refused)?;
        if global.json {
            output::json(&entries);
        } else {
            entries.iter().for_each(output::data);
        }
        return Ok(Exit::Done);
    }
    let view = house.runtime.run(tenant, &run).await.map_err(refused)?;
    if global.json {
        output::json(&view);
    } else {
        draw(&view);
    }
    Ok(Exit::Done)
}

async fn watch(global: &Global, run: &str) -> anyhow::Result<Exit> {
    let run: RunId = name("RUN", run)?;
    let house = House::standing(global).await?;
    let tenant = &house.config.tenant;
    let mut progress = Progress::new(global);
    loop {
        let ended = progress.look(&house.runtime, tenant, &run).await?;
        if ended {
            let view = house.runtime.run(tenant, &run).await.map_err(refused)?;
            return Ok(show_end(global, &view));
        }
        tokio::select! {
            () = tokio::time::sleep(std::time::Duration::from_millis(200)) => {}
            _ = tokio::signal::ctrl_c() => return Ok(Exit::Pending),
        }
    }
}

/// How a run stands, after something was done about it.
pub fn show_end(global: &Global, view: &RunView) -> Exit {
    if global.json {
        output::json(view);
        return exit_of(view);
    }
    match (&view.output, &view.error) {
        (Some(output), _) => output::data(output),
        (_, Some(error)) => output::note(format_args!("  {}: {}", error.code, error.message)),
        _ => {}
    }
    let took = view.duration_ms.map(|ms| format!(" in {ms} ms")).unwrap_or_default();
    output::note(format_args!("{}{took}", view.state));
    output::note(format_args!("  run     {}", view.run));
    if let Some(waits) = view.confirmation.as_ref().and_then(|confirmation| confirmation.waits_for.as_ref()) {
        output::note(format_args!("  {waits}"));
    }
    let waiting = leaves(&view.steps).filter(|step| step.waits_for.is_some() || step.until.is_some());
    for step in waiting {
        let what = step.waits_for.clone().unwrap_or_else(|| "sleeps".into());
        let until = step.until.as_ref().map(|until| format!(" until {until}")).unwrap_or_default();
        output::note(format_args!("  {}  {what}{until}", step.step));
    }
    if view.state == RunState::CompensationFailed.word() {
        let last = |step: &str| view.compensations.iter().rev().find(|c| c.step == step);
        let failed: BTreeSet<&str> = view.compensations.iter().map(|c| c.step.as_str()).collect();
        for failed in failed.into_iter().filter_map(last).filter(|c| c.status == "failed") {
            let why = failed.error.as_ref().map(|e| e.message.as_str()).unwrap_or_default();
            output::note(format_args!("  not undone: {}  {why}", failed.step));
        }
        output::note(format_args!(
            "  try again: counterfoil runs undo {}   or, when it is dealt with: counterfoil runs skip {} STEP",
            view.run, view.run
        ));
    }
    exit_of(view)
}

fn exit_of(view: &RunView) -> Exit {
    match view.state {
        "completed" => Exit::Done,
        "failed" | "compensated" | "compensation_failed" if view.error.is_some() => Exit::Failed,
        // Undone by hand after it had completed: that is what was asked for.
        "compensated" if view.output.is_some() => Exit::Done,
        "compensation_failed" => Exit::Failed,
        "cancelled" | "compensated" => Exit::Cancelled,
        _ => Exit::Pending,
    }
}

pub fn leaves(steps: &[StepView]) -> Box<dyn Iterator<Item = &StepView> + '_> {
    Box::new(steps.iter().flat_map(|step| std::iter::once(step).chain(leaves(&step.steps))))
}

fn draw(view: &RunView) {
    let took = view.duration_ms.map(|ms| format!("  {ms} ms")).unwrap_or_default();
    output::data(format_args!("{}  {}  {}{took}", view.workflow, view.run, view.state));
    let width = leaves(&view.steps).map(|step| step.step.len()).max().unwrap_or_default();
    draw_steps(&view.steps, "", width);
    if let Some(confirmation) = &view.confirmation {
        draw_confirmation(confirmation);
    }
    if !view.compensations.is_empty() {
        output::data("undone, in this order:");
        for undone in &view.compensations {
            let why = undone.error.as_ref().map(|e| format!("  {}: {}", e.code, e.message)).unwrap_or_default();
            let waits = undone.waits_for.as_ref().map(|waits| format!("  waits for {waits}")).unwrap_or_default();
            output::data(format_args!("  {:width$}  {}{why}{waits}", undone.step, undone.status));
        }
    }
    if let Some(error) = &view.error {
        output::data(format_args!("{}: {}", error.code, error.message));
    }
    if let Some(result) = &view.output {
        output::data(format_args!("output {result}"));
    }
}

fn draw_confirmation(confirmation: &ConfirmationView) {
    let ConfirmationView { at, judgement, verified, unverified, checks, waits_for, .. } = confirmation;
    output::data(format_args!("held against the world {at}: {judgement}, {verified} verified, {unverified} unverified"));
    checks.iter().filter_map(check_text).for_each(|line| output::data(format_args!("  {line}")));
    if let Some(waits) = waits_for {
        output::data(format_args!("  {waits}"));
    }
}

/// What was found of one effect, where that is worth a line.
pub fn check_text(check: &FindingView) -> Option<String> {
    if matches!(check.finding, "verified" | "unverified") {
        return None;
    }
    let found = check.expected.as_ref().zip(check.found.as_ref()).map(|(expected, found)| format!("expected {expected}, found {found}"));
    let said = found.or_else(|| check.why.clone()).unwrap_or_default();
    Some(format!("{}  {}  {said}", check.step, check.finding))
}

fn draw_steps(steps: &[StepView], indent: &str, width: usize) {
    for (n, step) in steps.iter().enumerate() {
        let last = n + 1 == steps.len();
        let (branch, below) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let room = width.saturating_sub(indent.chars().count());
        let what = step.tool.clone().or_else(|| step.run.clone()).unwrap_or_else(|| step.kind.to_owned());
        let took = step.duration_ms.map(|ms| format!("  {ms} ms")).unwrap_or_default();
        let outcome = step.outcome.map(|outcome| format!("  {outcome}")).unwrap_or_default();
        let waits = step.waits_for.as_ref().map(|waits| format!("  waits for {waits}")).unwrap_or_default();
        let until = step.until.as_ref().map(|until| format!("  until {until}")).unwrap_or_default();
        let error = step.error.as_ref().map(|e| format!("  {}: {}", e.code, e.message)).unwrap_or_default();
        output::data(format_args!("{indent}{branch}{:room$}  {:10}{what}{outcome}{took}{waits}{until}{error}", step.step, step.status));
        draw_steps(&step.steps, &format!("{indent}{below}"), width);
    }
}
