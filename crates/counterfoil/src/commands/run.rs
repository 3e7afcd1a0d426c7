//! `counterfoil run`: a workflow to its end, with what happens shown as it happens.

use std::path::Path;
use std::sync::Arc;

use counterfoil_core::ids::WorkflowName;
use counterfoil_core::{Caller, CanonicalJson, RunId, Tenant};
use counterfoil_runtime::Runtime;
use counterfoil_runtime::engine::{NewRun, RunError};
use counterfoil_runtime::workflow::Workflow;

use super::call::{name, read_json};
use super::foreground::{self, Until};
use super::house::{House, config_refused};
use crate::cli::{Global, RunArgs};
use crate::output::{self, Exit, Refused};

pub async fn run(global: &Global, args: &RunArgs) -> anyhow::Result<Exit> {
    let caller: Caller = name("--caller", &args.caller)?;
    let run: Option<RunId> = args.run.as_deref().map(|r| name("--run", r)).transpose()?;
    let input = read_json("--input", &args.input)?;
    let input = CanonicalJson::parse(&input).map_err(|e| Refused::usage("invalid_input", format!("--input: {e}; nothing was run")))?;
    let file = Path::new(&args.workflow);
    let read = if file.exists() { Some(Arc::new(Workflow::load(file).map_err(config_refused)?)) } else { None };
    let house = House::open(global).await?;
    let tenant = house.config.tenant.clone();
    let workflow = match read {
        Some(workflow) => workflow,
        None => put_before(&house.runtime, &tenant, &args.workflow).await?,
    };
    let new = NewRun { tenant: tenant.clone(), caller, run, workflow, input, parent: None, tools: None, driven: !args.detach };
    let (run, fresh) = house.runtime.start_run(new).await.map_err(refused)?;
    let known = house.runtime.run(&tenant, &run).await.map_err(refused)?;
    if !fresh && known.ended.is_some() {
        if !global.json {
            output::note(format_args!("the run {run} is over: this is how it ended"));
        }
        return Ok(super::runs::show_end(global, &known));
    }
    if !fresh && !global.json {
        output::note(format_args!("the run {run} has begun already: going on with it"));
    }
    if args.detach {
        if global.json {
            output::json(&serde_json::json!({ "run": run, "new": fresh }));
        } else {
            output::data(&run);
            output::note("started: `counterfoil serve` works on it, `counterfoil runs resume` does so here");
        }
        return Ok(Exit::Done);
    }
    see_through(global, &house, &tenant, &run).await
}

async fn put_before(runtime: &Runtime, tenant: &Tenant, typed: &str) -> anyhow::Result<Arc<Workflow>> {
    let missing = || {
        let message = format!("there is no file {typed}, and no workflow of that name was put; `counterfoil workflows list` shows them");
        Refused::usage("unknown_workflow", message)
    };
    let Ok(name) = WorkflowName::new(typed) else { return Err(missing()) };
    runtime.workflow(tenant, &name).await.map_err(refused)?.ok_or_else(missing)
}

/// Drives a run to its end, or as far as it comes before Ctrl-C, and shows it.
pub async fn see_through(global: &Global, house: &House, tenant: &Tenant, run: &RunId) -> anyhow::Result<Exit> {
    foreground::drive(global, &house.runtime, tenant, run, Until::Ended).await?;
    let view = house.runtime.run(tenant, run).await.map_err(refused)?;
    Ok(super::runs::show_end(global, &view))
}

/// A run's refusal with its code and exit.
pub fn refused(error: RunError) -> anyhow::Error {
    let code = error.code();
    let exit = match &error {
        RunError::Ledger(_) => return anyhow::Error::from(error),
        RunError::Input(_) | RunError::Signal(_) | RunError::Name(_) | RunError::Definition { .. } => Exit::Usage,
        _ => Exit::Refused,
    };
    Refused { exit, code, message: error.to_string(), detail: None }.into()
}
