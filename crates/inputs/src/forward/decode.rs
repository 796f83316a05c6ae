//! From messages to events.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use batch::msgpack::{Checks, MsgPackErrorKind, write_map_header, write_str};
use batch::{Encoding, PooledBuffer, Reservation, Source, Stream};
use bytes::Bytes;
use codec::forward::{
    Compression, Content, Cuts, Events, ForwardError, ForwardFault, Message, Position, pieces,
};

use super::fields::{self, Mark};
use crate::connections::answer::Answer;
use crate::connections::batcher::{Completion, Joiner, Protocol};
use crate::connections::closing::Fault;
use crate::connections::inflate::{Coding, InflateError, Inflater, expected};
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
    pub(super) buffers: Vec<Bytes>,
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
        let bytes = load.buffers.iter().map(Bytes::len).sum();
        joiner.ctx.metrics.bytes(bytes);
        let mut reply = Reply::default();
        let mut place = Position::default();
        while reply.fault.is_none()
            && load
                .buffers
                .get(place.buffer)
                .is_some_and(|buffer| place.at < buffer.len())
        {
            match self.message(&mut load, place, &answer, joiner) {
                Ok(message) => {
                    place.buffer += message.end.buffer;
                    place.at = message.end.at;
                    if let Some(chunk) = message.chunk {
                        write_ack(&load.buffers[place.buffer][chunk.value], &mut reply.acks);
                    }
                    if place.at == load.buffers[place.buffer].len() {
                        place = Position {
                            buffer: place.buffer + 1,
                            at: 0,
                        };
                    }
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

    /// Takes the message that begins at a place of the load.
    fn message(
        &mut self,
        load: &mut Load,
        place: Position,
        answer: &Answer<Never>,
        joiner: &mut ForwardJoiner,
    ) -> Result<Message, Fault> {
        let (body, at, session) = (&load.buffers[place.buffer..], place.at, &load.session);
        let message = Message::read(body, at, &mut self.events)
            .map_err(|error| self.refused("message", error, at))?;
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
                let reservation = &mut load.reservation;
                let pieces = pieces(body, entries.clone());
                inflated = self.decompress(*compression, pieces, reservation, joiner)?;
                let len = inflated.iter().map(Bytes::len).sum();
                let read = self.events.read_packed(&inflated, 0..len);
                read.map_err(|error| self.refused("entries of a compressed message", error, 0))?;
                &inflated[..]
            }
        };
        let tag = body[0].slice(message.tag.clone());
        let of_chunk;
        let place = match &message.chunk {
            Some(chunk) => {
                let text = &body[message.end.buffer][chunk.text.clone()];
                of_chunk = chunk_stream(&tag, text, session);
                (&of_chunk, 0)
            }
            None => {
                let count = self.events.len() as u64;
                let first = session.next.fetch_add(count, Ordering::Relaxed);
                (&session.stream, first)
            }
        };
        self.push(content, &tag, place, answer, joiner);
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

    /// Adds the events of a message to batches: `content` is where they lie, and `stream` is where the first one has its place.
    fn push(
        &mut self,
        content: &[Bytes],
        tag: &Bytes,
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
                    Some(last) if last.is_of(tag) => last,
                    _ => new.insert(Mark::new(tag.clone(), self.add_fields, left)),
                };
                mark.may_have_key(has_key);
                let added = |time, metadata| mark.add(time, metadata);
                from = self.events.push(content, from, first, builder, added);
                new
            });
        }
    }

    /// Decompresses entries into buffers, each of which ends behind an entry.
    fn decompress<'a>(
        &self,
        compression: Compression,
        pieces: impl Iterator<Item = &'a [u8]>,
        reservation: &mut Reservation,
        joiner: &mut ForwardJoiner,
    ) -> Result<Vec<Bytes>, Fault> {
        let coding = match compression {
            Compression::Gzip => Coding::Gzip,
            Compression::Zstd => Coding::Zstd,
        };
        let entries = inflate_divided(coding, pieces, self.message_max, reservation, joiner);
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

/// Decompresses entries of `limit` bytes at most into buffers of the pool, the first of which has room for all where that is likely.
/// Only an entry that is larger than the largest buffer gets a larger one.
fn inflate_divided<'a>(
    coding: Coding,
    pieces: impl Iterator<Item = &'a [u8]>,
    limit: usize,
    reservation: &mut Reservation,
    joiner: &mut ForwardJoiner,
) -> Result<Vec<Bytes>, InflateError> {
    let mut pieces = pieces.filter(|piece| !piece.is_empty()).peekable();
    let mut piece = pieces.next().unwrap_or_default();
    let mut inflater = Inflater::new(coding, piece);
    let mut cuts = Cuts::of_entries();
    // One byte more than allowed, so that too large a message shows.
    let (largest, space_max) = (joiner.ctx.pool.largest_size(), limit.saturating_add(1));
    let first = match pieces.peek() {
        None => expected(coding, &[piece]),
        Some(_) => largest,
    };
    let first = first.clamp(4096, space_max.max(4096)).min(largest);
    let first = first.max(joiner.ctx.pool.fitting(first));
    let mut buffer = take(first, reservation, joiner);
    let (mut done, mut filled, mut total) = (Vec::new(), 0, 0);
    loop {
        if total > limit {
            return Err(InflateError::TooLarge);
        }
        if filled == buffer.len() {
            let missing = space_max - total;
            let is_full = filled >= largest;
            if let Some(at) = is_full.then(|| cuts.cut(&buffer[..filled])).flatten() {
                let rest = &buffer[at..filled];
                let size = largest.min(rest.len() + missing).max(rest.len() + 1);
                let size = size.max(joiner.ctx.pool.fitting(size));
                let mut next = take(size, reservation, joiner);
                next[..rest.len()].copy_from_slice(rest);
                filled = rest.len();
                let full = std::mem::replace(&mut buffer, next);
                done.push(full.freeze_fitting(at));
            } else {
                let more = buffer.len().min(missing);
                joiner.grow(reservation, more);
                reservation.extend(&mut buffer, more);
            }
        }
        if piece.is_empty() {
            piece = pieces.next().unwrap_or_default();
        }
        let (consumed, produced) = inflater.step(piece, &mut buffer[filled..])?;
        piece = &piece[consumed..];
        filled += produced;
        total += produced;
        if consumed == 0 && produced == 0 {
            break;
        }
    }
    inflater.finish(piece)?;
    done.push(buffer.freeze_fitting(filled));
    Ok(done)
}

fn take(size: usize, reservation: &mut Reservation, joiner: &mut ForwardJoiner) -> PooledBuffer {
    joiner.grow(reservation, size);
    reservation.take(size)
}

/// The stream of a chunk's events, the same one whenever the chunk is sent.
fn chunk_stream(tag: &[u8], text: &[u8], session: &Session) -> Arc<Stream> {
    let id = Identity::new([&b"fluent chunk"[..], tag, text]).id();
    Arc::new(Stream::new(id, session.source.clone()))
}

/// Appends the acknowledgement of a chunk, whose id is a MessagePack value.
fn write_ack(chunk: &[u8], out: &mut Vec<u8>) {
    write_map_header(out, 1);
    write_str(out, b"ack");
    out.extend_from_slice(chunk);
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use batch::msgpack::{write_array_header, write_bin, write_i64};
    use flate2::Compression as Level;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::forward::probe::forward;

    fn array(out: &mut Vec<u8>, elements: usize) {
        write_array_header(out, elements);
    }

    /// Entries of about 50 bytes.
    fn entries(count: i64) -> Vec<u8> {
        let mut out = Vec::new();
        for number in 0..count {
            array(&mut out, 2);
            write_i64(&mut out, 1_700_000_000 + number);
            write_map_header(&mut out, 1);
            write_str(&mut out, b"n");
            write_str(&mut out, format!("{number:040}").as_bytes());
        }
        out
    }

    fn message(write_entries: impl FnOnce(&mut Vec<u8>), compression: &str) -> Vec<u8> {
        let mut out = Vec::new();
        array(&mut out, 3);
        write_str(&mut out, b"tag");
        write_entries(&mut out);
        write_map_header(&mut out, 2);
        write_str(&mut out, b"chunk");
        write_str(&mut out, b"c1");
        write_str(&mut out, b"compressed");
        write_str(&mut out, compression.as_bytes());
        out
    }

    fn packed(entries: &[u8], compression: &str) -> Vec<u8> {
        message(|out| write_bin(out, entries), compression)
    }

    fn gzip(bytes: &[u8], level: u32) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Level::new(level));
        encoder.write_all(bytes).expect("written");
        encoder.finish().expect("finished")
    }

    #[test]
    fn messages_of_several_buffers_give_the_same_events() {
        // The largest buffer of the probe has 64 KiB.
        let few = forward(&packed(&entries(10), "text"), 1 << 20, true);
        assert_eq!((few.events.len(), few.fault), (10, None));
        let entries = entries(2200);
        let listed = message(
            |out| {
                array(out, 2200);
                out.extend_from_slice(&entries);
            },
            "",
        );
        let zstd = zstd::encode_all(&entries[..], 3).expect("compressed");
        let sent = [
            listed,
            packed(&entries, "text"),
            packed(&gzip(&entries, 6), "gzip"),
            // Stored: it is as long as what it holds.
            packed(&gzip(&entries, 0), "gzip"),
            packed(&zstd, "zstd"),
        ];
        let first = forward(&sent[0], 1 << 20, true);
        assert_eq!((first.events.len(), &first.fault), (2200, &None));
        for message in &sent {
            for piece in [1000, 65_537, 1 << 20] {
                let decoded = forward(message, piece, true);
                assert!(decoded == first, "{:?}", decoded.fault);
            }
        }
        let all = forward(&sent.concat(), 50_000, true);
        assert_eq!((all.events.len(), all.fault), (5 * 2200, None));
    }

    #[test]
    fn nothing_of_a_message_that_is_malformed_in_a_later_buffer_is_taken() {
        let good = entries(2000);
        let bad = [&good[..], &[0x92, 1, 2]].concat();
        let listed = |out: &mut Vec<u8>| {
            array(out, 2001);
            out.extend_from_slice(&bad);
        };
        for (sent, at) in [
            (message(listed, ""), 10),
            (packed(&bad, ""), 12),
            (packed(&gzip(&bad, 6), "gzip"), 2),
        ] {
            for piece in [1000, 1 << 20] {
                let before = packed(&entries(3), "");
                let decoded = forward(&[&before[..], &sent].concat(), piece, true);
                assert_eq!(decoded.events.len(), 3);
                let fault = decoded.fault.expect("refused");
                let place = format!("at byte {} of", good.len() + at);
                assert!(
                    fault.contains(&place) || fault.ends_with(&place[..place.len() - 3]),
                    "{fault}"
                );
            }
        }
    }
}
