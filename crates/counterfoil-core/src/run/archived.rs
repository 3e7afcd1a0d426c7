//! What is left in the ledger of a run that was moved to an archive: where it went, and the head of its receipts.

use serde::{Deserialize, Serialize};

use crate::ids::{Digest32, RunId, StreamId, Tenant, ToolName, WorkflowName};
use crate::summary::{StreamKind, Summary};
use crate::time::Timestamp;

/// The only record of its stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Archived {
    pub at: Timestamp,
    pub by: String,
    pub tenant: Tenant,
    pub run: RunId,
    pub workflow: WorkflowName,
    /// How it had ended.
    pub state: String,
    pub ended: Timestamp,
    /// The archive's name, as it was written, and the digest of what it holds of this run.
    pub file: String,
    pub digest: Digest32,
    /// Receipts of its chain, and the hash of the newest.
    pub receipts: u64,
    pub head: Digest32,
}

impl Archived {
    pub fn stream(&self) -> StreamId {
        StreamId::archived(&self.tenant, &self.run)
    }

    pub fn summary(&self) -> Summary {
        Summary {
            kind: StreamKind::Archived,
            tenant: self.tenant.clone(),
            state: "archived",
            // The column that names are listed by.
            tool: ToolName::new(self.workflow.as_str()).ok(),
            run: Some(self.run.clone()),
            open: false,
            due: None,
            expires: None,
        }
    }
}
