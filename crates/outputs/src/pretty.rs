//! JSON for people: indented, one member a line, in colours where somebody asks for them.
//!
//! It works on valid JSON text and copies every scalar as it stands, so that no digit is lost.

use batch::json::{self, Kind};

/// How JSON is laid out for people.
#[derive(Debug, Clone, Copy)]
pub struct Pretty {
    /// Whether terminal colours (ANSI escape sequences) are used.
    pub colours: bool,
}

const INDENT: usize = 2;
const RESET: &[u8] = b"\x1b[0m";
const KEY: &[u8] = b"\x1b[34m";

impl Pretty {
    /// Appends a valid JSON value, laid out over several lines, without a newline at the end.
    pub fn write(self, value: &[u8], out: &mut Vec<u8>) {
        self.value(value, 0, out);
    }

    fn value(self, value: &[u8], depth: usize, out: &mut Vec<u8>) {
        match json::kind(value) {
            Kind::Object => {
                let members = json::members(value).map(|member| (Some(member.key), member.value));
                self.container(value, members, [b'{', b'}'], depth, out);
            }
            Kind::Array => {
                let elements = json::elements(value).map(|element| (None, element));
                self.container(value, elements, [b'[', b']'], depth, out);
            }
            kind => self.coloured(colour(kind), value, out),
        }
    }

    fn container<'a>(
        self,
        whole: &[u8],
        items: impl Iterator<Item = (Option<&'a [u8]>, std::ops::Range<usize>)>,
        [open, close]: [u8; 2],
        depth: usize,
        out: &mut Vec<u8>,
    ) {
        out.push(open);
        let mut is_empty = true;
        for (key, value) in items {
            if !std::mem::take(&mut is_empty) {
                out.push(b',');
            }
            new_line(depth + 1, out);
            if let Some(key) = key {
                self.coloured(KEY, &[b"\"", key, b"\""].concat(), out);
                out.extend_from_slice(b": ");
            }
            self.value(&whole[value], depth + 1, out);
        }
        if !is_empty {
            new_line(depth, out);
        }
        out.push(close);
    }

    fn coloured(self, colour: &[u8], text: &[u8], out: &mut Vec<u8>) {
        if self.colours {
            out.extend_from_slice(colour);
            out.extend_from_slice(text);
            out.extend_from_slice(RESET);
        } else {
            out.extend_from_slice(text);
        }
    }
}

fn colour(kind: Kind) -> &'static [u8] {
    match kind {
        Kind::String => b"\x1b[32m",
        Kind::Number => b"\x1b[33m",
        Kind::Bool => b"\x1b[36m",
        _ => b"\x1b[90m",
    }
}

fn new_line(depth: usize, out: &mut Vec<u8>) {
    out.push(b'\n');
    out.resize(out.len() + depth * INDENT, b' ');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pretty(text: &str, colours: bool) -> String {
        let mut out = Vec::new();
        Pretty { colours }.write(text.as_bytes(), &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn values_are_laid_out_as_they_stand() {
        let text = r#"{"a":1.50, "b":{},"c":[ ],"d":[1,{"e\"":"x, {y}"}],"f":null}"#;
        let expected = r#"{
  "a": 1.50,
  "b": {},
  "c": [],
  "d": [
    1,
    {
      "e\"": "x, {y}"
    }
  ],
  "f": null
}"#;
        assert_eq!(pretty(text, false), expected);
    }

    #[test]
    fn colours_only_add_escape_sequences() {
        let text = r#"{"a":[1,"x",true,null]}"#;
        let coloured = pretty(text, true);
        assert!(coloured.contains("\x1b[34m\"a\"\x1b[0m: ["));
        assert!(coloured.contains("\x1b[33m1\x1b[0m"));
        let mut plain = coloured;
        for code in [
            "\x1b[0m", "\x1b[34m", "\x1b[32m", "\x1b[33m", "\x1b[36m", "\x1b[90m",
        ] {
            plain = plain.replace(code, "");
        }
        assert_eq!(plain, pretty(text, false));
    }

    #[test]
    fn deep_nesting_is_no_danger() {
        let deep = "[".repeat(1000) + &"]".repeat(1000);
        assert!(pretty(&deep, false).starts_with("[\n  [\n    ["));
    }
}
