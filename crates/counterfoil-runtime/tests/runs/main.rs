//! Runs over the reference store, with a world that is counted outside the ledger.

mod beside;
mod cancelling;
mod clients;
mod confirm;
mod crashes;
mod edges;
mod functions;
mod house;
mod people;
mod resting;
mod sagas;
mod schedules;
mod steps;
