//! What the tests of the engine send through it.

use std::sync::Arc;

use batch::{Batch, BatchBuilder, Encoding, HostInfo, Span, Stream};

/// Lines of a batch.
pub const BATCH: usize = 10;

/// The batch of this number: each of its lines is the line's number.
pub fn numbered(host: &Arc<HostInfo>, stream: &Arc<Stream>, batch: usize) -> Batch {
    let mut builder = BatchBuilder::new(Encoding::Text, host, 0, false);
    builder.stream(stream);
    for row in batch * BATCH..(batch + 1) * BATCH {
        let text = row.to_string();
        let len = text.len() as u32;
        let span = Span {
            buffer: builder.buffer(text.into()),
            start: 0,
            len,
        };
        builder.push(span, row as u64, row as u64 + 1);
    }
    builder.finish()
}
