//! The body of a bulk request: a line for each action, and a line for its document.
//!
//! A body is read a page at a time (see [`crate::connections::pages`]), and whole before anything of it is handed on. Lines that
//! say no action make the request one that Elasticsearch refuses as a whole; a document that cannot be taken fails alone, as do
//! actions that need stored documents. Documents stay the bytes that they were; copied are only those whose keys are put in
//! order (see [`batch::json`]), and carriage returns between their tokens become spaces.
//!
//! What is kept beside the pages is charged to the request's memory as it grows.
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
use crate::connections::pages::{Cut, Take};

/// How much of the lists of a large request is kept for the next ones.
const KEPT_ITEMS: usize = 4 << 10;
const KEPT_BYTES: usize = 256 << 10;

/// How many bytes of lists grow at most before they are charged.
const OWED_MAX: usize = 64 << 10;

/// The longest index, pipeline or routing value, in bytes, and how long its JSON may be.
const SAID_BYTES_MAX: usize = 512;
const SAID_JSON_MAX: usize = 6 * SAID_BYTES_MAX + 2;

const ILLEGAL: &str = "illegal_argument_exception";
const BROKEN: &str = "mapper_parsing_exception";
const INVALID: &str = "action_request_validation_exception";
const TOO_LONG: &str = "index, pipeline and routing may have 512 bytes each";

/// A text in one of the buffers of a request.
#[derive(Debug, Clone, Copy, Default)]
struct TextSpan {
    buffer: u32,
    start: u32,
    len: u32,
}

/// An action and its document.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    /// The target's number.
    target: u32,
    /// The error's number; [`TAKEN`] where there is none.
    error: u32,
    document: TextSpan,
    /// Nothing where the client gave none.
    id: TextSpan,
}

/// That an item has no error.
const TAKEN: u32 = u32::MAX;

/// Why an action is not taken.
#[derive(Debug)]
pub(super) struct ItemError {
    pub(super) status: StatusCode,
    pub(super) kind: &'static str,
    pub(super) reason: String,
}

/// What the items of a request have in common, and what holds for actions that say nothing else.
#[derive(Debug, Default)]
pub(super) struct Defaults {
    /// The body is one document, and this its id.
    pub(super) document: Option<(Verb, Option<String>)>,
    pub(super) index: Option<String>,
    pub(super) pipeline: Option<String>,
    pub(super) routing: Option<String>,
}

impl Defaults {
    /// Where the body is to be cut into pages.
    pub(super) fn cut(&self) -> Cut {
        match self.document {
            Some(_) => Cut::Nowhere,
            None => Cut::Lines,
        }
    }
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

/// What is allowed in a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// How many items.
    pub(super) items: usize,
    /// How deep documents may nest, but no deeper than [`json::DEPTH_MAX`].
    pub(super) depth: usize,
}

/// The items of a request. Reused from request to request, so that its memory stays warm.
#[derive(Debug)]
pub(super) struct Items {
    list: Vec<Item>,
    errors: Vec<ItemError>,
    targets: Vec<Arc<Target>>,
    /// The pages that were read, and what had to be rewritten of each, behind it.
    buffers: Vec<Bytes>,
    /// How many bytes the pages have.
    bytes: usize,
    dotted: bool,
    /// Why the request is refused as a whole.
    failure: Option<Failure>,
    defaults: Defaults,
    limits: Limits,
    known: Targets,
    said: Said,
    reading: Reading,
    /// How much of the list is charged, as items, and what else is to be charged, in bytes.
    charged: usize,
    owed: usize,
}

/// How far the pages of a request are read.
#[derive(Debug, Default)]
struct Reading {
    /// The page, the number of the buffer that it becomes, and where its next line begins.
    page: Bytes,
    number: u32,
    at: usize,
    /// Texts of the page that had to be rewritten.
    rewritten: Vec<u8>,
    checked: Checked,
    /// The number of the last line, from 1.
    line: usize,
    /// The line of the action before in the page, where it gives no id.
    action: Range<usize>,
    /// The action that a document is to follow, and its id.
    pending: Option<(Verb, Option<TextSpan>)>,
}

impl Items {
    /// No items.
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            list: Vec::new(),
            errors: Vec::new(),
            targets: Vec::new(),
            buffers: Vec::new(),
            bytes: 0,
            dotted: false,
            failure: None,
            defaults: Defaults::default(),
            limits,
            known: Targets::default(),
            said: Said::default(),
            reading: Reading::default(),
            charged: 0,
            owed: 0,
        }
    }

    /// Forgets a request, and begins with the next one.
    pub(super) fn begin(&mut self, defaults: Defaults) {
        self.clear();
        self.list.shrink_to(KEPT_ITEMS);
        let mut rewritten = std::mem::take(&mut self.reading.rewritten);
        rewritten.clear();
        rewritten.shrink_to(KEPT_BYTES);
        self.reading = Reading {
            rewritten,
            ..Reading::default()
        };
        (self.failure, self.dotted, self.defaults) = (None, false, defaults);
        (self.bytes, self.charged, self.owed) = (0, 0, 0);
    }

    fn clear(&mut self) {
        self.list.clear();
        self.errors.clear();
        self.targets.clear();
        self.buffers.clear();
    }

    /// Says that the last page was read.
    ///
    /// # Errors
    /// What Elasticsearch refuses as a whole. There are no items then.
    pub(super) fn end(&mut self) -> Result<(), Failure> {
        let failure = self.failure.take();
        let failure = failure.or_else(|| match (&self.reading.pending, self.list.is_empty()) {
            (Some(_), _) => {
                let problem = "expected a document on the next line";
                Some(malformed(self.reading.line, problem))
            }
            (None, true) => Some(Failure::bad("parse_exception", "request body is required")),
            (None, false) => None,
        });
        failure.map_or(Ok(()), |failure| {
            self.clear();
            Err(failure)
        })
    }

    /// Reads the page on; gives whether all of it was read.
    fn read(&mut self, page: &[u8]) -> Result<bool, Failure> {
        if u32::try_from(page.len()).is_err() {
            return Err(Failure::bad(ILLEGAL, "a line is too long"));
        }
        match self.defaults.document.take() {
            Some((verb, id)) => self.single(page, verb, id.as_deref()).map(|()| true),
            None => self.lines(page),
        }
    }

    /// Takes a body that is one document.
    fn single(&mut self, page: &[u8], verb: Verb, id: Option<&str>) -> Result<(), Failure> {
        if page.trim_ascii().is_empty() {
            return Ok(());
        }
        let checked = &mut self.reading.checked;
        checked.next(page, 0..page.len());
        checked.has_returns |= memchr::memchr(b'\n', page).is_some();
        self.say_defaults();
        self.check_said()?;
        self.target(verb);
        let id = id.map(|id| self.beside(|out| out.extend_from_slice(id.as_bytes())));
        self.item(page, 0..page.len(), id, verb);
        Ok(())
    }

    /// Keeps a page that was read, and what was rewritten of it.
    fn keep(&mut self, page: Bytes) {
        self.buffers.push(page);
        let rewritten = &mut self.reading.rewritten;
        if !rewritten.is_empty() {
            self.owed += rewritten.len();
            self.buffers.push(Bytes::copy_from_slice(rewritten));
            rewritten.clear();
            rewritten.shrink_to(KEPT_BYTES);
        }
    }

    fn lines(&mut self, page: &[u8]) -> Result<bool, Failure> {
        while self.reading.at < page.len() {
            if self.owed >= OWED_MAX {
                return Ok(false);
            }
            let Some(line) = self.reading.next_line(page) else {
                let reason = "The bulk request must be terminated by a newline [\\n]";
                return Err(Failure::bad(ILLEGAL, reason));
            };
            match self.reading.pending.take() {
                Some((verb, id)) => self.item(page, line, id, verb),
                None if page[line.clone()].trim_ascii().is_empty() => {}
                None => {
                    let (verb, id) = self.action(page, line)?;
                    self.follow(verb, id);
                }
            }
        }
        Ok(true)
    }

    /// What is to follow an action.
    fn follow(&mut self, verb: Verb, id: Option<TextSpan>) {
        if verb == Verb::Delete {
            let reason = "delete is not accepted: Millpond passes documents on and keeps none";
            let bad = StatusCode::BAD_REQUEST;
            self.refused(TextSpan::default(), id, bad, ILLEGAL, reason);
        } else {
            self.reading.pending = Some((verb, id));
        }
    }

    /// Reads an action; gives its id. Its target is the last one then.
    fn action(
        &mut self,
        page: &[u8],
        line: Range<usize>,
    ) -> Result<(Verb, Option<TextSpan>), Failure> {
        if self.list.len() == self.limits.items {
            let reason = format!(
                "the request has more than {} actions (`max_request_actions`)",
                self.limits.items
            );
            let status = StatusCode::PAYLOAD_TOO_LARGE;
            return Err(Failure::new(status, "content_too_long_exception", reason));
        }
        let reading = &mut self.reading;
        let number = reading.line;
        reading.checked.next(page, line.clone());
        let text = &page[line.clone()];
        if let Some(last) = self.targets.last()
            && text == &page[reading.action.clone()]
        {
            return Ok((last.verb, None));
        }
        if !reading.checked.is_utf8 && simdutf8::basic::from_utf8(text).is_err() {
            return Err(malformed(number, "it is not UTF-8"));
        }
        let (mut verb, fields) = verb_of(text, number)?;
        self.say_defaults();
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
        self.reading.action = if id.is_none() { line } else { 0..0 };
        Ok((verb, id))
    }

    /// Reads what an action says, which begins at `start` of the page: the id, and whether nothing may be there already.
    fn fields(
        &mut self,
        fields: &[u8],
        start: usize,
        number: usize,
    ) -> Result<(Option<TextSpan>, bool), Failure> {
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

    fn say_defaults(&mut self) {
        let (said, defaults) = (&mut self.said, &self.defaults);
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
        let is_it = |last: &Arc<Target>| last.is(verb, &self.said);
        if !self.targets.last().is_some_and(is_it) {
            self.targets.push(self.known.get(verb, &self.said));
            // It may live no longer than the request.
            self.owed += size_of::<Target>() + self.said.bytes();
        }
    }

    /// The id that a value gives: text or a number, as Elasticsearch takes them.
    fn id(&mut self, value: &[u8], start: usize) -> Option<TextSpan> {
        let buffer = self.reading.number;
        let text = |start: usize, len: usize| TextSpan {
            buffer,
            start: start as u32,
            len: len as u32,
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
    fn item(&mut self, page: &[u8], line: Range<usize>, id: Option<TextSpan>, verb: Verb) {
        self.reading.checked.next(page, line.clone());
        let line = trimmed(page, line);
        let bad = StatusCode::BAD_REQUEST;
        match id.map(|id| id.len as usize) {
            Some(0) => {
                let reason = "if _id is specified it must not be empty";
                return self.refused(TextSpan::default(), id, bad, ILLEGAL, reason);
            }
            Some(bytes) if bytes > SENDER_ID_BYTES_MAX => {
                let reason = format!(
                    "id is too long, must be no longer than {SENDER_ID_BYTES_MAX} bytes but was: {bytes}"
                );
                return self.refused(TextSpan::default(), id, bad, ILLEGAL, reason);
            }
            None if verb == Verb::Update => {
                let reason = "Validation Failed: 1: id is missing;";
                return self.refused(TextSpan::default(), id, bad, INVALID, reason);
            }
            _ => {}
        }
        let text = &page[line.clone()];
        let checked = &self.reading.checked;
        let has_returns = checked.has_returns;
        if !checked.is_utf8 && simdutf8::basic::from_utf8(text).is_err() {
            let reason = "failed to parse: the document is not UTF-8";
            return self.refused(TextSpan::default(), id, bad, BROKEN, reason);
        }
        let scan = match json::validate_object_within(text, self.limits.depth) {
            Ok(scan) => scan,
            Err(error) => {
                let reason = format!("failed to parse: invalid JSON: {error}");
                return self.refused(TextSpan::default(), id, bad, BROKEN, reason);
            }
        };
        let mut place = TextSpan {
            buffer: self.reading.number,
            start: line.start as u32,
            len: line.len() as u32,
        };
        let has_returns = has_returns && memchr::memchr2(b'\r', b'\n', text).is_some();
        if scan.rewrite || has_returns {
            place = self.rewrite(text, scan.rewrite);
        }
        if verb == Verb::Update {
            let buffer = match place.buffer == self.reading.number {
                true => page,
                false => &self.reading.rewritten,
            };
            let Some(document) = upserted(place.of(buffer)) else {
                let reason = "document missing: Millpond keeps none, and takes an update only with `doc` and `doc_as_upsert: true`";
                let (status, kind) = (StatusCode::NOT_FOUND, "document_missing_exception");
                return self.refused(place, id, status, kind, reason);
            };
            place.start += document.start as u32;
            place.len = document.len() as u32;
        }
        self.dotted |= scan.dotted_keys;
        self.push_item(place, id, TAKEN);
    }

    /// A document in normal form and on one line.
    #[cold]
    fn rewrite(&mut self, text: &[u8], normalises: bool) -> TextSpan {
        let place = self.beside(|out| match normalises {
            true => json::normalise(text, out),
            false => out.extend_from_slice(text),
        });
        // Within a string a line feed is written `\n`: what is found stands between tokens.
        for byte in &mut self.reading.rewritten[place.start as usize..] {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        place
    }

    /// A text in the buffer behind the page's.
    fn beside(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> TextSpan {
        let rewritten = &mut self.reading.rewritten;
        let start = rewritten.len();
        write(rewritten);
        TextSpan {
            buffer: self.reading.number + 1,
            start: start as u32,
            len: (rewritten.len() - start) as u32,
        }
    }

    #[cold]
    fn refused(
        &mut self,
        place: TextSpan,
        id: Option<TextSpan>,
        status: StatusCode,
        kind: &'static str,
        reason: impl Into<String>,
    ) {
        let error = ItemError {
            status,
            kind,
            reason: reason.into(),
        };
        self.owed += size_of::<ItemError>() + error.reason.len();
        self.push_item(place, id, self.errors.len() as u32);
        self.errors.push(error);
    }

    fn push_item(&mut self, document: TextSpan, id: Option<TextSpan>, error: u32) {
        self.list.push(Item {
            target: self.targets.len() as u32 - 1,
            error,
            document,
            id: id.unwrap_or_default(),
        });
        let capacity = self.list.capacity();
        if capacity > self.charged {
            self.owed += (capacity - self.charged) * size_of::<Item>();
            self.charged = capacity;
        }
    }
}

impl Take for Items {
    fn page(&mut self, page: Bytes) {
        self.bytes += page.len();
        let reading = &mut self.reading;
        (reading.page, reading.number) = (page, self.buffers.len() as u32);
        (reading.at, reading.action, reading.checked) = (0, 0..0, Checked::default());
    }

    fn go_on(&mut self) -> Option<usize> {
        let page = std::mem::take(&mut self.reading.page);
        if !page.is_empty() && self.failure.is_none() {
            match self.read(&page) {
                Ok(true) => self.keep(page),
                Ok(false) => self.reading.page = page,
                Err(failure) => {
                    self.clear();
                    self.failure = Some(failure);
                }
            }
        }
        let owed = std::mem::take(&mut self.owed);
        (owed > 0).then_some(owed)
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

    /// How many bytes the pages have.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Each item: its target, the id that its client gave, and why it is not taken.
    pub(super) fn each(
        &self,
    ) -> impl Iterator<Item = (&Target, Option<&[u8]>, Option<&ItemError>)> {
        self.list.iter().map(|item| {
            let id = (item.id.len > 0).then(|| item.id.of(&self.buffers[item.id.buffer as usize]));
            // None has the number of `TAKEN`.
            let error = self.errors.get(item.error as usize);
            (&*self.targets[item.target as usize], id, error)
        })
    }

    /// Adds the items that are taken, from the one numbered `from` on, as many as the batch takes; gives the number behind
    /// the last one, with which the next call goes on, and the targets of the rows. Item `n` has the place `first + n` in the stream.
    pub(super) fn push(
        &self,
        from: usize,
        (stream, first): (&Arc<Stream>, u64),
        builder: &mut BatchBuilder,
    ) -> (usize, Runs) {
        builder.stream(stream);
        if self.dotted {
            builder.dotted_keys();
        }
        let mut buffers = vec![None; self.buffers.len()];
        let mut span = |place: TextSpan, builder: &mut BatchBuilder| {
            let number = place.buffer as usize;
            let buffer = *buffers[number]
                .get_or_insert_with(|| builder.buffer(self.buffers[number].clone()));
            Span {
                buffer,
                start: place.start,
                len: place.len,
            }
        };
        let mut runs: Runs = Vec::new();
        let mut last = None;
        let mut next = from;
        for item in &self.list[from..] {
            if builder.len() >= BATCH_EVENTS_MAX || builder.size() >= BATCH_BYTES_MAX {
                break;
            }
            next += 1;
            if item.error != TAKEN {
                continue;
            }
            let place = first + (next - 1) as u64;
            let document = span(item.document, builder);
            builder.push(document, place, place + 1);
            if item.id.len > 0 {
                let id = span(item.id, builder);
                if builder.id_last(id).is_err() {
                    unreachable!("the id was checked when it was read");
                }
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

impl Reading {
    /// The next line of the page, without its end.
    #[inline]
    fn next_line(&mut self, page: &[u8]) -> Option<Range<usize>> {
        let start = self.at;
        let end = start + memchr::memchr(b'\n', &page[start..])?;
        self.at = end + 1;
        self.line += 1;
        let has_return = end > start && page[end - 1] == b'\r';
        Some(start..end - usize::from(has_return))
    }
}

impl TextSpan {
    fn of(self, buffer: &[u8]) -> &[u8] {
        &buffer[self.start as usize..(self.start + self.len) as usize]
    }
}

#[cfg(test)]
mod tests;
