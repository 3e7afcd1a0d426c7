//! A file of evidence, whichever it is: a bundle, a proof of one receipt, a proof that two heads are of one log, or a head.

use std::borrow::Cow;

use counterfoil_core::receipt::Receipt;
use serde::{Deserialize, Serialize};

use crate::bundle::{self, Verified};
use crate::fault::Fault;
use crate::head::Head;
use crate::keys::PublicKey;
use crate::proof::{CONSISTENCY_FORMAT, ConsistencyProof, RECEIPT_FORMAT, ReceiptProof};

/// What was verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    Bundle(Verified),
    Receipt { receipt: Box<Receipt>, leaf: u64, head: Head },
    Consistency { old: Head, new: Head },
}

/// Only what tells one from the other.
#[derive(Deserialize)]
struct Kind<'a> {
    #[serde(borrow, default)]
    format: Cow<'a, str>,
}

/// Whatever the bytes hold, if all of it holds.
pub fn verify(bytes: &[u8], trusted: &[PublicKey]) -> Result<Evidence, Vec<Fault>> {
    let text = String::from_utf8_lossy(bytes);
    let verified = verify_text(&text, trusted);
    if let Cow::Borrowed(_) = text {
        return verified;
    }
    // What stood in the place of the bytes that are none is another text: it does not hold either, but this says why.
    let valid = std::str::from_utf8(bytes).err().map_or(0, |error| error.valid_up_to());
    let line = 1 + bytes[..valid].iter().filter(|byte| **byte == b'\n').count() as u64;
    let mut faults = vec![Fault::new(line, "line", format!("byte {valid} of the file is not UTF-8 text"))];
    faults.extend(verified.err().into_iter().flatten());
    Err(faults)
}

fn verify_text(text: &str, trusted: &[PublicKey]) -> Result<Evidence, Vec<Fault>> {
    let unreadable = |error: serde_json::Error| vec![Fault::new(1, "line", format!("it cannot be read: {error}"))];
    let first = text.lines().next().unwrap_or_default();
    // A bundle's first line has no format of its own; what cannot be read at all is treated as one, which names the spot.
    let kind = serde_json::from_str::<Kind<'_>>(first).or_else(|_| serde_json::from_str(text));
    let format = kind.map_or_else(|_| String::new(), |kind| kind.format.into_owned());
    match format.as_str() {
        RECEIPT_FORMAT => {
            let proof: ReceiptProof<'_> = serde_json::from_str(text).map_err(unreadable)?;
            let receipt = Box::new(proof.verify(trusted)?);
            Ok(Evidence::Receipt { receipt, leaf: proof.leaf, head: proof.head })
        }
        CONSISTENCY_FORMAT => {
            let proof: ConsistencyProof<'_> = serde_json::from_str(text).map_err(unreadable)?;
            proof.verify(trusted)?;
            Ok(Evidence::Consistency { old: proof.old, new: proof.new })
        }
        _ => bundle::verify(text, trusted).map(Evidence::Bundle),
    }
}
