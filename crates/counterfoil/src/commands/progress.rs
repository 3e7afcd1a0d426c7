//! A run's steps as they begin and end, a line each, on stderr.

use std::collections::HashMap;
use std::time::Duration;

use counterfoil_core::run::entry::{Began, StepEnd};
use counterfoil_core::run::{Run, StepState};
use counterfoil_core::{RunId, StepPath, Tenant};
use counterfoil_runtime::Runtime;

use super::run::refused;
use crate::cli::Global;
use crate::output;

/// How often is looked for what is new.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub struct Progress {
    silent: bool,
    /// How far each step was shown: begun, or ended.
    shown: HashMap<StepPath, bool>,
    undone: usize,
}

impl Progress {
    pub fn new(global: &Global) -> Self {
        Self { silent: global.json, shown: HashMap::new(), undone: 0 }
    }

    /// Shows what happens for as long as it is polled, until the run has ended.
    pub async fn follow(&mut self, runtime: &Runtime, tenant: &Tenant, run: &RunId) -> anyhow::Result<()> {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if !self.silent && self.look(runtime, tenant, run).await? {
                std::future::pending::<()>().await;
            }
        }
    }

    /// What was not shown yet.
    pub async fn last(&mut self, runtime: &Runtime, tenant: &Tenant, run: &RunId) -> anyhow::Result<()> {
        if !self.silent {
            self.look(runtime, tenant, run).await?;
        }
        Ok(())
    }

    /// True: it has ended.
    pub async fn look(&mut self, runtime: &Runtime, tenant: &Tenant, run: &RunId) -> anyhow::Result<bool> {
        let (facts, _) = runtime.run_facts(tenant, run).await.map_err(refused)?;
        for path in &facts.order {
            let Some(step) = facts.step(path) else { continue };
            let ended = matches!(step.state, StepState::Ended { .. });
            let news = match self.shown.insert(path.clone(), ended) {
                None => true,
                Some(was) => was != ended,
            };
            if news && let Some(line) = line(&facts, path) {
                output::note(line);
            }
        }
        let dealt: Vec<_> =
            facts.sagas.iter().flat_map(|saga| saga.of.iter().filter_map(|step| Some((step, saga.dealt.get(step)?)))).collect();
        for (step, how) in dealt.iter().skip(self.undone) {
            match how {
                Ok(how) => output::note(format_args!("  ↩ {step}  {}", how.word())),
                Err(failure) => output::note(format_args!("  ! {step}  could not be undone: {}", failure.message)),
            }
        }
        self.undone = dealt.len();
        Ok(facts.state().is_end())
    }
}

fn line(facts: &Run, path: &StepPath) -> Option<String> {
    let step = facts.step(path)?;
    let what = match &step.what {
        Some(Began::Effect { tool, .. }) => tool.to_string(),
        Some(Began::Child { run }) => format!("run {run}"),
        Some(Began::Wait { on, .. }) => counterfoil_runtime::engine::view::waits_for(on),
        Some(Began::Sleep { .. }) => "sleep".into(),
        Some(Began::Map { items }) => format!("map over {} items", items.len()),
        None => "decision".into(),
    };
    Some(match &step.state {
        StepState::Running => match &step.what {
            // What waits is worth a word; what runs is shown when it has ended.
            Some(Began::Wait { .. } | Began::Sleep { .. } | Began::Map { .. } | Began::Child { .. }) => format!("  … {path}  {what}"),
            _ => return None,
        },
        StepState::Ended { at, how } => {
            let ms = at.since(step.began).as_millis();
            match how {
                StepEnd::Done { .. } => format!("  ✓ {path}  {what}  {ms} ms"),
                StepEnd::Failed { failure, doubt: false } => format!("  ✗ {path}  {what}  {}: {}", failure.code, failure.message),
                StepEnd::Failed { failure, doubt: true } => format!("  ? {path}  {what}  in doubt: {}", failure.message),
                StepEnd::Cancelled { .. } => format!("  - {path}  {what}  cancelled"),
            }
        }
    })
}
