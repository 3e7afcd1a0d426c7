//! One receipt for a third party, and two heads for someone who kept the first: each is one line of JSON.
//!
//! A receipt's file says that it stands in the log at its place; nothing else of the log is in it but hashes. A consistency file says that the log of the second
//! head begins with that of the first: nothing was taken out of it, changed or put in between.

use std::borrow::Cow;

use counterfoil_core::ids::Digest32;
use counterfoil_core::receipt::Receipt;
use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::head::Head;
use crate::keys::PublicKey;
use crate::merkle::{is_consistent, leaf_hash, root_of_inclusion};

pub const RECEIPT_FORMAT: &str = "counterfoil/proof/1";
pub const CONSISTENCY_FORMAT: &str = "counterfoil/consistency/1";

/// A receipt, its place in the log, and the hashes from there up to the head's root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiptProof<'a> {
    pub format: Cow<'a, str>,
    /// As stored, byte for byte.
    pub receipt: Cow<'a, str>,
    pub leaf: u64,
    pub hashes: Vec<Digest32>,
    pub head: Head,
}

impl<'a> ReceiptProof<'a> {
    pub fn new(receipt: impl Into<Cow<'a, str>>, leaf: u64, hashes: Vec<Digest32>, head: Head) -> Self {
        Self { format: RECEIPT_FORMAT.into(), receipt: receipt.into(), leaf, hashes, head }
    }

    /// The receipt, if it is one of the log that a trusted key signed the head of.
    pub fn verify(&self, trusted: &[PublicKey]) -> Result<Receipt, Vec<Fault>> {
        let mut faults = format_fault(&self.format, RECEIPT_FORMAT);
        faults.extend(head_faults("head", &self.head, trusted));
        let root = root_of_inclusion(leaf_hash(self.receipt.as_bytes()), self.leaf, self.head.size, &self.hashes);
        if root != Some(self.head.root) {
            let found = root.map_or_else(|| "no root at all".to_owned(), |root| root.to_string());
            let problem =
                format!("it leads from the receipt, at leaf {}, to {found}; the root of the head is {}", self.leaf, self.head.root);
            faults.push(Fault::new(None, "proof", problem));
        }
        let receipt =
            serde_json::from_str(&self.receipt).map_err(|error| Fault::new(None, "receipt", format!("it cannot be read: {error}")));
        match receipt {
            Ok(receipt) if faults.is_empty() => Ok(receipt),
            receipt => Err(faults.into_iter().chain(receipt.err()).collect()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsistencyProof<'a> {
    pub format: Cow<'a, str>,
    pub old: Head,
    pub new: Head,
    pub hashes: Vec<Digest32>,
}

impl ConsistencyProof<'_> {
    pub fn new(old: Head, new: Head, hashes: Vec<Digest32>) -> Self {
        Self { format: CONSISTENCY_FORMAT.into(), old, new, hashes }
    }

    pub fn verify(&self, trusted: &[PublicKey]) -> Result<(), Vec<Fault>> {
        let mut faults = format_fault(&self.format, CONSISTENCY_FORMAT);
        faults.extend(head_faults("old head", &self.old, trusted));
        faults.extend(head_faults("new head", &self.new, trusted));
        if !is_consistent(self.old.seen(), self.new.seen(), &self.hashes) {
            let problem = format!("it does not lead from the log of {} leaves to that of {}", self.old.size, self.new.size);
            faults.push(Fault::new(None, "proof", problem));
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }
}

fn format_fault(found: &str, expected: &str) -> Vec<Fault> {
    let fault = Fault::new(None, "format", format!("it is {found:?}, and {expected:?} is expected"));
    if found == expected { Vec::new() } else { vec![fault] }
}

fn head_faults(part: &str, head: &Head, trusted: &[PublicKey]) -> Vec<Fault> {
    let mut faults = Vec::new();
    if !trusted.contains(&head.key) {
        let trusted: Vec<String> = trusted.iter().map(PublicKey::id).collect();
        faults.push(Fault::new(None, part, format!("it is by key {}, which is not one you trust ({})", head.key.id(), trusted.join(", "))));
    }
    faults.extend(head.check().err().map(|error| Fault::new(None, part, error.to_string())));
    faults
}
