//! Takes a string as it is, and nothing else: what `RawValue` hands over is JSON text already.

use serde::ser::{self, Error as _, Impossible, Serialize};

use super::Unwritable;

pub struct Verbatim<'a>(pub &'a mut String);

fn refused<T>() -> Result<T, Unwritable> {
    Err(Unwritable::custom("finished JSON text is a string"))
}

macro_rules! refused {
    ($($method:ident: $type:ty),*) => {$(
        fn $method(self, _: $type) -> Result<(), Unwritable> {
            refused()
        }
    )*};
}

impl ser::Serializer for Verbatim<'_> {
    type Ok = ();
    type Error = Unwritable;
    type SerializeSeq = Impossible<(), Unwritable>;
    type SerializeTuple = Impossible<(), Unwritable>;
    type SerializeTupleStruct = Impossible<(), Unwritable>;
    type SerializeTupleVariant = Impossible<(), Unwritable>;
    type SerializeMap = Impossible<(), Unwritable>;
    type SerializeStruct = Impossible<(), Unwritable>;
    type SerializeStructVariant = Impossible<(), Unwritable>;

    fn serialize_str(self, text: &str) -> Result<(), Unwritable> {
        self.0.push_str(text);
        Ok(())
    }

    refused!(
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_u8: u8,
        serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_f32: f32, serialize_f64: f64, serialize_char: char,
        serialize_bytes: &[u8], serialize_unit_struct: &'static str
    );

    fn serialize_none(self) -> Result<(), Unwritable> {
        refused()
    }
    fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Result<(), Unwritable> {
        refused()
    }
    fn serialize_unit(self) -> Result<(), Unwritable> {
        refused()
    }
    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<(), Unwritable> {
        refused()
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, _: &T) -> Result<(), Unwritable> {
        refused()
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(self, _: &'static str, _: u32, _: &'static str, _: &T) -> Result<(), Unwritable> {
        refused()
    }
    fn serialize_seq(self, _: Option<usize>) -> Result<Self::SerializeSeq, Unwritable> {
        refused()
    }
    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, Unwritable> {
        refused()
    }
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeTupleStruct, Unwritable> {
        refused()
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Unwritable> {
        refused()
    }
    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, Unwritable> {
        refused()
    }
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeStruct, Unwritable> {
        refused()
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Unwritable> {
        refused()
    }
}
