//! One stream from its start to its end, decompressed, as chunks of whole records.
//!
//! Bytes are read straight into buffers of the pool. From something that may keep us waiting, a chunk leaves when its
//! buffer is full or [`BATCH_TIME`] after its first record came.
//!
//! Every failure ends the stream: what was read before it is given first, then [`Reader::into_problem`] tells.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use batch::Stream;
use codec::{Chunk, Chunker, Decompressor, compress};
use component::InputContext;

use super::identity::{FINGERPRINT_BYTES, Identity};
use super::settings::Compression;
use super::source::{Got, Source};

/// How long a record waits for others to go with it.
const BATCH_TIME: Duration = Duration::from_millis(50);

/// How long to wait for bytes before looking whether to stop.
pub(super) const STOP_CHECK_TIME: Duration = Duration::from_millis(100);

/// Compressed bytes read at once.
const COMPRESSED_BYTES: usize = 32 * 1024;

/// The smallest buffer that is read into: the first chunk holds what the id of a file is made of.
const BUFFER_MIN: usize = 4 * FINGERPRINT_BYTES;

/// Reads one stream.
pub(crate) struct Reader {
    name: String,
    source: batch::Source,
    identity: Identity,
    stream: Option<Arc<Stream>>,
    feed: Feed,
    compression: Compression,
    decompressor: Option<Decompressor>,
    /// Bytes as they are in the source: the first ones, by which compression is recognised, then only compressed ones.
    raw: Vec<u8>,
    raw_left: Range<usize>,
    chunker: Chunker,
    /// When the oldest record of the next chunk was read.
    oldest: Option<Instant>,
    ctx: InputContext,
}

/// What comes from the source.
struct Feed {
    source: Source,
    ended: bool,
    problem: Option<String>,
    /// Time spent waiting since the last chunk.
    waited: Duration,
}

impl Reader {
    /// A reader of a stream, which problems call `name` and events call `source`. It is read from `feed`.
    pub(crate) fn new(
        name: &str,
        source: batch::Source,
        identity: Identity,
        feed: Source,
        compression: Compression,
        settings: &codec::Settings,
        ctx: &InputContext,
    ) -> Self {
        Self {
            name: name.to_owned(),
            source,
            identity,
            stream: None,
            feed: Feed {
                source: feed,
                ended: false,
                problem: None,
                waited: Duration::ZERO,
            },
            compression,
            decompressor: compression.format().map(Decompressor::new),
            raw: Vec::new(),
            raw_left: 0..0,
            chunker: Chunker::new(settings),
            oldest: None,
            ctx: ctx.clone(),
        }
    }

    /// What problems call the stream.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Finds out whether the stream is compressed, which takes its first bytes.
    pub(crate) fn recognise(&mut self) {
        if self.compression != Compression::Auto {
            return;
        }
        self.raw.resize(COMPRESSED_BYTES, 0);
        let mut read = 0;
        while compress::is_undecided(&self.raw[..read])
            && !self.feed.ended
            && !self.ctx.stop.is_stopped()
        {
            read += self.feed.read(&mut self.raw[read..], STOP_CHECK_TIME);
        }
        self.raw_left = 0..read;
        // The end, if it was there, is found again behind these bytes.
        self.feed.ended = self.feed.problem.is_some();
        self.decompressor = compress::recognise(&self.raw[..read]).map(Decompressor::new);
    }

    /// Whether the stream is compressed.
    pub(crate) fn is_compressed(&self) -> bool {
        self.decompressor.is_some()
    }

    /// The next whole records of the stream; none at its end and when it is time to stop.
    pub(crate) fn next_chunk(&mut self) -> Option<(Arc<Stream>, Chunk)> {
        let start = Instant::now();
        let chunk = self.read_chunk();
        let waited = std::mem::take(&mut self.feed.waited);
        self.ctx
            .metrics
            .busy(start.elapsed().saturating_sub(waited));
        self.ctx.metrics.waited(waited);
        chunk.map(|chunk| (self.stream(), chunk))
    }

    /// Why the stream ended before its end.
    pub(crate) fn into_problem(self) -> Option<String> {
        if let Some(decompressor) = self.decompressor
            && decompressor.has_garbage()
        {
            self.ctx.diagnostics.warn(&format!(
                "{}: the data after the {} data was ignored",
                self.name,
                decompressor.format()
            ));
        }
        self.feed.problem
    }

    fn read_chunk(&mut self) -> Option<Chunk> {
        loop {
            if self.feed.ended {
                return self.chunker.finish();
            }
            if self.chunker.is_full() || self.is_due() || self.ctx.stop.is_stopped() {
                self.oldest = None;
                return self.chunker.take();
            }
            if let Some(size) = self.chunker.needs() {
                let start = Instant::now();
                let buffer = self.ctx.pool.take_sized(size.max(BUFFER_MIN));
                self.feed.waited += start.elapsed();
                self.chunker.give(buffer);
            } else {
                self.fill();
            }
            if self.oldest.is_none() && self.feed.source.may_wait() && self.chunker.is_ready() {
                self.oldest = Some(Instant::now());
            }
        }
    }

    /// Whether what was read has waited long enough.
    fn is_due(&self) -> bool {
        self.oldest
            .is_some_and(|oldest| oldest.elapsed() >= BATCH_TIME)
    }

    fn stream(&mut self) -> Arc<Stream> {
        let (id, source) = (self.identity.id(), &self.source);
        self.stream
            .get_or_insert_with(|| Arc::new(Stream::new(id, source.clone())))
            .clone()
    }

    /// How long a read may wait: no longer than the records that were read.
    fn patience(&self) -> Duration {
        self.oldest.map_or(STOP_CHECK_TIME, |oldest| {
            BATCH_TIME.saturating_sub(oldest.elapsed())
        })
    }

    /// Reads some bytes into the chunker.
    fn fill(&mut self) {
        if self.decompressor.is_some() {
            return self.inflate();
        }
        let patience = self.patience();
        let space = self.chunker.space();
        let read = if self.raw_left.is_empty() {
            self.feed.read(space, patience)
        } else {
            let read = space.len().min(self.raw_left.len());
            space[..read].copy_from_slice(&self.raw[self.raw_left.start..][..read]);
            self.raw_left.start += read;
            read
        };
        self.ctx.progress.add_done(read as u64);
        self.identity.content(&space[..read]);
        self.ctx.metrics.bytes(read);
        self.chunker.advance(read);
        self.feed.ended |= self.chunker.is_broken();
    }

    /// Inflates some bytes into the chunker, reading compressed ones where there are none.
    fn inflate(&mut self) {
        let patience = self.patience();
        let Some(decompressor) = &mut self.decompressor else {
            return;
        };
        let space = self.chunker.space();
        let step = decompressor.step(&self.raw[self.raw_left.clone()], space);
        self.raw_left.start += step.consumed;
        self.ctx.progress.add_done(step.consumed as u64);
        self.identity.content(&space[..step.produced]);
        self.ctx.metrics.bytes(step.produced);
        self.chunker.advance(step.produced);
        self.feed.ended |= self.chunker.is_broken();
        if let Some(failure) = step.failure {
            self.feed.fail(failure.to_string());
        } else if step.produced == 0 && self.raw_left.is_empty() {
            self.raw.resize(COMPRESSED_BYTES, 0);
            self.raw_left = 0..self.feed.read(&mut self.raw, patience);
            if self.feed.ended
                && self.feed.problem.is_none()
                && let Err(failure) = decompressor.finish()
            {
                self.feed.fail(failure.to_string());
            }
        }
    }
}

impl Feed {
    /// Reads from the source, waiting no longer than `patience`; no byte when there was none in time or there will be
    /// none.
    fn read(&mut self, into: &mut [u8], patience: Duration) -> usize {
        if self.source.may_wait() && !self.wait(patience) {
            return 0;
        }
        match self.source.read(into) {
            Ok(Got::Bytes(read)) => return read,
            Ok(Got::Nothing) => {}
            Ok(Got::End) => self.ended = true,
            Err(error) => self.fail(format!("cannot be read: {}", describe(&error))),
        }
        0
    }

    fn wait(&mut self, patience: Duration) -> bool {
        let start = Instant::now();
        let ready = self.source.wait(patience);
        self.waited += start.elapsed();
        ready.unwrap_or_else(|error| {
            self.fail(format!("cannot be waited for: {}", describe(&error)));
            false
        })
    }

    fn fail(&mut self, problem: String) {
        self.problem.get_or_insert(problem);
        self.ended = true;
    }
}

/// What the system says, without its number.
pub(crate) fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => {
            let text = error.to_string();
            text.split(" (os error")
                .next()
                .unwrap_or_default()
                .to_lowercase()
        }
    }
}
