//! A run that is driven here, in the foreground, with what happens shown as it happens.
//!
//! What must stay true: no tool that is at work is left by this process as long as nobody insists. The first signal lets the steps that are under way end and begins no
//! other; while the ledger is out of reach it is tried again, as long as a tool is at work and for a while after.

use std::pin::pin;
use std::time::{Duration, Instant};

use counterfoil_core::{RunId, Tenant};
use counterfoil_runtime::Runtime;
use counterfoil_runtime::engine::RunError;

use super::progress::Progress;
use super::run::refused;
use super::signals::Signals;
use crate::cli::Global;
use crate::output;

const FINISHING: &str = "finishing the steps that are under way; a second signal quits at once, and may leave a doubt";
/// How long a ledger that is out of reach is tried again when no tool is at work any more.
const TRYING: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(200);

/// How far a run is driven.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Until {
    Ended,
    /// Or as far as nobody else is needed.
    Rest,
}

pub async fn drive(global: &Global, runtime: &Runtime, tenant: &Tenant, run: &RunId, until: Until) -> anyhow::Result<()> {
    let signals = Signals::new()?;
    let mut progress = Progress::new(global);
    progress.prime(runtime, tenant, run).await?;
    {
        let mut driving = pin!(patiently(runtime, tenant, run, until));
        let mut shown = pin!(progress.follow(runtime, tenant, run));
        tokio::select! {
            driven = &mut driving => driven?,
            never = &mut shown => match never {},
            () = signals.first(FINISHING) => {
                tokio::select! {
                    () = runtime.rest_runs() => {}
                    driven = &mut driving => driven?,
                    never = &mut shown => match never {},
                }
                let (facts, _) = runtime.run_facts(tenant, run).await.map_err(refused)?;
                // Its last step may have been the one that was waited for.
                if !facts.state().is_end() {
                    runtime.let_go(tenant, run).await.map_err(refused)?;
                    output::note(format_args!("stopped here; nothing is lost. Go on with it:\n  counterfoil runs resume {run}"));
                }
            }
        }
    }
    progress.last(runtime, tenant, run).await
}

/// Where the ledger is out of reach, again.
async fn patiently(runtime: &Runtime, tenant: &Tenant, run: &RunId, until: Until) -> anyhow::Result<()> {
    let mut away = None::<Instant>;
    loop {
        let began = Instant::now();
        let driven = match until {
            Until::Ended => runtime.see_run_through(tenant, run).await,
            Until::Rest => runtime.drive_run(tenant, run).await.map(drop),
        };
        let Err(error) = driven else { return Ok(()) };
        if error.code() != "store_unavailable" {
            return Err(refused(error));
        }
        // It was there in between, if it took a while to fail.
        if away.is_none() || began.elapsed() > 2 * PAUSE {
            output::note(format_args!("{error}: trying again; what is at work goes on"));
            away = Some(Instant::now());
        }
        let at_work = !runtime.calls_ended(PAUSE).await;
        if at_work {
            away = Some(Instant::now());
        } else if away.is_some_and(|since| since.elapsed() >= TRYING) {
            return Err(gave_up(runtime, run, error).await);
        } else {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn gave_up(runtime: &Runtime, run: &RunId, error: RunError) -> anyhow::Error {
    let lost = match runtime.reports_in(Duration::ZERO).await {
        true => "",
        false => "; what its last steps said could not be recorded: they will be in doubt",
    };
    refused(error).context(format!("the run {run} stopped here{lost}; when the ledger is back: counterfoil runs resume {run}"))
}
