//! J, K and L over real HTTP: a server process, sockets, kills, and the same world that counts.

mod access;
mod admin;
mod approvals;
mod bad_input;
mod calls;
mod confirms;
mod crashes;
mod document;
pub mod lend;
mod linear;
mod operations;
mod receipts;
mod requests;
mod run_changes;
mod run_clients;
mod run_refusals;
mod runs;
mod schedules;
pub mod server;
mod serving;
