//! Secrets that are known by their digests alone: what comes back of a call whose arguments are redacted already.
//!
//! Recognises a secret that stands as a whole text, a whole number or a word of a text. One that is joined to other letters, encoded or cut is
//! not recognised: that would take the secret itself, and the ledger does not have it.

use std::collections::HashSet;

use crate::canonical::{CanonicalJson, Json};
use crate::ids::Digest32;
use crate::policy::ArgPath;
use crate::redact::{SCRUBBED, SCRUBBED_CHARS_MIN, Salt, Token, Tokens, at_path, decoded, mark, salted};

/// What to look for in what the other side says.
pub struct Echo<'a> {
    digests: HashSet<Digest32>,
    salt: &'a Salt,
}

impl<'a> Echo<'a> {
    /// `args` as they are stored. `None`: no digest stands in them.
    pub fn of(args: &CanonicalJson, paths: &[ArgPath], salt: &'a Salt) -> Option<Self> {
        let mut digests = HashSet::new();
        for path in paths {
            at_path(args.as_str(), &path.0, &mut |json| digests.extend(mark(json)));
        }
        (!digests.is_empty()).then_some(Self { digests, salt })
    }

    /// `text` without the secrets.
    pub fn scrub(&self, text: &str) -> String {
        if self.is_secret(text) {
            return SCRUBBED.to_owned();
        }
        text.split_inclusive(char::is_whitespace).map(|piece| self.scrubbed(piece)).collect()
    }

    /// The same inside JSON; whatever holds no secret keeps its bytes.
    pub fn scrub_json(&self, json: &Json) -> Json {
        let mut out = String::with_capacity(json.as_str().len());
        for token in Tokens(json.as_str()) {
            match token {
                Token::Text(text) => {
                    let known = decoded(text);
                    let scrubbed = self.scrub(&known);
                    if scrubbed == *known {
                        out.extend(["\"", text, "\""]);
                    } else {
                        out.push_str(Json::string(&scrubbed).as_str());
                    }
                }
                Token::Number(number) if self.is_secret(number) => out.push_str(Json::string(SCRUBBED).as_str()),
                Token::Number(other) | Token::Other(other) => out.push_str(other),
            }
        }
        Json::made_of_json(out)
    }

    /// A word with what is around it: quotes, a full stop, a space.
    fn scrubbed(&self, piece: &str) -> String {
        let word = piece.trim_matches(|c: char| !c.is_alphanumeric());
        if self.is_secret(word) {
            return piece.replacen(word, SCRUBBED, 1);
        }
        let in_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        let mut out = String::with_capacity(piece.len());
        let mut rest = piece;
        while let Some(first) = rest.chars().next() {
            let end = rest.find(|c| in_word(c) != in_word(first)).unwrap_or(rest.len());
            let (run, after) = rest.split_at(end);
            out.push_str(if self.is_secret(run) { SCRUBBED } else { run });
            rest = after;
        }
        out
    }

    /// As a text or as a number: a secret number may come back in quotes. Short ones are left alone, as everywhere.
    fn is_secret(&self, text: &str) -> bool {
        let long = text.chars().count() >= SCRUBBED_CHARS_MIN;
        let as_number = || serde_json::from_str::<serde_json::Number>(text).is_ok() && self.known(text);
        long && (self.known(Json::string(text).as_str()) || as_number())
    }

    fn known(&self, json: &str) -> bool {
        self.digests.contains(&salted(json, self.salt))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redact::redact_args;

    const SALT: Salt = Salt([7; 32]);

    fn check(args: &str, answer: &str, expected: &str) {
        let paths = [ArgPath::parse("card.number").unwrap(), ArgPath::parse("pin").unwrap()];
        let stored = redact_args(&CanonicalJson::parse(args).unwrap(), &paths, &SALT);
        let echo = Echo::of(&stored, &paths, &SALT).unwrap();
        assert_eq!(echo.scrub_json(&Json::parse(answer).unwrap()).as_str(), expected);
    }

    #[test]
    fn a_secret_is_known_again_by_its_digest() {
        let args = r#"{"card":{"number":"4242-4242"},"pin":123456}"#;
        check(args, r#"{"a":"4242-4242", "b": 123456,"c":[1234560e-1]}"#, r#"{"a":"[redacted]", "b": "[redacted]","c":["[redacted]"]}"#);
        check(args, r#"{"4242-4242":"123456"}"#, r#"{"[redacted]":"[redacted]"}"#);
        check(args, r#""card 4242-4242, declined (123456).""#, r#""card [redacted], declined ([redacted]).""#);
        check(args, r#""{\"n\":\"4242-4242\"}""#, r#""{\"n\":\"[redacted]\"}""#);
        check(args, r#"{"id": 1234567, "x":"x4242-4242","é":1.0}"#, r#"{"id": 1234567, "x":"x4242-4242","é":1.0}"#);
        check(r#"{"pin":"ada@example.com"}"#, r#""ask ada@example.com!""#, r#""ask [redacted]!""#);
        check(r#"{"pin":"1234"}"#, r#"[1234,"1234"]"#, r#"[1234,"1234"]"#);
    }

    #[test]
    fn arguments_in_clear_are_searched_for_elsewhere() {
        let args = CanonicalJson::parse(r#"{"pin":"123456"}"#).unwrap();
        assert!(Echo::of(&args, &[ArgPath::parse("pin").unwrap()], &SALT).is_none());
    }
}
