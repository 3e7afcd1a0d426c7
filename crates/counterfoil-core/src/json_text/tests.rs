use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::Serialize;
use serde_json::value::RawValue;

use super::*;

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
enum Shape {
    Unit,
    Newtype(String),
    Pair(i64, Option<u32>),
    Fields { text: String, number: f64, none: Option<bool> },
    Nested(Vec<Shape>),
    Map(BTreeMap<String, u64>),
    Wide(i128, u128, char, (), (bool, f32)),
}

fn shape() -> impl Strategy<Value = Shape> {
    let text = || prop_oneof![any::<String>(), "[ -~]{0,40}", r#"[\x00-\x22"\\]{0,20}"#];
    let leaf = prop_oneof![
        Just(Shape::Unit),
        text().prop_map(Shape::Newtype),
        any::<(i64, Option<u32>)>().prop_map(|(a, b)| Shape::Pair(a, b)),
        (text(), any::<f64>(), any::<Option<bool>>()).prop_map(|(text, number, none)| Shape::Fields { text, number, none }),
        proptest::collection::btree_map(text(), any::<u64>(), 0..4).prop_map(Shape::Map),
        any::<(i128, u128, char, bool, f32)>().prop_map(|(a, b, c, d, e)| Shape::Wide(a, b, c, (), (d, e))),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| proptest::collection::vec(inner, 0..4).prop_map(Shape::Nested))
}

proptest! {
    #[test]
    fn writes_what_serde_json_writes(shape in shape()) {
        prop_assert_eq!(to_string(&shape).unwrap(), serde_json::to_string(&shape).unwrap());
    }

    #[test]
    fn finds_the_first_byte_that_must_be_escaped(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let plain = |b: &u8| !matches!(b, b'"' | b'\\' | 0..=0x1f);
        prop_assert_eq!(first_special(&bytes), bytes.iter().position(|b| !plain(b)));
        // Random bytes rarely begin with a long plain stretch.
        let mostly: Vec<u8> = bytes.iter().map(|b| if *b > 8 { b | 0x80 } else { *b }).collect();
        prop_assert_eq!(first_special(&mostly), mostly.iter().position(|b| !plain(b)));
    }
}

/// Two libraries agree here on a name that is not written down anywhere but in their source.
#[test]
fn finished_json_text_is_copied_both_ways() {
    let text = r#"{"b" : [1.0, 1e5],"a":"\u00e9"}"#;
    let raw = RawValue::from_string(text.to_owned()).unwrap();
    assert_eq!(to_string(&raw).unwrap(), text);
    assert_eq!(to_string(&vec![&raw, &raw]).unwrap(), format!("[{text},{text}]"));
    struct Ours<'a>(&'a str);
    impl Serialize for Ours<'_> {
        fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
            write_raw(self.0, s)
        }
    }
    assert_eq!(serde_json::to_string(&[Ours(text)]).unwrap(), format!("[{text}]"));
    assert_eq!(serde_json::to_value(Ours(text)).unwrap(), serde_json::from_str::<serde_json::Value>(text).unwrap());
    assert_eq!(to_string(&[Ours(text)]).unwrap(), format!("[{text}]"));
}

#[test]
fn a_member_is_named_by_a_string() {
    let map = BTreeMap::from([(vec![1], 2)]);
    assert!(!to_string(&map).unwrap_err().to_string().is_empty(), "and whoever errs is told");
}

#[test]
fn structs_without_names_are_written() {
    #[derive(Serialize)]
    struct Nothing;
    #[derive(Serialize)]
    struct Both(u8, &'static str);
    #[derive(Serialize)]
    struct One(u8);
    struct Bytes;
    impl Serialize for Bytes {
        fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
            s.serialize_bytes(&[7, 8])
        }
    }
    assert_eq!(to_string(&(One(1), Bytes)).unwrap(), serde_json::to_string(&(One(1), Bytes)).unwrap());
    assert_eq!(to_string(&[Nothing, Nothing]).unwrap(), "[null,null]");
    assert_eq!(to_string(&Both(1, "b")).unwrap(), r#"[1,"b"]"#);
}
