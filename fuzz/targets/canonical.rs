//! JSON as arguments and as results.
//!
//! Holds for arguments: the canonical form is canonical itself, and is the same JSON as the text to every other reader; what another reader refuses is
//! refused here. For results: the text is kept byte for byte, and whoever reads it as a value reads what is written there.
#![no_main]

use counterfoil_core::canonical::CanonicalError;
use counterfoil_core::{CanonicalJson, Json, codec, json_text};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|text: &str| {
    let read: Result<Value, _> = serde_json::from_str(text);
    match CanonicalJson::parse(text) {
        Ok(canonical) => {
            let again = CanonicalJson::parse(canonical.as_str()).expect("its own form is JSON");
            assert_eq!(canonical, again);
            assert_eq!(canonical.fingerprint(), again.fingerprint());
            // Another reader gives up on numbers beyond a double; what it can read is the same.
            if let Ok(value) = &read {
                let ours = serde_json::from_str::<Value>(canonical.as_str()).expect("JSON to it as well");
                assert!(same(&ours, value), "{ours} and {value}");
            }
            assert!(Json::parse(text).is_ok(), "arguments are results of someone");
            let stored = codec::encode(std::slice::from_ref(&canonical));
            assert_eq!(codec::decode::<CanonicalJson>(&stored).as_deref(), Ok(&[canonical][..]));
        }
        Err(CanonicalError::DuplicateMember { .. } | CanonicalError::TooDeep { .. } | CanonicalError::TooLarge { .. }) => {}
        Err(CanonicalError::Syntax { at, what }) => {
            assert!(at <= text.len());
            // The one bound that others do not have.
            assert!(read.is_err() || what == "the exponent is too large", "refused, and others read it as {read:?}");
        }
    }
    if let Ok(json) = Json::parse(text) {
        assert_eq!(json.as_str(), text.trim_matches([' ', '\t', '\n', '\r']));
        let stored = codec::encode(std::slice::from_ref(&json));
        assert_eq!(codec::decode::<Json>(&stored).as_deref(), Ok(&[json.clone()][..]));
        assert_eq!(json.to_value().is_null(), json.as_str() == "null", "it is {json}, and read as {}", json.to_value());
        if let Ok(value) = read {
            assert_eq!(json.to_value(), value);
            // Written by our writer, read by theirs.
            assert_eq!(serde_json::from_str::<Value>(&json_text::to_string(&value).expect("plain data")).expect("JSON"), value);
        }
    }
});

/// 1 and 1.0 are one number.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other)),
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len() && one.iter().all(|(name, one)| other.get(name).is_some_and(|other| same(one, other)))
        }
        _ => one == other,
    }
}
