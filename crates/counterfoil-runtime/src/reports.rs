//! Reports that could not be recorded yet and are being brought in behind the scenes. A program that ends may wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

#[derive(Clone, Default)]
pub struct Reports(Arc<Inner>);

#[derive(Default)]
struct Inner {
    outstanding: AtomicUsize,
    one_less: Notify,
}

/// One report under way, until it is dropped.
pub struct Report(Reports);

impl Reports {
    pub fn begin(&self) -> Report {
        self.0.outstanding.fetch_add(1, Ordering::SeqCst);
        Report(self.clone())
    }

    /// Waits until none is outstanding, at most this long. False: some still are.
    pub async fn all_in(&self, within: Duration) -> bool {
        let none_left = async {
            loop {
                let changed = self.0.one_less.notified();
                if self.0.outstanding.load(Ordering::SeqCst) == 0 {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(within, none_left).await.is_ok()
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        self.0.0.outstanding.fetch_sub(1, Ordering::SeqCst);
        self.0.0.one_less.notify_waiters();
    }
}
