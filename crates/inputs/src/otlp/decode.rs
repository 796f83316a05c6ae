//! From a request to events.
//!
//! The documents of a request are kept until all of them are made, because a request is refused as a whole. They repeat the resource of their
//! records, so that they may be much larger than the request: [`DOCUMENTS_FACTOR`] limits that.

use std::sync::Arc;

use batch::{BatchBuilder, Encoding, Reservation, Span};
use bytes::Bytes;
use codec::otlp::json::to_protobuf;
use codec::otlp::wire::WireError;
use codec::otlp::{Document, Documents};
use codec::{BATCH_BYTES_MAX, BATCH_EVENTS_MAX};

use super::refusal::{Form, Refusal};
use crate::connections::answer::Answer;
use crate::connections::batcher::{Completion, Joiner, Protocol};
use crate::connections::request::{Fault, Received};
use crate::connections::session::Session;

/// How many times larger than the limit on a request its documents may be.
const DOCUMENTS_FACTOR: usize = 8;

/// Documents are moved to memory that is charged when so many bytes of them are there.
const CHUNK_BYTES: usize = 200 << 10;

/// A request that was read whole.
pub(super) struct Message {
    pub(super) received: Received,
    pub(super) form: Form,
    pub(super) session: Arc<Session>,
}

/// How requests become events.
pub(super) struct Decoding {
    body_max: usize,
    documents: Documents,
    events: Events,
}

/// The events of a request.
#[derive(Default)]
struct Events {
    /// Documents and ids that are not moved yet.
    growing: Vec<u8>,
    chunks: Vec<Bytes>,
    events: Vec<Event>,
    /// Bytes of all documents.
    size: usize,
}

/// Where an event lies: its chunk, its document, and its id behind it, if it has one.
#[derive(Clone, Copy)]
struct Event {
    chunk: usize,
    start: u32,
    len: u32,
    id_len: u32,
    has_dotted_keys: bool,
}

type OtlpJoiner = Joiner<(), Refusal>;

impl Decoding {
    pub(super) fn new(body_max: usize, depth_max: usize) -> Self {
        Self {
            body_max,
            documents: Documents::new(depth_max),
            events: Events::default(),
        }
    }

    /// Decompresses and reads a message.
    fn read(&mut self, message: &mut Message, joiner: &mut OtlpJoiner) -> Result<(), Refusal> {
        let body = message.received.whole(self.body_max, joiner);
        let body = body.map_err(Fault::from)?;
        joiner.ctx.metrics.bytes(body.len());
        let reservation = &mut message.received.reservation;
        let converted = match message.form {
            Form::Protobuf => None,
            Form::Json => {
                // What it becomes is never larger.
                joiner.grow(reservation, body.len());
                let mut converted = Vec::new();
                to_protobuf(&body, &mut converted)
                    .map_err(|error| Refusal::malformed(error.to_string()))?;
                Some(converted)
            }
        };
        let request = converted.as_deref().unwrap_or(&body);
        let size_max = self.body_max.saturating_mul(DOCUMENTS_FACTOR);
        let events = &mut self.events;
        let read = self.documents.read(request, |document| {
            if events.size <= size_max {
                events.add(document, joiner, reservation);
            }
        });
        read.map_err(|error: WireError| Refusal::malformed(error.to_string()))?;
        if events.size > size_max {
            return Err(Refusal::too_large(format!(
                "the events of the request are larger than {DOCUMENTS_FACTOR} times `max_request_bytes`"
            )));
        }
        events.end_chunk(joiner, reservation);
        Ok(())
    }
}

impl Events {
    fn clear(&mut self) {
        self.growing.clear();
        self.chunks.clear();
        self.events.clear();
        self.size = 0;
    }

    fn add(
        &mut self,
        document: Document<'_>,
        joiner: &mut OtlpJoiner,
        reservation: &mut Reservation,
    ) {
        let id = document.id.unwrap_or_default();
        self.events.push(Event {
            chunk: self.chunks.len(),
            start: self.growing.len() as u32,
            len: document.text.len() as u32,
            id_len: id.len() as u32,
            has_dotted_keys: document.has_dotted_keys,
        });
        self.growing.extend_from_slice(document.text);
        self.growing.extend_from_slice(id);
        self.size += document.text.len() + id.len() + size_of::<Event>();
        if self.growing.len() >= CHUNK_BYTES {
            self.end_chunk(joiner, reservation);
        }
    }

    /// Moves documents to memory that is charged.
    fn end_chunk(&mut self, joiner: &mut OtlpJoiner, reservation: &mut Reservation) {
        if !self.growing.is_empty() {
            let chunk = joiner.copy(reservation, &self.growing);
            self.chunks.push(chunk.freeze(self.growing.len()));
            self.growing.clear();
        }
    }

    /// Adds events to a batch, from `from` on, until it is full; gives the next one. `first` is the number of the first event.
    fn push(&self, from: usize, first: u64, builder: &mut BatchBuilder) -> usize {
        let mut next = from;
        for event in &self.events[from..] {
            if next > from
                && (builder.len() >= BATCH_EVENTS_MAX || builder.size() >= BATCH_BYTES_MAX)
            {
                break;
            }
            let buffer = builder.shared_buffer(&self.chunks[event.chunk]);
            let &Event { start, len, .. } = event;
            let number = first + next as u64;
            builder.push(Span { buffer, start, len }, number, number + 1);
            if event.has_dotted_keys {
                builder.dotted_keys();
            }
            if event.id_len > 0 {
                // It was checked: the event keeps the id of its place otherwise.
                let _ = builder.id_last(Span {
                    buffer,
                    start: start + len,
                    len: event.id_len,
                });
            }
            next += 1;
        }
        next
    }
}

impl Protocol for Decoding {
    type Message = Message;
    type Mark = ();
    type Reason = Refusal;

    fn add(&mut self, mut message: Message, answer: Answer<Refusal>, joiner: &mut OtlpJoiner) {
        // A message before may have been given up in the middle.
        self.events.clear();
        if let Err(refusal) = self.read(&mut message, joiner) {
            self.events.clear();
            return answer.reject(refusal);
        }
        let count = self.events.events.len();
        let first = message.session.numbers(count);
        let mut from = 0;
        while from < count {
            joiner.join((Encoding::Json, false), (), &answer, |builder| {
                builder.stream(&message.session.stream);
                from = self.events.push(from, first, builder);
            });
        }
        self.events.clear();
        answer.complete();
    }

    fn completion(&self) -> Completion<()> {
        Box::new(|_, _| {})
    }
}
