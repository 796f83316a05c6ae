//! Makes batches of chunks and sends them.
//!
//! What was changed or could not be read is counted; of each kind, the first one of an input is also told.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use batch::{Source, Stream};
use codec::{Chunk, CodecError, Decoder};
use component::{InputContext, Limit, Receipt};

/// Why a stream ends before its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The pipeline takes no more, or it is time to stop.
    Stopped,
    /// What follows cannot be read.
    Broken(CodecError),
}

/// What was sent of a chunk.
#[derive(Default)]
pub(crate) struct Emitted {
    /// Of its batches.
    pub(crate) receipts: Vec<Receipt>,
    /// Events in them.
    pub(crate) events: u64,
    /// What was dropped before.
    pub(crate) filtered: Vec<codec::Dropped>,
}

/// Makes batches of chunks and sends them.
pub(crate) struct Emitter {
    decoder: Decoder,
    ctx: InputContext,
    /// What is said of a truncated line.
    cut: &'static str,
    /// When events count as received; none for the time at which their chunk comes.
    received: Option<i64>,
}

impl Emitter {
    /// An emitter for streams that are written as the settings say.
    pub(crate) fn new(settings: &codec::Settings, ctx: &InputContext) -> Self {
        Self {
            decoder: Decoder::new(settings, &ctx.host),
            ctx: ctx.clone(),
            cut: if settings.multiline.is_some() {
                "is longer than `max_line_bytes` or `multiline.max_lines` and was truncated"
            } else {
                "is longer than `max_line_bytes` and was truncated"
            },
            received: None,
        }
    }

    /// An emitter whose events count as received at this time, in nanoseconds since 1970, where there is one.
    pub(crate) fn at(self, received: Option<i64>) -> Self {
        Self { received, ..self }
    }

    /// Sends the events of a chunk, waiting while the queue is full.
    ///
    /// # Errors
    /// The pipeline takes no more, or a document is broken so that nothing behind it can be read.
    pub(crate) fn emit(&mut self, stream: &Arc<Stream>, chunk: Chunk) -> Result<(), End> {
        self.emit_into(stream, chunk, &mut Emitted::default())
    }

    /// Sends the events of a chunk and says what was sent, also before an error.
    ///
    /// # Errors
    /// As for [`Self::emit`].
    pub(crate) fn emit_into(
        &mut self,
        stream: &Arc<Stream>,
        mut chunk: Chunk,
        emitted: &mut Emitted,
    ) -> Result<(), End> {
        let received = self.received.unwrap_or_else(now);
        loop {
            let start = Instant::now();
            let batch = self.decoder.next_batch(stream, &mut chunk, received);
            self.ctx.metrics.busy(start.elapsed());
            count(&mut self.decoder, stream, &self.ctx, self.cut);
            emitted.filtered.extend(self.decoder.take_dropped());
            match batch {
                Ok(Some(batch)) => {
                    let events = batch.len();
                    let receipt = self.ctx.send_blocking(batch).map_err(|_| End::Stopped)?;
                    emitted.events += events as u64;
                    emitted.receipts.push(receipt);
                }
                Ok(None) => return Ok(()),
                Err(broken) => return Err(End::Broken(broken)),
            }
        }
    }
}

/// Counts what a decoder changed or could not read in a stream; of each kind, the first one is also told. `cut` is what is said
/// of a record that was truncated.
pub(crate) fn count(decoder: &mut Decoder, stream: &Stream, ctx: &InputContext, cut: &'static str) {
    let counts = decoder.take_counts();
    let firsts = decoder.take_firsts();
    let kinds = [
        ("truncated_lines", counts.truncated, firsts.truncated, cut),
        (
            "invalid_utf8_lines",
            counts.invalid_utf8,
            firsts.invalid_utf8,
            "is not valid UTF-8: invalid bytes were replaced by U+FFFD",
        ),
        (
            "broken_documents",
            counts.broken_documents,
            firsts.broken_document,
            "is not a JSON object: it was kept as text",
        ),
        (
            "broken_containers",
            counts.broken_containers,
            firsts.broken_container,
            "is not a line of a container log: it was kept as text",
        ),
        (
            "broken_syslog_lines",
            counts.broken_syslog,
            firsts.broken_syslog,
            "is not a syslog message: it was kept as text",
        ),
        (
            "broken_csv_rows",
            counts.broken_rows,
            firsts.broken_row,
            "does not fit the header of its CSV: it was kept as text",
        ),
    ];
    for (name, count, first, what) in kinds {
        if count == 0 {
            continue;
        }
        ctx.metrics.count(name, count);
        if let Some(offset) = first {
            let text = || match &stream.source {
                // The one thing without a name that is read here.
                Source::Unnamed => format!("standard input: the line at byte {offset} {what}"),
                Source::Connection { peer, .. } => format!("{peer}: a message {what}"),
                source => format!("{source}: the line at byte {offset} {what}"),
            };
            ctx.diagnostics.warn_limited(Limit::events(name), text);
        }
    }
    let lines = counts.broken_documents + counts.broken_containers + counts.broken_syslog;
    let failures = lines + counts.broken_rows;
    ctx.metrics.failures(failures as usize);
}

/// How long ago something was that happened at `time_ns`, in nanoseconds since 1970.
pub(crate) fn ago(time_ns: i64) -> Duration {
    Duration::from_nanos(now().saturating_sub(time_ns).max(0) as u64)
}

/// Nanoseconds since 1970.
pub(crate) fn now() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos() as i64)
}
