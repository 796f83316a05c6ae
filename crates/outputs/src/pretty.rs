//! JSON for people: objects and arrays that fit on a line stand on one, others have a member on each line, indented, in colours
//! where somebody asks for them.
//!
//! It works on valid JSON text and copies every scalar as it stands, so that no digit is lost.

use std::ops::Range;

use batch::json::{self, Kind};

/// How JSON is laid out for people.
#[derive(Debug, Clone, Copy)]
pub struct Pretty {
    /// Whether terminal colours (ANSI escape sequences) are used.
    pub colours: bool,
}

const INDENT: usize = 2;
/// Characters of a line, as long as no single value is longer.
const WIDTH: usize = 80;
const RESET: &[u8] = b"\x1b[0m";
const KEY: &[u8] = b"\x1b[34m";

impl Pretty {
    /// Appends a valid JSON value, laid out over several lines, without a newline at the end.
    pub fn write(self, value: &[u8], out: &mut Vec<u8>) {
        self.value(value, Some(0), 0, out);
    }

    /// Appends a value. Without a depth it stands in one line with what is around it; `before` are the characters of its line
    /// before it, those of the indentation aside.
    fn value(self, value: &[u8], depth: Option<usize>, before: usize, out: &mut Vec<u8>) {
        let [open, close] = match json::kind(value) {
            Kind::Object => [b'{', b'}'],
            Kind::Array => [b'[', b']'],
            kind => return self.coloured(colour(kind), value, out),
        };
        // A comma may follow.
        let taken = before + 1;
        let depth = depth.filter(|depth| {
            let room = WIDTH.saturating_sub(depth * INDENT + taken);
            rest_of_line(value, room).is_none()
        });
        out.push(open);
        let mut is_empty = true;
        for (key, at) in items(value) {
            let is_first = std::mem::take(&mut is_empty);
            if !is_first {
                out.push(b',');
            }
            match depth {
                Some(depth) => new_line(depth + 1, out),
                None if !is_first => out.push(b' '),
                None => {}
            }
            let mut before = 0;
            if let Some(key) = key {
                self.coloured(KEY, &[b"\"", key, b"\""].concat(), out);
                out.extend_from_slice(b": ");
                before = characters(key) + 4;
            }
            self.value(&value[at], depth.map(|depth| depth + 1), before, out);
        }
        if let Some(depth) = depth.filter(|_| !is_empty) {
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

/// The members of an object, or the elements of an array.
fn items(value: &[u8]) -> impl Iterator<Item = (Option<&[u8]>, Range<usize>)> {
    let is_object = json::kind(value) == Kind::Object;
    let members = is_object.then(|| json::members(value).map(|it| (Some(it.key), it.value)));
    let elements = (!is_object).then(|| json::elements(value).map(|at| (None, at)));
    members
        .into_iter()
        .flatten()
        .chain(elements.into_iter().flatten())
}

/// What is left of `room` characters behind a value in one line; none where it does not fit.
fn rest_of_line(value: &[u8], room: usize) -> Option<usize> {
    if !matches!(json::kind(value), Kind::Object | Kind::Array) {
        return room.checked_sub(characters(value));
    }
    let mut rest = room.checked_sub(2)?;
    for (index, (key, at)) in items(value).enumerate() {
        let around = if index > 0 { 2 } else { 0 };
        let key = key.map_or(0, |key| characters(key) + 4);
        rest = rest_of_line(&value[at], rest.checked_sub(around + key)?)?;
    }
    Some(rest)
}

fn characters(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte & 0xC0 != 0x80).count()
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
        let short = r#"{"a":1.50, "b":{},"c":[ ],"d":[1,{"e\"":"x, {y}"}],"f":null}"#;
        let expected = r#"{"a": 1.50, "b": {}, "c": [], "d": [1, {"e\"": "x, {y}"}], "f": null}"#;
        assert_eq!(pretty(short, false), expected);
        let long = short.replace("1.50", &"1".repeat(70));
        let expected = r#"{
  "a": 1111111111111111111111111111111111111111111111111111111111111111111111,
  "b": {},
  "c": [],
  "d": [1, {"e\"": "x, {y}"}],
  "f": null
}"#;
        assert_eq!(pretty(&long, false), expected);
    }

    #[test]
    fn a_line_has_room_for_eighty_characters() {
        // With the comma that may follow.
        for (length, lines) in [(70, 1), (71, 3)] {
            let text = format!(r#"{{"é":"{}"}}"#, "ü".repeat(length));
            let laid_out = pretty(&text, false);
            assert_eq!(laid_out.lines().count(), lines, "{laid_out}");
            assert!(laid_out.lines().all(|line| line.chars().count() <= 80));
        }
        let nested = format!(
            r#"{{"list":[{{"a":"{0}"}},{{"a":"{0}"}}]}}"#,
            "x".repeat(60)
        );
        let x = "x".repeat(60);
        let expected =
            format!("{{\n  \"list\": [\n    {{\"a\": \"{x}\"}},\n    {{\"a\": \"{x}\"}}\n  ]\n}}");
        assert_eq!(pretty(&nested, false), expected);
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
        let wide = format!("[{}]", vec!["[]"; 100_000].join(","));
        assert_eq!(pretty(&wide, false).lines().count(), 100_002);
    }
}
