//! Whole ledgers: carried between SQLite, PostgreSQL and Redis, checked, backed up and restored. The servers are the tests' own.

mod checks;
mod copies;
mod ledger;
mod restores;
