//! Makes batches of chunks and sends them.
//!
//! What was changed or could not be read is counted; of each kind, the first one of an input is also told.

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
    /// The kinds that somebody was told of.
    told: [bool; 3],
}

impl Emitter {
    /// An emitter for streams that are written as the settings say.
    pub(crate) fn new(settings: &codec::Settings, ctx: &InputContext) -> Self {
        Self {
            decoder: Decoder::new(settings, &ctx.host),
            ctx: ctx.clone(),
            told: [false; 3],
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
            self.count(stream);
            match batch {
                Ok(Some(batch)) => {
                    self.ctx.send_blocking(batch).map_err(|_| End::Stopped)?;
                }
                Ok(None) => return Ok(()),
                Err(broken) => return Err(End::Broken(broken.to_string())),
            }
        }
    }

    fn count(&mut self, stream: &Stream) {
        let counts = self.decoder.take_counts();
        let firsts = self.decoder.firsts();
        let kinds = [
            (
                "truncated_lines",
                counts.truncated,
                firsts.truncated,
                "is longer than `max_line_bytes` and was cut",
            ),
            (
                "invalid_utf8_lines",
                counts.invalid_utf8,
                firsts.invalid_utf8,
                "is not UTF-8: U+FFFD stands where it is not",
            ),
            (
                "broken_documents",
                counts.broken_documents,
                firsts.broken_document,
                "holds no JSON object: it was kept as text",
            ),
        ];
        for ((name, count, first, what), told) in kinds.into_iter().zip(&mut self.told) {
            if count == 0 {
                continue;
            }
            self.ctx.metrics.count(name, count);
            if let Some(offset) = first.filter(|_| !*told) {
                *told = true;
                let stream = stream.path.as_deref().unwrap_or("standard input");
                self.ctx.diagnostics.warn(&format!(
                    "{stream}: the line at byte {offset} {what} (further ones are only counted)"
                ));
            }
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
