//! The codec `logfmt`: `key=value` pairs on one line.
//!
//! There is no specification; this follows what go-logfmt reads and writes (<https://github.com/go-logfmt/logfmt>, `encode.go`):
//! a value stands in quotes where it holds a blank, `=`, `"` or a control character, or would be read as `null`, and is escaped as
//! in JSON then. A key has none of these characters. An empty text is `""`, as in Go's `log/slog`, because some readers
//! (Logstash's `kv` among them) take the pair that follows `key=` for its value.
//!
//! Members of objects get dotted keys; arrays and empty objects are their JSON text. The event is rendered as JSON, and that text
//! walked once. A text that JSON escapes is copied as it stands, escapes included, where readers of logfmt know them.

use std::ops::Range;

use batch::json::{self, Kind};
use batch::{Batch, JsonWriter};

/// The character that stands for those that a key cannot have.
const REPLACEMENT: u8 = b'_';

/// The pairs of one batch.
#[derive(Debug)]
pub struct BoundLogfmt<'a> {
    writer: JsonWriter<'a>,
    /// The event as JSON.
    event: Vec<u8>,
    pairs: Pairs,
}

impl<'a> BoundLogfmt<'a> {
    /// A writer for the events of `batch`.
    pub fn new(batch: &'a Batch) -> Self {
        Self {
            writer: JsonWriter::new(batch),
            event: Vec::new(),
            pairs: Pairs::default(),
        }
    }

    /// Appends the pairs of a row.
    pub fn write(&mut self, row: usize, out: &mut Vec<u8>) {
        self.write_behind(row, out.len(), out);
    }

    /// Leaves out no field of the next rows.
    pub fn skip_none(&mut self) {
        self.pairs.skipped.clear();
        self.pairs.skipped_texts.clear();
    }

    /// Leaves out this field of the next rows where it has this text. A field of the same name may stand in an event twice, as `a.b` and
    /// as `b` in the object `a`.
    pub fn skip(&mut self, name: &'static str, text: &[u8]) {
        let start = self.pairs.skipped_texts.len();
        self.pairs.skipped_texts.extend_from_slice(text);
        let text = start..self.pairs.skipped_texts.len();
        self.pairs.skipped.push((name, text));
    }

    /// Appends the pairs of a row whose text begins at `start`.
    pub fn write_behind(&mut self, row: usize, start: usize, out: &mut Vec<u8>) {
        self.event.clear();
        self.writer.write(row, &mut self.event);
        self.pairs.key.clear();
        let object = next_token(&self.event, 0);
        self.pairs.object(&self.event, object, start, out);
    }
}

/// Writes the members of objects as pairs.
#[derive(Debug, Default)]
struct Pairs {
    /// The key of what is being written.
    key: Vec<u8>,
    /// A text without its escapes.
    plain: Vec<u8>,
    /// The keys of pairs that are left out, and where the texts of these pairs are.
    skipped: Vec<(&'static str, Range<usize>)>,
    skipped_texts: Vec<u8>,
}

impl Pairs {
    /// Appends the members of the object that begins at `pos` of a valid JSON text; the first pair of the row begins at `start`.
    /// Gives where the object ends.
    fn object(&mut self, text: &[u8], pos: usize, start: usize, out: &mut Vec<u8>) -> usize {
        let prefix = self.key.len();
        let mut pos = next_token(text, pos + 1);
        // Anything but a key is the end of the object.
        while text.get(pos) == Some(&b'"') {
            let key_end = json::skip_value(text, pos);
            if prefix > 0 {
                self.key.push(b'.');
            }
            self.push_key(text.get(pos + 1..key_end - 1).unwrap_or_default());
            let value = next_token(text, key_end);
            let value_end = self.value(text, value, start, out);
            self.key.truncate(prefix);
            pos = next_token(text, value_end);
        }
        pos + 1
    }

    /// Appends to the key what a member is called.
    fn push_key(&mut self, raw: &[u8]) {
        let from = self.key.len();
        match json::has_escape(raw) {
            true => json::unescape(raw, &mut self.key),
            false => self.key.extend_from_slice(raw),
        }
        if self.key.len() == from {
            self.key.push(REPLACEMENT);
        }
        let key = &mut self.key[from..];
        if has_special(key) {
            for byte in key.iter_mut().filter(|byte| is_special(**byte)) {
                *byte = REPLACEMENT;
            }
        }
    }

    /// Appends the value at `pos`; gives where it ends.
    fn value(&mut self, text: &[u8], pos: usize, start: usize, out: &mut Vec<u8>) -> usize {
        if self.is_skipped(text, pos) {
            return json::skip_value(text, pos);
        }
        let kind = json::kind(&text[pos.min(text.len())..]);
        if kind == Kind::Object && text.get(next_token(text, pos + 1)) == Some(&b'"') {
            return self.object(text, pos, start, out);
        }
        let end = json::skip_value(text, pos);
        let value = &text[pos.min(end)..end];
        if out.len() > start {
            out.push(b' ');
        }
        out.extend_from_slice(&self.key);
        out.push(b'=');
        match kind {
            Kind::Null | Kind::Bool | Kind::Number => out.extend_from_slice(value),
            Kind::Array | Kind::Object => write_text(value, out),
            Kind::String => self.string(value.get(1..value.len() - 1).unwrap_or_default(), out),
        }
        end
    }

    /// Whether the pair of the key with the value at `pos` is left out.
    fn is_skipped(&mut self, text: &[u8], pos: usize) -> bool {
        let mut skipped = self.skipped.iter();
        let Some((_, skipped)) = skipped.find(|(name, _)| name.as_bytes() == &self.key[..]) else {
            return false;
        };
        let skipped = &self.skipped_texts[skipped.clone()];
        let value = text
            .get(pos..json::skip_value(text, pos))
            .unwrap_or_default();
        match value
            .strip_prefix(b"\"")
            .and_then(|it| it.strip_suffix(b"\""))
        {
            Some(body) if json::has_escape(body) => {
                self.plain.clear();
                json::unescape(body, &mut self.plain);
                self.plain == skipped
            }
            Some(body) => body == skipped,
            None => value == skipped,
        }
    }

    /// Appends a text that stands so between the quotes of a JSON string.
    fn string(&mut self, body: &[u8], out: &mut Vec<u8>) {
        match escapes(body) {
            Escapes::None => write_text(body, out),
            Escapes::Short => {
                out.push(b'"');
                out.extend_from_slice(body);
                out.push(b'"');
            }
            Escapes::Other => {
                self.plain.clear();
                json::unescape(body, &mut self.plain);
                write_text(&self.plain, out);
            }
        }
    }
}

/// The escapes in a JSON string.
enum Escapes {
    /// There are none.
    None,
    /// Only such that every reader of logfmt knows.
    Short,
    /// Others: characters by their number, and slashes.
    Other,
}

fn escapes(body: &[u8]) -> Escapes {
    let mut found = Escapes::None;
    let mut pos = 0;
    while let Some(at) = memchr::memchr(b'\\', &body[pos..]) {
        match body.get(pos + at + 1) {
            Some(b'"' | b'\\' | b'n' | b'r' | b't') => found = Escapes::Short,
            _ => return Escapes::Other,
        }
        pos += at + 2;
    }
    found
}

/// Where the next token begins: behind white space, colons and commas.
#[inline]
fn next_token(text: &[u8], mut pos: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\n' | b'\r' | b':' | b',') = text.get(pos) {
        pos += 1;
    }
    pos
}

/// Whether neither a key nor a value without quotes has this byte.
#[inline]
fn is_special(byte: u8) -> bool {
    (byte <= b' ') | (byte == b'=') | (byte == b'"') | (byte == 0x7f)
}

/// Looks at all bytes, which compilers make many at a time.
#[inline]
fn has_special(text: &[u8]) -> bool {
    text.iter()
        .fold(false, |found, byte| found | is_special(*byte))
}

/// Appends a text, in quotes where it needs them.
#[inline]
fn write_text(text: &[u8], out: &mut Vec<u8>) {
    match text.is_empty() || text == b"null" || has_special(text) {
        true => json::write_string(out, text),
        false => out.extend_from_slice(text),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::testing;

    #[test]
    fn pairs_are_quoted_where_a_reader_needs_it() {
        for (document, expected) in [
            ("{}", ""),
            (r#"{"a":1.50,"b":true,"c":null}"#, "a=1.50 b=true c=null"),
            (r#"{"a":"null","b":"true"}"#, r#"a="null" b=true"#),
            (r#"{"a":"x=y","b":"x y","c":""}"#, r#"a="x=y" b="x y" c="""#),
            (r#"{"a":"\"q\" \\ \/"}"#, r#"a="\"q\" \\ /""#),
            (r#"{"a":"C:\\x"}"#, r#"a="C:\\x""#),
            (r#"{"a":"\u0000\n\t\u007f"}"#, "a=\"\\u0000\\n\\t\u{7f}\""),
            (r#"{"a":"\u00e9ö"}"#, "a=éö"),
            (
                r#"{"a":{"b":1,"c":{"d":"x"}},"e":{},"f":{"g":[]}}"#,
                "a.b=1 a.c.d=x e={} f.g=[]",
            ),
            (r#"{"a":[1,"x"]}"#, r#"a="[1,\"x\"]""#),
            (
                r#"{"a b":1,"c=d":2,"\"":3,"":4,"x":{"":5},"\u0001":6}"#,
                "a_b=1 c_d=2 _=3 _=4 x._=5 _=6",
            ),
            (r#" { "a" : { "b" : [ 1 ] } } "#, r#"a.b="[ 1 ]""#),
        ] {
            let batch = testing::documents(&[document]);
            let mut out = Vec::new();
            BoundLogfmt::new(&batch).write(0, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), expected, "{document}");
        }
    }

    /// Reads a line as go-logfmt does (`decode.go`): pairs with what their values say.
    fn read(line: &str) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        let mut rest = line;
        while !rest.is_empty() {
            let (key, value) = rest.split_once('=').expect("a value");
            let is_bad = |letter: char| letter <= ' ' || letter == '"';
            assert!(!key.is_empty() && !key.contains(is_bad), "{line:?}");
            let (text, behind) = match value.starts_with('"') {
                true => {
                    let mut values = serde_json::Deserializer::from_str(value).into_iter();
                    let text: String = values.next().expect("a text").expect("a quoted text");
                    (text, &value[values.byte_offset()..])
                }
                false => {
                    let (text, behind) = value.split_at(value.find(' ').unwrap_or(value.len()));
                    let is_bad = |letter: char| letter <= ' ' || letter == '"' || letter == '=';
                    assert!(!text.is_empty() && !text.contains(is_bad), "{line:?}");
                    (text.to_owned(), behind)
                }
            };
            pairs.push((key.to_owned(), text));
            rest = match behind.strip_prefix(' ') {
                Some(more) => more,
                None => {
                    assert_eq!(behind, "", "{line:?}");
                    ""
                }
            };
        }
        pairs
    }

    /// The pairs that an event should give.
    fn pairs(prefix: &str, object: &serde_json::Map<String, Value>) -> Vec<(String, String)> {
        let mut pairs_of = Vec::new();
        for (key, value) in object {
            let is_bad = |letter: char| letter <= ' ' || matches!(letter, '=' | '"' | '\u{7f}');
            let mut key: String = match key.is_empty() {
                true => "_".into(),
                false => key.replace(is_bad, "_"),
            };
            key.insert_str(0, prefix);
            match value {
                Value::Object(members) if !members.is_empty() => {
                    pairs_of.extend(pairs(&format!("{key}."), members));
                }
                Value::String(text) => pairs_of.push((key, text.clone())),
                other => pairs_of.push((key, other.to_string())),
            }
        }
        pairs_of
    }

    fn text() -> impl Strategy<Value = String> {
        "(null|[a-c =\"\\\\\n\u{0}\u{1f}\u{7f}é\u{2028}\u{fffd}.]{0,6})"
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            text().prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::hash_map(text(), inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn a_reader_of_logfmt_reads_what_was_written(
            members in prop::collection::hash_map(text(), value(), 0..5),
        ) {
            let event: serde_json::Map<String, Value> = members.into_iter().collect();
            let batch = testing::documents(&[&Value::Object(event.clone()).to_string()]);
            let mut out = Vec::new();
            BoundLogfmt::new(&batch).write(0, &mut out);
            let line = String::from_utf8(out).expect("text");
            prop_assert_eq!(read(&line), pairs("", &event), "{}", line);
        }
    }
}
