//! A codec, and a codec over the columns of one batch.

use std::sync::Arc;

use batch::{Batch, Bitmap, FieldRead, JsonWriter, MsgPackWriter};
use expr::{BoundTemplate, Template};

use super::compact::BoundCompact;
use super::csv::{BoundCsv, Csv};
use super::json;
use super::logfmt::BoundLogfmt;
use super::template::{ABSENT, escape_json};
use super::text::{BoundText, TextField};

/// How events are written.
#[derive(Debug, Clone)]
pub enum Codec {
    /// A JSON object.
    Json,
    /// `key=value` pairs.
    Logfmt,
    /// A line for people.
    Compact,
    /// A row of CSV.
    Csv(Csv),
    /// The text of a template.
    Template {
        /// Gives the text.
        template: Template,
        /// Whether what fields give is escaped as within a JSON string.
        escapes: bool,
    },
    /// The text of one field.
    Text(TextField),
    /// A MessagePack map.
    MsgPack,
}

impl Codec {
    /// The fields that it names.
    pub fn reads(&self) -> Vec<Arc<FieldRead>> {
        match self {
            Self::Json | Self::Logfmt | Self::Compact | Self::MsgPack => Vec::new(),
            Self::Csv(csv) => csv.reads().collect(),
            Self::Template { template, .. } => template.reads().collect(),
            Self::Text(field) => vec![field.read()],
        }
    }

    /// What stands at the beginning of a stream, with its end.
    pub fn header(&self) -> Option<&[u8]> {
        match self {
            Self::Csv(csv) => csv.header(),
            _ => None,
        }
    }

    /// The codec over the columns of one batch.
    pub fn bind<'a>(&'a self, batch: &'a Batch) -> BoundCodec<'a> {
        match self {
            Self::Json => BoundCodec::Json(JsonWriter::new(batch)),
            Self::Logfmt => BoundCodec::Logfmt(BoundLogfmt::new(batch)),
            Self::Compact => BoundCodec::Compact(BoundCompact::new(batch)),
            Self::Csv(csv) => BoundCodec::Csv(csv.bind(batch)),
            Self::Template { template, escapes } => BoundCodec::Template {
                template: template.bind(batch, ABSENT),
                escapes: *escapes,
            },
            Self::Text(field) => BoundCodec::Text(field.bind(batch)),
            Self::MsgPack => BoundCodec::MsgPack(MsgPackWriter::new(batch)),
        }
    }
}

/// A codec over the columns of one batch.
#[derive(Debug)]
pub enum BoundCodec<'a> {
    /// As [`Codec::Json`].
    Json(JsonWriter<'a>),
    /// As [`Codec::Logfmt`].
    Logfmt(BoundLogfmt<'a>),
    /// As [`Codec::Compact`].
    Compact(BoundCompact<'a>),
    /// As [`Codec::Csv`].
    Csv(BoundCsv),
    /// As [`Codec::Template`].
    Template {
        /// Gives the text.
        template: BoundTemplate<'a>,
        /// Whether what fields give is escaped as within a JSON string.
        escapes: bool,
    },
    /// As [`Codec::Text`].
    Text(BoundText<'a>),
    /// As [`Codec::MsgPack`].
    MsgPack(MsgPackWriter<'a>),
}

impl BoundCodec<'_> {
    /// Appends the event of a row, without its end.
    #[inline]
    pub fn write(&mut self, row: usize, out: &mut Vec<u8>) {
        match self {
            Self::Json(writer) => json::write_one(writer, row, out),
            Self::Logfmt(pairs) => pairs.write(row, out),
            Self::Compact(line) => line.write(row, out),
            Self::Csv(csv) => csv.write(row, out),
            Self::Template {
                template,
                escapes: false,
            } => template.write(row, out),
            Self::Template {
                template,
                escapes: true,
            } => template.write_with(row, out, escape_json),
            Self::Text(text) => text.write(row, out),
            Self::MsgPack(writer) => writer.write(row, out),
        }
    }

    /// What ends an event in a stream of them.
    #[inline]
    pub fn end(&self) -> &'static [u8] {
        match self {
            Self::MsgPack(_) => b"",
            _ => b"\n",
        }
    }

    /// Appends rows, each with its end; `ended` gets each row with the end of its bytes.
    pub fn write_rows(
        &mut self,
        rows: &Bitmap,
        out: &mut Vec<u8>,
        mut ended: impl FnMut(usize, usize),
    ) {
        if let Self::Json(writer) = self {
            return json::write_rows(writer, rows, out, ended);
        }
        for row in rows.iter() {
            self.write(row, out);
            out.extend_from_slice(self.end());
            ended(row, out.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use batch::FieldPath;

    use super::*;
    use crate::testing;

    fn render(codec: &Codec, batch: &Batch) -> String {
        let (mut out, mut ends) = (Vec::new(), Vec::new());
        let mut bound = codec.bind(batch);
        bound.write_rows(batch.alive(), &mut out, |_, end| ends.push(end));
        // Written one by one they are the same.
        let mut single = Vec::new();
        for (row, end) in ends.iter().enumerate() {
            bound.write(row, &mut single);
            single.extend_from_slice(bound.end());
            assert_eq!(single.len(), *end, "{codec:?}");
        }
        assert_eq!(single, out, "{codec:?}");
        out.into_iter().map(char::from).collect()
    }

    #[test]
    fn untouched_documents_leave_byte_identical() {
        let documents = [
            r#"{ "a" : 1.500, "b":"\u00e9" }"#,
            r#"{"big":123456789012345678901234567890}"#,
        ];
        let batch = testing::documents(&documents);
        assert_eq!(
            render(&Codec::Json, &batch),
            documents.map(|text| format!("{text}\n")).concat()
        );
    }

    #[test]
    fn an_event_is_one_line_whatever_its_document_looks_like() {
        let batch = testing::documents(&["{\"a\":\n1,\n\"b\":\"\\n\",\"c\":[\n]}", "{}"]);
        for (codec, expected) in [
            (Codec::Json, "{\"a\": 1, \"b\":\"\\n\",\"c\":[ ]}\n{}\n"),
            (Codec::Logfmt, "a=1 b=\"\\n\" c=\"[\\n]\"\n\n"),
            (Codec::Compact, "a=1 b=\"\\n\" c=\"[\\n]\"\n\n"),
            (
                Codec::Text(TextField::default()),
                "{\"a\": 1, \"b\":\"\\n\",\"c\":[ ]}\n{}\n",
            ),
        ] {
            assert_eq!(render(&codec, &batch), expected, "{codec:?}");
        }
    }

    #[test]
    fn every_codec_renders() {
        let batch = testing::documents(&[r#"{"a":1,"message":"m\n"}"#, r#"{"a":"x"}"#]);
        let template = |escapes| Codec::Template {
            template: Template::parse("a=%{a} %{message}").expect("a template"),
            escapes,
        };
        let path = FieldPath::from_keys(["a"]);
        for (codec, expected) in [
            (
                Codec::Json,
                "{\"a\":1,\"message\":\"m\\n\"}\n{\"a\":\"x\"}\n",
            ),
            (Codec::Logfmt, "a=1 message=\"m\\n\"\na=x\n"),
            (template(false), "a=1 m\n\na=x -\n"),
            (template(true), "a=1 m\\n\na=x -\n"),
            (Codec::Text(TextField::default()), "m\n\n{\"a\":\"x\"}\n"),
            (Codec::Text(TextField::named(path.clone())), "1\nx\n"),
            (Codec::Csv(Csv::new(b',', vec![path], true)), "1\nx\n"),
            (
                Codec::MsgPack,
                "\u{82}\u{a1}a\u{1}\u{a7}message\u{a2}m\n\u{81}\u{a1}a\u{a1}x",
            ),
        ] {
            assert_eq!(render(&codec, &batch), expected, "{codec:?}");
        }
    }
}
