//! Canonical arguments: RFC 8785, made injective on numbers.
//!
//! Object members are sorted at every depth (by UTF-16 code units, as the RFC asks), array order is kept, escapes are
//! normalised. Numbers print as ECMAScript prints the double, *when that is the number that was written*; one
//! that a double cannot hold (9007199254740993, 1e400, 0.1000000000000000055) keeps its exact decimal value in a normal form.
//! So two texts are equal here exactly when they hold the same values: 1 and 1.0 are, 9007199254740993 and …992 are not.
//! Duplicate members, NaN, lone surrogates and whatever is not JSON are refused with the byte offset.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use thiserror::Error;

use crate::ids::{Digest32, Fingerprint};
use crate::json_text::{self, first_special, write_string};
use crate::value::{too_deep, value_of};

/// Largest arguments, in bytes of the text given. A ledger is not a file store: put large things elsewhere and pass a reference.
pub const ARGS_BYTES_MAX: usize = 1 << 20;
/// Integers of up to this many characters are below 2^53.
const EXACT_DIGITS: usize = 15;
/// Largest exponent of a number, as it is written and in its normal form: what was read once is read again.
const EXPONENT_MAX: i64 = 1_000_000;
/// Deepest nesting. Deeper values exhaust the stack of whoever reads them next.
pub const DEPTH_MAX: usize = 128;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CanonicalError {
    #[error("{bytes} bytes of JSON; at most {max} are allowed: pass a reference instead of the thing itself")]
    TooLarge { bytes: usize, max: usize },
    #[error("nested deeper than {DEPTH_MAX} levels at byte {at}")]
    TooDeep { at: usize },
    #[error("the member {name:?} appears twice, the second time at byte {at}: which one is meant cannot be known")]
    DuplicateMember { name: String, at: usize },
    #[error("not JSON at byte {at}: {what}")]
    Syntax { at: usize, what: String },
}

/// JSON text in canonical form. Cheap to clone; checked once, never again when it is written.
#[derive(Clone)]
pub struct CanonicalJson(Arc<str>);

impl CanonicalJson {
    pub fn parse(text: &str) -> Result<Self, CanonicalError> {
        if text.len() > ARGS_BYTES_MAX {
            return Err(CanonicalError::TooLarge { bytes: text.len(), max: ARGS_BYTES_MAX });
        }
        canonicalize(text).map(Self::trusted)
    }

    pub fn from_value(value: &serde_json::Value) -> Result<Self, CanonicalError> {
        Self::parse(&value.to_string())
    }

    pub fn empty_object() -> Self {
        Self::trusted("{}".into())
    }

    fn trusted(canonical: String) -> Self {
        Self(canonical.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn fingerprint(&self) -> Fingerprint {
        Digest32::of(self.as_str().as_bytes())
    }

    pub fn to_value(&self) -> serde_json::Value {
        value_of(self.as_str())
    }
}

impl PartialEq for CanonicalJson {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}
impl Eq for CanonicalJson {}

impl fmt::Debug for CanonicalJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for CanonicalJson {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        json_text::write_raw(&self.0, s)
    }
}
impl<'de> Deserialize<'de> for CanonicalJson {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        // Trusted: only text that `parse` made is ever stored, and the record's checksum covers it.
        Ok(Self(Box::<RawValue>::deserialize(d)?.get().into()))
    }
}

/// Any valid JSON text, kept byte for byte. Results are this: they are replayed, never re-printed.
#[derive(Clone)]
pub struct Json(Arc<str>);

impl Json {
    /// Keeps `text` as it is when it is one JSON value that everyone can follow.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        let text = serde_json::from_str::<&RawValue>(text)?.get();
        if too_deep(text) {
            return Err(serde::de::Error::custom(format_args!("nested deeper than {DEPTH_MAX} levels")));
        }
        Ok(Self(text.into()))
    }

    /// Text that was made of another's by putting values in the place of values.
    pub(crate) fn made_of_json(text: String) -> Self {
        Self(text.into())
    }

    pub fn from_value(value: &serde_json::Value) -> Self {
        Self(json_text::to_string(value).expect("a JSON value is JSON").into())
    }

    pub fn string(text: &str) -> Self {
        Self::from_value(&serde_json::Value::String(text.to_owned()))
    }

    pub fn null() -> Self {
        Self::from_value(&serde_json::Value::Null)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn to_value(&self) -> serde_json::Value {
        value_of(self.as_str())
    }

    pub fn digest(&self) -> Digest32 {
        Digest32::of(self.as_str().as_bytes())
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}
impl Eq for Json {}

impl From<CanonicalJson> for Json {
    fn from(c: CanonicalJson) -> Self {
        Self(c.0)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
impl Serialize for Json {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        json_text::write_raw(&self.0, s)
    }
}
impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Ok(Self(Box::<RawValue>::deserialize(d)?.get().into()))
    }
}

/// The canonical form of `text`.
pub fn canonicalize(text: &str) -> Result<String, CanonicalError> {
    let mut reader = Reader { text, bytes: text.as_bytes(), at: 0, depth: 0 };
    let mut out = String::with_capacity(text.len());
    reader.space();
    reader.value(&mut out)?;
    reader.space();
    if reader.at < reader.bytes.len() {
        return Err(reader.syntax("something follows the value"));
    }
    Ok(out)
}

struct Member<'a> {
    name: Cow<'a, str>,
    /// Name and value in the output, already canonical.
    text: Range<usize>,
    /// Where the name stands in the input.
    at: usize,
}

/// Puts the members, which end the output, into their order. Most callers write them sorted already.
fn sort_members(mut members: Vec<Member<'_>>, out: &mut String) -> Result<(), CanonicalError> {
    let order = |a: &Member<'_>, b: &Member<'_>| a.name.encode_utf16().cmp(b.name.encode_utf16());
    if members.is_sorted_by(|a, b| order(a, b).is_lt()) {
        return Ok(());
    }
    // Stable: of two equal names the later one stands second, and its place is the one to report.
    members.sort_by(order);
    if let Some(pair) = members.windows(2).find(|pair| pair[0].name == pair[1].name) {
        return Err(CanonicalError::DuplicateMember { name: pair[1].name.clone().into_owned(), at: pair[1].at });
    }
    let start = members.iter().map(|member| member.text.start).min().unwrap_or(out.len());
    let texts: Vec<&str> = members.iter().map(|member| &out[member.text.clone()]).collect();
    let sorted = texts.join(",");
    out.truncate(start);
    out.push_str(&sorted);
    Ok(())
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn syntax(&self, what: impl Into<String>) -> CanonicalError {
        CanonicalError::Syntax { at: self.at, what: what.into() }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn value(&mut self, out: &mut String) -> Result<(), CanonicalError> {
        match self.peek() {
            Some(b'{') => self.nested(out, Self::object),
            Some(b'[') => self.nested(out, Self::array),
            Some(b'"') => {
                let s = self.string()?;
                write_string(&s, out);
                Ok(())
            }
            Some(b'-' | b'0'..=b'9') => self.number(out),
            Some(_) => self.word(out),
            None => Err(self.syntax("the text ends where a value should be")),
        }
    }

    fn nested(&mut self, out: &mut String, inner: fn(&mut Self, &mut String) -> Result<(), CanonicalError>) -> Result<(), CanonicalError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(CanonicalError::TooDeep { at: self.at });
        }
        self.at += 1;
        inner(self, out)?;
        self.depth -= 1;
        Ok(())
    }

    fn word(&mut self, out: &mut String) -> Result<(), CanonicalError> {
        for word in ["true", "false", "null"] {
            if self.bytes[self.at..].starts_with(word.as_bytes()) {
                self.at += word.len();
                out.push_str(word);
                return Ok(());
            }
        }
        let rest = &self.text[self.at..];
        let word: String = rest.chars().take_while(|c| c.is_alphanumeric()).take(16).collect();
        let shown = if word.is_empty() { rest.chars().take(1).collect() } else { word };
        Err(self.syntax(format!("{shown:?} is not a JSON value")))
    }

    fn array(&mut self, out: &mut String) -> Result<(), CanonicalError> {
        out.push('[');
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            out.push(']');
            return Ok(());
        }
        loop {
            self.space();
            self.value(out)?;
            self.space();
            match self.peek() {
                Some(b',') => out.push(','),
                Some(b']') => {
                    self.at += 1;
                    out.push(']');
                    return Ok(());
                }
                _ => return Err(self.syntax("expected ',' or ']'")),
            }
            self.at += 1;
        }
    }

    fn object(&mut self, out: &mut String) -> Result<(), CanonicalError> {
        out.push('{');
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            out.push('}');
            return Ok(());
        }
        let mut members: Vec<Member<'a>> = Vec::new();
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.syntax("expected a member name in double quotes"));
            }
            let (at, start) = (self.at, out.len());
            let name = self.string()?;
            write_string(&name, out);
            self.space();
            if self.peek() != Some(b':') {
                return Err(self.syntax("expected ':' after a member name"));
            }
            self.at += 1;
            out.push(':');
            self.space();
            self.value(out)?;
            members.push(Member { name, text: start..out.len(), at });
            self.space();
            match self.peek() {
                Some(b',') => {
                    self.at += 1;
                    out.push(',');
                }
                Some(b'}') => {
                    self.at += 1;
                    break;
                }
                _ => return Err(self.syntax("expected ',' or '}'")),
            }
        }
        sort_members(members, out)?;
        out.push('}');
        Ok(())
    }

    /// Borrowed where it holds no escapes, as most do not.
    fn string(&mut self) -> Result<Cow<'a, str>, CanonicalError> {
        self.at += 1; // the opening quote
        let start = self.at;
        self.plain();
        if self.peek() == Some(b'"') {
            self.at += 1;
            return Ok(Cow::Borrowed(&self.text[start..self.at - 1]));
        }
        self.at = start;
        self.escaped_string().map(Cow::Owned)
    }

    fn plain(&mut self) {
        let rest = &self.bytes[self.at..];
        self.at += first_special(rest).unwrap_or(rest.len());
    }

    fn escaped_string(&mut self) -> Result<String, CanonicalError> {
        let mut out = String::new();
        loop {
            let start = self.at;
            self.plain();
            out.push_str(&self.text[start..self.at]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => self.escape(&mut out)?,
                Some(b) => return Err(self.syntax(format!("control character 0x{b:02x} in a string; write it as \\u{b:04x}"))),
                None => return Err(self.syntax("a string is not closed")),
            }
        }
    }

    fn escape(&mut self, out: &mut String) -> Result<(), CanonicalError> {
        self.at += 1; // the backslash
        let c = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                out.push(self.unicode()?);
                return Ok(());
            }
            _ => return Err(self.syntax("unknown escape")),
        };
        self.at += 1;
        out.push(c);
        Ok(())
    }

    fn unicode(&mut self) -> Result<char, CanonicalError> {
        let high = self.hex4()?;
        if let Some(c) = char::from_u32(high) {
            return Ok(c);
        }
        let paired = high < 0xdc00 && self.bytes[self.at..].starts_with(b"\\u");
        if paired {
            self.at += 2;
            let low = self.hex4()?;
            if (0xdc00..0xe000).contains(&low) {
                let code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                return Ok(char::from_u32(code).expect("a surrogate pair is a character"));
            }
        }
        Err(self.syntax("a lone surrogate is not a character"))
    }

    fn hex4(&mut self) -> Result<u32, CanonicalError> {
        let digits = self.bytes.get(self.at..self.at + 4).and_then(|d| std::str::from_utf8(d).ok());
        let code = digits.filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit())).and_then(|d| u32::from_str_radix(d, 16).ok());
        let code = code.ok_or_else(|| self.syntax("\\u needs four hexadecimal digits"))?;
        self.at += 4;
        Ok(code)
    }

    fn number(&mut self, out: &mut String) -> Result<(), CanonicalError> {
        let start = self.at;
        let negative = self.peek() == Some(b'-');
        if negative {
            self.at += 1;
        }
        let whole = self.digits()?;
        if whole.len() > 1 && whole.starts_with('0') {
            self.at = start;
            return Err(self.syntax("a number must not begin with a zero"));
        }
        let fraction = if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?
        } else {
            ""
        };
        let exponent = if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            let sign = if self.peek() == Some(b'-') { -1 } else { 1 };
            if matches!(self.peek(), Some(b'-' | b'+')) {
                self.at += 1;
            }
            let digits = self.digits()?;
            let size: i64 = digits.parse().ok().filter(|e| *e <= EXPONENT_MAX).ok_or_else(|| self.syntax("the exponent is too large"))?;
            sign * size
        } else {
            0
        };
        let text = &self.text[start..self.at];
        // Integers that a double holds are their own canonical form.
        if text.len() <= EXACT_DIGITS && whole.len() + usize::from(negative) == text.len() && whole != "0" {
            out.push_str(text);
            return Ok(());
        }
        let exact = Decimal::new(negative, whole, fraction, exponent);
        if (exact.point - 1).abs() > EXPONENT_MAX {
            return Err(self.syntax("the exponent is too large"));
        }
        exact.write(text, out);
        Ok(())
    }

    fn digits(&mut self) -> Result<&'a str, CanonicalError> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start {
            return Err(self.syntax("expected a digit"));
        }
        Ok(&self.text[start..self.at])
    }
}

/// The exact value of a number: 0.`digits` × 10^`point`, no leading or trailing zero digits; zero has none.
#[derive(PartialEq, Eq)]
struct Decimal {
    negative: bool,
    digits: String,
    point: i64,
}

impl Decimal {
    fn new(negative: bool, whole: &str, fraction: &str, exponent: i64) -> Self {
        let all = format!("{whole}{fraction}");
        let stripped = all.trim_start_matches('0');
        let leading = (all.len() - stripped.len()) as i64;
        let digits = stripped.trim_end_matches('0').to_owned();
        let point = if digits.is_empty() { 0 } else { whole.len() as i64 + exponent - leading };
        // RFC 8785 prints minus zero as 0.
        Self { negative: negative && !digits.is_empty(), digits, point }
    }

    fn of_printed(text: &str) -> Self {
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let exponent = exponent.trim_start_matches('+').parse().expect("a printed exponent is an integer");
        Self::new(negative, whole, fraction, exponent)
    }

    fn write(&self, text: &str, out: &mut String) {
        let double: f64 = text.parse().expect("a JSON number is a Rust number");
        if double.is_finite() {
            let mut buffer = ryu_js::Buffer::new();
            let printed = buffer.format_finite(double);
            if Self::of_printed(printed) == *self {
                out.push_str(printed);
                return;
            }
        }
        self.write_exact(out);
    }

    /// Integers in full where that is short, otherwise one digit before the point and an exponent, as ECMAScript does.
    fn write_exact(&self, out: &mut String) {
        if self.negative {
            out.push('-');
        }
        let count = self.digits.len() as i64;
        if self.point >= count && self.point <= 40 {
            out.push_str(&self.digits);
            out.extend(std::iter::repeat_n('0', (self.point - count) as usize));
            return;
        }
        let (first, rest) = self.digits.split_at(1);
        out.push_str(first);
        if !rest.is_empty() {
            out.push('.');
            out.push_str(rest);
        }
        let exponent = self.point - 1;
        out.push_str(if exponent < 0 { "e-" } else { "e+" });
        out.push_str(&exponent.abs().to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn json_is_shown_as_it_is() {
        let json = Json::parse(r#"{"b":1, "a":null}"#).unwrap();
        assert_eq!((format!("{json:?}"), json.to_string()), (json.as_str().to_owned(), json.as_str().to_owned()));
    }

    #[test]
    fn canonical_forms() {
        let check = |text: &str, expected: &str| assert_eq!(canonicalize(text).unwrap(), expected, "{text}");
        check(r#" { "b" : 1 , "a" : [ { "d" : 1, "c" : 2 } , null ] } "#, r#"{"a":[{"c":2,"d":1},null],"b":1}"#);
        check("[3,1,2]", "[3,1,2]");
        check("1.0", "1");
        check("-0", "0");
        check("-0.0", "0");
        check("1e2", "100");
        check("0.1", "0.1");
        check("1E-7", "1e-7");
        check("9007199254740991", "9007199254740991");
        check("9007199254740992", "9007199254740992");
        check("9007199254740993", "9007199254740993");
        check("9007199254740993.0", "9007199254740993");
        check("-9007199254740993", "-9007199254740993");
        check("18446744073709551616", "18446744073709551616");
        check("1.8446744073709552e19", "18446744073709552000");
        check("1e400", "1e+400");
        check("1.50e400", "1.5e+400");
        check("0.1000000000000000055511151231257827", "1.000000000000000055511151231257827e-1");
        check(r#""\u0041\/\u00e9\ud83d\ude00\n\u001f""#, "\"A/é😀\\n\\u001f\"");
        check(r#"{"\u20ac":1,"\r":2,"1":3,"\ud83d\ude02":4,"\ufb33":5}"#, "{\"\\r\":2,\"1\":3,\"€\":1,\"😂\":4,\"\u{fb33}\":5}");
        check("\"1\"", "\"1\"");
        check(r#""\b\f\n\r\t\"\\\/""#, r#""\b\f\n\r\t\"\\/""#);
        check("1.000000000000000055511151231257827", "1.000000000000000055511151231257827e+0");
        check("1000000000000000000000000", "1e+24");
        check("-100", "-100");
    }

    #[test]
    fn equal_are_equal_texts_and_no_others() {
        let (one, same, other) = (canonical(r#"{"a":1.0}"#), canonical(r#"{ "a": 1 }"#), canonical(r#"{"a":2}"#));
        assert!(one == same && one != other);
        assert!(Json::from(one.clone()) == Json::from(same) && Json::from(one.clone()) != Json::from(other));
        assert_eq!(format!("{one:?}"), r#"{"a":1}"#);
    }

    fn canonical(text: &str) -> CanonicalJson {
        CanonicalJson::parse(text).unwrap()
    }

    #[test]
    fn refusals_name_the_spot() {
        let check = |text: &str, expected: &str| assert_eq!(canonicalize(text).unwrap_err().to_string(), expected, "{text}");
        check("", "not JSON at byte 0: the text ends where a value should be");
        check("NaN", r#"not JSON at byte 0: "NaN" is not a JSON value"#);
        check("[1, -Infinity]", "not JSON at byte 5: expected a digit");
        check(
            r#"{"a":1,"b":{"a":1,"a":2}}"#,
            r#"the member "a" appears twice, the second time at byte 18: which one is meant cannot be known"#,
        );
        check(r#"{"a":1,"\u0061":2}"#, r#"the member "a" appears twice, the second time at byte 7: which one is meant cannot be known"#);
        check("01", "not JSON at byte 0: a number must not begin with a zero");
        check(r#""\ud800""#, "not JSON at byte 7: a lone surrogate is not a character");
        check(r#""\udc00\udc00""#, "not JSON at byte 7: a lone surrogate is not a character");
        check("{} x", "not JSON at byte 3: something follows the value");
        check("{'a':1}", "not JSON at byte 1: expected a member name in double quotes");
        check("\"a\nb\"", "not JSON at byte 2: control character 0x0a in a string; write it as \\u000a");
        check("1e9999999", "not JSON at byte 9: the exponent is too large");
        // What comes out goes in again.
        check("10e1000000", "not JSON at byte 10: the exponent is too large");
        check("0.1e-1000000", "not JSON at byte 12: the exponent is too large");
        assert_eq!(canonicalize("10e999999").unwrap(), canonicalize("1e+1000000").unwrap());
        assert_eq!(canonicalize(&"[".repeat(10_000)).unwrap_err(), CanonicalError::TooDeep { at: DEPTH_MAX });
        let large = format!("\"{}\"", "x".repeat(ARGS_BYTES_MAX));
        assert!(matches!(CanonicalJson::parse(&large), Err(CanonicalError::TooLarge { .. })));
        let largest = format!("\"{}\"", "x".repeat(ARGS_BYTES_MAX - 2));
        assert_eq!(CanonicalJson::parse(&largest).expect("as large as may be").as_str(), largest);
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            (-(1i64 << 53) + 1..(1i64 << 53)).prop_map(Into::into),
            any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(Into::into),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                prop::collection::btree_map(any::<String>(), inner, 0..6).prop_map(|m| m.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn agrees_with_rfc_8785_where_doubles_are_exact(value in any_json()) {
            let ours = canonicalize(&value.to_string()).unwrap();
            prop_assert_eq!(&ours, &serde_json_canonicalizer::to_string(&value).unwrap());
            prop_assert_eq!(canonicalize(&ours).unwrap(), ours, "canonical text is its own canonical form");
        }

        #[test]
        fn integers_never_collide(a in any::<i128>(), b in any::<i128>()) {
            let (ca, cb) = (canonicalize(&a.to_string()).unwrap(), canonicalize(&b.to_string()).unwrap());
            prop_assert_eq!(a == b, ca == cb);
            let neighbour = canonicalize(&a.wrapping_add(1).to_string()).unwrap();
            prop_assert_ne!(ca, neighbour);
        }

        #[test]
        fn never_panics(text in any::<String>()) {
            let _ = canonicalize(&text);
        }
    }
}
