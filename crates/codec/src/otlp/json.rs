//! Requests in the JSON encoding of OTLP.
//!
//! They become requests in Protocol Buffers, so that everything else reads one form only; JSON is rare, and 10 times as slow to read anyway.
//!
//! Keys are in lowerCamelCase; others are ignored. Ids of traces and spans are hexadecimal, other bytes base64; 64-bit integers are numbers or
//! texts; enums are numbers. Source: <https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding> and
//! <https://protobuf.dev/programming-guides/json/>.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use batch::json::{self, JsonError, Kind};

use super::any::{string_body, write_text};
use super::wire::{
    Open, bytes_tag, fixed32_tag, fixed64_tag, varint_tag, write_bytes, write_varint,
};

/// A request is no request of OTLP.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OtlpJsonError {
    /// It is not JSON.
    #[error("the request is not valid JSON: {0}")]
    Json(#[from] JsonError),
    /// It is not UTF-8.
    #[error("the request is not UTF-8")]
    Utf8,
    /// A field has a value of another type.
    #[error("the field `{0}` has a wrong value")]
    WrongValue(&'static str),
}

/// How a field is written.
#[derive(Clone, Copy)]
enum Form {
    Text,
    Hex,
    Base64,
    Bool,
    /// A signed or unsigned integer.
    Varint,
    Fixed64,
    Fixed32,
    Double,
    Message(&'static Shape),
    List(&'static Shape),
}

/// The fields of a message: key, number, form.
type Shape = [(&'static str, u8, Form)];

const REQUEST: &Shape = &[("resourceLogs", 1, Form::List(RESOURCE_LOGS))];
const RESOURCE_LOGS: &Shape = &[
    ("resource", 1, Form::Message(RESOURCE)),
    ("scopeLogs", 2, Form::List(SCOPE_LOGS)),
    ("schemaUrl", 3, Form::Text),
];
const SCOPE_LOGS: &Shape = &[
    ("scope", 1, Form::Message(SCOPE)),
    ("logRecords", 2, Form::List(LOG_RECORD)),
    ("schemaUrl", 3, Form::Text),
];
const RESOURCE: &Shape = &[
    ("attributes", 1, Form::List(&PAIR)),
    ("droppedAttributesCount", 2, Form::Varint),
];
const SCOPE: &Shape = &[
    ("name", 1, Form::Text),
    ("version", 2, Form::Text),
    ("attributes", 3, Form::List(&PAIR)),
    ("droppedAttributesCount", 4, Form::Varint),
];
const LOG_RECORD: &Shape = &[
    ("timeUnixNano", 1, Form::Fixed64),
    ("severityNumber", 2, Form::Varint),
    ("severityText", 3, Form::Text),
    ("body", 5, Form::Message(&ANY)),
    ("attributes", 6, Form::List(&PAIR)),
    ("droppedAttributesCount", 7, Form::Varint),
    ("flags", 8, Form::Fixed32),
    ("traceId", 9, Form::Hex),
    ("spanId", 10, Form::Hex),
    ("observedTimeUnixNano", 11, Form::Fixed64),
    ("eventName", 12, Form::Text),
];
static PAIR: [(&str, u8, Form); 2] = [("key", 1, Form::Text), ("value", 2, Form::Message(&ANY))];
static ANY: [(&str, u8, Form); 7] = [
    ("stringValue", 1, Form::Text),
    ("boolValue", 2, Form::Bool),
    ("intValue", 3, Form::Varint),
    ("doubleValue", 4, Form::Double),
    ("arrayValue", 5, Form::Message(&ARRAY)),
    ("kvlistValue", 6, Form::Message(&LIST)),
    ("bytesValue", 7, Form::Base64),
];
static ARRAY: [(&str, u8, Form); 1] = [("values", 1, Form::List(&ANY))];
static LIST: [(&str, u8, Form); 1] = [("values", 1, Form::List(&PAIR))];

/// Appends a request in JSON as one in Protocol Buffers.
///
/// # Errors
/// It is none.
pub fn to_protobuf(request: &[u8], out: &mut Vec<u8>) -> Result<(), OtlpJsonError> {
    let text = request.trim_ascii();
    if simdutf8::basic::from_utf8(text).is_err() {
        return Err(OtlpJsonError::Utf8);
    }
    let scan = json::validate_object(text)?;
    if !scan.rewrite {
        return message(text, REQUEST, out);
    }
    let mut normal = Vec::with_capacity(text.len());
    json::normalise(text, &mut normal);
    message(&normal, REQUEST, out)
}

fn message(object: &[u8], shape: &'static Shape, out: &mut Vec<u8>) -> Result<(), OtlpJsonError> {
    for member in json::members(object) {
        let known = shape.iter().find(|(key, ..)| key.as_bytes() == member.key);
        let value = &object[member.value];
        if let Some((name, number, form)) = known
            && json::kind(value) != Kind::Null
        {
            field(value, *number, *form, out).ok_or(OtlpJsonError::WrongValue(name))??;
        }
    }
    Ok(())
}

/// Appends a field. None where its value has another type.
fn field(
    value: &[u8],
    number: u8,
    form: Form,
    out: &mut Vec<u8>,
) -> Option<Result<(), OtlpJsonError>> {
    let kind = json::kind(value);
    let body = (kind == Kind::String).then(|| string_body(value));
    match form {
        Form::Text => write_text(out, bytes_tag(number), body?),
        Form::Hex => write_bytes(out, bytes_tag(number), &from_hex(body?)?),
        Form::Base64 => {
            let mut plain = Vec::new();
            json::unescape(body?, &mut plain);
            let bytes = BASE64_STANDARD.decode(&plain).ok()?;
            write_bytes(out, bytes_tag(number), &bytes);
        }
        Form::Bool if kind == Kind::Bool => {
            out.extend([varint_tag(number), u8::from(value == b"true")]);
        }
        Form::Varint => {
            let value = integer(value, body)?;
            out.push(varint_tag(number));
            write_varint(out, value);
        }
        Form::Fixed64 => {
            let value = integer(value, body)?;
            out.push(fixed64_tag(number));
            out.extend(value.to_le_bytes());
        }
        Form::Fixed32 => {
            let value = u32::try_from(integer(value, body)?).ok()?;
            out.push(fixed32_tag(number));
            out.extend(value.to_le_bytes());
        }
        Form::Double => {
            let value = double(value, body)?;
            out.push(fixed64_tag(number));
            out.extend(value.to_le_bytes());
        }
        Form::Message(shape) if kind == Kind::Object => {
            return Some(nested(value, number, shape, out));
        }
        Form::List(shape) if kind == Kind::Array => {
            for at in json::elements(value) {
                let element = &value[at];
                if json::kind(element) != Kind::Object {
                    return None;
                }
                if let Err(error) = nested(element, number, shape, out) {
                    return Some(Err(error));
                }
            }
        }
        Form::Bool | Form::Message(_) | Form::List(_) => return None,
    }
    Some(Ok(()))
}

fn nested(
    object: &[u8],
    number: u8,
    shape: &'static Shape,
    out: &mut Vec<u8>,
) -> Result<(), OtlpJsonError> {
    let open = Open::begin(out, bytes_tag(number), 1);
    let written = message(object, shape, out);
    open.end(out);
    written
}

/// An integer in a number or a text; a negative one as a varint of 64 bits has it. A number may have a point or an exponent.
fn integer(value: &[u8], body: Option<&[u8]>) -> Option<u64> {
    let text = std::str::from_utf8(body.unwrap_or(value)).ok()?;
    if let Ok(value) = text.parse::<u64>() {
        return Some(value);
    }
    if let Ok(value) = text.parse::<i64>() {
        return Some(value as u64);
    }
    let value: f64 = text.parse().ok()?;
    let is_exact = value.fract() == 0.0 && value.abs() < (1_u64 << 53) as f64;
    is_exact.then_some(value as i64 as u64)
}

fn double(value: &[u8], body: Option<&[u8]>) -> Option<f64> {
    match body {
        None => std::str::from_utf8(value).ok()?.parse().ok(),
        Some(b"NaN") => Some(f64::NAN),
        Some(b"Infinity") => Some(f64::INFINITY),
        Some(b"-Infinity") => Some(f64::NEG_INFINITY),
        Some(text) => {
            let double: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
            double.is_finite().then_some(double)
        }
    }
}

fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, rest) = text.as_chunks::<2>();
    let bytes = pairs
        .iter()
        .map(|[high, low]| u8::try_from(digit(*high)? << 4 | digit(*low)?).ok());
    rest.is_empty().then(|| bytes.collect()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::Documents;

    fn documents(request: &str) -> Result<Vec<String>, OtlpJsonError> {
        let mut message = Vec::new();
        to_protobuf(request.as_bytes(), &mut message)?;
        let mut texts = Vec::new();
        let read = Documents::new(100).read(&message, |document| {
            texts.push(String::from_utf8_lossy(document.text).into_owned());
        });
        read.expect("it was just written");
        Ok(texts)
    }

    /// The example of the specification, shortened, with unknown fields.
    const REQUEST: &str = r#"{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"my.service"}}]},"unknown":[1],
        "scopeLogs":[{"scope":{"name":"my.library","version":"1.0.0","attributes":[{"key":"a","value":{"stringValue":"b"}}]},"logRecords":[{
        "timeUnixNano":"1544712660300000000","observedTimeUnixNano":1544712660300000000,"severityNumber":10,"severityText":"Information",
        "traceId":"5B8EFFF798038103D269B633813FC60C","spanId":"EEE19B7EC3C1B174","body":{"stringValue":"Example \"log\" record"},
        "attributes":[{"key":"boolean.attribute","value":{"boolValue":true}},{"key":"int.attribute","value":{"intValue":"-10"}},
        {"key":"double.attribute","value":{"doubleValue":637.704}},{"key":"bytes","value":{"bytesValue":"AP8="}},{"key":"nothing","value":null},
        {"key":"array.attribute","value":{"arrayValue":{"values":[{"stringValue":"many"},{"intValue":7}]}}},
        {"key":"map.attribute","value":{"kvlistValue":{"values":[{"key":"some.map.key","value":{"stringValue":"some value"}}]}}}]}]}]}]}"#;

    #[test]
    fn a_request_is_read() {
        assert_eq!(
            documents(REQUEST).expect("a request"),
            [concat!(
                r#"{"@timestamp":"2018-12-13T14:51:00.300Z","message":"Example \"log\" record","boolean.attribute":true,"int.attribute":-10,"#,
                r#""double.attribute":637.704,"bytes":"AP8=","nothing":null,"array.attribute":["many",7],"map.attribute":{"some.map.key":"some value"},"#,
                r#""log.level":"Information","severity_number":10,"trace.id":"5b8efff798038103d269b633813fc60c","span.id":"eee19b7ec3c1b174","#,
                r#""resource":{"attributes":{"service.name":"my.service"}},"scope":{"name":"my.library","version":"1.0.0","attributes":{"a":"b"}}}"#
            )]
        );
        assert_eq!(documents("{}"), Ok(Vec::new()));
        assert_eq!(
            documents(r#" {"resourceLogs":null,"x":{}} "#),
            Ok(Vec::new())
        );
    }

    #[test]
    fn wrong_requests_are_refused() {
        for (request, error) in [
            (
                r#"{"resourceLogs":{}}"#,
                "the field `resourceLogs` has a wrong value",
            ),
            (
                r#"{"resourceLogs":[1]}"#,
                "the field `resourceLogs` has a wrong value",
            ),
            (
                r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"traceId":"xy"}]}]}]}"#,
                "the field `traceId` has a wrong value",
            ),
            (
                r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":1.5}]}]}]}"#,
                "the field `timeUnixNano` has a wrong value",
            ),
            (
                "[]",
                "the request is not valid JSON: not a JSON object at byte 0",
            ),
            (
                "{",
                "the request is not valid JSON: unexpected end of JSON at byte 1",
            ),
        ] {
            let error_of = documents(request).expect_err(request);
            assert_eq!(error_of.to_string(), error);
        }
    }

    #[test]
    fn integers_may_be_numbers_or_texts() {
        for (value, expected) in [
            ("7", Some(7)),
            ("\"7\"", Some(7)),
            ("-1", Some(u64::MAX)),
            ("\"18446744073709551615\"", Some(u64::MAX)),
            ("1e3", Some(1000)),
            ("1.5", None),
            ("\"x\"", None),
            ("1e300", None),
        ] {
            let body = value
                .starts_with('"')
                .then(|| string_body(value.as_bytes()));
            assert_eq!(integer(value.as_bytes(), body), expected, "{value}");
        }
    }
}
