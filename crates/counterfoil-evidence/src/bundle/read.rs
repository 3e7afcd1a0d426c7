//! The lines of a bundle, and how they hang together. What they mean is not looked at here.
//!
//! One change is one fault, named by its own line: a line whose hash is not what the next one says was changed itself, unless it is the next one's number
//! that shows that something is missing, doubled or out of order.

use counterfoil_core::ids::Digest32;
use counterfoil_core::json_text;

use super::{Line, START};
use crate::fault::Fault;

/// A line that could be read, with its number in the file.
pub struct Read<'a> {
    pub at: u64,
    pub line: Line<'a>,
}

pub struct Lines<'a> {
    pub read: Vec<Read<'a>>,
    pub faults: Vec<Fault>,
}

pub fn lines(text: &str) -> Lines<'_> {
    let mut faults = Vec::new();
    let mut read: Vec<Read<'_>> = Vec::new();
    // Of the line before: its hash, and the number it gives itself.
    let (mut last, mut number) = (START, 0);
    let whole = text.strip_suffix('\n');
    if whole.is_none() {
        faults.push(Fault::new(None, "end of the file", "the last line has no newline: the file was cut"));
    }
    for (at, text) in (1..).zip(whole.unwrap_or(text).split('\n')) {
        match serde_json::from_str::<Line<'_>>(text) {
            Err(error) => {
                faults.push(Fault::new(at, "line", format!("it cannot be read: {error}")));
                number += 1;
            }
            Ok(line) if parts_of(&line) != 1 => {
                faults.push(Fault::new(at, "line", format!("it has {} parts; each line has one", parts_of(&line))));
                number = line.line;
            }
            Ok(line) => {
                // Nothing follows it that has its hash: it must have its one form.
                if line.seal.is_some() && json_text::to_string(&line).as_deref() != Ok(text) {
                    faults.push(Fault::new(at, "seal", "it is not written as it should be"));
                }
                faults.extend(broken(&line, at, number, last, read.last()));
                number = line.line;
                read.push(Read { at, line });
            }
        }
        last = Digest32::of(text.as_bytes());
    }
    Lines { read, faults }
}

fn parts_of(line: &Line<'_>) -> usize {
    let there = [
        line.bundle.is_some(),
        line.definition.is_some(),
        line.record.is_some(),
        line.tombstone.is_some(),
        line.receipt.is_some(),
        line.proof.is_some(),
        line.head.is_some(),
        line.seal.is_some(),
    ];
    there.into_iter().filter(|part| *part).count()
}

/// How `line` does not follow the one before it.
fn broken(line: &Line<'_>, at: u64, number: u64, last: Digest32, before: Option<&Read<'_>>) -> Option<Fault> {
    let (expected, found) = (number + 1, line.line);
    let problem = match found {
        _ if found > expected + 1 => format!("lines {expected} to {} are missing before it", found - 1),
        _ if found > expected => format!("line {expected} is missing before it"),
        _ if found == number => format!("it is line {found} once more: it was doubled, or its number was changed"),
        _ if found < expected => format!("it is line {found}, and stands after line {number}: it was moved, or doubled"),
        _ if line.prev.0 == last => return None,
        // The numbers are right, so it is the line before that is not what it was when this one was written; or this one names another.
        _ => {
            let (at, part) = before
                .filter(|before| before.at + 1 == at)
                .map_or((at - 1, "line".to_owned()), |before| (before.at, part_of(&before.line)));
            let problem = format!("it was changed: its hash is {last}, and line {} says {}", at + 1, line.prev.0);
            return Some(if at == 0 {
                Fault::new(1, part_of(line), format!("it names a line before it, and is the first: {}", line.prev.0))
            } else {
                Fault::new(at, part, problem)
            });
        }
    };
    Some(Fault::new(at, part_of(line), problem))
}

/// The part as people call it.
pub fn part_of(line: &Line<'_>) -> String {
    if let Some(record) = &line.record {
        return format!("record {} of {} {}", record.version, record.of.word(), record.stream);
    }
    if let Some(receipt) = &line.receipt {
        return match serde_json::from_str::<super::verify::Place>(&receipt.text) {
            Ok(place) => format!("receipt {} of {}", place.seq, place.id),
            Err(_) => format!("receipt at leaf {}", receipt.leaf),
        };
    }
    if let Some(tombstone) = &line.tombstone {
        return format!("tombstone of effect {}", tombstone.effect);
    }
    let word = match () {
        () if line.bundle.is_some() => "manifest",
        () if line.definition.is_some() => "definition",
        () if line.proof.is_some() => "proof",
        () if line.head.is_some() => "head",
        () => "seal",
    };
    word.to_owned()
}
