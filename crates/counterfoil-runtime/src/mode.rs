//! Which mode a live call runs in: what the config says, unless someone switched it while the program ran.
//!
//! A switch is a record that says who and why; the newest of its stream holds, in every process and after a restart. This process looks at the
//! ledger at most once per second and tool, so another one's switch holds here within about a second; between looks a call costs one read of a
//! table. When the ledger cannot be read, the mode that was last known stays, and where none is known yet nothing is laxer than `enforce`.
//! Recovery, undo and operators do not ask: they always enforce. Switching is the business of whoever runs the machine, of no tenant.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use counterfoil_core::ids::Digest32;
use counterfoil_core::mode::{Source, Words};
use counterfoil_core::summary::StreamKind;
use counterfoil_core::{Effect, StreamId, Summary, Tenant, ToolName};
use counterfoil_store::{Query, Version};
use thiserror::Error;
use tokio::time::Instant;

pub use counterfoil_core::mode::{Mode, Switched};

use crate::clock::Clock;
use crate::ledger::{Ledger, LedgerError, plain_summary};
use crate::operate::Operator;
use crate::runtime::Runtime;
use crate::stripes::Copies;

/// How long this process trusts what it last read. Another process's switch holds here after that, at the latest.
const FRESH_FOR: Duration = Duration::from_secs(1);
/// Modes belong to no tenant; their streams are listed under this name.
const TENANT: &str = "counterfoil";

/// What the config says.
#[derive(Debug, Clone, Default)]
pub struct Configured {
    pub all: Mode,
    pub tools: HashMap<ToolName, Mode>,
}

pub struct Modes {
    ledger: Arc<Ledger>,
    clock: Arc<dyn Clock>,
    configured: Configured,
    known: Copies<Known>,
    stopped: Counters,
}

/// What this process has read.
#[derive(Default)]
struct Known {
    /// Grows with each switch made here: what was read before one is not kept after it.
    switches: u64,
    /// One for each tool that was called.
    tools: HashMap<ToolName, Kept>,
}

struct Kept {
    mode: Mode,
    looked: Instant,
}

/// What a person wants.
#[derive(Debug, Clone, Default)]
pub struct Switch {
    /// `None`: all tools.
    pub tool: Option<ToolName>,
    /// `None`: back to what the config says.
    pub mode: Option<Mode>,
    /// Needed for `off`: without protection, duplicates happen.
    pub accept_duplicates: bool,
}

#[derive(Debug, Error)]
pub enum ModeError {
    #[error(
        "off runs tools without any protection and records nothing; say that you accept duplicates if that is meant, or use shadow to only watch"
    )]
    NotAccepted,
    #[error("the tool {0} is not registered here")]
    UnknownTool(ToolName),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// The mode of one tool, or of all that say nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InForce {
    pub tool: Option<ToolName>,
    pub mode: Mode,
    pub source: Source,
    /// The newest switch of this tool, or of all, also one back to the config.
    pub switched: Option<Switched>,
}

/// Why shadow mode would have stopped a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// The recorded outcome would have been the answer.
    Replayed,
    /// Key reused, key expired, limit, breaker, budget.
    Refused,
    /// In flight, in doubt, or waiting for a person.
    Held,
}

/// Calls that shadow mode let through since the program began, by what would have become of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shadowed {
    pub replayed: u64,
    pub refused: u64,
    pub held: u64,
}

#[derive(Default)]
struct Counters {
    replayed: AtomicU64,
    refused: AtomicU64,
    held: AtomicU64,
}

impl Modes {
    pub(crate) fn new(ledger: Arc<Ledger>, clock: Arc<dyn Clock>, configured: Configured) -> Self {
        Self { ledger, clock, configured, known: Copies::default(), stopped: Counters::default() }
    }

    /// The mode of a tool, if it was looked up a moment ago.
    pub fn known(&self, tool: &ToolName) -> Option<Mode> {
        let now = Instant::now();
        self.known.read().tools.get(tool).filter(|kept| now.saturating_duration_since(kept.looked) < FRESH_FOR).map(|kept| kept.mode)
    }

    /// The mode that holds for a tool now.
    pub async fn of(&self, tool: &ToolName) -> Mode {
        if let Some(mode) = self.known(tool) {
            return mode;
        }
        let now = Instant::now();
        let is_fresh = |kept: &Kept| now.saturating_duration_since(kept.looked) < FRESH_FOR;
        let (last, switches) = self.known.change(|known| {
            let last = known.tools.get_mut(tool).map(|kept| {
                // One caller looks; the others go on with what is known.
                let fresh = is_fresh(kept);
                kept.looked = now;
                (kept.mode, fresh)
            });
            (last, known.switches)
        });
        match last {
            Some((mode, true)) => mode,
            // Boxed: it happens once a second, and every call would carry its room.
            last => Box::pin(self.look(tool, last.map(|(mode, _)| mode), switches, now)).await,
        }
    }

    async fn look(&self, tool: &ToolName, last: Option<Mode>, switches: u64, now: Instant) -> Mode {
        let mode = match self.words(tool).await {
            Ok((words, _)) => words.in_force().0,
            Err(error) => {
                let mode = last.unwrap_or(Mode::Enforce);
                tracing::error!(%tool, %error, mode = mode.word(), "the mode cannot be read; the last one known stays");
                return mode;
            }
        };
        if let Some(last) = last.filter(|last| *last != mode) {
            tracing::warn!(%tool, from = last.word(), to = mode.word(), "mode changed");
        }
        self.known.change(|known| {
            if known.switches == switches {
                known.tools.insert(tool.clone(), Kept { mode, looked: now });
            }
        });
        mode
    }

    /// Every word on a tool's mode, and the switch of its own.
    async fn words(&self, tool: &ToolName) -> Result<(Words, Option<Switched>), LedgerError> {
        let (_, all) = self.ledger.newest::<Switched>(StreamId::mode(None)).await?;
        let (_, own) = self.ledger.newest::<Switched>(StreamId::mode(Some(tool))).await?;
        let words = Words {
            tool: own.as_ref().and_then(|switched| switched.mode),
            all: all.and_then(|switched| switched.mode),
            tool_config: self.configured.tools.get(tool).copied(),
            all_config: self.configured.all,
        };
        Ok((words, own))
    }

    /// Holds here when this returns, elsewhere about a second later. `operator.beside` is given an effect that is absent: a mode has none.
    pub async fn switch(&self, switch: Switch, operator: &Operator) -> Result<Switched, ModeError> {
        if switch.mode == Some(Mode::Off) && !switch.accept_duplicates {
            return Err(ModeError::NotAccepted);
        }
        let stream = StreamId::mode(switch.tool.as_ref());
        let none = Effect::absent(Digest32(stream.0));
        let mut tried: Option<Version> = None;
        loop {
            let (version, _) = self.ledger.newest::<Switched>(stream).await?;
            if tried == Some(version) {
                // Nobody switched meanwhile: what moved on is beside it, and the caller's to look at.
                return Err(LedgerError::Conflict.into());
            }
            let switched = Switched { at: self.clock.now(), by: operator.by.clone(), why: operator.why.clone(), mode: switch.mode };
            let tenant = Tenant::new(TENANT).expect("a plain word is a name");
            let summary = Summary { state: switched.word(), tool: switch.tool.clone(), ..plain_summary(StreamKind::Mode, tenant) };
            let mut writes = vec![self.ledger.replacing(stream, version, &switched, summary)];
            writes.extend(operator.beside.writes(&none));
            match self.ledger.append(writes).await {
                Err(LedgerError::Conflict) => tried = Some(version),
                appended => {
                    // Also after a failure, which may have been written all the same.
                    self.forget();
                    appended?;
                    let tool = switch.tool.as_ref().map_or("all tools", |tool| tool.as_str());
                    tracing::warn!(tool, to = switched.word(), by = switched.by, why = switched.why, "mode switched");
                    return Ok(switched);
                }
            }
        }
    }

    fn forget(&self) {
        self.known.change(|known| {
            known.switches += 1;
            known.tools.clear();
        });
    }

    /// As the ledger has it now: for all tools, then for each of these and each that was ever switched, by name.
    async fn in_force(&self, tools: impl IntoIterator<Item = ToolName>) -> Result<Vec<InForce>, LedgerError> {
        let tenant = Tenant::new(TENANT).expect("a plain word is a name");
        let listed = self.ledger.all_of(Query { kind: StreamKind::Mode, ..Query::effects(tenant) }).await?;
        let names: BTreeSet<ToolName> = tools.into_iter().chain(listed.into_iter().filter_map(|found| found.summary.tool)).collect();
        let (_, switched) = self.ledger.newest::<Switched>(StreamId::mode(None)).await?;
        let words =
            Words { all: switched.as_ref().and_then(|switched| switched.mode), all_config: self.configured.all, ..Words::default() };
        let (mode, source) = words.in_force();
        let mut all = vec![InForce { tool: None, mode, source, switched }];
        for tool in names {
            let (words, switched) = self.words(&tool).await?;
            let (mode, source) = words.in_force();
            all.push(InForce { tool: Some(tool), mode, source, switched });
        }
        Ok(all)
    }

    pub(crate) fn count(&self, stopped: Stopped) {
        let counter = match stopped {
            Stopped::Replayed => &self.stopped.replayed,
            Stopped::Refused => &self.stopped.refused,
            Stopped::Held => &self.stopped.held,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Runtime {
    /// The mode of all tools and of each, and who last switched it.
    pub async fn modes(&self) -> Result<Vec<InForce>, LedgerError> {
        self.inner.modes.in_force(self.tools().iter().map(|tool| tool.name.clone())).await
    }

    /// The mode a live call of this tool runs in now.
    pub async fn mode_of(&self, tool: &ToolName) -> Mode {
        self.inner.modes.of(tool).await
    }

    /// Switches the mode of one tool, or of all.
    pub async fn switch_mode(&self, switch: Switch, operator: &Operator) -> Result<Switched, ModeError> {
        match &switch.tool {
            Some(tool) if !self.inner.tools.is_known(tool) => Err(ModeError::UnknownTool(tool.clone())),
            _ => self.inner.modes.switch(switch, operator).await,
        }
    }

    /// Calls that shadow mode let through since the program began.
    pub fn shadowed(&self) -> Shadowed {
        let Counters { replayed, refused, held } = &self.inner.modes.stopped;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Shadowed { replayed: read(replayed), refused: read(refused), held: read(held) }
    }
}
