//! Events that a processor makes of others, until the engine takes them.

use std::sync::Arc;

use batch::{Batch, BatchBuilder, Encoding, HostInfo, Source, Span, Stream};
use bytes::Bytes;

/// Batches to be handled right behind the one that the processor was given.
#[derive(Debug, Default)]
pub(crate) struct Derived(Vec<Batch>);

/// They are taken before a processor is cloned.
impl Clone for Derived {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Derived {
    /// Adds one.
    pub fn push(&mut self, batch: Batch) {
        self.0.push(batch);
    }

    /// Gives all of them.
    pub fn take(&mut self) -> Vec<Batch> {
        std::mem::take(&mut self.0)
    }
}

/// A builder of events that keep their ids: see [`push_event`].
pub(crate) fn event_builder(host: &Arc<HostInfo>, received: i64) -> BatchBuilder {
    let mut builder = BatchBuilder::new(Encoding::Json, host, received, false);
    // Ids are given to the events themselves.
    builder.stream(&Arc::new(Stream::new(0, Source::Generated)));
    // Some key may hold a dot.
    builder.dotted_keys();
    builder
}

/// Adds an event, given by its id and behind that its document.
pub(crate) fn push_event(builder: &mut BatchBuilder, text: Box<[u8]>, id_len: usize) {
    let row = builder.len() as u64;
    let len = text.len();
    let buffer = builder.buffer(Bytes::from(text));
    let span = |start: usize, end: usize| Span {
        buffer,
        start: start as u32,
        len: (end - start) as u32,
    };
    builder.push(span(id_len, len), row, row + 1);
    // It was an id before.
    let _ = builder.id_last(span(0, id_len));
}
