//! A stack that is large enough for the parser of expressions.
//!
//! A thread has its own; work that is on one already stays there, so that a file with thousands of expressions takes one thread and not
//! thousands, one after the other.

use std::cell::Cell;

/// The parser recurses through some twenty functions for each bracket: an unoptimised build needs more than a worker's 2 MiB for 30 of them.
const STACK_BYTES: usize = 32 << 20;

thread_local! {
    /// Whether this thread was started here.
    static IS_LARGE: Cell<bool> = const { Cell::new(false) };
}

/// Does `work` on a large stack, while this thread waits. Panics as `work` does; fails where there is no thread to be had.
pub(crate) fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> std::io::Result<T> {
    if IS_LARGE.get() {
        return Ok(work());
    }
    let work = || {
        IS_LARGE.set(true);
        work()
    };
    std::thread::scope(|threads| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(threads, work)?;
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}
