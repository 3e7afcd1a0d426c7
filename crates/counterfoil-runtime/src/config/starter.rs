//! The file that `counterfoil init` writes.

/// Small, commented, and it works as it stands: no network, no account, nothing to install.
pub const STARTER: &str = include_str!("starter.yaml");
