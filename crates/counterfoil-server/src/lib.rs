//! The HTTP API: a thin shell over the runtime in which every mutation is one append.

pub mod otlp;
