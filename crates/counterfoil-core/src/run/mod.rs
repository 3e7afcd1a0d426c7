//! Runs: many effects that are one thing. It goes on where it stopped, undoes what it did when it fails, and can be cancelled in parts.
//!
//! Reading order: [`plan`] (which step follows which), [`entry`] (what is recorded), [`flow`] (what may start next), [`Run`] (what is known of it),
//! [`saga`] (what is to be undone), [`confirm`] (whether the world still agrees), [`schedule`] (when a workflow runs again and again), [`archived`] (what is left of one that was moved away).

pub mod archived;
pub mod behind;
pub mod confirm;
pub mod ending;
pub mod entry;
mod facts;
pub mod flow;
pub mod plan;
pub mod saga;
pub mod schedule;

pub use entry::RunEntry;
pub use facts::{APPROVAL, OWNER_LEASE, Owner, Run, RunFoldError, RunState, Step, StepState, entry_word, is_run, word};
pub use flow::Flow;
pub use schedule::Schedule;
