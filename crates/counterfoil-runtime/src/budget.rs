//! What a run may spend on a tool: kept in the ledger, so that it holds across processes and restarts.
//!
//! The new total is written in the same append as the first claim: two claims that race for the last of a budget cannot both win.

use counterfoil_core::limit::Spent;
use counterfoil_core::summary::StreamKind;
use counterfoil_core::{Effect, StreamId, Summary};
use counterfoil_store::Write;

use crate::ledger::{Ledger, LedgerError, plain_summary};
use crate::runtime::Task;

/// Whether the next claim spends something: the first pays, and one that was released has paid already.
pub(crate) fn is_spent(task: &Task, effect: &Effect) -> bool {
    let limits = &task.tool.policy.limits;
    task.call.run.is_some() && effect.unclaimed() && (limits.per_run.is_some() || limits.cost_per_run.is_some())
}

/// The writes that go with the claim, or which limit stands in the way.
pub(crate) async fn spend(ledger: &Ledger, task: &Task, effect: &Effect) -> Result<Result<Vec<Write>, String>, LedgerError> {
    let limits = &task.tool.policy.limits;
    let (Some(run), true) = (&task.call.run, is_spent(task, effect)) else { return Ok(Ok(Vec::new())) };
    let cost = match task.tool.cost.as_ref().map(|rule| rule(&task.call.args)).transpose() {
        Ok(cost) => cost.unwrap_or(0.0),
        Err(message) => return Ok(Err(format!("the cost of this call cannot be told: {message}"))),
    };
    if !cost.is_finite() || cost < 0.0 {
        return Ok(Err(format!("the cost of this call is {cost}; it must be a number of at least 0")));
    }
    let stream = StreamId::budget(&task.call.tenant, run, &task.tool.name);
    let (version, spent) = ledger.newest::<Spent>(stream).await?;
    let total = match spent.unwrap_or_default().plus(cost, limits) {
        Ok(total) => total,
        Err(message) => return Ok(Err(message)),
    };
    let summary = Summary {
        tool: Some(task.tool.name.clone()),
        run: Some(run.clone()),
        ..plain_summary(StreamKind::Budget, task.call.tenant.clone())
    };
    Ok(Ok(vec![ledger.replacing(stream, version, &total, summary)]))
}
