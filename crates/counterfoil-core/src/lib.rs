//! What a call means and what may happen next.
//!
//! Pure: no I/O, no async, no clock, no randomness. `now`, ids and jitter come in as values, so every
//! rule of the product can be tried in microseconds and the same code serves live calls, recovery
//! and simulation.
//!

pub mod canonical;
pub mod ids;
pub mod outcome;
pub mod policy;
pub mod summary;
pub mod time;

pub use canonical::{CanonicalJson, Json};
pub use ids::{Caller, EffectKey, Fence, Fingerprint, RunId, StepPath, StreamId, Tenant, ToolName, WorkerId};
pub use outcome::{Failure, Outcome, Success};
pub use policy::{EffectClass, OnInFlight, Policy, Repeat};
pub use summary::Summary;
pub use time::Timestamp;
