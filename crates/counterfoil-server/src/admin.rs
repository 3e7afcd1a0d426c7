//! `/v1/admin`: freeing keys, dropping what has expired, copying the ledger, switching modes.
//!
//! What concerns one tenant needs the right `admin`; what concerns the whole ledger (prune, backup, modes) also needs to be the operator's own tenant,
//! the one of the config.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use counterfoil_core::ToolName;
use counterfoil_core::mode::Mode;
use counterfoil_core::request::Stored;
use counterfoil_core::token::Right;
use counterfoil_runtime::ledger::LedgerError;
use counterfoil_runtime::{InForce, ModeError, Switch, shown};
use counterfoil_store::StoreError;
use counterfoil_store::sqlite::{BackupError, Sqlite};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::{App, undropped};
use crate::ask::{Ask, Look, NoQuery, Segment};
use crate::effects::changed;
use crate::problem::{Problem, in_flight};
use crate::requests::{Turn, json_stored, respond};
use crate::who::Who;

/// Effects flushed, or streams pruned, in one slice.
const SLICE: usize = 500;
const BACKUP_NAME_MAX: usize = 100;

impl App {
    /// The whole ledger is the operator's business, and no tenant's.
    fn must_be_operator(&self, who: &Who) -> Result<(), Problem> {
        who.must(Right::Admin)?;
        if who.tenant == self.operator {
            return Ok(());
        }
        let detail =
            format!("this concerns the whole ledger: it needs an admin token of the tenant {}; nothing was changed", self.operator);
        Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail))
    }

    /// Work that is safe to do again, answered once: the answer is kept when it is done.
    async fn repeatable<F>(self: &Arc<Self>, ask: &Ask, work: impl FnOnce() -> F) -> Result<Response, Problem>
    where
        F: Future<Output = Result<Stored, Problem>>,
    {
        let Some(asked) = ask.asked() else { return Ok(respond(work().await?, false)) };
        let _active = self.requests.begin(&asked).ok_or_else(in_flight)?;
        let asked = match self.requests.look(asked).await? {
            Turn::Replay(stored) => return Ok(respond(stored, true)),
            Turn::Go(asked) | Turn::GoOn(asked) => asked,
        };
        let stored = work().await?;
        if self.requests.store(&asked, &stored).await? {
            return Ok(respond(stored, false));
        }
        self.unless_answered(ask, in_flight()).await
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FlushBody {
    /// One effect, by its 64 digits.
    key: Option<String>,
    /// All finished effects of a tool.
    tool: Option<String>,
    #[serde(default)]
    confirm: bool,
    why: Option<String>,
}

pub async fn flush(State(app): State<Arc<App>>, ask: Ask) -> Result<Response, Problem> {
    ask.who.must(Right::Admin)?;
    let body: FlushBody = ask.json()?;
    match (body.key, body.tool) {
        (Some(key), None) => {
            let key = Segment(key).effect()?;
            let operator = app.operator(&ask.who, body.why);
            undropped(async move {
                let act = |operator| {
                    let (app, who) = (app.clone(), ask.who.clone());
                    async move {
                        app.effect(&who, key).await?;
                        app.runtime.flush(key, &operator).await
                    }
                };
                app.change(&ask, operator, act, changed).await
            })
            .await
        }
        (None, Some(tool)) => {
            let tool = Segment(tool).tool()?;
            flush_tool(app, ask, tool, body.confirm, body.why).await
        }
        _ => Err(Problem::bad("invalid_body", "name one effect (`key`) or one tool (`tool`); nothing was changed")),
    }
}

async fn flush_tool(app: Arc<App>, ask: Ask, tool: ToolName, confirm: bool, why: Option<String>) -> Result<Response, Problem> {
    if !confirm {
        let found = app.runtime.flushable(&ask.who.tenant, &tool).await?;
        let detail =
            format!("{} finished effects of {tool} would be flushed: send `\"confirm\": true`; nothing was changed", found.flushed);
        return Err(Problem::conflict("confirmation_needed", detail).with("would_flush", json!(found.flushed)));
    }
    let operator = app.operator(&ask.who, why);
    undropped(async move {
        let work = || async {
            let (mut flushed, mut skipped) = (0, 0);
            loop {
                let slice = app.runtime.flush_tool(&ask.who.tenant, &tool, &operator, SLICE).await?;
                flushed += slice.flushed;
                skipped = slice.skipped.max(skipped);
                if !slice.more || slice.flushed == 0 {
                    return Ok(json_stored(StatusCode::OK, &json!({ "tool": tool, "flushed": flushed, "skipped": skipped })));
                }
            }
        };
        app.repeatable(&ask, work).await
    })
    .await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Empty {}

pub async fn prune(State(app): State<Arc<App>>, ask: Ask) -> Result<Response, Problem> {
    app.must_be_operator(&ask.who)?;
    let Empty {} = ask.json()?;
    undropped(async move {
        let work = || async {
            let mut pruned = 0;
            loop {
                let slice = app.runtime.prune(SLICE).await?;
                pruned += slice.streams;
                if !slice.more {
                    return Ok(json_stored(StatusCode::OK, &json!({ "pruned": pruned })));
                }
            }
        };
        app.repeatable(&ask, work).await
    })
    .await
}

/// Where copies of the ledger go, and what makes them.
pub struct Backups {
    pub sqlite: Arc<Sqlite>,
    pub dir: PathBuf,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BackupBody {
    /// A file in the folder of backups beside the ledger.
    name: String,
}

pub async fn backup(State(app): State<Arc<App>>, ask: Ask) -> Result<Response, Problem> {
    app.must_be_operator(&ask.who)?;
    let body: BackupBody = ask.json()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if body.name.is_empty() || body.name.len() > BACKUP_NAME_MAX || body.name.starts_with(['.', '-']) || !body.name.chars().all(plain) {
        let detail = format!("`name` {:?}: a plain file name, letters, digits, '.', '_' and '-' only; nothing was copied", body.name);
        return Err(Problem::bad("invalid_name", detail));
    }
    if app.backups.is_none() {
        return Err(Problem::conflict("backup_unsupported", "this ledger is not a file of this program; nothing was copied"));
    }
    undropped(async move {
        let work = || async {
            let copying = app.clone();
            let made = tokio::task::spawn_blocking(move || {
                let backups = copying.backups.as_ref().expect("checked above");
                let target = |error: std::io::Error| BackupError::Target { path: backups.dir.clone(), message: error.to_string() };
                std::fs::create_dir_all(&backups.dir).map_err(target)?;
                let file = backups.dir.join(&body.name);
                backups.sqlite.backup(&file, |_| {}).map(|done| (file, done))
            });
            let (file, done) = made.await.map_err(|_| backup_problem("the copy was not finished".into()))?.map_err(backup_refused)?;
            let took = u64::try_from(done.took.as_millis()).unwrap_or(u64::MAX);
            let shown = json!({ "file": file.display().to_string(), "bytes": done.bytes, "records": done.records, "duration_ms": took });
            Ok(json_stored(StatusCode::CREATED, &shown))
        };
        app.repeatable(&ask, work).await
    })
    .await
}

fn backup_problem(detail: String) -> Problem {
    Problem::new(StatusCode::INSUFFICIENT_STORAGE, "backup_failed", detail)
}

fn backup_refused(error: BackupError) -> Problem {
    match error {
        BackupError::Exists { .. } => Problem::conflict("backup_exists", error.to_string()),
        BackupError::Target { .. } | BackupError::Unsound { .. } => backup_problem(error.to_string()),
        BackupError::Store(error @ (StoreError::Corrupt { .. } | StoreError::Unavailable { .. })) => LedgerError::from(error).into(),
    }
}

pub async fn modes(State(app): State<Arc<App>>, look: Look<NoQuery>) -> Result<Json<Value>, Problem> {
    look.who.must(Right::Call)?;
    let modes: Vec<Value> = app.runtime.modes().await?.iter().map(mode_shown).collect();
    let shadowed = app.runtime.shadowed();
    let counted = json!({ "replayed": shadowed.replayed, "refused": shadowed.refused, "held": shadowed.held });
    Ok(Json(json!({ "modes": modes, "shadowed": counted })))
}

fn mode_shown(one: &InForce) -> Value {
    let switched = one.switched.as_ref();
    json!({
        "tool": one.tool, "mode": one.mode.word(), "switched": switched.map(|s| shown::time(s.at)),
        "by": switched.map(|s| &s.by), "why": switched.map(|s| &s.why),
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModeBody {
    mode: ModeWord,
    tool: Option<String>,
    #[serde(default)]
    i_accept_duplicates: bool,
    why: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ModeWord {
    Enforce,
    Shadow,
    Off,
}

pub async fn set_mode(State(app): State<Arc<App>>, ask: Ask) -> Result<Response, Problem> {
    app.must_be_operator(&ask.who)?;
    let body: ModeBody = ask.json()?;
    let mode = match body.mode {
        ModeWord::Enforce => Mode::Enforce,
        ModeWord::Shadow => Mode::Shadow,
        ModeWord::Off => Mode::Off,
    };
    let tool = body.tool.map(|tool| Segment(tool).tool()).transpose()?;
    switch(app, ask, Switch { tool, mode: Some(mode), accept_duplicates: body.i_accept_duplicates }, body.why).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResetQuery {
    tool: Option<String>,
    why: Option<String>,
}

/// Back to what the config says.
pub async fn reset_mode(State(app): State<Arc<App>>, ask: Ask) -> Result<Response, Problem> {
    app.must_be_operator(&ask.who)?;
    let query: ResetQuery = ask.query()?;
    let tool = query.tool.map(|tool| Segment(tool).tool()).transpose()?;
    switch(app, ask, Switch { tool, ..Switch::default() }, query.why).await
}

async fn switch(app: Arc<App>, ask: Ask, switch: Switch, why: Option<String>) -> Result<Response, Problem> {
    let operator = app.operator(&ask.who, why);
    undropped(async move {
        let stored = || {
            let mode = switch.mode.map(Mode::word);
            json_stored(StatusCode::OK, &json!({ "tool": switch.tool, "mode": mode, "by": operator.by, "why": operator.why }))
        };
        let asked = ask.asked();
        let _active = asked.as_ref().map(|asked| app.requests.begin(asked).ok_or_else(in_flight)).transpose()?;
        loop {
            let mut operator = operator.clone();
            if let Some(asked) = &asked {
                let asked = match app.requests.look(asked.clone()).await? {
                    Turn::Replay(stored) => return Ok(respond(stored, true)),
                    Turn::Go(asked) | Turn::GoOn(asked) => asked,
                };
                let write = app.requests.answered(&asked, &stored());
                operator = operator.beside(move |_| vec![write.clone()]);
            }
            match app.runtime.switch_mode(switch.clone(), &operator).await {
                Ok(_) => return Ok(respond(stored(), false)),
                Err(ModeError::Ledger(LedgerError::Conflict | LedgerError::BesideTaken { .. })) => continue,
                Err(error @ ModeError::NotAccepted) => return Err(Problem::conflict("duplicates_not_accepted", error.to_string())),
                Err(error @ ModeError::UnknownTool(_)) => return Err(Problem::not_found("unknown_tool", error.to_string())),
                Err(ModeError::Ledger(error)) => return Err(error.into()),
            }
        }
    })
    .await
}
