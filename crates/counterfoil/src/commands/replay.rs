//! `counterfoil runs replay`: a run as it is recorded, held against the world and perhaps against another definition. Calls no tool, records nothing.

use std::path::Path;

use counterfoil_core::RunId;
use counterfoil_runtime::engine::diverge::Divergence;
use counterfoil_runtime::engine::{ReplayStep, ReplayView};
use counterfoil_runtime::workflow::Workflow;

use super::call::name;
use super::house::{House, config_refused};
use super::run::refused;
use crate::cli::Global;
use crate::output::{self, Exit};

pub async fn run(global: &Global, run: &str, workflow: Option<&Path>) -> anyhow::Result<Exit> {
    let run: RunId = name("RUN", run)?;
    let workflow = workflow.map(Workflow::load).transpose().map_err(config_refused)?;
    let house = House::standing(global).await?;
    let view = house.runtime.replay_run(&house.config.tenant, &run, workflow.as_ref()).await.map_err(refused)?;
    match global.json {
        true => output::json(&view),
        false => draw(&view),
    }
    Ok(match view.verdict {
        "agrees" => Exit::Done,
        "unknown" => Exit::InDoubt,
        _ => Exit::Drifted,
    })
}

fn draw(view: &ReplayView) {
    let mut table = output::table(&["step", "tool", "found", ""]);
    for step in &view.steps {
        let what = step.tool.clone().or_else(|| step.run.as_ref().map(|run| format!("run {run}"))).unwrap_or_default();
        table.add_row([step.step.clone(), what, step.finding.replace('_', " "), said(step)]);
    }
    output::print_table(&table);
    if let Some(divergence) = &view.divergence {
        draw_divergence(divergence);
    }
    let counts = &view.counts;
    output::note(format_args!(
        "{}: {} verified, {} drifted, {} unverified, {} in doubt, {} unavailable; no tool was called",
        view.verdict, counts.verified, counts.drifted, counts.unverified, counts.in_doubt, counts.unavailable
    ));
}

fn said(step: &ReplayStep) -> String {
    match (&step.expected, &step.found, &step.why) {
        (Some(expected), Some(found), _) => format!("expected {expected}, found {found}"),
        (_, _, why) => why.clone().unwrap_or_default(),
    }
}

fn draw_divergence(divergence: &Divergence) {
    match &divergence.first {
        Some(first) => output::data(format_args!(
            "diverges at {} after {} steps: expected {}, recorded {}",
            first.step, divergence.followed, first.expected, first.actual
        )),
        None => output::data(format_args!("the record goes by the given definition: {} steps", divergence.followed)),
    }
    if !divergence.log_exhausted.is_empty() {
        output::data(format_args!("log exhausted: the plan goes on with {}", divergence.log_exhausted.join(", ")));
    }
}
