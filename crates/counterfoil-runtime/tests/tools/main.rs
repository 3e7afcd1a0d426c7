//! The tools against a real world: local servers, real processes, real files. Every test asserts what the world saw.

mod command;
mod file;
mod github;
mod http;
mod support;
mod verify;
mod world;
