//! Bearer tokens: who may ask over HTTP, as whom, and for what.
//!
//! The ledger holds a token's record under the digest of its secret, never the secret: that is shown once, when it is made. A presented token is
//! found by its digest, so nothing secret is ever compared and no timing tells how much of a guess was right. The secret is 32 random bytes: a plain
//! SHA-256 of it cannot be guessed back, and no slow hash is needed. The newest record of a token's stream is its whole state.

mod rights;
mod secret;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use rights::{NoSuchRight, Right, Rights};
pub use secret::{ID_DIGITS, NotAToken, SECRET_CHARS, Secret, TokenId};

use crate::ids::{Caller, Kind, Name, Tenant};
use crate::policy::Rate;
use crate::summary::{StreamKind, Summary};
use crate::time::Timestamp;

/// Tokens belong to the ledger, not to a tenant's effects: all of them are listed under this name, whosever they are.
pub const LISTED_UNDER: &str = "counterfoil";

#[derive(Debug)]
pub enum LabelKind {}
impl Kind for LabelKind {
    const WHAT: &'static str = "label";
    const ALLOWED: &'static str = "no control characters";
    fn allows(c: char) -> bool {
        !c.is_control()
    }
}
/// What people call a token.
pub type Label = Name<LabelKind>;

/// Who changed something, when, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub at: Timestamp,
    pub by: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// What the ledger knows of a token. The secret is not in it and cannot be worked out from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    pub id: TokenId,
    /// Whose effects it reaches.
    pub tenant: Tenant,
    /// Who its calls are from.
    pub caller: Caller,
    pub rights: Rights,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Label>,
    pub created: Change,
    /// From then on it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Change>,
    /// How many requests are taken from it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "stored_rate")]
    pub rate: Option<Rate>,
}

/// Why a token that exists is not let in. Its holder is told neither: whoever presents it may not be its holder.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("it was revoked by {by}")]
    Revoked { at: Timestamp, by: String },
    #[error("it expired")]
    Expired { at: Timestamp },
}

impl Token {
    pub fn admits(&self, now: Timestamp) -> Result<(), Refusal> {
        if let Some(Change { at, by, .. }) = &self.revoked {
            return Err(Refusal::Revoked { at: *at, by: by.clone() });
        }
        match self.expires {
            Some(at) if at <= now => Err(Refusal::Expired { at }),
            _ => Ok(()),
        }
    }

    pub fn allows(&self, right: Right) -> bool {
        self.rights.allow(right)
    }

    /// For people. `expired` is not stored: it is "active, and the time is up".
    pub fn state(&self, now: Timestamp) -> &'static str {
        match self.admits(now) {
            Ok(()) => "active",
            Err(Refusal::Expired { .. }) => "expired",
            Err(Refusal::Revoked { .. }) => "revoked",
        }
    }

    /// A token that is not revoked counts as open: such streams are listed without a look through the whole ledger, and are always
    /// read as they are now, also when another process has just revoked it. Records are kept: who was let in stays known.
    pub fn summary(&self) -> Summary {
        let active = self.revoked.is_none();
        Summary {
            kind: StreamKind::Token,
            tenant: listed_under(),
            state: if active { "active" } else { "revoked" },
            tool: None,
            run: None,
            open: active,
            due: None,
            expires: None,
        }
    }
}

/// The tenant of every token's summary.
pub fn listed_under() -> Tenant {
    Tenant::new(LISTED_UNDER).expect("a plain word")
}

/// `{"count":100,"per_ms":1000}`
mod stored_rate {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::policy::Rate;

    #[derive(Serialize, Deserialize)]
    struct Stored {
        count: u32,
        per_ms: u64,
    }

    pub fn serialize<S: Serializer>(rate: &Option<Rate>, s: S) -> Result<S::Ok, S::Error> {
        // At least one: a rate per no time at all would mean none.
        let per_ms = |per: Duration| u64::try_from(per.as_millis()).unwrap_or(u64::MAX).max(1);
        rate.map(|rate| Stored { count: rate.count, per_ms: per_ms(rate.per) }).serialize(s)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Rate>, D::Error> {
        let stored = Option::<Stored>::deserialize(d)?;
        Ok(stored.map(|Stored { count, per_ms }| Rate { count, per: Duration::from_millis(per_ms) }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn token() -> Token {
        Token {
            id: TokenId([1; 6]),
            tenant: Tenant::new("acme").unwrap(),
            caller: Caller::new("agent").unwrap(),
            rights: Rights::up_to(Right::Operate),
            label: None,
            created: Change { at: Timestamp::ZERO, by: "ada".into(), why: String::new() },
            expires: None,
            revoked: None,
            rate: None,
        }
    }

    #[test]
    fn a_token_is_let_in_until_it_expires_or_is_revoked() {
        let check = |token: &Token, state: &str, admits: Result<(), Refusal>| {
            assert_eq!((token.state(NOW), token.admits(NOW)), (state, admits), "{token:?}");
        };
        let revoked = Some(Change { at: Timestamp(5), by: "bob".into(), why: "leaked".into() });
        let expiring = |at| Token { expires: Some(at), ..token() };
        check(&token(), "active", Ok(()));
        check(&expiring(NOW + Duration::from_micros(1)), "active", Ok(()));
        check(&expiring(NOW), "expired", Err(Refusal::Expired { at: NOW }));
        let refused = Err(Refusal::Revoked { at: Timestamp(5), by: "bob".into() });
        check(&Token { revoked: revoked.clone(), ..token() }, "revoked", refused.clone());
        check(&Token { revoked, ..expiring(NOW) }, "revoked", refused);
    }

    #[test]
    fn a_token_allows_its_rights_and_no_others() {
        assert_eq!(Right::ALL.map(|right| token().allows(right)), [true, true, false]);
    }

    #[test]
    fn the_summary_names_no_tenant_of_its_own() {
        let active = token().summary();
        assert_eq!((active.tenant.as_str(), active.state, active.open), ("counterfoil", "active", true));
        let revoked = Token { revoked: Some(token().created), ..token() }.summary();
        assert_eq!((revoked.state, revoked.open, revoked.expires), ("revoked", false, None));
        for word in [active.state, revoked.state] {
            assert_eq!(crate::summary::state_word(word), Some(word), "a store can read it back");
        }
    }

    #[test]
    fn labels_are_any_text_on_one_line() {
        assert!(Label::new("Büro, 3. Stock").is_ok());
        for text in ["", "a\nb", "\u{1b}[31mred", "x\0"] {
            assert!(Label::new(text).is_err(), "{text:?}");
        }
    }
}
