//! Workflows in the ledger, by the digest of their text: a run keeps the one it began with, whatever happens to the file.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use counterfoil_core::ids::{Digest32, WorkflowName};
use counterfoil_core::summary::StreamKind;
use counterfoil_core::{RunId, StreamId, Tenant, Timestamp};
use counterfoil_store::{Reach, Version, Write};
use serde::{Deserialize, Serialize};

use super::RunError;
use crate::ledger::{Ledger, LedgerError, plain_summary};
use crate::workflow::Workflow;

/// Definitions remembered. One more than this, and all are forgotten: they are read again when needed.
const REMEMBERED_MAX: usize = 1_000;

/// Those that were read already. A text never changes, so neither does what it means.
#[derive(Default)]
pub(crate) struct Definitions {
    read: Mutex<HashMap<Digest32, Arc<Workflow>>>,
}

#[derive(Serialize, Deserialize)]
struct Text {
    workflow: WorkflowName,
    text: String,
}

/// Which text a name stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    pub at: Timestamp,
    pub by: String,
    pub definition: Digest32,
}

impl Definitions {
    pub fn remember(&self, workflow: &Arc<Workflow>) {
        let mut read = self.lock();
        if read.len() >= REMEMBERED_MAX {
            read.clear();
        }
        read.insert(workflow.digest, workflow.clone());
    }

    /// The write that keeps a workflow's text; `None` if it is kept already.
    pub async fn kept(&self, ledger: &Ledger, tenant: &Tenant, workflow: &Arc<Workflow>) -> Result<Option<Write>, LedgerError> {
        self.remember(workflow);
        let stream = StreamId::definition(tenant, &workflow.digest);
        let known = ledger.records(stream, Reach::Newest(1)).await?;
        if known.version != Version::NONE {
            return Ok(None);
        }
        let text = Text { workflow: workflow.name.clone(), text: workflow.text.to_string() };
        Ok(Some(ledger.replacing(stream, Version::NONE, &text, plain_summary(StreamKind::Workflow, tenant.clone()))))
    }

    pub async fn of_run(&self, ledger: &Ledger, tenant: &Tenant, run: &RunId, digest: Digest32) -> Result<Arc<Workflow>, RunError> {
        let found = self.get(ledger, tenant, digest).await?;
        found.ok_or_else(|| RunError::NoDefinition { run: run.clone(), digest })
    }

    pub async fn get(&self, ledger: &Ledger, tenant: &Tenant, digest: Digest32) -> Result<Option<Arc<Workflow>>, RunError> {
        if let Some(known) = self.lock().get(&digest) {
            return Ok(Some(known.clone()));
        }
        let (_, text) = ledger.newest::<Text>(StreamId::definition(tenant, &digest)).await?;
        let Some(text) = text else { return Ok(None) };
        let read = Workflow::parse(&text.text, format!("{}.yaml", text.workflow));
        let workflow = Arc::new(read.map_err(|source| RunError::Definition { digest, source: Box::new(source) })?);
        self.remember(&workflow);
        Ok(Some(workflow))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Digest32, Arc<Workflow>>> {
        // Handles by digest: whole at every moment.
        self.read.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
