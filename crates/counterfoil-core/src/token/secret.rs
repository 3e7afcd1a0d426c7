//! The text that a caller presents, and the id by which people speak of it.
//!
//! What was presented is taken exactly as it was shown, or not at all, and no input costs more than a token does. Neither an error nor a log line
//! ever repeats it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::ids::{Digest32, StreamId};

const PREFIX: &str = "cf_";
/// Hex digits of an id. 48 bits: enough that ids of one ledger do not meet, short enough to be typed.
pub const ID_DIGITS: usize = 12;
const SECRET_DIGITS: usize = 64;
/// `cf_`, the id, `_`, the secret. All tokens are this long.
pub const SECRET_CHARS: usize = PREFIX.len() + ID_DIGITS + 1 + SECRET_DIGITS;

/// Names a token in lists, logs and on the command line. Public: it is also the beginning of the secret's text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(pub [u8; ID_DIGITS / 2]);

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        f.pad(&digits)
    }
}
impl fmt::Debug for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl FromStr for TokenId {
    type Err = NotAToken;
    fn from_str(text: &str) -> Result<Self, NotAToken> {
        if text.len() != ID_DIGITS || !lower_hex(text) {
            return Err(NotAToken);
        }
        let mut id = [0; ID_DIGITS / 2];
        for (byte, at) in id.iter_mut().zip((0..ID_DIGITS).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| NotAToken)?;
        }
        Ok(Self(id))
    }
}
impl Serialize for TokenId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}
impl<'de> Deserialize<'de> for TokenId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Says nothing of what it was given: that may be a secret with a slip in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("this is not a token of Counterfoil: one is cf_, {ID_DIGITS} hex digits, _ and {SECRET_DIGITS} hex digits, all lower case")]
pub struct NotAToken;

/// The text that its holder presents. Whoever has it is its caller: it is shown only where `reveal` is written.
#[derive(Clone)]
pub struct Secret {
    id: TokenId,
    text: String,
}

impl Secret {
    /// `random` must be unguessable; the core has no randomness of its own.
    pub fn new(id: TokenId, random: [u8; 32]) -> Self {
        Self { id, text: format!("{PREFIX}{id}_{}", Digest32(random)) }
    }

    /// Of what a caller presented: exactly as it was shown, or not at all. The length is looked at first, so no input costs more than a token does.
    pub fn parse(presented: &str) -> Result<Self, NotAToken> {
        if presented.len() != SECRET_CHARS {
            return Err(NotAToken);
        }
        let (id, random) = presented.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_')).ok_or(NotAToken)?;
        if random.len() != SECRET_DIGITS || !lower_hex(random) {
            return Err(NotAToken);
        }
        Ok(Self { id: id.parse()?, text: presented.to_owned() })
    }

    pub fn id(&self) -> TokenId {
        self.id
    }

    /// SHA-256 of the whole text: all that is ever kept of it.
    pub fn digest(&self) -> Digest32 {
        Digest32::of(self.text.as_bytes())
    }

    /// Where the token's record is.
    pub fn stream(&self) -> StreamId {
        StreamId::token(&self.digest())
    }

    /// The secret itself. For its holder, once.
    pub fn reveal(&self) -> &str {
        &self.text
    }
}
impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}_…", self.id)
    }
}
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn lower_hex(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: TokenId = TokenId([0x00, 0x12, 0xab, 0xcd, 0xef, 0xff]);

    fn secret() -> Secret {
        Secret::new(ID, [0x5a; 32])
    }

    #[test]
    fn a_token_is_read_as_it_was_shown() {
        let secret = secret();
        assert_eq!(secret.reveal(), format!("cf_0012abcdefff_{}", "5a".repeat(32)));
        assert_eq!(secret.reveal().len(), SECRET_CHARS);
        let parsed = Secret::parse(secret.reveal()).unwrap();
        assert_eq!((parsed.id(), parsed.digest(), parsed.stream()), (ID, secret.digest(), secret.stream()));
        assert_eq!(ID.to_string().parse(), Ok(ID));
        assert_eq!(secret.digest(), Digest32::of(secret.reveal().as_bytes()));
    }

    #[test]
    fn an_id_is_shown_as_it_is_read() {
        let text = &"0123456789abcdef"[..ID_DIGITS];
        let id: TokenId = text.parse().unwrap();
        assert_eq!((format!("{id}").as_str(), format!("{id:?}").as_str()), (text, text));
    }

    #[test]
    fn nothing_shows_it_but_reveal() {
        let secret = secret();
        for shown in [format!("{secret}"), format!("{secret:?}"), format!("{:#?}", Some(&secret)), format!("{secret:>100}")] {
            assert!(!shown.contains("5a5a") && shown.contains("cf_0012abcdefff_"), "{shown}");
        }
    }

    #[test]
    fn the_digest_is_of_all_of_it() {
        let other_id = Secret::new(TokenId([9; 6]), [0x5a; 32]);
        let other_random = Secret::new(ID, [0x5b; 32]);
        assert_ne!(other_id.stream(), secret().stream());
        assert_ne!(other_random.stream(), secret().stream());
    }

    #[test]
    fn anything_else_is_refused_and_not_repeated() {
        let good = secret().reveal().to_owned();
        let mut bad: Vec<String> = ["", "cf_", "cf", "_", "Bearer", "0012abcdefff", "\0", "é"].map(str::to_owned).to_vec();
        bad.extend([good.to_uppercase(), format!("{good} "), format!(" {good}"), format!("{good}\n"), format!("Bearer {good}")]);
        bad.extend([good.replacen("cf_", "cg_", 1), good.replacen("cf_", "cf-", 1), good.replace('_', "0"), good.replace("5a", "5A")]);
        // As long as a token, with characters of more than one byte across each border.
        bad.extend((1..SECRET_CHARS - 1).map(|at| format!("{}é{}", &good[..at], &good[at + 2..])));
        bad.extend((0..SECRET_CHARS).map(|cut| good[..cut].to_owned()));
        bad.extend((0..SECRET_CHARS).map(|at| format!("{}g{}", &good[..at], &good[at + 1..])));
        bad.push("cf_".repeat(1 << 20));
        for text in &bad {
            let refused = Secret::parse(text).expect_err(text);
            assert!(!format!("{refused} {refused:?}").contains("5a5a"));
        }
        for text in ["", "0012abcdeff", "0012abcdefff0", "0012ABCDEFFF", "0012abcdeffg", "+012abcdefff", "é012abcdeff"] {
            assert_eq!(text.parse::<TokenId>(), Err(NotAToken), "{text}");
        }
    }
}
