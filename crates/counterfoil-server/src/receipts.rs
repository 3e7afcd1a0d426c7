//! `/v1/receipts` and `/v1/log`: receipts, the proof that one is in the log, and the log's newest head. Looks only: nothing here is sealed or signed.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use counterfoil_core::ids::{CallKey, Digest32};
use counterfoil_core::receipt::ReceiptId;
use counterfoil_core::summary::StreamKind;
use counterfoil_core::token::Right;
use counterfoil_core::{EffectKey, Receipt, RunId, Tenant, ToolName};
use counterfoil_runtime::log::find::{Placed, effect_of_key, placed};
use counterfoil_runtime::{Log, LogError};
use counterfoil_store::Position;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::ask::{Look, NoQuery, Segment};
use crate::effects::paged;
use crate::problem::Problem;

/// Records looked at for one page of everything. A page may be short, or empty, and yet not be the last.
const LOOKED_AT_MAX: usize = 5_000;
const PAGE: usize = 500;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListQuery {
    run: Option<String>,
    effect: Option<String>,
    /// A key of the caller's, with the tool that it was given to.
    key: Option<String>,
    tool: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// Which receipts are asked for.
struct Of {
    run: Option<RunId>,
    effect: Option<EffectKey>,
}

fn wrong(field: &str, why: impl std::fmt::Display) -> Problem {
    Problem::bad("invalid_query", format!("{field}: {why}"))
}

impl Of {
    fn asked(run: Option<&str>, effect: Option<&str>) -> Result<Self, Problem> {
        Ok(Self {
            run: run.map(RunId::new).transpose().map_err(|error| wrong("run", error))?,
            effect: effect.map(str::parse).transpose().map_err(|error| wrong("effect", error))?,
        })
    }
}

pub async fn list(State(app): State<Arc<App>>, look: Look<ListQuery>) -> Result<Json<Value>, Problem> {
    look.who.must(Right::Call)?;
    let (tenant, query) = (&look.who.tenant, &look.query);
    let mut of = Of::asked(query.run.as_deref(), query.effect.as_deref())?;
    match (&query.key, &query.tool) {
        (None, None) => {}
        (Some(_), Some(_)) if of.effect.is_some() => return Err(wrong("key", "it goes with `tool`, and not with `effect`")),
        (Some(key), Some(tool)) => {
            let key = CallKey::new(key).map_err(|error| wrong("key", error))?;
            let tool = ToolName::new(tool).map_err(|error| wrong("tool", error))?;
            of.effect = Some(effect_of_key(tenant, &tool, &key));
        }
        _ => return Err(wrong("key", "`key` and `tool` go together: a key means something to one tool")),
    }
    let (limit, _) = paged(query.limit, None)?;
    let from = query.cursor.as_deref().map_or(Ok(Cursor::default()), Cursor::parse)?;
    let log = Log::new(&app.runtime);
    let of_one = match &of {
        Of { run, effect: Some(effect) } => Some(log.of_effect(tenant, *effect, run.as_ref()).await?),
        Of { run: Some(run), effect: None } => Some(log.of_run(tenant, run).await?),
        Of { run: None, effect: None } => None,
    };
    let (receipts, next) = match of_one {
        Some(all) => from.page_of(all, limit),
        None => from.page_of_everything(&app, tenant, limit).await?,
    };
    Ok(Json(json!({ "receipts": receipts, "next": next.map(|next| next.to_string()) })))
}

/// Behind which receipt a page begins: the position of its record, and how many of those in it are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Cursor {
    position: u64,
    known: usize,
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.position, self.known)
    }
}

impl Cursor {
    fn parse(text: &str) -> Result<Self, Problem> {
        let number = |digits: &str| digits.parse::<u64>().ok().filter(|number| i64::try_from(*number).is_ok());
        let parsed = text
            .split_once('.')
            .and_then(|(position, known)| Some(Self { position: number(position)?, known: usize::try_from(number(known)?).ok()? }));
        parsed.ok_or_else(|| wrong("cursor", format!("{text:?} is not the `next` of a page")))
    }

    fn behind(placed: &Placed) -> Self {
        Self { position: placed.position.0, known: placed.index + 1 }
    }

    fn is_behind(&self, placed: &Placed) -> bool {
        Self::behind(placed) > *self
    }

    /// Of a list that is short, and at hand.
    fn page_of(self, all: Vec<Placed>, limit: usize) -> (Vec<Receipt>, Option<Self>) {
        let mut rest = all.into_iter().filter(|placed| self.is_behind(placed));
        let page: Vec<Placed> = rest.by_ref().take(limit).collect();
        let next = page.last().map(Self::behind).filter(|_| rest.next().is_some());
        (page.into_iter().map(|placed| placed.receipt).collect(), next)
    }

    /// Of all that the tenant has, in the order of the ledger.
    async fn page_of_everything(self, app: &App, tenant: &Tenant, limit: usize) -> Result<(Vec<Receipt>, Option<Self>), Problem> {
        let mut found = Vec::new();
        // The record that it stands in is read again, for what is left of it.
        let (mut after, mut looked) = (Position(self.position.saturating_sub(1)), 0);
        while looked < LOOKED_AT_MAX {
            let page = app.runtime.ledger().tail(after, PAGE).await?;
            let Some(last) = page.last() else { return Ok((found, None)) };
            after = last.record.position;
            looked += page.len();
            for recorded in page.iter().filter(|r| r.summary.kind == StreamKind::Chain && r.summary.tenant == *tenant) {
                for placed in placed(recorded.stream, &recorded.record)?.into_iter().filter(|placed| self.is_behind(placed)) {
                    let behind = Self::behind(&placed);
                    found.push(placed.receipt);
                    if found.len() == limit {
                        return Ok((found, Some(behind)));
                    }
                }
            }
        }
        Ok((found, Some(Self { position: after.0 + 1, known: 0 })))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneQuery {
    /// What it is a receipt of, by which it is found at once.
    effect: Option<String>,
    run: Option<String>,
}

/// A receipt of the asker's tenant. Another tenant's is not found, like one that never was.
async fn one(log: &Log, segment: &Segment, look: &Look<OneQuery>) -> Result<Placed, Problem> {
    look.who.must(Right::Call)?;
    let tenant = &look.who.tenant;
    let id = ReceiptId(segment.0.parse().map_err(|error| Problem::bad("invalid_key", format!("{error}: a receipt is named by its id")))?);
    let of = Of::asked(look.query.run.as_deref(), look.query.effect.as_deref())?;
    let among = match (&of.run, of.effect) {
        (None, None) => return Ok(log.by_id(tenant, id).await?),
        (run, Some(effect)) => log.of_effect(tenant, effect, run.as_ref()).await?,
        (Some(run), None) => log.of_run(tenant, run).await?,
    };
    among.into_iter().find(|placed| placed.receipt.id == id).ok_or_else(|| LogError::NoReceipt(id).into())
}

pub async fn get(State(app): State<Arc<App>>, segment: Segment, look: Look<OneQuery>) -> Result<Json<Value>, Problem> {
    let log = Log::new(&app.runtime);
    let placed = one(&log, &segment, &look).await?;
    let leaf = match log.prove(&placed).await {
        Ok(proof) => Some(proof.leaf),
        Err(LogError::NotSealed { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    Ok(Json(json!({ "receipt": placed.receipt, "hash": Digest32::of(placed.text.as_bytes()), "leaf": leaf })))
}

pub async fn proof(State(app): State<Arc<App>>, segment: Segment, look: Look<OneQuery>) -> Result<Json<Value>, Problem> {
    let log = Log::new(&app.runtime);
    let placed = one(&log, &segment, &look).await?;
    Ok(Json(json!(log.prove(&placed).await?)))
}

/// `GET /v1/log/head`: the newest signed head. It is of all tenants' receipts, and says nothing of them but how many they are.
pub async fn head(State(app): State<Arc<App>>, look: Look<NoQuery>) -> Result<Json<Value>, Problem> {
    look.who.must(Right::Call)?;
    let newest = Log::new(&app.runtime).newest_head().await?;
    let newest = newest.ok_or_else(|| Problem::not_found("not_found", "there is no head yet: the first receipts have not been sealed"))?;
    Ok(Json(json!({ "number": newest.number, "head": newest.head })))
}
