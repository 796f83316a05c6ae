//! One file that is being read: from its content to chunks, a slice at a time.

use std::fs::File as Opened;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use batch::Stream;
use codec::compress::{Checkpoint, Format};
use codec::{Check, Chunk, Chunker, CodecError};
use component::InputContext;

use super::content::{Content, FileSource, Scratch};
use super::order::Order;
use super::state::{DeviceInode, File, FileStat, FileState, StoredCheckpoint, Times};
use super::trail::Trail;
use crate::paths::meta::Meta;
use crate::reading::content::Got;
use crate::reading::emitter::ago;
use crate::reading::reader::RecordReader;
use crate::reading::splitting::Failure;

/// Bytes read at once before another file has its turn.
const SLICE_BYTES: u64 = 4 << 20;

/// How long half a line at the end of a compressed file waits for another member that goes on with it.
pub(super) const HALF_LINE_PATIENCE: Duration = Duration::from_secs(30);

/// A file that is being read.
pub(crate) struct Task {
    pub(crate) file: Arc<File>,
    stream: Arc<Stream>,
    reader: RecordReader<FileSource>,
    /// Where the open file is.
    place: DeviceInode,
    pub(crate) order: Order,
    /// Where another thread says that it could not send; none where this thread sends itself.
    failure: Option<Arc<Failure>>,
    pub(crate) times: Times,
    /// Bytes that an earlier run has given already, as far as they were taken out of the count of bytes read.
    skipped: u64,
}

/// Why a file cannot be opened where it was.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// Another file is at its path.
    Moved,
    /// What lies before the position is not what was read.
    Replaced,
    /// The system says no.
    Failed(io::Error),
}

/// Where a slice ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// There is more to read.
    More,
    /// Everything was read for now.
    Rest,
    /// Everything was given, half a line too.
    Closed,
    /// It is compressed and whole; with whether something follows that is not.
    Done { has_garbage: bool },
    /// It is compressed and stops before its end.
    Truncated(CodecError),
    /// It cannot be read further.
    Broken(CodecError),
    /// The same, and nothing says why.
    Unreadable,
    /// Something else is in it now.
    Replaced,
    /// The file goes on in another one, which has its content.
    Elsewhere,
    /// The system says no.
    Failed(io::Error),
    /// The pipeline takes no more.
    Stopped,
}

/// What a slice works with.
pub(crate) trait SliceContext {
    /// Memory to read with, and where buffers come from.
    fn memory(&mut self) -> (&mut Scratch, &InputContext);
    /// Takes a chunk on its way; false when nobody takes more.
    fn send(&mut self, task: &Task, chunk: Chunk) -> Result<(), Outcome>;
    /// Whether to stop.
    fn is_stopped(&self) -> bool;
    /// Whether the file is written with what is read here.
    fn is_own(&self, file: &Opened) -> bool;
    /// A chunker that goes on where one was, with the bytes before.
    fn chunker(&self, path: &str, state: &FileState, tail: &[u8]) -> Chunker;
    /// Tells a chunker that goes on in the middle of a file what the start of the file says: the header of its rows, or how its
    /// JSON documents are laid out.
    fn tell_start(&self, chunker: &mut Chunker, path: &str, file: &Opened);
    /// Whether more may come behind the end of a file in this run.
    fn follows(&self) -> bool;
    /// Whether NULs at the end of a plain file are room that is still to be written to.
    fn awaits_nuls(&self) -> bool;
    /// What is to be done with a file that was just opened.
    fn first_order(&self) -> Order;
    /// Whether half a line at the end of compressed data that is cut short is given: its other half will never come.
    fn gives_half_lines(&self) -> bool;
}

impl Task {
    /// Opens a file where it was read to.
    ///
    /// # Errors
    /// It is not there, or not what it was.
    pub(crate) fn open(
        file: &Arc<File>,
        context: &mut impl SliceContext,
    ) -> Result<Box<Self>, OpenError> {
        let (path, place) = {
            let state = file.lock();
            (state.path.clone(), state.place)
        };
        let opened = Opened::open(&path).map_err(OpenError::Failed)?;
        let meta = Meta::of_fd(&opened).map_err(OpenError::Failed)?;
        if place != Some(DeviceInode::of(&meta)) {
            return Err(OpenError::Moved);
        }
        let (mut content, tail) = seek(file, opened, context.memory().0)?;
        if context.awaits_nuls() {
            content.await_nuls();
        }
        let name = path.to_string_lossy();
        let mut state = file.lock();
        content.expect_beginning(state.fingerprint);
        state.counts.pending_bytes = 0;
        let mut chunker = context.chunker(&name, &state, &tail);
        let is_at_start = state.sent.offset == 0;
        drop(state);
        if !is_at_start {
            context.tell_start(&mut chunker, &name, content.file());
        }
        let stream = Arc::new(Stream::file(file.id, &*name));
        let now = Instant::now();
        Ok(Box::new(Self {
            file: file.clone(),
            stream,
            failure: content.is_compressed().then(Arc::default),
            skipped: 0,
            reader: RecordReader { content, chunker },
            place: DeviceInode::of(&meta),
            order: context.first_order(),
            times: Times {
                opened: now,
                data: now,
            },
        }))
    }

    /// What its events come from.
    pub(crate) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Where another thread says that it could not send; none where this thread sends itself.
    pub(crate) fn failure(&self) -> Option<&Arc<Failure>> {
        self.failure.as_ref()
    }

    /// The open file.
    pub(crate) fn opened(&self) -> &Opened {
        self.reader.content.file()
    }

    /// Whether it is compressed.
    pub(crate) fn is_compressed(&self) -> bool {
        self.reader.content.is_compressed()
    }

    /// Whether there are bytes behind those that were read.
    pub(crate) fn has_more(&self) -> bool {
        self.reader.content.has_more()
    }

    /// Whether a record waits for its end.
    pub(crate) fn has_pending_record(&self) -> bool {
        self.reader.chunker.has_pending_record()
    }

    /// Whether anything was read and not given.
    pub(crate) fn has_pending(&self) -> bool {
        self.reader.chunker.pending() > 0
    }

    /// Whether the file goes on in another one, which has its content.
    pub(crate) fn is_left(&self) -> bool {
        let place = self.file.lock().place;
        place.is_some_and(|place| place != self.place)
    }

    /// Closes it. What was read and not given will be read again.
    pub(crate) fn suspend(self) -> Arc<File> {
        let meta = Meta::of_fd(self.reader.content.file()).ok();
        let mut state = self.file.lock();
        // Where everything was read, what the system says of it now belongs to what was read.
        if let Some(meta) = meta
            && !self.reader.content.is_compressed()
            && meta.size == self.reader.content.offset()
            && state.place == Some(DeviceInode::of(&meta))
        {
            state.look = FileStat::of(&meta);
        }
        state.counts.read_bytes -= state.counts.pending_bytes;
        state.counts.pending_bytes = 0;
        drop(state);
        self.file
    }

    /// Reads and sends some of it. It holds no charged memory afterwards: others may wait for that before this goes on.
    pub(crate) fn slice(&mut self, context: &mut impl SliceContext) -> Outcome {
        let outcome = self.read_on(context);
        self.reader.chunker.release();
        outcome
    }

    fn read_on(&mut self, context: &mut impl SliceContext) -> Outcome {
        // What was read is given wherever the file goes on.
        if self.order == Order::Finish {
            return match self.send_all(context) {
                Err(outcome) => outcome,
                Ok(()) => Outcome::Closed,
            };
        }
        if self.is_left() {
            return Outcome::Elsewhere;
        }
        if context.is_own(self.reader.content.file()) {
            return Outcome::Closed;
        }
        let end = self.reader.content.offset() + SLICE_BYTES;
        loop {
            if context.is_stopped() {
                return Outcome::Stopped;
            }
            if self.reader.chunker.is_full() {
                if let Err(outcome) = self.send_ready(context) {
                    return outcome;
                }
                continue;
            }
            if self.reader.content.offset() >= end {
                return match self.send_ready(context) {
                    Err(outcome) => outcome,
                    Ok(()) => Outcome::More,
                };
            }
            match self.fill(context) {
                Ok(Got::Bytes(read)) => self.advance(read),
                Ok(other) => return self.at_end(other, context),
                Err(error) => {
                    // Whole records before the place that cannot be read are given.
                    return match self.send_ready(context) {
                        Err(outcome) => outcome,
                        Ok(()) => Outcome::Failed(error),
                    };
                }
            }
            if self.reader.chunker.is_broken() {
                // The decoder says what is wrong.
                return match self.send_all(context) {
                    Err(outcome) => outcome,
                    Ok(()) => Outcome::Unreadable,
                };
            }
        }
    }

    fn fill(&mut self, context: &mut impl SliceContext) -> io::Result<Got> {
        let has_trail = context.follows() && !self.is_compressed();
        let (scratch, ctx) = context.memory();
        self.reader.fill(ctx, &mut scratch.compressed, |at, bytes| {
            if has_trail {
                self.file.lock().trail.add(at, bytes);
            }
        })
    }

    fn advance(&mut self, read: usize) {
        self.times.data = Instant::now();
        self.note_disk_offset();
        keep_checkpoint(&self.file, &mut self.reader.content);
        let mut state = self.file.lock();
        state.counts.read_bytes += read as u64;
        self.skipped = settle(&mut state, &self.reader.chunker, self.skipped);
    }

    fn note_disk_offset(&self) {
        self.file.lock().disk_offset = self.reader.content.disk_offset();
    }

    /// Nothing more can be read now.
    fn at_end(&mut self, got: Got, context: &mut impl SliceContext) -> Outcome {
        if matches!(got, Got::Replaced) {
            return Outcome::Replaced;
        }
        // What ends compressed data gives no content.
        self.note_disk_offset();
        keep_checkpoint(&self.file, &mut self.reader.content);
        // Another member may follow, and go on with the line.
        let may_go_on = matches!(got, Got::End) && context.follows() && self.is_recent();
        let sent = match (&got, self.order) {
            (Got::Truncated(_), _) if context.gives_half_lines() => self.send_all(context),
            (Got::Truncated(_), _) => self.send_ready(context),
            (_, Order::Read) if may_go_on || matches!(got, Got::Nothing) => {
                self.send_ready(context)
            }
            (_, Order::Flush) if may_go_on || matches!(got, Got::Nothing) => {
                self.send_flushed(context)
            }
            _ => self.send_all(context),
        };
        if let Err(outcome) = sent {
            return outcome;
        }
        let waits = self.has_pending();
        match (got, self.order) {
            (Got::End, _) if waits => {
                self.order = Order::Read;
                Outcome::Rest
            }
            (Got::End, _) => Outcome::Done {
                has_garbage: self.reader.content.garbage_of().is_some(),
            },
            (Got::Truncated(problem), _) => Outcome::Truncated(problem),
            (Got::Broken(problem), _) => Outcome::Broken(problem),
            (_, Order::Close) => Outcome::Closed,
            _ => {
                self.file.lock().note_end();
                self.order = Order::Read;
                Outcome::Rest
            }
        }
    }

    /// Whether somebody may still be writing to a compressed file.
    fn is_recent(&self) -> bool {
        let meta = Meta::of_fd(self.reader.content.file());
        meta.is_ok_and(|meta| ago(meta.modified_ns) < HALF_LINE_PATIENCE)
    }

    /// Sends the whole records.
    fn send_ready(&mut self, context: &mut impl SliceContext) -> Result<(), Outcome> {
        while let Some(chunk) = self.reader.chunker.take() {
            self.send(chunk, context)?;
        }
        Ok(())
    }

    /// Sends the record that waits for its end, too.
    fn send_flushed(&mut self, context: &mut impl SliceContext) -> Result<(), Outcome> {
        self.send_ready(context)?;
        while let Some(chunk) = self.reader.chunker.flush() {
            self.send(chunk, context)?;
        }
        Ok(())
    }

    /// Sends everything, half a line too.
    fn send_all(&mut self, context: &mut impl SliceContext) -> Result<(), Outcome> {
        while let Some(chunk) = self.reader.chunker.finish() {
            self.send(chunk, context)?;
        }
        Ok(())
    }

    fn send(&mut self, chunk: Chunk, context: &mut impl SliceContext) -> Result<(), Outcome> {
        {
            let mut state = self.file.lock();
            self.skipped = settle(&mut state, &self.reader.chunker, self.skipped);
            state.counts.in_flight_bytes += chunk.source_bytes;
            state.sent = chunk.after.clone();
        }
        context.send(self, chunk)
    }
}

/// Counts what the chunker has, without what an earlier run has given; gives how much that is.
pub(crate) fn settle(state: &mut FileState, chunker: &Chunker, skipped_before: u64) -> u64 {
    let skipped = chunker.skipped();
    state.counts.read_bytes -= skipped - skipped_before;
    state.counts.pending_bytes = chunker.pending();
    skipped
}

fn keep_checkpoint(file: &Arc<File>, content: &mut Content) {
    // Where the bytes before it cannot be read it is of no use, and the next read says why.
    if let Some(checkpoint) = content.take_checkpoint()
        && let Ok(kept) = StoredCheckpoint::new(&checkpoint, content.file())
    {
        let mut state = file.lock();
        let last = state.checkpoints.back().map(|kept| kept.place);
        if last.is_none_or(|last| last < kept.place) {
            state.checkpoints.push_back(kept);
            state.prune_checkpoints();
        }
    }
}

/// The content where it was read to, and the bytes before.
fn seek(
    file: &Arc<File>,
    opened: Opened,
    scratch: &mut Scratch,
) -> Result<(Content, Vec<u8>), OpenError> {
    let (format, sent, given, checkpoint) = {
        let state = file.lock();
        let usable = state
            .checkpoints
            .iter()
            .rev()
            .find(|kept| kept.place <= state.sent.offset);
        let checkpoint = usable.and_then(|kept| kept.checkpoint(&opened));
        (state.format, state.sent.clone(), state.given, checkpoint)
    };
    if format.is_some() && given.0 > sent.offset {
        // Of a plain file this was looked at when it was found.
        let again = opened.try_clone().map_err(OpenError::Failed)?;
        let (_, trail, got) = pass_to(given.0, again, format, checkpoint.as_ref(), scratch)?;
        let is_short = trail.end() < given.0 && matches!(got, Got::End);
        if is_short || (trail.end() == given.0 && !matches(&trail, given.1)) {
            return Err(OpenError::Replaced);
        }
    }
    let (content, trail, got) = pass_to(sent.offset, opened, format, checkpoint.as_ref(), scratch)?;
    let is_there = content.offset() == sent.offset && !matches!(got, Got::Replaced);
    if !is_there || !matches(&trail, sent.check) {
        return Err(OpenError::Replaced);
    }
    Ok((content, trail.tail().to_vec()))
}

/// The content at `offset`, or where it ends before, with what was passed.
fn pass_to(
    offset: u64,
    opened: Opened,
    format: Option<Format>,
    checkpoint: Option<&Checkpoint>,
    scratch: &mut Scratch,
) -> Result<(Content, Trail, Got), OpenError> {
    let mut trail = checkpoint.map_or_else(Trail::default, |checkpoint| {
        Trail::starting_at(checkpoint.output, checkpoint.tail())
    });
    let mut content = Content::of_file(opened, format, checkpoint)
        .map_err(|error| OpenError::Failed(io::Error::other(error)))?;
    let got = content
        .pass(offset, u64::MAX, &mut trail, scratch)
        .map_err(OpenError::Failed)?;
    Ok((content, trail, got))
}

/// Whether the bytes that were passed last are those of a check. At the end of a member no bytes before are known; its
/// checksum was right.
fn matches(trail: &Trail, check: Check) -> bool {
    trail.tail().len() < usize::from(check.len) || check.matches(trail.tail())
}
