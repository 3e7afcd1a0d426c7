//! As much of CEL's lexical rules as it takes to find where an expression ends and how deep its brackets go.
//!
//! Strings (also raw and triple-quoted) and comments are skipped, so that a brace inside them counts for nothing.

/// Bytes up to the `}` that closes the expression `text` begins with.
pub(super) fn expr_len(text: &str) -> Option<usize> {
    let mut open = 0usize;
    for (at, bracket) in brackets(text) {
        match bracket {
            b'{' => open += 1,
            b'}' if open == 0 => return Some(at),
            b'}' => open -= 1,
            _ => {}
        }
    }
    None
}

/// How deep brackets of any kind are nested.
pub(super) fn nesting(text: &str) -> usize {
    let (mut open, mut deepest) = (0usize, 0);
    for (_, bracket) in brackets(text) {
        match bracket {
            b'(' | b'[' | b'{' => open += 1,
            _ => open = open.saturating_sub(1),
        }
        deepest = deepest.max(open);
    }
    deepest
}

/// Brackets that are neither in a string nor in a comment, with their offsets. Ends at a string that never does.
fn brackets(text: &str) -> impl Iterator<Item = (usize, u8)> + '_ {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while let Some(&byte) = bytes.get(at) {
            let here = at;
            at += 1;
            match byte {
                b'(' | b')' | b'[' | b']' | b'{' | b'}' => return Some((here, byte)),
                b'\'' | b'"' => at = string_end(bytes, here).unwrap_or(bytes.len()),
                b'/' if bytes.get(at) == Some(&b'/') => at += bytes[at..].iter().position(|&b| b == b'\n').unwrap_or(bytes.len() - at),
                _ => {}
            }
        }
        None
    })
}

/// The offset behind the string literal that begins at `start`.
fn string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let quote = bytes[start];
    let close: &[u8] = if bytes[start..].starts_with(&[quote; 3]) { &[quote; 3] } else { &[quote] };
    let raw = is_raw(bytes, start);
    let mut at = start + close.len();
    while at < bytes.len() {
        if bytes[at..].starts_with(close) {
            return Some(at + close.len());
        }
        at += if bytes[at] == b'\\' && !raw { 2 } else { 1 };
    }
    None
}

/// Whether an `r` (alone, or beside a `b`) stands before the quote, and not as the end of a name.
fn is_raw(bytes: &[u8], quote: usize) -> bool {
    let prefix = bytes[..quote].iter().rev().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
    matches!(&bytes[quote - prefix..quote], [b'r' | b'R'] | [b'b' | b'B', b'r' | b'R'] | [b'r' | b'R', b'b' | b'B'])
}
