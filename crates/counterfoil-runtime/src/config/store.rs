//! `store`: which ledger, as a url.
//!
//! Only its shape is checked; whether it can be reached is for whoever opens it. The url may hold a password, so no message
//! and no `Debug` shows it.

use super::context::Context;
use super::read::Spot;
use super::suggest::nearest;

pub const DEFAULT: &str = "sqlite:counterfoil.db";

const SERVERS: [&str; 4] = ["postgres://", "postgresql://", "redis://", "rediss://"];

/// The url, with the path of an embedded ledger beside the config file.
pub fn read(spot: &Spot<'_>, context: &Context<'_>) -> Option<String> {
    let url = context.fixed(spot)?;
    if let Some(path) = url.strip_prefix("sqlite:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() {
            spot.wrong("which file? write sqlite:counterfoil.db");
            return None;
        }
        return Some(beside(path, context));
    }
    if url == "memory:" || SERVERS.iter().any(|scheme| url.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty())) {
        return Some(url);
    }
    // The url itself is not shown: it may hold a password.
    let mistake = spot.mistake("not the url of a store").allowed(["sqlite:FILE", "postgres://…", "redis://…", "memory:"]);
    let scheme = url.split(':').next().unwrap_or_default();
    let meant = match nearest(scheme, ["sqlite", "postgres", "postgresql", "redis", "rediss", "memory"]) {
        Some("sqlite") => Some(DEFAULT.to_owned()),
        Some("memory") => Some("memory:".to_owned()),
        Some(name) => Some(format!("{name}://…")),
        None => None,
    };
    spot.report.add(mistake.suggest(meant));
    None
}

pub fn beside(path: &str, context: &Context<'_>) -> String {
    match path {
        ":memory:" => format!("sqlite:{path}"),
        _ => format!("sqlite:{}", context.beside(path).display()),
    }
}

/// A url that may be shown: without the password.
pub fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    match authority.rfind('@') {
        Some(at) => format!("{scheme}://…{}", &rest[at..]),
        None => url.to_owned(),
    }
}
