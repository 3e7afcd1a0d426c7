//! `counterfoil doctor`: is everything in order, and if not, what to do.

use std::path::Path;
use std::time::Instant;

use counterfoil::compose::{self, Kind, Volatile};
use counterfoil_runtime::config::Config;
use counterfoil_store::{Query, postgres};

use super::house;
use crate::cli::Global;
use crate::output::{self, Exit};

/// Less than this is soon gone: the log beside the ledger alone grows to some tens of them.
const FREE_MIB_MIN: u64 = 64;

struct Finding {
    good: bool,
    what: &'static str,
    text: String,
}

pub async fn run(global: &Global) -> anyhow::Result<Exit> {
    let findings = look(global).await;
    let bad = findings.iter().filter(|f| !f.good).count();
    if global.json {
        let items: Vec<_> = findings.iter().map(|f| serde_json::json!({ "ok": f.good, "what": f.what, "text": f.text })).collect();
        output::json(&serde_json::json!({ "ok": bad == 0, "findings": items }));
    } else {
        for f in &findings {
            output::data(format_args!("{}  {:<9} {}", if f.good { "ok " } else { "BAD" }, f.what, f.text));
        }
        output::note(if bad == 0 { "all is well".to_owned() } else { format!("{bad} to look at") });
    }
    Ok(if bad == 0 { Exit::Done } else { Exit::Broken })
}

async fn look(global: &Global) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |good, what, text: String| findings.push(Finding { good, what, text });
    add(true, "version", env!("CARGO_PKG_VERSION").to_owned());
    let config = match house::config(global) {
        Ok(config) => config,
        Err(error) => {
            add(false, "config", format!("{error:#}"));
            return findings;
        }
    };
    let named = house::config_path(global)
        .map_or_else(|| "none; defaults are used (`counterfoil init` writes one)".to_owned(), |p| p.display().to_string());
    add(true, "config", named);
    add(true, "mode", format!("{:?}", config.mode).to_lowercase());
    if let Some(file) = compose::ledger_file(&config.store) {
        if let Err(error) = compose::check_place(&config.store) {
            add(false, "ledger", error.to_string());
            return findings;
        }
        let (good, text) = disk(file, free_mib(file));
        add(good, "disk", text);
    }
    if house::exists(&config.store).is_err() {
        add(true, "ledger", format!("{}: none yet; the first call makes it", config.store));
        // The tools are looked at all the same, on one that is gone with this process.
        let tools = match compose::open_store("memory:", Volatile::Allowed).await {
            Ok(opened) => compose::runtime(&opened, &config).map(|runtime| runtime.tools().len()),
            Err(error) => Err(error),
        };
        match tools {
            Ok(count) => add(true, "tools", format!("{count} registered")),
            Err(error) => add(false, "tools", error.to_string()),
        }
        return findings;
    }
    let started = Instant::now();
    let opened = match compose::open_store(&config.store, Volatile::of(&config)).await {
        Ok(opened) => opened,
        Err(error) => {
            add(false, "ledger", error.to_string());
            return findings;
        }
    };
    let took = started.elapsed().as_millis();
    add(true, "ledger", format!("{} (opened in {took} ms)", described(&opened.kind, &config)));
    if let Kind::Postgres(postgres) = &opened.kind {
        match postgres.facts().await {
            Ok(facts) => add(true, "server", server(&facts)),
            Err(error) => add(false, "server", error.to_string()),
        }
    }
    match opened.kind.risks() {
        risks if risks.is_empty() => add(true, "durable", "what is acknowledged is flushed".into()),
        risks => risks.into_iter().for_each(|risk| add(false, "durable", risk)),
    }
    let runtime = match compose::runtime(&opened, &config) {
        Ok(runtime) => runtime,
        Err(error) => {
            add(false, "tools", error.to_string());
            return findings;
        }
    };
    add(true, "tools", format!("{} registered", runtime.tools().len()));
    for (what, states, good_if_none) in
        [("doubts", vec!["in_doubt"], true), ("running", vec!["running"], false), ("undos", vec!["undo_failed"], true)]
    {
        let query = Query { states: states.clone(), limit: 1000, ..Query::effects(config.tenant.clone()) };
        match runtime.ledger().search(query).await {
            Ok(page) if page.found.is_empty() => add(true, what, "none".into()),
            Ok(page) => {
                let oldest = page.found.iter().map(|f| f.at).min().map(counterfoil_runtime::shown::time).unwrap_or_default();
                let text = format!(
                    "{} {}, the oldest since {oldest}: counterfoil effects list --state {}",
                    page.found.len(),
                    states[0],
                    states[0]
                );
                // Its worker has not been heard of for longer than its lease.
                let silent = page.found.iter().filter(|f| f.summary.due.is_some_and(|due| due <= runtime.now())).count();
                match what {
                    "running" if silent > 0 => add(false, what, format!("{text}; {silent} of lost workers: counterfoil recover")),
                    _ => add(!good_if_none, what, text),
                }
            }
            Err(error) => add(false, what, error.to_string()),
        }
    }
    match runtime.ledger().receipts(&config.tenant, None).await {
        Ok(receipts) => add(true, "receipts", format!("{} outside runs, every link holds", receipts.len())),
        Err(error) => add(false, "receipts", error.to_string()),
    }
    findings
}

fn disk(ledger: &Path, free: std::io::Result<u64>) -> (bool, String) {
    let place = ledger.display();
    match free {
        Ok(free) if free < FREE_MIB_MIN => (false, format!("{free} MiB left for {place}: calls are refused when nothing is; make room")),
        Ok(free) => (true, format!("{free} MiB left")),
        Err(error) => (false, format!("{place}: {error}")),
    }
}

/// What this program may still write where the ledger is, or will be.
fn free_mib(ledger: &Path) -> std::io::Result<u64> {
    let parent = ledger.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let disk = rustix::fs::statvfs(ledger).or_else(|_| rustix::fs::statvfs(parent))?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize) >> 20)
}

/// The store, never with its password.
fn described(kind: &Kind, config: &Config) -> String {
    match kind {
        Kind::Memory | Kind::Sqlite(_) => config.store.clone(),
        Kind::Postgres(_) | Kind::Redis(_) => kind.label(),
    }
}

fn server(facts: &postgres::Facts) -> String {
    let others = if facts.listens { "other workers' commits are notified" } else { "other workers' commits are polled for" };
    format!("{}, {} µs away; synchronous_commit {}; {others}", facts.server, facts.round_trip.as_micros(), facts.synchronous_commit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_looked_after_before_it_is_full() {
        let place = Path::new("a.db");
        assert_eq!(disk(place, Ok(FREE_MIB_MIN)), (true, "64 MiB left".into()));
        let (good, text) = disk(place, Ok(FREE_MIB_MIN - 1));
        assert!(!good && text.starts_with("63 MiB left for a.db"), "{text}");
        assert!(!disk(place, Err(std::io::ErrorKind::NotFound.into())).0);
    }
}
