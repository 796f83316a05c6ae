//! From messages to events.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use batch::msgpack::{Checks, MsgPackErrorKind, write_map_header, write_str};
use batch::{Encoding, Reservation, Source, Stream};
use bytes::Bytes;
use codec::forward::{Chunk, Compression, Content, Events, ForwardError, ForwardFault, Message};

use super::fields::{self, Mark};
use crate::connections::answer::Answer;
use crate::connections::batcher::{Completion, Joiner, Protocol};
use crate::connections::closing::Fault;
use crate::connections::inflate::{Coding, InflateError, inflate_whole};
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
    max_depth: usize,
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
    pub(super) fn new(message_max: usize, max_depth: usize, add_fields: bool) -> Self {
        let keys = fields::keys(add_fields).iter().copied();
        Self {
            message_max,
            max_depth,
            add_fields,
            events: Events::new(Checks::new(max_depth, keys)),
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
        let message = Message::read(&load.body, at, &mut self.events)
            .map_err(|error| self.refused("message", error, at))?;
        let (body, session) = (&load.body, &load.session);
        let inflated;
        let content = match &message.content {
            Content::Heartbeat => return Ok(message),
            Content::Listed => body,
            Content::Packed(entries, None) => {
                let read = self.events.read_packed(body, entries.clone());
                read.map_err(|error| self.refused("message", error, at))?;
                body
            }
            Content::Packed(entries, Some(compression)) => {
                let compressed = &body[entries.clone()];
                let reservation = &mut load.reservation;
                inflated = self.decompress(*compression, compressed, reservation, joiner)?;
                let read = self.events.read_packed(&inflated, 0..inflated.len());
                read.map_err(|error| self.refused("entries of a compressed message", error, 0))?;
                &inflated
            }
        };
        let of_chunk;
        let place = match &message.chunk {
            Some(chunk) => {
                of_chunk = chunk_stream(body, &message, chunk, session);
                (&of_chunk, 0)
            }
            None => {
                let count = self.events.len() as u64;
                let first = session.next.fetch_add(count, Ordering::Relaxed);
                (&session.stream, first)
            }
        };
        self.push(content, (body, message.tag.clone()), place, answer, joiner);
        Ok(message)
    }

    /// Why `what`, which begins at `from`, cannot be taken.
    fn refused(&self, what: &str, error: ForwardError, from: usize) -> Fault {
        let offset = error.offset.saturating_sub(from);
        if error.fault == ForwardFault::MsgPack(MsgPackErrorKind::TooDeep) {
            let max = self.max_depth;
            return Fault::new(
                "deep_messages",
                format!(
                    "a record nests deeper than {max} levels (`max_depth`) at byte {offset} of the {what}"
                ),
            );
        }
        let fault = error.fault;
        Fault::malformed(format!("malformed {what}: {fault} at byte {offset}"))
    }

    /// Adds the events of a message to batches: `content` is where they lie, `tag` where their tag does, and `stream` is where the
    /// first one has its place.
    fn push(
        &mut self,
        content: &Bytes,
        (body, tag): (&Bytes, Range<usize>),
        (stream, first): (&Arc<Stream>, u64),
        answer: &Answer<Never>,
        joiner: &mut ForwardJoiner,
    ) {
        let has_key = self.events.has_key();
        let mut from = 0;
        while from < self.events.len() {
            let left = self.events.len() - from;
            joiner.extend_with((Encoding::MsgPack, false), answer, |builder, last| {
                builder.stream(stream);
                let mut new = None;
                let mark = match last {
                    Some(last) if last.is_of(&body[tag.clone()]) => last,
                    _ => new.insert(Mark::new(body.slice(tag.clone()), self.add_fields, left)),
                };
                mark.may_have_key(has_key);
                let added = |time, metadata: Option<&[u8]>| mark.add(time, metadata);
                from = self.events.push(content, from, first, builder, added);
                new
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
        let entries = inflate_whole(coding, compressed, self.message_max, reservation, grow);
        entries.map_err(|error| match error {
            InflateError::TooLarge => Fault::too_large(format!(
                "the decompressed entries of a message are longer than {} bytes (`max_message_bytes`)",
                self.message_max
            )),
            InflateError::Damaged(reason) => Fault::malformed(format!(
                "the entries of a message cannot be decompressed: {reason}"
            )),
        })
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
