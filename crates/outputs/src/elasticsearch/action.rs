//! What a bulk request holds of each event: a line that says what to do, and the document.
//!
//! The first line is as short as it can be. The index stands in the address, so that the line is `{"create":{"_id":"…"}}`
//! unless the settings ask for more. Both lines go straight into the request's bytes.

use std::sync::Arc;

use batch::{Batch, Bitmap, Cell, Column, FieldPath, FieldRead, JsonWriter, ShortIds};
use component::Encoded;
use datetime::rfc3339;
use expr::{Absent, BoundTemplate, Template};
use ring::digest::{SHA256, digest};

use crate::codec::escape_json;

/// The longest `_id` that Elasticsearch takes, in bytes.
const ID_BYTES_MAX: usize = 512;

/// What stands before the `_id`.
const ID_KEY: &str = "\"_id\":\"";

/// The field that documents of a data stream must have.
const TIMESTAMP: &str = "@timestamp";

/// What is done with documents.
#[derive(Debug)]
pub struct Action {
    pub verb: Verb,
    pub id: DocumentId,
    pub pipeline: Option<Template>,
    pub routing: Option<Template>,
    /// Whether a document without `@timestamp` gets one.
    pub adds_timestamp: bool,
}

/// What is done with a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// It is stored unless there is one of its id.
    Create,
    /// It is stored in place of one of its id.
    Index,
}

/// What makes the `_id`.
#[derive(Debug)]
pub enum DocumentId {
    /// The id of the event.
    Event,
    /// The server.
    None,
    /// A text; the id of the event where a field of it is missing, or where it is empty.
    Text(Template),
}

impl Verb {
    pub fn word(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Index => "index",
        }
    }
}

/// An action over the columns of one batch.
struct Bound<'a> {
    batch: &'a Batch,
    action: &'a Action,
    /// What stands before the first value of the first line.
    open: String,
    writer: JsonWriter<'a>,
    id: Option<BoundTemplate<'a>>,
    short_ids: ShortIds<'a>,
    pipeline: Option<BoundTemplate<'a>>,
    routing: Option<BoundTemplate<'a>>,
    /// Times for documents that have none, where all of them need one.
    times: Option<Times>,
}

/// The column that says which documents have an `@timestamp`, and the one that has it for the others.
struct Times {
    own: Arc<Column>,
    given: Arc<Column>,
}

impl Action {
    /// The fields that its templates name.
    pub fn reads(&self) -> impl Iterator<Item = Arc<FieldRead>> {
        let id = match &self.id {
            DocumentId::Text(template) => Some(template),
            DocumentId::Event | DocumentId::None => None,
        };
        let templates = [id, self.pipeline.as_ref(), self.routing.as_ref()];
        templates.into_iter().flatten().flat_map(Template::reads)
    }

    /// Whether a document of the same id may be there already, as it is when it was sent before.
    pub fn finds_repeats(&self) -> bool {
        self.verb == Verb::Create && !matches!(self.id, DocumentId::None)
    }

    /// Appends rows, two lines each, and says where each ends.
    pub fn write(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        let mut bound = self.bind(batch);
        encoded.ends.reserve(rows.count());
        let (bytes_before, ends_before) = (encoded.bytes.len(), encoded.ends.len());
        for row in rows.iter() {
            bound.write(row, encoded);
        }
        // Documents may hold newlines between their tokens, and hardly ever do: counting costs little.
        let newlines = memchr::memchr_iter(b'\n', &encoded.bytes[bytes_before..]).count();
        if newlines == 2 * rows.count() {
            return;
        }
        let mut start = bytes_before;
        for row in &encoded.ends[ends_before..] {
            let lines = &mut encoded.bytes[start..row.end - 1];
            let document = memchr::memchr(b'\n', lines).map_or(0, |end| end + 1);
            for byte in &mut lines[document..] {
                // Strings hold their newlines escaped, so that these stand between tokens.
                if *byte == b'\n' {
                    *byte = b' ';
                }
            }
            start = row.end;
        }
    }

    fn bind<'a>(&'a self, batch: &'a Batch) -> Bound<'a> {
        let bind = |template: &'a Template| template.bind(batch, Absent::Text(""));
        let has_id = !matches!(self.id, DocumentId::None);
        let key = if has_id { ID_KEY } else { "" };
        Bound {
            batch,
            action: self,
            open: format!("{{\"{}\":{{{key}", self.verb.word()),
            writer: JsonWriter::new(batch),
            id: match &self.id {
                DocumentId::Text(template) => Some(bind(template)),
                DocumentId::Event | DocumentId::None => None,
            },
            short_ids: ShortIds::new(batch.origin()),
            pipeline: self.pipeline.as_ref().map(bind),
            routing: self.routing.as_ref().map(bind),
            times: self.adds_timestamp.then(|| Times::of(batch)).flatten(),
        }
    }
}

impl Times {
    /// None where every document has a time.
    fn of(batch: &Batch) -> Option<Self> {
        let own = batch.column(&FieldPath::from_keys([TIMESTAMP]));
        if own.as_constant().is_some_and(|cell| !cell.is_absent()) {
            return None;
        }
        let given = batch.column(&FieldPath::from_keys(["@metadata", "timestamp"]));
        Some(Self { own, given })
    }
}

impl Bound<'_> {
    fn write(&mut self, row: usize, encoded: &mut Encoded) {
        let out = &mut encoded.bytes;
        out.extend_from_slice(self.open.as_bytes());
        let has_id = !matches!(self.action.id, DocumentId::None);
        let start = out.len() - if has_id { ID_KEY.len() } else { 0 };
        if has_id {
            self.write_id(row, out);
        }
        field(b"\"pipeline\":\"", self.pipeline.as_mut(), row, start, out);
        field(b"\"routing\":\"", self.routing.as_mut(), row, start, out);
        out.extend_from_slice(b"}}\n");
        self.write_document(row, out);
        out.push(b'\n');
        encoded.end_row(row);
    }

    /// Appends the id and the quote behind it.
    fn write_id(&mut self, row: usize, out: &mut Vec<u8>) {
        let start = out.len();
        if let Some(template) = self.id.as_mut().filter(|id| id.is_given(row)) {
            template.write(row, out);
        }
        let is_text = out.len() > start;
        if is_text || !self.short_ids.write(row, out) {
            if !is_text {
                self.batch.origin().write_id(row, out);
            }
            if out.len() - start > ID_BYTES_MAX {
                hash(out, start);
            }
            escape_json(out, start);
        }
        out.push(b'"');
    }

    fn write_document(&self, row: usize, out: &mut Vec<u8>) {
        let times = self.times.as_ref();
        let Some(times) = times.filter(|times| times.own.cell(row).is_absent()) else {
            return self.writer.write(row, out);
        };
        // The time goes before the document's first member, which saves walking the document.
        out.extend_from_slice(b"{\"@timestamp\":");
        match times.given.cell(row) {
            cell if cell.is_absent() || cell == Cell::Null => {
                out.push(b'"');
                rfc3339::write_rfc3339(out, self.batch.received());
                out.push(b'"');
            }
            _ => times.given.value(row).write_json(out),
        }
        let start = out.len();
        self.writer.write(row, out);
        let members = out[start + 1..].iter();
        let is_empty = members.clone().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'}');
        if is_empty {
            out.truncate(start);
            out.push(b'}');
        } else {
            out[start] = b',';
        }
    }
}

/// Appends a member of the first line, unless its value is empty. Members begin at `start`.
fn field(
    key: &[u8],
    template: Option<&mut BoundTemplate<'_>>,
    row: usize,
    start: usize,
    out: &mut Vec<u8>,
) {
    let Some(template) = template else { return };
    let before = out.len();
    if before > start {
        out.push(b',');
    }
    out.extend_from_slice(key);
    let value = out.len();
    template.write(row, out);
    if out.len() == value {
        return out.truncate(before);
    }
    escape_json(out, value);
    out.push(b'"');
}

/// Puts its hash in the place of an id that is too long.
fn hash(out: &mut Vec<u8>, start: usize) {
    let hash = digest(&SHA256, &out[start..]);
    out.truncate(start);
    out.extend_from_slice(b"sha256-");
    for byte in hash.as_ref() {
        let digit = |half: u8| b"0123456789abcdef"[usize::from(half)];
        out.extend([digit(byte >> 4), digit(byte & 15)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn plain() -> Action {
        Action {
            verb: Verb::Create,
            id: DocumentId::Event,
            pipeline: None,
            routing: None,
            adds_timestamp: false,
        }
    }

    fn template(text: &str) -> Template {
        Template::parse(text).expect("a template")
    }

    fn render(action: &Action, documents: &[&str]) -> String {
        let batch = testing::documents(documents);
        let mut encoded = Encoded::default();
        action.write(&batch, batch.alive(), &mut encoded);
        assert_eq!(encoded.rows, documents.len());
        let text = String::from_utf8(encoded.bytes).expect("UTF-8");
        let mut start = 0;
        for row in &encoded.ends {
            assert_eq!(text[start..row.end].lines().count(), 2, "{text}");
            assert!(text[start..row.end].ends_with('\n'));
            start = row.end;
        }
        text
    }

    const ID: &str = "AAAAAAAAAAAAAAAAAAABAQc";

    #[test]
    fn actions_hold_what_the_settings_ask_for() {
        let full = |action: Action, document: &str, expected: &str| {
            let expected = expected.replace("ID", ID);
            assert_eq!(
                render(&action, &[document]),
                format!("{expected}\n{document}\n")
            );
        };
        full(plain(), r#"{"a":1}"#, r#"{"create":{"_id":"ID"}}"#);
        let verb = Verb::Index;
        full(
            Action { verb, ..plain() },
            r#"{"a":1}"#,
            r#"{"index":{"_id":"ID"}}"#,
        );
        let id = DocumentId::None;
        full(Action { id, ..plain() }, r#"{"a":1}"#, r#"{"create":{}}"#);
        let routed = || Action {
            pipeline: Some(template("p-%{a}")),
            routing: Some(template("%{a}")),
            ..plain()
        };
        full(
            routed(),
            r#"{"a":1}"#,
            r#"{"create":{"_id":"ID","pipeline":"p-1","routing":"1"}}"#,
        );
        full(
            routed(),
            r#"{"b":1}"#,
            r#"{"create":{"_id":"ID","pipeline":"p-"}}"#,
        );
        let id = DocumentId::None;
        full(
            Action {
                id,
                pipeline: None,
                ..routed()
            },
            r#"{"a":"\"x\""}"#,
            r#"{"create":{"routing":"\"x\""}}"#,
        );
    }

    #[test]
    fn ids_are_made_of_fields_only_where_all_are_there() {
        let action = Action {
            id: DocumentId::Text(template("%{a}/%{b}")),
            ..plain()
        };
        for (document, expected) in [
            (r#"{"a":1,"b":"x"}"#, "1/x"),
            // `AR` is the byte 01: the start has no byte, and the length one.
            (r#"{"a":1,"b":null}"#, "AAAAAAAAAAAAAAAAAAABARA"),
            (r#"{"a":1}"#, ID),
            (r#"{"a":"\"","b":"\n"}"#, r#"\"/\n"#),
        ] {
            let expected = format!("{{\"create\":{{\"_id\":\"{expected}\"}}}}\n{document}\n");
            assert_eq!(render(&action, &[document]), expected);
        }
        let empty = Action {
            id: DocumentId::Text(template("%{a}")),
            ..plain()
        };
        let shown = render(&empty, &[r#"{"a":""}"#]);
        assert!(shown.starts_with("{\"create\":{\"_id\":\"AAAAAAAAAAAAAAAAAAABAQg\"}}"));
    }

    #[test]
    fn long_ids_are_hashed() {
        let action = Action {
            id: DocumentId::Text(template("%{a}")),
            ..plain()
        };
        let most = "x".repeat(512);
        assert!(
            render(&action, &[&format!(r#"{{"a":"{most}"}}"#)])
                .contains(&format!("\"_id\":\"{most}\""))
        );
        let more = format!(r#"{{"a":"{most}x"}}"#);
        // As `printf 'x%.0s' $(seq 513) | sha256sum` gives it.
        let hash = "sha256-35ade0090e64e74d6ad04204009c23a4e34b82bdf0f4f317fbcc5f26f9b10241";
        let shown = render(&action, &[&more]);
        assert!(
            shown.starts_with(&format!("{{\"create\":{{\"_id\":\"{hash}\"}}}}\n")),
            "{shown}"
        );
    }

    #[test]
    fn documents_of_a_data_stream_have_a_time() {
        let action = Action {
            adds_timestamp: true,
            ..plain()
        };
        for (document, expected) in [
            (
                r#"{"a":1}"#,
                r#"{"@timestamp":"1970-01-01T00:00:00.000Z","a":1}"#,
            ),
            ("{ }", r#"{"@timestamp":"1970-01-01T00:00:00.000Z"}"#),
            (
                "{\n\"a\":\n1}",
                r#"{"@timestamp":"1970-01-01T00:00:00.000Z", "a": 1}"#,
            ),
            (r#"{"@timestamp":"x"}"#, r#"{"@timestamp":"x"}"#),
            (r#"{"@timestamp":null}"#, r#"{"@timestamp":null}"#),
        ] {
            let shown = render(&action, &[r#"{"@timestamp":"y"}"#, document]);
            assert_eq!(shown.lines().last(), Some(expected), "{document}");
        }
        let batch = testing::lines(&["x"]);
        let mut encoded = Encoded::default();
        action.write(&batch, batch.alive(), &mut encoded);
        let text = String::from_utf8(encoded.bytes).expect("UTF-8");
        assert_eq!(text.matches("@timestamp").count(), 1, "{text}");
    }
}
