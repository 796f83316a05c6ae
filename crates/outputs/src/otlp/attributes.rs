//! Fields of events as attributes of log records, straight from the columns.

use batch::{EventFormat, Value};
use codec::otlp::any::{from_json, write_text};
use codec::otlp::wire::{
    Open, bytes_tag, fixed64_tag, varint_len, varint_tag, write_bytes, write_varint,
};

/// The tag of attributes in a log record.
pub const ATTRIBUTE: u8 = bytes_tag(6);

/// A length before it is known: of most keys' and values' it takes one byte.
const LENGTH_BYTES: usize = 1;

/// `KeyValue`s: those of an event are the attributes of a log record, those of an object the members of a list.
#[derive(Debug)]
pub enum Attributes {}

impl EventFormat for Attributes {
    const REWRITES_JSON: bool = true;

    /// An `AnyValue` that is a list.
    #[inline]
    fn open(out: &mut Vec<u8>) -> usize {
        // Where the inner one begins tells where the outer one does.
        let _ = Open::begin(out, bytes_tag(2), LENGTH_BYTES);
        Open::begin(out, bytes_tag(6), LENGTH_BYTES).start()
    }

    #[inline]
    fn close(start: usize, _: usize, out: &mut Vec<u8>) {
        Open::at(start, LENGTH_BYTES).end(out);
        Open::at(start - 1 - LENGTH_BYTES, LENGTH_BYTES).end(out);
    }

    #[inline]
    fn begin(is_of_event: bool, out: &mut Vec<u8>) -> usize {
        let tag = if is_of_event { ATTRIBUTE } else { bytes_tag(1) };
        Open::begin(out, tag, LENGTH_BYTES).start()
    }

    #[inline]
    fn end(start: usize, out: &mut Vec<u8>) {
        Open::at(start, LENGTH_BYTES).end(out);
    }

    fn key(key: &[u8], out: &mut Vec<u8>) {
        write_bytes(out, bytes_tag(1), key);
    }

    fn json_key(raw: &[u8], out: &mut Vec<u8>) {
        write_text(out, bytes_tag(1), raw);
    }

    #[inline]
    fn text(text: &[u8], out: &mut Vec<u8>) {
        out.push(bytes_tag(2));
        write_varint(out, sized(text.len()) as u64);
        write_bytes(out, bytes_tag(1), text);
    }

    fn value(value: Value<'_>, out: &mut Vec<u8>) {
        let any = Open::begin(out, bytes_tag(2), LENGTH_BYTES);
        match value {
            Value::Missing | Value::Null => {}
            Value::Bool(value) => out.extend_from_slice(&[varint_tag(2), u8::from(value)]),
            Value::Int(number) => {
                out.push(varint_tag(3));
                write_varint(out, number as u64);
            }
            Value::Float(number) if number.is_finite() => {
                out.push(fixed64_tag(4));
                out.extend_from_slice(&number.to_le_bytes());
            }
            Value::Text(text) => write_bytes(out, bytes_tag(1), text),
            Value::Number(text) | Value::Json(text) => from_json(text, out),
            other => {
                let mut text = Vec::new();
                other.write_json(&mut text);
                from_json(&text, out);
            }
        }
        any.end(out);
    }
}

/// How many bytes a field of so many bytes has.
fn sized(bytes: usize) -> usize {
    1 + varint_len(bytes as u64) + bytes
}
