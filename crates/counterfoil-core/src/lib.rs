//! What a call means and what may happen next.
//!
//! Pure: no I/O, no async, no clock, no randomness. `now`, ids and jitter come in as values, so every
//! rule of the product can be tried in microseconds and the same code serves live calls, recovery
//! and simulation.
//!
//! Reading order: [`ids`], [`time`], [`canonical`], [`call`], [`policy`], [`outcome`], [`entry`],
//! [`effect`] (the fold), [`decide`] (what may happen next), then [`retry`], [`breaker`], [`limit`],
//! [`receipt`], [`redact`], [`echo`], [`veil`], [`mode`], [`trace`]; [`token`] is who may ask over HTTP.

pub mod breaker;
pub mod call;
pub mod canonical;
pub mod codec;
pub mod decide;
pub mod echo;
pub mod effect;
pub mod entry;
pub mod ids;
pub mod json_text;
pub mod limit;
pub mod mode;
pub mod outcome;
pub mod policy;
pub mod receipt;
pub mod redact;
pub mod request;
pub mod retry;
pub mod run;
pub mod settled;
pub mod summary;
pub mod time;
pub mod token;
pub mod trace;
mod value;
pub mod veil;

pub use call::{Call, Identity};
pub use canonical::{CanonicalJson, Json};
pub use decide::{Conditions, Decision, decide};
pub use effect::{Effect, State};
pub use entry::Entry;
pub use ids::{Caller, EffectKey, Fence, Fingerprint, Lane, RunId, StepPath, StreamId, Tenant, ToolName, WorkerId};
pub use mode::Mode;
pub use outcome::{Failure, Outcome, StateChanged, Success};
pub use policy::{EffectClass, OnInFlight, Policy, Repeat};
pub use receipt::Receipt;
pub use summary::Summary;
pub use time::Timestamp;
pub use token::Token;
pub use trace::TraceContext;
pub use veil::Veil;
