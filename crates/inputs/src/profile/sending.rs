//! Sends the events of a profile.

use std::sync::Arc;

use batch::{BatchBuilder, Cell, Column, Encoding, FieldPath, PooledBuffer, Source, Span, Stream};
use codec::BATCH_EVENTS_MAX;
use component::{InputContext, Stopped};
use profiler::Profile;

use super::documents::{Document, Layout};
use crate::reading::emitter::now;

/// Sends the events of a profile, waiting while the queue is full. Their ids consist of that of the stream, and their number.
///
/// # Errors
/// The pipeline takes no more.
pub(super) fn send(
    profile: &Profile,
    layout: &Layout,
    id: u128,
    path: Option<&str>,
    ctx: &InputContext,
) -> Result<(), Stopped> {
    let received = now();
    let has_window = profile.window.duration_ns > 0;
    let mut filling = Filling {
        ctx,
        stream: Arc::new(Stream::new(id, Source::Generated)),
        time_ns: match has_window {
            true => profile.window.start_ns,
            false => received,
        },
        received,
        timestamp: FieldPath::parse("@timestamp").ok(),
        number: 0,
        open: None,
        text: Vec::new(),
    };
    layout.documents(profile, path, |document| filling.push(document))?;
    filling.flush()
}

/// A batch that is being filled, and what all batches of a profile have in common.
struct Filling<'c> {
    ctx: &'c InputContext,
    stream: Arc<Stream>,
    time_ns: i64,
    received: i64,
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
}

impl Filling<'_> {
    fn push(&mut self, document: &Document<'_>) -> Result<(), Stopped> {
        self.text.clear();
        serde_json::to_writer(&mut self.text, document)
            .expect("all keys are texts, and memory takes everything");
        let len = self.text.len();
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
        open.buffer[open.used..open.used + len].copy_from_slice(&self.text);
        let span = Span {
            buffer: 0,
            start: open.used as u32,
            len: len as u32,
        };
        open.builder.push(span, self.number, self.number + 1);
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
        let mut builder = BatchBuilder::new(Encoding::Json, host, self.received, false);
        builder.stream(&self.stream);
        Open {
            builder,
            buffer,
            used: 0,
        }
    }

    /// Sends what there is.
    fn flush(&mut self) -> Result<(), Stopped> {
        let Some(mut open) = self.open.take() else {
            return Ok(());
        };
        let rows = open.builder.len();
        open.builder.buffer(open.buffer.freeze_fitting(open.used));
        self.ctx.metrics.bytes(open.used);
        let mut batch = open.builder.finish();
        if let Some(timestamp) = &self.timestamp {
            batch.set_new(timestamp, Column::constant(Cell::Time(self.time_ns), rows));
        }
        self.ctx.send_blocking(batch).map(drop)
    }
}
