//! How many still send batches to a pipeline.
//!
//! An input may go on after its last batch, to save positions when the receipts are there: the pipeline goes on to its end as soon
//! as no input can send any more, so that outputs do not wait for requests to become full.

use std::sync::Arc;

use async_trait::async_trait;
use batch::Batch;
use component::{Receipt, Sink, Stopped};
use tokio::sync::watch;

/// Counts those who still send.
#[derive(Debug, Default)]
pub struct Senders(watch::Sender<usize>);

/// That somebody still sends. To be dropped after the last batch.
#[derive(Debug)]
pub struct Sending(Arc<Senders>);

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

impl Senders {
    /// Counts one more.
    pub fn begin(self: &Arc<Self>) -> Sending {
        self.0.send_modify(|count| *count += 1);
        Sending(self.clone())
    }

    /// Whether somebody still sends.
    pub fn is_any(&self) -> bool {
        *self.0.borrow() > 0
    }

    /// Waits until nobody sends any more.
    pub async fn ended(&self) {
        // The sender is alive as long as this is.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

/// A sink that counts as long as somebody has it.
pub struct CountedSink<S> {
    sink: S,
    _sending: Sending,
}

impl<S> CountedSink<S> {
    pub fn new(sink: S, senders: &Arc<Senders>) -> Self {
        let _sending = senders.begin();
        Self { sink, _sending }
    }
}

#[async_trait]
impl<S: Sink> Sink for CountedSink<S> {
    async fn send(&self, batch: Batch) -> Result<Receipt, Stopped> {
        self.sink.send(batch).await
    }
}
