//! A thousand ways to change a bundle, each from a seed, with the lines that a verifier must name.

use std::ops::RangeInclusive;

use counterfoil_evidence::Fault;

/// SplitMix64: small, and the same everywhere.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// A changed bundle: what was done to it, and where that may be named.
pub struct Tampered {
    pub what: String,
    pub bytes: Vec<u8>,
    /// Lines of the changed file, from 1. A cut end has none: then the end is named.
    pub lines: Option<RangeInclusive<u64>>,
}

impl Tampered {
    /// Whether one of these is where it was changed.
    pub fn is_named(&self, faults: &[Fault]) -> bool {
        faults.iter().any(|fault| match (&self.lines, fault.line) {
            (Some(lines), Some(line)) => lines.contains(&line),
            (Some(_), None) => false,
            (None, line) => line.is_none(),
        })
    }
}

/// `other`: a bundle of another run, signed with the same key.
pub fn tampered(good: &str, other: &str, rng: &mut Rng) -> Tampered {
    loop {
        let tampered = once(good, other, rng);
        // A swap of equal lines, a byte replaced by itself: nothing was changed.
        if tampered.bytes != good.as_bytes() {
            return tampered;
        }
    }
}

fn once(good: &str, other: &str, rng: &mut Rng) -> Tampered {
    let lines: Vec<&str> = good.lines().collect();
    let count = lines.len();
    let joined = |lines: &[&str]| format!("{}\n", lines.join("\n")).into_bytes();
    let at = rng.below(count);
    let place = |what: String, lines: &[&str], from: usize, to: usize| Tampered {
        what,
        bytes: joined(lines),
        lines: Some(from as u64 + 1..=to as u64 + 1),
    };
    match rng.below(12) {
        kind @ 0..=4 => bytes(good, kind, rng),
        5 => {
            let mut left = lines.clone();
            left.remove(at);
            match at + 1 == count {
                true => Tampered { what: "last line removed".into(), bytes: joined(&left), lines: None },
                false => place(format!("line {} removed", at + 1), &left, at, at),
            }
        }
        6 => {
            let mut doubled = lines.clone();
            doubled.insert(at, lines[at]);
            place(format!("line {} doubled", at + 1), &doubled, at, at + 1)
        }
        7 => {
            let mut swapped = lines.clone();
            let with = rng.below(count);
            swapped.swap(at, with);
            place(format!("lines {} and {} swapped", at + 1, with + 1), &swapped, at.min(with), at.max(with))
        }
        8 => {
            let mut moved = lines.clone();
            let line = moved.remove(at);
            let to = rng.below(count);
            moved.insert(to, line);
            place(format!("line {} moved to {}", at + 1, to + 1), &moved, at.min(to), at.max(to))
        }
        9 => {
            // A whole part is missing, however many lines it has.
            let part = ["bundle", "definition", "record", "receipt", "proof", "head", "seal"][rng.below(7)];
            let of_part = |line: &&str| line.contains(&format!("\",\"{part}\":{{"));
            let from = lines.iter().position(&of_part).unwrap_or(0);
            let left: Vec<&str> = lines.iter().copied().filter(|line| !of_part(line)).collect();
            let named = (part != "seal").then_some(1..=from as u64 + 1);
            Tampered { what: format!("part {part} removed"), bytes: joined(&left), lines: named }
        }
        10 => {
            let cut = 1 + rng.below(good.len() - 1);
            Tampered { what: format!("cut after byte {cut}"), bytes: good.as_bytes()[..cut].to_vec(), lines: None }
        }
        _ => {
            // A line of another bundle in the place of its own: its signature, its head, its proof, a receipt.
            let part = ["seal", "head", "proof", "receipt", "record"][rng.below(5)];
            let find = |text: &str| text.lines().position(|line| line.contains(&format!("\",\"{part}\":{{")));
            let (Some(own), Some(theirs)) = (find(good), find(other)) else { return once(good, other, rng) };
            let theirs = other.lines().nth(theirs).unwrap_or_default();
            let tail = |line: &str| line[line.find(&format!("\"{part}\"")).unwrap_or(0)..].to_owned();
            let line = lines[own].replace(&tail(lines[own]), &tail(theirs));
            let mut swapped = lines.clone();
            swapped[own] = &line;
            place(format!("{part} of another bundle"), &swapped, own, own)
        }
    }
}

fn bytes(good: &str, kind: usize, rng: &mut Rng) -> Tampered {
    let mut bytes = good.as_bytes().to_vec();
    let at = rng.below(bytes.len());
    let line = 1 + bytes[..at].iter().filter(|byte| **byte == b'\n').count() as u64;
    let what = match kind {
        0 | 1 => {
            let bit = rng.below(8);
            bytes[at] ^= 1 << bit;
            format!("bit {bit} of byte {at} flipped")
        }
        2 => {
            bytes[at] = rng.next() as u8;
            format!("byte {at} replaced")
        }
        3 => {
            bytes.insert(at, b" 0a\"\n"[rng.below(5)]);
            format!("a byte put in at {at}")
        }
        _ => {
            bytes.remove(at);
            format!("byte {at} removed")
        }
    };
    // At the border between two lines, either of them.
    let last = at + 1 >= bytes.len();
    Tampered { what, bytes, lines: (!last).then_some(line.saturating_sub(1).max(1)..=line + 1) }
}
