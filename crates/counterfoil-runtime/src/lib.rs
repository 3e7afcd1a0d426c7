//! The only crate that makes things happen.
//!
//! Reading order: [`runtime`] (`Runtime::call`, the whole story), [`ledger`] (the sole writer) and [`group`] (group commit), [`execute`] (the one
//! place that touches the world), `conclude` (what the ledger makes of an answer), [`gate`] (limits and breakers), [`recover`], [`operate`], [`flush`], [`verify`], [`mode`], [`lend`] (attempts that clients make), [`tokens`]; [`observe`] and `trace` (what is counted and told); then [`tool`], [`spec`],
//! [`template`].

pub mod answer;
mod budget;
pub mod builder;
pub mod clock;
mod conclude;
pub mod config;
mod doubts;
mod drive;
pub mod engine;
mod execute;
pub mod flush;
mod fresh;
pub mod gate;
mod group;
mod heartbeat;
pub mod ledger;
pub mod lend;
pub mod liveness;
pub mod log;
pub mod mode;
mod novelty;
pub mod observe;
pub mod operate;
pub mod prune;
mod quota;
pub mod recover;
pub mod register;
pub mod registry;
mod reports;
pub mod runtime;
pub mod shown;
mod silence;
pub mod spec;
mod standing;
mod stripes;
pub mod template;
pub mod tokens;
pub mod tool;
pub mod tools;
mod trace;
mod undropped;
mod unprotected;
pub mod verify;
mod wake;
pub mod workflow;

pub use answer::{Answer, AnswerError, Status};
pub use builder::{Builder, Receipts, Threads};
pub use clock::{Clock, SystemClock};
pub use flush::Flushed;
pub use fresh::unguessable;
pub use group::GATHER_WITHIN;
pub use lend::{Acquired, CommitHow, LendError, Lent, PermitId};
pub use log::{Log, LogError};
pub use mode::{InForce, Mode, ModeError, Modes, Shadowed, Switch, Switched};
pub use operate::{Beside, OperateError, Operator, Resolution};
pub use registry::{Registered, Schema};
pub use runtime::Runtime;
pub use tokens::{NewToken, TokenError, Tokens};
pub use tool::{ClientTool, FnTool, Invocation, ProbeAnswer, Recorded, Runs, Tool, ToolError, UndoPlan};
pub use trace::CallContext;
