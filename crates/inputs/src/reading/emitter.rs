//! Makes batches of chunks and sends them.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use batch::Stream;
use codec::{Chunk, Decoder};
use component::InputContext;

/// Why a stream ends before its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The pipeline takes no more, or it is time to stop.
    Stopped,
    /// What follows cannot be read.
    Broken(String),
}

/// Makes batches of chunks and sends them.
pub(crate) struct Emitter {
    decoder: Decoder,
    ctx: InputContext,
}

impl Emitter {
    /// An emitter for streams that are written as the settings say.
    pub(crate) fn new(settings: &codec::Settings, ctx: &InputContext) -> Self {
        Self {
            decoder: Decoder::new(settings, &ctx.host),
            ctx: ctx.clone(),
        }
    }

    /// Sends the events of a chunk, waiting while the queue is full.
    ///
    /// # Errors
    /// The pipeline takes no more, or a document is broken so that nothing behind it can be read.
    pub(crate) fn emit(&mut self, stream: &Arc<Stream>, mut chunk: Chunk) -> Result<(), End> {
        let received = now();
        loop {
            let start = Instant::now();
            let batch = self.decoder.next_batch(stream, &mut chunk, received);
            self.ctx.metrics.busy(start.elapsed());
            self.count();
            match batch {
                Ok(Some(batch)) => {
                    self.ctx.send_blocking(batch).map_err(|_| End::Stopped)?;
                }
                Ok(None) => return Ok(()),
                Err(broken) => return Err(End::Broken(broken.to_string())),
            }
        }
    }

    fn count(&mut self) {
        let counts = self.decoder.take_counts();
        let named = [
            ("truncated_lines", counts.truncated),
            ("invalid_utf8_lines", counts.invalid_utf8),
            ("broken_documents", counts.broken_documents),
        ];
        for (name, count) in named.into_iter().filter(|(_, count)| *count > 0) {
            self.ctx.metrics.count(name, count);
        }
        self.ctx.metrics.failures(counts.broken_documents as usize);
    }
}

/// Nanoseconds since 1970.
pub(crate) fn now() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos() as i64)
}
