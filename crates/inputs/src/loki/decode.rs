//! From the body of a request to events.

use std::sync::Arc;

use batch::{Reservation, json};
use bytes::Bytes;
use http::StatusCode;
use snap::raw::{Decoder, decompress_len};

use super::entry::Writing;
use super::item::Item;
use super::{json_form, proto};
use crate::connections::answer::Answer;
use crate::connections::batcher::{Completion, Joiner, Protocol};
use crate::connections::refusal::Refusal;
use crate::connections::rendered::{Rendered, id_key};
use crate::connections::request::{Fault, Received};
use crate::connections::session::Session;

/// How many times larger than the limit on a request its events may be. Each of them repeats the labels of its stream.
const EVENTS_FACTOR: usize = 8;

/// How a push request is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    /// Protobuf, compressed with snappy.
    Protobuf,
}

/// A request that was read whole.
pub(super) struct Message {
    pub(super) received: Received,
    pub(super) format: Format,
    pub(super) session: Arc<Session>,
    /// A JSON object that is readable under `@metadata`; nothing where there is none.
    pub(super) metadata: Vec<u8>,
}

/// How requests become events.
pub(super) struct Decoding {
    body_max: usize,
    id_key: Option<Vec<u8>>,
    writing: Writing,
    rendered: Rendered,
}

/// A body that was decompressed and checked.
struct Checked {
    body: Bytes,
    count: usize,
    has_dots: bool,
}

type LokiJoiner = Joiner<(), Refusal>;

impl Protocol for Decoding {
    type Message = Message;
    type Mark = ();
    type Reason = Refusal;

    fn add(&mut self, mut message: Message, answer: Answer<Refusal>, joiner: &mut LokiJoiner) {
        let checked = match self.check(&mut message, joiner) {
            Ok(checked) => checked,
            Err(refusal) => return answer.reject(refusal),
        };
        if checked.count > 0 {
            self.push(&mut message, &checked, &answer, joiner);
        }
        answer.complete();
    }

    fn completion(&self) -> Completion<()> {
        Box::new(|_, _| {})
    }
}

impl Decoding {
    /// Bodies hold `body_max` bytes at most. `id_field` is the structured metadata that is an event's id.
    pub(super) fn new(body_max: usize, id_field: Option<&str>) -> Self {
        Self {
            body_max,
            id_key: id_field.map(id_key),
            writing: Writing::default(),
            rendered: Rendered::default(),
        }
    }

    fn check(
        &mut self,
        message: &mut Message,
        joiner: &mut LokiJoiner,
    ) -> Result<Checked, Refusal> {
        let whole = message.received.whole(self.body_max, joiner);
        let body = whole.map_err(Fault::from)?;
        joiner.ctx.metrics.bytes(body.len());
        let reservation = &mut message.received.reservation;
        let (body, has_dots) = match message.format {
            Format::Json => normal(body, reservation, joiner)?,
            Format::Protobuf => (self.decompressed(&body, reservation, joiner)?, false),
        };
        let (mut count, mut labels_size) = (0, 0_usize);
        let writing = &mut self.writing;
        let checked = walk(message.format, &body, &mut |item| match item {
            Item::Stream(labels) => writing.stream(labels),
            Item::Entry(_) => {
                count += 1;
                labels_size = labels_size.saturating_add(writing.labels_size());
                Ok(())
            }
        });
        checked.map_err(bad)?;
        if labels_size > self.body_max.saturating_mul(EVENTS_FACTOR) {
            let reason = format!(
                "the entries with the labels of their streams are larger than {EVENTS_FACTOR} times `max_request_bytes`"
            );
            return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, reason));
        }
        Ok(Checked {
            body,
            count,
            has_dots,
        })
    }

    /// Decompresses a body of snappy's block format, which begins with its length.
    fn decompressed(
        &self,
        body: &[u8],
        reservation: &mut Reservation,
        joiner: &mut LokiJoiner,
    ) -> Result<Bytes, Refusal> {
        if body.is_empty() {
            return Err(bad("the body is empty"));
        }
        let damaged = |error: snap::Error| bad(format!("the body cannot be decompressed: {error}"));
        let len = decompress_len(body).map_err(damaged)?;
        if len > self.body_max {
            return Err(Fault::InflatesTooLarge.into());
        }
        let size = reservation.pool().fitting(len).max(len);
        joiner.grow(reservation, size);
        let mut buffer = reservation.take(size);
        let decompressed = Decoder::new().decompress(body, &mut buffer);
        let len = decompressed.map_err(damaged)?;
        Ok(buffer.freeze_fitting(len))
    }

    /// Writes the entries of a body that was checked, and adds them to batches.
    fn push(
        &mut self,
        message: &mut Message,
        checked: &Checked,
        answer: &Answer<Refusal>,
        joiner: &mut LokiJoiner,
    ) {
        let Message {
            received,
            session,
            metadata,
            format,
        } = message;
        let reservation = &mut received.reservation;
        let (writing, rendered) = (&mut self.writing, &mut self.rendered);
        let mut next = session.numbers(checked.count);
        let mut leave = |rendered: &mut Rendered| {
            if checked.has_dots {
                rendered.dotted_keys();
            }
            let place = (&session.stream, next);
            next += rendered.len() as u64;
            rendered.leave(&(), place, reservation, answer, joiner);
        };
        // A panic may have left something.
        rendered.clear();
        writing.chunk(metadata, rendered);
        let written = walk(*format, &checked.body, &mut |item| {
            match item {
                Item::Stream(labels) => writing.stream(labels)?,
                Item::Entry(entry) => {
                    writing.entry(&entry, self.id_key.as_deref(), rendered)?;
                    if rendered.is_full() {
                        leave(rendered);
                        writing.chunk(metadata, rendered);
                    }
                }
            }
            Ok(())
        });
        if let Err(reason) = written {
            unreachable!("the body was checked: {reason}");
        }
        leave(rendered);
    }
}

/// Calls for every stream and its entries.
fn walk(
    format: Format,
    body: &[u8],
    visit: &mut impl FnMut(Item<'_>) -> Result<(), String>,
) -> Result<(), String> {
    match format {
        Format::Json => json_form::walk(body, visit),
        Format::Protobuf => proto::walk(body, visit),
    }
}

/// Checks a body of JSON; gives it in normal form, and whether some key has a dot.
fn normal(
    body: Bytes,
    reservation: &mut Reservation,
    joiner: &mut LokiJoiner,
) -> Result<(Bytes, bool), Refusal> {
    if let Err(error) = std::str::from_utf8(&body) {
        return Err(bad(format!(
            "the body is not UTF-8 at byte {}",
            error.valid_up_to()
        )));
    }
    let scan = json::validate_object(&body);
    let scan = scan.map_err(|error| bad(format!("invalid JSON: {error}")))?;
    if !scan.rewrite {
        return Ok((body, scan.dotted_keys));
    }
    let mut normal = Vec::new();
    json::normalise(&body, &mut normal);
    let len = normal.len();
    let normal = joiner.copy(reservation, &normal).freeze(len);
    Ok((normal, scan.dotted_keys))
}

fn bad(reason: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, reason)
}
