//! Whether the ledger's word is law, and who last said so.
//!
//! A mode is set by the config and can be switched while programs run, for one tool or for all. A switch is recorded: the newest record of its
//! stream is what holds, here and in every other process, also after a restart. Which of the four words counts is decided here, and nowhere else.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// From strict to lax.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    #[default]
    Enforce,
    /// Logs what it would have stopped, and runs it.
    Shadow,
    /// Runs everything, records nothing.
    Off,
}

impl Mode {
    pub const ALL: [Self; 3] = [Self::Enforce, Self::Shadow, Self::Off];

    pub fn word(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Off => "off",
        }
    }

    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.word() == word)
    }
}

/// A person's word on the mode of one tool, or of all: the whole state of its stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switched {
    pub at: Timestamp,
    pub by: String,
    pub why: String,
    /// `None`: back to what the config says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
}

impl Switched {
    /// As in a summary.
    pub fn word(&self) -> &'static str {
        self.mode.map_or("configured", Mode::word)
    }
}

/// Every word on the mode of one tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Words {
    /// Switched for this tool.
    pub tool: Option<Mode>,
    /// Switched for all.
    pub all: Option<Mode>,
    /// Configured for this tool.
    pub tool_config: Option<Mode>,
    /// Configured for all.
    pub all_config: Mode,
}

/// Whose word it is that holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    ToolSwitch,
    Switch,
    ToolConfig,
    Config,
}

impl Words {
    /// What was said while running counts more than what was written, and what was said of one tool more than what was said of all.
    pub fn in_force(&self) -> (Mode, Source) {
        let said = [(self.tool, Source::ToolSwitch), (self.all, Source::Switch), (self.tool_config, Source::ToolConfig)];
        let first = said.into_iter().find_map(|(mode, source)| Some((mode?, source)));
        first.unwrap_or((self.all_config, Source::Config))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::STATES;

    #[test]
    fn a_switch_has_a_word() {
        let switched = |mode| Switched { at: Timestamp::ZERO, by: "ada".into(), why: "why".into(), mode }.word();
        assert_eq!((switched(None), switched(Some(Mode::Shadow)), switched(Some(Mode::Off))), ("configured", "shadow", "off"));
    }

    #[test]
    fn the_nearest_word_holds() {
        let check = |tool, all, tool_config, all_config, expected| {
            assert_eq!(Words { tool, all, tool_config, all_config }.in_force(), expected);
        };
        let (enforce, shadow, off) = (Mode::Enforce, Mode::Shadow, Mode::Off);
        check(None, None, None, shadow, (shadow, Source::Config));
        check(None, None, Some(off), shadow, (off, Source::ToolConfig));
        check(None, Some(enforce), Some(off), shadow, (enforce, Source::Switch));
        check(Some(shadow), Some(enforce), Some(off), off, (shadow, Source::ToolSwitch));
        check(Some(shadow), None, None, enforce, (shadow, Source::ToolSwitch));
    }

    #[test]
    fn every_mode_has_its_word_and_summaries_may_hold_it() {
        for mode in Mode::ALL {
            let switched = Switched { at: Timestamp::ZERO, by: "ada".into(), why: String::new(), mode: Some(mode) };
            assert_eq!(Mode::from_word(mode.word()), Some(mode));
            assert!(STATES.contains(&switched.word()) && STATES.contains(&Switched { mode: None, ..switched }.word()));
        }
        assert_eq!(Mode::from_word("on"), None);
    }
}
