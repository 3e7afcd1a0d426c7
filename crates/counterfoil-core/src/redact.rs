//! Secrets named by policy never reach an entry: a salted digest stands there instead.
//!
//! The digest keeps identity: equal secrets in one ledger give equal digests, so keys and fingerprints are computed from the redacted
//! arguments and reuse with another secret is still noticed.

use std::borrow::Cow;
use std::collections::BTreeMap;

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
const SCRUBBED_CHARS_MIN: usize = 6;

/// The strings that stand at `paths`: what must not appear anywhere else either.
pub fn secrets(args: &CanonicalJson, paths: &[ArgPath]) -> Vec<String> {
    let value = if paths.is_empty() { serde_json::Value::Null } else { args.to_value() };
    let mut found = Vec::new();
    for path in paths {
        collect(&value, &path.0, &mut found);
    }
    found
}

fn collect(value: &serde_json::Value, path: &[String], found: &mut Vec<String>) {
    match (value, path.split_first()) {
        (serde_json::Value::Array(items), _) => items.iter().for_each(|item| collect(item, path, found)),
        (serde_json::Value::Object(members), Some((first, rest))) => {
            if let Some(member) = members.get(first) {
                collect(member, rest, found);
            }
        }
        (serde_json::Value::String(text), None) if text.chars().count() >= SCRUBBED_CHARS_MIN => found.push(text.clone()),
        _ => {}
    }
}

/// `text` without the secrets: the other side may have echoed them anywhere.
pub fn scrub(text: &str, secrets: &[String]) -> String {
    secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "[redacted]"))
}

/// The same inside JSON, where a secret stands with its escapes.
pub fn scrub_json(json: &Json, secrets: &[String]) -> Json {
    let escaped: Vec<String> = secrets.iter().map(|s| Json::string(s).as_str().trim_matches('"').to_owned()).collect();
    Json::parse(&scrub(json.as_str(), &escaped)).unwrap_or_else(|_| Json::null())
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
    let canonical = canonicalize(json).unwrap_or_else(|_| json.to_owned());
    let digest = Digest32::of_fields("counterfoil/redacted/1", &[&salt.0, canonical.as_bytes()]);
    format!("{{\"$redacted\":\"{digest}\"}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(args: &str, path: &str, salt: u8) -> String {
        let args = CanonicalJson::parse(args).unwrap();
        redact_args(&args, &[ArgPath::parse(path).unwrap()], &Salt([salt; 32])).as_str().to_owned()
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
}
