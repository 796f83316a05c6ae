//! From messages to events.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use batch::msgpack::{write_map_header, write_str};
use batch::{Encoding, Reservation, Source, Stream};
use bytes::Bytes;
use codec::forward::{Chunk, Compression, Content, Events, Message};

use super::fields::{self, Mark};
use crate::connections::answer::Answer;
use crate::connections::batcher::{Completion, Joiner, Protocol};
use crate::connections::closing::Fault;
use crate::connections::inflate::{Coding, InflateError, inflate};
use crate::reading::identity::Identity;

/// What is kept of a connection.
pub(super) struct Session {
    /// The stream of events that come without a chunk.
    pub(super) stream: Arc<Stream>,
    /// The number of the next one of them.
    pub(super) next: AtomicU64,
    /// Where it comes from, for the streams of chunks.
    pub(super) source: Source,
}

/// Messages that were read whole, one behind the other.
pub(super) struct Load {
    pub(super) body: Bytes,
    /// The memory in which they may be decompressed.
    pub(super) reservation: Reservation,
    pub(super) session: Arc<Session>,
    pub(super) reply: Arc<OnceLock<Reply>>,
}

/// What the client is told when the events of a load are safe.
#[derive(Default)]
pub(super) struct Reply {
    /// The acknowledgements, as they are sent.
    pub(super) acks: Vec<u8>,
    /// What is wrong with the message behind those that were taken. The load ends there.
    pub(super) fault: Option<Fault>,
}

/// How messages become events.
pub(super) struct Decoding {
    message_max: usize,
    add_fields: bool,
    events: Events,
}

/// A message is never refused as such: what is wrong with it stands in the [`Reply`].
pub(super) type Never = std::convert::Infallible;

type ForwardJoiner = Joiner<Mark, Never>;

impl Protocol for Decoding {
    type Message = Load;
    type Mark = Mark;
    type Reason = Never;

    fn add(&mut self, mut load: Load, answer: Answer<Never>, joiner: &mut ForwardJoiner) {
        joiner.ctx.metrics.bytes(load.body.len());
        let mut reply = Reply::default();
        let mut at = 0;
        while at < load.body.len() && reply.fault.is_none() {
            match self.message(&mut load, at, &answer, joiner) {
                Ok(message) => {
                    if let Some(chunk) = message.chunk {
                        write_ack(&load.body[chunk.value], &mut reply.acks);
                    }
                    at = message.end;
                }
                Err(fault) => reply.fault = Some(fault),
            }
        }
        // Nobody else sets it.
        let _ = load.reply.set(reply);
        answer.complete();
    }

    fn completion(&self) -> Completion<Mark> {
        Box::new(fields::set)
    }
}

impl Decoding {
    pub(super) fn new(message_max: usize, add_fields: bool) -> Self {
        Self {
            message_max,
            add_fields,
            events: Events::default(),
        }
    }

    /// Takes the message that begins at `at`.
    fn message(
        &mut self,
        load: &mut Load,
        at: usize,
        answer: &Answer<Never>,
        joiner: &mut ForwardJoiner,
    ) -> Result<Message, Fault> {
        let malformed = |what: &str, error: codec::forward::ForwardError, from: usize| {
            let offset = error.offset.saturating_sub(from);
            let fault = error.fault;
            Fault::malformed(format!("malformed {what}: {fault} at byte {offset}"))
        };
        let message = Message::read(&load.body, at, &mut self.events)
            .map_err(|error| malformed("message", error, at))?;
        let content = match &message.content {
            Content::Heartbeat => return Ok(message),
            Content::Listed => load.body.clone(),
            Content::Packed(entries, None) => {
                let read = self.events.read_packed(&load.body, entries.clone());
                read.map_err(|error| malformed("message", error, at))?;
                load.body.clone()
            }
            Content::Packed(entries, Some(compression)) => {
                let compressed = &load.body[entries.clone()];
                let reservation = &mut load.reservation;
                let entries = self.decompress(*compression, compressed, reservation, joiner)?;
                let read = self.events.read_packed(&entries, 0..entries.len());
                read.map_err(|error| malformed("entries of a compressed message", error, 0))?;
                entries
            }
        };
        let session = &load.session;
        let (stream, first) = match &message.chunk {
            Some(chunk) => (chunk_stream(&load.body, &message, chunk, session), 0),
            None => {
                let count = self.events.len() as u64;
                let first = session.next.fetch_add(count, Ordering::Relaxed);
                (session.stream.clone(), first)
            }
        };
        self.push(
            &content,
            &load.body.slice(message.tag.clone()),
            &stream,
            first,
            answer,
            joiner,
        );
        Ok(message)
    }

    /// Adds the events of a message to batches.
    fn push(
        &mut self,
        content: &Bytes,
        tag: &Bytes,
        stream: &Arc<Stream>,
        first: u64,
        answer: &Answer<Never>,
        joiner: &mut ForwardJoiner,
    ) {
        let mut from = 0;
        while from < self.events.len() {
            let left = self.events.len() - from;
            joiner.join_with((Encoding::MsgPack, false), answer, |builder| {
                builder.stream(stream);
                let mut mark = Mark::new(tag.clone(), self.add_fields, left);
                from = self
                    .events
                    .push(content, from, first, builder, |time, metadata| {
                        mark.add(time, metadata);
                    });
                mark
            });
        }
    }

    fn decompress(
        &self,
        compression: Compression,
        compressed: &[u8],
        reservation: &mut Reservation,
        joiner: &mut ForwardJoiner,
    ) -> Result<Bytes, Fault> {
        let coding = match compression {
            Compression::Gzip => Coding::Gzip,
            Compression::Zstd => Coding::Zstd,
        };
        let grow = |reservation: &mut Reservation, more| joiner.grow(reservation, more);
        let entries = inflate(coding, compressed, self.message_max, reservation, grow);
        let entries = entries.map_err(|error| match error {
            InflateError::TooLarge => Fault::too_large(format!(
                "the decompressed entries of a message are longer than {} bytes (`max_message_bytes`)",
                self.message_max
            )),
            InflateError::Damaged(reason) => Fault::malformed(format!(
                "the entries of a message cannot be decompressed: {reason}"
            )),
        })?;
        let len = entries.len();
        Ok(entries.freeze(len))
    }
}

/// The stream of a chunk's events, the same one whenever the chunk is sent.
fn chunk_stream(body: &[u8], message: &Message, chunk: &Chunk, session: &Session) -> Arc<Stream> {
    let parts = [
        &b"fluent chunk"[..],
        &body[message.tag.clone()],
        &body[chunk.text.clone()],
    ];
    let id = Identity::new(parts).id();
    Arc::new(Stream::new(id, session.source.clone()))
}

/// Appends the acknowledgement of a chunk, whose id is a MessagePack value.
fn write_ack(chunk: &[u8], out: &mut Vec<u8>) {
    write_map_header(out, 1);
    write_str(out, b"ack");
    out.extend_from_slice(chunk);
}
