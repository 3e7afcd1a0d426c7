//! Records that can be forgotten: stored under the key of whom they are about, and unreadable once that key is gone.
//!
//! `2{"subject":"…","nonce":"…","veiled":"…"}`: the ordinary stored form (see [`crate::codec`]), encrypted with XChaCha20-Poly1305. Stream and
//! version are authenticated with it, so a veiled record is good in its own place alone. The subject is named by the stream of its key, which tells
//! nobody who it is.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::ids::{Digest32, StreamId, Tenant};
use crate::json_text;
use crate::summary::{StreamKind, Summary};
use crate::time::Timestamp;

/// The version character of a veiled record.
pub const VERSION: char = '2';

pub const NONCE_BYTES: usize = 24;

/// What the records about one subject are stored under.
#[derive(Clone, PartialEq, Eq)]
pub struct Veil {
    /// The stream of its key.
    pub subject: StreamId,
    key: [u8; 32],
}

/// The only record of a subject's stream. Whoever destroys it has erased the subject.
#[derive(Serialize, Deserialize)]
pub struct SubjectKey {
    pub at: Timestamp,
    pub key: Digest32,
}

/// What is left of a subject: that its key was destroyed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Erased {
    pub at: Timestamp,
    pub by: String,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum VeilError {
    #[error("the veiled record cannot be read: {0}")]
    Malformed(String),
    #[error("the veiled record was changed, or is not in its own place, or is not this subject's")]
    Refused,
}

#[derive(Serialize, Deserialize)]
struct Veiled {
    subject: Digest32,
    nonce: String,
    veiled: String,
}

/// Whether a stored record is veiled.
pub fn is_veiled(body: &str) -> bool {
    body.starts_with(VERSION)
}

/// The stream of the key under which the record is stored. `None`: it is not veiled.
pub fn subject_of(body: &str) -> Result<Option<StreamId>, VeilError> {
    if !is_veiled(body) {
        return Ok(None);
    }
    parsed(body).map(|veiled| Some(StreamId(veiled.subject.0)))
}

fn parsed(body: &str) -> Result<Veiled, VeilError> {
    let json = body.strip_prefix(VERSION).ok_or_else(|| VeilError::Malformed("it is not veiled".into()))?;
    serde_json::from_str(json).map_err(|error| VeilError::Malformed(error.to_string()))
}

/// Where a record stands: what it is authenticated with.
fn place(stream: &StreamId, version: u64) -> [u8; 40] {
    let mut place = [0; 40];
    place[..32].copy_from_slice(&stream.0);
    place[32..].copy_from_slice(&version.to_be_bytes());
    place
}

impl Veil {
    pub fn new(subject: StreamId, key: &SubjectKey) -> Self {
        Self { subject, key: key.key.0 }
    }

    /// The stored form of `body` as the record `version` of `stream`. The nonce is never used again.
    pub fn cover(&self, stream: &StreamId, version: u64, nonce: [u8; NONCE_BYTES], body: &str) -> String {
        let payload = Payload { msg: body.as_bytes(), aad: &place(stream, version) };
        let veiled = self.cipher().encrypt(&XNonce::from(nonce), payload).expect("a record is far shorter than the cipher's limit");
        let veiled = Veiled { subject: Digest32(self.subject.0), nonce: BASE64.encode(nonce), veiled: BASE64.encode(veiled) };
        let mut out = String::with_capacity(veiled.veiled.len() + 160);
        out.push(VERSION);
        json_text::append(&veiled, &mut out).expect("plain text");
        out
    }

    /// What was covered, byte for byte.
    pub fn uncover(&self, stream: &StreamId, version: u64, stored: &str) -> Result<String, VeilError> {
        let veiled = parsed(stored)?;
        let bytes = |text: &str| BASE64.decode(text).map_err(|error| VeilError::Malformed(error.to_string()));
        let nonce = <[u8; NONCE_BYTES]>::try_from(bytes(&veiled.nonce)?)
            .map_err(|other| VeilError::Malformed(format!("its nonce has {} bytes", other.len())))?;
        if veiled.subject.0 != self.subject.0 {
            return Err(VeilError::Refused);
        }
        let payload = Payload { msg: &bytes(&veiled.veiled)?, aad: &place(stream, version) };
        let body = self.cipher().decrypt(&XNonce::from(nonce), payload).map_err(|_| VeilError::Refused)?;
        String::from_utf8(body).map_err(|error| VeilError::Malformed(error.to_string()))
    }

    /// A digest of something personal, for where all may read it: nobody can try guesses against it without the key.
    pub fn blind(&self, digest: &Digest32) -> Digest32 {
        Digest32::of_fields("counterfoil/blind/1", &[&self.key, &digest.0])
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(&self.key.into())
    }
}

impl fmt::Debug for Veil {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Veil({})", self.subject)
    }
}

impl SubjectKey {
    pub fn summary(tenant: Tenant) -> Summary {
        Summary { kind: StreamKind::Subject, tenant, state: "", tool: None, run: None, open: false, due: None, expires: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redact::Salt;

    /// Made once, with this code.
    const STORED: &str = r#"2{"subject":"d94d142999ca977e6d6da5b5fc11682676d81531f0fc850b11440b309bab692c","nonce":"CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJ","veiled":"NLQh39MI5XjlL3SrA52/XgysWJYirChDJpTS4cwb14nxU2n/v+T/m7tCmWIyGWQZfqoPNNW6z7V6"}"#;
    const BODY: &str = r#"1[{"opened":{"args":{"customer":"ada"}}}]"#;

    fn veil(subject: &str, key: &[u8]) -> Veil {
        let stream = StreamId::subject(&Salt([7; 32]), &Tenant::new("acme").unwrap(), subject);
        Veil::new(stream, &SubjectKey { at: Timestamp(1), key: Digest32::of(key) })
    }

    fn stream() -> StreamId {
        StreamId(Digest32::of(b"stream").0)
    }

    #[test]
    fn a_veil_is_shown_without_its_key() {
        let veil = veil("ada", b"key");
        assert_eq!(format!("{veil:?}"), format!("Veil({})", veil.subject));
    }

    #[test]
    fn what_was_covered_comes_back_byte_for_byte_and_shows_nothing_meanwhile() {
        let ada = veil("ada", b"key");
        let stored = ada.cover(&stream(), 3, [9; 24], BODY);
        assert!(is_veiled(&stored) && !stored.contains("ada") && !stored.contains("opened"), "{stored}");
        assert_eq!(subject_of(&stored), Ok(Some(ada.subject)));
        assert_eq!(ada.uncover(&stream(), 3, &stored).as_deref(), Ok(BODY));
        assert_eq!(subject_of(BODY), Ok(None));
        assert_ne!(ada.cover(&stream(), 3, [8; 24], BODY), stored);
    }

    /// Another place, another key, another subject, another byte.
    #[test]
    fn a_veiled_record_is_good_in_its_own_place_alone() {
        let ada = veil("ada", b"key");
        let stored = ada.cover(&stream(), 3, [9; 24], BODY);
        assert_eq!(ada.uncover(&stream(), 4, &stored), Err(VeilError::Refused));
        assert_eq!(ada.uncover(&StreamId([1; 32]), 3, &stored), Err(VeilError::Refused));
        assert_eq!(veil("ada", b"another").uncover(&stream(), 3, &stored), Err(VeilError::Refused));
        assert_eq!(veil("bob", b"key").uncover(&stream(), 3, &stored), Err(VeilError::Refused));
        for at in 1..stored.len() {
            let mut edited = stored.clone().into_bytes();
            edited[at] = if edited[at] == b'Z' { b'Y' } else { b'Z' };
            let edited = String::from_utf8(edited).unwrap();
            assert!(ada.uncover(&stream(), 3, &edited).is_err(), "byte {at} can be changed: {edited}");
        }
        assert!(ada.uncover(&stream(), 3, BODY).is_err());
    }

    /// Records that were written stay readable.
    #[test]
    fn the_stored_form_does_not_change() {
        let stored = veil("ada", b"key").cover(&stream(), 3, [9; 24], BODY);
        assert_eq!(stored, STORED);
    }

    #[test]
    fn a_blinded_digest_needs_the_key() {
        let digest = Digest32::of(b"guess me");
        let blinded = veil("ada", b"key").blind(&digest);
        assert_eq!(blinded, veil("ada", b"key").blind(&digest));
        assert!(blinded != digest && blinded != veil("ada", b"another").blind(&digest));
    }

    #[test]
    fn a_stream_does_not_tell_its_subject() {
        let (acme, other) = (Tenant::new("acme").unwrap(), Tenant::new("other").unwrap());
        let stream = StreamId::subject(&Salt([7; 32]), &acme, "ada");
        assert_ne!(stream, StreamId::subject(&Salt([8; 32]), &acme, "ada"));
        assert_ne!(stream, StreamId::subject(&Salt([7; 32]), &other, "ada"));
        assert_ne!(StreamId::erased(&acme, &stream), StreamId::erased(&other, &stream));
        assert!(!format!("{:?}", veil("ada", b"key")).contains(&Digest32::of(b"key").to_string()));
    }
}
