//! Makes batches of gathered messages.

use std::mem::take;
use std::sync::Arc;
use std::time::Instant;

use batch::{Batch, BatchBuilder, Cell, Column, Span, Stream};
use bytes::Bytes;
use codec::{BATCH_BYTES_MAX, BATCH_EVENTS_MAX, Chunk, Decoder};
use component::InputContext;

use super::gather::{Gathered, GatheredMessage};
use super::in_flight::SentMessage;
use crate::reading::emitter::{count, now};

/// What is said of a message that was truncated.
const CUT: &str = "is longer than `max_line_bytes` and was truncated";

/// Makes batches.
pub(crate) struct MessageBatches {
    decoder: Decoder,
    add_fields: bool,
    /// Under which key of `@metadata` stands what is told about messages.
    key: &'static str,
    ctx: InputContext,
}

/// A batch, and the messages that are done with when it is safe.
pub(crate) struct MessageBatch<T> {
    pub(crate) batch: Batch,
    pub(crate) messages: Vec<SentMessage<T>>,
}

impl MessageBatches {
    pub(crate) fn new(settings: &codec::Settings, key: &'static str, ctx: &InputContext) -> Self {
        Self {
            decoder: Decoder::new(settings, &ctx.host),
            add_fields: settings.add_fields,
            key,
            ctx: not_sending(ctx),
        }
    }

    /// Batches of these messages, in order. Waits while there is no memory.
    pub(crate) fn make<T>(&mut self, mut gathered: Gathered<T>) -> Vec<MessageBatch<T>> {
        self.ctx.metrics.bytes(gathered.values.len());
        let values = self.ctx.pool.adopt(take(&mut gathered.values));
        let metadata = self.ctx.pool.adopt(take(&mut gathered.metadata));
        let begin = Instant::now();
        let mut made = Vec::new();
        let mut builder = self.builder();
        let mut done = 0;
        // What of them has no batch yet.
        let mut from = 0;
        for (stream, range) in &gathered.runs {
            let messages = &gathered.messages[range.clone()];
            let mut chunk = chunk_of(messages, &values);
            loop {
                // A message that is no document becomes text, so that nothing is unreadable.
                let added = self.decoder.add(stream, &mut chunk, &mut builder);
                let has_more = added.unwrap_or(false);
                if !has_more {
                    done = range.end;
                }
                let is_full =
                    builder.len() >= BATCH_EVENTS_MAX || builder.size() >= BATCH_BYTES_MAX;
                if has_more || is_full {
                    let full = std::mem::replace(&mut builder, self.builder());
                    made.push((self.finish(full, &gathered, from, &metadata), done));
                    from = if has_more { range.start } else { range.end };
                }
                if !has_more {
                    break;
                }
            }
            self.count(stream);
        }
        made.push((self.finish(builder, &gathered, from, &metadata), done));
        self.ctx.metrics.busy(begin.elapsed());
        divided(made, gathered)
    }

    fn builder(&self) -> BatchBuilder {
        let encoding = self.decoder.encoding();
        BatchBuilder::new(encoding, &self.ctx.host, now(), self.add_fields)
    }

    /// Counts what the decoder changed.
    fn count(&mut self, stream: &Stream) {
        let dropped = self.decoder.take_dropped();
        let dropped: u64 = dropped.iter().map(|dropped| dropped.events).sum();
        if dropped > 0 {
            self.ctx.metrics.count("blank_messages", dropped);
        }
        count(&mut self.decoder, stream, &self.ctx, CUT);
    }

    fn finish<T>(
        &self,
        builder: BatchBuilder,
        gathered: &Gathered<T>,
        from: usize,
        metadata: &Bytes,
    ) -> Batch {
        let mut batch = builder.finish();
        if let Some(syslog) = self.decoder.completion() {
            let counts = syslog.apply(&mut batch);
            if counts.failures > 0 {
                let metrics = &self.ctx.metrics;
                metrics.count("broken_syslog_lines", counts.failures);
                metrics.failures(counts.failures as usize);
            }
        }
        if !batch.is_empty() && !metadata.is_empty() {
            let column = metadata_column(&batch, gathered, metadata, from);
            batch.set_metadata(self.key, column);
        }
        batch
    }
}

/// A context with which nothing is sent, so that nobody waits for that.
pub(crate) fn not_sending(ctx: &InputContext) -> InputContext {
    let mut ctx = ctx.clone();
    ctx.end_sending();
    ctx
}

/// Messages that follow each other, which have these values.
fn chunk_of<T>(messages: &[GatheredMessage<T>], values: &Bytes) -> Chunk {
    let start = messages.first().map_or(0, |first| first.value.start);
    let end = messages.last().map_or(start, |last| last.value.end);
    let place = |message: &GatheredMessage<T>| {
        let value = &message.value;
        (value.start - start..value.end - start, message.number)
    };
    Chunk::of_numbered(values.slice(start..end), messages.iter().map(place))
}

/// Gives each batch the messages up to where it goes.
fn divided<T>(made: Vec<(Batch, usize)>, gathered: Gathered<T>) -> Vec<MessageBatch<T>> {
    let streams = gathered.runs.iter();
    let streams = streams.flat_map(|(stream, range)| range.clone().map(|_| stream.id));
    let mut messages = gathered.messages.into_iter().zip(streams);
    let mut given = 0;
    let divide = |(batch, end): (Batch, usize)| {
        let count = end - given;
        given = end;
        let sent = |(message, stream): (GatheredMessage<T>, u128)| SentMessage {
            stream,
            number: message.number,
            token: message.token,
        };
        MessageBatch {
            batch,
            messages: messages.by_ref().take(count).map(sent).collect(),
        }
    };
    let batches = made.into_iter().map(divide);
    let has_any = |batch: &MessageBatch<T>| !batch.batch.is_empty() || !batch.messages.is_empty();
    batches.filter(has_any).collect()
}

/// What is told about the message of each row. Rows come in the order of the messages, of which some have no row.
fn metadata_column<T>(
    batch: &Batch,
    gathered: &Gathered<T>,
    metadata: &Bytes,
    from: usize,
) -> Column {
    let origin = batch.origin();
    let mut cells = Vec::with_capacity(batch.len());
    let runs = gathered.runs.iter();
    let runs = runs.filter(|(_, range)| range.end > from);
    let mut messages = runs.flat_map(|(stream, range)| {
        let of_run = gathered.messages[range.clone()].iter();
        of_run.map(move |message| (stream.id, message))
    });
    for (rows, stream) in origin.streams() {
        for row in rows {
            let number = origin.start(row);
            let found = messages.find(|(id, message)| *id == stream.id && message.number == number);
            cells.push(match found {
                Some((_, message)) => Cell::Json(Span {
                    buffer: 0,
                    start: message.metadata.start as u32,
                    len: message.metadata.len() as u32,
                }),
                None => Cell::Missing,
            });
        }
    }
    Column::new(cells, Arc::from([metadata.clone()]))
}
