//! What a request's body holds of each event.

use batch::{Batch, Bitmap};
use component::{Encoded, Framing, RowEnd};
use config::{ConfigError, Node};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::codec::Codec;

/// What a body holds.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BodyName {
    /// One event per line; with `codec: msgpack` one event after the other.
    #[default]
    Lines,
    /// A JSON array of the events.
    Array,
    /// One event.
    Single,
}

/// How events stand in a body.
#[derive(Debug)]
pub struct Rendering {
    codec: Codec,
    body: BodyName,
}

impl Rendering {
    /// Events of a codec in bodies of this kind; `node` holds the settings.
    ///
    /// # Errors
    /// They do not go together, with the place of the setting.
    pub fn new(codec: Codec, body: BodyName, node: &Node) -> Result<Self, ConfigError> {
        let gives_json = matches!(codec, Codec::Json | Codec::Template { .. });
        if body == BodyName::Array && !gives_json {
            let message = "`body: array` requires `codec: json` or `codec: template`";
            return Err(node.nearest("body").error(message));
        }
        Ok(Self { codec, body })
    }

    /// How events are written.
    pub fn codec(&self) -> &Codec {
        &self.codec
    }

    /// Whether a body holds one event only.
    pub fn is_single(&self) -> bool {
        self.body == BodyName::Single
    }

    /// What stands around events.
    pub fn framing(&self) -> Framing {
        match self.body {
            BodyName::Array => Framing {
                before: b"[",
                between: b",",
                after: b"]",
            },
            BodyName::Lines | BodyName::Single => Framing::default(),
        }
    }

    /// The type of bodies. That of MessagePack is the registered one, <https://www.iana.org/assignments/media-types>.
    pub fn content_type(&self) -> &'static str {
        let is_json = match &self.codec {
            Codec::Json => true,
            Codec::Template { escapes, .. } => *escapes || self.body == BodyName::Array,
            Codec::Csv(_) => return "text/csv; charset=utf-8",
            Codec::MsgPack => return "application/vnd.msgpack",
            Codec::Logfmt | Codec::Compact | Codec::Text(_) => false,
        };
        match (is_json, self.body) {
            (true, BodyName::Lines) => "application/x-ndjson",
            (true, BodyName::Array | BodyName::Single) => "application/json",
            (false, _) => "text/plain; charset=utf-8",
        }
    }

    /// Appends rows, and says where each ends.
    pub fn write(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        encoded.ends.reserve(rows.count());
        let mut codec = self.codec.bind(batch);
        if self.body == BodyName::Lines {
            let Encoded { bytes, ends, .. } = encoded;
            codec.write_rows(rows, bytes, |row, end| {
                let row = row as u32;
                ends.push(RowEnd { row, end });
            });
            encoded.rows += rows.count();
            return;
        }
        for row in rows.iter() {
            codec.write(row, &mut encoded.bytes);
            encoded.end_row(row);
        }
    }
}

#[cfg(test)]
mod tests {
    use expr::Template;

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

    fn rendering(codec: Codec, body: BodyName) -> Rendering {
        let node = config::parse_yaml(&config::Source::new("t.yaml", "{}")).expect("YAML");
        Rendering::new(codec, body, &node).expect("they go together")
    }

    fn template(text: &str, escapes: bool) -> Codec {
        Codec::Template {
            template: Template::parse(text).expect("a template"),
            escapes,
        }
    }

    #[test]
    fn every_event_ends_where_it_says() {
        let documents = [r#"{"a":1.50}"#, "{\"a\":\n\"x\\\"\\ny\"}"];
        for (codec, body, expected) in [
            (
                Codec::Json,
                BodyName::Lines,
                ["{\"a\":1.50}\n", "{\"a\": \"x\\\"\\ny\"}\n"],
            ),
            (
                Codec::Json,
                BodyName::Array,
                ["{\"a\":1.50}", "{\"a\": \"x\\\"\\ny\"}"],
            ),
            (
                template("a=%{a}", false),
                BodyName::Lines,
                ["a=1.50\n", "a=x\"\ny\n"],
            ),
            (
                Codec::Logfmt,
                BodyName::Lines,
                ["a=1.50\n", "a=\"x\\\"\\ny\"\n"],
            ),
            (
                template(r#"{"a":"%{a}","b":"%{b}"}"#, true),
                BodyName::Single,
                [r#"{"a":"1.50","b":"-"}"#, r#"{"a":"x\"\ny","b":"-"}"#],
            ),
        ] {
            let rendering = rendering(codec, body);
            assert_eq!(render(&rendering, &documents), expected, "{rendering:?}");
        }
    }
}
