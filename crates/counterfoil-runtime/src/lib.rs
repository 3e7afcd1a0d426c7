//! The only crate that makes things happen.
//!
//! Reading order: [`runtime`] (`Runtime::call`, the whole story), [`ledger`] (the sole writer) and [`group`] (group commit), [`execute`] (the one
//! place that touches the world), `conclude` (what the ledger makes of an answer), [`gate`] (limits and breakers), [`recover`], [`operate`], [`flush`], [`mode`]; then [`tool`], [`spec`],
//! [`template`].

pub mod answer;
mod budget;
pub mod builder;
pub mod clock;
mod conclude;
pub mod config;
mod execute;
pub mod flush;
mod fresh;
pub mod gate;
mod group;
mod heartbeat;
pub mod ledger;
pub mod liveness;
pub mod mode;
pub mod operate;
pub mod recover;
pub mod registry;
mod reports;
pub mod runtime;
pub mod spec;
pub mod template;
pub mod tool;
pub mod tools;
mod undropped;
mod wake;

pub use answer::{Answer, AnswerError, Status};
pub use builder::Builder;
pub use clock::{Clock, SystemClock};
pub use flush::Flushed;
pub use mode::{InForce, Mode, ModeError, Modes, Shadowed, Switch, Switched};
pub use operate::{OperateError, Operator, Resolution};
pub use registry::{Registered, Schema};
pub use runtime::Runtime;
pub use tool::{FnTool, Invocation, ProbeAnswer, Tool, ToolError, UndoPlan};
