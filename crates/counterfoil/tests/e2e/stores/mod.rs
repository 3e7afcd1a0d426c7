//! Whole ledgers: carried between SQLite, PostgreSQL and Redis, checked, backed up and restored. The servers are the tests' own.

#[allow(dead_code, reason = "the store's own tests use the rest")]
#[path = "../../../../counterfoil-store/tests/postgres/server.rs"]
mod postgres;
#[allow(dead_code, reason = "the store's own tests use the rest")]
#[path = "../../../../counterfoil-store/tests/redis/server.rs"]
mod redis;

mod checks;
mod copies;
mod ledger;
mod restores;
