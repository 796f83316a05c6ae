//! Decoding without connections, threads and a pipeline, for the crate `fuzzkit`.
//!
//! Bytes come from memory, in pieces of any size; what is read of them is decoded as it would be on a thread of the batcher,
//! and what leaves is kept as text. A panic of a decoder is not caught here.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use batch::{Batch, Budget, JsonWriter, json};
use component::{Diagnostics, InputContext, Receipt, Sink, Stopped};
use datetime::rfc3339;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::runtime::{Builder, Handle};

use super::{Inbox, Joiner, List, Protocol};
use crate::connections::closing::{Ending, Fault};
use crate::connections::testing::context;

/// More than whole inputs of a fuzzer take, so that nobody waits.
const BUDGET_BYTES: usize = 256 << 20;

/// Small, so that frames take several.
const POOLED_BYTES: usize = 4 << 10;

/// No time-out passes while bytes are read from memory.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3600);

/// What became of bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decoded {
    /// The events: the id of each, and what it is as JSON.
    pub events: Vec<String>,
    /// Why the connection is closed, or the request refused.
    pub fault: Option<String>,
}

/// Bytes that come in pieces.
pub(crate) struct Pieces<'a> {
    rest: &'a [u8],
    most: usize,
}

impl<'a> Pieces<'a> {
    /// No read gives more than `most` bytes.
    pub(crate) fn new(bytes: &'a [u8], most: usize) -> Self {
        Self {
            rest: bytes,
            most: most.max(1),
        }
    }
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let most = self.most.min(self.rest.len()).min(into.remaining());
        let (piece, rest) = self.rest.split_at(most);
        into.put_slice(piece);
        self.rest = rest;
        Poll::Ready(Ok(()))
    }
}

/// Keeps what batches hold, and promises nothing.
#[derive(Default)]
struct Kept(Mutex<Vec<String>>);

#[async_trait]
impl Sink for Kept {
    async fn send(&self, batch: Batch) -> Result<Receipt, Stopped> {
        let writer = JsonWriter::new(&batch);
        let mut kept = self.0.lock();
        // The one thing that is another one each time.
        let mut received = Vec::new();
        rfc3339::write_rfc3339(&mut received, batch.received());
        let received = String::from_utf8_lossy(&received);
        for row in batch.alive().iter() {
            let mut event = Vec::new();
            writer.write(row, &mut event);
            let checked = json::validate_object(&event);
            let event = String::from_utf8_lossy(&event);
            assert!(checked.is_ok(), "{checked:?}: {event}");
            let id = batch.origin().shown_id(row);
            let event = event.replace(&*received, "RECEIVED");
            kept.push(format!("{id} {event}"));
        }
        Ok(component::receipt().1)
    }
}

/// A place to put messages, from which [`Bench::decode`] takes them.
pub(crate) fn inbox<P: Protocol>() -> Inbox<P> {
    Inbox(Arc::new(List::new()))
}

/// What a decoder works with.
pub(crate) struct Bench {
    pub(crate) ctx: InputContext,
    budget: Arc<Budget>,
    kept: Arc<Kept>,
}

impl Bench {
    /// Decodes bytes with an input of its own.
    pub(crate) fn run(decode: impl FnOnce(&Self) -> Option<String>) -> Decoded {
        // The numbers that are drawn for a run are part of ids.
        fastrand::seed(0);
        let runtime = Builder::new_current_thread().enable_time().build();
        let runtime = runtime.expect("the system gives a runtime");
        let (budget, kept) = (Budget::new(BUDGET_BYTES), Arc::<Kept>::default());
        let pool = budget.pool(BUDGET_BYTES, POOLED_BYTES);
        let ctx = context(kept.clone(), pool, Diagnostics::silent());
        let bench = Self { ctx, budget, kept };
        let entered = runtime.enter();
        let fault = decode(&bench);
        drop(entered);
        // What waits for receipts goes with it.
        drop(runtime);
        let Self { ctx, budget, kept } = bench;
        drop(ctx);
        assert_eq!(budget.used(), 0, "all memory is given back");
        let events = std::mem::take(&mut *kept.0.lock());
        Decoded { events, fault }
    }

    /// Waits for something that waits for nothing but memory.
    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        Handle::current().block_on(future)
    }

    /// How much memory is in use.
    pub(crate) fn used(&self) -> usize {
        self.budget.used()
    }

    /// Decodes what is in the inbox, all of it into the same batches.
    pub(crate) fn decode<P: Protocol>(&self, mut protocol: P, inbox: &Inbox<P>) {
        let mut joiner = Joiner::new(self.ctx.clone(), protocol.completion());
        while let Some((message, answer)) = inbox.0.lock().messages.pop_front() {
            protocol.add(message, answer, &mut joiner);
        }
        joiner.flush();
    }
}

/// The reason for which a connection is closed.
pub(crate) fn reason(ending: Ending) -> Option<String> {
    match ending {
        Ending::Fault(Fault { counter, reason }) => Some(format!("{counter}: {reason}")),
        Ending::Usual | Ending::Idle => None,
    }
}
