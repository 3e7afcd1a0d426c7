//! What is around a step: which items it is one of, which tools it may use, how deep it is.
//!
//! A chain from the inside out, on the stack of the reading itself: it lives as long as the steps inside are being read.

use counterfoil_core::ToolName;

use crate::config::read::Spot;
use crate::config::suggest::nearest;

/// One step around another, or the workflow itself.
#[derive(Default)]
pub struct Around<'o> {
    pub outer: Option<&'o Around<'o>>,
    /// Of the steps inside, as the plan counts it.
    pub depth: usize,
    /// What a `map` calls its item.
    pub item: Option<&'o str>,
    pub allowed: Option<Allowed<'o>>,
}

/// The tools that may be used inside.
pub struct Allowed<'o> {
    pub names: &'o [ToolName],
    /// Who says so.
    pub by: String,
}

impl<'o> Around<'o> {
    pub fn top(allowed: Option<Allowed<'o>>) -> Self {
        Self { depth: 1, allowed, ..Self::default() }
    }

    pub fn inside(outer: &'o Around<'o>) -> Self {
        Self { outer: Some(outer), depth: outer.depth + 1, ..Self::default() }
    }

    /// From the inside out.
    fn all(&self) -> impl Iterator<Item = &Around<'o>> {
        std::iter::successors(Some(self), |inner| inner.outer)
    }

    /// The names of the items that a step here is one of, from the inside out.
    pub fn items(&self) -> impl Iterator<Item = &'o str> + '_ {
        self.all().filter_map(|around| around.item)
    }

    /// Reports a tool that is not in every list around it.
    pub fn allows(&self, spot: &Spot<'_>, tool: &ToolName) {
        for allowed in self.all().filter_map(|around| around.allowed.as_ref()).filter(|allowed| !allowed.names.contains(tool)) {
            let names = || allowed.names.iter().map(ToolName::as_str);
            let mistake = spot.mistake(format!("the tool {:?} is not in tools of {}", tool.as_str(), allowed.by));
            spot.report.add(mistake.suggest(nearest(tool.as_str(), names())).allowed(names()));
        }
    }
}
