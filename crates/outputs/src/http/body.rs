//! What a request's body holds of each event.

use std::sync::Arc;

use batch::{Batch, Bitmap, FieldRead, JsonWriter};
use component::{Encoded, Framing};
use expr::Template;

use crate::format::{ABSENT, escape_json, write_json};

/// How events stand in a body.
#[derive(Debug)]
pub enum Rendering {
    /// One JSON object per line.
    Lines,
    /// JSON objects, between which the framing puts what separates them.
    Documents,
    /// The text of a template.
    Text {
        /// Gives the text.
        template: Template,
        /// Whether what fields give is escaped as within a JSON string.
        escapes: bool,
        /// Whether a newline ends each.
        is_line: bool,
    },
}

/// A JSON array of the documents in a body.
pub const ARRAY: Framing = Framing {
    before: b"[",
    between: b",",
    after: b"]",
};

impl Rendering {
    /// The fields that it names.
    pub fn reads(&self) -> impl Iterator<Item = Arc<FieldRead>> {
        let template = match self {
            Self::Text { template, .. } => Some(template),
            Self::Lines | Self::Documents => None,
        };
        template.into_iter().flat_map(Template::reads)
    }

    /// Appends rows, and says where each ends.
    pub fn write(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        encoded.ends.reserve(rows.count());
        match self {
            Self::Lines => {
                let Encoded { bytes, ends, .. } = encoded;
                let writer = JsonWriter::new(batch);
                write_json(&writer, rows, bytes, |row, end| {
                    let row = row as u32;
                    ends.push(component::RowEnd { row, end });
                });
                encoded.rows += rows.count();
            }
            Self::Documents => {
                let writer = JsonWriter::new(batch);
                for row in rows.iter() {
                    writer.write(row, &mut encoded.bytes);
                    encoded.end_row(row);
                }
            }
            Self::Text {
                template,
                escapes,
                is_line,
            } => {
                let mut bound = template.bind(batch, ABSENT);
                for row in rows.iter() {
                    match escapes {
                        true => bound.write_with(row, &mut encoded.bytes, escape_json),
                        false => bound.write(row, &mut encoded.bytes),
                    }
                    if *is_line {
                        encoded.bytes.push(b'\n');
                    }
                    encoded.end_row(row);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn render(rendering: &Rendering, documents: &[&str]) -> Vec<String> {
        let batch = testing::documents(documents);
        let mut encoded = Encoded::default();
        rendering.write(&batch, batch.alive(), &mut encoded);
        assert_eq!(encoded.rows, documents.len());
        let starts = std::iter::once(0).chain(encoded.ends.iter().map(|row| row.end));
        let texts = starts.zip(&encoded.ends);
        let texts = texts.map(|(start, row)| &encoded.bytes[start..row.end]);
        texts
            .map(|text| String::from_utf8(text.to_vec()).expect("text"))
            .collect()
    }

    fn text(template: &str, escapes: bool, is_line: bool) -> Rendering {
        Rendering::Text {
            template: Template::parse(template).expect("a template"),
            escapes,
            is_line,
        }
    }

    #[test]
    fn every_event_ends_where_it_says() {
        let documents = [r#"{"a":1.50}"#, "{\"a\":\n\"x\\\"\\ny\"}"];
        for (rendering, expected) in [
            (
                Rendering::Lines,
                ["{\"a\":1.50}\n", "{\"a\": \"x\\\"\\ny\"}\n"],
            ),
            (
                Rendering::Documents,
                ["{\"a\":1.50}", "{\"a\":\n\"x\\\"\\ny\"}"],
            ),
            (text("a=%{a}", false, true), ["a=1.50\n", "a=x\"\ny\n"]),
            (
                text(r#"{"a":"%{a}","b":"%{b}"}"#, true, false),
                [r#"{"a":"1.50","b":"-"}"#, r#"{"a":"x\"\ny","b":"-"}"#],
            ),
        ] {
            assert_eq!(render(&rendering, &documents), expected, "{rendering:?}");
        }
    }
}
