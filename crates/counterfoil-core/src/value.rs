//! JSON text as a value, for whoever checks it or looks into it.
//!
//! What must stay true: the value has the shape of the text. A number that no double holds stands in it as its text, which no schema takes for a number; half a surrogate pair, which JSON allows and text
//! does not, is U+FFFD; they must not make all that stands around them disappear, or a schema would hold for what it was never shown. Texts are at most [`DEPTH_MAX`] deep
//! ([`too_deep`]); what is deeper all the same, from a ledger that others wrote, stands in the value as its text.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::canonical::DEPTH_MAX;
use crate::redact::{Token, Tokens, decoded};

/// Of valid JSON text.
pub(crate) fn value_of(text: &str) -> Value {
    at_depth(text, 1)
}

/// The fast way first: hardly a text has anything in it that needs the other.
fn at_depth(text: &str, depth: usize) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| match text.as_bytes().first() {
        Some(b'[') if depth <= DEPTH_MAX => {
            let items = serde_json::from_str::<Vec<&RawValue>>(text);
            items.map_or_else(|_| text.into(), |items| items.into_iter().map(|item| at_depth(item.get(), depth + 1)).collect())
        }
        Some(b'{') if depth <= DEPTH_MAX => {
            let members = serde_json::from_str::<BTreeMap<Cow<'_, str>, &RawValue>>(text);
            let member = |(name, member): (Cow<'_, str>, &RawValue)| (name.into_owned(), at_depth(member.get(), depth + 1));
            members.map_or_else(|_| text.into(), |members| members.into_iter().map(member).collect())
        }
        Some(b'"') => decoded(text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)).into(),
        _ => text.into(),
    })
}

/// Whether valid JSON text is nested deeper than others can follow.
pub(crate) fn too_deep(text: &str) -> bool {
    let mut depth = 0_usize;
    Tokens(text).any(|token| {
        match token {
            Token::Other("[" | "{") => depth += 1,
            Token::Other("]" | "}") => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > DEPTH_MAX
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::canonical::{CanonicalJson, DEPTH_MAX, Json};

    fn nested(depth: usize) -> String {
        format!("{}1{}", "[".repeat(depth), "]".repeat(depth))
    }

    /// A schema that is shown nothing holds for everything.
    #[test]
    fn what_no_double_holds_does_not_hide_what_stands_beside_it() {
        let args = CanonicalJson::parse(r#"{"cents":99999999,"deep":[{"n":-1e400}],"n":1e400}"#).unwrap();
        assert_eq!(args.to_value(), json!({ "cents": 99_999_999, "deep": [{ "n": "-1e+400" }], "n": "1e+400" }));
        let args = CanonicalJson::parse(&format!(r#"{{"a":{},"b":2}}"#, nested(DEPTH_MAX - 1))).unwrap();
        assert_eq!(args.to_value()["b"], 2);
        assert!(args.to_value()["a"].is_array());
        assert!(CanonicalJson::parse(&nested(DEPTH_MAX)).unwrap().to_value().is_array());
    }

    /// From a ledger that others wrote.
    #[test]
    fn what_is_deeper_than_allowed_stands_as_its_text() {
        for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
            let mut value = super::value_of(&format!("{}1e400{}", open.repeat(DEPTH_MAX + 7), close.repeat(DEPTH_MAX + 7)));
            let mut depth = 0;
            while let Some(inner) = value.get_mut(0).map(std::mem::take).or_else(|| value.get_mut("a").map(std::mem::take)) {
                (value, depth) = (inner, depth + 1);
            }
            assert_eq!((depth, value.as_str().map(|text| text.matches(open).count())), (DEPTH_MAX, Some(7)), "{open}");
        }
    }

    /// Such a text is stored as a string by whoever took it for JSON: nothing of it is lost, and nobody's stack is exhausted.
    #[test]
    fn what_is_too_deep_to_be_followed_is_no_json() {
        for good in [
            "null",
            r#" {"a":"]]\\\"[[ \ud83d"} "#,
            r#"["\\u", "é"]"#,
            "1e400",
            &nested(DEPTH_MAX),
            &format!("[{}]", ["[]"; 200].join(",")),
        ] {
            assert_eq!(Json::parse(good).unwrap().as_str(), good.trim(), "{good}");
        }
        for bad in ["1 2", "", &nested(DEPTH_MAX + 1), &nested(100_000), &format!("[\"[\",{}]", nested(DEPTH_MAX))] {
            assert!(Json::parse(bad).is_err(), "{bad}");
        }
    }

    /// Records were written before it was refused.
    #[test]
    fn what_was_stored_before_is_read_as_far_as_it_goes() {
        let stored = |text: &str| serde_json::from_str::<Json>(text).unwrap().to_value();
        assert_eq!(stored(r#"{"a":"x\ud800\n","b":[1]}"#), json!({ "a": "x\u{fffd}\n", "b": [1] }));
        assert_eq!(stored(r#"{"\ud800":1}"#), json!(r#"{"\ud800":1}"#));
        let deep = stored(&nested(10_000));
        let mut inner = &deep;
        while let Some(item) = inner.get(0) {
            inner = item;
        }
        assert!(inner.as_str().is_some_and(|text| text.starts_with("[[") && text.ends_with("]]")));
    }
}
