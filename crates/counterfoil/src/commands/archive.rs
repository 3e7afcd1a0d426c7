//! `counterfoil archive`: finished runs, moved into a file.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use counterfoil::archive::{self, ArchiveError, Damage, Progress, RestoreError, Wanted};
use counterfoil_core::{RunId, Timestamp};
use counterfoil_runtime::config::units::duration;
use counterfoil_store::StoreError;

use super::call::name;
use super::house::{config, exists, open_store, open_store_at};
use super::signals::Signals;
use crate::cli::{ArchiveArgs, ArchiveCommand, ArchiveMakeArgs, Global};
use crate::output::{self, Exit, Refused};

/// How often progress is told.
const TOLD_EVERY: std::time::Duration = std::time::Duration::from_secs(2);

pub async fn run(global: &Global, args: &ArchiveArgs) -> anyhow::Result<Exit> {
    match (&args.command, &args.make) {
        (Some(ArchiveCommand::Verify { file }), _) => verify(global, file),
        (Some(ArchiveCommand::Restore { file, into, run }), _) => restore(global, file, into, run.as_deref()).await,
        (None, Some(args)) => make(global, args).await,
        (None, None) => Err(Refused::usage(
            "no_archive",
            "say which runs and where to, as in counterfoil archive --before 30d -o old.gz; or verify, or restore",
        )),
    }
}

async fn make(global: &Global, args: &ArchiveMakeArgs) -> anyhow::Result<Exit> {
    let now = Timestamp(jiff::Timestamp::now().as_microsecond());
    let before = before(&args.before, now)?;
    let config = config(global)?;
    exists(&config.store)?;
    let opened = open_store(&config).await?;
    let stop = Signals::new()?.stop();
    let wanted = Wanted { tenant: config.tenant.clone(), before, file: args.output.clone(), by: args.by.clone(), now };
    let mut shown = Instant::now();
    let told = |progress| {
        if !global.json && shown.elapsed() > TOLD_EVERY {
            shown = Instant::now();
            match progress {
                Progress::Written { runs } => output::note(format_args!("{runs} runs written")),
                Progress::Moved { runs, of } => output::note(format_args!("{runs} of {of} runs moved")),
            }
        }
        if stop.load(Ordering::SeqCst) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let made = archive::make(&*opened.store, &*opened.graves, &wanted, told).await.map_err(refused)?;
    if global.json {
        let mut shown = serde_json::to_value(&made)?;
        shown["file"] = serde_json::json!(args.output);
        output::json(&shown);
        return Ok(Exit::Done);
    }
    if made.resumed {
        output::note(format_args!("{} was there: what was left to do was done", args.output.display()));
    }
    for left in &made.stayed {
        output::note(format_args!("{} stays: {}", left.run, left.why));
    }
    let archive = &made.archive;
    output::data(format_args!(
        "{}: {} runs, {} records, {} receipts; {} runs have left the ledger",
        args.output.display(),
        archive.runs,
        archive.records,
        archive.receipts,
        made.moved
    ));
    output::data(format_args!("digest {}", archive.digest));
    output::note("keep it as secret as the ledger: it holds the same arguments and results");
    Ok(Exit::Done)
}

/// A day, a time or an age.
fn before(text: &str, now: Timestamp) -> anyhow::Result<Timestamp> {
    let wrong = || {
        Refused::usage(
            "invalid_date",
            format!("--before {text:?}: a day (2026-10-01), a time (2026-10-01T06:00:00Z) or an age (30d); nothing was changed"),
        )
    };
    if let Ok(age) = duration(text) {
        return Ok(now - age);
    }
    let day = text.parse::<jiff::civil::Date>().ok().and_then(|day| day.to_zoned(jiff::tz::TimeZone::UTC).ok()).map(|day| day.timestamp());
    // A time first: its text begins as a day's does.
    let time = text.parse::<jiff::Timestamp>().ok().or(day).ok_or_else(wrong)?;
    Ok(Timestamp(time.as_microsecond()))
}

fn verify(global: &Global, file: &Path) -> anyhow::Result<Exit> {
    let mut runs = Vec::new();
    let verified = archive::verify(file, |run| {
        if global.json {
            runs.push(
                serde_json::json!({ "run": run.head.run, "workflow": run.head.workflow, "state": run.head.state, "digest": run.digest }),
            );
        }
    });
    let (_, verified) = verified.map_err(|error| unreadable(file, &error))?.map_err(|damage| broken(file, &damage))?;
    if global.json {
        let mut shown = serde_json::to_value(&verified)?;
        shown["ok"] = true.into();
        shown["of"] = runs.into();
        output::json(&shown);
    } else {
        output::data(format_args!(
            "{}: {} runs of {}, {} records, {} receipts: every digest, every link, every entry holds",
            file.display(),
            verified.runs,
            verified.tenant,
            verified.records,
            verified.receipts
        ));
        output::data(format_args!("digest {}", verified.digest));
    }
    Ok(Exit::Done)
}

async fn restore(global: &Global, file: &Path, into: &str, run: Option<&str>) -> anyhow::Result<Exit> {
    let run: Option<RunId> = run.map(|run| name("--run", run)).transpose()?;
    let config = config(global)?;
    let opened = open_store_at(into, &config).await?;
    let stop = Signals::new()?.stop();
    let told = |_| if stop.load(Ordering::SeqCst) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let restored = archive::restore(file, &*opened.store, run.as_ref(), told).await.map_err(|error| {
        let (exit, code) = match &error {
            RestoreError::File(_) => (Exit::Usage, "archive_unreadable"),
            RestoreError::Damaged(_) => (Exit::Broken, "archive_damaged"),
            RestoreError::InTheWay { .. } => (Exit::Refused, "restore_refused"),
            RestoreError::NoRun(_) => (Exit::Refused, "run_not_found"),
            RestoreError::Stopped => (Exit::Cancelled, "archive_stopped"),
            RestoreError::Store(error) => (Exit::Broken, store_code(error)),
        };
        anyhow::Error::from(Refused {
            exit, code, message: format!("{} → {}: {error}", file.display(), opened.kind.label()), detail: None
        })
    })?;
    if global.json {
        output::json(&restored);
    } else {
        output::data(format_args!("{} runs, {} records ({} of them were there)", restored.runs, restored.records, restored.found));
        output::note(format_args!("look at them: counterfoil --store {into} runs list"));
    }
    Ok(Exit::Done)
}

fn refused(error: ArchiveError) -> anyhow::Error {
    let (exit, code) = match &error {
        ArchiveError::File { .. } => (Exit::Usage, "archive_unreadable"),
        ArchiveError::Damaged { .. } => (Exit::Broken, "archive_damaged"),
        ArchiveError::Another { .. } => (Exit::Refused, "archive_exists"),
        ArchiveError::Stopped => (Exit::Cancelled, "archive_stopped"),
        ArchiveError::Store(error) => (Exit::Broken, store_code(error)),
    };
    Refused { exit, code, message: error.to_string(), detail: None }.into()
}

fn store_code(error: &StoreError) -> &'static str {
    if let StoreError::Corrupt { .. } = error { "ledger_corrupt" } else { "store_unavailable" }
}

fn unreadable(file: &Path, error: &std::io::Error) -> anyhow::Error {
    Refused::usage("archive_unreadable", format!("{}: {error}", file.display()))
}

fn broken(file: &Path, damage: &Damage) -> anyhow::Error {
    let detail = Some(serde_json::json!({ "line": damage.line }));
    Refused { exit: Exit::Broken, code: "archive_damaged", message: format!("{}: {damage}", file.display()), detail }.into()
}
