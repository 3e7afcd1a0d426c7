//! `counterfoil store`: a whole ledger, copied to another store or checked.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::Instant;

use counterfoil::check::log::Against;
use counterfoil::check::{self, Report};
use counterfoil::compose::Opened;
use counterfoil_store::StoreError;
use counterfoil_store::copy::{self, CopyError, Phase, Progress, Side};

use super::house::{config, exists, open_store_at};
use super::receipts::{head as read_head, public_keys};
use super::signals::Signals;
use crate::cli::{Global, StoreArgs, StoreCommand};
use crate::output::{self, Exit, Refused};

/// Lines on the way, at most: one for each tenth.
const TENTHS: u64 = 10;

pub async fn run(global: &Global, args: &StoreArgs) -> anyhow::Result<Exit> {
    match &args.command {
        StoreCommand::Copy { from, to } => copy(global, from, to).await,
        StoreCommand::Check { url, key, head } => {
            let against = Against { trusted: public_keys(key)?, head: head.as_deref().map(read_head).transpose()? };
            check(global, url.as_deref(), &against).await
        }
    }
}

async fn copy(global: &Global, from: &str, to: &str) -> anyhow::Result<Exit> {
    let config = config(global)?;
    exists(from)?;
    let (source, target) = (open_store_at(from, &config).await?, open_store_at(to, &config).await?);
    let (source_label, target_label) = (source.kind.label(), target.kind.label());
    if source_label == target_label {
        return Err(Refused::usage("store_same", format!("{source_label} is both source and target; nothing was changed")));
    }
    let stop = Signals::new()?.stop();
    let started = Instant::now();
    let mut tenths = Tenths::new(global.json);
    let told = |progress: Progress| {
        tenths.tell(progress);
        if stop.load(Ordering::SeqCst) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let copied = copy::copy(side(&source), side(&target), told).await.map_err(|error| refused(&source_label, &target_label, &error))?;
    let took_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    match global.json {
        true => output::json(&serde_json::json!({
            "from": source_label,
            "to": target_label,
            "records": copied.records,
            "found": copied.found,
            "tombstones": copied.tombstones,
            "digest": copied.digest,
            "duration_ms": took_ms,
        })),
        false => {
            let (records, found, tombstones) = (copied.records, copied.found, copied.tombstones);
            output::note(format_args!("{source_label} → {target_label}, in {took_ms} ms"));
            output::note(format_args!(
                "{records} records ({found} of them were there) and {tombstones} tombstones, each read back and found equal"
            ));
            output::note(format_args!("digest {}", copied.digest));
            output::note("keep it as secret as the original: it holds the same results, and the salt of what was redacted");
        }
    }
    Ok(Exit::Done)
}

fn side(opened: &Opened) -> Side<'_> {
    Side { store: &*opened.store, graves: &*opened.graves }
}

/// A line for each tenth of each phase.
struct Tenths {
    quiet: bool,
    phase: Option<Phase>,
    tenth: u64,
}

impl Tenths {
    fn new(quiet: bool) -> Self {
        Self { quiet, phase: None, tenth: 0 }
    }

    fn tell(&mut self, Progress { phase, done, at, end }: Progress) {
        if self.phase != Some(phase) {
            (self.phase, self.tenth) = (Some(phase), 0);
        }
        let tenth = (at.0.saturating_mul(TENTHS) / end.0.max(1)).min(TENTHS);
        if tenth > self.tenth && !self.quiet {
            self.tenth = tenth;
            let (word, what) = match phase {
                Phase::Comparing => ("compared", "records that were there"),
                Phase::Copying => ("copied", "records"),
                Phase::Verifying => ("verified", "records"),
                Phase::Burying => ("copied", "tombstones"),
            };
            output::note(format_args!("{} %: {done} {what} {word}", tenth * 100 / TENTHS));
        }
    }
}

fn refused(from: &str, to: &str, error: &CopyError) -> anyhow::Error {
    let (exit, code) = match error {
        CopyError::Differs { .. } => (Exit::Refused, "copy_differs"),
        CopyError::Moved { .. } => (Exit::Refused, "copy_target_in_use"),
        CopyError::Unsound { .. } => (Exit::Broken, "copy_unsound"),
        CopyError::Stopped => (Exit::Cancelled, "copy_stopped"),
        CopyError::From(StoreError::Corrupt { .. }) | CopyError::To(StoreError::Corrupt { .. }) => (Exit::Broken, "ledger_corrupt"),
        CopyError::From(_) | CopyError::To(_) => (Exit::Broken, "store_unavailable"),
    };
    Refused { exit, code, message: format!("{from} → {to}: {error}"), detail: None }.into()
}

async fn check(global: &Global, url: Option<&str>, against: &Against) -> anyhow::Result<Exit> {
    let config = config(global)?;
    let url = url.unwrap_or(&config.store);
    exists(url)?;
    let opened = open_store_at(url, &config).await?;
    let mut tenths = Tenths::new(global.json);
    let told = |records, at, end| tenths.tell(Progress { phase: Phase::Verifying, done: records, at, end });
    let label = opened.kind.label();
    let report = check::check(&*opened.store, &*opened.graves, against, told).await.map_err(|error| {
        let code = if matches!(error, StoreError::Corrupt { .. }) { "ledger_corrupt" } else { "store_unavailable" };
        Refused { exit: Exit::Broken, code, message: format!("{label}: {error}; it was not checked to its end"), detail: None }
    })?;
    let sound = report.problems.is_empty();
    match global.json {
        true => {
            let mut shown = serde_json::to_value(&report)?;
            shown["ok"] = sound.into();
            shown["store"] = label.into();
            output::json(&shown);
        }
        false => print(&label, &report),
    }
    Ok(if sound { Exit::Done } else { Exit::Broken })
}

fn print(label: &str, report: &Report) {
    for problem in &report.problems {
        output::data(format_args!("BAD  {}: {}", problem.place, problem.problem));
    }
    if report.untold > 0 {
        output::data(format_args!("BAD  and {} more", report.untold));
    }
    output::data(format_args!(
        "{label}: {} records of {} streams; {} effects and {} runs folded; {} receipts in {} chains followed; {} tombstones",
        report.records, report.streams, report.effects, report.runs, report.receipts, report.chains, report.tombstones
    ));
    output::data(format_args!("{} of {} receipts under {} signed heads", report.sealed, report.receipts, report.heads));
    output::data(format_args!("digest {}", report.digest));
    output::data(format_args!("state  {}", report.state));
    report.notes.iter().for_each(output::note);
    output::note(match report.problems.len() {
        0 => "all of it holds".to_owned(),
        problems => format!("{} problems; nothing was changed", problems as u64 + report.untold),
    });
}
