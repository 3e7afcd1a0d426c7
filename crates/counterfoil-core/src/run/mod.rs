//! Runs: many effects that are one thing.

pub mod plan;
