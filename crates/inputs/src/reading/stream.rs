//! One stream from its start to its end: standard input, a named pipe, or a file that is read like one.
//!
//! From something that may keep us waiting, records leave when a buffer is full or [`BATCH_TIME`] after the first of them
//! came. Every failure ends the stream: what was read before it is given first.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use batch::Stream;
use codec::{Chunk, Chunker, CodecError};
use component::InputContext;

use super::content::{Content, Got};
use super::describe::describe;
use super::emitter::{Emitter, End};
use super::identity::Identity;
use super::pipe::{Pipe, STOP_CHECK_TIME, open_patiently};
use super::reader::RecordReader;
use super::settings::Compression;
use super::splitting::{self, Failure, Splitting};

/// How long a record waits for others to go with it.
const BATCH_TIME: Duration = Duration::from_millis(50);

/// Why a stream ends before its end.
#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error("the pipeline accepts no more events")]
    Stopped,
    #[error(transparent)]
    Broken(CodecError),
    #[error("cannot be read: {}", describe(.0))]
    Read(io::Error),
    #[error("cannot be waited for: {}", describe(.0))]
    Wait(io::Error),
}

impl From<End> for StreamError {
    fn from(end: End) -> Self {
        match end {
            End::Stopped => Self::Stopped,
            End::Broken(error) => Self::Broken(error),
        }
    }
}

/// Takes a chunk on its way.
type SendChunk<'a> = dyn FnMut(Arc<Stream>, Chunk) -> Result<(), End> + 'a;

/// A stream that is to be read.
pub(crate) struct Opened {
    /// What problems call it.
    pub(crate) name: String,
    /// What events call it.
    pub(crate) source: batch::Source,
    /// Its id, but for the first bytes of its content.
    pub(crate) identity: Identity,
    pub(crate) pipe: Pipe,
    /// When its events count as received, in nanoseconds since 1970; none for the time at which they are read.
    pub(crate) received: Option<i64>,
}

/// A stream that is being read.
struct StreamReader {
    source: batch::Source,
    identity: Identity,
    received: Option<i64>,
    stream: Option<Arc<Stream>>,
    reader: RecordReader<Pipe>,
    /// When the oldest record of the next chunk was read.
    oldest: Option<Instant>,
    ctx: InputContext,
}

/// Opens something that is no regular file, such as a named pipe. None when it was time to stop before somebody opened the
/// pipe to write.
///
/// # Errors
/// It cannot be opened.
pub(crate) fn open_pipe(path: &Path, ctx: &InputContext) -> io::Result<Option<Opened>> {
    let Some(file) = open_patiently(path, ctx)? else {
        return Ok(None);
    };
    let found = file.metadata()?;
    let shown = path.to_string_lossy();
    let (device, inode) = (found.dev().to_le_bytes(), found.ino().to_le_bytes());
    Ok(Some(Opened {
        identity: Identity::new([ctx.host.name.as_bytes(), shown.as_bytes(), &device, &inode]),
        source: batch::Source::File {
            path: shown.as_ref().into(),
        },
        pipe: Pipe::new(file.into()),
        received: None,
        name: shown.into_owned(),
    }))
}

/// Reads a stream to its end; gives what went wrong. A pipeline that takes no more is no problem of its input.
pub(crate) fn read_stream(
    mut opened: Opened,
    compression: Compression,
    settings: &codec::Settings,
    ctx: &InputContext,
) -> Option<String> {
    let name = std::mem::take(&mut opened.name);
    let problem = |end| match end {
        Ok(()) | Err(StreamError::Stopped) => None,
        Err(error) => Some(format!("{name}: {error}")),
    };
    let mut reader = match StreamReader::begin(opened, compression, settings, ctx) {
        Ok(Some(reader)) => reader,
        Ok(None) => return None,
        Err(error) => return problem(Err(error)),
    };
    let end = if reader.reader.content.is_compressed() && splitting::is_worthwhile() {
        reader.run_split(settings)
    } else {
        reader.run_here(settings)
    };
    if let Some(decompressor) = reader.reader.content.garbage_of() {
        let format = decompressor.format();
        ctx.diagnostics.warn(&format!(
            "{name}: the data after the {format} data was ignored"
        ));
    }
    problem(end)
}

impl StreamReader {
    /// A reader of a stream; none when it is time to stop before its first bytes have come, which tell whether it is compressed.
    fn begin(
        opened: Opened,
        compression: Compression,
        settings: &codec::Settings,
        ctx: &InputContext,
    ) -> Result<Option<Self>, StreamError> {
        let mut pipe = opened.pipe;
        let decompressor = loop {
            if ctx.stop.is_stopped() {
                return Ok(None);
            }
            match pipe.recognise(compression) {
                Ok(Some(decompressor)) => break decompressor,
                Ok(None) => pipe.wait(STOP_CHECK_TIME).map_err(StreamError::Wait)?,
                Err(error) => return Err(StreamError::Read(error)),
            }
        };
        Ok(Some(Self {
            source: opened.source,
            identity: opened.identity,
            received: opened.received,
            stream: None,
            reader: RecordReader {
                content: Content::new(pipe, decompressor),
                chunker: Chunker::new(settings),
            },
            oldest: None,
            ctx: ctx.clone(),
        }))
    }

    /// Reads and sends on this thread.
    fn run_here(&mut self, settings: &codec::Settings) -> Result<(), StreamError> {
        let mut emitter = Emitter::new(settings, &self.ctx).at(self.received);
        self.run(&mut |stream, chunk| emitter.emit(&stream, chunk))
    }

    /// Reads on this thread and sends on a second one; all on this one where the system refuses a second.
    fn run_split(&mut self, settings: &codec::Settings) -> Result<(), StreamError> {
        let mut emitter = Emitter::new(settings, &self.ctx).at(self.received);
        let emit = move |(stream, chunk): (Arc<Stream>, Chunk)| emitter.emit(&stream, chunk);
        let Ok((splitting, thread)) = Splitting::start(emit) else {
            return self.run_here(settings);
        };
        let failure = Arc::new(Failure::new());
        let end = self.run(&mut |stream, chunk| splitting.send((stream, chunk), &failure));
        drop(splitting);
        splitting::join(thread);
        // What came before counts.
        match Arc::into_inner(failure).and_then(Failure::into_inner) {
            Some(failure) => Err(failure.into()),
            None => end,
        }
    }

    /// Reads to the end, or until it is time to stop.
    fn run(&mut self, send: &mut SendChunk<'_>) -> Result<(), StreamError> {
        while !self.ctx.stop.is_stopped() {
            if self.reader.chunker.is_full() || self.is_due() {
                self.send_ready(send)?;
            }
            let identity = &mut self.identity;
            let see = |_, bytes: &[u8]| identity.content(bytes);
            let end = match self.reader.fill(&self.ctx, &mut [], see) {
                // The decoder says what is wrong.
                Ok(Got::Bytes(_)) if self.reader.chunker.is_broken() => Ok(()),
                Ok(Got::Bytes(_)) => {
                    self.note_ready();
                    continue;
                }
                Ok(Got::Nothing) => {
                    let patience = self.patience();
                    let pipe = self.reader.content.source_mut();
                    match pipe.wait(patience).map_err(StreamError::Wait) {
                        Ok(()) => continue,
                        Err(error) => Err(error),
                    }
                }
                Ok(Got::Truncated(error) | Got::Broken(error)) => Err(StreamError::Broken(error)),
                Ok(Got::End | Got::Replaced) => Ok(()),
                Err(error) => Err(StreamError::Read(error)),
            };
            while let Some(chunk) = self.reader.chunker.finish() {
                send(self.stream(), chunk)?;
            }
            return end;
        }
        Ok(self.send_ready(send)?)
    }

    /// Sends the whole records.
    fn send_ready(&mut self, send: &mut SendChunk<'_>) -> Result<(), End> {
        self.oldest = None;
        while let Some(chunk) = self.reader.chunker.take() {
            send(self.stream(), chunk)?;
        }
        Ok(())
    }

    fn stream(&mut self) -> Arc<Stream> {
        let (id, source) = (self.identity.id(), &self.source);
        self.stream
            .get_or_insert_with(|| Arc::new(Stream::new(id, source.clone())))
            .clone()
    }

    /// Notes when the first record came.
    fn note_ready(&mut self) {
        let may_wait = self.reader.content.source().may_wait();
        if self.oldest.is_none() && may_wait && self.reader.chunker.is_ready() {
            self.oldest = Some(Instant::now());
        }
    }

    /// Whether what was read has waited long enough.
    fn is_due(&self) -> bool {
        self.oldest
            .is_some_and(|oldest| oldest.elapsed() >= BATCH_TIME)
    }

    /// How long a read may wait: no longer than the records that were read.
    fn patience(&self) -> Duration {
        self.oldest.map_or(STOP_CHECK_TIME, |oldest| {
            BATCH_TIME.saturating_sub(oldest.elapsed())
        })
    }
}
