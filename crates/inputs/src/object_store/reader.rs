//! One object being read: from its content to events in the queue.

use std::sync::Arc;

use batch::Stream;
use codec::compress::{Checkpoint, Decompressor, Format, recognise};
use codec::{CHECK_BYTES, Chunk, Chunker, Header, LAYOUT_BYTES, Layout, Resume};
use component::{FileStatus, InputContext};

use super::known::OpenObject;
use super::listed::StoreError;
use super::source::ObjectSource;
use super::store::SourceStore;
use crate::file::acknowledge::Dirty;
use crate::file::formats::Formats;
use crate::file::readers::{HEADER_BYTES, Sending};
use crate::file::state::StoredCheckpoint;
use crate::file::task::settle;
use crate::paths::meta::Meta;
use crate::reading::content::{Content, Got};
use crate::reading::emitter::End;
use crate::reading::reader::RecordReader;
use crate::reading::settings::Compression;

/// Bytes that are read before memory is given back, so that others get some.
const SLICE_BYTES: u64 = 4 << 20;

/// Compressed bytes of a file that are read at once, and bytes that are passed over at once.
const SCRATCH_BYTES: usize = 64 << 10;

/// Why an object is not read further.
pub(super) enum ObjectEnd {
    /// It was read to its end; with what follows compressed data and is none.
    Done { garbage_behind: Option<Format> },
    /// What follows cannot be read.
    Broken(String),
    /// The store does not give it.
    Failed(StoreError),
    /// An output of the pipeline writes it.
    Own,
    /// The pipeline takes no more.
    Stopped,
}

impl From<StoreError> for ObjectEnd {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Stopped => Self::Stopped,
            error => Self::Failed(error),
        }
    }
}

/// What a thread reads with.
pub(super) struct ObjectReader {
    pub(super) store: SourceStore,
    pub(super) formats: Formats,
    pub(super) compression: Compression,
    pub(super) ctx: InputContext,
    pub(super) sending: Sending,
    pub(super) dirty: Arc<Dirty>,
    pub(super) scratch: Vec<u8>,
}

/// The object in hand.
struct Reading<'r> {
    with: &'r mut ObjectReader,
    object: &'r OpenObject,
    stream: Arc<Stream>,
    reader: RecordReader<ObjectSource>,
    /// Bytes that an earlier run has given already, as far as they were taken out of the count of bytes read.
    skipped: u64,
}

impl ObjectReader {
    /// Room for what is read.
    pub(super) fn scratch() -> Vec<u8> {
        vec![0; SCRATCH_BYTES]
    }

    /// Reads an object from where it was read to, to its end.
    pub(super) fn read(&mut self, object: &OpenObject) -> ObjectEnd {
        object.file.lock().status = FileStatus::Open;
        let end = match self.begin(object) {
            Ok(mut reading) => {
                let end = reading.run();
                reading.give_up_pending();
                end
            }
            Err(end) => end,
        };
        let mut state = object.file.lock();
        state.status = match &end {
            ObjectEnd::Done { .. } => FileStatus::Done,
            ObjectEnd::Broken(_) => FileStatus::Broken,
            _ => FileStatus::Idle,
        };
        if let ObjectEnd::Broken(problem) = &end {
            state.problem = Some(problem.clone());
        }
        self.dirty.note(&object.file, &mut state);
        end
    }

    fn begin<'r>(&'r mut self, object: &'r OpenObject) -> Result<Reading<'r>, ObjectEnd> {
        let (sent, format, path) = {
            let state = object.file.lock();
            let path = state.path.to_string_lossy().into_owned();
            (state.sent.clone(), state.format, path)
        };
        let mut source = ObjectSource::open(&self.store, &object.listed, &self.ctx.stop)?;
        if let Some(file) = source.file()
            && self.ctx.writes_files()
            && Meta::of_fd(file).is_ok_and(|meta| self.ctx.writes(&meta.identity()))
        {
            return Err(ObjectEnd::Own);
        }
        let format = match sent.offset {
            0 => self.recognise(&mut source)?,
            _ => format,
        };
        object.file.lock().format = format;
        let (content, tail) = self.seek(object, source, format, &sent)?;
        let settings = self.formats.of(&path).clone();
        let mut chunker = Chunker::resume(&settings, &sent, &tail);
        if sent.offset > 0 {
            self.tell_start(object, &settings, &mut chunker)?;
        }
        Ok(Reading {
            stream: Arc::new(Stream::file(object.file.id, path)),
            object,
            reader: RecordReader { content, chunker },
            skipped: 0,
            with: self,
        })
    }

    /// How an object is compressed.
    fn recognise(&self, source: &mut ObjectSource) -> Result<Option<Format>, ObjectEnd> {
        if self.compression != Compression::Auto {
            return Ok(self.compression.format());
        }
        let mut magic = [0; 8];
        let read = source.read_all(0, &mut magic);
        let read = read.map_err(|error| source.failure(&error))?;
        Ok(recognise(&magic[..read]))
    }

    /// The content where the object was read to, and the bytes before.
    fn seek(
        &mut self,
        object: &OpenObject,
        source: ObjectSource,
        format: Option<Format>,
        sent: &Resume,
    ) -> Result<(Content<ObjectSource>, Vec<u8>), ObjectEnd> {
        let mut tail = Vec::new();
        let broken = |error: codec::CodecError| ObjectEnd::Broken(error.to_string());
        let mut content = match format {
            None => {
                let mut content = Content::new(source, None);
                let start = sent.offset.saturating_sub(CHECK_BYTES as u64);
                tail.resize((sent.offset - start) as usize, 0);
                let read = content.source_mut().read_all(start, &mut tail);
                read.map_err(|error| content.source_mut().failure(&error))?;
                content.go_to(sent.offset);
                content
            }
            Some(format) => {
                let checkpoint = checkpoint(object, sent.offset);
                let decompressor = match &checkpoint {
                    Some(checkpoint) => Decompressor::resume(checkpoint).map_err(broken)?,
                    None => Decompressor::new(format),
                };
                tail.extend(checkpoint.iter().flat_map(Checkpoint::tail));
                Content::new(source, Some(decompressor))
            }
        };
        while content.offset() < sent.offset {
            if self.ctx.stop.is_stopped() {
                return Err(ObjectEnd::Stopped);
            }
            let mut passed = [0; 16 << 10];
            let room = passed.len().min((sent.offset - content.offset()) as usize);
            match content.read(&mut passed[..room], &mut self.scratch) {
                Ok(Got::Bytes(read)) => {
                    tail.extend_from_slice(&passed[..read]);
                    tail.drain(..tail.len().saturating_sub(CHECK_BYTES));
                }
                Ok(Got::Truncated(error) | Got::Broken(error)) => return Err(broken(error)),
                Ok(_) => return Err(StoreError::Changed.into()),
                Err(error) => return Err(content.source_mut().failure(&error).into()),
            }
        }
        // At the end of a member no bytes before are known; its checksum was right.
        let is_known = tail.len() >= usize::from(sent.check.len);
        match is_known && !sent.check.matches(&tail) {
            true => Err(StoreError::Changed.into()),
            false => Ok((content, tail)),
        }
    }

    /// Tells a chunker that goes on in the middle what the start of the object says: the header of its rows, or how its JSON
    /// documents are laid out.
    fn tell_start(
        &mut self,
        object: &OpenObject,
        settings: &codec::Settings,
        chunker: &mut Chunker,
    ) -> Result<(), ObjectEnd> {
        if settings.csv.as_ref().is_some_and(codec::Csv::has_header) {
            let sizes = [HEADER_BYTES, settings.record_max + HEADER_BYTES];
            let mut header: Option<Arc<Header>> = None;
            for size in sizes {
                header = settings.header_of(&self.head(object, size)?);
                if header.is_some() {
                    break;
                }
            }
            chunker.set_header(header);
        }
        if settings.has_layout() {
            let layout = match Layout::of(&self.head(object, HEADER_BYTES)?, false) {
                Some(layout) => Some(layout),
                None => Layout::of(&self.head(object, LAYOUT_BYTES)?, true),
            };
            chunker.set_layout(layout.unwrap_or_default());
        }
        Ok(())
    }

    /// The first bytes of an object, decompressed.
    fn head(&mut self, object: &OpenObject, size: usize) -> Result<Vec<u8>, ObjectEnd> {
        let source = ObjectSource::open(&self.store, &object.listed, &self.ctx.stop)?;
        let format = object.file.lock().format;
        let mut content = Content::new(source, format.map(Decompressor::new));
        let (mut head, mut filled) = (vec![0; size], 0);
        while filled < size {
            match content.read(&mut head[filled..], &mut self.scratch) {
                Ok(Got::Bytes(read)) => filled += read,
                Ok(_) => break,
                Err(error) => return Err(content.source_mut().failure(&error).into()),
            }
        }
        head.truncate(filled);
        Ok(head)
    }
}

/// The last checkpoint up to an offset.
fn checkpoint(object: &OpenObject, offset: u64) -> Option<Checkpoint> {
    let state = object.file.lock();
    let mut kept = state.checkpoints.iter().rev();
    kept.find(|kept| kept.place <= offset)?.unchecked()
}

impl Reading<'_> {
    fn run(&mut self) -> ObjectEnd {
        match self.read_on() {
            Ok(end) | Err(end) => end,
        }
    }

    fn read_on(&mut self) -> Result<ObjectEnd, ObjectEnd> {
        let mut slice_end = self.reader.content.offset() + SLICE_BYTES;
        loop {
            if self.with.ctx.stop.is_stopped() {
                return Ok(ObjectEnd::Stopped);
            }
            if self.reader.chunker.is_full() {
                self.send_ready()?;
                continue;
            }
            if self.reader.content.offset() >= slice_end {
                self.send_ready()?;
                self.reader.chunker.release();
                slice_end = self.reader.content.offset() + SLICE_BYTES;
            }
            let (ctx, scratch) = (&self.with.ctx, &mut self.with.scratch);
            let got = match self.reader.fill(ctx, scratch, |_, _| {}) {
                Ok(got) => got,
                Err(error) => {
                    // Whole records before are given.
                    self.send_ready()?;
                    return Err(self.reader.content.source_mut().failure(&error).into());
                }
            };
            self.note_progress();
            match got {
                Got::Bytes(read) => self.advance(read),
                Got::Replaced | Got::Nothing => {
                    self.send_ready()?;
                    return Err(StoreError::Changed.into());
                }
                Got::End => {
                    self.send_all()?;
                    let garbage = self.reader.content.garbage_of();
                    return Ok(ObjectEnd::Done {
                        garbage_behind: garbage.map(Decompressor::format),
                    });
                }
                Got::Truncated(error) | Got::Broken(error) => {
                    self.send_all()?;
                    return Ok(ObjectEnd::Broken(error.to_string()));
                }
            }
            if self.reader.chunker.is_broken() {
                // The decoder says what is wrong.
                self.send_all()?;
                return Ok(ObjectEnd::Broken("broken data".to_owned()));
            }
        }
    }

    /// Keeps a checkpoint, and how much of the object was read.
    fn note_progress(&mut self) {
        let mut state = self.object.file.lock();
        state.disk_offset = self.reader.content.disk_offset();
        if let Some(checkpoint) = self.reader.content.take_checkpoint() {
            let last = state.checkpoints.back().map(|kept| kept.place);
            if last.is_none_or(|last| last < checkpoint.output) {
                let kept = StoredCheckpoint::of_object(&checkpoint);
                state.checkpoints.push_back(kept);
                state.prune_checkpoints();
            }
        }
    }

    fn advance(&mut self, read: usize) {
        let mut state = self.object.file.lock();
        state.counts.read_bytes += read as u64;
        self.skipped = settle(&mut state, &self.reader.chunker, self.skipped);
    }

    fn send_ready(&mut self) -> Result<(), ObjectEnd> {
        while let Some(chunk) = self.reader.chunker.take() {
            self.send(chunk)?;
        }
        Ok(())
    }

    fn send_all(&mut self) -> Result<(), ObjectEnd> {
        while let Some(chunk) = self.reader.chunker.finish() {
            self.send(chunk)?;
        }
        Ok(())
    }

    fn send(&mut self, chunk: Chunk) -> Result<(), ObjectEnd> {
        let file = &self.object.file;
        {
            let mut state = file.lock();
            self.skipped = settle(&mut state, &self.reader.chunker, self.skipped);
            state.counts.in_flight_bytes += chunk.source_bytes;
            state.sent = chunk.after.clone();
        }
        let sent = self.with.sending.send(file, &self.stream, chunk);
        sent.map_err(|end| match end {
            End::Stopped => ObjectEnd::Stopped,
            End::Broken(error) => ObjectEnd::Broken(error.to_string()),
        })
    }

    /// What was read and not sent will be read again.
    fn give_up_pending(&self) {
        let mut state = self.object.file.lock();
        state.counts.read_bytes -= state.counts.pending_bytes;
        state.counts.pending_bytes = 0;
    }
}
