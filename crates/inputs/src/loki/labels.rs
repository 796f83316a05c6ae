//! Labels as text: `{job="app", level="error"}`. Values are quoted as in Go.

/// Calls for every name and value.
///
/// # Errors
/// The text is malformed: what is expected where.
pub(super) fn each(text: &[u8], mut pair: impl FnMut(&[u8], &[u8])) -> Result<(), String> {
    let mut reader = LabelText { text, at: 0 };
    let mut value = Vec::new();
    reader.expect(b'{')?;
    loop {
        if reader.peek() == Some(b'}') {
            break;
        }
        let name = reader.name()?;
        reader.expect(b'=')?;
        value.clear();
        reader.quoted(&mut value)?;
        pair(name, &value);
        match reader.peek() {
            Some(b',') => reader.at += 1,
            _ => break,
        }
    }
    reader.expect(b'}')?;
    match reader.peek() {
        None => Ok(()),
        Some(_) => Err(reader.wrong("the end")),
    }
}

struct LabelText<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> LabelText<'a> {
    /// The next byte that is no blank.
    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn wrong(&self, expected: &str) -> String {
        format!(
            "malformed labels: {expected} is expected at byte {}",
            self.at
        )
    }

    fn expect(&mut self, byte: u8) -> Result<(), String> {
        match self.peek() {
            Some(found) if found == byte => {
                self.at += 1;
                Ok(())
            }
            _ => Err(self.wrong(&format!("`{}`", char::from(byte)))),
        }
    }

    fn name(&mut self) -> Result<&'a [u8], String> {
        self.peek();
        let rest = &self.text[self.at..];
        let is_end = |byte: &u8| matches!(byte, b'=' | b',' | b'{' | b'}' | b'"' | b' ');
        let len = rest.iter().position(is_end).unwrap_or(rest.len());
        if len == 0 {
            return Err(self.wrong("a name"));
        }
        self.at += len;
        Ok(&rest[..len])
    }

    /// A quoted value, without its quotes and escapes.
    fn quoted(&mut self, out: &mut Vec<u8>) -> Result<(), String> {
        let quote = match self.peek() {
            Some(quote @ (b'"' | b'`')) => quote,
            _ => return Err(self.wrong("a quoted value")),
        };
        self.at += 1;
        loop {
            let byte = self.next("a closing quote")?;
            match byte {
                byte if byte == quote => return Ok(()),
                b'\\' if quote == b'"' => self.escape(out)?,
                byte => out.push(byte),
            }
        }
    }

    fn next(&mut self, expected: &str) -> Result<u8, String> {
        let byte = self.text.get(self.at).copied();
        let byte = byte.ok_or_else(|| self.wrong(expected))?;
        self.at += 1;
        Ok(byte)
    }

    /// What follows a backslash (The Go Programming Language Specification, "Rune literals").
    fn escape(&mut self, out: &mut Vec<u8>) -> Result<(), String> {
        let byte = self.next("an escape")?;
        let plain = match byte {
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            b'\\' | b'"' | b'\'' => byte,
            b'x' => self.digits(2, 16)? as u8,
            b'0'..=b'7' => {
                self.at -= 1;
                self.digits(3, 8)? as u8
            }
            b'u' | b'U' => {
                let code = self.digits(if byte == b'u' { 4 } else { 8 }, 16)?;
                let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return Err(self.wrong("an escape")),
        };
        out.push(plain);
        Ok(())
    }

    fn digits(&mut self, count: usize, radix: u32) -> Result<u32, String> {
        let mut value: u32 = 0;
        for _ in 0..count {
            let digit = char::from(self.next("a digit")?).to_digit(radix);
            let digit = digit.ok_or_else(|| self.wrong("a digit"))?;
            value = value.wrapping_mul(radix).wrapping_add(digit);
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(String, String)>, String> {
        let mut pairs = Vec::new();
        let text_of = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        each(text.as_bytes(), |name, value| {
            pairs.push((text_of(name), text_of(value)));
        })?;
        Ok(pairs)
    }

    #[test]
    fn values_are_quoted_as_in_go() {
        let pairs = |pairs: &[(&str, &str)]| {
            let owned = pairs
                .iter()
                .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
            Ok(owned.collect::<Vec<_>>())
        };
        for (text, expected) in [
            ("{}", pairs(&[])),
            ("{a=\"b\"}", pairs(&[("a", "b")])),
            (
                " { a = \"b\" , c=\"d\", } ",
                pairs(&[("a", "b"), ("c", "d")]),
            ),
            (
                "{a=\"q\\\"\\\\\\n\\x41\\101\\u00e4\\U0001F600\"}",
                pairs(&[("a", "q\"\\\nAA\u{e4}\u{1f600}")]),
            ),
            ("{a=`b\\n`}", pairs(&[("a", "b\\n")])),
            ("{a=\"}\"}", pairs(&[("a", "}")])),
            (
                "",
                Err("malformed labels: `{` is expected at byte 0".to_owned()),
            ),
            (
                "{a}",
                Err("malformed labels: `=` is expected at byte 2".to_owned()),
            ),
            (
                "{a=b}",
                Err("malformed labels: a quoted value is expected at byte 3".to_owned()),
            ),
            (
                "{a=\"b",
                Err("malformed labels: a closing quote is expected at byte 5".to_owned()),
            ),
            (
                "{a=\"b\"",
                Err("malformed labels: `}` is expected at byte 6".to_owned()),
            ),
            (
                "{a=\"b\"}x",
                Err("malformed labels: the end is expected at byte 7".to_owned()),
            ),
            (
                "{=\"b\"}",
                Err("malformed labels: a name is expected at byte 1".to_owned()),
            ),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }
}
