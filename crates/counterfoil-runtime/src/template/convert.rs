//! JSON ↔ CEL, with the digits kept.
//!
//! Must stay true: what JSON text goes in comes out with the same value. A number that neither 64 bits nor a double hold is carried as
//! [`ExactNumber`]: it can be passed on and printed, not computed with.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use cel::Value;
use cel::objects::{Key, Map, Opaque, OptionalValue};
use counterfoil_core::canonical::{DEPTH_MAX, canonicalize};
use serde_json::value::RawValue;

/// Beyond this a double no longer tells neighbouring integers apart.
pub(super) const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_991.0;
/// A decimal with fewer significant digits is always exact as a double, in the sense that it prints as it was written.
const DIGITS_INEXACT_MIN: usize = 16;

/// Looking through so much text takes about as long as one step of a loop.
const BYTES_PER_STEP: usize = 64;

/// A number as it was written.
#[derive(Debug, PartialEq, Eq)]
struct ExactNumber(String);

impl Opaque for ExactNumber {
    fn runtime_type_name(&self) -> &str {
        "number of more than 64 bits"
    }
}

/// JSON text as a CEL value, and its size: how many steps a loop through all of it takes.
pub(super) fn from_text(text: &str) -> (Value, usize) {
    let mut size = 0;
    let value = match serde_json::from_str::<serde_json::Value>(text) {
        Ok(value) if survives(text, &value) => from_json(&value, &mut size),
        _ => serde_json::from_str::<&RawValue>(text).map_or(Value::Null, |raw| from_raw(raw, &mut size, 1)),
    };
    (value, size)
}

/// Whether parsing kept every number.
fn survives(text: &str, value: &serde_json::Value) -> bool {
    let longest = text.split(|c: char| !c.is_ascii_digit() && c != '.').map(str::len).max().unwrap_or(0);
    longest < DIGITS_INEXACT_MIN || canonicalize(text).is_ok_and(|text| canonicalize(&value.to_string()).is_ok_and(|kept| kept == text))
}

pub(super) fn from_json(value: &serde_json::Value, size: &mut usize) -> Value {
    *size += 1;
    match value {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(b) => Value::Bool(*b),
        serde_json::Value::String(s) => {
            *size += s.len() / BYTES_PER_STEP;
            Value::from(s.as_str())
        }
        serde_json::Value::Number(n) => match (n.as_i64(), n.as_u64(), n.as_f64()) {
            (Some(i), ..) => Value::Int(i),
            (_, Some(u), _) => Value::UInt(u),
            (.., Some(f)) => whole(f).map_or(Value::Float(f), Value::Int),
            _ => Value::Opaque(Arc::new(ExactNumber(n.to_string()))),
        },
        serde_json::Value::Array(list) => Value::List(Arc::new(list.iter().map(|v| from_json(v, size)).collect())),
        serde_json::Value::Object(map) => object(map.iter().map(|(k, v)| (k.as_str(), from_json(v, size)))),
    }
}

/// The slow way, taken only for texts with a number that serde_json would round. What is too deep to be followed, in a ledger that others wrote, is its text.
fn from_raw(raw: &RawValue, size: &mut usize, depth: usize) -> Value {
    *size += 1;
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'[' | b'{') if depth > DEPTH_MAX => Value::from(text),
        Some(b'[') => {
            let list: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
            Value::List(Arc::new(list.into_iter().map(|v| from_raw(v, size, depth + 1)).collect()))
        }
        Some(b'{') => {
            let map: BTreeMap<String, &RawValue> = serde_json::from_str(text).unwrap_or_default();
            object(map.iter().map(|(k, v)| (k.as_str(), from_raw(v, size, depth + 1))))
        }
        Some(b'-' | b'0'..=b'9') => match serde_json::from_str::<serde_json::Value>(text) {
            Ok(number) if survives(text, &number) => from_json(&number, &mut 0),
            _ => Value::Opaque(Arc::new(ExactNumber(text.to_owned()))),
        },
        _ => serde_json::from_str(text).map_or(Value::Null, |value| from_json(&value, size)),
    }
}

fn object<'a>(members: impl Iterator<Item = (&'a str, Value)>) -> Value {
    let map: HashMap<Key, Value> = members.map(|(name, value)| (Key::from(name), value)).collect();
    Value::Map(Map { map: Arc::new(map) })
}

/// The integer a double stands for, where that is certain.
fn whole(f: f64) -> Option<i64> {
    (f.fract() == 0.0 && f.abs() <= EXACT_INTEGER_MAX).then_some(f as i64)
}

pub(super) fn to_json(value: &Value) -> Result<serde_json::Value, String> {
    Ok(match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(b) => (*b).into(),
        Value::Int(i) => (*i).into(),
        Value::UInt(u) => (*u).into(),
        Value::Float(f) => match whole(*f) {
            Some(i) => i.into(),
            None => serde_json::Number::from_f64(*f).ok_or("the result is not a finite number")?.into(),
        },
        Value::String(s) => s.as_str().into(),
        Value::List(list) => list.iter().map(to_json).collect::<Result<Vec<_>, _>>()?.into(),
        Value::Map(map) => {
            let members = map.map.iter().map(|(k, v)| Ok((k.to_string(), to_json(v)?)));
            serde_json::Value::Object(members.collect::<Result<_, String>>()?)
        }
        Value::Opaque(opaque) => match present(&**opaque) {
            Some(value) => to_json(value)?,
            None if is_absent(&**opaque) => serde_json::Value::Null,
            None => return Err(format!("{} cannot be computed with; pass it as a string", kind(value))),
        },
        other => return Err(format!("{} is not JSON", kind(other))),
    })
}

/// As JSON text, every digit kept, members sorted.
pub(super) fn write_json(value: &Value, out: &mut String) -> Result<(), String> {
    match value {
        Value::List(list) => {
            out.push('[');
            for (i, value) in list.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { "," });
                write_json(value, out)?;
            }
            out.push(']');
        }
        Value::Map(map) => {
            let members: BTreeMap<String, &Value> = map.map.iter().map(|(k, v)| (k.to_string(), v)).collect();
            out.push('{');
            for (i, (name, value)) in members.into_iter().enumerate() {
                out.push_str(if i == 0 { "" } else { "," });
                out.push_str(&serde_json::Value::String(name).to_string());
                out.push(':');
                write_json(value, out)?;
            }
            out.push('}');
        }
        Value::Opaque(opaque) => match (exact(&**opaque), present(&**opaque)) {
            (Some(number), _) => out.push_str(number),
            (_, Some(value)) => write_json(value, out)?,
            _ => out.push_str(&to_json(value)?.to_string()),
        },
        scalar => out.push_str(&to_json(scalar)?.to_string()),
    }
    Ok(())
}

/// A scalar as it stands in a text: strings as they are, numbers and booleans printed, nothing else.
pub(super) fn to_text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(s) => Ok(s.as_str().to_owned()),
        Value::Bool(_) | Value::Int(_) | Value::UInt(_) => Ok(to_json(value)?.to_string()),
        // The form numbers have everywhere else in the ledger: 1e21, not 1000000000000000000000.0.
        Value::Float(_) => canonicalize(&to_json(value)?.to_string()).map_err(|e| e.to_string()),
        Value::Opaque(opaque) if exact(&**opaque).is_some() => Ok(exact(&**opaque).unwrap_or_default().to_owned()),
        Value::Opaque(opaque) if present(&**opaque).is_some() => to_text(present(&**opaque).unwrap_or(&Value::Null)),
        other => Err(format!("is {}, which has no place inside a text: only strings, numbers and booleans do", kind(other))),
    }
}

fn exact(opaque: &dyn Opaque) -> Option<&str> {
    opaque.downcast_ref::<ExactNumber>().map(|number| number.0.as_str())
}

fn present(opaque: &dyn Opaque) -> Option<&Value> {
    opaque.downcast_ref::<OptionalValue>().and_then(OptionalValue::value)
}

fn is_absent(opaque: &dyn Opaque) -> bool {
    opaque.downcast_ref::<OptionalValue>().is_some_and(|optional| optional.value().is_none())
}

/// What kind of value it is, for messages: never the value itself.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Int(_) | Value::UInt(_) => "an integer",
        Value::Float(_) => "a double",
        Value::String(_) => "a string",
        Value::List(_) => "a list",
        Value::Map(_) => "an object",
        Value::Bytes(_) => "a byte string",
        Value::Opaque(opaque) if exact(&**opaque).is_some() => "a number of more than 64 bits",
        Value::Opaque(_) => "an optional value",
        _ => "a value without a JSON form",
    }
}
