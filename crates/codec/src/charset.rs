//! Text in other encodings than UTF-8, by the WHATWG Encoding Standard (<https://encoding.spec.whatwg.org>).

use std::borrow::Cow;

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};

/// The encoding of a label such as `utf-16`, `latin1`, `shift_jis` or `windows-1252`; none for labels that nobody knows.
///
/// `utf-16` is UTF-16LE. Whatever of the two is set, a byte order mark at the start of a stream decides.
pub fn charset(label: &str) -> Option<&'static Encoding> {
    Encoding::for_label_no_replacement(label.as_bytes())
}

/// What is set, unless it is UTF-8, which needs no decoding.
pub(crate) fn foreign(charset: Option<&'static Encoding>) -> Option<&'static Encoding> {
    charset.filter(|encoding| *encoding != UTF_8)
}

/// Whether the encoding is one of the two UTF-16 ones.
pub(crate) fn is_utf16(encoding: Option<&'static Encoding>) -> bool {
    encoding.is_some_and(|encoding| encoding == UTF_16LE || encoding == UTF_16BE)
}

/// UTF-16 in this byte order.
pub(crate) fn utf16(big_endian: bool) -> &'static Encoding {
    if big_endian { UTF_16BE } else { UTF_16LE }
}

/// Length of the byte order mark that `bytes`, the first ones of a stream, begin with.
pub(crate) fn mark_len(bytes: &[u8], encoding: Option<&'static Encoding>) -> usize {
    let mark: &[u8] = match encoding {
        None => b"\xEF\xBB\xBF",
        Some(encoding) if encoding == UTF_16LE => b"\xFF\xFE",
        Some(encoding) if encoding == UTF_16BE => b"\xFE\xFF",
        Some(_) => return 0,
    };
    if bytes.starts_with(mark) {
        mark.len()
    } else {
        0
    }
}

/// Decodes a line, and says whether something in it had to be replaced by U+FFFD. Of a line that was cut, half a character
/// at its end is left out.
pub(crate) fn decode<'b>(
    encoding: &'static Encoding,
    line: &'b [u8],
    is_cut: bool,
) -> (Cow<'b, str>, bool) {
    if !is_cut {
        return encoding.decode_without_bom_handling(line);
    }
    let mut decoder = encoding.new_decoder_without_bom_handling();
    let room = decoder.max_utf8_buffer_length(line.len());
    let mut text = String::with_capacity(room.unwrap_or(line.len()));
    let (_, _, replaced) = decoder.decode_to_string(line, &mut text, false);
    (Cow::Owned(text), replaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels() {
        assert_eq!(charset("utf-16"), Some(UTF_16LE));
        assert_eq!(charset("Latin1"), Some(encoding_rs::WINDOWS_1252));
        assert_eq!(foreign(charset("utf8")), None);
        for unknown in ["", "utf-9", "hz-gb-2312"] {
            assert_eq!(charset(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn cut_lines_lose_half_characters_only() {
        let (text, replaced) = decode(UTF_16LE, b"a\0\x3d\xd8", true);
        assert_eq!((&*text, replaced), ("a", false));
        let (text, replaced) = decode(UTF_16LE, b"a\0\x3d\xd8", false);
        assert_eq!((&*text, replaced), ("a\u{FFFD}", true));
    }
}
