//! How the JSON documents of a stream are laid out, by its first bytes.
//!
//! One document per line is the common case, and the fastest: only line feeds are looked for there. A stream is read as documents of
//! any layout if it begins with an array of objects, or if its first line does not hold exactly one object: because the object
//! continues on the next line, or because another one follows it. The first bytes decide for the whole stream, so that a reader
//! that resumes in the middle, and looks at them again, decides the same.

use batch::json::{self, JsonErrorKind};

/// How many bytes of a stream may be needed to tell its layout. Where they hold no whole line, the stream has one document per line.
pub const LAYOUT_BYTES: usize = 64 * 1024;

/// How the JSON documents of a stream are laid out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Layout {
    /// One on each line.
    #[default]
    Lines,
    /// One after the other, each on any number of lines, as elements of arrays or on their own.
    Documents,
}

impl Layout {
    /// The layout of a stream that begins with `head`; none where more of it is needed. With `is_end` there is no more.
    pub fn of(head: &[u8], is_end: bool) -> Option<Self> {
        const MARK: &[u8] = b"\xEF\xBB\xBF";
        let is_all = is_end || head.len() >= LAYOUT_BYTES;
        let undecided = is_all.then_some(Self::Lines);
        let head = &head[..head.len().min(LAYOUT_BYTES)];
        if head.len() < MARK.len() && MARK.starts_with(head) {
            return undecided;
        }
        let text = head.strip_prefix(MARK).unwrap_or(head).trim_ascii_start();
        match text.first() {
            None => undecided,
            Some(b'[') => match text[1..].trim_ascii_start().first() {
                None => undecided,
                Some(b'{' | b']') => Some(Self::Documents),
                Some(_) => Some(Self::Lines),
            },
            Some(b'{') => match memchr::memchr(b'\n', text) {
                Some(end) => Some(Self::of_line(&text[..end], true)),
                None if is_end => Some(Self::of_line(text, false)),
                None => undecided,
            },
            Some(_) => Some(Self::Lines),
        }
    }

    /// By the first line, which begins with an object.
    fn of_line(line: &[u8], has_end: bool) -> Self {
        if simdutf8::basic::from_utf8(line).is_err() {
            return Self::Lines;
        }
        match json::validate_object_at(line, 0) {
            Ok((_, end)) => match line[end..].trim_ascii_start().first() {
                Some(b'{' | b',') => Self::Documents,
                _ => Self::Lines,
            },
            Err(error) if has_end && error.kind == JsonErrorKind::UnexpectedEnd => Self::Documents,
            Err(_) => Self::Lines,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_tell_the_layout() {
        use Layout::{Documents, Lines};
        let long = format!("{{\"a\":\"{}\n", "x".repeat(LAYOUT_BYTES));
        let blank = " ".repeat(LAYOUT_BYTES);
        for (head, open, at_end) in [
            ("", None, Lines),
            (" \n\n", None, Lines),
            ("[", None, Lines),
            ("\n [ \n", None, Lines),
            ("[{", Some(Documents), Documents),
            ("[\n  {", Some(Documents), Documents),
            ("[]", Some(Documents), Documents),
            ("[1, 2]\n", Some(Lines), Lines),
            ("[[{", Some(Lines), Lines),
            ("{\"a\":1}", None, Lines),
            ("{\"a\":1}\n", Some(Lines), Lines),
            ("{\"a\":1} \r\n[", Some(Lines), Lines),
            ("\u{feff}{\"a\":1}\n{", Some(Lines), Lines),
            ("\u{feff}{\n", Some(Documents), Documents),
            ("{\r\n", Some(Documents), Documents),
            ("{\"a\":\n", Some(Documents), Documents),
            ("{\"a\":", None, Lines),
            ("{\"a\":1}{\"a\":2}", None, Documents),
            ("{\"a\":1} {\"a\":2}\n", Some(Documents), Documents),
            ("{\"a\":1},\n", Some(Documents), Documents),
            ("{\"a\":1} x\n", Some(Lines), Lines),
            ("{\"a\":01}\n", Some(Lines), Lines),
            ("text\n", Some(Lines), Lines),
            (&long, Some(Lines), Lines),
            (&blank, Some(Lines), Lines),
        ] {
            let shown = &head[..head.len().min(30)];
            assert_eq!(Layout::of(head.as_bytes(), false), open, "{shown}");
            let ended = Layout::of(head.as_bytes(), true);
            assert_eq!(ended, Some(at_end), "{shown}");
        }
        assert_eq!(Layout::of(b"\xEF\xBB", false), None);
        assert_eq!(Layout::of(b"{\"\xFF\n", false), Some(Lines));
    }
}
