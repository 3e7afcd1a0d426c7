//! A signed head: who signed it says that the log had so many leaves at that time, and this root.

use counterfoil_core::Timestamp;
use counterfoil_core::ids::Digest32;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::keys::{PublicKey, SecretKey, Signature};
use crate::merkle::Seen;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// How many leaves.
    pub size: u64,
    pub root: Digest32,
    pub at: Timestamp,
    pub key: PublicKey,
    pub signature: Signature,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HeadError {
    #[error(
        "the signature of the head of size {size} is not one of key {key} for it: the head was changed, or another one's signature stands there"
    )]
    NotSigned { size: u64, key: String },
}

impl Head {
    pub fn sign(secret: &SecretKey, seen: Seen, at: Timestamp) -> Self {
        let signature = secret.sign(&message(seen, at));
        Self { size: seen.size, root: seen.root, at, key: secret.public(), signature }
    }

    pub fn seen(&self) -> Seen {
        Seen { size: self.size, root: self.root }
    }

    /// Whether its key signed it. Whether that key can be trusted is for others to say.
    pub fn check(&self) -> Result<(), HeadError> {
        match self.key.verifies(&message(self.seen(), self.at), &self.signature) {
            true => Ok(()),
            false => Err(HeadError::NotSigned { size: self.size, key: self.key.id() }),
        }
    }
}

fn message(seen: Seen, at: Timestamp) -> String {
    format!("counterfoil/head/1\n{}\n{}\n{}\n", seen.size, seen.root, at.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_of_a_head_is_signed() {
        let (secret, other) = (SecretKey::from_seed(&[1; 32]), SecretKey::from_seed(&[2; 32]));
        let head = Head::sign(&secret, Seen { size: 7, root: Digest32::of(b"root") }, Timestamp(9));
        assert_eq!(head.check(), Ok(()));
        assert_eq!(serde_json::from_str::<Head>(&serde_json::to_string(&head).unwrap()).unwrap(), head);
        let changed = [
            Head { size: 8, ..head.clone() },
            Head { root: Digest32::of(b"another"), ..head.clone() },
            Head { at: Timestamp(10), ..head.clone() },
            Head { key: other.public(), ..head.clone() },
            Head { signature: Head::sign(&other, head.seen(), head.at).signature, ..head },
        ];
        for head in changed {
            assert!(head.check().is_err(), "{head:?}");
        }
    }
}
