//! A YAML value that knows where it stands.
//!
//! Scalars are read by YAML 1.2's core schema: `off`, `no` and `yes` are words, not booleans.

use super::mistake::Place;

#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub place: Place,
    pub value: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    String(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
    /// Was reported when the tree was built; whoever reads it says nothing more.
    Wrong,
}

/// A key of a map. Unique within it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    pub text: String,
    pub place: Place,
}

impl Node {
    pub fn empty_map() -> Self {
        Self { place: Place::START, value: Value::Map(Vec::new()) }
    }

    /// The value under `key`, if this is a map that has one.
    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|(k, _)| k.text == key).map(|(_, node)| node),
            _ => None,
        }
    }

    /// The node at a JSON pointer, or the deepest one on the way to it.
    pub fn nearest_to(&self, pointer: &str) -> &Node {
        let mut node = self;
        for part in pointer.split('/').skip(1) {
            let part = part.replace("~1", "/").replace("~0", "~");
            let next = match &node.value {
                Value::List(items) => part.parse::<usize>().ok().and_then(|i| items.get(i)),
                _ => node.get(&part),
            };
            let Some(next) = next else { break };
            node = next;
        }
        node
    }

    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// As JSON. Floats that JSON cannot hold were refused when the tree was built.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null | Value::Wrong => serde_json::Value::Null,
            Value::Bool(b) => (*b).into(),
            Value::Int(i) => (*i).into(),
            Value::Float(f) => (*f).into(),
            Value::String(s) => s.as_str().into(),
            Value::List(items) => items.iter().map(Node::to_json).collect(),
            Value::Map(entries) => {
                serde_json::Value::Object(entries.iter().map(|(key, node)| (key.text.clone(), node.to_json())).collect())
            }
        }
    }

    /// Values in this subtree.
    pub fn weight(&self) -> usize {
        1 + self.below().map(Node::weight).sum::<usize>()
    }

    /// Lists and maps from here to the deepest value.
    pub fn depth(&self) -> usize {
        match &self.value {
            Value::List(_) | Value::Map(_) => 1 + self.below().map(Node::depth).max().unwrap_or(0),
            _ => 0,
        }
    }

    fn below(&self) -> Box<dyn Iterator<Item = &Node> + '_> {
        match &self.value {
            Value::List(items) => Box::new(items.iter()),
            Value::Map(entries) => Box::new(entries.iter().map(|(_, node)| node)),
            _ => Box::new(std::iter::empty()),
        }
    }

    /// What stands here, in words: for "found …".
    pub fn found(&self) -> String {
        const TEXT_CHARS_MAX: usize = 40;
        match &self.value {
            Value::Null | Value::Wrong => "nothing".into(),
            Value::Bool(b) => format!("{b}"),
            Value::Int(i) => format!("the number {i}"),
            Value::Float(f) => format!("the number {f}"),
            Value::String(s) if s.chars().count() > TEXT_CHARS_MAX => {
                format!("the text {:?}…", s.chars().take(TEXT_CHARS_MAX).collect::<String>())
            }
            Value::String(s) => format!("the text {s:?}"),
            Value::List(_) => "a list".into(),
            Value::Map(_) => "a map".into(),
        }
    }
}

/// What a plain (unquoted) scalar means. `Err` says why it means nothing here.
pub fn plain(text: &str) -> Result<Value, String> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        "true" | "True" | "TRUE" => return Ok(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(Value::Bool(false)),
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "-.inf" | "-.Inf" | "-.INF" => {
            return Err(format!("{text} has no place in JSON; write a finite number"));
        }
        _ => {}
    }
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0o")) {
        let radix = if text.starts_with("0x") { 16 } else { 8 };
        if !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix)) {
            return i64::from_str_radix(digits, radix).map(Value::Int).map_err(|_| too_large(text));
        }
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !unsigned.is_empty() && unsigned.bytes().all(|b| b.is_ascii_digit()) {
        // JSON would lose digits of what is larger: better to say so than to send another number than was written.
        return text.parse().map(Value::Int).map_err(|_| too_large(text));
    }
    if looks_like_float(unsigned) {
        return match text.parse::<f64>() {
            Ok(f) if f.is_finite() => Ok(Value::Float(f)),
            _ => Err(too_large(text)),
        };
    }
    Ok(Value::String(text.to_owned()))
}

fn too_large(text: &str) -> String {
    let shown: String = text.chars().take(40).collect();
    format!("the number {shown} is too large to be kept exactly; quote it if it is an identifier")
}

/// `[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?` or `\.[0-9]+(…)?`
fn looks_like_float(text: &str) -> bool {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (text, None),
    };
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let mantissa_ok = match mantissa.split_once('.') {
        Some((whole, part)) => digits(whole) && digits(part) && !(whole.is_empty() && part.is_empty()),
        None => digits(mantissa) && !mantissa.is_empty(),
    };
    mantissa_ok && exponent.is_none_or(|e| digits(e) && !e.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_follow_the_core_schema() {
        let check = |text: &str, expected: Value| assert_eq!(plain(text), Ok(expected), "{text}");
        check("", Value::Null);
        check("~", Value::Null);
        check("True", Value::Bool(true));
        for word in ["off", "no", "yes", "on", "n", "10s", "1_000", "2026-01-01", "0x", "1.2.3", ".", "e5", "+", "-", "1e", "50/s"] {
            check(word, Value::String(word.into()));
        }
        check("-12", Value::Int(-12));
        check("007", Value::Int(7));
        check("0x1F", Value::Int(31));
        check("0o17", Value::Int(15));
        check("1.5", Value::Float(1.5));
        check(".5", Value::Float(0.5));
        check("1e3", Value::Float(1000.0));
        check("-2.", Value::Float(-2.0));
    }

    #[test]
    fn numbers_that_json_cannot_hold_are_refused() {
        for text in ["9223372036854775808", "1e999", ".nan", "-.inf", "0xffffffffffffffffff"] {
            assert!(plain(text).is_err(), "{text}");
        }
    }
}
