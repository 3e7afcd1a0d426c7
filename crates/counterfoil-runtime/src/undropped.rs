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

/// Boxed by whoever makes it: a call's is large, and each hand that it goes through would copy it.
type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

pub struct Undropped<T: Send + 'static> {
    future: Option<Boxed<T>>,
    handle: Arc<Handle>,
}

impl<T: Send + 'static> Undropped<T> {
    /// `handle`: of the runtime that goes on with it.
    pub fn new(handle: Arc<Handle>, future: Boxed<T>) -> Self {
        Self { future: Some(future), handle }
    }

    /// `apart`: as a task of its own from the beginning. For what holds something that others wait for: a caller that does not poll
    /// its future for a while would hold them up.
    pub fn polled(apart: bool, handle: Arc<Handle>, future: Boxed<T>) -> Self {
        if !apart {
            return Self::new(handle, future);
        }
        let task = handle.spawn(future.in_current_span());
        let waiting = Box::pin(async move {
            match task.await {
                Ok(value) => value,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                // The Tokio runtime has ended, which must live as long as this.
                Err(_) => std::future::pending().await,
            }
        });
        Self::new(handle, waiting)
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
            self.handle.spawn(async move { drop(future.await) }.in_current_span());
        }
    }
}
