//! The protobuf form of a push request (`pkg/push/push.proto` of Loki):
//!
//! ```text
//! PushRequest  1 repeated Stream
//! Stream       1 string labels | 2 repeated Entry | 3 uint64 hash
//! Entry        1 Timestamp | 2 string line | 3 repeated Pair
//! Pair         1 string name | 2 string value
//! Timestamp    1 int64 seconds | 2 int32 nanos
//! ```
//!
//! Unknown fields are skipped. Of a field that comes several times and is not repeated, the last one counts.

use prost::bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use super::item::{Entry, Item, Line, Pairs};

/// A value of a field, as far as one matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value<'a> {
    Bytes(&'a [u8]),
    Varint(u64),
    Other,
}

/// The fields of a message in their order.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Result<(u32, Value<'a>), String> {
        let malformed = |error: prost::DecodeError| format!("malformed protobuf: {error}");
        let (tag, wire) = decode_key(&mut self.0).map_err(malformed)?;
        let value = match wire {
            WireType::Varint => Value::Varint(decode_varint(&mut self.0).map_err(malformed)?),
            WireType::LengthDelimited => {
                let len = decode_varint(&mut self.0).map_err(malformed)?;
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                let Some((value, _)) = self.0.split_at_checked(len) else {
                    return Err("malformed protobuf: a field ends behind its message".to_owned());
                };
                self.0.advance(len);
                Value::Bytes(value)
            }
            _ => {
                let context = DecodeContext::default();
                skip_field(wire, tag, &mut self.0, context).map_err(malformed)?;
                Value::Other
            }
        };
        Ok((tag, value))
    }
}

/// Calls for every stream and its entries.
pub(super) fn walk(
    body: &[u8],
    visit: &mut impl FnMut(Item<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let mut number = 0;
    for field in Fields(body) {
        if let (1, Value::Bytes(message)) = field? {
            stream(message, visit).map_err(|reason| format!("stream {number}{reason}"))?;
            number += 1;
        }
    }
    Ok(())
}

fn stream(
    message: &[u8],
    visit: &mut impl FnMut(Item<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let at_stream = |reason: String| format!(": {reason}");
    let mut labels = &b"{}"[..];
    for field in Fields(message) {
        if let (1, Value::Bytes(text)) = field.map_err(at_stream)? {
            labels = text;
        }
    }
    visit(Item::Stream(Pairs::Text(labels))).map_err(at_stream)?;
    let mut number = 0;
    for field in Fields(message) {
        if let (2, Value::Bytes(message)) = field.map_err(at_stream)? {
            let visited = entry(message).and_then(|entry| visit(Item::Entry(entry)));
            visited.map_err(|reason| format!(", entry {number}: {reason}"))?;
            number += 1;
        }
    }
    Ok(())
}

fn entry(message: &[u8]) -> Result<Entry<'_>, String> {
    let (mut nanos, mut line, mut has_pairs) = (None, &b""[..], false);
    for field in Fields(message) {
        match field? {
            (1, Value::Bytes(message)) => nanos = Some(timestamp(message)?),
            (2, Value::Bytes(text)) => line = text,
            (3, Value::Bytes(pair)) => {
                has_pairs = true;
                self::pair(pair)?;
            }
            _ => {}
        }
    }
    Ok(Entry {
        nanos: nanos.ok_or("it has no timestamp")?,
        line: Line::Text(line),
        metadata: has_pairs.then_some(Pairs::Fields(message)),
    })
}

fn timestamp(message: &[u8]) -> Result<i64, String> {
    let (mut seconds, mut nanos) = (0, 0);
    for field in Fields(message) {
        match field? {
            (1, Value::Varint(value)) => seconds = value as i64,
            (2, Value::Varint(value)) => nanos = value as i64,
            _ => {}
        }
    }
    let seconds = seconds.checked_mul(1_000_000_000);
    let sum = seconds.and_then(|seconds| seconds.checked_add(nanos));
    let sum = sum.filter(|_| (0..1_000_000_000).contains(&nanos));
    sum.ok_or_else(|| "the timestamp is not between 1678 and 2262".to_owned())
}

fn pair(message: &[u8]) -> Result<(&[u8], &[u8]), String> {
    let (mut name, mut value) = (&b""[..], &b""[..]);
    for field in Fields(message) {
        match field? {
            (1, Value::Bytes(text)) => name = text,
            (2, Value::Bytes(text)) => value = text,
            _ => {}
        }
    }
    Ok((name, value))
}

/// Names and values of an entry that was read before.
pub(super) fn pairs(entry: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    Fields(entry).filter_map(|field| match field {
        Ok((3, Value::Bytes(message))) => pair(message).ok(),
        _ => None,
    })
}
