//! Batches that are told apart by a number.

use std::sync::Arc;

use batch::{Batch, BatchBuilder, Encoding, HostInfo, Span, Stream};
use bytes::Bytes;

/// What is in a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    pub number: u64,
    pub documents: Vec<u8>,
    pub events: u64,
}

impl Content {
    pub fn of(batch: &Batch) -> Self {
        Self {
            number: batch.received().cast_unsigned(),
            documents: batch.freeze().documents.concat(),
            events: batch.len() as u64,
        }
    }
}

/// A batch has fewer events.
const EVENTS_MAX: u64 = 1 << 20;

/// A batch of so many events, which go on in their file behind those of the batch with the number before. Each document begins with
/// its place and goes on with `length` times the same byte.
pub fn make(number: u64, events: u64, length: usize, fill: u8) -> Batch {
    let host = Arc::new(HostInfo { name: "h".into() });
    let mut builder = BatchBuilder::new(Encoding::Text, &host, number.cast_signed(), false);
    builder.stream(&Arc::new(Stream::file(1, "/log")));
    for row in 0..events {
        let mut document = format!("{number}/{row} ").into_bytes();
        document.resize(document.len() + length, fill);
        let len = u32::try_from(document.len()).expect("a short document");
        let buffer = builder.buffer(Bytes::from(document));
        let document = Span {
            buffer,
            start: 0,
            len,
        };
        let start = number * EVENTS_MAX + row;
        // The last one ends where the next batch begins.
        let end = match row + 1 == events {
            true => (number + 1) * EVENTS_MAX,
            false => start + 1,
        };
        builder.push(document, start, end);
    }
    builder.finish()
}
