//! What came back, of a size nobody promised: kept up to a cap, hashed to the end.
//!
//! Must stay true: output that is too large is still the output of something that happened. It becomes a preview and a digest,
//! never an error.

use counterfoil_core::ids::Digest32;
use counterfoil_core::outcome::Flag;
use counterfoil_core::{Json, Success};
use sha2::{Digest, Sha256};

/// Nobody is read beyond this: the digest then covers what was read.
pub(super) const READ_BYTES_MAX: u64 = 64 << 20;
/// Kept for an expression that picks the result out of a larger answer.
pub(super) const EXPRESSION_BYTES_MAX: usize = 8 << 20;
/// Kept of a result that is too large.
const PREVIEW_BYTES_MAX: usize = 4096;
/// Kept of what the other side said beside a failure.
pub(crate) const DETAIL_BYTES_MAX: usize = 4096;

#[derive(Debug)]
pub(super) struct Output {
    kept: Vec<u8>,
    kept_max: usize,
    bytes: u64,
    hash: Sha256,
}

impl Output {
    pub(super) fn new(kept_max: usize) -> Self {
        Self { kept: Vec::new(), kept_max, bytes: 0, hash: Sha256::new() }
    }

    /// Takes in the next bytes. False: enough, stop reading.
    pub(super) fn push(&mut self, chunk: &[u8]) -> bool {
        let room = self.kept_max - self.kept.len();
        self.kept.extend_from_slice(&chunk[..chunk.len().min(room)]);
        self.hash.update(chunk);
        self.bytes += chunk.len() as u64;
        self.bytes < READ_BYTES_MAX
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All of it, unless it was more than is kept.
    pub(super) fn whole(&self) -> Option<&[u8]> {
        (self.bytes == self.kept.len() as u64).then_some(&self.kept[..])
    }

    /// As a value: JSON byte for byte, other text as a string, nothing as null.
    pub(super) fn value(&self) -> Json {
        self.json().unwrap_or_else(|| if self.bytes == 0 { Json::null() } else { Json::string(&self.text()) })
    }

    /// The output, when it is JSON.
    pub(super) fn json(&self) -> Option<Json> {
        Json::parse(std::str::from_utf8(self.whole()?).ok()?).ok()
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.kept).into_owned()
    }

    /// What the other side said beside a failure, if anything.
    pub(super) fn detail(&self) -> Option<Json> {
        (self.bytes > 0).then(|| self.json().unwrap_or_else(|| Json::string(&shortened(&self.kept, DETAIL_BYTES_MAX))))
    }

    /// The output as a result of at most `max` bytes.
    pub(super) fn into_success(self, max: usize) -> Success {
        match self.whole() {
            Some(whole) if whole.len() <= max => Success::new(self.value()),
            _ => truncated(&self.kept, self.bytes, Digest32(self.hash.finalize().into()), max),
        }
    }
}

/// `result` as it is, or what is kept of it.
pub(crate) fn capped(result: Json, max: usize) -> Success {
    let text = result.as_str();
    if text.len() <= max { Success::new(result) } else { truncated(text.as_bytes(), text.len() as u64, result.digest(), max) }
}

fn truncated(kept: &[u8], bytes: u64, sha256: Digest32, max: usize) -> Success {
    let preview = shortened(kept, max.min(PREVIEW_BYTES_MAX));
    Success { flags: vec![Flag::Truncated { bytes, sha256 }], ..Success::new(Json::string(&preview)) }
}

/// The first `max` bytes as text, without half a character at the end.
fn shortened(bytes: &[u8], max: usize) -> String {
    let cut = &bytes[..bytes.len().min(max)];
    let whole = match std::str::from_utf8(cut) {
        Err(error) if error.error_len().is_none() => &cut[..error.valid_up_to()],
        _ => cut,
    };
    String::from_utf8_lossy(whole).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(text: &[u8], kept_max: usize) -> Output {
        let mut output = Output::new(kept_max);
        text.chunks(3).for_each(|chunk| assert!(output.push(chunk)));
        output
    }

    #[test]
    fn json_is_kept_byte_for_byte_and_the_rest_as_a_string() {
        let check = |text: &[u8], expected: &str| assert_eq!(output(text, 100).into_success(100).result.as_str(), expected);
        check(b"", "null");
        check(b"null", "null");
        check(b"{\"b\": 1.0,  \"a\": 18446744073709551617}", "{\"b\": 1.0,  \"a\": 18446744073709551617}");
        check(b"hello", "\"hello\"");
        check(b"{\"half\":", "\"{\\\"half\\\":\"");
        check(b"\xff!", "\"\u{fffd}!\"");
    }

    #[test]
    fn too_large_is_a_preview_with_a_digest_of_all() {
        let text = "ü".repeat(50);
        let success = output(text.as_bytes(), 11).into_success(11);
        assert_eq!(success.result.as_str(), "\"üüüüü\"");
        assert_eq!(success.flags, [Flag::Truncated { bytes: 100, sha256: Digest32::of(text.as_bytes()) }]);
        assert!(!Output::new(0).push(&vec![0; READ_BYTES_MAX as usize]), "nobody is read for ever");
        assert_eq!(capped(Json::string("abcdef"), 3).result.as_str(), r#""\"ab""#);
    }
}
