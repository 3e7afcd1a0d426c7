//! `counterfoil serve`: the HTTP API and the worker in one process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use counterfoil::compose::{self, Kind};
use counterfoil::keyring::{Keyring, KeyringError};
use counterfoil_core::token::{Right, Rights};
use counterfoil_core::{Caller, Tenant, ToolName};
use counterfoil_runtime::config::{Config, Environment};
use counterfoil_runtime::spec::{Action, Ask, Egress, Look, ToolSpec};
use counterfoil_runtime::{Log, Runtime, Tokens};
use counterfoil_server::admin::Backups;
use counterfoil_server::app::{App, Limits};
use counterfoil_server::guard::{Guard, Hosts};
use counterfoil_server::requests::Requests;
use counterfoil_server::router::Api;
use counterfoil_server::tools::{Maker, Registrar};
use counterfoil_server::who::{Access, Who};
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::signals::Signals;
use super::{house, keys};
use crate::cli::{Global, ServeArgs};
use crate::output::{self, Exit, Refused};

/// How often the worker looks for what is due.
const RECOVER_EVERY: Duration = Duration::from_secs(1);
/// How often what has expired is dropped, and how much at a time, so that calls in between are not held up.
const PRUNE_EVERY: Duration = Duration::from_secs(30);
const PRUNE_SLICE: usize = 500;
/// How often receipts that are new are put under a signed head.
const SEAL_EVERY: Duration = Duration::from_secs(10);
/// How long the last sealing may take when it stops.
const SEAL_WITHIN: Duration = Duration::from_secs(3);
const UPKEEP_EVERY: Duration = Duration::from_secs(5);
/// How long reports that could not be recorded are waited for at the end.
const REPORTS_WAIT: Duration = Duration::from_secs(5);

pub async fn run(global: &Global, args: &ServeArgs) -> anyhow::Result<Exit> {
    let config = house::config(global)?;
    // Before the runtime, which takes its counters once.
    let metrics = counterfoil_server::metrics::install().context("nothing can be counted")?;
    let (runtime, opened) = house::open(&config).await?;
    let backups = opened.sqlite().map(|sqlite| Backups { dir: beside(sqlite.path(), "-backups"), sqlite: sqlite.clone() });
    let (present, risky) = (opened.kind.clone(), opened.kind.clone());
    let access = access(args, &config.tenant, &runtime).await?;
    let registrar = Registrar::new(maker(config.egress.clone()));
    let registered = registrar.load(&runtime).await?;
    let stopping = tokio::sync::watch::channel(false);
    let mut stopped = stopping.1.clone();
    let app = Arc::new(App {
        requests: Requests::new(runtime.clone(), Duration::from_secs(args.retain_answers), args.requests_max),
        runtime: runtime.clone(),
        registrar,
        limits: Limits {
            head_within: Duration::from_secs(args.head_timeout),
            body_within: Duration::from_secs(args.body_timeout),
            ..Limits::default()
        },
        operator: config.tenant.clone(),
        backups,
        metrics: Some(metrics.clone()),
        stopping: stopping.1,
        store_present: Arc::new(move || is_present(&present)),
        store_risks: Arc::new(move || risky.risks()),
    });
    let listener = TcpListener::bind(args.listen).await.map_err(|error| {
        let message = format!("--listen {}: {error}; take another port, or 0 for a free one", args.listen);
        Refused { exit: Exit::Broken, code: "listen_refused", message, detail: None }
    })?;
    let address = listener.local_addr().context("the listener has an address")?;
    let guard = Guard { hosts: Hosts(args.host.clone()), access };
    let signals = Signals::new()?;
    let recovering = runtime.recover_forever(RECOVER_EVERY);
    let pruning = tokio::spawn(prune_forever(runtime.clone()));
    let tidying = tokio::spawn(upkeep(metrics.clone()));
    let sealer = Arc::new(Sealer { keyring: keys::keyring(global), log: Log::new(&runtime) });
    let sealing = tokio::spawn(seal_forever(sealer.clone()));
    announce(global, address, &config, registered);
    let limits = app.limits.clone();
    let grace = Duration::from_secs(args.grace);
    // Before anybody can see that it stops.
    let stop = async {
        let told = signals.first("finishing what is under way; a second signal quits at once").await;
        runtime.begin_no_steps();
        told
    };
    let serving = counterfoil_server::serve::serve(listener, Arc::new(Api::new(app, guard)), &limits, stop, stopping.0, grace);
    // A step that is cut off would be a doubt: runs come to rest between steps, and whoever works on them next goes on from there.
    let resting = async {
        drop(stopped.wait_for(|stopped| *stopped).await);
        tokio::time::timeout(grace, runtime.rest_runs()).await.is_ok()
    };
    let (finished, rested) = tokio::join!(serving, resting);
    recovering.abort();
    pruning.abort();
    tidying.abort();
    sealing.abort();
    // What was done until now is under a head; where that cannot be, the next process does it.
    drop(tokio::time::timeout(SEAL_WITHIN, sealer.seal()).await);
    if !finished {
        output::note(format_args!("some calls were still under way after {} s: the ledger knows them", args.grace));
    }
    if !rested {
        output::note(format_args!("some steps of runs were still under way after {} s: the ledger knows them", args.grace));
    }
    if !runtime.reports_in(REPORTS_WAIT).await {
        output::note("some outcomes could not be recorded: their effects are in doubt");
    }
    Ok(Exit::Done)
}

fn announce(global: &Global, address: std::net::SocketAddr, config: &Config, registered: usize) {
    let tools = config.tools.len() + registered;
    match global.json {
        true => output::json(&json!({ "listening": format!("http://{address}"), "pid": std::process::id(), "tools": tools })),
        false => output::data(format_args!("listening on http://{address} with {tools} tools; Ctrl-C to stop")),
    }
}

/// With tokens, only who has one; without any, everyone who can reach the loopback address.
async fn access(args: &ServeArgs, tenant: &Tenant, runtime: &Runtime) -> anyhow::Result<Access> {
    let tokens = Arc::new(Tokens::new(runtime));
    if tokens.any_exist().await? {
        return Ok(Access::new(runtime, tokens, None));
    }
    if !args.listen.ip().is_loopback() {
        let message = format!(
            "--listen {}: without any token only loopback addresses are served, e.g. 127.0.0.1:7700; `counterfoil tokens create` makes one",
            args.listen
        );
        return Err(Refused::usage("listen_refused", message));
    }
    Ok(local(tenant, runtime))
}

/// Whoever reaches it may do everything, as long as there is no token.
pub fn local(tenant: &Tenant, runtime: &Runtime) -> Access {
    let who = Who { tenant: tenant.clone(), caller: Caller::new("local").expect("a plain word"), rights: Rights::up_to(Right::Admin) };
    Access::new(runtime, Arc::new(Tokens::new(runtime)), Some(who))
}

/// `counterfoil.db` → `counterfoil.db-backups/`.
fn beside(ledger: &Path, suffix: &str) -> PathBuf {
    let mut name = ledger.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// What is counted and never asked for must not grow.
async fn upkeep(metrics: PrometheusHandle) {
    loop {
        tokio::time::sleep(UPKEEP_EVERY).await;
        metrics.run_upkeep();
    }
}

fn is_present(kind: &Kind) -> Result<(), String> {
    match kind {
        Kind::Sqlite(sqlite) if !sqlite.path().exists() => Err(format!("the ledger {} is gone", sqlite.path().display())),
        _ => Ok(()),
    }
}

async fn prune_forever(runtime: Runtime) {
    loop {
        tokio::time::sleep(PRUNE_EVERY).await;
        loop {
            match runtime.prune(PRUNE_SLICE).await {
                Ok(pruned) if pruned.more => tokio::task::yield_now().await,
                Ok(_) => break,
                Err(error) => {
                    tracing::error!(%error, "what has expired could not be dropped");
                    break;
                }
            }
        }
    }
}

/// Puts receipts under signed heads. Nobody waits for it.
struct Sealer {
    keyring: Keyring,
    log: Log,
}

impl Sealer {
    async fn seal(&self) -> Result<(), KeyringError> {
        // A key is made for something to sign, not before.
        if self.log.is_behind().await? {
            // Read each time: it may have been rotated.
            let secret = keys::ready(&self.keyring, &self.log).await?.secret;
            self.log.seal(&secret).await?;
        }
        Ok(())
    }
}

async fn seal_forever(sealer: Arc<Sealer>) {
    // Said once for each reason: it is tried again for as long as this process lives.
    let mut told = String::new();
    loop {
        tokio::time::sleep(SEAL_EVERY).await;
        match sealer.seal().await {
            Ok(()) => told.clear(),
            Err(error) if error.to_string() != told => {
                tracing::warn!(%error, code = error.code(), "receipts could not be put under a signed head");
                told = error.to_string();
            }
            Err(_) => {}
        }
    }
}

/// Tools that are registered over HTTP: they may connect to what the config allows, and to nothing else of this machine.
fn maker(allowed: Arc<Egress>) -> Maker {
    let egress = Arc::new(Egress { strict: true, ..(*allowed).clone() });
    Arc::new(move |name: &ToolName, spec: &str| {
        let mistake = |message: String| json!([{ "path": format!("tools.{name}"), "message": message }]);
        let text = format!("{{\"tools\":{{{}:{spec}}}}}", Value::from(name.as_str()));
        let config = Config::parse(&text, "the request", &Environment::default())
            .map_err(|errors| serde_json::to_value(&errors).map_or(Value::Null, |shown| shown["mistakes"].clone()))?;
        let Some(spec) = config.tools.into_iter().next() else { return Err(mistake("there is no tool in it".into())) };
        if runs_here(&spec) {
            return Err(mistake(
                "commands and files belong into the config: only tools that send HTTP requests, or that clients run, can be registered"
                    .into(),
            ));
        }
        if spec.mode.is_some() {
            return Err(mistake("`mode` is the operator's word: it belongs into the config, or is switched at /v1/admin/mode".into()));
        }
        compose::registered(&spec.confined(&egress)).map_err(|error| mistake(error.to_string()))
    })
}

/// Whether it touches this machine itself.
fn runs_here(spec: &ToolSpec) -> bool {
    let command = |ask: Option<&Ask>| matches!(ask, Some(Ask::Command(_)));
    !matches!(spec.action, Action::Http(_) | Action::Client)
        || command(spec.probe.as_ref().map(|probe| &probe.ask))
        || spec.verify.as_ref().is_some_and(|verify| !matches!(verify.look, Look::Http(_)))
}
