//! The body of a bulk request: a line for each action, and a line for its document.
//!
//! A body is read whole before anything of it is taken. Lines that say no action make the request one that Elasticsearch
//! refuses as a whole; a document that cannot be taken fails alone, as do actions that need stored documents. Documents stay
//! the bytes that they were; copied are only those whose keys are put in order (see [`batch::json`]), and carriage
//! returns between their tokens become spaces.
//!
//! Format: <https://www.elastic.co/docs/api/doc/elasticsearch/operation/operation-bulk>. Actions that name versions or
//! sequence numbers are taken without them.

use std::ops::Range;
use std::sync::Arc;

use batch::{BatchBuilder, SENDER_ID_BYTES_MAX, Span, Stream, json};
use bytes::Bytes;
use codec::{BATCH_BYTES_MAX, BATCH_EVENTS_MAX};
use http::StatusCode;

use super::failure::Failure;
use super::target::{Runs, Said, Target, Targets, Verb};

/// How much of the lists of a large request is kept for the next ones.
const KEPT_ITEMS: usize = 16 << 10;
const KEPT_BYTES: usize = 1 << 20;

/// The longest index, pipeline or routing value, in bytes, and how long its JSON may be.
const SAID_BYTES_MAX: usize = 512;
const SAID_JSON_MAX: usize = 6 * SAID_BYTES_MAX + 2;

const ILLEGAL: &str = "illegal_argument_exception";
const BROKEN: &str = "mapper_parsing_exception";
const INVALID: &str = "action_request_validation_exception";
const TOO_LONG: &str = "index, pipeline and routing may have 512 bytes each";

/// A text in the body or beside it.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    start: u32,
    len: u32,
    is_beside: bool,
}

/// An action and its document.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    /// The target's number.
    target: u32,
    /// The error's number, where it is not taken.
    error: Option<u32>,
    document: Place,
    /// Nothing where the client gave none.
    id: Place,
}

/// Why an action is not taken.
#[derive(Debug)]
pub(super) struct ItemError {
    pub(super) status: StatusCode,
    pub(super) kind: &'static str,
    pub(super) reason: String,
}

/// What holds for actions that say nothing else.
#[derive(Debug, Default)]
pub(super) struct Defaults {
    pub(super) index: Option<String>,
    pub(super) pipeline: Option<String>,
    pub(super) routing: Option<String>,
}

/// What is known of the bytes around a line, which are checked a piece at a time: they are in the processor's cache then when
/// the lines are read.
#[derive(Debug, Default)]
struct Checked {
    end: usize,
    is_utf8: bool,
    has_returns: bool,
}

/// How many bytes are checked at a time.
const PIECE_BYTES: usize = 32 << 10;

impl Checked {
    /// Goes on to the next line, with which others are checked.
    #[inline]
    fn next(&mut self, body: &[u8], line: Range<usize>) {
        if line.end > self.end {
            self.check(body, line);
        }
    }

    fn check(&mut self, body: &[u8], line: Range<usize>) {
        let most = body.len().min(line.start + PIECE_BYTES).max(line.end);
        let whole = memchr::memrchr(b'\n', &body[line.end..most]);
        self.end = whole.map_or(line.end, |at| line.end + at);
        let piece = &body[line.start..self.end];
        self.is_utf8 = simdutf8::basic::from_utf8(piece).is_ok();
        self.has_returns = memchr::memchr(b'\r', piece).is_some();
    }
}

/// The items of a request. Reused from request to request, so that its memory stays warm.
#[derive(Debug)]
pub(super) struct Items {
    list: Vec<Item>,
    errors: Vec<ItemError>,
    targets: Vec<Arc<Target>>,
    /// Texts that had to be rewritten, while the body is read and then for the batches.
    rewritten: Vec<u8>,
    side: Bytes,
    dotted: bool,
    checked: Checked,
    known: Targets,
    said: Said,
    /// The line of the action before, where it gives no id.
    line: Range<usize>,
    /// How deep documents may nest.
    depth_max: usize,
}

impl Items {
    /// No items; documents may nest `depth_max` deep, but no deeper than [`json::DEPTH_MAX`].
    pub(super) fn new(depth_max: usize) -> Self {
        Self {
            list: Vec::new(),
            errors: Vec::new(),
            targets: Vec::new(),
            rewritten: Vec::new(),
            side: Bytes::new(),
            dotted: false,
            checked: Checked::default(),
            known: Targets::default(),
            said: Said::default(),
            line: 0..0,
            depth_max,
        }
    }

    /// Reads a body, forgetting the one before.
    ///
    /// # Errors
    /// What Elasticsearch refuses as a whole. There are no items then.
    pub(super) fn read(
        &mut self,
        body: &[u8],
        defaults: &Defaults,
        items_max: usize,
    ) -> Result<(), Failure> {
        self.begin(body)?;
        let read = self.lines(body, defaults, items_max);
        if read.is_err() {
            self.list.clear();
        }
        read
    }

    /// Takes a body that is one document.
    ///
    /// # Errors
    /// There is no body.
    pub(super) fn single(
        &mut self,
        body: &[u8],
        defaults: &Defaults,
        verb: Verb,
        id: Option<&str>,
    ) -> Result<(), Failure> {
        self.begin(body)?;
        self.checked.next(body, 0..body.len());
        self.checked.has_returns |= memchr::memchr(b'\n', body).is_some();
        self.say_defaults(defaults);
        self.check_said()?;
        self.target(verb);
        let id = id.map(|id| self.beside(|out| out.extend_from_slice(id.as_bytes())));
        self.item(body, 0..body.len(), id, verb);
        Ok(())
    }

    fn begin(&mut self, body: &[u8]) -> Result<(), Failure> {
        self.list.clear();
        self.list.shrink_to(KEPT_ITEMS);
        self.rewritten.clear();
        self.rewritten.shrink_to(KEPT_BYTES);
        self.errors.clear();
        self.targets.clear();
        (self.side, self.dotted, self.line) = (Bytes::new(), false, 0..0);
        if body.trim_ascii().is_empty() {
            return Err(Failure::bad("parse_exception", "request body is required"));
        }
        if u32::try_from(body.len()).is_err() {
            return Err(Failure::bad(ILLEGAL, "the body is too long"));
        }
        self.checked = Checked::default();
        Ok(())
    }

    fn lines(&mut self, body: &[u8], defaults: &Defaults, items_max: usize) -> Result<(), Failure> {
        let mut lines = Lines {
            body,
            at: 0,
            number: 0,
        };
        if body.last() != Some(&b'\n') {
            let reason = "The bulk request must be terminated by a newline [\\n]";
            return Err(Failure::bad(ILLEGAL, reason));
        }
        while let Some(line) = lines.next() {
            if body[line.clone()].trim_ascii().is_empty() {
                continue;
            }
            if self.list.len() == items_max {
                let reason = format!("the request has more than {items_max} actions");
                let status = StatusCode::PAYLOAD_TOO_LARGE;
                return Err(Failure::new(status, "content_too_long_exception", reason));
            }
            let (verb, id) = self.action(body, line, lines.number, defaults)?;
            if verb == Verb::Delete {
                let reason = "delete is not accepted: Millpond passes documents on and keeps none";
                self.refused(
                    Place::default(),
                    id,
                    StatusCode::BAD_REQUEST,
                    ILLEGAL,
                    reason,
                );
                continue;
            }
            let Some(document) = lines.next() else {
                let problem = "expected a document on the next line";
                return Err(malformed(lines.number, problem));
            };
            self.item(body, document, id, verb);
        }
        match self.list.is_empty() {
            true => {
                let reason = "Validation Failed: 1: no requests added;";
                Err(Failure::bad(INVALID, reason))
            }
            false => Ok(()),
        }
    }

    /// Reads an action; gives its id. Its target is the last one then.
    fn action(
        &mut self,
        body: &[u8],
        line: Range<usize>,
        number: usize,
        defaults: &Defaults,
    ) -> Result<(Verb, Option<Place>), Failure> {
        self.checked.next(body, line.clone());
        let text = &body[line.clone()];
        if let Some(last) = self.targets.last()
            && text == &body[self.line.clone()]
        {
            return Ok((last.verb, None));
        }
        if !self.checked.is_utf8 && simdutf8::basic::from_utf8(text).is_err() {
            return Err(malformed(number, "it is not UTF-8"));
        }
        let (mut verb, fields) = verb_of(text, number)?;
        self.say_defaults(defaults);
        let (id, only_creates) =
            self.fields(&text[fields.clone()], line.start + fields.start, number)?;
        if only_creates && verb == Verb::Index {
            verb = Verb::Create;
        }
        self.check_said()?;
        if self.said.index.is_empty() {
            let reason = format!("Validation Failed: 1: index is missing on line [{number}];");
            return Err(Failure::bad(INVALID, reason));
        }
        self.target(verb);
        self.line = if id.is_none() { line } else { 0..0 };
        Ok((verb, id))
    }

    /// Reads what an action says, which begins at `start` of the body: the id, and whether nothing may be there already.
    fn fields(
        &mut self,
        fields: &[u8],
        start: usize,
        number: usize,
    ) -> Result<(Option<Place>, bool), Failure> {
        let (mut id, mut only_creates) = (None, false);
        for member in json::members(fields) {
            let place = start + member.value.start;
            let value = &fields[member.value];
            let said = match member.key {
                b"_index" => &mut self.said.index,
                b"pipeline" => &mut self.said.pipeline,
                b"routing" | b"_routing" => &mut self.said.routing,
                b"_id" => {
                    id = self.id(value, place);
                    continue;
                }
                b"op_type" => {
                    only_creates = value == b"\"create\"";
                    continue;
                }
                key if is_ignored(key) => continue,
                key => {
                    let key = shown(key);
                    let reason = format!(
                        "Action/metadata line [{number}] contains an unknown parameter [{key}]"
                    );
                    return Err(Failure::bad(ILLEGAL, reason));
                }
            };
            if value.len() > SAID_JSON_MAX {
                return Err(Failure::bad(ILLEGAL, TOO_LONG));
            }
            say(said, value);
        }
        Ok((id, only_creates))
    }

    fn check_said(&self) -> Result<(), Failure> {
        if self.said.index.iter().any(u8::is_ascii_control) {
            let reason = "invalid index name: it contains control characters";
            return Err(Failure::bad("invalid_index_name_exception", reason));
        }
        let said = [&self.said.index, &self.said.pipeline, &self.said.routing];
        match said.iter().any(|text| text.len() > SAID_BYTES_MAX) {
            true => Err(Failure::bad(ILLEGAL, TOO_LONG)),
            false => Ok(()),
        }
    }

    fn say_defaults(&mut self, defaults: &Defaults) {
        let said = &mut self.said;
        for (said, default) in [
            (&mut said.index, &defaults.index),
            (&mut said.pipeline, &defaults.pipeline),
            (&mut said.routing, &defaults.routing),
        ] {
            said.clear();
            said.extend_from_slice(default.as_deref().unwrap_or_default().as_bytes());
        }
    }

    /// Makes what was said the last target.
    fn target(&mut self, verb: Verb) {
        let target = self.known.get(verb, &self.said);
        let is_last = |last: &Arc<Target>| Arc::ptr_eq(last, &target);
        if !self.targets.last().is_some_and(is_last) {
            self.targets.push(target);
        }
    }

    /// The id that a value gives: text or a number, as Elasticsearch takes them.
    fn id(&mut self, value: &[u8], start: usize) -> Option<Place> {
        let text = |start: usize, len: usize| Place {
            start: start as u32,
            len: len as u32,
            is_beside: false,
        };
        match json::kind(value) {
            json::Kind::Null => None,
            json::Kind::String => {
                let plain = &value[1..value.len() - 1];
                Some(match json::has_escape(plain) {
                    true => self.beside(|out| json::unescape(plain, out)),
                    false => text(start + 1, plain.len()),
                })
            }
            _ => Some(text(start, value.len())),
        }
    }

    /// Takes a document, or says why not.
    fn item(&mut self, body: &[u8], line: Range<usize>, id: Option<Place>, verb: Verb) {
        self.checked.next(body, line.clone());
        let line = trimmed(body, line);
        let bad = StatusCode::BAD_REQUEST;
        match id.map(|id| id.len as usize) {
            Some(0) => {
                let reason = "if _id is specified it must not be empty";
                return self.refused(Place::default(), id, bad, ILLEGAL, reason);
            }
            Some(bytes) if bytes > SENDER_ID_BYTES_MAX => {
                let reason = format!(
                    "id is too long, must be no longer than {SENDER_ID_BYTES_MAX} bytes but was: {bytes}"
                );
                return self.refused(Place::default(), id, bad, ILLEGAL, reason);
            }
            None if verb == Verb::Update => {
                let reason = "Validation Failed: 1: id is missing;";
                return self.refused(Place::default(), id, bad, INVALID, reason);
            }
            _ => {}
        }
        let text = &body[line.clone()];
        if !self.checked.is_utf8 && simdutf8::basic::from_utf8(text).is_err() {
            let reason = "failed to parse: the document is not UTF-8";
            return self.refused(Place::default(), id, bad, BROKEN, reason);
        }
        let scan = match json::validate_object_within(text, self.depth_max) {
            Ok(scan) => scan,
            Err(error) => {
                let reason = format!("failed to parse: invalid JSON: {error}");
                return self.refused(Place::default(), id, bad, BROKEN, reason);
            }
        };
        let mut place = Place {
            start: line.start as u32,
            len: line.len() as u32,
            is_beside: false,
        };
        let has_returns = self.checked.has_returns && memchr::memchr2(b'\r', b'\n', text).is_some();
        if scan.rewrite || has_returns {
            place = self.rewrite(text, scan.rewrite);
        }
        if verb == Verb::Update {
            let Some(document) = upserted(self.text(body, place)) else {
                let reason = "document missing: Millpond keeps none, and takes an update only with `doc` and `doc_as_upsert: true`";
                let (status, kind) = (StatusCode::NOT_FOUND, "document_missing_exception");
                return self.refused(place, id, status, kind, reason);
            };
            place.start += document.start as u32;
            place.len = document.len() as u32;
        }
        self.dotted |= scan.dotted_keys;
        self.push_item(place, id, None);
    }

    /// A document in normal form and on one line.
    #[cold]
    fn rewrite(&mut self, text: &[u8], normalises: bool) -> Place {
        let place = self.beside(|out| match normalises {
            true => json::normalise(text, out),
            false => out.extend_from_slice(text),
        });
        // Within a string a line feed is written `\n`: what is found stands between tokens.
        for byte in &mut self.rewritten[place.start as usize..] {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        place
    }

    fn text<'a>(&'a self, body: &'a [u8], place: Place) -> &'a [u8] {
        let from = match place.is_beside {
            true => &self.rewritten,
            false => body,
        };
        &from[place.start as usize..(place.start + place.len) as usize]
    }

    fn beside(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Place {
        let start = self.rewritten.len();
        write(&mut self.rewritten);
        Place {
            start: start as u32,
            len: (self.rewritten.len() - start) as u32,
            is_beside: true,
        }
    }

    #[cold]
    fn refused(
        &mut self,
        place: Place,
        id: Option<Place>,
        status: StatusCode,
        kind: &'static str,
        reason: impl Into<String>,
    ) {
        self.push_item(place, id, Some(self.errors.len() as u32));
        self.errors.push(ItemError {
            status,
            kind,
            reason: reason.into(),
        });
    }

    fn push_item(&mut self, document: Place, id: Option<Place>, error: Option<u32>) {
        self.list.push(Item {
            target: self.targets.len() as u32 - 1,
            error,
            document,
            id: id.unwrap_or_default(),
        });
    }
}

/// What is done with items that were read.
impl Items {
    /// How many there are, those that are not taken included.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Why items are not taken.
    pub(super) fn errors(&self) -> &[ItemError] {
        &self.errors
    }

    /// The bytes that had to be rewritten, to be kept by the caller.
    pub(super) fn rewritten(&self) -> &[u8] {
        &self.rewritten
    }

    /// Says where the rewritten bytes are kept.
    pub(super) fn keep_beside(&mut self, side: Bytes) {
        self.side = side;
    }

    /// Each item: its target, the id that its client gave, and why it is not taken.
    pub(super) fn each<'a>(
        &'a self,
        body: &'a [u8],
    ) -> impl Iterator<Item = (&'a Target, Option<&'a [u8]>, Option<&'a ItemError>)> {
        self.list.iter().map(move |item| {
            let id = (item.id.len > 0).then(|| self.text(body, item.id));
            let error = item.error.map(|error| &self.errors[error as usize]);
            (&*self.targets[item.target as usize], id, error)
        })
    }

    /// Adds the items that are taken, from the one numbered `from` on, as many as the batch takes; gives the number behind
    /// the last one, with which the next call goes on, and the targets of the rows. Item `n` has the place `first + n` in the stream.
    pub(super) fn push(
        &self,
        body: &Bytes,
        from: usize,
        (stream, first): (&Arc<Stream>, u64),
        builder: &mut BatchBuilder,
    ) -> (usize, Runs) {
        builder.stream(stream);
        let inside = builder.buffer(body.clone());
        let beside = match self.side.is_empty() {
            true => inside,
            false => builder.buffer(self.side.clone()),
        };
        if self.dotted {
            builder.dotted_keys();
        }
        let span = |place: Place| Span {
            buffer: if place.is_beside { beside } else { inside },
            start: place.start,
            len: place.len,
        };
        let mut runs: Runs = Vec::new();
        let mut last = None;
        let mut next = from;
        for item in &self.list[from..] {
            if builder.len() >= BATCH_EVENTS_MAX || builder.size() >= BATCH_BYTES_MAX {
                break;
            }
            next += 1;
            if item.error.is_some() {
                continue;
            }
            let place = first + (next - 1) as u64;
            builder.push(span(item.document), place, place + 1);
            if item.id.len > 0 && builder.id_last(span(item.id)).is_err() {
                unreachable!("the id was checked when it was read");
            }
            if last != Some(item.target) {
                last = Some(item.target);
                runs.push((0, self.targets[item.target as usize].clone()));
            }
            if let Some(run) = runs.last_mut() {
                run.0 += 1;
            }
        }
        (next, runs)
    }
}

/// The document of an update that is stored where there is none.
fn upserted(update: &[u8]) -> Option<Range<usize>> {
    let is_upsert = json::find(update, b"doc_as_upsert").is_some_and(|at| &update[at] == b"true");
    let document = json::find(update, b"doc").filter(|_| is_upsert)?;
    (json::kind(&update[document.clone()]) == json::Kind::Object).then_some(document)
}

/// Takes the text of a value; null says nothing.
fn say(said: &mut Vec<u8>, value: &[u8]) {
    match json::kind(value) {
        json::Kind::Null => {}
        json::Kind::String => {
            said.clear();
            json::unescape(&value[1..value.len() - 1], said);
        }
        _ => {
            said.clear();
            said.extend_from_slice(value);
        }
    }
}

/// What an action is, and where its fields are in its line.
fn verb_of(line: &[u8], number: usize) -> Result<(Verb, Range<usize>), Failure> {
    json::validate_object(line).map_err(|error| malformed(number, &error.to_string()))?;
    let mut members = json::members(line);
    let (Some(member), None) = (members.next(), members.next()) else {
        return Err(malformed(number, "expected one action"));
    };
    let Some(verb) = Verb::of(member.key) else {
        let problem = format!(
            "expected field [create], [delete], [index] or [update] but found [{}]",
            shown(member.key)
        );
        return Err(malformed(number, &problem));
    };
    match json::kind(&line[member.value.clone()]) {
        json::Kind::Object => Ok((verb, member.value)),
        _ => Err(malformed(number, "expected START_OBJECT")),
    }
}

fn malformed(number: usize, problem: &str) -> Failure {
    let reason = format!("Malformed action/metadata line [{number}], {problem}");
    Failure::bad(ILLEGAL, reason)
}

/// What an action may say that has no meaning for documents that are passed on.
fn is_ignored(key: &[u8]) -> bool {
    matches!(
        key,
        b"_type"
            | b"version"
            | b"_version"
            | b"version_type"
            | b"_version_type"
            | b"if_seq_no"
            | b"if_primary_term"
            | b"retry_on_conflict"
            | b"_retry_on_conflict"
            | b"_source"
            | b"require_alias"
            | b"require_data_stream"
            | b"dynamic_templates"
            | b"list_executed_pipelines"
    )
}

/// A range without the whitespace at its ends.
fn trimmed(body: &[u8], range: Range<usize>) -> Range<usize> {
    let text = &body[range.clone()];
    let start = range.start + (text.len() - text.trim_ascii_start().len());
    start..start + text.trim_ascii().len()
}

/// The beginning of a key, for messages.
fn shown(key: &[u8]) -> String {
    let key = String::from_utf8_lossy(&key[..key.len().min(64)]);
    key.escape_debug().collect()
}

/// The lines of a body, without their ends.
struct Lines<'a> {
    body: &'a [u8],
    at: usize,
    /// The number of the last line, from 1.
    number: usize,
}

impl Lines<'_> {
    #[inline]
    fn next(&mut self) -> Option<Range<usize>> {
        let start = self.at;
        let end = start + memchr::memchr(b'\n', &self.body[start..])?;
        self.at = end + 1;
        self.number += 1;
        let has_return = end > start && self.body[end - 1] == b'\r';
        Some(start..end - usize::from(has_return))
    }
}

#[cfg(test)]
mod tests;
