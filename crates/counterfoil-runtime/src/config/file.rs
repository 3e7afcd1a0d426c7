//! `file`: one change to one file inside a root.
//!
//! A path that is written so as to leave the root is refused here; one that an expression would lead out is refused by the
//! tool, which alone knows what the expression became.

use super::context::Context;
use super::read::Spot;
use super::sees::Sees;
use crate::spec::{FileChange, FileSpec};
use crate::template::TextTemplate;

pub const FILE: &[&str] = &["root", "write", "delete", "move"];
pub const WRITE: &[&str] = &["path", "content"];
pub const DELETE: &[&str] = &["path"];
pub const MOVE: &[&str] = &["from", "to"];

pub fn read(spot: &Spot<'_>, context: &Context<'_>, sees: Sees) -> Option<FileSpec> {
    let fields = spot.fields(FILE)?;
    let root = fields.require("root").and_then(|s| context.path(&s));
    let change = fields.exactly_one(&["write", "delete", "move"]).and_then(|(kind, spot)| {
        let path = |fields: &super::read::Fields<'_>, name| fields.require(name).and_then(|s| inside(&s, context, sees));
        match kind {
            "write" => {
                let fields = spot.fields(WRITE)?;
                let (path, content) = (path(&fields, "path"), fields.require("content").and_then(|s| context.value(&s, sees)));
                Some(FileChange::Write { path: path?, content: content? })
            }
            "delete" => Some(FileChange::Delete { path: path(&spot.fields(DELETE)?, "path")? }),
            _ => {
                let fields = spot.fields(MOVE)?;
                let (from, to) = (path(&fields, "from"), path(&fields, "to"));
                Some(FileChange::Move { from: from?, to: to? })
            }
        }
    });
    Some(FileSpec { root: root?, change: change? })
}

/// A path below the root. The tool checks what expressions make of it; what is written is checked here.
pub fn inside(spot: &Spot<'_>, context: &Context<'_>, sees: Sees) -> Option<TextTemplate> {
    let text = spot.text()?;
    let template = context.text(spot, sees);
    if text.is_empty() {
        spot.wrong("the path is empty");
        return None;
    }
    let mut parts = text.split(['/', '\\']);
    if text.starts_with('/') || parts.any(|part| part == "..") {
        spot.wrong(format!("{text:?} leads out of the root; paths are relative to root and never contain \"..\""));
        return None;
    }
    if text.starts_with(".counterfoil/") {
        spot.wrong("that folder is ours: overwritten files are kept there");
        return None;
    }
    template
}
