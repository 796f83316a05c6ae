//! The reader threads: they take work from the pool, read a slice of it, and say what happened.
//!
//! What a plain file gives is made into batches by the thread that read it. What a compressed one gives goes to one more
//! thread where there is a second core, because inflating takes longer than the rest.

use std::fs::File as Opened;
use std::sync::Arc;

use batch::Stream;
use codec::{Chunk, Chunker, CodecError, Header, LAYOUT_BYTES, Layout, Resume};
use component::InputContext;
use component::thread::Work as Thread;
use registry::{Change, Registry};
use tokio::sync::mpsc;

use super::acknowledge::Sent;
use super::content::{Head, Scratch};
use super::formats::Formats;
use super::order::Order;
use super::pool::{Active, Pool, Waiting, Work};
use super::probe::{Probe, Seen};
use super::record;
use super::state::{File, FileState};
use super::task::{OpenError, Outcome, SliceContext, Task};
use crate::paths::meta::Meta;
use crate::reading::emitter::{Emitted, Emitter, End};
use crate::reading::settings::Compression;
use crate::reading::splitting::{self, Splitting};

/// Threads that read.
const READERS_MAX: usize = 2;

/// Behind this offset nothing more is noted: no two files have so much in common that are not the same.
const NOTED_MAX: u64 = 64 << 10;

/// What happened to a file, for the tracker.
pub(crate) enum Event {
    /// It cannot be opened where it was.
    NotOpened(Arc<File>, OpenError),
    /// Reading it ended so.
    Ended(Box<Task>, Outcome),
    /// Its content is broken behind what was delivered.
    Unreadable(Arc<File>, CodecError),
    /// It was looked through.
    Probed(Box<Probe>, Seen),
}

/// Bytes at the start of a file in which its header is looked for first.
pub(crate) const HEADER_BYTES: usize = 16 << 10;

/// How readers read.
#[derive(Clone)]
pub(crate) struct Rules {
    pub(crate) formats: Formats,
    pub(crate) compression: Compression,
    /// Whether files are followed: otherwise the end of a file is its end.
    pub(crate) follow: bool,
    /// Whether the end of half a line may come in a later run.
    pub(crate) remembers: bool,
    /// Whether NULs at the end of a plain file are room that is still to be written to, and no content.
    pub(crate) has_room: bool,
}

/// What the threads share.
struct Common {
    pool: Arc<Pool>,
    rules: Rules,
    ctx: InputContext,
    events: Box<dyn Fn(Event) + Send + Sync>,
}

/// The running threads.
pub(crate) struct Readers {
    threads: Vec<Thread<()>>,
}

impl Readers {
    /// Starts the threads; `events` hears what happens.
    pub(crate) fn start(
        pool: &Arc<Pool>,
        rules: &Rules,
        ctx: &InputContext,
        sent: &mpsc::Sender<Sent>,
        events: impl Fn(Event) + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let common = Arc::new(Common {
            pool: pool.clone(),
            rules: rules.clone(),
            ctx: ctx.clone(),
            events: Box::new(events),
        });
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let sender = || Sending::new(&rules.formats, ctx, sent.clone(), ctx.registry.clone());
        let mut threads = Vec::new();
        let mut splitting = None;
        if splitting::is_worthwhile() {
            let (mut sending, common) = (sender(), common.clone());
            let (to_thread, thread) = Splitting::start(move |piece| sending.split(piece, &common))?;
            threads.push(thread);
            splitting = Some(to_thread);
        }
        // What is read once is read in order.
        let readers = if rules.follow {
            cores.min(READERS_MAX)
        } else {
            1
        };
        for _ in 0..readers {
            let mut reader = ReaderThread {
                common: common.clone(),
                scratch: Scratch::default(),
                sending: sender(),
                splitting: splitting.clone(),
            };
            threads.push(component::thread::start("read", move || reader.run())?);
        }
        Ok(Self { threads })
    }

    /// Waits until the threads have ended.
    pub(crate) fn join(self) {
        self.threads.into_iter().for_each(splitting::join);
    }
}

/// A chunk of a file, for the splitting thread.
struct Piece {
    file: Arc<File>,
    stream: Arc<Stream>,
    chunk: Chunk,
}

/// Makes batches of chunks, sends them, and says so to the acknowledging task.
pub(crate) struct Sending {
    /// One for each of the formats.
    emitters: Vec<Emitter>,
    formats: Formats,
    sent: mpsc::Sender<Sent>,
    registry: Option<Arc<Registry>>,
}

impl Sending {
    /// Sends what is written as `formats` say. What `registry` is for, [`record`] says.
    pub(crate) fn new(
        formats: &Formats,
        ctx: &InputContext,
        sent: mpsc::Sender<Sent>,
        registry: Option<Arc<Registry>>,
    ) -> Self {
        Self {
            emitters: formats.each(|settings| Emitter::new(settings, ctx)),
            formats: formats.clone(),
            sent,
            registry,
        }
    }

    /// Notes up to where events are about to be sent. Where the disk refuses that, events are sent all the same: it matters
    /// only for a file that is written anew after a crash.
    fn note_given(&self, file: &Arc<File>, after: &Resume) {
        if let Some(registry) = &self.registry {
            {
                let mut state = file.lock();
                let known = state.given_noted.unwrap_or(state.position.offset);
                if known >= NOTED_MAX {
                    return;
                }
                state.given_noted = Some(after.offset);
            }
            let given = record::encode_given((after.offset, after.check));
            let _ = registry.commit(&[Change::Put(record::given_key(file.id), given)], false);
        }
    }

    /// Sends what another thread has read, which hears of broken data no other way.
    fn split(&mut self, piece: Piece, common: &Common) -> Result<(), End> {
        let end = self.send(&piece.file, &piece.stream, piece.chunk);
        if let Err(End::Broken(problem)) = &end {
            (common.events)(Event::Unreadable(piece.file, problem.clone()));
        }
        end
    }

    /// Sends the events of a chunk, waiting while the queue is full.
    ///
    /// # Errors
    /// The pipeline takes no more, or what follows cannot be read.
    pub(crate) fn send(
        &mut self,
        file: &Arc<File>,
        stream: &Arc<Stream>,
        chunk: Chunk,
    ) -> Result<(), End> {
        let (bytes, after) = (chunk.source_bytes, chunk.after.clone());
        self.note_given(file, &after);
        let mut emitted = Emitted::default();
        let path = stream.source.path().unwrap_or_default();
        let emitter = &mut self.emitters[self.formats.index(path)];
        let end = emitter.emit_into(stream, chunk, &mut emitted);
        // What was sent of it is still acknowledged; nothing behind it is.
        let is_whole = !matches!(end, Err(End::Stopped));
        if !is_whole && emitted.receipts.is_empty() {
            file.lock().is_frozen = true;
            return end;
        }
        let filtered: u64 = emitted.filtered.iter().map(|dropped| dropped.events).sum();
        {
            let mut state = file.lock();
            state.counts.read_events += emitted.events + filtered;
            state.counts.in_flight_events += emitted.events + filtered;
        }
        let sent = Sent {
            file: file.clone(),
            receipts: emitted.receipts,
            events: emitted.events,
            bytes,
            filtered: emitted.filtered,
            after,
            is_whole,
        };
        if self.sent.blocking_send(sent).is_err() {
            return Err(End::Stopped);
        }
        end
    }
}

struct ReaderThread {
    common: Arc<Common>,
    scratch: Scratch,
    sending: Sending,
    splitting: Option<Splitting<Piece>>,
}

impl ReaderThread {
    fn run(&mut self) {
        let common = self.common.clone();
        while let Some((work, slices)) = common.pool.next() {
            match work {
                Work::Open(Waiting::Read(file)) => match Task::open(&file, self) {
                    Ok(task) => self.read(task, slices),
                    Err(error) => (common.events)(Event::NotOpened(file, error)),
                },
                Work::Continue(Active::Read(task)) => self.read(task, slices),
                Work::Open(Waiting::Probe(probe)) | Work::Continue(Active::Probe(probe)) => {
                    self.probe(probe, slices);
                }
            }
        }
    }

    fn probe(&mut self, mut probe: Box<Probe>, slices: u32) {
        match probe.slice(&mut self.scratch) {
            Seen::More => self.common.pool.give_back(Active::Probe(probe), slices),
            seen => (self.common.events)(Event::Probed(probe, seen)),
        }
    }

    fn read(&mut self, mut task: Box<Task>, slices: u32) {
        let outcome = task.slice(self);
        if !self.common.rules.follow
            && task.failure().is_some()
            && !matches!(outcome, Outcome::More)
            && let Some(splitting) = &self.splitting
        {
            splitting.wait();
        }
        match outcome {
            Outcome::More => self.common.pool.give_back(Active::Read(task), slices),
            Outcome::Rest => {
                let common = self.common.clone();
                common.pool.rest(task);
            }
            outcome => (self.common.events)(Event::Ended(task, outcome)),
        }
    }

    /// The header at the start of a file, where its rows have one.
    fn header(&self, settings: &codec::Settings, file: &Opened) -> Option<Arc<Header>> {
        settings.csv.as_ref().filter(|csv| csv.has_header())?;
        // The header of a file is short, unless somebody has very many columns.
        [
            HEADER_BYTES,
            settings.record_max.saturating_add(HEADER_BYTES),
        ]
        .iter()
        .find_map(|bytes| {
            let head = Head::read(file, self.common.rules.compression, *bytes).ok()?;
            settings.header_of(&head.bytes)
        })
    }

    /// How the JSON documents of a file are laid out.
    fn layout(&self, file: &Opened) -> Layout {
        let layout = |bytes, is_all| {
            let head = Head::read(file, self.common.rules.compression, bytes).ok()?;
            Layout::of(&head.bytes, is_all)
        };
        layout(HEADER_BYTES, false)
            .or_else(|| layout(LAYOUT_BYTES, true))
            .unwrap_or_default()
    }
}

impl SliceContext for ReaderThread {
    fn memory(&mut self) -> (&mut Scratch, &InputContext) {
        (&mut self.scratch, &self.common.ctx)
    }

    fn send(&mut self, task: &Task, chunk: Chunk) -> Result<(), Outcome> {
        let end = match (&self.splitting, task.failure()) {
            (Some(splitting), Some(failure)) => {
                let piece = Piece {
                    file: task.file.clone(),
                    stream: task.stream().clone(),
                    chunk,
                };
                splitting.send(piece, failure)
            }
            _ => self.sending.send(&task.file, task.stream(), chunk),
        };
        end.map_err(|end| match end {
            End::Stopped => Outcome::Stopped,
            End::Broken(problem) => Outcome::Broken(problem),
        })
    }

    fn is_stopped(&self) -> bool {
        self.common.ctx.stop.is_stopped()
    }

    fn is_own(&self, file: &Opened) -> bool {
        let ctx = &self.common.ctx;
        ctx.writes_files() && Meta::of_fd(file).is_ok_and(|meta| ctx.writes(&meta.identity()))
    }

    fn chunker(&self, path: &str, state: &FileState, tail: &[u8]) -> Chunker {
        let settings = self.common.rules.formats.of(path);
        Chunker::resume(settings, &state.sent, tail)
    }

    fn tell_start(&self, chunker: &mut Chunker, path: &str, file: &Opened) {
        let settings = self.common.rules.formats.of(path);
        chunker.set_header(self.header(settings, file));
        if settings.has_layout() {
            chunker.set_layout(self.layout(file));
        }
    }

    fn follows(&self) -> bool {
        self.common.rules.follow
    }

    fn awaits_nuls(&self) -> bool {
        let rules = &self.common.rules;
        rules.has_room && (rules.follow || rules.remembers)
    }

    fn first_order(&self) -> Order {
        if self.common.rules.follow {
            Order::Read
        } else {
            Order::Close
        }
    }

    fn gives_half_lines(&self) -> bool {
        !self.common.rules.follow && !self.common.rules.remembers
    }
}
