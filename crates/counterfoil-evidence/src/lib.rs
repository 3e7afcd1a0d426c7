//! What Counterfoil proves to those who were not there.
//!
//! Receipts are the leaves of a Merkle tree ([`merkle`]), kept in tiles ([`tiles`]) under signed heads ([`head`], [`keys`]). A [`bundle`] carries
//! all that is recorded of one run or one effect with its proof; a [`proof`] carries a single receipt. Whoever has one of them and a public key can check it
//! with this crate alone: it reads no file, no clock and no ledger. The formats are in `docs/evidence.md`, for those who would rather write their own.

pub mod bundle;
pub mod ends;
pub mod fault;
pub mod file;
pub mod head;
pub mod keys;
pub mod merkle;
pub mod proof;
pub mod tiles;

pub use fault::Fault;
pub use head::Head;
pub use keys::{PublicKey, SecretKey, Signature};
