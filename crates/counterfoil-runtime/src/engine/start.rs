//! How a run begins: one append that holds its definition, its input and nothing else. Asked for again, it is the same run.

use std::sync::Arc;

use counterfoil_core::run::entry::{By, Parent, Started};
use counterfoil_core::run::{Run, RunEntry};
use counterfoil_core::{Caller, CanonicalJson, Json, RunId, StreamId, Tenant, Timestamp, ToolName, Veil};
use counterfoil_store::{Reach, Version, Write};

use super::beside::{After, RunBeside};
use super::operate::Heard;
use super::{RunError, book};
use crate::ledger::{LedgerError, body};
use crate::observe;
use crate::register::subject;
use crate::registry::Schema;
use crate::runtime::Runtime;
use crate::template::{Expr, Scope};
use crate::workflow::{StepSpec, Workflow};

/// A run that is asked for.
#[derive(Debug, Clone)]
pub struct NewRun {
    pub tenant: Tenant,
    pub caller: Caller,
    /// `None`: a new one. The same id with the same workflow and input is the same run.
    pub run: Option<RunId>,
    pub workflow: Arc<Workflow>,
    pub input: CanonicalJson,
    pub parent: Option<Parent>,
    /// What the runs around this one allow.
    pub tools: Option<Vec<ToolName>>,
    /// This process drives it at once: it need not be taken on first.
    pub driven: bool,
}

/// Who is at a run that begins.
#[derive(Debug, Clone, Copy)]
pub(super) enum Second {
    /// This process.
    Owned,
    /// Nobody before then, unless something comes.
    Parked { due: Option<Timestamp> },
}

impl Runtime {
    /// Records the run: from then on some worker will see it through. `true`: it is new.
    pub async fn start_run(&self, new: NewRun) -> Result<(RunId, bool), RunError> {
        let after = self.start_run_beside(new, &RunBeside::default()).await?;
        Ok((after.run.started.run.clone(), after.heard == Heard::Now))
    }

    /// With writes that hold or fall with it. `BesideTaken`: those lost their race, and there is no run.
    pub async fn start_run_beside(&self, new: NewRun, beside: &RunBeside) -> Result<After, RunError> {
        self.start_run_within(new, None, beside).await
    }

    /// `around` is what the run is stored under that this one is a step of: its own subject comes first.
    pub(super) async fn start_run_within(&self, new: NewRun, around: Option<Arc<Veil>>, beside: &RunBeside) -> Result<After, RunError> {
        let (inner, workflow) = (&self.inner, &new.workflow);
        self.can_start(&new.tenant, workflow, &new.input)?;
        let veil = match &workflow.subject {
            Some(subject) => Some(self.veil_of_run(&new.tenant, subject, &new.input).await?),
            None => around,
        };
        let run = match &new.run {
            Some(run) => run.clone(),
            None => RunId::new(&self.execution_id())?,
        };
        let now = inner.clock.now();
        let started = Arc::new(Started {
            at: now,
            tenant: new.tenant.clone(),
            run: run.clone(),
            caller: new.caller.clone(),
            workflow: workflow.name.clone(),
            by: By::Plan,
            definition: workflow.digest,
            input: new.input.clone(),
            parent: new.parent.clone(),
            forked: None,
            tools: new.tools.clone(),
            deadline: workflow.timeout.map(|timeout| now + timeout),
            lease_ms: None,
            retain_ms: u64::try_from(workflow.retain.as_millis()).unwrap_or(u64::MAX),
        });
        let second = new.driven.then_some(Second::Owned);
        self.record_start(started, workflow.clone(), veil, second, beside).await
    }

    async fn veil_of_run(&self, tenant: &Tenant, rule: &Expr, input: &CanonicalJson) -> Result<Arc<Veil>, RunError> {
        let scope = Scope::new().with_json("input", &Json::from(input.clone()));
        let subject = subject(rule, &scope).map_err(|e| RunError::Input(format!("subject: `{}`: {e}", rule.source())))?;
        self.inner.veil_of(tenant, &subject).await?.ok_or(RunError::SubjectErased)
    }

    /// The one way in which a run begins: its first record, with its definition and what is beside it. There already, it is that run, or refused.
    pub(super) async fn record_start(
        &self,
        started: Arc<Started>,
        workflow: Arc<Workflow>,
        veil: Option<Arc<Veil>>,
        second: Option<Second>,
        beside: &RunBeside,
    ) -> Result<After, RunError> {
        let (inner, tenant, run) = (&self.inner, &started.tenant, &started.run);
        let (stream, definition) = (StreamId::run(tenant, run), StreamId::definition(tenant, &workflow.digest));
        let plan = started.by == By::Plan;
        loop {
            let known = inner.ledger.records(stream, Reach::Whole).await?;
            if known.version != Version::NONE {
                self.same_run(&started, known.records.first().map(|r| r.body.as_str()))?;
                let (run, workflow) = book::read(inner, tenant, run).await?;
                return Ok(After { heard: Heard::Before, run, workflow });
            }
            let mut begun = Run::new(started.clone(), plan.then(|| book::flow_of(&workflow, &started)));
            let mut entries = vec![RunEntry::RunStarted(Box::new((*started).clone()))];
            let second = second.map(|second| match second {
                Second::Owned => book::owned(inner, &begun, started.at),
                Second::Parked { due } => RunEntry::Parked { at: started.at, due, unconfirmed: false },
            });
            if let Some(second) = second {
                begun.note(&second).map_err(|source| LedgerError::Run { run: run.to_string(), source })?;
                entries.push(second);
            }
            begun.veil = veil.clone();
            let body = body(veil.as_ref(), &stream, Version::NONE, &entries);
            let first = Write { stream, expected: Version::NONE, at: started.at, body, summary: begun.summary() };
            let kept = if plan { inner.definitions.kept(&inner.ledger, tenant, &workflow).await? } else { None };
            let writes = kept.into_iter().chain(beside.writes(&begun, &workflow)).collect();
            match inner.ledger.append_beside(first, writes).await {
                Ok(()) => {
                    observe::run_started();
                    begun.recorded();
                    return Ok(After { heard: Heard::Now, run: begun, workflow });
                }
                // The run was begun, or the definition kept, by someone faster: look again.
                Err(LedgerError::Conflict) => continue,
                Err(LedgerError::BesideTaken { streams }) if streams.contains(&definition) => continue,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn same_run(&self, asked: &Started, first: Option<&str>) -> Result<(), RunError> {
        let exists = |what| RunError::Exists { run: asked.run.clone(), what };
        let Some(first) = first else { return Err(exists("which only the id is left")) };
        let (known, _) = Run::begun(first).map_err(|source| LedgerError::Run { run: asked.run.to_string(), source })?;
        if known.workflow != asked.workflow {
            return Err(exists("another workflow"));
        }
        if known.definition != asked.definition {
            return Err(RunError::Diverged { run: asked.run.clone(), expected: known.definition, actual: asked.definition });
        }
        if known.input != asked.input {
            return Err(exists("the same workflow with another input"));
        }
        Ok(())
    }

    /// Whether a run of it with this input would be started here.
    pub(super) fn can_start(&self, tenant: &Tenant, workflow: &Workflow, input: &CanonicalJson) -> Result<(), RunError> {
        if let Some(schema) = &workflow.input {
            let schema = Schema::compile(schema).map_err(|error| RunError::Input(error.to_string()))?;
            if let Some(wrong) = schema.violations(&input.to_value()) {
                return Err(RunError::Input(wrong));
            }
        }
        self.tools_exist(tenant, workflow)
    }

    /// A run whose tools are not here would come to a stop half-way.
    fn tools_exist(&self, tenant: &Tenant, workflow: &Workflow) -> Result<(), RunError> {
        for step in &workflow.steps {
            let StepSpec::Tool(step) = step else { continue };
            for tool in std::iter::once(&step.tool).chain(step.undo.as_ref().map(|undo| &undo.tool)) {
                if self.inner.tools.get(tenant, tool).is_none() {
                    let hint = match self.inner.tools.nearest(tenant, tool.as_str()) {
                        Some(near) => format!("did you mean {near}?"),
                        None => "`counterfoil tools list` shows what there is".into(),
                    };
                    return Err(RunError::UnknownTool { tool: tool.to_string(), hint });
                }
            }
        }
        Ok(())
    }
}
