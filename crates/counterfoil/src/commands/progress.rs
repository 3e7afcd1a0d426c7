//! A run's steps as they begin and end, a line each, on stderr.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
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
    /// What was said about waiting.
    waits: HashSet<String>,
}

impl Progress {
    pub fn new(global: &Global) -> Self {
        Self { silent: global.json, shown: HashMap::new(), undone: 0, waits: HashSet::new() }
    }

    /// What happened before is not news.
    pub async fn prime(&mut self, runtime: &Runtime, tenant: &Tenant, run: &RunId) -> anyhow::Result<()> {
        let (facts, _) = runtime.run_facts(tenant, run).await.map_err(refused)?;
        for path in &facts.order {
            let ended = facts.step(path).is_some_and(|step| matches!(step.state, StepState::Ended { .. }));
            self.shown.insert(path.clone(), ended);
        }
        self.undone = facts.sagas.iter().map(|saga| saga.dealt.len()).sum();
        Ok(())
    }

    /// Shows what happens for as long as it is polled. What cannot be read now is shown later: whoever drives the run says what is wrong.
    pub async fn follow(&mut self, runtime: &Runtime, tenant: &Tenant, run: &RunId) -> Infallible {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if !self.silent && self.look(runtime, tenant, run).await.unwrap_or(false) {
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
        self.waits(runtime, tenant, run, &facts).await?;
        Ok(facts.state().is_end())
    }
}

impl Progress {
    /// Says once what only a person can move.
    async fn waits(&mut self, runtime: &Runtime, tenant: &Tenant, run: &RunId, facts: &Run) -> anyhow::Result<()> {
        let quiet = facts.owner.is_none() || facts.saga().is_some();
        if !quiet || facts.state().is_end() {
            return Ok(());
        }
        let view = runtime.run(tenant, run).await.map_err(refused)?;
        let steps = super::runs::leaves(&view.steps).filter(|step| step.effect.is_some());
        let steps = steps.filter_map(|step| Some((&step.step, step.waits_for.as_ref()?)));
        let undos = view.compensations.iter().filter_map(|undo| Some((&undo.step, undo.waits_for.as_ref()?)));
        if let Some((confirmation, waits)) = view.confirmation.as_ref().and_then(|c| Some((c, c.waits_for.as_ref()?)))
            && self.waits.insert(format!("{} {waits}", confirmation.at))
        {
            output::note(format_args!("  … {waits}"));
            confirmation.checks.iter().filter_map(super::runs::check_text).for_each(|line| output::note(format_args!("    {line}")));
        }
        for (step, why) in steps.chain(undos) {
            if self.waits.insert(format!("{step} {why}")) {
                output::note(format_args!("  … {step}  waits: {why}"));
            }
        }
        Ok(())
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
