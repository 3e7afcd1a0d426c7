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
/// Longer than any store waits by itself: what went well for so long was another outage.
const APART: Duration = Duration::from_secs(20);

/// How far a run is driven.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Until {
    Ended,
    /// Or as far as nobody else is needed.
    Rest,
}

#[derive(PartialEq, Eq)]
enum Left {
    Itself,
    Told,
}

pub async fn drive(global: &Global, runtime: &Runtime, tenant: &Tenant, run: &RunId, until: Until) -> anyhow::Result<()> {
    let signals = Signals::new()?;
    let mut progress = Progress::new(global);
    progress.prime(runtime, tenant, run).await?;
    let left = {
        let mut driving = pin!(patiently(global, runtime, tenant, run, until));
        let mut shown = pin!(progress.follow(runtime, tenant, run));
        tokio::select! {
            driven = &mut driving => driven.map(|()| Left::Itself),
            never = &mut shown => match never {},
            () = signals.first(FINISHING) => {
                tokio::select! {
                    () = runtime.rest_runs() => Ok(()),
                    driven = &mut driving => driven,
                    never = &mut shown => match never {},
                }
                .map(|()| Left::Told)
            }
        }
    };
    // Whichever way it ended: what an outage left to itself is still at work in this process.
    while !runtime.calls_ended(PAUSE).await {}
    let lost = if runtime.reports_in(TRYING).await { "" } else { LOST };
    let go_on = format!("go on with it: counterfoil runs resume {run}");
    let left = left.map_err(|error| match is_away(&error) {
        true => refused(error).context(format!("the run {run} stopped here{lost}; when the ledger is back, {go_on}")),
        false => refused(error),
    })?;
    if left == Left::Told && !let_go(runtime, tenant, run).await? && !global.json {
        let word = if lost.is_empty() { "; nothing is lost" } else { lost };
        output::note(format_args!("stopped here{word}; {go_on}"));
    }
    progress.last(runtime, tenant, run).await
}

const LOST: &str = "; what its last steps said could not be recorded: they will be in doubt";

/// Lets go of the run, also when the ledger takes a while. True: it has ended.
async fn let_go(runtime: &Runtime, tenant: &Tenant, run: &RunId) -> anyhow::Result<bool> {
    let until = Instant::now() + TRYING;
    loop {
        let tried = async {
            let ended = runtime.run_facts(tenant, run).await?.0.state().is_end();
            if !ended {
                runtime.let_go(tenant, run).await?;
            }
            Ok(ended)
        };
        match tried.await {
            Err(error) if is_away(&error) && Instant::now() < until => tokio::time::sleep(PAUSE).await,
            tried => return tried.map_err(refused),
        }
    }
}

/// Where the ledger is out of reach, again.
async fn patiently(global: &Global, runtime: &Runtime, tenant: &Tenant, run: &RunId, until: Until) -> Result<(), RunError> {
    // Since when, and nothing was at work.
    let mut away = None::<Instant>;
    loop {
        let began = Instant::now();
        let driven = match until {
            Until::Ended => runtime.see_run_through(tenant, run).await,
            Until::Rest => runtime.drive_run(tenant, run).await.map(drop),
        };
        let Err(error) = driven else { return Ok(()) };
        if !is_away(&error) {
            return Err(error);
        }
        let since = match away.filter(|_| began.elapsed() < APART) {
            Some(since) => since,
            None => {
                if !global.json {
                    output::note(format_args!("{error}: trying again; what is at work goes on"));
                }
                Instant::now()
            }
        };
        if !runtime.calls_ended(PAUSE).await {
            away = Some(Instant::now());
            continue;
        }
        if since.elapsed() >= TRYING {
            return Err(error);
        }
        away = Some(since);
        tokio::time::sleep(PAUSE).await;
    }
}

fn is_away(error: &RunError) -> bool {
    error.code() == "store_unavailable"
}
