//! String bodies: escaping and unescaping.

use super::lanes::{Lanes, WIDTH};

/// What a byte becomes inside a JSON string: itself (zero), a letter after a backslash, or `u` for `\u00XX`.
const ESCAPES: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = b'u';
        byte += 1;
    }
    table[0x08] = b'b';
    table[0x09] = b't';
    table[0x0A] = b'n';
    table[0x0C] = b'f';
    table[0x0D] = b'r';
    table[b'"' as usize] = b'"';
    table[b'\\' as usize] = b'\\';
    table
};

/// Whether the body of a JSON string holds an escape sequence, so that its bytes are not its text.
#[inline]
pub fn has_escape(body: &[u8]) -> bool {
    memchr::memchr(b'\\', body).is_some()
}

/// Whether the body of a JSON string that lies in `text` holds an escape sequence. What stands around it is read, too.
#[inline]
pub(crate) fn has_escape_at(text: &[u8], start: usize, len: usize) -> bool {
    let escapes = |at| Lanes::load(text, at).mask_of(b'\\');
    if len <= WIDTH {
        let in_body = (1 << len) - 1;
        return escapes(start) & in_body != 0;
    }
    if len <= 2 * WIDTH {
        return escapes(start) | escapes(start + len - WIDTH) != 0;
    }
    has_escape(&text[start..start + len])
}

/// Appends `text` as a JSON string, quotes included.
///
/// Escapes are the shortest there are: `\"`, `\\`, `\b`, `\f`, `\n`, `\r`, `\t`, and `\u00xx` for the other control
/// characters; everything else stands for itself.
#[inline]
pub fn write_string(out: &mut Vec<u8>, text: &[u8]) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    write_string_body(out, text);
    out.push(b'"');
}

/// Appends `text` as [`write_string`] does, without the quotes.
#[inline]
pub fn write_string_body(out: &mut Vec<u8>, text: &[u8]) {
    let clean = clean_len(text);
    out.extend_from_slice(&text[..clean]);
    if clean < text.len() {
        write_escaped(out, &text[clean..]);
    }
}

/// How many bytes [`write_string_body`] writes.
pub fn escaped_len(text: &[u8]) -> usize {
    let more = text.iter().map(|byte| match ESCAPES[usize::from(*byte)] {
        0 => 0,
        b'u' => 5,
        _ => 1,
    });
    text.len() + more.sum::<usize>()
}

/// `text` begins with a byte to escape.
#[inline(never)]
fn write_escaped(out: &mut Vec<u8>, mut text: &[u8]) {
    while let Some((&byte, rest)) = text.split_first() {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        match ESCAPES[usize::from(byte)] {
            b'u' => {
                let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digits[0], digits[1]]);
            }
            letter => out.extend_from_slice(&[b'\\', letter]),
        }
        let clean = clean_len(rest);
        out.extend_from_slice(&rest[..clean]);
        text = &rest[clean..];
    }
}

/// How many bytes at the start of `text` need no escape.
#[inline(always)]
fn clean_len(text: &[u8]) -> usize {
    let mut pos = 0;
    while let Some(bytes) = text[pos..].first_chunk::<WIDTH>() {
        let stops = Lanes::new(*bytes).string_stops();
        if stops != 0 {
            return pos + stops.trailing_zeros() as usize;
        }
        pos += WIDTH;
    }
    if pos == text.len() {
        return pos;
    }
    if let Some(last) = text.last_chunk::<WIDTH>() {
        // The bytes before `pos` are clean, so that a stop lies behind it.
        let stops = Lanes::new(*last).string_stops();
        return if stops == 0 {
            text.len()
        } else {
            text.len() - WIDTH + stops.trailing_zeros() as usize
        };
    }
    clean_len_short(text)
}

/// [`clean_len`] for texts of less than sixteen bytes: both ends at once where that covers the whole.
#[inline(always)]
fn clean_len_short(text: &[u8]) -> usize {
    let word = match (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        (Some(first), Some(last)) => join(*first, *last),
        _ => match (text.first_chunk::<4>(), text.last_chunk::<4>()) {
            (Some(first), Some(last)) => {
                let word = join4(*first, *last);
                join(word, word)
            }
            _ => return clean_len_bytes(text),
        },
    };
    if Lanes::new(word).string_stops() == 0 {
        text.len()
    } else {
        clean_len_bytes(text)
    }
}

#[inline(always)]
fn join(first: [u8; 8], last: [u8; 8]) -> [u8; WIDTH] {
    (u128::from(u64::from_ne_bytes(first)) << 64 | u128::from(u64::from_ne_bytes(last)))
        .to_ne_bytes()
}

#[inline(always)]
fn join4(first: [u8; 4], last: [u8; 4]) -> [u8; 8] {
    (u64::from(u32::from_ne_bytes(first)) << 32 | u64::from(u32::from_ne_bytes(last))).to_ne_bytes()
}

fn clean_len_bytes(text: &[u8]) -> usize {
    text.iter()
        .position(|&byte| ESCAPES[usize::from(byte)] != 0)
        .unwrap_or(text.len())
}

/// Appends the text that the body of a valid JSON string stands for. A surrogate without its partner becomes U+FFFD.
pub fn unescape(body: &[u8], out: &mut Vec<u8>) {
    let mut rest = body;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        let Some((&letter, behind)) = rest.split_first() else {
            return;
        };
        rest = behind;
        match letter {
            b'b' => out.push(0x08),
            b'f' => out.push(0x0C),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'u' => rest = unescape_unicode(rest, out),
            other => out.push(other),
        }
    }
    out.extend_from_slice(rest);
}

/// `rest` begins behind `\u`; returns what comes after the character.
fn unescape_unicode<'a>(rest: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
    let Some((first, mut behind)) = code_unit(rest) else {
        return &[];
    };
    let mut code = first;
    if let (0xD800..0xDC00, Some(next)) = (first, behind.strip_prefix(b"\\u"))
        && let Some((second @ 0xDC00..0xE000, after)) = code_unit(next)
    {
        code = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
        behind = after;
    }
    let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    behind
}

fn code_unit(text: &[u8]) -> Option<(u32, &[u8])> {
    let (digits, rest) = text.split_first_chunk::<4>()?;
    let mut code = 0;
    for &digit in digits {
        code = code << 4 | char::from(digit).to_digit(16)?;
    }
    Some((code, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_found_in_a_part_of_a_text_and_not_beside_it() {
        for len in 0..40 {
            let mut text = vec![b'\\'; 3];
            text.extend(vec![b'x'; len]);
            text.extend([b'\\'; 20]);
            assert!(!has_escape_at(&text, 3, len), "{len} bytes");
            assert!(!has_escape_at(&text[..3 + len], 3, len), "{len} bytes");
            for at in 3..3 + len {
                let mut text = text.clone();
                text[at] = b'\\';
                assert!(has_escape_at(&text, 3, len), "{len} bytes, at {at}");
            }
        }
    }
}
