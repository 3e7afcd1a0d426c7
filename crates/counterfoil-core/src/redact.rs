//! Secrets named by policy never reach an entry: a salted digest stands there instead.
//!
//! The digest keeps identity: equal secrets in one ledger give equal digests, so keys and fingerprints are computed from the redacted
//! arguments and reuse with another secret is still noticed.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::canonical::{CanonicalJson, Json, canonicalize};
use crate::ids::Digest32;
use crate::policy::ArgPath;

/// Random bytes of one ledger. Without it, short secrets could be guessed from their digests.
#[derive(Clone, PartialEq, Eq)]
pub struct Salt(pub [u8; 32]);

impl std::fmt::Debug for Salt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Salt(…)")
    }
}

pub fn redact_args(args: &CanonicalJson, paths: &[ArgPath], salt: &Salt) -> CanonicalJson {
    if paths.is_empty() {
        return args.clone();
    }
    let text = redact_text(args.as_str(), paths, salt);
    // Digests can make it too large or too deep to keep. Then one digest stands for all of it: still a secret, still itself.
    CanonicalJson::parse(&text)
        .or_else(|_| CanonicalJson::parse(&digest_of(args.as_str(), salt)))
        .expect("an object with one digest is small")
}

pub fn redact_json(json: &Json, paths: &[ArgPath], salt: &Salt) -> Json {
    if paths.is_empty() {
        return json.clone();
    }
    let text = redact_text(json.as_str(), paths, salt);
    Json::parse(&text).or_else(|_| Json::parse(&digest_of(json.as_str(), salt))).expect("an object with one digest is JSON")
}

/// Shorter values are not searched for: they would hit innocent text everywhere.
pub(crate) const SCRUBBED_CHARS_MIN: usize = 6;

/// Stands where an echo of a secret stood.
pub(crate) const SCRUBBED: &str = "[redacted]";

/// The texts and numbers that stand at `paths` or below: what must not appear anywhere else either. Where a digest stands already there is no
/// secret left to look for (see [`crate::echo`]).
pub fn secrets(args: &CanonicalJson, paths: &[ArgPath]) -> Vec<String> {
    let mut found = Vec::new();
    for path in paths {
        at_path(args.as_str(), &path.0, &mut |json| {
            if mark(json).is_none() {
                leaves(json, &mut found);
            }
        });
    }
    // The longest first: where one secret is part of another, the rest of the longer one must not stay behind.
    found.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    found.dedup();
    found
}

/// The digest that stands in the place of a secret.
pub(crate) fn mark(json: &str) -> Option<Digest32> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Mark {
        #[serde(rename = "$redacted")]
        digest: Digest32,
    }
    serde_json::from_str::<Mark>(json).ok().map(|mark| mark.digest)
}

/// Whether a digest stands anywhere in it where a secret was.
pub fn holds_digest(args: &CanonicalJson) -> bool {
    args.as_str().contains("{\"$redacted\":\"")
}

/// What stands at `path`, each of it. As text and not as values: a number beyond a double must keep its digits.
pub(crate) fn at_path(json: &str, path: &[String], visit: &mut impl FnMut(&str)) {
    let Some((first, rest)) = path.split_first() else { return visit(json) };
    if let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(json) {
        items.iter().for_each(|item| at_path(item.get(), path, visit));
    } else if let Ok(members) = serde_json::from_str::<BTreeMap<Cow<'_, str>, &RawValue>>(json)
        && let Some(member) = members.get(first.as_str())
    {
        at_path(member.get(), rest, visit);
    }
}

/// Everything in `json` that is long enough to be known again. Names are the tool's words, not the caller's.
fn leaves(json: &str, found: &mut Vec<String>) {
    let mut tokens = Tokens(json).peekable();
    while let Some(token) = tokens.next() {
        match token {
            Token::Text(text) if tokens.peek() != Some(&Token::Other(":")) => {
                found.extend(Some(decoded(text).into_owned()).filter(|text| text.chars().count() >= SCRUBBED_CHARS_MIN));
            }
            Token::Number(digits) if digits.bytes().filter(u8::is_ascii_digit).count() >= SCRUBBED_CHARS_MIN => {
                found.push(digits.to_owned())
            }
            _ => {}
        }
    }
}

/// `text` without the secrets: the other side may have echoed them anywhere, also inside JSON that it quotes.
pub fn scrub(text: &str, secrets: &[String]) -> String {
    secrets.iter().fold(text.to_owned(), |text, secret| {
        let quoted = Json::string(secret);
        let escaped = quoted.as_str().strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(secret);
        let text = text.replace(secret.as_str(), SCRUBBED);
        if escaped == secret { text } else { text.replace(escaped, SCRUBBED) }
    })
}

/// The same inside JSON: in names and texts however they are escaped, and numbers that are a secret as a whole. Whatever holds no secret
/// keeps its bytes.
pub fn scrub_json(json: &Json, secrets: &[String]) -> Json {
    if secrets.is_empty() {
        return json.clone();
    }
    let mut out = String::with_capacity(json.as_str().len());
    for token in Tokens(json.as_str()) {
        match token {
            Token::Text(text) => {
                let known = decoded(text);
                let scrubbed = scrub(&known, secrets);
                if scrubbed == *known {
                    out.extend(["\"", text, "\""]);
                } else {
                    out.push_str(Json::string(&scrubbed).as_str());
                }
            }
            Token::Number(number) if secrets.contains(&canonicalize(number).unwrap_or_else(|_| number.to_owned())) => {
                out.push_str(Json::string(SCRUBBED).as_str());
            }
            Token::Number(other) | Token::Other(other) => out.push_str(other),
        }
    }
    Json::made_of_json(out)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// What stands between the quotes, with its escapes.
    Text(&'a str),
    Number(&'a str),
    /// One sign, space, or letter of a word.
    Other(&'a str),
}

/// The pieces of a text that is known to be JSON; together they are all of it.
pub(crate) struct Tokens<'a>(pub &'a str);

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let bytes = self.0.as_bytes();
        let (token, rest) = match bytes.first()? {
            b'"' => {
                let mut end = 1;
                while bytes.get(end).is_some_and(|byte| *byte != b'"') {
                    end += if bytes[end] == b'\\' { 2 } else { 1 };
                }
                (Token::Text(&self.0[1..end]), end + 1)
            }
            b'-' | b'0'..=b'9' => {
                let in_number = |byte: &u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
                let end = bytes.iter().position(|byte| !in_number(byte)).unwrap_or(bytes.len());
                (Token::Number(&self.0[..end]), end)
            }
            _ => (Token::Other(&self.0[..1]), 1),
        };
        self.0 = &self.0[rest..];
        Some(token)
    }
}

/// What a JSON string says. Half a surrogate pair, which JSON allows and text does not, becomes the replacement character.
pub(crate) fn decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let c = match (c, if c == '\\' { chars.next() } else { None }) {
            ('\\', Some('u')) => {
                let hex: String = chars.by_ref().take(4).collect();
                units.push(u16::from_str_radix(&hex, 16).unwrap_or(0xfffd));
                continue;
            }
            ('\\', Some('b')) => '\u{8}',
            ('\\', Some('f')) => '\u{c}',
            ('\\', Some('n')) => '\n',
            ('\\', Some('r')) => '\r',
            ('\\', Some('t')) => '\t',
            (_, Some(itself)) => itself,
            (c, None) => c,
        };
        units.extend_from_slice(c.encode_utf16(&mut [0; 2]));
    }
    Cow::Owned(String::from_utf16_lossy(&units))
}

fn redact_text(json: &str, paths: &[ArgPath], salt: &Salt) -> String {
    let mut text = Cow::Borrowed(json);
    for path in paths {
        if let Some(changed) = replaced(&text, &path.0, salt) {
            text = Cow::Owned(changed);
        }
    }
    text.into_owned()
}

/// `json` with the member at `path` replaced; `None` when there is no such member. Lists on the way are entered: the path holds for each element.
fn replaced(json: &str, path: &[String], salt: &Salt) -> Option<String> {
    let Some((first, rest)) = path.split_first() else { return Some(digest_of(json, salt)) };
    if let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(json) {
        let changed: Vec<Option<String>> = items.iter().map(|item| replaced(item.get(), path, salt)).collect();
        if changed.iter().all(Option::is_none) {
            return None;
        }
        let items: Vec<&str> = changed.iter().zip(&items).map(|(new, old)| new.as_deref().unwrap_or(old.get())).collect();
        return Some(format!("[{}]", items.join(",")));
    }
    let members: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(json).ok()?;
    let inner = replaced(members.get(first.as_str())?.get(), rest, salt)?;
    let mut out = String::from("{");
    for (name, value) in &members {
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(Json::string(name).as_str());
        out.push(':');
        out.push_str(if name == first.as_str() { &inner } else { value.get() });
    }
    out.push('}');
    Some(out)
}

fn digest_of(json: &str, salt: &Salt) -> String {
    format!("{{\"$redacted\":\"{}\"}}", salted(json, salt))
}

pub(crate) fn salted(json: &str, salt: &Salt) -> Digest32 {
    let canonical = canonicalize(json).unwrap_or_else(|_| json.to_owned());
    Digest32::of_fields("counterfoil/redacted/1", &[&salt.0, canonical.as_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(args: &str, path: &str, salt: u8) -> String {
        let args = CanonicalJson::parse(args).unwrap();
        redact_args(&args, &[ArgPath::parse(path).unwrap()], &Salt([salt; 32])).as_str().to_owned()
    }

    #[test]
    fn a_salt_is_never_shown() {
        assert_eq!(format!("{:?}", Salt([7; 32])), "Salt(…)");
    }

    #[test]
    fn a_secret_leaves_only_its_salted_digest() {
        let out = redacted(r#"{"card":{"number":"4242","name":"x"},"cents":5}"#, "card.number", 1);
        assert!(!out.contains("4242"), "{out}");
        assert!(out.contains(r#""cents":5"#) && out.contains(r#""name":"x""#) && out.contains("$redacted"), "{out}");
        assert_eq!(out, redacted(r#"{"cents":5,"card":{"name":"x","number":"4242"}}"#, "card.number", 1));
        assert_ne!(out, redacted(r#"{"card":{"number":"4242","name":"x"},"cents":5}"#, "card.number", 2));
        assert_ne!(out, redacted(r#"{"card":{"number":"4243","name":"x"},"cents":5}"#, "card.number", 1));
    }

    /// A digest is longer than most secrets: arguments within the limits can be beyond them once redacted. They must stay apart all the same.
    #[test]
    fn arguments_that_grow_beyond_the_limits_keep_their_identity() {
        let many = |last: &str| format!(r#"{{"cards":[{}{{"number":"{last}"}}]}}"#, r#"{"number":"1"},"#.repeat(20_000));
        let (a, b) = (redacted(&many("2"), "cards.number", 1), redacted(&many("3"), "cards.number", 1));
        assert_ne!(a, b);
        let deep = |secret: &str| format!("{}{secret}{}", r#"{"a":"#.repeat(128), "}".repeat(128));
        let path = ["a"; 128].join(".");
        let (a, b) = (redacted(&deep("1"), &path, 1), redacted(&deep("2"), &path, 1));
        assert_ne!(a, b);
        assert!(a.contains("$redacted"));
    }

    #[test]
    fn the_redacted_form_is_canonical_too() {
        let out = redacted("{\"\u{fb33}\":1,\"\u{1f602}\":2,\"pin\":3}", "pin", 1);
        assert_eq!(canonicalize(&out).unwrap(), out);
    }

    #[test]
    fn lists_are_entered_and_missing_members_change_nothing() {
        let out = redacted(r#"{"cards":[{"number":"1111"},{"number":"2222"},7]}"#, "cards.number", 1);
        assert!(!out.contains("1111") && !out.contains("2222"), "{out}");
        assert_eq!(redacted(r#"{"a":9007199254740993}"#, "card.number", 1), r#"{"a":9007199254740993}"#);
    }

    #[test]
    fn an_echo_is_scrubbed_wherever_it_stands() {
        let args = CanonicalJson::parse(r#"{"card":{"number":"4242\"4242"},"pin":"12"}"#).unwrap();
        let secrets = secrets(&args, &[ArgPath::parse("card.number").unwrap(), ArgPath::parse("pin").unwrap()]);
        assert_eq!(secrets, ["4242\"4242"], "short values are left alone");
        let echo = Json::parse(r#"{"error":"no such card 4242\"4242 here","n":12}"#).unwrap();
        assert_eq!(scrub_json(&echo, &secrets).as_str(), r#"{"error":"no such card [redacted] here","n":12}"#);
    }

    fn scrubbed(args: &str, path: &str, answer: &str) -> String {
        let secrets = secrets(&CanonicalJson::parse(args).unwrap(), &[ArgPath::parse(path).unwrap()]);
        scrub_json(&Json::parse(answer).unwrap(), &secrets).as_str().to_owned()
    }

    /// A result that became null would be another answer than the world gave.
    #[test]
    fn scrubbing_leaves_json_that_differs_in_nothing_else() {
        let check = |args: &str, answer: &str, expected: &str| assert_eq!(scrubbed(args, "pin", answer), expected, "{args} {answer}");
        check(r#"{"pin":"123456"}"#, r#"{"id":1234567, "n":0.1234560}"#, r#"{"id":1234567, "n":0.1234560}"#);
        check(r#"{"pin":"123456"}"#, r#"{"id": 123456 ,"b":[1234560e-1]}"#, r#"{"id": "[redacted]" ,"b":["[redacted]"]}"#);
        check(r#"{"pin":"12345\""}"#, r#"{"a":"12345","b":"12345\""}"#, r#"{"a":"12345","b":"[redacted]"}"#);
        check(r#"{"pin":"a/b/c/d"}"#, r#"["x\/y","-a\/b\/c\/d-"]"#, r#"["x\/y","-[redacted]-"]"#);
        check(r#"{"pin":"café-1"}"#, r#"["caf\u00e9-1","caf\u00E9"]"#, r#"["[redacted]","caf\u00E9"]"#);
        check(r#"{"pin":"key \ud83d\ude02!"}"#, r#""the key \uD83D\ude02!""#, r#""the [redacted]""#);
        check(r#"{"pin":"true, "}"#, r#"[true, true, null]"#, r#"[true, true, null]"#);
        check(
            r#"{"pin":"12\"345"}"#,
            r#"{"12\"345":"he said {\"pin\":\"12\\\"345\"}"}"#,
            r#"{"[redacted]":"he said {\"pin\":\"[redacted]\"}"}"#,
        );
        check(r#"{"pin":"123456"}"#, r#"["\ud800","\ud800 123456"]"#, "[\"\\ud800\",\"\u{fffd} [redacted]\"]");
    }

    #[test]
    fn a_digest_is_no_secret_and_is_known_as_what_it_is() {
        let stored = CanonicalJson::parse(&redacted(r#"{"pin":"123456"}"#, "pin", 1)).unwrap();
        assert!(secrets(&stored, &[ArgPath::parse("pin").unwrap()]).is_empty());
        assert!(holds_digest(&stored) && !holds_digest(&CanonicalJson::parse(r#"{"pin":"$redacted"}"#).unwrap()));
        assert!(mark(r#"{"$redacted":"12"}"#).is_none());
    }

    #[test]
    fn everything_below_a_path_is_a_secret() {
        let args = r#"{"card":{"number":42424242424242424242424,"cvc":123,"holder":["Ada Lovelace",{"tax_id":"DE-12345"}],"when":1e30},"x":"elsewhere"}"#;
        let found = secrets(&CanonicalJson::parse(args).unwrap(), &[ArgPath::parse("card").unwrap()]);
        assert_eq!(found, ["42424242424242424242424", "Ada Lovelace", "DE-12345"]);
        assert_eq!(
            scrubbed(args, "card", r#"{"echo":42424242424242424242424,"near":42424242424242424242425,"text":"42424242424242424242424!"}"#),
            r#"{"echo":"[redacted]","near":42424242424242424242425,"text":"[redacted]!"}"#
        );
    }

    #[test]
    fn a_secret_that_is_part_of_another_does_not_leave_the_rest() {
        let args = CanonicalJson::parse(r#"{"a":"secret","b":"secret-and-more"}"#).unwrap();
        let found = secrets(&args, &[ArgPath::parse("a").unwrap(), ArgPath::parse("b").unwrap()]);
        assert_eq!(scrub("it was secret-and-more", &found), "it was [redacted]");
    }

    /// Whatever the other side answers: still JSON, and without the secret.
    #[test]
    fn any_answer_stays_json() {
        use proptest::prelude::*;
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<f64>().prop_map(|n| serde_json::json!(n)),
            "\\PC*".prop_map(Into::into),
            "[a\"\\\\/é]{0,12}".prop_map(Into::into),
        ];
        let value = leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                prop::collection::btree_map("[a\"\\\\é]{0,8}", inner, 0..6)
                    .prop_map(|m| serde_json::Value::Object(m.into_iter().collect())),
            ]
        });
        proptest!(|(value in value, secret in "[a\"\\\\/é]{6,7}", number in 100_000_u64..10_000_000)| {
            let secrets = vec![secret.clone(), number.to_string()];
            let json = Json::from_value(&serde_json::json!([value, secret, number, format!("x{secret}y")]));
            let out = scrub_json(&json, &secrets).to_value();
            fn holds(value: &serde_json::Value, secret: &str) -> bool {
                match value {
                    serde_json::Value::String(text) => text.contains(secret),
                    serde_json::Value::Array(items) => items.iter().any(|item| holds(item, secret)),
                    serde_json::Value::Object(members) => members.iter().any(|(name, item)| name.contains(secret) || holds(item, secret)),
                    _ => false,
                }
            }
            prop_assert!(!holds(&out, &secret), "{out}");
            prop_assert_eq!(&out[2], "[redacted]");
            prop_assert_eq!(scrub_json(&json, &["not in there".to_owned()]), json);
        });
    }
}
