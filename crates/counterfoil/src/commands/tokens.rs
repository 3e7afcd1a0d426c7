//! `counterfoil tokens`: create, list, revoke. The one place where a secret is printed, once, is `create`.

use std::time::Duration;

use anyhow::Context;
use counterfoil_core::ids::{Kind, Name};
use counterfoil_core::policy::Rate;
use counterfoil_core::token::{Change, Rights, Token};
use counterfoil_core::{Timestamp, token};
use counterfoil_runtime::config::units::{self, Unreadable, shown};
use counterfoil_runtime::{NewToken, TokenError, Tokens};

use counterfoil_runtime::shown::time;

use super::effects::operator;
use super::house::House;
use crate::cli::{CreateTokenArgs, Global, TokensArgs, TokensCommand, WhoArgs};
use crate::output::{self, Exit, Refused};

pub async fn run(global: &Global, args: &TokensArgs) -> anyhow::Result<Exit> {
    match &args.command {
        TokensCommand::Create(args) => create(global, args).await,
        TokensCommand::List => list(global).await,
        TokensCommand::Revoke { id, who } => revoke(global, id, who).await,
    }
}

async fn create(global: &Global, args: &CreateTokenArgs) -> anyhow::Result<Exit> {
    // What was typed is checked before the ledger is even opened: a mistake leaves no trace.
    let tenant = args.tenant.as_deref().map(|t| name("--tenant", t)).transpose()?;
    let caller = name("--caller", &args.caller)?;
    let rights: Rights =
        args.rights.parse().map_err(|e| Refused::usage("invalid_rights", format!("--rights: {e}; nothing was created")))?;
    let label: Option<token::Label> = args.label.as_deref().map(|l| name("--label", l)).transpose()?;
    let lasts = args.expires.as_deref().map(lasts).transpose()?;
    let rate = args.rate.as_deref().map(|r| units::rate(r).map_err(|e| unreadable("invalid_rate", "--rate", e))).transpose()?;
    let house = House::open(global).await?;
    let new = NewToken {
        tenant: tenant.unwrap_or_else(|| house.config.tenant.clone()),
        caller,
        rights,
        label,
        expires: lasts.map(|lasts| house.runtime.now() + lasts),
        rate,
    };
    let created = Tokens::new(&house.runtime).create(new, &operator(&args.who)).await;
    let (token, secret) = created.context("no token was made that anyone could use: its secret was shown to nobody")?;
    if global.json {
        let mut item = item(&token, house.runtime.now());
        item["secret"] = secret.reveal().into();
        output::json(&item);
        return Ok(Exit::Done);
    }
    output::data(secret.reveal());
    output::note("this is the only time it is shown: the ledger keeps no more than a digest of it");
    output::note(format_args!("  id      {}", token.id));
    output::note(format_args!("  allows  {} as {} of {}", token.rights, token.caller, token.tenant));
    if let Some(at) = token.expires {
        output::note(format_args!("  until   {}", time(at)));
    }
    Ok(Exit::Done)
}

async fn list(global: &Global) -> anyhow::Result<Exit> {
    let house = House::standing(global).await?;
    let tokens = Tokens::new(&house.runtime).list().await?;
    let now = house.runtime.now();
    if global.json {
        output::json(&tokens.iter().map(|token| item(token, now)).collect::<Vec<_>>());
        return Ok(Exit::Done);
    }
    if tokens.is_empty() {
        output::note("no tokens");
        return Ok(Exit::Done);
    }
    let mut table = output::table(&["id", "state", "tenant", "caller", "rights", "rate", "created", "by", "expires", "label"]);
    for token in &tokens {
        table.add_row([
            token.id.to_string(),
            token.state(now).to_owned(),
            token.tenant.to_string(),
            token.caller.to_string(),
            token.rights.to_string(),
            token.rate.map(rate_text).unwrap_or_default(),
            time(token.created.at),
            token.created.by.clone(),
            token.expires.map(time).unwrap_or_default(),
            token.label.as_ref().map(ToString::to_string).unwrap_or_default(),
        ]);
    }
    output::print_table(&table);
    Ok(Exit::Done)
}

async fn revoke(global: &Global, id: &str, who: &WhoArgs) -> anyhow::Result<Exit> {
    let house = House::standing(global).await?;
    let token = Tokens::new(&house.runtime).revoke(id, &operator(who)).await.map_err(refused)?;
    match (global.json, &token.revoked) {
        (true, _) => output::json(&item(&token, house.runtime.now())),
        (false, Some(Change { at, by, .. })) => output::note(format_args!("{} was revoked by {by} at {}", token.id, time(*at))),
        (false, None) => unreachable!("what was revoked says so"),
    }
    Ok(Exit::Done)
}

fn refused(error: TokenError) -> anyhow::Error {
    let message = format!("{error}; nothing was revoked");
    match error {
        TokenError::NotAnId => Refused::usage("invalid_key", message),
        TokenError::NotFound { .. } => Refused::refused("not_found", message),
        TokenError::Ambiguous { .. } => Refused::refused("ambiguous_key", message),
        TokenError::Ledger(error) => anyhow::Error::from(error).context("the token may or may not be revoked: run this again"),
    }
}

fn name<K: Kind>(flag: &str, text: &str) -> anyhow::Result<Name<K>> {
    Name::new(text).map_err(|e| Refused::usage("invalid_name", format!("{flag}: {e}; nothing was created")))
}

fn lasts(text: &str) -> anyhow::Result<Duration> {
    let lasts = units::duration(text).map_err(|e| unreadable("invalid_age", "--expires", e))?;
    if lasts.is_zero() {
        return Err(Refused::usage("invalid_age", format!("--expires {text}: it would never be let in; nothing was created")));
    }
    Ok(lasts)
}

fn unreadable(code: &'static str, flag: &str, error: Unreadable) -> anyhow::Error {
    let meant = error.suggestion.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
    Refused::usage(code, format!("{flag}: {}{meant}; nothing was created", error.why))
}

/// `100/s`, as it is typed.
fn rate_text(rate: Rate) -> String {
    let per = shown(rate.per);
    format!("{}/{}", rate.count, per.strip_prefix('1').filter(|unit| !unit.starts_with(|c: char| c.is_ascii_digit())).unwrap_or(&per))
}

fn item(token: &Token, now: Timestamp) -> serde_json::Value {
    let change = |change: &Change| serde_json::json!({ "at": time(change.at), "by": change.by, "why": change.why });
    serde_json::json!({
        "id": token.id, "state": token.state(now), "tenant": token.tenant, "caller": token.caller, "rights": token.rights,
        "label": token.label, "rate": token.rate.map(rate_text), "created": change(&token.created),
        "expires": token.expires.map(time), "revoked": token.revoked.as_ref().map(change),
    })
}
