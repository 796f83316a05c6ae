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

#[cfg(test)]
mod tests {
    use codec::otlp::any::{from_json, write_member};
    use codec::otlp::wire::{bytes_tag, write_bytes};

    use crate::otlp::probe::{Sending, otlp};

    /// A request with these records, of a resource with an attribute of so many bytes.
    fn request(records: &[Vec<u8>], resource: usize) -> Vec<u8> {
        let (mut of, mut scope) = (Vec::new(), Vec::new());
        let attribute = format!("\"{}\"", "x".repeat(resource));
        write_member(&mut of, bytes_tag(1), b"a", attribute.as_bytes());
        for record in records {
            write_bytes(&mut scope, bytes_tag(2), record);
        }
        let (mut logs, mut request) = (Vec::new(), Vec::new());
        if resource > 0 {
            write_bytes(&mut logs, bytes_tag(1), &of);
        }
        write_bytes(&mut logs, bytes_tag(2), &scope);
        write_bytes(&mut request, bytes_tag(1), &logs);
        request
    }

    fn record(body: &str, id: Option<&str>) -> Vec<u8> {
        let (mut any, mut record) = (Vec::new(), Vec::new());
        from_json(body.as_bytes(), &mut any);
        write_bytes(&mut record, bytes_tag(5), &any);
        if let Some(id) = id {
            let id = format!("\"{id}\"");
            write_member(&mut record, bytes_tag(6), b"log.record.uid", id.as_bytes());
        }
        record
    }

    #[test]
    fn ids_are_those_of_the_sender_or_of_the_connection() {
        let records = [record("\"one\"", Some("sent")), record("\"two\"", None)];
        let decoded = otlp(&request(&records, 0), Sending::Protobuf);
        assert_eq!(decoded.fault, None);
        assert_eq!(decoded.events[0], r#"sent {"message":"one"}"#);
        let (id, event) = decoded.events[1].split_once(' ').expect("an id");
        assert!(id.ends_with("-1-2"), "{id}");
        assert_eq!(event, r#"{"message":"two"}"#);
    }

    #[test]
    fn many_events_are_spread_over_chunks_and_batches() {
        let records: Vec<_> = (0..5000)
            .map(|number| record(&number.to_string(), Some(&format!("id-{number}"))))
            .collect();
        let decoded = otlp(&request(&records, 40), Sending::Protobuf);
        // More than the limit of the probe on a request.
        assert!(decoded.fault.is_some() && decoded.events.is_empty());
        let decoded = otlp(&request(&records[..1500], 150), Sending::Protobuf);
        assert_eq!(decoded.fault, None);
        let attribute = "x".repeat(150);
        for (number, event) in decoded.events.iter().enumerate() {
            let expected = format!(
                r#"id-{number} {{"body":{number},"resource":{{"attributes":{{"a":"{attribute}"}}}}}}"#
            );
            assert_eq!(*event, expected);
        }
        assert_eq!(decoded.events.len(), 1500);
    }

    #[test]
    fn nothing_of_a_request_that_is_refused_is_taken() {
        let good = request(&[record("\"one\"", None)], 0);
        let broken = [&good[..], &[0x0A, 9]].concat();
        let decoded = otlp(&broken, Sending::Protobuf);
        assert!(decoded.events.is_empty());
        assert_eq!(
            decoded.fault.as_deref(),
            Some("the message ends within a field")
        );
        // A small request whose events would be large, because each of them repeats the resource.
        let large = request(&vec![Vec::new(); 200], 10_000);
        assert!(large.len() < 12_000);
        let decoded = otlp(&large, Sending::Protobuf);
        assert!(decoded.events.is_empty());
        let fault = decoded.fault.expect("it is refused");
        assert!(fault.contains("larger than 8 times"), "{fault}");
    }
}
