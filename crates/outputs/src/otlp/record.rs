//! Events as log records, written straight into a request.
//!
//! An event is rendered as JSON, which merges its document with what processors wrote, and its members are walked once; of lines of text only
//! those fields that may have a place of their own, while the others are written from their columns ([`Attributes`]). What a log record has
//! a place for is *moved* there if the field has the name that the input `otlp` gives it ([`Reserved`]), and *copied* if it is found by another
//! name, such as `log` with a `level`: so the input makes the same event of the record.

use std::ops::Range;
use std::sync::Arc;

use batch::json::{self, Kind};
use batch::{Batch, Column, FieldPath, FieldsWriter, Json, JsonWriter, Value};
use codec::otlp::any::{from_json, string_body, write_member, write_pair, write_text};
use codec::otlp::wire::{
    Open, bytes_tag, fixed32_tag, fixed64_tag, varint_tag, write_bytes, write_varint,
};
use codec::otlp::{ATTRIBUTES, RECORD_UID, Reserved, severity};

use super::attributes::{ATTRIBUTE, Attributes};
use super::origin::{self, Origins};

/// A length that most records have takes so many bytes.
const RECORD_LENGTH_BYTES: usize = 2;

/// How events become log records.
#[derive(Debug)]
pub struct Mapping {
    /// The fields that may hold the severity; the first that does counts.
    pub severity: Vec<Wanted>,
    /// The same for the id of the trace.
    pub trace: Vec<Wanted>,
    /// The same for the id of the span.
    pub span: Vec<Wanted>,
    /// Whether the body is the whole event.
    pub is_whole: bool,
    /// Whether objects become attributes whose names are joined with dots.
    pub flattens: bool,
    /// The resource and the scope of events that have none.
    pub origins: Origins,
}

/// A field that is looked for among the members of an event.
#[derive(Debug)]
pub struct Wanted {
    /// Its name with dots.
    dotted: Box<[u8]>,
    /// Its keys.
    keys: Vec<Box<[u8]>>,
    path: FieldPath,
}

impl Wanted {
    /// The field at a path.
    pub fn new(path: &FieldPath) -> Self {
        let escaped = |key: &str| {
            let mut out = Vec::new();
            json::write_string_body(&mut out, key.as_bytes());
            out.into_boxed_slice()
        };
        Self {
            dotted: escaped(&path.keys().join(".")),
            keys: path.keys().iter().map(|key| escaped(key)).collect(),
            path: path.clone(),
        }
    }

    /// Whether the field may lie in a member of events.
    fn may_be_in(&self, key: &[u8], batch: &Batch) -> bool {
        let is_first = self.keys.first().is_some_and(|first| *key == **first);
        *key == *self.dotted || is_first && batch.may_have(&self.path)
    }

    /// The text in a member, if this is its field.
    fn text<'d>(&self, key: &[u8], value: &'d [u8]) -> Option<&'d [u8]> {
        let mut value = value;
        if *key != *self.dotted {
            let (first, rest) = self.keys.split_first()?;
            if *key != **first {
                return None;
            }
            for key in rest {
                let is_object = json::kind(value) == Kind::Object;
                let at = is_object.then(|| json::find(value, key)).flatten()?;
                value = &value[at];
            }
        }
        let is_text = json::kind(value) == Kind::String && value.len() > 2;
        is_text.then(|| string_body(value))
    }
}

/// A member of an event's document.
#[derive(Debug)]
struct Member {
    key: Range<usize>,
    value: Range<usize>,
    /// It has a place of its own in the record.
    is_moved: bool,
}

/// What is found of one kind: the rank of its field, the member, and the text, as it stands in JSON.
type Choice<'d> = Option<(usize, usize, &'d [u8])>;

/// What a record has beside its attributes.
#[derive(Default)]
struct Parts<'d> {
    level: Choice<'d>,
    trace: Choice<'d>,
    span: Choice<'d>,
    severity: u8,
    message: Option<&'d [u8]>,
    body: Option<&'d [u8]>,
    flags: u32,
    dropped: u32,
    event_name: Option<&'d [u8]>,
    has_uid: bool,
}

/// How the fields of events are reached.
enum Fields<'a> {
    /// All of them as JSON.
    Document(JsonWriter<'a>),
    /// Of events without documents, those that may have a place of their own as JSON, and the others from their columns.
    Columns {
        special: FieldsWriter<'a, Json>,
        others: FieldsWriter<'a, Attributes>,
    },
}

impl Mapping {
    fn fields<'a>(&self, batch: &'a Batch) -> Fields<'a> {
        let is_special = |name: &str| {
            let mut key = Vec::new();
            json::write_string_body(&mut key, name.as_bytes());
            let wanted = [&self.severity, &self.trace, &self.span];
            Reserved::of(&key).is_some()
                || key == ATTRIBUTES
                || key == RECORD_UID
                || wanted
                    .into_iter()
                    .flatten()
                    .any(|field| field.may_be_in(&key, batch))
        };
        let split = || {
            Some(Fields::Columns {
                special: FieldsWriter::new(batch, is_special)?,
                others: FieldsWriter::new(batch, |name| !is_special(name))?,
            })
        };
        let is_split = !self.is_whole && !self.flattens;
        let fields = is_split.then(split).flatten();
        fields.unwrap_or_else(|| Fields::Document(JsonWriter::new(batch)))
    }
}

/// Writes the events of one batch as log records.
pub struct RecordWriter<'a> {
    mapping: &'a Mapping,
    batch: &'a Batch,
    fields: Fields<'a>,
    times: Arc<Column>,
    /// The event at hand.
    row: usize,
    document: Vec<u8>,
    members: Vec<Member>,
    /// Space for an id, or for the name of an attribute.
    name: Vec<u8>,
}

impl<'a> RecordWriter<'a> {
    /// A writer for the events of `batch`.
    pub fn new(mapping: &'a Mapping, batch: &'a Batch) -> Self {
        Self {
            mapping,
            batch,
            fields: mapping.fields(batch),
            times: batch.column(&FieldPath::from_keys(["@timestamp"])),
            row: 0,
            document: Vec::new(),
            members: Vec::new(),
            name: Vec::new(),
        }
    }

    /// Takes another event.
    pub fn load(&mut self, row: usize) {
        self.row = row;
        self.document.clear();
        match &self.fields {
            Fields::Document(writer) => writer.write(row, &mut self.document),
            Fields::Columns { special, .. } => special.write(row, &mut self.document),
        }
        self.members.clear();
        let text = self.document.as_ptr() as usize;
        let members = json::members(&self.document).map(|member| {
            let start = member.key.as_ptr() as usize - text;
            Member {
                key: start..start + member.key.len(),
                value: member.value,
                is_moved: false,
            }
        });
        self.members.extend(members);
    }

    /// The row of the event.
    pub fn row(&self) -> usize {
        self.row
    }

    /// Whether the event has a resource or a scope of its own.
    pub fn has_origin(&self) -> bool {
        !self.mapping.is_whole && (self.resource().is_some() || self.scope().is_some())
    }

    fn member(&self, name: &[u8]) -> Option<&[u8]> {
        let mut members = self.members.iter();
        let member = members.find(|member| self.document[member.key.clone()] == *name)?;
        Some(&self.document[member.value.clone()])
    }

    fn resource(&self) -> Option<&[u8]> {
        self.member(b"resource")
            .filter(|value| origin::is_resource(value))
    }

    fn scope(&self) -> Option<&[u8]> {
        self.member(b"scope")
            .filter(|value| origin::is_scope(value))
    }

    /// Appends the event as a field `log_records` of `ScopeLogs`.
    pub fn write(&mut self, out: &mut Vec<u8>) {
        let mut members = std::mem::take(&mut self.members);
        let document = std::mem::take(&mut self.document);
        let record = Open::begin(out, bytes_tag(2), RECORD_LENGTH_BYTES);
        self.write_record(&document, &mut members, out);
        record.end(out);
        (self.members, self.document) = (members, document);
    }

    /// Appends the event as a whole field `resource_logs` of a request. `destination` says what its resource is if it has none.
    pub fn write_alone(&mut self, destination: &str, out: &mut Vec<u8>) {
        let logs = Open::begin(out, bytes_tag(1), RECORD_LENGTH_BYTES);
        match self.resource() {
            Some(resource) => origin::write_resource(resource, out),
            None => origin::write_attributes(destination, out),
        }
        let scope_logs = Open::begin(out, bytes_tag(2), RECORD_LENGTH_BYTES);
        match self.scope() {
            Some(scope) => origin::write_scope(scope, out),
            None => out.extend_from_slice(self.mapping.origins.scope()),
        }
        self.write(out);
        scope_logs.end(out);
        logs.end(out);
    }

    fn write_record(&mut self, document: &[u8], members: &mut [Member], out: &mut Vec<u8>) {
        let time = time(self.times.value(self.row));
        let parts = self.divide(document, members, time.is_some());
        for (number, nanos) in [(1, time), (11, u64::try_from(self.batch.received()).ok())] {
            if let Some(nanos) = nanos {
                out.push(fixed64_tag(number));
                out.extend_from_slice(&nanos.to_le_bytes());
            }
        }
        parts.write(out);
        let body = Open::begin(out, bytes_tag(5), 1);
        let content = out.len();
        match (parts.message, parts.body) {
            _ if self.mapping.is_whole => from_json(document, out),
            (Some(message), _) => write_text(out, bytes_tag(1), message),
            (None, Some(body)) => from_json(body, out),
            (None, None) => {}
        }
        match out.len() == content {
            true => out.truncate(content - 2),
            false => body.end(out),
        }
        if !self.mapping.is_whole {
            self.write_attributes(document, members, out);
        }
        if let Fields::Columns { others, .. } = &self.fields {
            others.write_members(self.row, out);
        }
        if !parts.has_uid {
            self.name.clear();
            self.batch.origin().write_id(self.row, &mut self.name);
            write_pair(out, ATTRIBUTE, RECORD_UID, &self.name);
        }
    }

    /// Finds out what has a place of its own.
    fn divide<'d>(&self, document: &'d [u8], members: &mut [Member], has_time: bool) -> Parts<'d> {
        let mut parts = Parts::default();
        let mut structured = None;
        for (index, member) in members.iter_mut().enumerate() {
            let key = &document[member.key.clone()];
            let value = &document[member.value.clone()];
            let kind = json::kind(value);
            let note = |wanted: &[Wanted], choice: &mut Choice<'d>| {
                let before = choice.map_or(wanted.len(), |(rank, ..)| rank);
                for (rank, wanted) in wanted[..before].iter().enumerate() {
                    if let Some(text) = wanted.text(key, value) {
                        *choice = Some((rank, index, text));
                        return;
                    }
                }
            };
            note(&self.mapping.severity, &mut parts.level);
            note(&self.mapping.trace, &mut parts.trace);
            note(&self.mapping.span, &mut parts.span);
            match Reserved::of(key) {
                None => parts.has_uid |= key == RECORD_UID && !self.mapping.is_whole,
                Some(Reserved::Timestamp) => member.is_moved = has_time,
                Some(Reserved::Message) if kind == Kind::String => {
                    parts.message = Some(string_body(value));
                    member.is_moved = true;
                }
                Some(Reserved::Body) if !matches!(kind, Kind::String | Kind::Null) => {
                    structured = Some((index, value));
                }
                Some(Reserved::SeverityNumber) => parts.severity = small(value, 24) as u8,
                Some(Reserved::Flags) => {
                    parts.flags = small(value, u32::MAX);
                    member.is_moved = parts.flags != 0;
                }
                Some(Reserved::Dropped) => {
                    parts.dropped = small(value, u32::MAX);
                    member.is_moved = parts.dropped != 0;
                }
                Some(Reserved::EventName) if kind == Kind::String && value.len() > 2 => {
                    parts.event_name = Some(string_body(value));
                    member.is_moved = true;
                }
                Some(Reserved::Resource) => member.is_moved = origin::is_resource(value),
                Some(Reserved::Scope) => member.is_moved = origin::is_scope(value),
                Some(_) => {}
            }
        }
        if let (None, Some((index, value))) = (parts.message, structured) {
            parts.body = Some(value);
            members[index].is_moved = true;
        }
        parts.trace = parts.trace.filter(|(.., text)| is_id(text, 16));
        parts.span = parts.span.filter(|(.., text)| is_id(text, 8));
        parts.move_chosen(document, members);
        parts
    }

    fn write_attributes(&mut self, document: &[u8], members: &[Member], out: &mut Vec<u8>) {
        for member in members.iter().filter(|member| !member.is_moved) {
            let key = &document[member.key.clone()];
            let value = &document[member.value.clone()];
            if key == ATTRIBUTES && holds_taken_names(value) {
                for member in json::members(value) {
                    write_member(out, ATTRIBUTE, member.key, &value[member.value]);
                }
            } else if self.mapping.flattens && json::kind(value) == Kind::Object {
                self.name.clear();
                self.name.extend_from_slice(key);
                write_flat(&mut self.name, value, out);
            } else {
                write_member(out, ATTRIBUTE, key, value);
            }
        }
    }
}

impl Parts<'_> {
    /// Says of the members that were chosen for severity and ids that they are moved, if the input gives them the same name.
    fn move_chosen(&mut self, document: &[u8], members: &mut [Member]) {
        for (choice, field) in [
            (self.level, Reserved::Level),
            (self.trace, Reserved::Trace),
            (self.span, Reserved::Span),
        ] {
            if let Some((_, index, _)) = choice {
                let key = &document[members[index].key.clone()];
                members[index].is_moved = Reserved::of(key) == Some(field);
            }
        }
        // A number that follows from the text is no field of the event that the input makes.
        let follows = self.level.map_or(0, |(.., text)| severity::number(text));
        let given = members
            .iter_mut()
            .find(|member| &document[member.key.clone()] == b"severity_number");
        match given {
            Some(member) if self.severity != 0 => member.is_moved = self.severity != follows,
            _ => self.severity = follows,
        }
    }

    /// Appends everything but the times, the body and the attributes.
    fn write(&self, out: &mut Vec<u8>) {
        if self.severity != 0 {
            out.extend([varint_tag(2), self.severity]);
        }
        if let Some((.., text)) = self.level {
            write_text(out, bytes_tag(3), text);
        }
        if self.dropped != 0 {
            out.push(varint_tag(7));
            write_varint(out, u64::from(self.dropped));
        }
        if self.flags != 0 {
            out.push(fixed32_tag(8));
            out.extend_from_slice(&self.flags.to_le_bytes());
        }
        for (number, id) in [(9, self.trace), (10, self.span)] {
            if let Some((.., text)) = id {
                let mut bytes = [0; 16];
                let bytes = &mut bytes[..text.len() / 2];
                for (byte, pair) in bytes.iter_mut().zip(text.as_chunks::<2>().0) {
                    *byte = digit(pair[0]) << 4 | digit(pair[1]);
                }
                write_bytes(out, bytes_tag(number), bytes);
            }
        }
        if let Some(name) = self.event_name {
            write_text(out, bytes_tag(12), name);
        }
    }
}

/// Appends the members of an object, at any depth, as attributes whose names begin with `name`.
fn write_flat(name: &mut Vec<u8>, object: &[u8], out: &mut Vec<u8>) {
    let length = name.len();
    let mut is_empty = true;
    for member in json::members(object) {
        is_empty = false;
        let value = &object[member.value];
        name.push(b'.');
        name.extend_from_slice(member.key);
        match json::kind(value) {
            Kind::Object => write_flat(name, value, out),
            _ => write_member(out, ATTRIBUTE, name, value),
        }
        name.truncate(length);
    }
    if is_empty {
        write_member(out, ATTRIBUTE, name, object);
    }
}

/// Whether an object is what the input makes of attributes whose names are taken.
fn holds_taken_names(value: &[u8]) -> bool {
    if json::kind(value) != Kind::Object {
        return false;
    }
    let mut has_taken = false;
    let mut members = json::members(value);
    members.all(|member| {
        let is_taken = Reserved::of(member.key).is_some();
        has_taken |= is_taken;
        is_taken || member.key == ATTRIBUTES
    }) && has_taken
}

/// The nanoseconds of a time, or of the text of one.
fn time(value: Value<'_>) -> Option<u64> {
    let nanos = match value {
        Value::Time(nanos) => nanos,
        Value::Text(text @ [b'0'..=b'9', ..]) => {
            let time: jiff::Timestamp = std::str::from_utf8(text).ok()?.parse().ok()?;
            i64::try_from(time.as_nanosecond()).ok()?
        }
        _ => return None,
    };
    u64::try_from(nanos).ok().filter(|nanos| *nanos != 0)
}

/// A whole number from 1 to `max`; 0 for any other value.
fn small(value: &[u8], max: u32) -> u32 {
    let text = std::str::from_utf8(value).unwrap_or_default();
    let is_plain = !text.starts_with(['0', '+', '-']);
    let number = text.parse::<u32>().ok().filter(|_| is_plain);
    number.filter(|number| *number <= max).unwrap_or(0)
}

/// Whether a text is an id of so many bytes in hexadecimal; one of zeros is none.
fn is_id(text: &[u8], bytes: usize) -> bool {
    text.len() == 2 * bytes
        && text.iter().all(u8::is_ascii_hexdigit)
        && text.iter().any(|digit| *digit != b'0')
}

/// The value of a hexadecimal digit.
fn digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20).wrapping_sub(b'a' - 10),
    }
}
