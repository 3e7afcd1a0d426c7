//! The file that `counterfoil init` writes.
//!
//! It is the first thing a new user reads, so it teaches in the order of need and works as it stands; tests hold it, and the
//! example it leaves commented out, to the reader and to the schema for editors.

/// Small, commented, and it works as it stands: no network, no account, nothing to install.
pub const STARTER: &str = include_str!("starter.yaml");
