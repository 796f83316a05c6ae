//! MessagePack to JSON and back.

use super::write::{
    close_map, widen, write_array_header, write_bool, write_f64, write_i64, write_nil, write_str,
    write_u64,
};
use super::{Head, head, skip_value};
use datetime::rfc3339;

use crate::json::{self, StringBody};

/// Appends the valid `value` as JSON.
///
/// Binary data becomes a string where it is UTF-8, base64 text otherwise. Timestamps (extension −1, and extension 0 with
/// eight bytes, Fluent's event time) become RFC 3339 text in UTC, other extensions base64 text. NaN and infinities become
/// null. A key that is no string becomes its JSON text. What is not UTF-8 in a string becomes U+FFFD.
pub fn to_json(value: &[u8], out: &mut Vec<u8>) {
    let mut open: Vec<Level> = Vec::new();
    let mut pos = 0;
    loop {
        while let Some(Level {
            left: 0, is_map, ..
        }) = open.last()
        {
            out.push(if *is_map { b'}' } else { b']' });
            open.pop();
        }
        if pos > 0 && open.is_empty() {
            return;
        }
        let Ok((head, body)) = head(value, pos) else {
            return;
        };
        let mut end = body + head.body_len();
        let is_key = open.last_mut().is_some_and(|level| level.next(out));
        match head {
            Head::Str(_) => write_text(out, &value[body..end]),
            _ if is_key => {
                end = skip_value(value, pos);
                json::write_string(out, &key_text(&value[pos..end]));
            }
            Head::Map(_) | Head::Array(_) => {
                let is_map = matches!(head, Head::Map(_));
                out.push(if is_map { b'{' } else { b'[' });
                open.push(Level {
                    left: head.values(),
                    is_map,
                    first: true,
                });
            }
            _ => scalar(head, &value[body..end], out),
        }
        if is_key {
            out.push(b':');
        }
        pos = end;
    }
}

/// A container that is being written.
struct Level {
    /// How many values of the source are still to come, keys included.
    left: u64,
    is_map: bool,
    first: bool,
}

impl Level {
    /// Goes on to the next value, with the comma before it where one is due; says whether it is a key.
    #[inline(always)]
    fn next(&mut self, out: &mut Vec<u8>) -> bool {
        let is_key = self.is_map && self.left.is_multiple_of(2);
        if !self.first && (is_key || !self.is_map) {
            out.push(b',');
        }
        self.first = false;
        self.left -= 1;
        is_key
    }
}

fn scalar(head: Head, body: &[u8], out: &mut Vec<u8>) {
    match head {
        Head::Bool(value) => out.extend_from_slice(if value { b"true" } else { b"false" }),
        Head::Int(value) => json::write_i64(out, value),
        Head::UInt(value) => json::write_u64(out, value),
        Head::F64(value) => json::write_f64(out, value),
        Head::Bin(_) if simdutf8::basic::from_utf8(body).is_ok() => json::write_string(out, body),
        Head::Bin(_) => {
            out.push(b'"');
            write_base64(out, body);
            out.push(b'"');
        }
        Head::Ext(kind, _) => {
            out.push(b'"');
            if !timestamp(kind, body).is_some_and(|(seconds, nanos)| {
                rfc3339::write_seconds_and_nanos(out, seconds, nanos)
            }) {
                write_base64(out, body);
            }
            out.push(b'"');
        }
        _ => out.extend_from_slice(b"null"),
    }
}

#[inline(always)]
fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    match simdutf8::basic::from_utf8(text) {
        Ok(text) => json::write_string(out, text.as_bytes()),
        Err(_) => json::write_string(out, String::from_utf8_lossy(text).as_bytes()),
    }
}

/// The text of a key of any type, without JSON's quotes and escapes around it.
pub(super) fn key_text(key: &[u8]) -> Vec<u8> {
    let text = match head(key, 0) {
        Ok((Head::Str(_), body)) => {
            return String::from_utf8_lossy(&key[body..])
                .into_owned()
                .into_bytes();
        }
        _ => {
            let mut text = Vec::new();
            to_json(key, &mut text);
            text
        }
    };
    match text
        .strip_prefix(b"\"")
        .and_then(|text| text.strip_suffix(b"\""))
    {
        Some(body) => {
            let mut plain = Vec::new();
            json::unescape(body, &mut plain);
            plain
        }
        None => text,
    }
}

/// Seconds since the epoch and nanoseconds on top, if an extension is a time.
fn timestamp(kind: i8, data: &[u8]) -> Option<(i64, u32)> {
    let word = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0u64, |word, &byte| word << 8 | u64::from(byte))
    };
    let (seconds, nanos) = match (kind, data.len()) {
        (0, 8) => (word(&data[..4]) as i64, word(&data[4..]) as u32),
        (-1, 4) => (word(data) as i64, 0),
        (-1, 8) => (
            (word(data) & 0x3_FFFF_FFFF) as i64,
            (word(data) >> 34) as u32,
        ),
        (-1, 12) => (word(&data[4..]) as i64, word(&data[..4]) as u32),
        _ => return None,
    };
    (nanos < 1_000_000_000).then_some((seconds, nanos))
}

/// Appends base64 text with padding (RFC 4648, section 4).
fn write_base64(out: &mut Vec<u8>, data: &[u8]) {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for group in data.chunks(3) {
        let mut bytes = [0; 3];
        bytes[..group.len()].copy_from_slice(group);
        let bits = u32::from(bytes[0]) << 16 | u32::from(bytes[1]) << 8 | u32::from(bytes[2]);
        let mut digits = [18, 12, 6, 0].map(|shift| ALPHABET[(bits >> shift & 63) as usize]);
        digits[group.len() + 1..].fill(b'=');
        out.extend_from_slice(&digits);
    }
}

/// Appends the valid JSON `value` as MessagePack. A number without point and exponent becomes an integer, or a text of its digits if
/// 64 bits do not hold it; any other number becomes the nearest float of 64 bits, or a text if it is too large for one.
pub fn from_json(value: &[u8], out: &mut Vec<u8>) {
    let mut open: Vec<OpenContainer> = Vec::new();
    let mut scratch = Vec::new();
    let mut pos = 0;
    while let Some(&byte) = value.get(pos) {
        if matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b',' | b':') {
            pos += 1;
            continue;
        }
        if matches!(byte, b'}' | b']') {
            if let Some(container) = open.pop() {
                container.close(out);
            }
            pos += 1;
            continue;
        }
        if let Some(container) = open.last_mut() {
            container.values += 1;
        }
        match byte {
            b'{' | b'[' => {
                open.push(OpenContainer {
                    start: out.len(),
                    is_map: byte == b'{',
                    values: 0,
                });
                // The head of the smallest containers, which becomes a longer one at the end where it must.
                out.push(if byte == b'{' { 0x80 } else { 0x90 });
                pos += 1;
            }
            b'"' => {
                let (body, end) = json::string_at(value, pos);
                match body {
                    StringBody::Plain(text) => write_str(out, text),
                    StringBody::Escaped(body) => {
                        scratch.clear();
                        json::unescape(body, &mut scratch);
                        write_str(out, &scratch);
                    }
                }
                // Mostly a colon or a comma.
                pos = end + usize::from(matches!(value.get(end), Some(b':' | b',')));
            }
            _ => {
                let end = json::skip_value(value, pos).max(pos + 1);
                write_scalar(&value[pos..end], out);
                pos = end;
            }
        }
    }
}

/// A container that is being written.
struct OpenContainer {
    /// Where its head stands.
    start: usize,
    is_map: bool,
    /// How many values it has so far, keys included.
    values: usize,
}

impl OpenContainer {
    fn close(self, out: &mut Vec<u8>) {
        match (self.is_map, self.values) {
            (true, values) => close_map(self.start, values / 2, out),
            (false, values @ ..16) => out[self.start] = 0x90 | values as u8,
            (false, values) => widen(self.start, out, |head| write_array_header(head, values)),
        }
    }
}

fn write_scalar(text: &[u8], out: &mut Vec<u8>) {
    match text {
        b"true" | b"false" => write_bool(out, text == b"true"),
        b"null" => write_nil(out),
        number => write_number(out, number),
    }
}

fn write_number(out: &mut Vec<u8>, number: &[u8]) {
    let text = std::str::from_utf8(number).unwrap_or_default();
    // JSON's minus zero is no integer.
    if text == "-0" {
        return write_f64(out, -0.0);
    }
    if let Ok(integer) = text.parse() {
        return write_i64(out, integer);
    }
    if let Ok(integer) = text.parse() {
        return write_u64(out, integer);
    }
    match text.parse::<f64>() {
        Ok(float) if float.is_finite() && text.contains(['.', 'e', 'E']) => write_f64(out, float),
        _ => write_str(out, number),
    }
}
