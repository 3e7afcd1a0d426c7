//! `counterfoil demo`: a payment that is made once although the process was killed in the middle; and what a retry makes of the same.
//!
//! Nothing is acted: the bank is a server ([`bank`]), the workers are processes ([`agent`], [`part`]), the kill is SIGKILL, the config is one that
//! could be yours. What is printed was asked from the bank ([`teller`]) or read in the ledger; the plot is in [`story`], its looks in [`screen`].

mod agent;
mod bank;
mod folder;
mod part;
mod screen;
mod story;
mod teller;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use self::folder::Folder;
use self::screen::Screen;
use crate::cli::{DemoArgs, DemoPart, Global};
use crate::output::{self, Exit, Refused};

/// The story takes a second or two. What takes this long is stuck.
const STORY_MAX: Duration = Duration::from_secs(60);

pub async fn run(global: &Global, args: &DemoArgs) -> anyhow::Result<Exit> {
    match args.part {
        Some(part) => play(part, args).await,
        None => tell(global, args.keep).await,
    }
}

async fn tell(global: &Global, keep: bool) -> anyhow::Result<Exit> {
    let started = Instant::now();
    let screen = Screen::new(global.json);
    let mut folder = Folder::new()?;
    // The story owns its child processes: whichever way this ends, they end with it, and before the folder goes.
    let mut report = tokio::select! {
        // On a terminal Ctrl-C also reaches the children: that they end is then no news.
        biased;
        stopped = interrupted() => {
            stopped?;
            bail!("interrupted; the demo's processes and its folder are gone");
        }
        told = tokio::time::timeout(STORY_MAX, story::tell(&screen, folder.path())) => match told {
            Ok(told) => told?,
            Err(_) => bail!("the demo got stuck: it was not over after {STORY_MAX:?}"),
        },
    };
    report.elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    if keep {
        report.ledger = Some(format!("sqlite:{}", folder.keep().join(story::LEDGER).display()));
    }
    if global.json {
        output::json(&report);
    } else {
        screen.end(&report);
    }
    if (report.charges_with, report.charges_without) != (1, 2) {
        output::note("counterfoil: this is not how the demo should end; 1 and 2 were expected. Please report it.");
        return Ok(Exit::Broken);
    }
    Ok(Exit::Done)
}

/// What a child process of the demo does.
async fn play(part: DemoPart, args: &DemoArgs) -> anyhow::Result<Exit> {
    part::end_with_parent();
    let needed =
        |what: &str| Refused::usage("invalid_demo", format!("--part needs --{what}; plain `counterfoil demo` starts its parts itself"));
    let dir = || args.dir.as_deref().ok_or_else(|| needed("dir"));
    match part {
        DemoPart::Bank => match bank::serve().await? {},
        DemoPart::Worker => agent::guarded(dir()?).await?,
        DemoPart::Plain => agent::plain(dir()?, args.bank.as_deref().ok_or_else(|| needed("bank"))?).await?,
    }
    Ok(Exit::Done)
}

async fn interrupted() -> anyhow::Result<()> {
    let no_signals = "signals cannot be watched";
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminated = signal(SignalKind::terminate()).context(no_signals)?;
        let mut hung_up = signal(SignalKind::hangup()).context(no_signals)?;
        tokio::select! {
            pressed = tokio::signal::ctrl_c() => pressed.context(no_signals),
            _ = terminated.recv() => Ok(()),
            _ = hung_up.recv() => Ok(()),
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await.context(no_signals)
}

/// The config the demo runs on, in its folder.
fn write_config(dir: &Path, bank: &str) -> anyhow::Result<()> {
    let path = dir.join(counterfoil_runtime::config::FILE_NAME);
    let text = include_str!("counterfoil.yaml").replace("{bank}", bank);
    std::fs::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))
}
