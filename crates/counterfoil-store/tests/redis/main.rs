//! The Redis adapter against a real Redis that each test starts for itself.

mod conform;
mod server;
