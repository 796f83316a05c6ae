//! What a request to the HTTP Event Collector holds of each event.
//!
//! For `/services/collector/event` an event is an envelope: `{"time":…,"host":…,"source":…,"sourcetype":…,"index":…,"fields":{…},"event":…}`,
//! one after the other. For `/services/collector/raw` it is a line of text.
//! Source: <https://docs.splunk.com/Documentation/Splunk/latest/Data/FormateventsforHTTPEventCollector>.

use std::sync::Arc;

use batch::{Batch, Bitmap, FieldRead, JsonWriter, json};
use component::{Encoded, RowAnswer};
use expr::{Absent, BoundTemplate, EventTimes, Template};

use crate::members::Members;
use crate::times::write_seconds;

/// How events are rendered.
#[derive(Debug)]
pub enum Rendering {
    /// As envelopes.
    Envelope(Envelope),
    /// As lines of text.
    Raw(Template),
}

/// An event with what Splunk stores beside it.
#[derive(Debug)]
pub struct Envelope {
    /// `host`, `source`, `sourcetype` and `index`.
    pub metadata: Members,
    /// Indexed fields.
    pub fields: Members,
    /// The text of the event; none for the whole event as JSON.
    pub text: Option<Template>,
}

impl Rendering {
    /// The fields that its templates name.
    pub fn reads(&self) -> Vec<Arc<FieldRead>> {
        match self {
            Self::Raw(template) => template.reads().collect(),
            Self::Envelope(envelope) => {
                let text = envelope.text.iter().flat_map(Template::reads);
                let members = envelope.metadata.reads().chain(envelope.fields.reads());
                members.chain(text).collect()
            }
        }
    }

    /// Appends rows, and says where each ends. A text that is empty is refused: Splunk accepts no blank event.
    pub fn write(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        encoded.ends.reserve(rows.count());
        match self {
            Self::Envelope(envelope) => envelope.write(batch, rows, encoded),
            Self::Raw(template) => {
                let mut text = template.bind(batch, Absent::Text(""));
                for row in rows.iter() {
                    let start = encoded.bytes.len();
                    text.write(row, &mut encoded.bytes);
                    end_row(encoded, row, start, start, b"\n");
                }
            }
        }
    }
}

impl Envelope {
    fn write(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        let times = EventTimes::of(batch);
        let mut metadata = self.metadata.bind(batch);
        let mut fields = self.fields.bind(batch);
        let mut event = match &self.text {
            None => BoundEvent::Document(JsonWriter::new(batch)),
            Some(text) => BoundEvent::Text(text.bind(batch, Absent::Text("")), Vec::new()),
        };
        for row in rows.iter() {
            let out = &mut encoded.bytes;
            let start = out.len();
            out.extend_from_slice(b"{\"time\":");
            write_seconds(times.nanos(row), out);
            metadata.write(row, out);
            if !self.fields.is_empty() {
                fields.write_object(b",\"fields\":", row, out);
            }
            out.extend_from_slice(b",\"event\":");
            match &mut event {
                BoundEvent::Document(writer) => {
                    writer.write(row, out);
                    out.extend_from_slice(b"}\n");
                    encoded.end_row(row);
                }
                BoundEvent::Text(template, text) => {
                    text.clear();
                    template.write(row, text);
                    out.push(b'"');
                    let value = out.len();
                    json::write_string_body(out, text);
                    end_row(encoded, row, start, value, b"\"}\n");
                }
            }
        }
    }
}

enum BoundEvent<'a> {
    Document(JsonWriter<'a>),
    /// With a buffer for one event.
    Text(BoundTemplate<'a>, Vec<u8>),
}

/// Ends a row that began at `start`, and whose text begins at `value`, unless the text is blank.
fn end_row(encoded: &mut Encoded, row: usize, start: usize, value: usize, after: &[u8]) {
    if encoded.bytes[value..].trim_ascii().is_empty() {
        encoded.bytes.truncate(start);
        let reason = "the text of the event is empty, which Splunk does not accept".into();
        return encoded.refused.push(RowAnswer { row, reason });
    }
    encoded.bytes.extend_from_slice(after);
    encoded.end_row(row);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn members(named: &[(&str, &str)]) -> Members {
        let node = config::parse_yaml(&config::Source::new("t.yaml", "{}")).expect("YAML");
        let mut members = Members::default();
        for (name, text) in named {
            members.add(&node, &node, name, text).expect("a template");
        }
        members
    }

    fn render(rendering: &Rendering, documents: &[&str]) -> (String, Vec<usize>) {
        let batch = testing::documents(documents);
        let mut encoded = Encoded::default();
        rendering.write(&batch, batch.alive(), &mut encoded);
        assert_eq!(encoded.rows + encoded.refused.len(), documents.len());
        let refused = encoded.refused.iter().map(|row| row.row).collect();
        (String::from_utf8(encoded.bytes).expect("UTF-8"), refused)
    }

    fn template(text: &str) -> Template {
        Template::parse(text).expect("a template")
    }

    #[test]
    fn envelopes_hold_what_the_settings_ask_for() {
        let documents = [
            r#"{"@timestamp":"2024-02-29T23:59:59.25Z","h":"a\"b","m":"x"}"#,
            r#"{"m":"y\n"}"#,
        ];
        let whole = Rendering::Envelope(Envelope {
            metadata: members(&[("host", "%{h}"), ("source", "s")]),
            fields: members(&[("m", "%{m}")]),
            text: None,
        });
        let expected = format!(
            "{}{}\n{}{}\n",
            r#"{"time":1709251199.250,"host":"a\"b","source":"s","fields":{"m":"x"},"event":"#,
            documents[0].to_owned() + "}",
            r#"{"time":0,"source":"s","fields":{"m":"y\n"},"event":"#,
            documents[1].to_owned() + "}",
        );
        assert_eq!(render(&whole, &documents), (expected, vec![]));
        let text = Rendering::Envelope(Envelope {
            metadata: members(&[]),
            fields: members(&[]),
            text: Some(template("%{m}")),
        });
        let expected =
            "{\"time\":1709251199.250,\"event\":\"x\"}\n{\"time\":0,\"event\":\"y\\n\"}\n";
        assert_eq!(render(&text, &documents), (expected.to_owned(), vec![]));
    }

    #[test]
    fn blank_texts_are_refused() {
        let documents = [r#"{"m":"x"}"#, r#"{"m":" "}"#, "{}", r#"{"m":"y"}"#];
        let raw = Rendering::Raw(template("%{m}"));
        assert_eq!(render(&raw, &documents), ("x\ny\n".to_owned(), vec![1, 2]));
        let text = Rendering::Envelope(Envelope {
            metadata: members(&[]),
            fields: members(&[]),
            text: Some(template("%{m}")),
        });
        let expected = "{\"time\":0,\"event\":\"x\"}\n{\"time\":0,\"event\":\"y\"}\n";
        assert_eq!(render(&text, &documents), (expected.to_owned(), vec![1, 2]));
    }
}
