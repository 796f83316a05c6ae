//! The log records of a request as JSON documents.
//!
//! A document is written straight from the bytes of its record. It is checked afterwards, because a client may send a key twice, and texts
//! that are not UTF-8: of a key the last value counts, and U+FFFD replaces what is no UTF-8.

use batch::json as text;
use datetime::rfc3339;

use super::any::{self, pair, pairs_to_json, write_key};
use super::wire::{WireError, fields};
use super::{ATTRIBUTES, RECORD_UID, Reserved, severity};

/// A log record as a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Document<'a> {
    /// The JSON object, validated and in normal form.
    pub text: &'a [u8],
    /// The attribute `log.record.uid`, which is no field of the document.
    pub id: Option<&'a [u8]>,
    /// Whether some key has a dot.
    pub has_dotted_keys: bool,
}

/// Makes documents of requests. Keeps its buffers from one to the next.
#[derive(Debug)]
pub struct Documents {
    /// How deep documents may nest.
    depth_max: usize,
    /// The members `resource` and `scope` of the documents of a scope, each with a comma before it.
    context: Vec<u8>,
    document: Vec<u8>,
    /// A document in normal form.
    normal: Vec<u8>,
}

/// A log record as it was sent.
#[derive(Default)]
struct LogRecord<'a> {
    time: u64,
    observed: u64,
    severity: u64,
    level: &'a [u8],
    body: Option<&'a [u8]>,
    attributes: Vec<(&'a [u8], &'a [u8])>,
    dropped: u64,
    flags: u32,
    trace: &'a [u8],
    span: &'a [u8],
    event_name: &'a [u8],
}

impl Documents {
    /// Documents that nest up to `depth_max` levels deep.
    pub fn new(depth_max: usize) -> Self {
        Self {
            depth_max: depth_max.min(text::DEPTH_MAX),
            context: Vec::new(),
            document: Vec::new(),
            normal: Vec::new(),
        }
    }

    /// Reads an `ExportLogsServiceRequest`; gives `each` the document of every record.
    ///
    /// # Errors
    /// The request is malformed. Some of its documents may have been given before.
    pub fn read(
        &mut self,
        request: &[u8],
        mut each: impl FnMut(Document<'_>),
    ) -> Result<(), WireError> {
        let mut record = LogRecord::default();
        for field in fields(request) {
            let (1, logs) = field? else { continue };
            let logs = logs.bytes(1)?;
            self.context.clear();
            self.add_resource(logs)?;
            let resource = self.context.len();
            for field in fields(logs) {
                let (2, logs) = field? else { continue };
                let logs = logs.bytes(2)?;
                self.context.truncate(resource);
                self.add_scope(logs)?;
                let has_scope = self.context.len() > resource;
                let context =
                    taken(Reserved::Resource, resource > 0) | taken(Reserved::Scope, has_scope);
                for field in fields(logs) {
                    let (2, log) = field? else { continue };
                    record.read(log.bytes(2)?)?;
                    each(self.write(&record, context)?);
                }
            }
        }
        Ok(())
    }

    /// Adds the member `resource`, unless nothing is known of it.
    fn add_resource(&mut self, logs: &[u8]) -> Result<(), WireError> {
        let (mut resource, mut schema) = (None, &[][..]);
        for field in fields(logs) {
            match field? {
                (1, message) => resource = Some(message.bytes(1)?),
                (3, url) => schema = url.bytes(3)?,
                _ => {}
            }
        }
        let mut origin = OriginWriter::begin(&mut self.context, b",\"resource\":{");
        if let Some(resource) = resource {
            origin.attributes(resource, 1, 2, self.depth_max)?;
        }
        origin.text(b"schema_url", schema);
        origin.end();
        Ok(())
    }

    /// Adds the member `scope`, unless nothing is known of it.
    fn add_scope(&mut self, logs: &[u8]) -> Result<(), WireError> {
        let (mut scope, mut schema) = (None, &[][..]);
        for field in fields(logs) {
            match field? {
                (1, message) => scope = Some(message.bytes(1)?),
                (3, url) => schema = url.bytes(3)?,
                _ => {}
            }
        }
        let mut origin = OriginWriter::begin(&mut self.context, b",\"scope\":{");
        if let Some(scope) = scope {
            for field in fields(scope) {
                match field? {
                    (1, name) => origin.text(b"name", name.bytes(1)?),
                    (2, version) => origin.text(b"version", version.bytes(2)?),
                    _ => {}
                }
            }
            origin.attributes(scope, 3, 4, self.depth_max)?;
        }
        origin.text(b"schema_url", schema);
        origin.end();
        Ok(())
    }

    /// Writes a document.
    fn write<'a>(
        &'a mut self,
        record: &LogRecord<'a>,
        context: u16,
    ) -> Result<Document<'a>, WireError> {
        let out = &mut self.document;
        out.clear();
        out.push(b'{');
        let id = record.write(context, self.depth_max, out)?;
        let context = &self.context[usize::from(out.len() == 1 && !self.context.is_empty())..];
        out.extend_from_slice(context);
        out.push(b'}');
        if simdutf8::basic::from_utf8(out).is_err() {
            *out = String::from_utf8_lossy(out).into_owned().into_bytes();
        }
        let scan = text::validate_object(out).map_err(|_| WireError::TooDeep)?;
        let mut text = &*out;
        if scan.rewrite {
            self.normal.clear();
            text::normalise(out, &mut self.normal);
            text = &self.normal;
        }
        Ok(Document {
            text,
            id,
            has_dotted_keys: scan.dotted_keys,
        })
    }
}

/// The bit of a field that is in its place.
const fn taken(field: Reserved, is_taken: bool) -> u16 {
    if is_taken { field as u16 } else { 0 }
}

/// Writes the member `resource` or `scope`.
struct OriginWriter<'o> {
    out: &'o mut Vec<u8>,
    before: usize,
    start: usize,
}

impl<'o> OriginWriter<'o> {
    fn begin(out: &'o mut Vec<u8>, opening: &[u8]) -> Self {
        let before = out.len();
        out.extend_from_slice(opening);
        let start = out.len();
        Self { out, before, start }
    }

    fn text(&mut self, key: &[u8], value: &[u8]) {
        if !value.is_empty() {
            write_key(self.out, key, self.start);
            text::write_string(self.out, value);
        }
    }

    /// The attributes in fields `number` of a message, and how many were dropped, in field `dropped`.
    fn attributes(
        &mut self,
        message: &[u8],
        number: u32,
        dropped: u32,
        depth: usize,
    ) -> Result<(), WireError> {
        let before = self.out.len();
        write_key(self.out, ATTRIBUTES, self.start);
        self.out.push(b'{');
        let start = self.out.len();
        pairs_to_json(message, number, depth, start, self.out)?;
        match self.out.len() == start {
            true => self.out.truncate(before),
            false => self.out.push(b'}'),
        }
        for field in fields(message) {
            if let (of, count) = field?
                && of == dropped
                && let count @ 1.. = count.varint(dropped)?
            {
                write_key(self.out, b"dropped_attributes_count", self.start);
                text::write_u64(self.out, count);
            }
        }
        Ok(())
    }

    fn end(self) {
        match self.out.len() == self.start {
            true => self.out.truncate(self.before),
            false => self.out.push(b'}'),
        }
    }
}

impl<'a> LogRecord<'a> {
    /// Reads another record.
    fn read(&mut self, message: &'a [u8]) -> Result<(), WireError> {
        let mut attributes = std::mem::take(&mut self.attributes);
        attributes.clear();
        *self = Self {
            attributes,
            ..Self::default()
        };
        for field in fields(message) {
            let (number, value) = field?;
            match number {
                1 => self.time = value.fixed64(number)?,
                2 => self.severity = value.varint(number)?,
                3 => self.level = value.bytes(number)?,
                5 => self.body = Some(value.bytes(number)?),
                6 => self.attributes.push(pair(value.bytes(number)?)?),
                7 => self.dropped = value.varint(number)?,
                8 => self.flags = value.fixed32(number)?,
                9 => self.trace = value.bytes(number)?,
                10 => self.span = value.bytes(number)?,
                11 => self.observed = value.fixed64(number)?,
                12 => self.event_name = value.bytes(number)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Appends the members of its document; gives its id. `context` holds the bits of fields that follow.
    fn write(
        &self,
        context: u16,
        depth: usize,
        out: &mut Vec<u8>,
    ) -> Result<Option<&'a [u8]>, WireError> {
        let start = out.len();
        let mut taken = context | self.write_head(start, depth, out)? | self.taken_below();
        let conflicts = |taken: u16| {
            move |(key, _): &&(&[u8], &[u8])| {
                Reserved::of(key).is_some_and(|field| taken & field as u16 != 0)
            }
        };
        let has_conflict = self.attributes.iter().any(|pair| conflicts(taken)(&pair));
        let mut id = None;
        for pair in &self.attributes {
            let (key, value) = *pair;
            if key == RECORD_UID
                && let Some(text) = any::text(value)
                && is_id(text)
            {
                id = Some(text);
                continue;
            }
            if has_conflict && (key == ATTRIBUTES || conflicts(taken)(&pair)) {
                continue;
            }
            taken &= !self.spelled_out(key, value);
            write_key(out, key, start);
            any::to_json(value, depth, out)?;
        }
        self.write_tail(taken, start, out);
        if has_conflict {
            write_key(out, ATTRIBUTES, start);
            out.push(b'{');
            let inner = out.len();
            let moved = self.attributes.iter();
            for pair in
                moved.filter(|pair| pair.0 == ATTRIBUTES || conflicts(self.all(taken))(pair))
            {
                write_key(out, pair.0, inner);
                any::to_json(pair.1, depth, out)?;
            }
            out.push(b'}');
        }
        Ok(id)
    }

    /// The bits of all fields of the record, whether they are written or spelled out.
    fn all(&self, taken: u16) -> u16 {
        taken | self.taken_below()
    }

    /// Appends the time and the body; gives the bits of what was written.
    fn write_head(&self, start: usize, depth: usize, out: &mut Vec<u8>) -> Result<u16, WireError> {
        let mut bits = 0;
        let has_own = || self.attributes.iter().any(|(key, _)| *key == b"@timestamp");
        // Where the time is unknown, the one of observation stands for it, as the data model says.
        let time = match self.time {
            0 if has_own() => 0,
            0 => self.observed,
            time => time,
        };
        if let Some(nanos) = i64::try_from(time).ok().filter(|nanos| *nanos != 0) {
            bits |= Reserved::Timestamp as u16;
            write_key(out, b"@timestamp", start);
            out.push(b'"');
            rfc3339::write_rfc3339(out, nanos);
            out.push(b'"');
        }
        if let Some(body) = self.body.filter(|body| !body.is_empty()) {
            if let Some(message) = any::text(body) {
                bits |= Reserved::Message as u16;
                write_key(out, b"message", start);
                text::write_string(out, message);
            } else {
                bits |= Reserved::Body as u16;
                write_key(out, b"body", start);
                any::to_json(body, depth, out)?;
            }
        }
        Ok(bits)
    }

    /// The bits of the fields that [`Self::write_tail`] writes.
    fn taken_below(&self) -> u16 {
        let follows = self.severity == u64::from(severity::number(self.level));
        taken(Reserved::Level, !self.level.is_empty())
            | taken(Reserved::SeverityNumber, !follows)
            | taken(Reserved::Trace, is_given(self.trace))
            | taken(Reserved::Span, is_given(self.span))
            | taken(Reserved::Flags, self.flags != 0)
            | taken(Reserved::EventName, !self.event_name.is_empty())
            | taken(Reserved::Dropped, self.dropped != 0)
    }

    /// The field that an attribute spells out, such as `log` with a `level` that is the text of the severity: senders that have fields
    /// in objects repeat them there.
    fn spelled_out(&self, key: &[u8], value: &[u8]) -> u16 {
        let below = |key: &[u8]| any::find(value, key).and_then(any::text);
        let is_hex = |id: &[u8]| {
            below(b"id").is_some_and(|text| {
                let mut hex = Vec::new();
                write_hex(&mut hex, id);
                text.eq_ignore_ascii_case(&hex)
            })
        };
        match key {
            b"log" => taken(Reserved::Level, below(b"level") == Some(self.level)),
            b"trace" => taken(Reserved::Trace, is_hex(self.trace)),
            b"span" => taken(Reserved::Span, is_hex(self.span)),
            _ => 0,
        }
    }

    /// Appends the fields whose bits are set, but for those that [`Self::write_head`] writes.
    fn write_tail(&self, bits: u16, start: usize, out: &mut Vec<u8>) {
        let has = |field: Reserved| bits & field as u16 != 0;
        if has(Reserved::Level) {
            write_key(out, b"log.level", start);
            text::write_string(out, self.level);
        }
        let numbers = [
            (
                Reserved::SeverityNumber,
                &b"severity_number"[..],
                self.severity,
            ),
            (Reserved::Flags, b"trace_flags", u64::from(self.flags)),
            (Reserved::Dropped, b"dropped_attributes_count", self.dropped),
        ];
        for (field, name, number) in numbers {
            if has(field) {
                write_key(out, name, start);
                text::write_u64(out, number);
            }
        }
        let ids = [
            (Reserved::Trace, b"trace.id".as_slice(), self.trace),
            (Reserved::Span, b"span.id", self.span),
        ];
        for (field, name, id) in ids {
            if has(field) {
                write_key(out, name, start);
                out.push(b'"');
                write_hex(out, id);
                out.push(b'"');
            }
        }
        if has(Reserved::EventName) {
            write_key(out, b"event_name", start);
            text::write_string(out, self.event_name);
        }
    }
}

/// Whether an event can have this id.
fn is_id(text: &[u8]) -> bool {
    (1..=batch::SENDER_ID_BYTES_MAX).contains(&text.len()) && std::str::from_utf8(text).is_ok()
}

/// Whether an id of a trace or span is there: all zeros stand for none.
fn is_given(id: &[u8]) -> bool {
    id.iter().any(|byte| *byte != 0)
}

fn write_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    let digit = |half: u8| b"0123456789abcdef"[usize::from(half)];
    for byte in bytes {
        out.extend([digit(byte >> 4), digit(byte & 15)]);
    }
}

#[cfg(test)]
mod tests;
