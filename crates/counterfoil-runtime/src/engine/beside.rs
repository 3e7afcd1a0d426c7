//! What is written together with what is done to a run: the record of the request that asked for it. Both hold or fall together.

use std::fmt;
use std::sync::Arc;

use counterfoil_core::run::Run;
use counterfoil_store::Write;

use super::operate::Heard;
use super::view::RunView;
use crate::workflow::Workflow;

/// Writes in the same append as what is done to a run, made from the run as it is after it.
#[derive(Clone, Default)]
pub struct RunBeside(Option<Arc<WritesAfter>>);

type WritesAfter = dyn Fn(&Run, &Workflow) -> Vec<Write> + Send + Sync;

impl RunBeside {
    pub fn new(writes: impl Fn(&Run, &Workflow) -> Vec<Write> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(writes)))
    }

    pub(super) fn writes(&self, run: &Run, workflow: &Workflow) -> Vec<Write> {
        self.0.as_ref().map_or_else(Vec::new, |writes| writes(run, workflow))
    }
}

impl fmt::Debug for RunBeside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "RunBeside(…)" } else { "RunBeside" })
    }
}

/// A run right after something was done to it.
#[derive(Debug, Clone)]
pub struct After {
    /// `Before`: nothing was written, also not what was to be beside it.
    pub heard: Heard,
    pub run: Run,
    pub workflow: Arc<Workflow>,
}

impl After {
    pub fn view(&self) -> RunView {
        RunView::of(&self.run, &self.workflow)
    }
}
