//! For tests alone: was a recorded history of concurrent operations one that a single, atomic ledger could have given?
//!
//! A test takes a [`workload::Workload`], lets many clients carry it out, notes what they saw with a [`Recorder`], and hands the history
//! to [`check`] with a model of what one key promises ([`resource`], [`invocation`]). [`corpus`] is the other half: requests that must
//! be refused. Nothing here knows HTTP clients, servers or ledgers: the models are independent of the code they judge, and must stay so.

pub mod checker;
pub mod corpus;
pub mod history;
pub mod invocation;
pub mod model;
pub mod recorder;
pub mod resource;
pub mod rng;
pub mod workload;

pub use checker::{Limit, Verdict, check};
pub use history::{Moment, Operation, Text};
pub use invocation::Invocation;
pub use model::Model;
pub use recorder::Recorder;
pub use resource::Resource;
pub use rng::Rng;
