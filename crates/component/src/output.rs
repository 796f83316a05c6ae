//! Outputs: they take events out of the pipeline.
//!
//! Every output renders rows of a batch as bytes ([`Output::encode`]), on whichever worker has the batch. Rendering is separate
//! from writing because it is the most expensive part of most pipelines: inside an ordered write, all cores but one would wait
//! for it. What becomes of the bytes is one of two things:
//!
//! - A [`Writer`] has one place where everything goes in sequence, such as standard output or files. It is called from one
//!   thread, one call at a time, and may keep state: what is open, what is not flushed.
//! - A [`Sender`] sends requests that do not depend on each other, such as an HTTP server takes. It keeps no state between
//!   calls. The engine cuts and joins the rows of many batches into requests, compresses them, keeps many in flight, and
//!   repeats what failed.
//!
//! A third kind, [`Feeder`], only names another pipeline, to which the engine hands batches without rendering them.
//!
//! # How to write a sender
//! 1. [`Output::encode`] appends each row to [`Encoded::bytes`] and ends it with [`Encoded::end_row`]. Where rows go to
//!    different places, such as URLs made by a template, it begins a part for each with [`Encoded::begin_part`]. A row that
//!    cannot be rendered goes to [`Encoded::refused`]. What is refused, here or later, becomes a dead letter.
//! 2. [`Sender::requests`] says what requests look like: what stands before, between and after their rows, how they are
//!    compressed, how large and how many they are unless the user says otherwise, and whether those to one destination must
//!    keep their order.
//! 3. [`Sender::send`] sends one [`Request`] and says what became of it. An `Ok` means that every row is safe at its
//!    destination but those named in [`Sent`]; an error is about the request as a whole, and the kind of the error decides
//!    what happens next:
//!
//! | error | what it stands for | what the engine does |
//! | --- | --- | --- |
//! | [`SendError::Retry`] | no connection, a time-out, a 5xx status | sends it again after a pause; fewer requests at a time |
//! | [`SendError::Later`] | 429 or 503, with the time to wait | sends nothing for that time, then again; fewer requests at a time |
//! | [`SendError::Blocked`] | refused credentials, a missing index | as `Retry` in a service; ends a run that ends with its inputs |
//! | [`SendError::Unfit`] | too large, or one row is invalid | sends each half on its own; refuses a single row |
//! | [`SendError::Refused`] | the destination will never take it | refuses every row |
//! | [`SendError::Fatal`] | nothing will ever work | the output fails |
//!
//! 4. [`Output::open`] is called once, before anything is read: a certificate that cannot be read is found there. A server
//!    that is away is no reason to refuse the start.
//!
//! A protocol that numbers the rows of a request, or compresses them in its own way, does so in [`Sender::pack`].
//!
//! [`Request::body`] is shared with the engine: sending it again costs no copy, and its memory is used for a later request
//! once nobody else holds it.
//!
//! Time-outs are the sender's own business: a call that never returns holds its place among those in flight. Dropping the
//! future of a call must be harmless, because a stop does that at its deadline. A panic in any function fails that output alone.
//!
//! # How to write a writer
//! As above, with [`Writer::write`], which takes what one batch was rendered to, and [`Writer::flush`], which makes it safe.
//!
//! A writer that makes something of many batches that is complete much later, such as an object of a store, has a [`Collector`]. The engine
//! lets go of a batch as soon as the output has taken it, so that it counts neither as held in memory nor as what the output lags behind
//! with; the batch is *passed*, and its receipt resolves, only when [`Collector::tend`] says that it is safe. How nothing comes twice after a
//! crash: [`Anchor`].

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use batch::{Batch, Bitmap, FieldRead};
use bytes::Bytes;
use config::ConfigError;

use crate::anchor::Anchor;
use crate::diagnostics::Warning;
use crate::written::WrittenFiles;

/// What every output has: how it renders rows, and what it has to say.
#[async_trait]
pub trait Output: Send + Sync {
    /// Makes ready for work and mends what an earlier run left behind. Called once, before anything is read; not when a
    /// configuration is only checked.
    ///
    /// # Errors
    /// A setting that cannot work, such as a certificate that cannot be read: the run does not start. What a later attempt may
    /// mend, such as a server that is away, is no error here but one of the first write or request.
    async fn open(&self) -> Result<(), ConfigError> {
        Ok(())
    }

    /// Renders rows of a batch into `encoded`, which is empty. Called on any worker, for several batches at once.
    fn encode(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded);

    /// The fields that its templates name. Asked once, at the start: those that no event has are reported.
    fn reads(&self) -> Vec<Arc<FieldRead>> {
        Vec::new()
    }

    /// What no other component of the process may use at the same time, such as a file that is written.
    fn exclusive(&self) -> Option<String> {
        None
    }

    /// The files that it writes, which inputs that feed it leave alone.
    fn written(&self) -> Option<Arc<WrittenFiles>> {
        None
    }

    /// Whether events go to the standard output of the process, where nothing else should be said then.
    fn uses_standard_output(&self) -> bool {
        false
    }

    /// Named counters beside those that the engine keeps itself, such as files rotated, since the last call.
    fn take_counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// What a user should hear, such as a torn line that was cut from a file, since the last call. Whoever calls
    /// passes it on, with the output's name, as often as its limit allows.
    fn take_warnings(&self) -> Vec<Warning> {
        Vec::new()
    }
}

/// An output with one place where everything goes, one call at a time.
#[async_trait]
pub trait Writer: Output {
    /// Hands the bytes of one batch on.
    ///
    /// # Errors
    /// The whole write failed. After [`WriteError::Retry`] the same bytes are written again; what was already taken
    /// must not be taken twice.
    async fn write(&self, encoded: &Encoded) -> Result<Written, WriteError>;

    /// How [`Writer::write`] compresses what it gets, so that a measurement that writes nothing can spend the same time.
    fn compression(&self) -> Compression {
        Compression::None
    }

    /// The part that collects, where events are safe much later than they are written. The engine then calls that one in place of
    /// [`Writer::write`] and [`Writer::flush`].
    fn collector(&self) -> Option<&dyn Collector> {
        None
    }

    /// Whether it takes minutes until it says that events are safe, so that inputs whose senders wait for that need a queue on disk.
    fn confirms_late(&self) -> bool {
        false
    }

    /// Makes everything written so far safe by the output's stated durability.
    ///
    /// # Errors
    /// As for [`Writer::write`].
    async fn flush(&self) -> Result<(), WriteError> {
        Ok(())
    }

    /// Flushes and lets go of everything. Nothing is written afterwards. Not called when the output has failed.
    ///
    /// # Errors
    /// As for [`Writer::write`].
    async fn close(&self) -> Result<(), WriteError> {
        self.flush().await
    }
}

/// The part of a writer that collects. After an error of any function the same call is made again, as for [`Writer::write`].
#[async_trait]
pub trait Collector: Send + Sync {
    /// Makes ready. Called once, before the first batch. There is an anchor if all events go through a disk queue.
    ///
    /// # Errors
    /// It cannot work now.
    async fn begin(&self, anchor: Option<Arc<dyn Anchor>>) -> Result<(), WriteError>;

    /// Takes rows of the batch with this sequence. Sequences never go down; those of several calls are the same where processors derive
    /// batches of one, and [`Collector::tend`] is not called between them.
    ///
    /// # Errors
    /// Nothing of it was taken.
    async fn collect(&self, encoded: &Encoded, sequence: u64) -> Result<Written, WriteError>;

    /// Does what is due: called after every batch, and several times a second while batches are not safe. With `hurry`, too many batches
    /// wait: what is open is to be completed soon. Every batch that was taken and whose sequence is below the result is safe.
    ///
    /// # Errors
    /// Something cannot be completed at the moment.
    async fn tend(&self, hurry: bool) -> Result<u64, WriteError>;

    /// Waits until [`Collector::tend`] may say more than it did last; for ever where that is only a matter of time. Dropping the future is harmless.
    async fn changed(&self) {
        std::future::pending::<()>().await;
    }
}

/// An output that sends requests, many at a time.
#[async_trait]
pub trait Sender: Output {
    /// What its requests look like. Asked once, at the start.
    fn requests(&self) -> Requests;

    /// What is sent of the rows of a request in place of these, such as a compressed and numbered form of them. Called once for
    /// each request, on any worker. None where the rows are sent as they are now, or as [`Requests::compression`] says.
    ///
    /// # Errors
    /// They cannot be packed: the output fails.
    fn pack(&self, _: &mut Rows<'_>) -> io::Result<Option<Bytes>> {
        Ok(None)
    }

    /// Sends one request. Called for many at once, and again for one that failed.
    ///
    /// # Errors
    /// What became of the request as a whole, and what is to be done about it.
    async fn send(&self, request: &Request) -> Result<Sent, SendError>;
}

/// An output that hands batches to another pipeline of the process. The engine does that; nothing is rendered.
#[derive(Debug)]
pub struct Feeder {
    pipeline: Arc<str>,
}

impl Feeder {
    /// An output that feeds the pipeline of that name.
    pub fn new(pipeline: &str) -> Self {
        Self {
            pipeline: pipeline.into(),
        }
    }

    /// The pipeline that it feeds.
    pub fn pipeline(&self) -> &str {
        &self.pipeline
    }
}

#[async_trait]
impl Output for Feeder {
    fn encode(&self, _: &Batch, _: &Bitmap, _: &mut Encoded) {}
}

/// An output of any kind.
#[derive(Clone)]
pub enum AnyOutput {
    /// One that writes in sequence.
    Writer(Arc<dyn Writer>),
    /// One that sends requests.
    Sender(Arc<dyn Sender>),
    /// One that feeds another pipeline.
    Feeder(Arc<Feeder>),
}

impl AnyOutput {
    /// What all kinds have.
    pub fn output(&self) -> Arc<dyn Output> {
        match self {
            Self::Writer(writer) => writer.clone(),
            Self::Sender(sender) => sender.clone(),
            Self::Feeder(feeder) => feeder.clone(),
        }
    }
}

/// Rows of one batch as an output renders them. Reused from batch to batch, so that its memory stays warm.
#[derive(Debug, Default)]
pub struct Encoded {
    /// The bytes of all rows, one after the other.
    pub bytes: Vec<u8>,
    /// Where each rendered row ends. A [`Writer`] need not say so.
    pub ends: Vec<RowEnd>,
    /// What goes where, in the order of the bytes, for outputs that have several destinations. Empty where there is one.
    pub parts: Vec<DestinationPart>,
    /// Rows that cannot be rendered, with the reason.
    pub refused: Vec<RowAnswer>,
    /// Number of rows in `bytes`.
    pub rows: usize,
}

/// Where a row ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowEnd {
    /// The row in its batch.
    pub row: u32,
    /// Where its bytes end; they begin where the row before ends.
    pub end: usize,
}

impl Encoded {
    /// Forgets the content and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.parts.clear();
        self.refused.clear();
        self.rows = 0;
    }

    /// The bytes since the last row are those of this one.
    pub fn end_row(&mut self, row: usize) {
        self.ends.push(RowEnd {
            row: row as u32,
            end: self.bytes.len(),
        });
        self.rows += 1;
    }

    /// The rows from here on go to this destination, up to the next call.
    pub fn begin_part(&mut self, destination: Arc<str>) {
        self.parts.push(DestinationPart {
            destination,
            bytes: self.bytes.len()..self.bytes.len(),
            rows: Vec::new(),
        });
    }
}

/// What goes to one destination.
#[derive(Debug, Clone)]
pub struct DestinationPart {
    /// The destination, such as a file's path.
    pub destination: Arc<str>,
    /// Where the bytes lie. Of a [`Sender`]'s part only the beginning counts: it ends where the next one begins.
    pub bytes: Range<usize>,
    /// The rows in them, in order. A [`Sender`] says so in [`Encoded::ends`].
    pub rows: Vec<usize>,
}

/// What is said of one row: of a batch where it is rendered or written, of a request where that is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowAnswer {
    /// The row's number.
    pub row: usize,
    /// Why it was not taken.
    pub reason: Arc<str>,
}

/// What became of a write that did not fail as a whole.
#[derive(Debug, Default)]
pub struct Written {
    /// Rows of the batch that will never be taken.
    pub refused: Vec<RowAnswer>,
    /// Whether the other rows are safe only after the next [`Writer::flush`].
    pub until_flush: bool,
}

/// Why a whole write failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// It may work later: a full disk, a destination that is away.
    #[error("{0}")]
    Retry(String),
    /// It works once a person has mended something: a directory that is gone, missing permissions. A service tries again as
    /// after [`WriteError::Retry`]; a run that ends with its inputs gives up at once.
    #[error("{0}")]
    Blocked(String),
    /// The reader is gone and wants no more: the pipeline ends without an error.
    #[error("the reader has closed the pipe")]
    Closed,
    /// It will never work, or what was written may be lost. The output fails for good, as it does when one of its functions
    /// panics: it is not called again, and what it did not take stays in the queue or counts as not delivered.
    #[error("{0}")]
    Fatal(String),
}

/// What the requests of a [`Sender`] look like.
#[derive(Debug, Clone)]
pub struct Requests {
    /// What stands around and between the rows.
    pub framing: Framing,
    /// How bodies are compressed.
    pub compression: Compression,
    /// When a request is complete, unless the user says otherwise.
    pub limits: RequestLimits,
    /// Whether requests to one destination must arrive in the order of the events.
    pub order: RequestOrder,
}

/// What stands around and between the rows of a request. Rows that end with what separates them, as lines do, need none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Framing {
    /// Before the first row.
    pub before: &'static [u8],
    /// Between two rows.
    pub between: &'static [u8],
    /// After the last row.
    pub after: &'static [u8],
}

/// How bytes are compressed; bodies of requests as a whole, on workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Compression {
    /// They are not.
    #[default]
    None,
    /// As gzip with this level, 0 to 9.
    Gzip(u32),
    /// As zstd with this level, 1 to 22.
    Zstd(i32),
}

/// When a request is complete: when it reaches one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLimits {
    /// Bytes of its rows, not compressed. A single row that is larger makes a request of its own.
    pub size_max: usize,
    /// Its rows. With 1, which is for requests that hold a single row by their nature, the user has no say in it.
    pub rows_max: usize,
    /// How long its first row has waited for others.
    pub age_max: Duration,
    /// Whether it is filled until it reaches one of them, at the price of copying its rows. Otherwise the rows of one batch may be a
    /// request as they are, if they have 512 KiB.
    pub is_filled: bool,
}

/// Whether requests to one destination must arrive in the order of the events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RequestOrder {
    /// They may overtake each other.
    #[default]
    Free,
    /// They are begun in the order of the events, many at a time, and the sender sees to it that they arrive so: whatever decides the order happens before
    /// its call waits for the first time.
    Begun,
    /// One at a time is in flight to each destination, in the order of the events.
    ByDestination,
}

/// The rows of a request before it is sent.
#[derive(Debug)]
pub struct Rows<'a> {
    /// The destination, as [`Encoded::begin_part`] named it; empty where there is one.
    pub destination: &'a str,
    /// The rows with what stands around them. What is written into them stays: rows that are sent again are packed again.
    pub text: &'a mut [u8],
    /// Where each row ends in the text, before what stands behind it.
    pub ends: &'a [usize],
}

/// Rows on their way to one destination.
#[derive(Debug, Clone)]
pub struct Request {
    /// The same each time the request is sent, and that of no other request, also of other runs. Rows that are sent again in
    /// another request have that one's.
    pub id: u128,
    /// The destination, as [`Encoded::begin_part`] named it; empty where there is one.
    pub destination: Arc<str>,
    /// The rows with what stands around them, compressed as [`Requests::compression`] says; or what [`Sender::pack`] made of them.
    pub body: Bytes,
    /// How many rows.
    pub rows: usize,
    /// How often it was sent before.
    pub attempt: u32,
}

/// What became of a request that did not fail as a whole. Rows are counted from 0 in the request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Rows to send again, with what was said of them.
    pub retry: Vec<RowAnswer>,
    /// Rows that the destination refuses for good.
    pub refused: Vec<RowAnswer>,
    /// Why rows are to be sent again, where that says something of the destination: [`SendError::Retry`],
    /// [`SendError::Later`] or [`SendError::Blocked`]. The engine does for these rows what it does for a request that failed so.
    pub because: Option<SendError>,
}

/// Why a whole request failed, and what is to be done about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// It may work later: no connection, a time-out, a failing server.
    #[error("{0}")]
    Retry(String),
    /// The destination asks for time.
    #[error("{reason}")]
    Later {
        /// What it said.
        reason: String,
        /// How long nothing is to be sent; as after [`SendError::Retry`] where it does not say.
        after: Option<Duration>,
    },
    /// It works once a person has mended something, such as refused credentials. A service tries again as after
    /// [`SendError::Retry`]; a run that ends with its inputs gives up at once.
    #[error("{0}")]
    Blocked(String),
    /// These rows together are too much, or one of them is invalid: each half is sent on its own, and a single row refused.
    #[error("{0}")]
    Unfit(String),
    /// The destination will never take these rows.
    #[error("{0}")]
    Refused(String),
    /// Nothing will ever work: the output fails for good.
    #[error("{0}")]
    Fatal(String),
}
