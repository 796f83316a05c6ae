//! What a push request holds of each event: `["NANOSECONDS","LINE"]`, or with structured metadata `["NANOSECONDS","LINE",{…}]`.
//! Source: <https://grafana.com/docs/loki/latest/reference/loki-http-api/#ingest-logs>.

use std::io::{self, Write};
use std::sync::Arc;

use batch::{Batch, Bitmap, FieldRead, JsonWriter, json};
use bytes::Bytes;
use component::{Compression, Encoded, Framing};
use expr::{Absent, BoundTemplate, EventTimes, Template};
use flate2::write::GzEncoder;

use crate::members::Members;

/// What stands around the entries of a request before it is packed.
pub const FRAMING: Framing = Framing {
    before: b"[",
    between: b",",
    after: b"]",
};

/// The body of a request: these entries under the labels of their stream, which are written once a request.
///
/// # Errors
/// It cannot be compressed.
pub fn pack(labels: &str, entries: &[u8], compression: Compression) -> io::Result<Bytes> {
    let parts = [
        b"{\"streams\":[{\"stream\":".as_slice(),
        labels.as_bytes(),
        b",\"values\":",
        entries,
        b"}]}",
    ];
    let Compression::Gzip(level) = compression else {
        return Ok(parts.concat().into());
    };
    let room = Vec::with_capacity(entries.len() / 4);
    let mut encoder = GzEncoder::new(room, flate2::Compression::new(level));
    for part in parts {
        encoder.write_all(part)?;
    }
    Ok(encoder.finish()?.into())
}

/// How events are rendered.
#[derive(Debug)]
pub struct Entry {
    /// The text of the line; none for the whole event as JSON.
    pub text: Option<Template>,
    /// Structured metadata.
    pub metadata: Members,
}

enum BoundLine<'a> {
    Document(JsonWriter<'a>),
    Text(BoundTemplate<'a>),
}

impl Entry {
    /// The fields that its templates name.
    pub fn reads(&self) -> impl Iterator<Item = Arc<FieldRead>> {
        let text = self.text.iter().flat_map(Template::reads);
        text.chain(self.metadata.reads())
    }

    /// Appends rows, and says where each ends.
    pub fn write(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        encoded.ends.reserve(rows.count());
        let times = EventTimes::of(batch);
        let mut metadata = self.metadata.bind(batch);
        let mut bound = match &self.text {
            None => BoundLine::Document(JsonWriter::new(batch)),
            Some(text) => BoundLine::Text(text.bind(batch, Absent::Text(""))),
        };
        let mut line = Vec::new();
        for row in rows.iter() {
            line.clear();
            match &mut bound {
                BoundLine::Document(writer) => writer.write(row, &mut line),
                BoundLine::Text(template) => template.write(row, &mut line),
            }
            let out = &mut encoded.bytes;
            out.extend_from_slice(b"[\"");
            json::write_i64(out, times.nanos(row));
            out.extend_from_slice(b"\",");
            json::write_string(out, &line);
            if !self.metadata.is_empty() {
                metadata.write_object(b",", row, out);
            }
            out.push(b']');
            encoded.end_row(row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn entries_hold_time_line_and_metadata() {
        let node = config::parse_yaml(&config::Source::new("t.yaml", "{}")).expect("YAML");
        let mut metadata = Members::default();
        metadata
            .add(&node, &node, "trace", "%{t}")
            .expect("a template");
        let documents = [
            r#"{"@timestamp":"2024-02-29T23:59:59.25Z","m":"a\"b\n","t":"x"}"#,
            r#"{"m":"c"}"#,
        ];
        let batch = testing::documents(&documents);
        let shown = |entry: &Entry| {
            let mut encoded = Encoded::default();
            entry.write(&batch, batch.alive(), &mut encoded);
            let mut start = 0;
            let rows = encoded.ends.iter().map(|row| {
                let text = String::from_utf8_lossy(&encoded.bytes[start..row.end]).into_owned();
                start = row.end;
                text
            });
            rows.collect::<Vec<_>>()
        };
        let text = Entry {
            text: Some(Template::parse("%{m}").expect("a template")),
            metadata,
        };
        assert_eq!(
            shown(&text),
            [
                r#"["1709251199250000000","a\"b\n",{"trace":"x"}]"#,
                r#"["0","c"]"#
            ]
        );
        let whole = Entry {
            text: None,
            metadata: Members::default(),
        };
        let [first, second] = &shown(&whole)[..] else {
            panic!("two rows")
        };
        assert_eq!(second, r#"["0","{\"m\":\"c\"}"]"#);
        let entry: Vec<String> = serde_json::from_str(first).expect("JSON");
        assert_eq!(entry[1], documents[0]);
    }
}
