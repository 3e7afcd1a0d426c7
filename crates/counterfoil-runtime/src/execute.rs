//! The one place that touches the outside world.
//!
//! `attempt` needs a permit: no claim, no dispatch. It adds what a tool cannot be trusted with: the timeout and the isolation of
//! panics. Both end in `Unknown`, because a tool that was stopped in the middle may have acted.

use std::any::Any;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::task::Poll;
use std::time::Duration;

use counterfoil_core::run::confirm::Finding;
use counterfoil_core::{Failure, Outcome, Timestamp};
use futures_util::FutureExt;
use tokio::time::Instant;

use crate::ledger::Permit;
use crate::tool::{Invocation, ProbeAnswer, Recorded, Tool, ToolFuture};

/// Runs one attempt of a recorded effect.
pub fn attempt<'a>(permit: &Permit, now: Timestamp, tool: &'a dyn Tool, invocation: Invocation) -> impl Future<Output = Outcome> + use<'a> {
    let dispatched = permit.holds(now).then(|| Dispatched::now(tool, invocation));
    async move {
        match dispatched {
            Some(dispatched) => dispatched.outcome().await,
            None => Outcome::NotDone(Failure {
                retriable: true,
                ..Failure::new("permit_lost", "the permit was lost before the tool was called")
            }),
        }
    }
}

/// Runs a pure tool, or any tool when the ledger was switched off on purpose. Nothing is recorded.
pub fn unrecorded(tool: &dyn Tool, invocation: Invocation) -> impl Future<Output = Outcome> {
    Dispatched::now(tool, invocation).outcome()
}

/// Asks the world. Whatever goes wrong with the asking means "cannot tell".
pub async fn probe(tool: &dyn Tool, invocation: Invocation, timeout: Duration) -> ProbeAnswer {
    let asking = AssertUnwindSafe(async { tool.probe(invocation).await }).catch_unwind();
    match tokio::time::timeout(timeout, asking).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(panic)) => ProbeAnswer::CannotTell(format!("the probe panicked: {}", panic_text(&*panic))),
        Err(_) => ProbeAnswer::CannotTell(format!("the probe did not answer within {timeout:?}")),
    }
}

/// Asks the world whether it still agrees. Whatever goes wrong with the asking means that it could not be asked.
pub async fn verify(tool: &dyn Tool, invocation: Invocation, recorded: Recorded) -> Finding {
    let timeout = invocation.timeout;
    let asking = AssertUnwindSafe(async { tool.verify(invocation, recorded).await }).catch_unwind();
    let why = match tokio::time::timeout(timeout, asking).await {
        Ok(Ok(finding)) => return finding,
        Ok(Err(panic)) => format!("the verifier panicked: {}", panic_text(&*panic)),
        Err(_) => format!("the verifier did not answer within {timeout:?}"),
    };
    Finding::Unavailable { why }
}

/// A tool that was called, before it is waited for.
struct Dispatched<'a> {
    /// Or how it panicked before its first await.
    running: std::thread::Result<ToolFuture<'a, Outcome>>,
    timeout: Duration,
    /// Of when it was called: what a tool does before it first waits is a part of the attempt. `None`: never.
    until: Option<Instant>,
}

impl<'a> Dispatched<'a> {
    fn now(tool: &'a dyn Tool, invocation: Invocation) -> Self {
        let timeout = invocation.timeout;
        let until = Instant::now().checked_add(timeout);
        Self { running: std::panic::catch_unwind(AssertUnwindSafe(|| tool.invoke(invocation))), timeout, until }
    }

    async fn outcome(self) -> Outcome {
        let timeout = self.timeout;
        let ended = match (self.running.map(|running| AssertUnwindSafe(running).catch_unwind()), self.until) {
            (Ok(mut running), until) => match (poll_fn(|context| Poll::Ready(running.poll_unpin(context))).await, until) {
                // It had nothing to wait for: then neither has a timer.
                (Poll::Ready(ended), _) => Ok(ended),
                // A timer looks at the tool first. One whose time is over already goes no further: it might begin something.
                (Poll::Pending, Some(until)) if until <= Instant::now() => Err(()),
                (Poll::Pending, Some(until)) => tokio::time::timeout_at(until, running).await.map_err(drop),
                (Poll::Pending, None) => Ok(running.await),
            },
            (Err(panic), _) => Ok(Err(panic)),
        };
        match ended {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(panic)) => Outcome::Unknown(Failure::new("tool_panicked", format!("the tool panicked: {}", panic_text(&*panic)))),
            Err(()) => Outcome::Unknown(Failure::of_dependency("timeout", format!("no answer within {timeout:?}"))),
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use counterfoil_core::ids::Digest32;
    use counterfoil_core::{CanonicalJson, Json, Success, Tenant, ToolName};

    use super::*;
    use crate::tool::Stop;

    const TIMEOUT: Duration = Duration::from_secs(2);

    /// Takes longer than its time before it first waits, and then less.
    struct Blocks;

    impl Tool for Blocks {
        fn invoke(&self, _: Invocation) -> ToolFuture<'_, Outcome> {
            std::thread::sleep(TIMEOUT);
            Box::pin(async {
                tokio::time::sleep(TIMEOUT * 9 / 10).await;
                Outcome::Done(Success::new(Json::null()))
            })
        }
    }

    /// Takes all of its time when it is first looked at, and would act when it is looked at again.
    struct ActsLate(Arc<AtomicBool>);

    impl Tool for ActsLate {
        fn invoke(&self, _: Invocation) -> ToolFuture<'_, Outcome> {
            Box::pin(async {
                std::thread::sleep(TIMEOUT);
                tokio::task::yield_now().await;
                self.0.store(true, Ordering::SeqCst);
                Outcome::Done(Success::new(Json::null()))
            })
        }
    }

    #[tokio::test]
    async fn nothing_begins_after_its_time() {
        let acted = Arc::new(AtomicBool::new(false));
        let outcome = unrecorded(&ActsLate(acted.clone()), invocation()).await;
        assert!(matches!(&outcome, Outcome::Unknown(failure) if failure.code == "timeout"), "{outcome:?}");
        assert!(!acted.load(Ordering::SeqCst));
    }

    /// A probe believes "it did not happen" once the time of an attempt is over: nothing may begin after that.
    #[tokio::test]
    async fn what_a_tool_does_before_it_waits_is_in_its_time() {
        let outcome = unrecorded(&Blocks, invocation()).await;
        assert!(matches!(&outcome, Outcome::Unknown(failure) if failure.code == "timeout"), "{outcome:?}");
    }

    fn invocation() -> Invocation {
        Invocation {
            tool: ToolName::new("blocks").unwrap(),
            tenant: Tenant::new("acme").unwrap(),
            key: Digest32::of(b"key"),
            attempt: 1,
            run: None,
            args: CanonicalJson::empty_object(),
            timeout: TIMEOUT,
            result_bytes_max: 1 << 20,
            stop: Stop::default(),
            trace: None,
        }
    }
}
