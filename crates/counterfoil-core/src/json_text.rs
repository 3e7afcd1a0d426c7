//! Plain data as JSON text, byte for byte as `serde_json` writes it, in a third of the time.
//!
//! Everything the ledger stores passes here, so it is among the hottest code there is. Text is looked at sixteen bytes at a time and copied in
//! whole stretches; what is text stays a `String` and is not checked for UTF-8 again. Results and arguments, which are JSON text already, are
//! copied as they are ([`write_raw`] knows how `serde_json` marks them).

use std::fmt::{self, Display};

use serde::ser::{self, Error as _, Serialize};

/// How `serde_json` tells a serializer that a struct of this name holds finished JSON text: `RawValue`. A test holds us to it.
const RAW: &str = "$serde_json::private::RawValue";

/// `value` as JSON text.
pub fn to_string<T: Serialize + ?Sized>(value: &T) -> Result<String, Unwritable> {
    let mut out = String::with_capacity(256);
    append(value, &mut out)?;
    Ok(out)
}

/// Writes `value` behind what is there.
pub fn append<T: Serialize + ?Sized>(value: &T, out: &mut String) -> Result<(), Unwritable> {
    value.serialize(Writer(out))
}

/// Hands finished JSON text to any serializer, which copies it as it is.
pub(crate) fn write_raw<S: ser::Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    use ser::SerializeStruct;
    let mut raw = serializer.serialize_struct(RAW, 1)?;
    raw.serialize_field(RAW, text)?;
    raw.end()
}

/// A string literal: quotes around it, and only what must be escaped is.
pub(crate) fn write_string(text: &str, out: &mut String) {
    out.reserve(text.len() + 2);
    out.push('"');
    let mut rest = text;
    while let Some(at) = first_special(rest.as_bytes()) {
        out.push_str(&rest[..at]);
        let special = rest.as_bytes()[at];
        match special {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            0x08 => out.push_str("\\b"),
            0x09 => out.push_str("\\t"),
            0x0a => out.push_str("\\n"),
            0x0c => out.push_str("\\f"),
            0x0d => out.push_str("\\r"),
            control => {
                let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
                out.push_str("\\u00");
                out.push(digit(control >> 4));
                out.push(digit(control & 15));
            }
        }
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
    out.push('"');
}

/// Where the first quote, backslash or control character stands.
pub(crate) fn first_special(bytes: &[u8]) -> Option<usize> {
    let (chunks, rest) = bytes.as_chunks::<16>();
    let clean = chunks.iter().take_while(|chunk| !any_special(chunk)).count() * 16;
    if clean + rest.len() == bytes.len() && !ends_special(bytes) {
        return None;
    }
    bytes[clean..].iter().position(|b| special(*b)).map(|at| clean + at)
}

/// The last bytes are looked at as whole chunks too, some of them for a second time: most texts are short.
fn ends_special(bytes: &[u8]) -> bool {
    match (bytes.last_chunk::<16>(), bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (Some(last), ..) => any_special(last),
        (None, Some(first), Some(last)) => any_special(first) || any_special(last),
        _ => bytes.iter().any(|b| special(*b)),
    }
}

/// Without a branch within: the compiler makes a few vector instructions of it.
fn any_special<const N: usize>(chunk: &[u8; N]) -> bool {
    chunk.iter().fold(false, |any, b| any | special(*b))
}

fn special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// What JSON has no form for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unwritable(String);

impl Display for Unwritable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for Unwritable {}
impl ser::Error for Unwritable {
    fn custom<T: Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

struct Writer<'a>(&'a mut String);

/// An array, an object, or the inside of a variant, with what closes it.
struct Members<'a> {
    out: &'a mut String,
    first: bool,
    end: &'static str,
}

impl<'a> Members<'a> {
    fn open(out: &'a mut String, begin: &str, end: &'static str) -> Self {
        out.push_str(begin);
        Self { out, first: true, end }
    }

    fn comma(&mut self) {
        if !self.first {
            self.out.push(',');
        }
        self.first = false;
    }

    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unwritable> {
        self.comma();
        append(value, self.out)
    }

    fn member<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Unwritable> {
        self.comma();
        write_name(name, self.out);
        append(value, self.out)
    }

    fn close(self) {
        self.out.push_str(self.end);
    }
}

/// The name of a field or a variant. They are words of our own: none needs an escape.
fn write_name(name: &'static str, out: &mut String) {
    debug_assert!(first_special(name.as_bytes()).is_none(), "{name:?} is no plain word");
    out.push('"');
    out.push_str(name);
    out.push_str("\":");
}

/// `{"variant":`, to be closed with one brace more.
fn variant(out: &mut String, name: &'static str) {
    out.push('{');
    write_name(name, out);
}

macro_rules! integers {
    ($($method:ident: $type:ty),*) => {$(
        fn $method(self, value: $type) -> Result<(), Unwritable> {
            self.0.push_str(itoa::Buffer::new().format(value));
            Ok(())
        }
    )*};
}

impl<'a> ser::Serializer for Writer<'a> {
    type Ok = ();
    type Error = Unwritable;
    type SerializeSeq = Members<'a>;
    type SerializeTuple = Members<'a>;
    type SerializeTupleStruct = Members<'a>;
    type SerializeTupleVariant = Members<'a>;
    type SerializeMap = Members<'a>;
    type SerializeStruct = Fields<'a>;
    type SerializeStructVariant = Members<'a>;

    integers!(
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_i128: i128,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_u128: u128
    );

    fn serialize_bool(self, value: bool) -> Result<(), Unwritable> {
        self.0.push_str(if value { "true" } else { "false" });
        Ok(())
    }

    fn serialize_f32(self, value: f32) -> Result<(), Unwritable> {
        self.0.push_str(&serde_json::to_string(&value).map_err(Unwritable::custom)?);
        Ok(())
    }

    fn serialize_f64(self, value: f64) -> Result<(), Unwritable> {
        self.0.push_str(&serde_json::to_string(&value).map_err(Unwritable::custom)?);
        Ok(())
    }

    fn serialize_char(self, value: char) -> Result<(), Unwritable> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<(), Unwritable> {
        write_string(value, self.0);
        Ok(())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), Unwritable> {
        self.collect_seq(value)
    }

    fn serialize_none(self) -> Result<(), Unwritable> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Unwritable> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Unwritable> {
        self.0.push_str("null");
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Unwritable> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), Unwritable> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), Unwritable> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        value: &T,
    ) -> Result<(), Unwritable> {
        variant(self.0, name);
        append(value, self.0)?;
        self.0.push('}');
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Members<'a>, Unwritable> {
        Ok(Members::open(self.0, "[", "]"))
    }

    fn serialize_tuple(self, _: usize) -> Result<Members<'a>, Unwritable> {
        Ok(Members::open(self.0, "[", "]"))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Members<'a>, Unwritable> {
        Ok(Members::open(self.0, "[", "]"))
    }

    fn serialize_tuple_variant(self, _: &'static str, _: u32, name: &'static str, _: usize) -> Result<Members<'a>, Unwritable> {
        variant(self.0, name);
        Ok(Members::open(self.0, "[", "]}"))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Members<'a>, Unwritable> {
        Ok(Members::open(self.0, "{", "}"))
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Fields<'a>, Unwritable> {
        Ok(match name {
            RAW => Fields::Raw(self.0),
            _ => Fields::Plain(Members::open(self.0, "{", "}")),
        })
    }

    fn serialize_struct_variant(self, _: &'static str, _: u32, name: &'static str, _: usize) -> Result<Members<'a>, Unwritable> {
        variant(self.0, name);
        Ok(Members::open(self.0, "{", "}}"))
    }
}

/// The fields of a struct, or JSON text that comes in the guise of one.
enum Fields<'a> {
    Plain(Members<'a>),
    Raw(&'a mut String),
}

impl ser::SerializeStruct for Fields<'_> {
    type Ok = ();
    type Error = Unwritable;
    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Unwritable> {
        match self {
            Self::Plain(members) => members.member(name, value),
            Self::Raw(out) => value.serialize(Verbatim(out)),
        }
    }
    fn end(self) -> Result<(), Unwritable> {
        if let Self::Plain(members) = self {
            members.close();
        }
        Ok(())
    }
}

impl ser::SerializeSeq for Members<'_> {
    type Ok = ();
    type Error = Unwritable;
    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unwritable> {
        self.element(value)
    }
    fn end(self) -> Result<(), Unwritable> {
        self.close();
        Ok(())
    }
}

impl ser::SerializeTuple for Members<'_> {
    type Ok = ();
    type Error = Unwritable;
    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unwritable> {
        self.element(value)
    }
    fn end(self) -> Result<(), Unwritable> {
        self.close();
        Ok(())
    }
}

impl ser::SerializeTupleStruct for Members<'_> {
    type Ok = ();
    type Error = Unwritable;
    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unwritable> {
        self.element(value)
    }
    fn end(self) -> Result<(), Unwritable> {
        self.close();
        Ok(())
    }
}

impl ser::SerializeTupleVariant for Members<'_> {
    type Ok = ();
    type Error = Unwritable;
    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unwritable> {
        self.element(value)
    }
    fn end(self) -> Result<(), Unwritable> {
        self.close();
        Ok(())
    }
}

impl ser::SerializeMap for Members<'_> {
    type Ok = ();
    type Error = Unwritable;
    fn serialize_key<T: Serialize + ?Sized>(&mut self, name: &T) -> Result<(), Unwritable> {
        self.comma();
        let begin = self.out.len();
        append(name, self.out)?;
        match self.out[begin..].starts_with('"') {
            true => Ok(()),
            false => Err(Unwritable::custom("a member's name must be a string")),
        }
    }
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unwritable> {
        self.out.push(':');
        append(value, self.out)
    }
    fn end(self) -> Result<(), Unwritable> {
        self.close();
        Ok(())
    }
}

impl ser::SerializeStructVariant for Members<'_> {
    type Ok = ();
    type Error = Unwritable;
    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Unwritable> {
        self.member(name, value)
    }
    fn end(self) -> Result<(), Unwritable> {
        self.close();
        Ok(())
    }
}

mod verbatim;
use verbatim::Verbatim;

#[cfg(test)]
mod tests;
