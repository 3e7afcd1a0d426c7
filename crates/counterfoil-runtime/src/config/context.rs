//! What every part of a tool is read with: the file's directory, the named variables, where HTTP may go.
//!
//! Paths are relative to the config file, never to wherever the process was started. A variable that is not listed under `env` can be
//! seen by no template, and the list is the place where a missing one is reported.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::environment::Environment;
use super::read::Spot;
use super::suggest::nearest;
use crate::spec::Egress;
use crate::template::Scope;

pub struct Context<'a> {
    /// Of the config file; empty when the file was named without one.
    pub dir: &'a Path,
    pub environment: &'a Environment,
    /// The variables named under `env`, in the order they were written.
    pub env_names: Vec<String>,
    pub egress: Arc<Egress>,
    /// The file says that duplicates are accepted: without it, nothing in it may be switched off.
    pub accepts_duplicates: bool,
}

impl Context<'_> {
    /// A path, relative to the config file and not to wherever the process was started.
    pub fn path(&self, spot: &Spot<'_>) -> Option<PathBuf> {
        let text = self.fixed(spot)?;
        if text.is_empty() {
            spot.wrong("the path is empty; write . for the directory of this file");
            return None;
        }
        Some(self.beside(&text))
    }

    pub fn beside(&self, path: &str) -> PathBuf {
        // `./notes` and `notes` are one path; keep it as short as people would write it.
        self.dir.join(path.strip_prefix("./").filter(|rest| !rest.is_empty()).unwrap_or(path))
    }

    /// Commands start beside the config file, so that `./script` means the same from everywhere.
    pub fn default_cwd(&self) -> Option<PathBuf> {
        (!self.dir.as_os_str().is_empty()).then(|| self.dir.to_owned())
    }

    /// A text that is fixed when the file is read: `${env.NAME}` is put in now, and nothing else may be.
    pub fn fixed(&self, spot: &Spot<'_>) -> Option<String> {
        let mut rest = spot.text()?;
        let mut out = String::new();
        while let Some((before, after)) = rest.split_once("${") {
            out.push_str(before);
            let Some((inside, after)) = after.split_once('}') else {
                spot.wrong("a \"${\" is never closed");
                return None;
            };
            let Some(name) = inside.trim().strip_prefix("env.") else {
                spot.wrong(format!("\"${{{inside}}}\" is not known when the file is read; only ${{env.NAME}} is"));
                return None;
            };
            self.env_name(spot, name)?;
            // Missing ones were reported where they are listed.
            out.push_str(self.environment.get(name).unwrap_or_default());
            rest = after;
        }
        out.push_str(rest);
        Some(out)
    }

    /// The listed variables, for what depends on them alone.
    pub fn env_scope(&self) -> Scope {
        let values = self.environment.only(&self.env_names);
        let values = values.iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        Scope::new().with("env", &serde_json::Value::Object(values))
    }

    /// Reports a variable that is not listed.
    pub fn env_name(&self, spot: &Spot<'_>, name: &str) -> Option<()> {
        if self.env_names.iter().any(|listed| listed == name) {
            return Some(());
        }
        let mistake = spot.mistake(format!("env.{name} is not listed; add it at the top of the file, as in env: [{name}]"));
        let meant = nearest(name, self.env_names.iter().map(String::as_str));
        spot.report.add(mistake.suggest(meant.map(|n| format!("env.{n}"))));
        None
    }
}
