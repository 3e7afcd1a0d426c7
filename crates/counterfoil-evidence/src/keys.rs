//! Ed25519 keys and signatures, each shown as hex digits.
//!
//! What is signed is a short text that begins with what it is, so that a signature for one thing is never one for another. Secrets come in as values: where
//! they are kept, and where their randomness is from, is the caller's. Verification is strict: a signature has one form, weak keys are none.

use std::fmt;
use std::str::FromStr;

use counterfoil_core::Timestamp;
use counterfoil_core::ids::Digest32;
use ed25519_dalek::{Signer, SigningKey, VerifyingKey};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KeyError {
    #[error("{shown:?} is not a public key: 64 hexadecimal digits")]
    NotHex { shown: String },
    #[error("{shown} is not a public key: no point of the curve, or one that signs anything")]
    NotAKey { shown: String },
    #[error("that is not a private key: 64 hexadecimal digits")]
    NotASecret,
    #[error("that is not a signature: 128 hexadecimal digits")]
    NotASignature,
}

/// Who signed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// The first 16 digits of the digest of its bytes: for people.
    pub fn id(&self) -> String {
        Digest32::of(&self.0).to_string()[..16].to_owned()
    }

    pub fn verifies(&self, message: &str, signature: &Signature) -> bool {
        let signature = ed25519_dalek::Signature::from_bytes(&signature.0);
        VerifyingKey::from_bytes(&self.0).is_ok_and(|key| key.verify_strict(message.as_bytes(), &signature).is_ok())
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Digest32(self.0).fmt(f)
    }
}
impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl FromStr for PublicKey {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<Self, KeyError> {
        let digits: Digest32 = text.parse().map_err(|_| KeyError::NotHex { shown: text.chars().take(80).collect() })?;
        let sound = VerifyingKey::from_bytes(&digits.0).is_ok_and(|key| !key.is_weak());
        sound.then_some(Self(digits.0)).ok_or_else(|| KeyError::NotAKey { shown: text.to_owned() })
    }
}
impl Serialize for PublicKey {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        Digest32(self.0).serialize(s)
    }
}
impl<'de> Deserialize<'de> for PublicKey {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// What signs. Never printed, not even for debugging.
#[derive(Clone)]
pub struct SecretKey(SigningKey);

impl SecretKey {
    /// `seed` is 32 bytes that nobody can guess.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    pub fn sign(&self, message: &str) -> Signature {
        Signature(self.0.sign(message.as_bytes()).to_bytes())
    }

    /// For the file that it is kept in, and nothing else.
    pub fn reveal(&self) -> String {
        Digest32(self.0.to_bytes()).to_string()
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the private key of {}", self.public().id())
    }
}
impl FromStr for SecretKey {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<Self, KeyError> {
        let seed: Digest32 = text.parse().map_err(|_| KeyError::NotASecret)?;
        Ok(Self::from_seed(&seed.0))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature([u8; 64]);

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, second) = self.halves();
        write!(f, "{first}{second}")
    }
}
impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl Signature {
    fn halves(&self) -> (Digest32, Digest32) {
        let half = |from: usize| Digest32(*self.0[from..].first_chunk().expect("64 bytes are twice 32"));
        (half(0), half(32))
    }
}
impl FromStr for Signature {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<Self, KeyError> {
        let digits = |half: Option<&str>| half.and_then(|half| half.parse::<Digest32>().ok()).ok_or(KeyError::NotASignature);
        let (first, second) = (digits(text.get(..64))?, digits(text.get(64..))?);
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(&first.0);
        bytes[32..].copy_from_slice(&second.0);
        Ok(Self(bytes))
    }
}
impl Serialize for Signature {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}
impl<'de> Deserialize<'de> for Signature {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A public key as its ledger records it. The key before it vouches for it, unless that one was lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Introduced {
    pub key: PublicKey,
    pub at: Timestamp,
    pub by: String,
    /// By the key before it, over [`introduction`]. The first key has none, and neither has one that follows a key that was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vouched: Option<Signature>,
}

/// What a key signs to say that another follows it.
pub fn introduction(next: &PublicKey) -> String {
    format!("counterfoil/key/1\n{next}\n")
}

/// The first key, from the second on, that the one before it does not vouch for.
pub fn first_unvouched(keys: &[Introduced]) -> Option<&Introduced> {
    let vouches =
        |old: &Introduced, new: &Introduced| new.vouched.is_some_and(|signature| old.key.verifies(&introduction(&new.key), &signature));
    keys.windows(2).find(|pair| !vouches(&pair[0], &pair[1])).map(|pair| &pair[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> SecretKey {
        SecretKey::from_seed(&[n; 32])
    }

    /// RFC 8032, test 2.
    #[test]
    fn a_known_signature() {
        let secret: SecretKey = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb".parse().unwrap();
        assert_eq!(secret.public().to_string(), "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
        let signature = secret.sign("r");
        assert_eq!(
            signature.to_string(),
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
        );
        assert!(secret.public().verifies("r", &signature));
        assert!(!secret.public().verifies("s", &signature));
        assert!(!key(1).public().verifies("r", &signature));
    }

    #[test]
    fn texts_round_trip_and_what_is_none_is_refused() {
        let signature = key(7).sign("x");
        assert_eq!(signature.to_string().parse::<Signature>(), Ok(signature));
        assert_eq!(serde_json::from_str::<Signature>(&serde_json::to_string(&signature).unwrap()).unwrap(), signature);
        let public = key(7).public();
        assert_eq!(public.to_string().parse::<PublicKey>(), Ok(public));
        assert_eq!(key(7).reveal().parse::<SecretKey>().unwrap().public(), public);
        assert_eq!(format!("{:?}", key(7)), format!("the private key of {}", public.id()));
        assert!("ab".parse::<PublicKey>().unwrap_err().to_string().contains("64 hexadecimal digits"));
        // The neutral element signs anything.
        let neutral = format!("01{}", "00".repeat(31));
        assert!(matches!(neutral.parse::<PublicKey>(), Err(KeyError::NotAKey { .. })));
        assert_eq!("é".repeat(64).parse::<Signature>(), Err(KeyError::NotASignature));
    }

    #[test]
    fn a_key_that_nobody_vouches_for_is_named() {
        let introduced = |secret: &SecretKey, vouched| Introduced { key: secret.public(), at: Timestamp(1), by: "ada".into(), vouched };
        let second = introduced(&key(2), Some(key(1).sign(&introduction(&key(2).public()))));
        let third = introduced(&key(3), Some(key(1).sign(&introduction(&key(3).public()))));
        let keys = [introduced(&key(1), None), second, third];
        assert_eq!(first_unvouched(&keys[..2]), None);
        assert_eq!(first_unvouched(&keys), Some(&keys[2]), "the first key has been followed: its word is no longer heard");
    }
}
