//! Rows of a batch as bytes, in the format that an output's settings ask for.
//!
//! Invariant: with `json`, every event is one line. Newlines that a JSON document holds between its tokens become spaces.

use std::sync::Arc;

use batch::{Batch, Bitmap, FieldRead, JsonWriter, MsgPackWriter};
use config::{ConfigError, Node};
use expr::{Absent, BoundTemplate, Template, zone_setting};

use crate::pretty::Pretty;

/// What an absent field gives in the texts of outputs.
pub const ABSENT: Absent = Absent::Text("-");

/// The format of events.
#[derive(Debug, Clone)]
pub enum Format {
    /// One JSON object per line.
    Json,
    /// JSON for people.
    Pretty(Pretty),
    /// One dot per event.
    Dots,
    /// A text a line.
    Line(Template),
    /// MessagePack maps, one after the other.
    MsgPack,
}

impl Format {
    /// The fields that it names.
    pub fn reads(&self) -> impl Iterator<Item = Arc<FieldRead>> {
        let template = match self {
            Self::Line(template) => Some(template),
            Self::Json | Self::Pretty(_) | Self::Dots | Self::MsgPack => None,
        };
        template.into_iter().flat_map(Template::reads)
    }
}

/// The template in a setting of an output, `at`, with times in the zone of the output's setting `timezone`.
///
/// # Errors
/// What is wrong with one of the two, with its place.
pub fn template(output: &Node, at: &Node, text: &str) -> Result<Template, ConfigError> {
    let zone = zone_setting(output)?;
    let template = Template::parse(text).map_err(|error| error.in_setting(at))?;
    if let Some(format) = time_without_plus(text) {
        let error = at.error(format!(
            "`%{{{format}}}` stands for a field of that name; did you mean `%{{+{format}}}`?"
        ));
        return Err(error.note("the time of an event is written with a `+`"));
    }
    Ok(template.in_zone(zone))
}

/// What stands between braces as a field's name and reads as the format of a time: the letters of dates, in groups that only such
/// formats have.
fn time_without_plus(text: &str) -> Option<&str> {
    let names = text.split("%{").skip(1);
    let mut names = names.filter_map(|rest| rest.split_once('}').map(|(name, _)| name));
    names.find(|name| {
        if name.starts_with('+') {
            return false;
        }
        let words = name.split(|letter: char| !letter.is_ascii_alphanumeric());
        let mut words = words.filter(|word| !word.is_empty()).peekable();
        let is_part = |word: &str| {
            let parts = [
                "yyyy", "yy", "MM", "MMM", "dd", "HH", "mm", "ss", "xxxx", "ww",
            ];
            parts.contains(&word) || ["yyyyMMdd", "yyyyMM", "HHmmss", "HHmm"].contains(&word)
        };
        words
            .peek()
            .is_some_and(|first| first.starts_with("yyyy") || *first == "xxxx")
            && words.all(is_part)
    })
}

/// A format over the columns of one batch.
pub enum BoundFormat<'a> {
    /// As [`Format::Json`].
    Json(JsonWriter<'a>),
    /// As [`Format::Pretty`], with a buffer for one event.
    Pretty(Pretty, JsonWriter<'a>, Vec<u8>),
    /// As [`Format::Dots`].
    Dots,
    /// As [`Format::Line`].
    Line(BoundTemplate<'a>),
    /// As [`Format::MsgPack`].
    MsgPack(MsgPackWriter<'a>),
}

impl Format {
    /// Lines of the text in the setting `template` of `node`; of `%{message}` where it is not set.
    ///
    /// # Errors
    /// What is wrong with the template, with its place in the configuration.
    pub fn line(node: &Node, template: Option<&str>) -> Result<Self, ConfigError> {
        let text = template.unwrap_or("%{message}");
        self::template(node, node.nearest("template"), text).map(Self::Line)
    }

    /// The format over the columns of one batch.
    pub fn bind<'a>(&'a self, batch: &'a Batch) -> BoundFormat<'a> {
        match self {
            Self::Json => BoundFormat::Json(JsonWriter::new(batch)),
            Self::Pretty(pretty) => {
                BoundFormat::Pretty(*pretty, JsonWriter::new(batch), Vec::new())
            }
            Self::Dots => BoundFormat::Dots,
            Self::Line(template) => BoundFormat::Line(template.bind(batch, ABSENT)),
            Self::MsgPack => BoundFormat::MsgPack(MsgPackWriter::new(batch)),
        }
    }
}

impl BoundFormat<'_> {
    /// Appends rows, each with what ends it.
    pub fn write(&mut self, rows: &Bitmap, out: &mut Vec<u8>) {
        match self {
            Self::Json(writer) => write_json(writer, rows, out, |_, _| {}),
            Self::Pretty(pretty, writer, event) => {
                for row in rows.iter() {
                    event.clear();
                    writer.write(row, event);
                    pretty.write(event, out);
                    out.push(b'\n');
                }
            }
            Self::Dots => out.resize(out.len() + rows.count(), b'.'),
            Self::Line(template) => {
                for row in rows.iter() {
                    template.write(row, out);
                    out.push(b'\n');
                }
            }
            Self::MsgPack(writer) => rows.iter().for_each(|row| writer.write(row, out)),
        }
    }
}

/// Appends rows as JSON, a line each; `ended` gets each row with the end of its bytes.
pub fn write_json(
    writer: &JsonWriter<'_>,
    rows: &Bitmap,
    out: &mut Vec<u8>,
    mut ended: impl FnMut(usize, usize),
) {
    let start = out.len();
    for row in rows.iter() {
        writer.write(row, out);
        out.push(b'\n');
        ended(row, out.len());
    }
    // Counting newlines is far cheaper than looking for them in every event, and nearly always the answer is one each.
    if memchr::memchr_iter(b'\n', &out[start..]).count() == rows.count() {
        return;
    }
    out.truncate(start);
    for row in rows.iter() {
        let start = out.len();
        writer.write(row, out);
        for byte in &mut out[start..] {
            // Strings hold their newlines escaped, so that these stand between tokens.
            if *byte == b'\n' {
                *byte = b' ';
            }
        }
        out.push(b'\n');
    }
}

/// Escapes a text, from `start` on, as within a JSON string.
pub fn escape_json(out: &mut Vec<u8>, start: usize) {
    let needs_it = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
    if !out[start..].iter().any(needs_it) {
        return;
    }
    let text = String::from_utf8_lossy(&out[start..]).into_owned();
    if let Ok(quoted) = serde_json::to_string(&text) {
        out.truncate(start);
        out.extend_from_slice(&quoted.as_bytes()[1..quoted.len() - 1]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn render(format: &Format, batch: &Batch) -> String {
        let mut out = Vec::new();
        format.bind(batch).write(batch.alive(), &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn untouched_documents_leave_byte_identical() {
        let documents = [
            r#"{ "a" : 1.500, "b":"\u00e9" }"#,
            r#"{"big":123456789012345678901234567890}"#,
        ];
        let batch = testing::documents(&documents);
        assert_eq!(
            render(&Format::Json, &batch),
            documents.map(|text| format!("{text}\n")).concat()
        );
    }

    #[test]
    fn an_event_is_one_line_whatever_its_document_looks_like() {
        let batch = testing::documents(&["{\"a\":\n1,\n\"b\":\"\\n\"}", "{}"]);
        assert_eq!(
            render(&Format::Json, &batch),
            "{\"a\": 1, \"b\":\"\\n\"}\n{}\n"
        );
    }

    #[test]
    fn every_format_renders() {
        let batch = testing::documents(&[r#"{"a":1}"#, r#"{"a":"x"}"#]);
        let line = Format::Line(Template::parse("a=%{a}").expect("a template"));
        for (format, expected) in [
            (Format::Json, "{\"a\":1}\n{\"a\":\"x\"}\n"),
            (
                Format::Pretty(Pretty { colours: false }),
                "{\"a\": 1}\n{\"a\": \"x\"}\n",
            ),
            (Format::Dots, ".."),
            (line, "a=1\na=x\n"),
        ] {
            assert_eq!(render(&format, &batch), expected, "{format:?}");
        }
        let mut packed = Vec::new();
        Format::MsgPack
            .bind(&batch)
            .write(batch.alive(), &mut packed);
        assert_eq!(packed, b"\x81\xa1a\x01\x81\xa1a\xa1x");
    }
}
