//! The header fields of a message, cleaned to what RFC 5424 allows in them (section 6), or RFC 3164 (section 4.1).

/// A field's limit in bytes.
#[derive(Debug, Clone, Copy)]
pub struct HeaderLimit {
    /// Bytes.
    pub size: usize,
    /// What else than the printable characters of ASCII is not allowed.
    pub without: &'static [u8],
    /// What an empty one is.
    pub empty: &'static [u8],
}

/// The nil value of RFC 5424.
const NIL: &[u8] = b"-";

impl HeaderLimit {
    pub const HOSTNAME: Self = Self::rfc5424(255);
    pub const APPNAME: Self = Self::rfc5424(48);
    pub const PROCID: Self = Self::rfc5424(128);
    pub const MSGID: Self = Self::rfc5424(32);

    /// `TAG` of RFC 3164, of at most 32 characters. What is no letter and no digit ends it there; only what
    /// separates it from what follows is replaced here, because names such as `systemd-logind` are common. A message that had no tag
    /// would lose its first word to it.
    pub const TAG: Self = Self {
        size: 32,
        without: b"[]:",
        empty: b"millpond",
    };

    /// What stands in brackets after the tag; nothing if it is empty.
    pub const TAG_PROCID: Self = Self {
        size: 128,
        without: b"[]:",
        empty: b"",
    };

    const fn rfc5424(size: usize) -> Self {
        Self {
            size,
            without: b"",
            empty: NIL,
        }
    }

    /// Makes a field of the text that begins at `start`: other characters become `_`, and what is too long is truncated.
    pub fn clean(self, out: &mut Vec<u8>, start: usize) {
        let is_allowed = |byte: &u8| byte.is_ascii_graphic() && !self.without.contains(byte);
        if !out[start..].iter().all(is_allowed) {
            self.replace(out, start);
        }
        if out.len() == start {
            return out.extend_from_slice(self.empty);
        }
        out.truncate(start + self.size);
    }

    #[cold]
    fn replace(self, out: &mut Vec<u8>, start: usize) {
        // Blanks around a name are not part of it.
        let text = out.split_off(start);
        for byte in text.trim_ascii() {
            match byte {
                0x80..0xC0 => {}
                byte if byte.is_ascii_graphic() && !self.without.contains(byte) => out.push(*byte),
                _ => out.push(b'_'),
            }
        }
    }
}

/// Appends the name of an element or parameter of structured data (`SD-NAME`): at most 32 printable characters of ASCII without `=`,
/// `]` and quotes.
pub fn write_name(name: &[u8], out: &mut Vec<u8>) {
    const NAME: HeaderLimit = HeaderLimit {
        size: 32,
        without: b"=]\"",
        empty: b"_",
    };
    let start = out.len();
    out.extend_from_slice(name);
    NAME.clean(out, start);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_hold_what_the_rfc_allows() {
        let long = "x".repeat(300);
        for (limit, text, expected) in [
            (HeaderLimit::HOSTNAME, "host.example", "host.example"),
            (HeaderLimit::HOSTNAME, long.as_str(), &long[..255]),
            (HeaderLimit::APPNAME, "my app\u{e9}\n", "my_app_"),
            (HeaderLimit::APPNAME, &long, &long[..48]),
            (HeaderLimit::PROCID, &long, &long[..128]),
            (HeaderLimit::MSGID, "", "-"),
            (HeaderLimit::MSGID, " ", "-"),
            (HeaderLimit::TAG, "a[1]:", "a_1__"),
            (HeaderLimit::TAG, "", "millpond"),
            (HeaderLimit::TAG_PROCID, "", ""),
        ] {
            let mut out = b"before".to_vec();
            out.extend_from_slice(text.as_bytes());
            limit.clean(&mut out, 6);
            assert_eq!(String::from_utf8_lossy(&out[6..]), expected, "{text}");
        }
        let mut out = Vec::new();
        write_name("a=b]\"\u{fc} c".as_bytes(), &mut out);
        assert_eq!(out, b"a_b____c");
    }
}
