//! Names of outputs and pipelines as names of files and folders.
//!
//! A name that was cut keeps apart from others by a hash. Cursor files say themselves whose they are, so even two names of
//! the same hash do no harm there.

use std::fmt::Write;

use batch::fnv::fnv64;

/// The bytes a name may take. A file system allows 255; prefixes and numbers come on top.
const BYTES_MAX: usize = 160;

/// A name as a name of a file: letters, digits, `_` and `-` stay, `.` stays within, every other byte becomes `%` and two
/// digits. Never empty, `.` or `..`. A long one is cut and ends with `~` and a hash of the whole, in 16 digits.
pub fn encode(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for (index, byte) in name.bytes().enumerate() {
        let is_plain = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if is_plain || (byte == b'.' && index > 0) {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("a string takes what is written");
        }
    }
    if encoded.is_empty() {
        return "%".to_owned();
    }
    if encoded.len() > BYTES_MAX {
        let mut end = BYTES_MAX - 17;
        // An encoded byte is kept whole or left out.
        if let Some(percent) = encoded[end - 2..end].find('%') {
            end = end - 2 + percent;
        }
        encoded.truncate(end);
        write!(encoded, "~{:016x}", fnv64(name.as_bytes()))
            .expect("a string takes what is written");
    }
    encoded
}

/// The name that [`encode`] made this of; `None` when it was cut or made by something else.
pub fn decode(encoded: &str) -> Option<String> {
    if encoded == "%" {
        return Some(String::new());
    }
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        } else {
            bytes.push(*first);
        }
    }
    let name = String::from_utf8(bytes).ok()?;
    (encode(&name) == encoded).then_some(name)
}
