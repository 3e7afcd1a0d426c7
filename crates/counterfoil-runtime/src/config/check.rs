//! What only shows when all tools are known: undo tools that exist, can undo, and get the arguments they need; names that are taken.
//!
//! A tool that could not be read still has a name, so that one mistake does not make a second out of every undo that
//! points to it.

use counterfoil_core::policy::{ArgPath, EffectClass};
use serde_json::Value as Json;

use super::mistake::Mistake;
use super::node::Value;
use super::read::Spot;
use super::schema::{Known, knows};
use super::suggest::nearest;
use crate::spec::{Action, ToolSpec};

/// `written` are all tools of the file, `tools` those of them that could be read.
pub fn undos(written: &[(&str, Spot<'_>)], tools: &[ToolSpec]) {
    let names = || written.iter().map(|(name, _)| *name);
    for (_, spot) in written {
        let Some(undo) = spot.node.get("undo") else { continue };
        let Some(target_node) = undo.get("tool") else { continue };
        let Some(target) = target_node.as_str() else { continue };
        let place = |node, path: &str| Spot { node, path: format!("{}.{path}", spot.path), ..spot.clone() };
        let at = place(target_node, "undo.tool");
        if !names().any(|name| name == target) {
            let mistake = at.mistake(format!("there is no tool {target:?}")).allowed(names());
            spot.report.add(mistake.suggest(nearest(target, names())));
            continue;
        }
        let Some(tool) = tools.iter().find(|tool| tool.name.as_str() == target) else { continue };
        if tool.policy.effect != EffectClass::Write {
            at.wrong(format!("{target} is not an effect: write tool; what changes nothing undoes nothing"));
        }
        if let Action::Client = tool.action {
            at.wrong(format!("{target} is run by clients, and an undo is run here; name a tool of another kind"));
        }
        if let (Some(args), Some(input)) = (undo.get("args"), &tool.input) {
            arguments(&place(args, "undo.args"), target, input);
        }
    }
}

/// A file tool brings along what undoes it, under a name of its own.
pub fn companions(written: &[(&str, Spot<'_>)]) {
    for (name, spot) in written {
        let undone = name.strip_suffix(".undo").and_then(|name| written.iter().find(|(other, _)| *other == name));
        if let Some((undone, _)) = undone.filter(|(_, other)| other.node.get("file").is_some()) {
            spot.wrong_whole(format!("this name is taken by what undoes the file tool {undone}; choose another"));
        }
    }
}

/// Compares the names of the arguments; their values are known only once the effect is done.
fn arguments(args: &Spot<'_>, target: &str, input: &Json) {
    let Value::Map(entries) = &args.node.value else { return };
    for name in input.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str) {
        if args.node.get(name).is_none() {
            args.wrong(format!("{target} requires the argument {name:?}"));
        }
    }
    for (key, _) in entries {
        let path = ArgPath(vec![key.text.clone()]);
        if let Known::No { members, .. } = knows(input, &path) {
            let path = format!("{}.{}", args.path, key.text);
            let mistake = Mistake::new(key.place, &path, format!("{target} has no argument {:?}", key.text));
            args.report.add(mistake.suggest(nearest(&key.text, members.iter().copied())).allowed(members));
        }
    }
}
