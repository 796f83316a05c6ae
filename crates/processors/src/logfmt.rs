//! `logfmt`: makes fields of the pairs of a logfmt line.
//!
//! There is no specification. This follows the decoder of go-logfmt (<https://github.com/go-logfmt/logfmt>, `decode.go`), except
//! that `=` and quotes within an unquoted value are text, which that decoder refuses, and that a bare key is `true`, as in Vector.
//! `kv` has other rules (backslashes, words, blanks around `=`), so that the two share only what makes columns of
//! pairs ([`crate::keyed`], which states the limits). Values are views into the text; only those with escapes are copied.

use std::sync::Arc;

use batch::{Batch, Bitmap, Edit, Failures, FieldPath, FieldRead, json};
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Node, Positional};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::keyed::{Keyed, ValueLocation};
use crate::names::{field, target};
use crate::text::Texts;

const FAILURE_TAG: &str = "_logfmtparsefailure";

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "logfmt",
    aliases: &[],
    summary: "Parses the pairs of a logfmt line into fields.",
    description: "Parses texts such as `level=info msg=\"user logged in\" cached`, by the rules of [go-logfmt](https://github.com/go-logfmt/logfmt), which many programs write logs with. Blanks and control \
                  characters separate pairs. Values are strings: up to the next blank, in double quotes with the escapes of JSON (`\\\"`, `\\n`, `\\u00e9`) and those of Go (`\\x1b`, `\\033`, `\\a`, `\\v`, `\\'`, `\\U0001f600`), or in single \
                  quotes without escapes. Bytes given by `\\x` and octal escapes that are not UTF-8 become U+FFFD. `key=` gives an empty string, and a key without `=` is `true`, unless `allow_bare_keys: false` leaves it out. `=` and quotes within an unquoted value belong to it, so that \
                  `url=/a?b=c` is one pair; go-logfmt itself refuses these.\n\n\
                  Keys become fields as they are, dots included: the field `a.b` of `a.b=1` is found by that name. A key that occurs twice gives a list. Existing fields are replaced in their place; new ones follow in alphabetical order, capitals first, so that lines with the same pairs give the same object.\n\n\
                  The event fails with `_logfmtparsefailure` and keeps its fields if a quote is not closed, an escape is invalid, a pair has no key, a key holds a quote, or `target` or something above it is not an object. If the field is absent or null, nothing \
                  happens.\n\n\
                  For other separators, and for pairs among other text, use `kv`. The first 128 distinct keys of a batch are processed in columns; events with further keys take several times as long.",
    positional: Positional::fields(&["field"]),
    one_line: &[],
    examples: &[
        Example {
            title: "A line of a program in Go",
            stage: "logfmt line",
            input: r#"{"line":"level=info msg=\"cannot read \\\"a b\\\"\" took=1.5ms err= cached"}"#,
            output: r#"{"line":"level=info msg=\"cannot read \\\"a b\\\"\" took=1.5ms err= cached","cached":true,"err":"","level":"info","msg":"cannot read \"a b\"","took":"1.5ms"}"#,
        },
        Example {
            title: "Below a field of their own, without words",
            stage: "logfmt line target=app allow_bare_keys=false",
            input: r#"{"line":"starting user=ann role=a role=b"}"#,
            output: r#"{"line":"starting user=ann role=a role=b","app":{"role":["a","b"],"user":"ann"}}"#,
        },
        Example {
            title: "Text that is not logfmt",
            stage: "logfmt line",
            input: r#"{"line":"level=info msg=\"user logged"}"#,
            output: r#"{"line":"level=info msg=\"user logged","tags":["_logfmtparsefailure"],"error":{"message":"line: the quote at byte 15 is not closed"}}"#,
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Stateless,
        sees_sealed: false,
        build,
    },
};

/// Settings of `logfmt`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// The field to parse.
    field: String,
    /// The field that gets the pairs. Default: none; they become fields of the event.
    target: Option<String>,
    /// Whether a key without `=` gives a field that is `true`. If not, it is left out.
    allow_bare_keys: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            field: "message".into(),
            target: None,
            allow_bare_keys: true,
        }
    }
}

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = parse(node)?;
    Ok(Box::new(Logfmt {
        source: field(node, "field", &config.field)?,
        target: target(node, config.target.as_deref())?,
        allow_bare_keys: config.allow_bare_keys,
        tag: context.tag_or(FAILURE_TAG),
    }))
}

#[derive(Clone)]
struct Logfmt {
    source: FieldPath,
    target: Option<FieldPath>,
    allow_bare_keys: bool,
    tag: Arc<str>,
}

impl Processor for Logfmt {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let texts = Texts::of(batch, &self.source, rows);
        let name = |key: &[u8]| Some(String::from_utf8_lossy(key).into_owned());
        let mut fields = Keyed::new(batch.len(), &texts, name);
        let mut failures = Failures::none();
        for row in rows.iter() {
            let Some((span, text)) = texts.get(row) else {
                continue;
            };
            match self.add_pairs(text, &mut fields) {
                Ok(()) => fields.end_row(row, span, text, false),
                Err(problem) => {
                    fields.forget_row();
                    let reason = format!("{}: {problem}", self.source);
                    failures.push(row, &self.tag, &reason.into());
                }
            }
        }
        let mut edit = Edit::new();
        fields.finish(self.target.as_ref(), &mut edit);
        if !edit.is_empty() {
            failures.extend_refused(batch.apply(edit), &self.tag);
        }
        failures
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        vec![Arc::new(FieldRead::always(self.source.clone()))]
    }
}

impl Logfmt {
    #[inline]
    fn add_pairs<N: Fn(&[u8]) -> Option<String>>(
        &self,
        text: &[u8],
        fields: &mut Keyed<'_, N>,
    ) -> Result<(), Problem> {
        let mut pos = 0;
        while let Some((pair, next)) = next_pair(text, pos)? {
            pos = next;
            let value = match pair.value {
                PairValue::Bare if !self.allow_bare_keys => continue,
                PairValue::Bare => {
                    let start = fields.changed.len();
                    fields.changed.extend_from_slice(b"true");
                    ValueLocation::Json(start, fields.changed.len())
                }
                PairValue::Text(start, end) => ValueLocation::Text(start, end),
                PairValue::Escaped(start, end) => {
                    let from = fields.changed.len();
                    json::unescape(&text[start..end], &mut fields.changed);
                    ValueLocation::Changed(from, fields.changed.len())
                }
                PairValue::GoEscaped(start, end) => {
                    let from = fields.changed.len();
                    let value = go_unescape(&text[start..end]);
                    let value = value.ok_or(Problem::Escape(start - 1))?;
                    fields.changed.extend_from_slice(value.as_bytes());
                    ValueLocation::Changed(from, fields.changed.len())
                }
            };
            fields.add(text, pair.key, value);
        }
        Ok(())
    }
}

/// A pair: where its key stands in the text, and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LogfmtPair {
    key: (usize, usize),
    value: PairValue,
}

/// Where the value of a pair stands in the text, without its quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PairValue {
    /// Nowhere: the key has no `=`.
    Bare,
    Text(usize, usize),
    /// With escapes, which are valid in JSON.
    Escaped(usize, usize),
    /// With escapes, some of which JSON does not have.
    GoEscaped(usize, usize),
}

/// Why a text is not logfmt, and where, in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Problem {
    #[error("there is no key before the `=` at byte {0}")]
    NoKey(usize),
    #[error("there is a quote in a key at byte {0}")]
    QuoteInKey(usize),
    #[error("the quote at byte {0} is not closed")]
    OpenQuote(usize),
    #[error("the quoted value at byte {0} has an escape that neither JSON nor Go has")]
    Escape(usize),
}

/// The first pair at or after `pos`, and where to go on.
#[inline]
fn next_pair(text: &[u8], pos: usize) -> Result<Option<(LogfmtPair, usize)>, Problem> {
    let start = find(text, pos, |byte| byte > b' ');
    if start == text.len() {
        return Ok(None);
    }
    let end = find(text, start, |byte| {
        byte <= b' ' || matches!(byte, b'=' | b'"' | b'\'')
    });
    let key = (start, end);
    match text.get(end) {
        Some(b'=') if start == end => Err(Problem::NoKey(start)),
        Some(b'=') => {
            let (value, next) = value_at(text, end + 1)?;
            Ok(Some((LogfmtPair { key, value }, next)))
        }
        Some(b'"' | b'\'') => Err(Problem::QuoteInKey(end)),
        _ => {
            let value = PairValue::Bare;
            Ok(Some((LogfmtPair { key, value }, end)))
        }
    }
}

/// The value that begins at `pos`, and where to go on.
#[inline]
fn value_at(text: &[u8], pos: usize) -> Result<(PairValue, usize), Problem> {
    match text.get(pos) {
        Some(b'"') => quoted_at(text, pos),
        Some(b'\'') => {
            let start = pos + 1;
            let len = memchr::memchr(b'\'', &text[start..]).ok_or(Problem::OpenQuote(pos))?;
            Ok((PairValue::Text(start, start + len), start + len + 1))
        }
        _ => {
            let end = find(text, pos, |byte| byte <= b' ');
            Ok((PairValue::Text(pos, end), end))
        }
    }
}

/// The value in double quotes at `pos`, and where to go on.
fn quoted_at(text: &[u8], pos: usize) -> Result<(PairValue, usize), Problem> {
    let start = pos + 1;
    let mut end = start;
    let mut has_escapes = false;
    loop {
        let rest = text.get(end..).unwrap_or_default();
        end += memchr::memchr2(b'"', b'\\', rest).ok_or(Problem::OpenQuote(pos))?;
        if text[end] == b'"' {
            break;
        }
        has_escapes = true;
        end += 2;
    }
    if !has_escapes {
        return Ok((PairValue::Text(start, end), end + 1));
    }
    match json::validate(&text[pos..=end]) {
        Ok(_) => Ok((PairValue::Escaped(start, end), end + 1)),
        Err(_) => Ok((PairValue::GoEscaped(start, end), end + 1)),
    }
}

/// The text that the body of a string with escapes of Go (<https://go.dev/ref/spec#Rune_literals>) or JSON stands for; none where
/// an escape is neither.
fn go_unescape(body: &[u8]) -> Option<String> {
    let number = |digits: &[u8], radix| {
        let value = |value, digit: &u8| Some(value * radix + char::from(*digit).to_digit(radix)?);
        digits.iter().try_fold(0_u32, value)
    };
    let mut out = Vec::with_capacity(body.len());
    let mut rest = body;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        let letter = *rest.get(1)?;
        let mut len = 2;
        match letter {
            b'a' => out.push(0x07),
            b'v' => out.push(0x0b),
            b'\'' => out.push(b'\''),
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {
                json::unescape(&rest[..len], &mut out);
            }
            b'x' => {
                len = 4;
                out.push(u8::try_from(number(rest.get(2..len)?, 16)?).ok()?);
            }
            b'0'..=b'7' => {
                len = 4;
                out.push(u8::try_from(number(rest.get(1..len)?, 8)?).ok()?);
            }
            b'u' => {
                let code = number(rest.get(2..6)?, 16)?;
                let has_pair = (0xd800..0xdc00).contains(&code)
                    && rest[6..].starts_with(b"\\u")
                    && rest.get(8..12).is_some_and(|low| number(low, 16).is_some());
                len = if has_pair { 12 } else { 6 };
                json::unescape(&rest[..len], &mut out);
            }
            b'U' => {
                len = 10;
                let character = char::from_u32(number(rest.get(2..len)?, 16)?)?;
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            _ => return None,
        }
        rest = &rest[len..];
    }
    out.extend_from_slice(rest);
    Some(String::from_utf8_lossy(&out).into_owned())
}

/// The first byte at or after `pos` that is wanted, or the end of the text.
#[inline]
fn find(text: &[u8], pos: usize, is_wanted: impl Fn(u8) -> bool) -> usize {
    let mut rest = text[pos..].iter();
    let found = rest.position(|byte| is_wanted(*byte));
    found.map_or(text.len(), |found| pos + found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{batch_of, build, check, check_errors, lines_of, process};
    use proptest::prelude::*;

    #[test]
    fn pairs_become_fields() {
        for (stage, text, fields) in [
            ("", "a=1 b=2", r#""a":"1","b":"2""#),
            ("", "  a=1\tb=2\n", r#""a":"1","b":"2""#),
            ("", "a b=", r#""a":true,"b":"""#),
            ("", "a= b", r#""a":"","b":true"#),
            ("", r#"a="" b="x y""#, r#""a":"","b":"x y""#),
            (
                "",
                r#"a="\"\\\n\té" b='x\ "y"'"#,
                r#""a":"\"\\\n\té","b":"x\\ \"y\"""#,
            ),
            ("", r#"a="\ud83d\ude00""#, r#""a":"😀""#),
            (
                "",
                r#"a="\x1b[31m\033\a\v\'\"\/\U0001f600\u00e9\ud83d\ude00\t""#,
                "\"a\":\"\\u001b[31m\\u001b\\u0007\\u000b'\\\"/😀é😀\\t\"",
            ),
            (
                "",
                r#"a="\xc3\xa9 \xff\ud83d""#,
                "\"a\":\"é \u{fffd}\u{fffd}\"",
            ),
            ("", "a=\"tab\there\"", r#""a":"tab\there""#),
            ("", r#"a="x"b=1"#, r#""a":"x","b":"1""#),
            (
                "",
                r#"url=/p?q=1 say=it's w=5""#,
                r#""say":"it's","url":"/p?q=1","w":"5\"""#,
            ),
            ("", "é=ü ü", r#""é":"ü","ü":true"#),
            ("", "a a=1 a=\"\\t\"", r#""a":[true,"1","\t"]"#),
            ("", "a=null b=1.50", r#""a":"null","b":"1.50""#),
            ("allow_bare_keys=false", "some words a=1", r#""a":"1""#),
            ("target=t.u", "a=1 b", r#""t":{"u":{"a":"1","b":true}}"#),
            ("", "", ""),
            ("", " \n", ""),
        ] {
            let event = serde_json::json!({ "line": text }).to_string();
            let comma = if fields.is_empty() { "" } else { "," };
            let expected = format!("{}{comma}{fields}}}", &event[..event.len() - 1]);
            check(
                &SPEC,
                &[(&format!("logfmt line {stage}"), &event, &expected)],
            );
        }
        check(
            &SPEC,
            &[
                ("logfmt a", r#"{"a":null}"#, r#"{"a":null}"#),
                ("logfmt a", r#"{"b":1}"#, r#"{"b":1}"#),
                (
                    "logfmt a",
                    r#"{"a":"a=1 b=2","b":{}}"#,
                    r#"{"a":"1","b":"2"}"#,
                ),
            ],
        );
    }

    #[test]
    fn dotted_keys_are_found_afterwards() {
        let mut batch = batch_of([r#"{"a":"x.y=5"}"#]);
        process(build(&SPEC, "logfmt a").unwrap().as_mut(), &mut batch);
        assert_eq!(lines_of(&batch), [r#"{"a":"x.y=5","x.y":"5"}"#]);
        let column = batch.column(&FieldPath::parse("x.y").unwrap());
        assert_eq!(column.value(0), batch::Value::Text(b"5"));
    }

    #[test]
    fn failures_say_what_is_wrong_and_change_nothing() {
        for (stage, text, reason) in [
            (
                "",
                "a=1 =2",
                "line: there is no key before the `=` at byte 4",
            ),
            ("", "a=1 b\"=2", "line: there is a quote in a key at byte 5"),
            ("", "\"text\"", "line: there is a quote in a key at byte 0"),
            ("", "it's", "line: there is a quote in a key at byte 2"),
            ("", "a=\"x", "line: the quote at byte 2 is not closed"),
            ("", "a=\"x\\", "line: the quote at byte 2 is not closed"),
            ("", "a=\"x\\\"", "line: the quote at byte 2 is not closed"),
            ("", "a='x", "line: the quote at byte 2 is not closed"),
            (
                "",
                r#"a="\x""#,
                "line: the quoted value at byte 2 has an escape that neither JSON nor Go has",
            ),
            (
                "",
                r#"a="\x1b" b="\xg0""#,
                "line: the quoted value at byte 11 has an escape that neither JSON nor Go has",
            ),
            (
                "",
                r#"a="\U00110000""#,
                "line: the quoted value at byte 2 has an escape that neither JSON nor Go has",
            ),
            (
                "",
                r#"a="\400""#,
                "line: the quoted value at byte 2 has an escape that neither JSON nor Go has",
            ),
            (
                "target=line",
                "a=1",
                "cannot write line.a: there is a value above it that is not an object",
            ),
        ] {
            let event = serde_json::json!({ "a": "old", "line": text }).to_string();
            let mut batch = batch_of([r#"{"line":"   "}"#, &event]);
            let mut processor = build(&SPEC, &format!("logfmt line {stage}")).expect(stage);
            let rows = batch.alive().clone();
            let failures = processor.process(&mut batch, &rows);
            let last = failures.rows().last().expect(text);
            assert_eq!(
                (last.row, &*last.tag, &*last.reason),
                (1, FAILURE_TAG, reason),
                "{text}"
            );
            assert_eq!(lines_of(&batch)[1], event, "{text}");
        }
    }

    #[test]
    fn bad_settings_are_refused() {
        check_errors(
            &SPEC,
            &[
                ("logfmt a..b", "`a..b` is not a field name"),
                ("logfmt a allow_bare_keys=1", "expected true or false"),
                ("logfmt a field_split=,", "field_split"),
            ],
        );
    }

    proptest! {
        #[test]
        fn it_ends_on_any_text(text in "[ab=\"' \\\\é\n]{0,40}") {
            let mut pos = 0;
            while let Ok(Some((_, next))) = next_pair(text.as_bytes(), pos) {
                prop_assert!(next > pos);
                pos = next;
            }
        }

        #[test]
        fn written_pairs_come_back(pairs in prop::collection::btree_map("[a-z.é]{1,6}", "[a-z =é,\"'\\\\\n]{0,8}", 0..8)) {
            let texts = pairs.iter().map(|(key, value)| format!("{key}={}", serde_json::json!(value)));
            let text = texts.collect::<Vec<_>>().join(" ");
            let mut batch = batch_of([&*serde_json::json!({ "0": text }).to_string()]);
            process(build(&SPEC, "logfmt 0 target=t").unwrap().as_mut(), &mut batch);
            let event: serde_json::Value = serde_json::from_str(&lines_of(&batch)[0]).unwrap();
            let expected = if pairs.is_empty() { serde_json::Value::Null } else { serde_json::json!(pairs) };
            prop_assert_eq!(&event["t"], &expected);
        }
    }
}
