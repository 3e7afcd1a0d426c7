//! Tests of the config reader that need more than one of its files.

mod actions;
mod config;
mod documents;
mod fuzz;
mod mistakes;
mod yaml;
