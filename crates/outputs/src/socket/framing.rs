//! Where an event ends in what is sent.

use std::sync::Arc;

use batch::Bitmap;
use component::{Encoded, RowAnswer};
use config::{ConfigError, Node};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::codec::Codec;

/// What separates messages on a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FramingName {
    /// A line feed after each.
    #[default]
    Lf,
    /// A zero byte after each.
    Nul,
    /// The length of each in bytes before it, in digits followed by a space (RFC 6587, RFC 5425).
    OctetCounted,
    /// Nothing, for formats that say where a message ends.
    None,
}

/// How the rows of a request are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// A byte ends each.
    Terminated {
        /// The byte.
        end: u8,
        /// The bytes that are written as [`escape`] does within one.
        escaped: &'static [u8],
    },
    /// The length of each stands before it.
    Counted,
    /// Nothing.
    Bare,
    /// Each is a datagram. In a request, its length is before it in [`LENGTH_BYTES`] bytes, which are not sent.
    Datagrams {
        /// The most bytes of one.
        bytes_max: usize,
        /// Whether a longer one is truncated instead of rejected.
        truncates: bool,
    },
}

/// How many bytes the length of a datagram takes in a request: a `u32`, its least significant byte first.
pub const LENGTH_BYTES: usize = 4;

impl FramingName {
    /// The framing of messages; those bytes are escaped within them if one of them ends a message.
    pub fn framing(self, escaped: &'static [u8]) -> Framing {
        let terminated = |end| Framing::Terminated { end, escaped };
        match self {
            Self::Lf => terminated(b'\n'),
            Self::Nul => terminated(0),
            Self::OctetCounted => Framing::Counted,
            Self::None => Framing::Bare,
        }
    }

    /// The framing of a codec's events. `node` holds the settings.
    ///
    /// # Errors
    /// The two do not go together, with the place of the setting.
    pub fn of(name: Option<Self>, codec: &Codec, node: &Node) -> Result<Framing, ConfigError> {
        let is_binary = matches!(codec, Codec::MsgPack);
        let default = if is_binary { Self::None } else { Self::Lf };
        let name = name.unwrap_or(default);
        if is_binary && matches!(name, Self::Lf | Self::Nul) {
            let message = "MessagePack may contain any byte: use `none` or `octet_counted`";
            return Err(node.nearest("framing").error(message));
        }
        // JSON and logfmt contain no control characters, and CSV has quotes around them.
        let is_text = matches!(codec, Codec::Text(_) | Codec::Template { .. });
        Ok(name.framing(match name {
            Self::Lf if is_text => b"\n",
            Self::Nul if is_text => b"\0",
            _ => b"",
        }))
    }
}

impl Framing {
    /// Appends rows, each as `write` gives it and with what keeps it apart. One that cannot be sent is refused.
    pub fn write(
        self,
        rows: &Bitmap,
        encoded: &mut Encoded,
        mut write: impl FnMut(usize, &mut Vec<u8>),
    ) {
        encoded.ends.reserve(rows.count());
        for row in rows.iter() {
            let bytes = &mut encoded.bytes;
            let start = bytes.len();
            if matches!(self, Self::Datagrams { .. }) {
                bytes.extend_from_slice(&[0; LENGTH_BYTES]);
            }
            write(row, bytes);
            match self.end(start, bytes) {
                Ok(()) => encoded.end_row(row),
                Err(reason) => {
                    bytes.truncate(start);
                    encoded.refused.push(RowAnswer { row, reason });
                }
            }
        }
    }

    /// Completes the row that begins at `start`.
    fn end(self, start: usize, out: &mut Vec<u8>) -> Result<(), Arc<str>> {
        match self {
            Self::Bare => {}
            Self::Terminated { end, escaped } => {
                escape(end, escaped, start, out);
                out.push(end);
            }
            Self::Counted => count(start, out),
            Self::Datagrams {
                bytes_max,
                truncates,
            } => {
                let start = start + LENGTH_BYTES;
                let length = out.len() - start;
                if length > bytes_max {
                    if !truncates {
                        let reason = format!(
                            "the message has {length} bytes, and a datagram at most {bytes_max} (`max_datagram_bytes`)"
                        );
                        return Err(reason.into());
                    }
                    truncate(out, start + bytes_max);
                }
                let length = (out.len() - start) as u32;
                out[start - LENGTH_BYTES..start].copy_from_slice(&length.to_le_bytes());
            }
        }
        Ok(())
    }
}

/// Puts its length before a row.
fn count(start: usize, out: &mut Vec<u8>) {
    let length = out.len() - start;
    let mut digits = [b' '; 21];
    let mut first = digits.len() - 1;
    let mut rest = length;
    while first == digits.len() - 1 || rest > 0 {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let prefix = &digits[first..];
    out.extend_from_slice(prefix);
    out.copy_within(start..start + length, start + prefix.len());
    out[start..start + prefix.len()].copy_from_slice(prefix);
}

/// Writes the bytes `escaped`, such as the one that ends messages, as `#` and three octal digits, where a row contains them; so does rsyslog with control
/// characters that it receives (`escapeControlCharactersOnReceive`). A carriage return at the end of a line would be taken for a part
/// of what ends it, and is written in the same way.
fn escape(end: u8, escaped: &[u8], start: usize, out: &mut Vec<u8>) {
    let row = &out[start..];
    let has_return = end == b'\n' && !escaped.is_empty() && row.last() == Some(&b'\r');
    let has_other = || {
        escaped
            .iter()
            .any(|byte| memchr::memchr(*byte, row).is_some())
    };
    if !has_return && !has_other() {
        return;
    }
    let row = out.split_off(start);
    for (at, byte) in row.iter().enumerate() {
        let is_return = has_return && at + 1 == row.len();
        if !escaped.contains(byte) && !is_return {
            out.push(*byte);
            continue;
        }
        let digit = |shift: u8| b'0' + ((byte >> shift) & 7);
        out.extend([b'#', digit(6), digit(3), digit(0)]);
    }
}

/// Truncates text at `end`, or before it where a character would be torn.
fn truncate(out: &mut Vec<u8>, mut end: usize) {
    let is_inside = |byte: u8| (0x80..0xC0).contains(&byte);
    let floor = end.saturating_sub(3);
    while end > floor && out.get(end).is_some_and(|byte| is_inside(*byte)) {
        end -= 1;
    }
    out.truncate(end);
}

/// The datagrams in a request's body.
pub fn datagrams(mut body: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = body.split_first_chunk::<LENGTH_BYTES>()?;
        let length = (u32::from_le_bytes(*length) as usize).min(rest.len());
        let (datagram, rest) = rest.split_at(length);
        body = rest;
        Some(datagram)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(framing: Framing, rows: &[&str]) -> (Vec<u8>, Vec<usize>, Vec<String>) {
        let mut encoded = Encoded::default();
        let all = Bitmap::from_fn(rows.len(), |_| true);
        framing.write(&all, &mut encoded, |row, out| {
            out.extend_from_slice(rows[row].as_bytes());
        });
        let ends = encoded.ends.iter().map(|end| end.end).collect();
        let refused = encoded.refused.iter();
        let refused = refused.map(|answer| format!("{}: {}", answer.row, answer.reason));
        (encoded.bytes, ends, refused.collect())
    }

    #[test]
    fn each_row_has_its_end() {
        let long = "x".repeat(1000);
        let terminated = |end| Framing::Terminated {
            end,
            escaped: if end == 0 { b"\0" } else { b"\n" },
        };
        let both = Framing::Terminated {
            end: b'\n',
            escaped: b"\n\0",
        };
        for (framing, rows, expected) in [
            (terminated(b'\n'), ["a", "b\nc"], "a\nb#012c\n".to_owned()),
            (
                terminated(b'\n'),
                ["a\rb", "c\r"],
                "a\rb\nc#015\n".to_owned(),
            ),
            (terminated(0), ["a\nb", "\0"], "a\nb\0#000\0".to_owned()),
            (both, ["a\0<b", "c"], "a#000<b\nc\n".to_owned()),
            (Framing::Counted, ["", "a\nb"], "0 3 a\nb".to_owned()),
            (
                Framing::Counted,
                ["0123456789", &long],
                format!("10 01234567891000 {long}"),
            ),
            (Framing::Bare, ["a", "b"], "ab".to_owned()),
        ] {
            let (bytes, ends, refused) = framed(framing, &rows);
            assert_eq!(String::from_utf8_lossy(&bytes), expected, "{framing:?}");
            assert_eq!(ends.last(), Some(&bytes.len()));
            assert!(ends.len() == 2 && refused.is_empty());
        }
    }

    #[test]
    fn datagrams_have_a_limit() {
        let limited = |truncates| Framing::Datagrams {
            bytes_max: 4,
            truncates,
        };
        let rows = ["abcd", "abcde", "", "ab\u{20ac}"];
        let (bytes, ends, refused) = framed(limited(false), &rows);
        assert_eq!(datagrams(&bytes).collect::<Vec<_>>(), [&b"abcd"[..], b""]);
        assert_eq!(ends, [8, 12]);
        assert_eq!(refused.len(), 2);
        assert!(refused[0].starts_with("1: the message has 5 bytes, and a datagram at most 4"));
        let (bytes, ends, refused) = framed(limited(true), &rows);
        let sent: Vec<_> = datagrams(&bytes).collect();
        assert_eq!(
            sent,
            [&b"abcd"[..], b"abcd", b"", b"ab"],
            "no torn character"
        );
        assert!(ends.len() == 4 && refused.is_empty());
    }
}
