//! `counterfoil workflows`: workflow files, and those that were put.

use std::sync::Arc;

use counterfoil_core::ids::WorkflowName;
use counterfoil_core::summary::StreamKind;
use counterfoil_runtime::engine::operate::Heard;
use counterfoil_runtime::shown::time;
use counterfoil_runtime::workflow::Workflow;
use counterfoil_store::Query;

use super::call::name;
use super::house::{House, config_refused};
use super::run::refused;
use crate::cli::{Global, WorkflowsArgs, WorkflowsCommand};
use crate::output::{self, Exit, Refused};

const SCHEMA: &str = include_str!("../../../../docs/workflow.schema.json");

pub async fn run(global: &Global, args: &WorkflowsArgs) -> anyhow::Result<Exit> {
    match &args.command {
        WorkflowsCommand::Check { files } => check(global, files),
        WorkflowsCommand::Put { file, who } => {
            let workflow = Arc::new(Workflow::load(file).map_err(config_refused)?);
            let house = House::open(global).await?;
            let heard = house.runtime.put_workflow(&house.config.tenant, &workflow, &who.by).await.map_err(refused)?;
            if global.json {
                output::json(&serde_json::json!({ "workflow": workflow.name, "definition": workflow.digest, "new": heard == Heard::Now }));
            } else {
                let word = if heard == Heard::Now { "put" } else { "it was so already" };
                output::note(format_args!("{}: {word}  {}", workflow.name, workflow.digest));
            }
            Ok(Exit::Done)
        }
        WorkflowsCommand::List => list(global).await,
        WorkflowsCommand::Show { name: typed } => {
            let name: WorkflowName = name("NAME", typed)?;
            let house = House::standing(global).await?;
            let found = house.runtime.workflow(&house.config.tenant, &name).await.map_err(refused)?;
            let Some(workflow) = found else {
                return Err(Refused::refused(
                    "unknown_workflow",
                    format!("there is no workflow {name}; `counterfoil workflows put FILE` keeps one"),
                ));
            };
            if global.json {
                output::json(&serde_json::json!({ "workflow": workflow.name, "definition": workflow.digest, "text": &*workflow.text }));
            } else {
                output::data(workflow.text.trim_end());
            }
            Ok(Exit::Done)
        }
        WorkflowsCommand::Schema => {
            output::data(SCHEMA.trim_end());
            Ok(Exit::Done)
        }
    }
}

/// Every mistake of every file.
fn check(global: &Global, files: &[std::path::PathBuf]) -> anyhow::Result<Exit> {
    if files.is_empty() {
        return Err(Refused::usage("no_files", "name a workflow file, as in counterfoil workflows check trip.yaml"));
    }
    let mut wrong = Vec::new();
    for file in files {
        match Workflow::load(file) {
            Ok(workflow) if !global.json => {
                output::note(format_args!("{}: {} steps, no mistakes", file.display(), workflow.steps.len()));
            }
            Ok(_) => {}
            Err(errors) => wrong.push(errors),
        }
    }
    if global.json {
        output::json(&serde_json::json!({ "files": files.len(), "wrong": wrong }));
    } else {
        wrong.iter().for_each(output::note);
    }
    Ok(if wrong.is_empty() { Exit::Done } else { Exit::Usage })
}

async fn list(global: &Global) -> anyhow::Result<Exit> {
    let house = House::standing(global).await?;
    let query =
        Query { kind: StreamKind::Workflow, states: vec!["registered"], limit: 1000, ..Query::effects(house.config.tenant.clone()) };
    let found = house.runtime.ledger().all_of(query).await?;
    if global.json {
        let workflows: Vec<_> =
            found.iter().map(|f| serde_json::json!({ "workflow": f.summary.tool, "at": time(f.at), "versions": f.version.0 })).collect();
        output::json(&serde_json::json!({ "workflows": workflows }));
        return Ok(Exit::Done);
    }
    if found.is_empty() {
        output::note("no workflows; `counterfoil workflows put FILE` keeps one");
        return Ok(Exit::Done);
    }
    let mut table = output::table(&["workflow", "last put", "versions"]);
    for f in &found {
        table.add_row([f.summary.tool.as_ref().map(ToString::to_string).unwrap_or_default(), time(f.at), f.version.0.to_string()]);
    }
    output::print_table(&table);
    Ok(Exit::Done)
}
