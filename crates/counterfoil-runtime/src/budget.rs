//! What a run may spend on a tool: kept in the ledger, so that it holds across processes and restarts.
//!
//! The new total is written in the same append as the first claim: two claims that race for the last of a budget cannot both win.

use counterfoil_core::limit::Spent;
use counterfoil_core::summary::StreamKind;
use counterfoil_core::{Effect, StreamId, Summary};
use counterfoil_store::Write;

use crate::ledger::{Ledger, LedgerError, plain_summary};
use crate::runtime::Task;

/// The writes that go with the first claim of an effect, or which limit stands in the way.
pub(crate) async fn spend(ledger: &Ledger, task: &Task, effect: &Effect) -> Result<Result<Vec<Write>, String>, LedgerError> {
    let limits = &task.tool.policy.limits;
    let unlimited = limits.per_run.is_none() && limits.cost_per_run.is_none();
    // The first claim pays; one that was released has paid already.
    let first = effect.unclaimed();
    let (Some(run), false, true) = (&task.call.run, unlimited, first) else { return Ok(Ok(Vec::new())) };
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
