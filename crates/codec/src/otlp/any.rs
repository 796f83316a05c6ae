//! Values of OpenTelemetry (`AnyValue`, `KeyValue`) from JSON, and as JSON.
//!
//! ```text
//! AnyValue  1 string | 2 bool | 3 int64 | 4 double | 5 { 1 AnyValue … } | 6 { 1 KeyValue … } | 7 bytes
//! KeyValue  1 key, 2 AnyValue
//! ```
//!
//! Source: `opentelemetry/proto/common/v1/common.proto` of <https://github.com/open-telemetry/opentelemetry-proto>. Numbers are mapped as
//! <https://opentelemetry.io/docs/specs/otel/common/attribute-type-mapping/> says: those that neither 64 bits with a sign nor a double can
//! hold become texts.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use batch::json::{self, Kind};

use super::wire::{
    Open, Wire, WireError, bytes_tag, fields, fixed64_tag, varint_len, varint_tag, write_bytes,
    write_varint,
};

/// The most digits of which a double keeps every one.
const DOUBLE_DIGITS_MAX: usize = 17;

/// Appends the content of the `AnyValue` that a valid JSON value stands for; nothing for null.
pub fn from_json(value: &[u8], out: &mut Vec<u8>) {
    match json::kind(value) {
        Kind::Null => {}
        Kind::Bool => out.extend_from_slice(&[varint_tag(2), u8::from(value == b"true")]),
        Kind::Number => number(value, out),
        Kind::String => write_text(out, bytes_tag(1), string_body(value)),
        Kind::Array => {
            let list = Open::begin(out, bytes_tag(5), 1);
            for at in json::elements(value) {
                let element = Open::begin(out, bytes_tag(1), 1);
                from_json(&value[at], out);
                element.end(out);
            }
            list.end(out);
        }
        Kind::Object => {
            let list = Open::begin(out, bytes_tag(6), 1);
            for member in json::members(value) {
                write_member(out, bytes_tag(1), member.key, &value[member.value]);
            }
            list.end(out);
        }
    }
}

/// What stands between the quotes of a JSON string.
pub fn string_body(value: &[u8]) -> &[u8] {
    value.get(1..value.len() - 1).unwrap_or_default()
}

/// Appends a field with the text of a JSON string, given without its quotes.
#[inline]
pub fn write_text(out: &mut Vec<u8>, tag: u8, body: &[u8]) {
    if !json::has_escape(body) {
        return write_bytes(out, tag, body);
    }
    let open = Open::begin(out, tag, varint_len(body.len() as u64));
    json::unescape(body, out);
    open.end(out);
}

/// Appends a field with the `KeyValue` of a JSON member: its key without quotes, and its value.
#[inline]
pub fn write_member(out: &mut Vec<u8>, tag: u8, key: &[u8], value: &[u8]) {
    if json::kind(value) == Kind::String && !json::has_escape(key) {
        let body = string_body(value);
        if !json::has_escape(body) {
            return write_pair(out, tag, key, body);
        }
    }
    let pair = Open::begin(out, tag, 1);
    write_text(out, bytes_tag(1), key);
    let any = Open::begin(out, bytes_tag(2), 1);
    from_json(value, out);
    any.end(out);
    pair.end(out);
}

/// Appends a field with the `KeyValue` of a key and a text.
#[inline]
pub fn write_pair(out: &mut Vec<u8>, tag: u8, key: &[u8], text: &[u8]) {
    let sized = |bytes: usize| 1 + varint_len(bytes as u64) + bytes;
    let any = sized(text.len());
    let pair = sized(key.len()) + sized(any);
    out.reserve(pair + 6);
    out.push(tag);
    write_varint(out, pair as u64);
    write_bytes(out, bytes_tag(1), key);
    out.push(bytes_tag(2));
    write_varint(out, any as u64);
    write_bytes(out, bytes_tag(1), text);
}

fn number(text: &[u8], out: &mut Vec<u8>) {
    let digits = std::str::from_utf8(text).unwrap_or_default();
    if let Ok(whole) = digits.parse::<i64>()
        && digits != "-0"
    {
        out.push(varint_tag(3));
        return write_varint(out, whole as u64);
    }
    let is_whole = text.iter().all(|byte| matches!(byte, b'-' | b'0'..=b'9'));
    let double: f64 = digits.parse().unwrap_or(f64::INFINITY);
    if !double.is_finite() || !has_few_digits(text) || is_whole && double != 0.0 {
        return write_bytes(out, bytes_tag(1), text);
    }
    out.push(fixed64_tag(4));
    out.extend_from_slice(&double.to_le_bytes());
}

/// Whether a double holds every digit of a number.
fn has_few_digits(text: &[u8]) -> bool {
    let mantissa = text.split(|byte| matches!(byte, b'e' | b'E')).next();
    let digits = mantissa.unwrap_or_default().iter();
    let digits = digits.filter(|byte| byte.is_ascii_digit());
    digits.skip_while(|digit| **digit == b'0').count() <= DOUBLE_DIGITS_MAX
}

/// Appends the JSON value of an `AnyValue`, which may hold `depth` further levels. Texts are not checked for being UTF-8.
///
/// # Errors
/// It is malformed, or too deep.
pub fn to_json(any: &[u8], depth: usize, out: &mut Vec<u8>) -> Result<(), WireError> {
    match last(any)? {
        (1, Wire::Bytes(text)) => json::write_string(out, text),
        (2, Wire::Varint(value)) => out.extend_from_slice(match value {
            0 => b"false",
            _ => b"true",
        }),
        (3, Wire::Varint(value)) => json::write_i64(out, value as i64),
        (4, Wire::Fixed64(bits)) => write_double(out, f64::from_bits(bits)),
        (5, Wire::Bytes(list)) => array_to_json(list, deeper(depth)?, out)?,
        (6, Wire::Bytes(list)) => {
            out.push(b'{');
            let start = out.len();
            pairs_to_json(list, 1, deeper(depth)?, start, out)?;
            out.push(b'}');
        }
        (7, Wire::Bytes(bytes)) => {
            out.push(b'"');
            out.extend_from_slice(BASE64_STANDARD.encode(bytes).as_bytes());
            out.push(b'"');
        }
        (number @ 1..=7, _) => return Err(WireError::WrongType(number)),
        // Without a value, or with one that later versions of the protocol have.
        _ => out.extend_from_slice(b"null"),
    }
    Ok(())
}

/// The value of an `AnyValue`: of several the last one, as in every oneof.
fn last(any: &[u8]) -> Result<(u32, Wire<'_>), WireError> {
    let mut value = (0, Wire::Varint(0));
    for field in fields(any) {
        value = field?;
    }
    Ok(value)
}

/// The text of an `AnyValue`, where it is one.
pub fn text(any: &[u8]) -> Option<&[u8]> {
    match last(any) {
        Ok((1, Wire::Bytes(text))) => Some(text),
        _ => None,
    }
}

/// The value of a key in an `AnyValue` that is a list of them.
pub fn find<'a>(any: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    let Ok((6, Wire::Bytes(list))) = last(any) else {
        return None;
    };
    let pairs = fields(list).filter_map(|field| pair(field.ok()?.1.bytes(1).ok()?).ok());
    let mut pairs = pairs.filter(|(key, _)| *key == wanted);
    pairs.next().map(|(_, value)| value)
}

fn deeper(depth: usize) -> Result<usize, WireError> {
    depth.checked_sub(1).ok_or(WireError::TooDeep)
}

fn array_to_json(list: &[u8], depth: usize, out: &mut Vec<u8>) -> Result<(), WireError> {
    out.push(b'[');
    let start = out.len();
    for field in fields(list) {
        if let (1, element) = field? {
            if out.len() > start {
                out.push(b',');
            }
            to_json(element.bytes(1)?, depth, out)?;
        }
    }
    out.push(b']');
    Ok(())
}

/// Appends the fields `number` of a message, which are `KeyValue`s, as JSON members. Those of their object begin at `start`.
///
/// # Errors
/// One is malformed, or too deep.
pub fn pairs_to_json(
    message: &[u8],
    number: u32,
    depth: usize,
    start: usize,
    out: &mut Vec<u8>,
) -> Result<(), WireError> {
    for field in fields(message) {
        let (of, value) = field?;
        if of == number {
            let (key, value) = pair(value.bytes(number)?)?;
            write_key(out, key, start);
            to_json(value, depth, out)?;
        }
    }
    Ok(())
}

/// Appends the key of a member of the object whose members begin at `start`, with what separates it from the one before.
#[inline]
pub fn write_key(out: &mut Vec<u8>, key: &[u8], start: usize) {
    if out.len() > start {
        out.push(b',');
    }
    json::write_string(out, key);
    out.push(b':');
}

/// The key and the value of a `KeyValue`.
///
/// # Errors
/// It is malformed.
#[inline]
pub fn pair(message: &[u8]) -> Result<(&[u8], &[u8]), WireError> {
    let (mut key, mut value) = (&[][..], &[][..]);
    for field in fields(message) {
        match field? {
            (1, text) => key = text.bytes(1)?,
            (2, any) => value = any.bytes(2)?,
            _ => {}
        }
    }
    Ok((key, value))
}

/// Appends a number as OTLP/JSON writes it: texts for what JSON has no number for.
fn write_double(out: &mut Vec<u8>, value: f64) {
    match value {
        _ if value.is_finite() => json::write_f64(out, value),
        _ if value.is_nan() => out.extend_from_slice(b"\"NaN\""),
        _ if value > 0.0 => out.extend_from_slice(b"\"Infinity\""),
        _ => out.extend_from_slice(b"\"-Infinity\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(value: &str) -> String {
        let mut any = Vec::new();
        from_json(value.as_bytes(), &mut any);
        let mut text = Vec::new();
        to_json(&any, 100, &mut text).expect("it was just written");
        String::from_utf8(text).expect("JSON is UTF-8")
    }

    #[test]
    fn values_come_back() {
        let long = format!("[{}]", vec!["\"0123456789\""; 50_000].join(","));
        for value in [
            "null",
            "true",
            "false",
            "0",
            "-1",
            "9223372036854775807",
            "-9223372036854775808",
            "1.5",
            "-0.0",
            "1e300",
            "\"\"",
            "\"text\"",
            r#""a \"quoted\" line\nwith ü""#,
            "[]",
            "{}",
            r#"[1,"a",null,[],{"b":[true]}]"#,
            r#"{"a":{"b":{"c":"d"}},"e\"f":1.25}"#,
            &long,
        ] {
            assert_eq!(there_and_back(value), value);
        }
    }

    #[test]
    fn numbers_that_have_no_place_become_texts() {
        for (value, expected) in [
            ("18446744073709551615", "\"18446744073709551615\""),
            ("-9223372036854775809", "\"-9223372036854775809\""),
            ("1e999", "\"1e999\""),
            ("0.12345678901234567890", "\"0.12345678901234567890\""),
            ("1.50", "1.5"),
            ("0.0001", "0.0001"),
            ("-0", "-0.0"),
            ("1E2", "100.0"),
        ] {
            assert_eq!(there_and_back(value), expected);
        }
    }

    #[test]
    fn what_json_cannot_say_becomes_a_text() {
        let double = |value: f64| [&[fixed64_tag(4)][..], &value.to_le_bytes()].concat();
        let mut bytes = Vec::new();
        write_bytes(&mut bytes, bytes_tag(7), b"\0\xFF");
        for (any, expected) in [
            (double(f64::NAN), "\"NaN\""),
            (double(f64::INFINITY), "\"Infinity\""),
            (double(f64::NEG_INFINITY), "\"-Infinity\""),
            (bytes, "\"AP8=\""),
            (vec![varint_tag(8), 1], "null"),
        ] {
            let mut out = Vec::new();
            to_json(&any, 1, &mut out).expect("a value");
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }

    #[test]
    fn depth_is_limited() {
        let mut any = Vec::new();
        from_json(b"[[[]]]", &mut any);
        let mut out = Vec::new();
        assert_eq!(to_json(&any, 3, &mut out), Ok(()));
        assert_eq!(to_json(&any, 2, &mut out), Err(WireError::TooDeep));
        assert_eq!(
            to_json(&[varint_tag(1), 1], 2, &mut out),
            Err(WireError::WrongType(1))
        );
    }

    #[test]
    fn keys_are_found() {
        let mut any = Vec::new();
        from_json(br#"{"level":"warn","n":1}"#, &mut any);
        assert_eq!(find(&any, b"level").and_then(text), Some(&b"warn"[..]));
        assert_eq!(find(&any, b"n").and_then(text), None);
        assert_eq!(find(&any, b"x"), None);
    }
}
