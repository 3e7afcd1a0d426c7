//! The top level of the file.
//!
//! Read in the order of what depends on what: the named variables and the allowed hosts first, since tools use both; then
//! the tools; then what only shows when all of them are known. Switching protection off takes two signs, wherever the first comes from.

use std::sync::Arc;

use counterfoil_core::Tenant;

use super::context::Context;
use super::environment::Environment;
use super::mistake::{Mistake, Place};
use super::node::Value;
use super::read::{Fields, Spot, Stranger};
use super::{Config, MODES, Mode, check, command, store, tool};
use crate::spec::{Egress, ToolSpec};

pub const TOP: &[&str] = &["store", "mode", "i_accept_duplicates", "allow_volatile", "tenant", "env", "egress", "tools"];
pub const EGRESS: &[&str] = &["allow", "allow_private"];

/// Agents choose among tens of tools. Comparing all names with each other must stay cheap.
const TOOLS_MAX: usize = 1000;

/// What older setups switch everything off with.
pub const SWITCH: &str = "TOOL_RELIABILITY_ENABLED";

/// Fills `config` from the file's top map, as far as it can be read.
pub fn read(spot: &Spot<'_>, environment: &Environment, config: &mut Config) {
    let Some(top) = known_fields(spot) else { return };
    let mut context = Context {
        dir: config.path.parent().unwrap_or_else(|| "".as_ref()),
        environment,
        env_names: Vec::new(),
        egress: Arc::default(),
        accepts_duplicates: false,
    };
    top.read("i_accept_duplicates", Spot::bool, &mut context.accepts_duplicates);
    top.read("allow_volatile", Spot::bool, &mut config.allow_volatile);
    top.read("env", |s| env(s, environment), &mut context.env_names);
    top.read("egress", |s| egress(s).map(Arc::new), &mut context.egress);
    let store = match top.get("store") {
        Some(spot) => store::read(&spot, &context),
        None => Some(store::beside("counterfoil.db", &context)),
    };
    let tools = top.get("tools").map(|s| tools(&s, &context)).unwrap_or_default();
    let tenant = top.get("tenant").and_then(|s| {
        let text = context.fixed(&s)?;
        Tenant::new(&text).map_err(|error| s.wrong(error.to_string())).ok()
    });
    let Context { env_names, egress, accepts_duplicates, .. } = context;
    mode(&top, environment, accepts_duplicates, config);
    config.store = store.unwrap_or_default();
    config.tenant = tenant.unwrap_or_else(|| config.tenant.clone());
    config.env = environment.only(&env_names);
    config.egress = egress;
    config.tools = tools;
}

/// Keys that begin with `x-` are the user's own: a place to put anchors.
fn known_fields<'a>(spot: &Spot<'a>) -> Option<Fields<'a>> {
    spot.fields_but(TOP, |key| if key.starts_with("x-") { Stranger::Welcome } else { Stranger::Unknown })
}

fn mode(top: &Fields<'_>, environment: &Environment, accepted: bool, config: &mut Config) {
    top.read("mode", |s| s.choice(MODES), &mut config.mode);
    let place = top.get("mode").map_or(Place::START, |spot| spot.node.place);
    let wrong = |message: String| top.spot.report.add(Mistake::new(place, "mode", message));
    match environment.get(SWITCH).map(|value| value.trim().to_lowercase()).as_deref() {
        None | Some("" | "true" | "1" | "yes" | "on") => {}
        Some("false" | "0" | "no" | "off") => {
            config.mode = Mode::Off;
            if !accepted {
                wrong(format!(
                    "the environment variable {SWITCH} switches protection off; that also needs i_accept_duplicates: true in this file"
                ));
            }
            return;
        }
        Some(other) => wrong(format!("the environment variable {SWITCH} is {other:?}; it may be true or false")),
    }
    if config.mode == Mode::Off && !accepted {
        wrong(
            "off runs tools without any protection; add i_accept_duplicates: true if that is meant, or write mode: shadow to only watch"
                .into(),
        );
    }
}

fn env(spot: &Spot<'_>, environment: &Environment) -> Option<Vec<String>> {
    let names = command::names(spot)?;
    for item in spot.list()? {
        if let Some(name) = item.node.as_str().filter(|name| names.iter().any(|n| n == name) && environment.get(name).is_none()) {
            item.wrong(format!("the environment variable {name} is not set"));
        }
    }
    Some(names)
}

fn egress(spot: &Spot<'_>) -> Option<Egress> {
    let mut egress = Egress::default();
    let fields = spot.fields(EGRESS)?;
    fields.read("allow", hosts, &mut egress.allow);
    fields.read("allow_private", Spot::bool, &mut egress.allow_private);
    Some(egress)
}

fn hosts(spot: &Spot<'_>) -> Option<Vec<String>> {
    let mut hosts = Vec::new();
    for item in spot.list()? {
        let Some(text) = item.text() else { continue };
        let host = text.strip_prefix("*.").unwrap_or(text);
        let plain = url::Host::parse(host).is_ok() && !host.contains('*');
        if plain {
            hosts.push(text.to_ascii_lowercase());
            continue;
        }
        let without_url = text.split("://").last().and_then(|rest| rest.split(['/', '?', '#', ':']).next());
        let meant = without_url.filter(|host| *host != text && url::Host::parse(host).is_ok());
        let mistake = item.mistake(format!("{text:?} is not a host; write api.example.com, or *.example.com for any host below it"));
        item.report.add(mistake.suggest(meant));
    }
    Some(hosts)
}

fn tools(spot: &Spot<'_>, context: &Context<'_>) -> Vec<ToolSpec> {
    // `tools:` with nothing below it is what a file looks like before its first tool.
    if spot.node.value == Value::Null {
        return Vec::new();
    }
    let entries = spot.entries().unwrap_or_default();
    if entries.len() > TOOLS_MAX {
        spot.wrong_whole(format!("{} tools are more than one file may hold; at most {TOOLS_MAX}", entries.len()));
        return Vec::new();
    }
    let tools: Vec<ToolSpec> = entries.iter().filter_map(|(name, spot)| tool::read(&name.text, spot, context)).collect();
    let written: Vec<(&str, Spot<'_>)> = entries.iter().map(|(key, spot)| (key.text.as_str(), spot.clone())).collect();
    check::undos(&written, &tools);
    check::companions(&written);
    tools
}
