//! The MessagePack primitives: round trips from and to JSON, known encodings, a decoder of its own as the model for
//! normal form, and hostile bytes.

use batch::json::{self, Scan};
use batch::msgpack::{self, Extent, MsgPackErrorKind as Kind, Value};
use proptest::prelude::*;
use serde_json::Value as Json;

/// A value as it is encoded: keys of any type, strings of any bytes, and a choice of encodings.
#[derive(Clone, Debug)]
enum Tree {
    Nil,
    Bool(bool),
    Int(i64),
    UInt(u64),
    F64(f64),
    F32(f32),
    Str(Vec<u8>),
    Bin(Vec<u8>),
    Ext(i8, Vec<u8>),
    Array(Vec<Tree>),
    Map(Vec<(Tree, Tree)>),
}

impl Tree {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Nil => msgpack::write_nil(out),
            Self::Bool(value) => msgpack::write_bool(out, *value),
            Self::Int(value) => msgpack::write_i64(out, *value),
            Self::UInt(value) => msgpack::write_u64(out, *value),
            Self::F64(value) => msgpack::write_f64(out, *value),
            Self::F32(value) => {
                out.push(0xCA);
                out.extend_from_slice(&value.to_be_bytes());
            }
            Self::Str(text) => msgpack::write_str(out, text),
            Self::Bin(data) => msgpack::write_bin(out, data),
            Self::Ext(kind, data) => msgpack::write_ext(out, *kind, data),
            Self::Array(elements) => {
                msgpack::write_array_header(out, elements.len());
                elements.iter().for_each(|element| element.encode(out));
            }
            Self::Map(members) => {
                msgpack::write_map_header(out, members.len());
                members.iter().for_each(|(key, value)| {
                    key.encode(out);
                    value.encode(out);
                });
            }
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }

    /// What the validator should learn about the value.
    fn scan(&self) -> Scan {
        let mut scan = Scan::default();
        match self {
            Self::Array(elements) => elements
                .iter()
                .for_each(|element| add(&mut scan, element.scan())),
            Self::Map(members) => {
                for (i, (key, value)) in members.iter().enumerate() {
                    add(&mut scan, key.scan());
                    add(&mut scan, value.scan());
                    match key {
                        Self::Str(text) => {
                            scan.rewrite |= std::str::from_utf8(text).is_err();
                            scan.dotted_keys |= text.contains(&b'.');
                            scan.rewrite |= members[..i]
                                .iter()
                                .any(|(other, _)| other.bytes() == key.bytes());
                        }
                        Self::Int(_) | Self::UInt(_) => scan.rewrite = true,
                        _ => (scan.rewrite, scan.dotted_keys) = (true, true),
                    }
                }
            }
            _ => {}
        }
        scan
    }

    /// The value in normal form.
    fn normal(&self) -> Self {
        match self {
            Self::Array(elements) => Self::Array(elements.iter().map(Self::normal).collect()),
            Self::Map(members) => {
                let mut normal: Vec<(Self, Self)> = Vec::new();
                for (key, value) in members {
                    let key = Self::Str(key.key_text());
                    match normal
                        .iter_mut()
                        .find(|(other, _)| other.bytes() == key.bytes())
                    {
                        Some((_, earlier)) => *earlier = value.normal(),
                        None => normal.push((key, value.normal())),
                    }
                }
                Self::Map(normal)
            }
            other => other.clone(),
        }
    }

    fn key_text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        msgpack::to_json(&self.bytes(), &mut text);
        match serde_json::from_slice(&text) {
            Ok(Json::String(text)) => text.into_bytes(),
            _ => text,
        }
    }
}

fn add(scan: &mut Scan, inner: Scan) {
    scan.rewrite |= inner.rewrite;
    scan.dotted_keys |= inner.dotted_keys;
}

fn scalar() -> impl Strategy<Value = Tree> {
    prop_oneof![
        Just(Tree::Nil),
        any::<bool>().prop_map(Tree::Bool),
        (any::<i64>(), 0..64).prop_map(|(value, shift)| Tree::Int(value >> shift)),
        (any::<u64>(), 0..64).prop_map(|(value, shift)| Tree::UInt(value >> shift)),
        any::<f64>().prop_map(Tree::F64),
        any::<f32>().prop_map(Tree::F32),
        "[a-zé]{0,40}".prop_map(|text| Tree::Str(text.into_bytes())),
        prop::collection::vec(any::<u8>(), 0..6).prop_map(Tree::Str),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(Tree::Bin),
        (any::<i8>(), prop::collection::vec(any::<u8>(), 0..20))
            .prop_map(|(kind, data)| Tree::Ext(kind, data)),
    ]
}

fn key() -> impl Strategy<Value = Tree> {
    prop_oneof![
        9 => "[ab]{0,2}".prop_map(|text| Tree::Str(text.into_bytes())),
        9 => "[a-z_]{3,40}".prop_map(|text| Tree::Str(text.into_bytes())),
        1 => "[a.é]{1,20}".prop_map(|text| Tree::Str(text.into_bytes())),
        1 => scalar(),
        1 => prop::collection::vec(scalar(), 0..3).prop_map(Tree::Array),
    ]
}

fn map() -> impl Strategy<Value = Tree> {
    let value = scalar().prop_recursive(4, 60, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..20).prop_map(Tree::Array),
            prop::collection::vec((key(), inner), 0..9).prop_map(Tree::Map),
        ]
    });
    prop::collection::vec((key(), value), 0..12).prop_map(Tree::Map)
}

/// JSON whose numbers survive a round trip through 64-bit numbers as they are written.
fn json_value() -> impl Strategy<Value = Json> {
    let scalar = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<u64>().prop_map(Json::from),
        (-1_000_000i32..1_000_000).prop_map(|number| Json::from(f64::from(number) / 64.0)),
        any::<String>().prop_map(Json::from),
        "[a-z\"\\\\\n]{0,40}".prop_map(Json::from),
    ];
    scalar.prop_recursive(5, 100, 20, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..20).prop_map(Json::from),
            prop::collection::vec(("[a-z\"é.]{0,9}", inner), 0..20)
                .prop_map(|members| Json::Object(members.into_iter().collect())),
        ]
    })
}

/// Compares what the walkers see with the value that was encoded.
fn check_walkers(bytes: &[u8], tree: &Tree) {
    let (value, end) = msgpack::read(bytes, 0);
    assert_eq!(end, bytes.len());
    assert_eq!(msgpack::value_len(bytes, 0), Ok(bytes.len()));
    match (tree, value) {
        (Tree::Nil, Value::Nil) => {}
        (Tree::Bool(expected), Value::Bool(value)) => assert_eq!(value, *expected),
        (Tree::Int(expected), Value::Int(value)) => assert_eq!(value, *expected),
        (Tree::UInt(expected), Value::Int(value)) => {
            assert_eq!(u64::try_from(value), Ok(*expected));
        }
        (Tree::UInt(expected), Value::UInt(value)) => {
            assert_eq!(value, *expected);
            assert!(i64::try_from(value).is_err());
        }
        (Tree::F64(expected), Value::F64(value)) => assert_eq!(value.to_bits(), expected.to_bits()),
        (Tree::F32(expected), Value::F64(value)) => {
            assert_eq!(value.to_bits(), f64::from(*expected).to_bits());
        }
        (Tree::Str(expected), Value::Str(value)) | (Tree::Bin(expected), Value::Bin(value)) => {
            assert_eq!(value, expected);
        }
        (Tree::Ext(kind, expected), Value::Ext(found, value)) => {
            assert_eq!((found, value), (*kind, &expected[..]));
        }
        (Tree::Array(expected), Value::Array(range)) => {
            assert_eq!(range, 0..bytes.len());
            let elements: Vec<_> = msgpack::elements(bytes).collect();
            assert_eq!(
                (elements.len(), msgpack::elements(bytes).left()),
                (expected.len(), expected.len())
            );
            elements
                .into_iter()
                .zip(expected)
                .for_each(|(range, tree)| check_walkers(&bytes[range], tree));
        }
        (Tree::Map(expected), Value::Map(range)) => {
            assert_eq!(range, 0..bytes.len());
            let members: Vec<_> = msgpack::members(bytes).collect();
            assert_eq!(
                (members.len(), msgpack::members(bytes).left()),
                (expected.len(), expected.len())
            );
            for (member, (key, value)) in members.into_iter().zip(expected) {
                assert_eq!(msgpack::find(bytes, member.key), Some(member.value.clone()));
                check_walkers(&bytes[member.start..member.value.start], key);
                check_walkers(&bytes[member.value], value);
            }
            assert_eq!(msgpack::find(bytes, b"no such key"), None);
        }
        (tree, value) => panic!("{tree:?} reads as {value:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn maps_scan_normalise_and_walk_as_in_the_model(tree in map()) {
        let bytes = tree.bytes();
        prop_assert_eq!(msgpack::validate_map(&bytes), Ok(tree.scan()));
        let within = [b"before", &bytes[..], b"behind"].concat();
        prop_assert_eq!(msgpack::validate_map_at(&within, 6), Ok((tree.scan(), 6 + bytes.len())));
        let mut normal = Vec::new();
        msgpack::normalise(&bytes, &mut normal);
        prop_assert_eq!(&normal, &tree.normal().bytes());
        prop_assert!(!msgpack::validate_map(&normal).is_ok_and(|scan| scan.rewrite));
        check_walkers(&normal, &tree.normal());
        let mut text = Vec::new();
        msgpack::to_json(&normal, &mut text);
        prop_assert_eq!(json::validate_object(&text).map(|scan| scan.rewrite && !text.contains(&b'\\')), Ok(false));
    }

    #[test]
    fn keys_that_are_looked_for_are_found_at_the_top(
        tree in map(), at in any::<prop::sample::Index>(), number in 0..4usize, inside in any::<bool>(),
    ) {
        const KEYS: [&str; 3] = ["@timestamp", "f", "a key of more than sixteen bytes"];
        let Tree::Map(mut members) = tree else { unreachable!() };
        if let Some(key) = KEYS.get(number) {
            let member = (Tree::Str(key.as_bytes().to_vec()), Tree::Nil);
            let member = match inside {
                true => (Tree::Str(b"inside".to_vec()), Tree::Map(vec![member])),
                false => member,
            };
            members.insert(at.index(members.len() + 1), member);
        }
        let is_there = |(key, _): &(Tree, Tree)| matches!(key, Tree::Str(key) if KEYS.iter().any(|k| k.as_bytes() == key));
        let has_key = members.iter().any(is_there);
        let tree = Tree::Map(members);
        let bytes = tree.bytes();
        let checked = msgpack::Checks::new(json::DEPTH_MAX, KEYS).map_at(&bytes, 0);
        let (scan, end) = (tree.scan(), bytes.len());
        prop_assert_eq!(checked, Ok(msgpack::Checked { scan, end, has_key: has_key || scan.rewrite }));
        let without = msgpack::Checks::default().map_at(&bytes, 0);
        prop_assert_eq!(without, Ok(msgpack::Checked { scan, end, has_key: false }));
    }

    #[test]
    fn the_end_is_found_whatever_the_pieces(tree in map(), piece in 1..40usize) {
        let bytes = [&tree.bytes()[..], &[0x81; 40]].concat();
        let len = tree.bytes().len();
        let mut extent = Extent::default();
        for there in (0..len).step_by(piece) {
            prop_assert_eq!(extent.advance(&bytes[..there]), Ok(None));
            prop_assert!(extent.len_min() <= len as u64);
        }
        prop_assert_eq!(extent.advance(&bytes[..len]), Ok(Some(len)));
        prop_assert_eq!(extent.len_min(), len as u64);
        prop_assert_eq!(extent.advance(&bytes), Ok(Some(len)));
    }

    #[test]
    fn json_survives_the_way_there_and_back(value in json_value()) {
        let text = serde_json::to_vec_pretty(&value).unwrap();
        let mut packed = Vec::new();
        msgpack::from_json(&text, &mut packed);
        prop_assert_eq!(msgpack::value_len(&packed, 0), Ok(packed.len()));
        let mut back = b"kept".to_vec();
        msgpack::to_json(&packed, &mut back);
        prop_assert_eq!(String::from_utf8(back).unwrap(), format!("kept{value}"));
    }

    #[test]
    fn nothing_panics_on_arbitrary_bytes(mut bytes in prop::collection::vec(
        prop_oneof![any::<u8>(), 0x80u8..0xA4, 0xC0u8..0xE0], 0..120,
    ), map in any::<bool>()) {
        if let (true, Some(first)) = (map, bytes.first_mut()) {
            *first = 0x80 | *first & 15;
        }
        let scan = msgpack::validate_map(&bytes);
        prop_assert!(scan.is_ok() || scan.is_err_and(|error| error.offset <= bytes.len()));
        let mut out = Vec::new();
        if scan.is_ok() {
            msgpack::normalise(&bytes, &mut out);
            prop_assert!(msgpack::validate_map(&out).is_ok_and(|scan| !scan.rewrite));
            out.clear();
            msgpack::to_json(&bytes, &mut out);
            prop_assert!(json::validate_object(&out).is_ok());
        }
        let extent = Extent::default().advance(&bytes);
        match msgpack::value_len(&bytes, 0) {
            Ok(len) => prop_assert_eq!(extent, Ok(Some(len))),
            Err(error) if error.kind == Kind::Truncated => prop_assert_eq!(extent, Ok(None)),
            Err(error) => prop_assert_eq!(extent, Err(error)),
        }
        msgpack::read(&bytes, 0);
        msgpack::find(&bytes, b"a");
        prop_assert!(msgpack::members(&bytes).count() <= bytes.len());
        prop_assert!(msgpack::elements(&bytes).count() <= bytes.len());
    }

    #[test]
    fn truncated_and_extended_maps_are_refused(tree in map(), cut in any::<prop::sample::Index>()) {
        let mut bytes = tree.bytes();
        let cut = cut.index(bytes.len());
        prop_assert_eq!(msgpack::validate_map(&bytes[..cut]).unwrap_err().kind, Kind::Truncated);
        bytes.push(0);
        let error = msgpack::validate_map(&bytes).unwrap_err();
        prop_assert_eq!((error.offset, error.kind), (bytes.len() - 1, Kind::TrailingBytes));
    }
}

#[test]
fn integers_and_sizes_take_their_smallest_encoding() {
    let signed: [(i64, &[u8]); 15] = [
        (0, &[0]),
        (127, &[0x7F]),
        (128, &[0xCC, 0x80]),
        (255, &[0xCC, 0xFF]),
        (256, &[0xCD, 1, 0]),
        (65_536, &[0xCE, 0, 1, 0, 0]),
        (1 << 32, &[0xCF, 0, 0, 0, 1, 0, 0, 0, 0]),
        (-1, &[0xFF]),
        (-32, &[0xE0]),
        (-33, &[0xD0, 0xDF]),
        (-128, &[0xD0, 0x80]),
        (-129, &[0xD1, 0xFF, 0x7F]),
        (-32_769, &[0xD2, 0xFF, 0xFF, 0x7F, 0xFF]),
        (
            i64::from(i32::MIN) - 1,
            &[0xD3, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF],
        ),
        (i64::MIN, &[0xD3, 0x80, 0, 0, 0, 0, 0, 0, 0]),
    ];
    for (value, expected) in signed {
        assert_eq!(Tree::Int(value).bytes(), expected, "{value}");
    }
    let heads: [(Tree, &[u8]); 12] = [
        (Tree::Str(vec![b'x'; 31]), &[0xBF]),
        (Tree::Str(vec![b'x'; 32]), &[0xD9, 32]),
        (Tree::Str(vec![b'x'; 256]), &[0xDA, 1, 0]),
        (Tree::Str(vec![b'x'; 65_536]), &[0xDB, 0, 1, 0, 0]),
        (Tree::Bin(vec![0; 255]), &[0xC4, 255]),
        (Tree::Bin(vec![0; 65_536]), &[0xC6, 0, 1, 0, 0]),
        (Tree::Ext(5, vec![0; 16]), &[0xD8, 5]),
        (Tree::Ext(-1, vec![0; 3]), &[0xC7, 3, 0xFF]),
        (Tree::Array(vec![Tree::Nil; 15]), &[0x9F]),
        (Tree::Array(vec![Tree::Nil; 16]), &[0xDC, 0, 16]),
        (Tree::Array(vec![Tree::Nil; 65_536]), &[0xDD, 0, 1, 0, 0]),
        (Tree::Map(vec![(Tree::Nil, Tree::Nil); 16]), &[0xDE, 0, 16]),
    ];
    for (tree, head) in heads {
        let bytes = tree.bytes();
        assert_eq!(&bytes[..head.len()], head);
        if let Tree::Str(_) | Tree::Bin(_) | Tree::Ext(..) | Tree::Array(_) = tree {
            check_walkers(&bytes, &tree);
        }
    }
}

#[test]
fn values_become_json() {
    let time96 =
        |seconds: i64, nanos: u32| [&nanos.to_be_bytes()[..], &seconds.to_be_bytes()].concat();
    let event_time =
        |seconds: u32, nanos: u32| [seconds.to_be_bytes(), nanos.to_be_bytes()].concat();
    let time64 = |seconds: u64, nanos: u64| (nanos << 34 | seconds).to_be_bytes().to_vec();
    let text = |text: &str| Tree::Str(text.as_bytes().to_vec());
    let cases = [
        (Tree::Nil, "null"),
        (Tree::UInt(u64::MAX), "18446744073709551615"),
        (Tree::F64(f64::NAN), "null"),
        (Tree::F64(f64::NEG_INFINITY), "null"),
        (Tree::F64(1.0), "1.0"),
        (Tree::F32(0.5), "0.5"),
        (Tree::Str(b"a\xFFb".to_vec()), "\"a\u{fffd}b\""),
        (Tree::Bin(b"text\n".to_vec()), r#""text\n""#),
        (Tree::Bin(vec![0xFF, 0xFE, 0xFD, 0xFC]), r#""//79/A==""#),
        (Tree::Bin(vec![0xFF, 0xFE]), r#""//4=""#),
        (Tree::Ext(7, vec![1, 2, 3]), r#""AQID""#),
        (
            Tree::Ext(0, event_time(1_709_210_096, 789_000_001)),
            r#""2024-02-29T12:34:56.789000001Z""#,
        ),
        (
            Tree::Ext(0, event_time(0, 1_000_000_000)),
            r#""AAAAADuaygA=""#,
        ),
        (Tree::Ext(0, vec![0; 4]), r#""AAAAAA==""#),
        (
            Tree::Ext(-1, 1_709_210_096u32.to_be_bytes().to_vec()),
            r#""2024-02-29T12:34:56.000Z""#,
        ),
        (
            Tree::Ext(-1, time64(1 << 33, 5_000)),
            r#""2242-03-16T12:56:32.000005Z""#,
        ),
        (
            Tree::Ext(-1, time96(-1, 500_000_000)),
            r#""1969-12-31T23:59:59.500Z""#,
        ),
        (Tree::Ext(-1, time96(i64::MAX, 0)), r#""AAAAAH//////////""#),
        (
            Tree::Map(vec![
                (text("a\"b"), Tree::Array(vec![])),
                (Tree::Int(-5), Tree::Map(vec![])),
                (Tree::Bool(true), Tree::Nil),
                (Tree::F64(1.5), Tree::Nil),
                (Tree::Bin(b"k".to_vec()), Tree::Nil),
                (Tree::Array(vec![text("x"), Tree::Int(1)]), Tree::Nil),
            ]),
            r#"{"a\"b":[],"-5":{},"true":null,"1.5":null,"k":null,"[\"x\",1]":null}"#,
        ),
    ];
    for (tree, expected) in cases {
        let mut out = Vec::new();
        msgpack::to_json(&tree.bytes(), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expected, "{tree:?}");
    }
}

#[test]
fn numbers_of_json_become_integers_where_they_can() {
    let cases = [
        ("0", Value::Int(0)),
        ("-0", Value::F64(-0.0)),
        ("-9223372036854775808", Value::Int(i64::MIN)),
        ("18446744073709551615", Value::UInt(u64::MAX)),
        ("18446744073709551616", Value::Str(b"18446744073709551616")),
        ("1e400", Value::Str(b"1e400")),
        ("-1.5e999", Value::Str(b"-1.5e999")),
        ("1.0", Value::F64(1.0)),
        ("1e3", Value::F64(1000.0)),
    ];
    for (text, expected) in cases {
        let mut out = Vec::new();
        msgpack::from_json(text.as_bytes(), &mut out);
        assert_eq!(msgpack::read(&out, 0).0, expected, "{text}");
    }
}

#[test]
fn refused_bytes() {
    let cases: [(&[u8], usize, Kind); 9] = [
        (&[], 0, Kind::Truncated),
        (&[0x90], 0, Kind::NotAMap),
        (&[0xC1], 0, Kind::Reserved),
        (&[0x81, 0xA1, b'a', 0xC1], 3, Kind::Reserved),
        (&[0x81, 0xA1, b'a'], 3, Kind::Truncated),
        (&[0xDF, 0xFF, 0xFF, 0xFF, 0xFF], 5, Kind::Truncated),
        (
            &[0x81, 0xA1, b'a', 0xDD, 0xFF, 0xFF, 0xFF, 0xFF, 0],
            9,
            Kind::Truncated,
        ),
        (
            &[0x81, 0xA1, b'a', 0xC6, 0xFF, 0xFF, 0xFF, 0xFF, 0],
            9,
            Kind::Truncated,
        ),
        (&[0x81, 0x81, 0x81, 0, 0, 0, 0], 2, Kind::NestedKey),
    ];
    for (bytes, offset, kind) in cases {
        let error = msgpack::validate_map(bytes).unwrap_err();
        assert_eq!((error.offset, error.kind), (offset, kind), "{bytes:x?}");
    }
}

#[test]
fn duplicates_are_found_in_maps_of_any_size() {
    for count in [1, 8, 15, 16, 118, 119, 120, 5000] {
        let member = |i: usize| {
            (
                Tree::Str(format!("some_common_prefix_{i}_and_suffix").into_bytes()),
                Tree::Int(1),
            )
        };
        let mut members: Vec<_> = (0..count).map(member).collect();
        let inner = Tree::Map(members.clone());
        members.push((Tree::Str(b"inner".to_vec()), inner));
        assert_eq!(
            msgpack::validate_map(&Tree::Map(members.clone()).bytes()),
            Ok(Scan::default()),
            "{count} keys"
        );
        members.push(member(count / 2));
        assert!(
            msgpack::validate_map(&Tree::Map(members).bytes())
                .unwrap()
                .rewrite,
            "{count} keys"
        );
    }
}

#[test]
fn nesting_is_bounded_without_recursion() {
    for prefix in [&b"\x81\xA1a"[..], b"\x81\xA1a\x91"] {
        let levels = if prefix.len() == 3 { 1000 } else { 500 };
        let deep = [&prefix.repeat(levels)[..], &[0xC0]].concat();
        assert_eq!(msgpack::validate_map(&deep), Ok(Scan::default()));
        let (mut normal, mut text, mut back) = (Vec::new(), Vec::new(), Vec::new());
        msgpack::normalise(&deep, &mut normal);
        assert_eq!(normal, deep);
        msgpack::to_json(&deep, &mut text);
        msgpack::from_json(&text, &mut back);
        assert_eq!(back, deep);
        let bottomless = [&prefix.repeat(100_000)[..], &[0xC0]].concat();
        assert_eq!(
            msgpack::validate_map(&bottomless).unwrap_err().kind,
            Kind::TooDeep
        );
        assert_eq!(msgpack::value_len(&bottomless, 0), Ok(bottomless.len()));
    }
    let depth = |levels: usize| {
        msgpack::validate_map(&[&b"\x81\xA1a".repeat(levels)[..], &[0xC0]].concat())
    };
    for max in [1, 2, 7] {
        let checks = msgpack::Checks::new(max, []);
        for levels in 1..10 {
            let deep = [&b"\x81\xA1a".repeat(levels)[..], &[0xC0]].concat();
            let refused = checks.map_at(&deep, 0).err().map(|error| error.kind);
            assert_eq!(
                refused,
                (levels > max).then_some(Kind::TooDeep),
                "{levels} of {max}"
            );
        }
    }
    assert!(depth(json::DEPTH_MAX).is_ok());
    assert!(depth(json::DEPTH_MAX + 1).is_err());
}
