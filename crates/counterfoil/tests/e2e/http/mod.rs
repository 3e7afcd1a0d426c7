//! J, K and L over real HTTP: a server process, sockets, kills, and the same world that counts.

mod approvals;
mod calls;
mod crashes;
mod document;
mod operations;
mod requests;
pub mod server;
mod serving;
