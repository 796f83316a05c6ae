//! What the tests of the engine send through it, and how they run it.

use std::sync::Arc;

use batch::{Batch, BatchBuilder, Encoding, HostInfo, Span, Stream};
use component::{Activities, Diagnostics, Stop};
use config::{Period, Positive};
use pipeline::RunOptions;
use pipeline::settings::RetrySettings;

/// A run that ends with its inputs, and says nothing.
pub fn options() -> RunOptions {
    RunOptions {
        host: Arc::new(HostInfo { name: "h".into() }),
        diagnostics: Diagnostics::silent(),
        activities: Activities::default(),
        finite: true,
        stop: Stop::default(),
        registry: None,
        ledger: false,
        replays: false,
        view: Default::default(),
        own: Default::default(),
    }
}

/// Retries that are soon over.
pub fn retry() -> RetrySettings {
    RetrySettings {
        initial: Positive::<Period>::from_millis(1),
        max: Positive::<Period>::from_millis(5),
        give_up_after: Some(Period::from_millis(100)),
    }
}

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
