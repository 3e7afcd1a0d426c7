//! `counterfoil.yaml`: read once, checked whole, never guessed at.
//!
//! Text becomes a tree of values that know their line (`tree`, `node`), the tree becomes specs (`top`, `tool`, `policy`,
//! `http`, `command`, `file`), and every mistake on the way is collected (`mistake`), so that one look at the
//! answer is enough to mend the file. A config with a mistake is no config: nothing of it is used.
//! Reading reads nothing but its arguments; only [`Config::load`] touches the disk and the process environment.

mod check;
mod command;
pub(crate) mod confirm;
mod context;
mod environment;
pub(crate) mod expr;
mod file;
mod github;
mod http;
mod keywords;
pub(crate) mod mistake;
pub(crate) mod node;
pub(crate) mod policy;
pub(crate) mod read;
pub(crate) mod report;
pub(crate) mod schema;
mod sees;
pub(crate) mod source;
mod starter;
mod store;
pub(crate) mod suggest;
mod syntax;
mod tool;
mod top;
pub(crate) mod tree;
pub mod units;
mod verify;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use counterfoil_core::Tenant;

pub use environment::Environment;
pub use mistake::{ConfigErrors, Mistake, Place};
pub use starter::STARTER;

use crate::mode::Mode;
use crate::spec::{Egress, ToolSpec};
use read::Spot;
use report::Report;

/// The file `counterfoil` looks for.
pub const FILE_NAME: &str = "counterfoil.yaml";

/// As they are written.
const MODES: &[(&str, Mode)] = &[("enforce", Mode::Enforce), ("shadow", Mode::Shadow), ("off", Mode::Off)];

/// A config without mistakes.
#[derive(Clone)]
pub struct Config {
    /// Url of the ledger; the path of an embedded one is resolved.
    pub store: String,
    pub mode: Mode,
    /// A store that can lose what it acknowledged will do.
    pub allow_volatile: bool,
    pub tenant: Tenant,
    /// The variables named under `env`: all that templates may see of the environment.
    pub env: Environment,
    pub egress: Arc<Egress>,
    /// In the order of the file.
    pub tools: Vec<ToolSpec>,
    /// The file itself. Relative paths in it are relative to its directory.
    pub path: PathBuf,
}

impl Config {
    /// Reads a file, with the environment of this process.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigErrors> {
        let path = path.as_ref();
        let text = source::CONFIG.read(path).map_err(|why| ConfigErrors::new(path, "", vec![Mistake::of_file(why)]))?;
        Self::parse(&text, path, &Environment::of_process())
    }

    /// `path` is where the text came from: for messages, and for the relative paths in it.
    pub fn parse(text: &str, path: impl AsRef<Path>, environment: &Environment) -> Result<Self, ConfigErrors> {
        let wrong = |mistakes| ConfigErrors::new(path.as_ref(), text, mistakes);
        let (root, mistakes) = tree::parse(text);
        let root = match root {
            Some(root) if root.value != node::Value::Null => root,
            // An empty file is a config with nothing but defaults; a file that is not YAML is none.
            _ if mistakes.is_empty() => node::Node::empty_map(),
            _ => return Err(wrong(mistakes)),
        };
        let mut config = Self::empty(path.as_ref());
        let report = Report::from(mistakes);
        top::read(&Spot::top(&root, &report), environment, &mut config);
        match report.into_mistakes() {
            mistakes if mistakes.is_empty() => Ok(config),
            mistakes => Err(wrong(mistakes)),
        }
    }

    fn empty(path: &Path) -> Self {
        Self {
            store: store::DEFAULT.to_owned(),
            mode: Mode::Enforce,
            allow_volatile: false,
            tenant: Tenant::new("default").expect("a plain word is a name"),
            env: Environment::default(),
            egress: Arc::default(),
            tools: Vec::new(),
            path: path.to_owned(),
        }
    }
}

/// Never shows a password: not that of the store, and no variable's value.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("store", &store::shown(&self.store))
            .field("mode", &self.mode)
            .field("allow_volatile", &self.allow_volatile)
            .field("tenant", &self.tenant)
            .field("env", &self.env)
            .field("egress", &self.egress)
            .field("tools", &self.tools)
            .field("path", &self.path)
            .finish()
    }
}

#[cfg(test)]
mod tests;
