//! What all handlers share, and the one way in which a mutation is made.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::response::Response;
use counterfoil_core::call::undo_key;
use counterfoil_core::request::Stored;
use counterfoil_core::{Effect, EffectKey, State, Tenant};
use counterfoil_runtime::{Answer, OperateError, Operator, Runtime};

use metrics_exporter_prometheus::PrometheusHandle;
use tokio::time::sleep;

use crate::admin::Backups;
use crate::ask::Ask;
use crate::call::answered;
use crate::problem::{Problem, in_flight};
use crate::requests::{Asked, Requests, Turn, respond};
use crate::tools::Registrar;
use crate::who::Who;

pub struct App {
    pub runtime: Runtime,
    pub requests: Requests,
    pub registrar: Registrar,
    pub limits: Limits,
    /// The tenant of the config: what concerns the whole ledger is its business.
    pub operator: Tenant,
    pub backups: Option<Backups>,
    pub metrics: Option<PrometheusHandle>,
    /// True once the server is to end: what would go on for ever ends then.
    pub stopping: tokio::sync::watch::Receiver<bool>,
    /// Says what is wrong with the store, if anything is.
    pub store_present: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
    /// What the store could lose although it was acknowledged.
    pub store_risks: Arc<dyn Fn() -> Vec<String> + Send + Sync>,
}

/// Bounds of one connection and one request.
#[derive(Debug, Clone)]
pub struct Limits {
    pub head_within: Duration,
    pub body_within: Duration,
    /// After this the client is told to ask again; the work goes on.
    pub answer_within: Duration,
    pub connections_max: usize,
    pub head_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_within: Duration::from_secs(30),
            body_within: Duration::from_secs(30),
            answer_within: Duration::from_secs(600),
            connections_max: 4096,
            head_bytes_max: 64 << 10,
        }
    }
}

impl App {
    /// An effect of the asker's tenant. Another tenant's is not found, like one that never was.
    pub async fn effect(&self, who: &Who, key: EffectKey) -> Result<Effect, OperateError> {
        let effect = self.runtime.effect(key).await?;
        match effect.latest() {
            Some(opened) if opened.tenant == who.tenant => Ok(effect),
            _ => Err(OperateError::NotFound(key)),
        }
    }

    pub fn operator(&self, who: &Who, why: Option<String>) -> Operator {
        Operator::new(who.caller.as_str(), why.unwrap_or_default())
    }

    /// A change that is one append: the change, the record of the request and its answer hold or fall together.
    pub async fn change<F>(
        self: &Arc<Self>,
        ask: &Ask,
        operator: Operator,
        act: impl Fn(Operator) -> F,
        shown: fn(&Effect) -> Stored,
    ) -> Result<Response, Problem>
    where
        F: Future<Output = Result<Effect, OperateError>>,
    {
        let Some(asked) = ask.asked() else { return Ok(respond(shown(&act(operator).await?), false)) };
        let _active = self.requests.begin(&asked).ok_or_else(in_flight)?;
        loop {
            let asked = match self.requests.look(asked.clone()).await? {
                Turn::Replay(stored) => return Ok(respond(stored, true)),
                Turn::Go(asked) | Turn::GoOn(asked) => asked,
            };
            let app = self.clone();
            let beside = operator.clone().beside(move |after| vec![app.requests.answered(&asked, &shown(after))]);
            match act(beside).await {
                Ok(effect) => return Ok(respond(shown(&effect), false)),
                Err(OperateError::Beside) => continue,
                Err(error) => return self.unless_answered(ask, error).await,
            }
        }
    }

    /// A change after which the effect is driven on: begun in one append with the change, answered when the drive has ended.
    /// `go_on` is what is left to do when whoever began it is gone.
    pub async fn run<F, G>(
        self: &Arc<Self>,
        ask: &Ask,
        operator: Operator,
        act: impl Fn(Operator) -> F,
        go_on: impl Fn() -> G,
    ) -> Result<Response, Problem>
    where
        F: Future<Output = Result<Answer, OperateError>>,
        G: Future<Output = Result<Answer, OperateError>>,
    {
        ask.required_key()?;
        let Some(asked) = ask.asked() else { unreachable!("it has a key") };
        let _active = self.requests.begin(&asked).ok_or_else(in_flight)?;
        loop {
            let (answer, asked) = match self.requests.look(asked.clone()).await? {
                Turn::Replay(stored) => return Ok(respond(stored, true)),
                // The change is made; what it began goes on under the effect's own key.
                Turn::GoOn(asked) => (go_on().await?, asked),
                Turn::Go(asked) => {
                    let (app, pending) = (self.clone(), asked.clone());
                    let beside = operator.clone().beside(move |_| vec![app.requests.pending(&pending)]);
                    match act(beside).await {
                        Ok(answer) => (answer, asked.begun()),
                        Err(OperateError::Beside) => continue,
                        Err(error) => return self.unless_answered(ask, error).await,
                    }
                }
            };
            let stored = answered(&answer)?;
            if self.requests.store(&asked, &stored).await? {
                return Ok(respond(stored, false));
            }
        }
    }

    /// Drives a recorded effect on, or gives its recorded answer.
    pub async fn resumed(&self, key: EffectKey) -> Result<Answer, OperateError> {
        let effect = self.runtime.effect(key).await?;
        let tool = effect.opened.as_ref().map(|opened| opened.tool.to_string()).unwrap_or_default();
        self.runtime.resume(key).await?.ok_or(OperateError::UnknownTool(tool))
    }

    /// The same for its undo.
    pub async fn undo_resumed(&self, key: EffectKey) -> Result<Answer, OperateError> {
        match self.runtime.effect(key).await?.state {
            State::Undoing { .. } => self.resumed(key).await,
            _ => self.resumed(undo_key(&key)).await,
        }
    }

    /// Refused, unless another request with the same key has just done it.
    pub async fn unless_answered(&self, ask: &Ask, error: impl Into<Problem>) -> Result<Response, Problem> {
        if let Some(asked) = ask.asked()
            && let Turn::Replay(stored) = self.requests.look(asked).await?
        {
            return Ok(respond(stored, true));
        }
        Err(error.into())
    }

    /// A change of streams that are not effects: `change` gives the writes and the answer, from what the streams hold now.
    pub async fn write<F>(self: &Arc<Self>, ask: &Ask, change: impl Fn() -> F) -> Result<Response, Problem>
    where
        F: Future<Output = Result<(Vec<counterfoil_store::Write>, Stored), Problem>>,
    {
        let asked = ask.asked();
        let _active = asked.as_ref().map(|asked| self.requests.begin(asked).ok_or_else(in_flight)).transpose()?;
        loop {
            let asked: Option<Asked> = match &asked {
                None => None,
                Some(asked) => match self.requests.look(asked.clone()).await? {
                    Turn::Replay(stored) => return Ok(respond(stored, true)),
                    Turn::Go(asked) | Turn::GoOn(asked) => Some(asked),
                },
            };
            let (mut writes, stored) = change().await?;
            writes.extend(asked.map(|asked| self.requests.answered(&asked, &stored)));
            if writes.is_empty() {
                return Ok(respond(stored, false));
            }
            match self.runtime.ledger().append(writes).await {
                Err(counterfoil_runtime::ledger::LedgerError::Conflict) => continue,
                Err(error) => return Err(error.into()),
                Ok(()) => return Ok(respond(stored, false)),
            }
        }
    }
}

/// What comes of `work` if it takes no longer than `limit`. A timer is made only for what is not ready at once, which most is.
pub async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let mut timer = None;
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => timer.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(context).map(|()| None),
    })
    .await
}

/// Work that goes on when its client goes away.
pub async fn undropped(work: impl Future<Output = Result<Response, Problem>> + Send + 'static) -> Result<Response, Problem> {
    match tokio::spawn(work).await {
        Ok(answer) => answer,
        Err(error) => {
            tracing::error!(%error, "a handler panicked");
            let detail = "this program failed; whether anything was changed, the same request with the same Idempotency-Key will tell";
            Err(Problem::new(http::StatusCode::INTERNAL_SERVER_ERROR, "internal_error", detail))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_late_is_not_waited_for_and_what_is_ready_needs_no_time() {
        assert_eq!(within(Duration::ZERO, async { 1 }).await, Some(1));
        assert_eq!(within(Duration::from_millis(1), std::future::pending::<u8>()).await, None);
        let (told, tell) = tokio::sync::oneshot::channel();
        let soon = tokio::spawn(within(Duration::from_secs(60), tell));
        told.send(2).expect("it is waited for");
        assert_eq!(soon.await.expect("it does not panic"), Some(Ok(2)));
    }
}
