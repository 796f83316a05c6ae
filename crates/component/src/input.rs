//! Inputs: they bring events in.
//!
//! An input sends batches and gets a [`Receipt`] for each. It may tell its source "done" only when the receipt
//! resolves. The queue decides when that is: `engine/mod.rs` of the crate `queue`, section "Receipts". Sending waits while the
//! queue is full: that is the backpressure.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use batch::{Batch, BufferPool, HostInfo, Stream};
use config::ConfigError;
use registry::Registry;
use tokio::sync::oneshot;

use crate::activity;
use crate::diagnostics::Diagnostics;
use crate::ledger::Ledger;
use crate::metrics::{OperatorMetrics, Progress};
use crate::own::Own;
use crate::phase::{Phase, Phases};
use crate::written::{FileIdentity, WrittenFiles};

/// Brings events in.
#[async_trait]
pub trait Input: Send {
    /// Makes ready to read: binds ports, reads certificates. Called once, before any input of the process reads; not when a
    /// configuration is only checked.
    ///
    /// # Errors
    /// A setting that cannot work, such as a port that is taken, with its place: the run does not start.
    async fn open(&mut self) -> Result<(), ConfigError> {
        Ok(())
    }

    /// Reads until the source ends or `ctx.stop` says so, and sends what it reads. Blocking work belongs on a thread of its
    /// own ([`crate::thread::start`]).
    ///
    /// # Errors
    /// What could not be read. Everything sent before is delivered all the same.
    async fn run(self: Box<Self>, ctx: InputContext) -> Result<(), InputError>;

    /// Whether its source keeps what was not read, as files do. A disk queue then has it wait for the outputs while they make
    /// progress, rather than write everything to disk a second time.
    fn can_wait(&self) -> bool {
        false
    }

    /// Whether it sends the rows of each stream with ascending ends, and after a crash sends again, in the same form, what it does not know
    /// to be safe. A disk queue then leaves out what it has stored already.
    fn repeats_in_order(&self) -> bool {
        false
    }

    /// Whether it works only where there is a data directory.
    fn needs_data_dir(&self) -> bool {
        false
    }

    /// What a user should hear when the configuration is checked, such as files that are not there.
    fn notices(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether it reads the file at this path, which need not exist yet.
    fn reads(&self, _path: &Path) -> bool {
        false
    }

    /// Whether it waits for what somebody types, who may not know that.
    fn reads_terminal(&self) -> bool {
        false
    }

    /// What no other component of the process may use at the same time, such as standard input.
    fn exclusive(&self) -> Option<String> {
        None
    }
}

/// Why an input ended early. Holds one message for each thing that went wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.join("\n"))]
pub struct InputError {
    /// What went wrong, each naming its file or peer.
    pub problems: Vec<String>,
}

impl InputError {
    /// One problem.
    pub fn new(problem: impl Into<String>) -> Self {
        Self {
            problems: vec![problem.into()],
        }
    }
}

/// What the engine gives an input to work with. Cheap to clone.
#[derive(Clone)]
pub struct InputContext {
    /// Where batches go.
    pub sink: Arc<dyn Sink>,
    /// Buffers that are charged to the memory budget.
    pub pool: BufferPool,
    /// Facts of this machine.
    pub host: Arc<HostInfo>,
    /// Says when to stop.
    pub stop: Stop,
    /// The input's counters.
    pub metrics: Arc<OperatorMetrics>,
    /// How far the input is.
    pub progress: Arc<Progress>,
    /// What the input is called in the registry: its pipeline's name and its own, joined by `/`.
    pub scope: Arc<str>,
    /// What is remembered across runs; none where nothing is.
    pub registry: Option<Arc<Registry>>,
    /// The data directory, where there is one.
    pub data_dir: Option<Arc<Path>>,
    /// Where an input that reads files shows what became of them.
    pub ledger: Arc<Ledger>,
    /// Where warnings go.
    pub diagnostics: Diagnostics,
    /// What outputs write that the input's events go to.
    pub written: Arc<[Arc<WrittenFiles>]>,
    /// What the process tells of itself.
    pub own: Own,
}

impl InputContext {
    /// Whether an output that the input's events go to writes any file.
    pub fn writes_files(&self) -> bool {
        self.written.iter().any(|written| written.is_used())
    }

    /// Whether an output that the input's events go to writes this file, so that they would be read again without end.
    pub fn writes(&self, file: &FileIdentity) -> bool {
        self.written.iter().any(|written| written.has(file))
    }

    /// Sends a batch, waiting while the queue is full. Counts the events and the time.
    ///
    /// # Errors
    /// The pipeline takes no more.
    pub async fn send(&self, batch: Batch) -> Result<Receipt, Stopped> {
        let events = batch.len();
        if events == 0 {
            // One without events would say that it is the last one.
            let (issuer, receipt) = receipt();
            issuer.resolve(Delivery::default());
            return Ok(receipt);
        }
        activity::charge();
        let waiting = self.metrics.waiting();
        let sent = self.sink.send(batch).await;
        drop(waiting);
        if sent.is_ok() {
            self.metrics.events(events, events);
        }
        sent
    }

    /// Says that nothing more will be sent with this context. When that holds for all of them, the outputs no longer wait for more,
    /// even if an input goes on until it has its receipts. Those that are dropped need not say so.
    pub fn end_sending(&mut self) {
        self.sink = Arc::new(NoSink);
    }

    /// Sends a batch from a blocking thread, waiting while the queue is full. Counts the events and the time.
    ///
    /// # Errors
    /// The pipeline takes no more.
    pub fn send_blocking(&self, batch: Batch) -> Result<Receipt, Stopped> {
        tokio::runtime::Handle::current().block_on(self.send(batch))
    }
}

/// Takes batches from inputs: the queue's side of an [`InputContext`].
#[async_trait]
pub trait Sink: Send + Sync {
    /// Takes a batch, waiting while there is no room. Those that wait are let in in the order in which they came: what was begun
    /// is to be polled until it is done, or dropped, because others may wait behind it.
    ///
    /// # Errors
    /// The pipeline takes no more.
    async fn send(&self, batch: Batch) -> Result<Receipt, Stopped>;
}

/// Where nothing is sent any more.
struct NoSink;

#[async_trait]
impl Sink for NoSink {
    async fn send(&self, _: Batch) -> Result<Receipt, Stopped> {
        Err(Stopped)
    }
}

/// The pipeline takes no more batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the pipeline accepts no more events")]
pub struct Stopped;

/// Resolves when everything that became of a batch is safe.
#[derive(Debug)]
pub struct Receipt(oneshot::Receiver<Delivery>);

impl Receipt {
    /// Waits until the batch is delivered.
    ///
    /// # Errors
    /// The pipeline ended before the batch was delivered.
    pub async fn delivered(self) -> Result<Delivery, Stopped> {
        self.0.await.map_err(|_| Stopped)
    }

    /// What became of the batch, if that is known already. Not asked again after an answer.
    pub fn try_delivered(&mut self) -> Option<Result<Delivery, Stopped>> {
        match self.0.try_recv() {
            Ok(delivery) => Some(Ok(delivery)),
            Err(oneshot::error::TryRecvError::Empty) => None,
            Err(oneshot::error::TryRecvError::Closed) => Some(Err(Stopped)),
        }
    }
}

/// The queue's half of a receipt: dropped without being used, it says that the batch was not delivered.
#[derive(Debug)]
pub struct Issuer(oneshot::Sender<Delivery>);

impl Issuer {
    /// Whether nobody waits for the receipt.
    pub fn is_abandoned(&self) -> bool {
        self.0.is_closed()
    }

    /// Resolves the receipt.
    pub fn resolve(self, delivery: Delivery) {
        // An input that does not wait for the receipt has dropped it, which is its right.
        let _ = self.0.send(delivery);
    }
}

/// A receipt and its other half.
pub fn receipt() -> (Issuer, Receipt) {
    let (sender, receiver) = oneshot::channel();
    (Issuer(sender), Receipt(receiver))
}

/// What became of a batch, for each of its streams.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Delivery {
    /// The streams of the batch, in order.
    pub streams: Vec<StreamDelivery>,
}

impl Delivery {
    /// Every row of the batch was taken: something else answers for them from now on.
    pub fn accepted(batch: &Batch) -> Self {
        Self::whole(batch, None)
    }

    /// Every row of the batch was dropped.
    pub fn dropped(batch: &Batch, reason: &Arc<str>) -> Self {
        Self::whole(batch, Some(reason))
    }

    /// Counts a row of the batch that became a dead letter.
    pub fn bury(&mut self, batch: &Batch, row: usize) {
        let stream = batch.origin().stream(row);
        let mut streams = self.streams.iter_mut();
        if let Some(known) = streams.find(|known| Arc::ptr_eq(&known.stream, stream)) {
            known.dead += 1;
        }
    }

    /// Counts rows that became dead letters elsewhere, of the same streams.
    pub fn add_dead(&mut self, elsewhere: &Self) {
        for other in elsewhere.streams.iter().filter(|other| other.dead > 0) {
            let mut streams = self.streams.iter_mut();
            if let Some(known) = streams.find(|known| Arc::ptr_eq(&known.stream, &other.stream)) {
                known.dead += other.dead;
            }
        }
    }

    fn whole(batch: &Batch, dropped: Option<&Arc<str>>) -> Self {
        let origin = batch.origin();
        let streams = origin.streams().filter(|(rows, _)| !rows.is_empty());
        let streams = streams.map(|(rows, stream)| {
            let bytes = |rows: std::ops::Range<usize>| -> u64 {
                rows.map(|row| origin.end(row) - origin.start(row)).sum()
            };
            let dropped = dropped.map(|reason| DroppedRows {
                reason: reason.clone(),
                rows: rows.len() as u64,
                bytes: bytes(rows.clone()),
            });
            StreamDelivery {
                stream: stream.clone(),
                end: origin.end(rows.end - 1),
                kept: if dropped.is_some() {
                    0
                } else {
                    rows.len() as u64
                },
                dead: 0,
                dropped: dropped.into_iter().collect(),
                cut: None,
            }
        });
        Self {
            streams: streams.collect(),
        }
    }
}

/// What became of the rows of one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamDelivery {
    /// The stream.
    pub stream: Arc<Stream>,
    /// Where its last row ends.
    pub end: u64,
    /// Rows that the outputs took.
    pub kept: u64,
    /// Rows that became dead letters, once for each component that has one. They are among those kept, where an output refused
    /// them, or dropped.
    pub dead: u64,
    /// Rows that were dropped, by reason.
    pub dropped: Vec<DroppedRows>,
    /// Where the first row starts that nobody wanted any more, because a processor such as `head` was finished. It and what
    /// follows is as if it had not been sent: in neither of the other counts.
    pub cut: Option<u64>,
}

/// Rows of one stream that were dropped for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DroppedRows {
    /// The reason.
    pub reason: Arc<str>,
    /// How many rows.
    pub rows: u64,
    /// What they span in their stream: bytes of a file, numbers on a connection or in a topic.
    pub bytes: u64,
}

/// Says when to stop: when the pipeline is no longer [`Phase::Running`]. Clones share one state.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    phases: Phases,
}

impl Stop {
    /// Asks everybody who looks to stop.
    pub fn stop(&self) {
        self.phases.advance(Phase::Draining);
    }

    /// Whether to stop.
    pub fn is_stopped(&self) -> bool {
        self.phases.now() > Phase::Running
    }

    /// Waits until it is time to stop.
    pub async fn stopped(&self) {
        self.phases.reached(Phase::Draining).await;
    }
}

impl From<Phases> for Stop {
    fn from(phases: Phases) -> Self {
        Self { phases }
    }
}
