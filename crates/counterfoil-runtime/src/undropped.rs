//! A future that goes on by itself when whoever awaits it goes away.
//!
//! Polled in place as long as it is awaited, so a call costs no task of its own; handed to the runtime when it is dropped half-way, so a caller that
//! disconnects neither stops an attempt nor leaves a claim behind.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tracing::Instrument;

use crate::reports::Reports;

/// Boxed by whoever makes it: a call's is large, and each hand that it goes through would copy it.
type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Where what nobody awaits any more goes on: the Tokio runtime, and a count of it.
pub struct Beyond {
    pub handle: Handle,
    pub going_on: Reports,
}

pub struct Undropped<T: Send + 'static> {
    future: Option<Boxed<T>>,
    beyond: Arc<Beyond>,
}

impl<T: Send + 'static> Undropped<T> {
    pub fn new(beyond: Arc<Beyond>, future: Boxed<T>) -> Self {
        Self { future: Some(future), beyond }
    }

    /// `apart`: as a task of its own from the beginning. For what holds something that others wait for: a caller that does not poll
    /// its future for a while would hold them up.
    pub fn polled(apart: bool, beyond: Arc<Beyond>, future: Boxed<T>) -> Self {
        if !apart {
            return Self::new(beyond, future);
        }
        let task = beyond.handle.spawn(future.in_current_span());
        let waiting = Box::pin(async move {
            match task.await {
                Ok(value) => value,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                // The Tokio runtime has ended, which must live as long as this.
                Err(_) => std::future::pending().await,
            }
        });
        Self::new(beyond, waiting)
    }
}

impl<T: Send + 'static> Future for Undropped<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let future = self.future.as_mut().expect("not polled again after it was ready");
        let polled = future.as_mut().poll(context);
        if polled.is_ready() {
            self.future = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Undropped<T> {
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            // Dropped within its caller's span: what it goes on to do is still told there.
            let going_on = self.beyond.going_on.begin();
            let ending = async move {
                drop(future.await);
                drop(going_on);
            };
            self.beyond.handle.spawn(ending.in_current_span());
        }
    }
}
