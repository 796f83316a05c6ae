//! Batches of JSON documents that Millpond writes itself.

use std::sync::Arc;

use batch::{BatchBuilder, Cell, Column, Encoding, FieldPath, PooledBuffer, Source, Span, Stream};
use codec::BATCH_EVENTS_MAX;
use component::{InputContext, Stopped};
use serde::Serialize;

use super::emitter::now;

/// Makes batches of documents and sends them, waiting while the queue is full. The ids of their events consist of that of the stream, and
/// their number.
pub(crate) struct Filling<'c> {
    ctx: &'c InputContext,
    stream: Arc<Stream>,
    timestamp: Option<FieldPath>,
    /// Of the next event.
    number: u64,
    open: Option<Open>,
    text: Vec<u8>,
}

struct Open {
    builder: BatchBuilder,
    buffer: PooledBuffer,
    used: usize,
    times: Vec<Cell>,
}

impl<'c> Filling<'c> {
    /// A stream of this id, which has no events yet.
    pub(crate) fn new(ctx: &'c InputContext, id: u128) -> Self {
        Self {
            ctx,
            stream: Arc::new(Stream::new(id, Source::Generated)),
            timestamp: FieldPath::parse("@timestamp").ok(),
            number: 0,
            open: None,
            text: Vec::new(),
        }
    }

    /// Adds a document, whose event has this time.
    ///
    /// # Errors
    /// The pipeline takes no more.
    pub(crate) fn push(&mut self, time_ns: i64, document: &impl Serialize) -> Result<(), Stopped> {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        serde_json::to_writer(&mut text, document)
            .expect("all keys are texts, and memory takes everything");
        let pushed = self.push_text(time_ns, &text);
        self.text = text;
        pushed
    }

    /// Adds a document that is written already.
    ///
    /// # Errors
    /// The pipeline takes no more.
    pub(crate) fn push_text(&mut self, time_ns: i64, text: &[u8]) -> Result<(), Stopped> {
        let len = text.len();
        let is_full = |open: &Open| {
            open.builder.len() == BATCH_EVENTS_MAX || open.buffer.len() - open.used < len
        };
        if self.open.as_ref().is_some_and(is_full) {
            self.flush()?;
        }
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let fresh = self.begin(len);
                self.open.insert(fresh)
            }
        };
        open.buffer[open.used..open.used + len].copy_from_slice(text);
        let span = Span {
            buffer: 0,
            start: open.used as u32,
            len: len as u32,
        };
        open.builder.push(span, self.number, self.number + 1);
        open.times.push(Cell::Time(time_ns));
        open.used += len;
        self.number += 1;
        Ok(())
    }

    /// A batch with room for a document.
    fn begin(&self, len: usize) -> Open {
        let waiting = self.ctx.metrics.waiting();
        let buffer = self.ctx.pool.take_sized(len);
        drop(waiting);
        let host = &self.ctx.host;
        let mut builder = BatchBuilder::new(Encoding::Json, host, now(), false);
        builder.stream(&self.stream);
        Open {
            builder,
            buffer,
            used: 0,
            times: Vec::new(),
        }
    }

    /// Sends what there is.
    ///
    /// # Errors
    /// The pipeline takes no more.
    pub(crate) fn flush(&mut self) -> Result<(), Stopped> {
        let Some(mut open) = self.open.take() else {
            return Ok(());
        };
        open.builder.buffer(open.buffer.freeze_fitting(open.used));
        self.ctx.metrics.bytes(open.used);
        let mut batch = open.builder.finish();
        if let Some(timestamp) = &self.timestamp {
            let first = open.times.first().copied();
            let same = first.filter(|first| open.times.iter().all(|time| time == first));
            let times = match same {
                Some(time) => Column::constant(time, open.times.len()),
                None => Column::new(open.times, Arc::from([])),
            };
            batch.set_new(timestamp, times);
        }
        self.ctx.send_blocking(batch).map(drop)
    }
}
