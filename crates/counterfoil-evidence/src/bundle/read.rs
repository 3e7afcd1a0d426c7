//! The lines of a bundle, and how they hang together. What they mean is not looked at here.
//!
//! One change is one fault, named by its own line: a line whose hash is not what the next one says was changed itself, unless it is the next one's number
//! that shows that something is missing, doubled or out of order.

use std::fmt;

use counterfoil_core::ids::Digest32;
use counterfoil_core::json_text;

use super::{Definition, Line, Manifest, Proof, ReceiptLine, RecordLine, START, Seal, Tombstone};
use crate::fault::Fault;
use crate::head::Head;

/// A line that could be read, with its number in the file.
pub struct Read<'a> {
    pub at: u64,
    /// Of the line before it, as it says.
    pub prev: Digest32,
    pub part: Part<'a>,
}

/// What a line holds. Those that are rare are boxed: a bundle has hundreds of thousands of the others.
pub enum Part<'a> {
    Manifest(Box<Manifest<'a>>),
    Definition(Box<Definition<'a>>),
    Record(RecordLine<'a>),
    Tombstone(Tombstone),
    Receipt(ReceiptLine<'a>),
    Proof(Proof),
    Head(Box<Head>),
    Seal(Box<Seal>),
}

impl<'a> Part<'a> {
    /// `Err`: how many it has, which is not one.
    fn of(line: Line<'a>) -> Result<Self, usize> {
        let Line { bundle, definition, record, tombstone, receipt, proof, head, seal, .. } = line;
        let parts = [
            bundle.map(|manifest| Self::Manifest(Box::new(manifest))),
            definition.map(|definition| Self::Definition(Box::new(definition))),
            record.map(Self::Record),
            tombstone.map(Self::Tombstone),
            receipt.map(Self::Receipt),
            proof.map(Self::Proof),
            head.map(|head| Self::Head(Box::new(head))),
            seal.map(|seal| Self::Seal(Box::new(seal))),
        ];
        let mut parts = parts.into_iter().flatten();
        match (parts.next(), parts.count()) {
            (Some(part), 0) => Ok(part),
            (part, more) => Err(usize::from(part.is_some()) + more),
        }
    }

    /// Its place among the others: parts stand in this order.
    pub fn rank(&self) -> u8 {
        match self {
            Self::Manifest(_) => 1,
            Self::Definition(_) => 2,
            Self::Record(_) => 3,
            Self::Tombstone(_) => 4,
            Self::Receipt(_) => 5,
            Self::Proof(_) => 6,
            Self::Head(_) => 7,
            Self::Seal(_) => 8,
        }
    }
}

/// As people call it.
impl fmt::Display for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manifest(_) => f.write_str("manifest"),
            Self::Definition(_) => f.write_str("definition"),
            Self::Record(record) => write!(f, "record {} of {} {}", record.version, record.of.word(), record.stream),
            Self::Tombstone(tombstone) => write!(f, "tombstone of effect {}", tombstone.effect),
            Self::Receipt(receipt) => match serde_json::from_str::<super::verify::Place>(&receipt.text) {
                Ok(place) => write!(f, "receipt {} of {}", place.seq, place.id),
                Err(_) => write!(f, "receipt at leaf {}", receipt.leaf),
            },
            Self::Proof(_) => f.write_str("proof"),
            Self::Head(_) => f.write_str("head"),
            Self::Seal(_) => f.write_str("seal"),
        }
    }
}

/// Hands each line to `take`, in their order, and gives what is wrong with how they hang together.
pub fn each<'a>(text: &'a str, mut take: impl FnMut(Read<'a>)) -> Vec<Fault> {
    let mut faults = Vec::new();
    // Of the line before: its hash, the number it gives itself, and itself.
    let (mut last, mut number, mut before) = (START, 0_u64, "");
    let whole = text.strip_suffix('\n');
    if whole.is_none() {
        faults.push(Fault::new(None, "end of the file", "the last line has no newline: the file was cut"));
    }
    for (at, text) in (1..).zip(whole.unwrap_or(text).split('\n')) {
        match serde_json::from_str::<Line<'_>>(text) {
            Err(error) => {
                faults.push(Fault::new(at, "line", format!("it cannot be read: {error}")));
                number = number.saturating_add(1);
            }
            Ok(line) => {
                // Nothing follows it that has its hash: it must have its one form.
                if line.seal.is_some() && json_text::to_string(&line).as_deref() != Ok(text) {
                    faults.push(Fault::new(at, "seal", "it is not written as it should be"));
                }
                let (said, prev) = (line.line, line.prev.0);
                match Part::of(line) {
                    Ok(part) => {
                        let next = Read { at, prev, part };
                        faults.extend(broken(&next, said, number, last, before));
                        take(next);
                    }
                    Err(parts) => faults.push(Fault::new(at, "line", format!("it has {parts} parts; each line has one"))),
                }
                number = said;
            }
        }
        (last, before) = (Digest32::of(text.as_bytes()), text);
    }
    faults
}

/// How a line, which says that it is line `found`, does not follow the one before it.
fn broken(line: &Read<'_>, found: u64, number: u64, last: Digest32, before: &str) -> Option<Fault> {
    // A file may say anything, also that it has more lines than can be counted.
    let expected = number.saturating_add(1);
    let problem = match found {
        _ if found > expected.saturating_add(1) => format!("lines {expected} to {} are missing before it", found - 1),
        _ if found > expected => format!("line {expected} is missing before it"),
        _ if found == number => format!("it is line {found} once more: it was doubled, or its number was changed"),
        _ if found < expected => format!("it is line {found}, and stands after line {number}: it was moved, or doubled"),
        _ if line.prev == last => return None,
        _ if line.at == 1 => format!("it names a line before it, and is the first: {}", line.prev),
        // The numbers are right, so it is the line before that is not what it was when this one was written; or this one names another.
        _ => {
            let part = serde_json::from_str(before).ok().and_then(|before| Part::of(before).ok());
            let part = part.map_or_else(|| "line".to_owned(), |part| part.to_string());
            let problem = format!("it was changed: its hash is {last}, and line {} says {}", line.at, line.prev);
            return Some(Fault::new(line.at - 1, part, problem));
        }
    };
    Some(Fault::new(line.at, line.part.to_string(), problem))
}
