//! Who asks: tenant, caller and rights come from the token, never from what the request says.

use counterfoil_core::{Caller, Tenant};

use crate::problem::Problem;

/// What a token allows. Each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Ask for effects, and look at them.
    Call,
    /// Resolve, approve, cancel, undo.
    Operate,
    /// Register tools, flush, prune, back up, switch modes.
    Admin,
}

impl Right {
    pub fn word(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

#[derive(Debug, Clone)]
pub struct Who {
    pub tenant: Tenant,
    pub caller: Caller,
    pub right: Right,
}

impl Who {
    pub fn must(&self, right: Right) -> Result<(), Problem> {
        if self.right >= right {
            return Ok(());
        }
        let detail = format!("this needs the right {:?}; the token of {} has {:?}", right.word(), self.caller, self.right.word());
        Err(Problem::new(http::StatusCode::FORBIDDEN, "forbidden", detail))
    }
}
