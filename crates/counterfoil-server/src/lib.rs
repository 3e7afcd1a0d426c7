//! The HTTP API: a thin shell over the runtime in which every mutation is one append.
//!
//! Reading order: [`router`] (every route), [`app`] (what handlers share, and the one way in which a mutation is made), [`requests`]
//! (`Idempotency-Key`), [`ask`] (a request as a handler gets it), [`guard`] (host, origin, token), [`serve`] (connections); then one file for
//! each resource. [`openapi`] is what a client is told of all this, `docs` the same for people. Nothing here decides about effects: that is the core's, and the runtime's.

pub mod admin;
pub mod app;
pub mod ask;
mod breakers;
mod call;
mod confirm;
mod docs;
mod effects;
mod events;
pub mod guard;
mod health;
mod lend;
pub mod metrics;
mod openapi;
pub mod otlp;
pub mod problem;
pub mod receipts;
pub mod requests;
pub mod router;
mod run_changes;
mod run_clients;
mod run_events;
mod runs;
mod schedules;
pub mod serve;
pub mod tools;
pub mod who;
mod workflows;
