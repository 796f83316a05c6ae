//! Puts batches into the topic that is a pipeline's queue: the receiving half of `queue: kafka`.
//!
//! A record is a batch in its stored form ([`Batch::freeze`]), which a worker makes; one that is larger than the topic takes becomes several. The lane hands
//! records to librdkafka in sequence, and a batch is safe when brokers have acknowledged all of its records. Records have no key, and go to any partition:
//! what the processing half does depends on no order.
//!
//! librdkafka tries without end. A record that it gives up all the same, because its client cannot go on or brokers refuse it, comes back with its
//! report, and is sent again: by a new client, or in halves.
//!
//! | module | holds |
//! | --- | --- |
//! | `flying` | the records that brokers have not acknowledged |
//! | `packing` | batches as records |
//! | `topic` | what is asked of the topic before anything is sent |

mod flying;
mod packing;
#[cfg(test)]
mod tests;
mod topic;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ::kafka::queue::KafkaQueue;
use ::kafka::rdkafka::config::ClientConfig;
use ::kafka::rdkafka::error::RDKafkaErrorCode;
use ::kafka::rdkafka::message::Message;
use ::kafka::rdkafka::producer::{BaseRecord, DeliveryResult};
use ::kafka::{LinkState, Trouble, client_config};
use async_trait::async_trait;
use batch::{Batch, Bitmap};
use component::{Anchor, Collector, Encoded, Output, Warning, WriteError, Writer, Written};
use config::ConfigError;
use parking_lot::Mutex;

use self::flying::{FailedRecord, Flying};
use super::polled::{DeliveryReports, PolledProducer};
use super::producers::{ONE_REQUEST, OWNERS};

/// How much the records of a request for a partition have together at most, unless the options or the topic say something else.
const REQUEST_BYTES: usize = 1_000_000;

/// How long brokers that are known to be away are waited for before that is reported.
const GRACE: Duration = Duration::from_secs(1);

/// Makes the output that puts the events of a pipeline into its topic.
///
/// # Errors
/// A setting cannot be used, at its place.
pub fn queue_output(queue: &KafkaQueue, pipeline: &str) -> Result<Arc<dyn Writer>, ConfigError> {
    let own = [
        ("acks", "all"),
        ("enable.idempotence", "true"),
        ("max.in.flight.requests.per.connection", ONE_REQUEST),
        ("compression.codec", queue.own.compression.name()),
        ("message.timeout.ms", "0"),
        // Brokers decide.
        ("message.max.bytes", "1000000000"),
        ("queue.buffering.max.messages", "0"),
        ("queue.buffering.max.kbytes", "2147483647"),
    ];
    let config = client_config(&queue.brokers, &queue.node, &own, OWNERS)?;
    Ok(Arc::new(QueueOutput {
        topic: queue.topic(pipeline)?,
        record_max: AtomicUsize::new(queue.own.max_record_bytes.bytes()),
        request_max: AtomicUsize::new(usize::MAX),
        flying: Arc::default(),
        state: Arc::new(LinkState::of_queue()),
        config,
        client: Mutex::default(),
        retired: Mutex::default(),
        queue: queue.clone(),
    }))
}

type QueueClient = PolledProducer<Flying>;

struct QueueOutput {
    queue: KafkaQueue,
    topic: String,
    config: ClientConfig,
    /// The largest record that the topic takes.
    record_max: AtomicUsize,
    /// How much the records of a request for a partition may have together. A single one may have more.
    request_max: AtomicUsize,
    flying: Arc<Flying>,
    state: Arc<LinkState>,
    client: Mutex<Option<Arc<QueueClient>>>,
    /// A client that gets no more records, and reports on those that it has.
    retired: Mutex<Option<Arc<QueueClient>>>,
}

impl QueueOutput {
    fn make(&self) -> Result<QueueClient, ConfigError> {
        let (brokers, node) = (&self.queue.brokers, &self.queue.node);
        let mut config = self.config.clone();
        // The topic's limit is for all records of a request together.
        let set = config.get("batch.size").and_then(|set| set.parse().ok());
        let max = self.request_max.load(Ordering::Relaxed);
        config.set(
            "batch.size",
            max.min(set.unwrap_or(REQUEST_BYTES)).to_string(),
        );
        PolledProducer::new(brokers, node, config, &self.state, &self.flying)
    }

    /// Has a client made that sends each record in a request of its own, because the topic takes less than it did; whether there is none yet.
    fn send_alone(&self) -> bool {
        if self.request_max.swap(1, Ordering::Relaxed) == 1 {
            return false;
        }
        *self.retired.lock() = self.client.lock().take();
        true
    }

    /// The client that sends. One that cannot go on is replaced, and reports on what it had.
    fn client(&self) -> Result<Arc<QueueClient>, WriteError> {
        let mut client = self.client.lock();
        let failure = client.as_ref().and_then(|one| one.failure());
        if let Some(reason) = failure {
            let text = format!(
                "{reason}; another client is made, and what was on its way is sent again: some events may be in the queue twice"
            );
            self.state.warn(text.into());
            self.state.works();
            *client = None;
        }
        if let Some(client) = &*client {
            return Ok(client.clone());
        }
        let made = self.make();
        let made = made.map_err(|error| WriteError::Blocked(error.to_string()))?;
        let made = Arc::new(made);
        *client = Some(made.clone());
        Ok(made)
    }

    /// Hands records that came back over again.
    fn send_again(&self, failed: Vec<FailedRecord>) -> Result<(), WriteError> {
        let mut problem = None;
        for record in failed {
            match self.send_one_again(&record) {
                Ok(()) => {}
                Err(error) => {
                    problem = Some(error);
                    self.flying.put_back(record);
                }
            }
        }
        problem.map_or(Ok(()), Err)
    }

    fn send_one_again(&self, record: &FailedRecord) -> Result<(), WriteError> {
        let is_too_large = record.code == RDKafkaErrorCode::MessageSizeTooLarge;
        // It may have been too large together with others.
        let is_alone = is_too_large && !self.send_alone();
        let client = self.client()?;
        if !is_alone {
            self.send(&client, record.sequence, &record.payload);
            return Ok(());
        }
        let batch = Batch::thaw(record.payload.clone().into());
        let batch = batch.map_err(|error| WriteError::Fatal(error.to_string()))?;
        if batch.len() < 2 {
            let len = record.payload.len();
            return Err(WriteError::Blocked(format!(
                "topic {} does not take a record of {len} bytes, which holds a single event: raise its `max.message.bytes`",
                self.topic
            )));
        }
        let mut encoded = Encoded::default();
        packing::pack_halves(&batch, &mut encoded);
        self.send_all(&client, &encoded, record.sequence);
        self.flying.replaced(record.sequence, record.payload.len());
        Ok(())
    }

    fn send_all(&self, client: &QueueClient, encoded: &Encoded, sequence: u64) {
        let sizes = encoded.parts.iter().map(|part| part.bytes.len());
        self.flying.begin(sequence, sizes);
        for part in &encoded.parts {
            self.send(client, sequence, &encoded.bytes[part.bytes.clone()]);
        }
    }

    /// Hands a record over. Whatever becomes of it is reported, also where that is known at once.
    fn send(&self, client: &QueueClient, sequence: u64, payload: &[u8]) {
        let record = BaseRecord::with_opaque_to(&self.topic, sequence as usize).payload(payload);
        if let Err(code) = client.send(record) {
            self.flying.failed(sequence, code, payload);
        }
    }

    /// Why brokers take nothing.
    fn trouble(&self) -> Option<WriteError> {
        self.state.trouble().map(|trouble| match trouble {
            Trouble::Down(reason) => WriteError::Retry(reason),
            Trouble::Refused(reason) => WriteError::Blocked(reason),
        })
    }

    /// Waits for room, or for the acknowledgement of everything.
    async fn wait(&self, bytes_max: usize) -> Result<(), WriteError> {
        loop {
            let changed = self.flying.changed();
            self.send_again(self.flying.take_failed())?;
            if self.flying.bytes() <= bytes_max {
                return Ok(());
            }
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(GRACE) => {
                    if let Some(error) = self.trouble() {
                        return Err(error);
                    }
                }
            }
        }
    }
}

#[async_trait]
impl Output for QueueOutput {
    async fn open(&self) -> Result<(), ConfigError> {
        let made = self.make()?;
        *self.client.lock() = Some(Arc::new(made));
        Ok(())
    }

    fn encode(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        let max = self.record_max.load(Ordering::Relaxed);
        packing::pack(&batch.handed_on(rows), max, encoded);
        if !rows.is_full() {
            let numbers: Vec<usize> = rows.iter().collect();
            let refused = encoded.refused.iter_mut();
            let packed = encoded.parts.iter_mut().flat_map(|part| &mut part.rows);
            for row in refused.map(|refused| &mut refused.row).chain(packed) {
                *row = numbers[*row];
            }
        }
    }

    fn take_warnings(&self) -> Vec<Warning> {
        self.state.take_warnings()
    }
}

#[async_trait]
impl Writer for QueueOutput {
    async fn write(&self, _: &Encoded) -> Result<Written, WriteError> {
        Err(WriteError::Fatal("it collects".to_owned()))
    }

    fn collector(&self) -> Option<&dyn Collector> {
        Some(self)
    }

    async fn close(&self) -> Result<(), WriteError> {
        self.wait(0).await
    }
}

#[async_trait]
impl Collector for QueueOutput {
    async fn begin(&self, _: Option<Arc<dyn Anchor>>) -> Result<(), WriteError> {
        let settings = topic::checked(&self.queue, &self.topic, &self.config, &self.state).await;
        let settings = settings.map_err(|error| match self.trouble() {
            Some(trouble) => trouble,
            None => error,
        })?;
        self.state.works();
        if let Some(max) = settings.record_max {
            self.record_max.fetch_min(max, Ordering::Relaxed);
            let before = self.request_max.fetch_min(max, Ordering::Relaxed);
            if max < before.min(REQUEST_BYTES) {
                *self.retired.lock() = self.client.lock().take();
            }
        }
        Ok(())
    }

    async fn collect(&self, encoded: &Encoded, sequence: u64) -> Result<Written, WriteError> {
        let max = self.queue.own.max_in_flight_bytes.bytes();
        self.wait(max.saturating_sub(encoded.bytes.len())).await?;
        let client = self.client()?;
        // Workers do not wait until the topic was asked, so what they packed may be larger than it takes.
        let record_max = self.record_max.load(Ordering::Relaxed);
        let repacked = packing::repack(encoded, record_max);
        let repacked = repacked.map_err(|error| WriteError::Fatal(error.to_string()))?;
        self.send_all(&client, repacked.as_ref().unwrap_or(encoded), sequence);
        Ok(Written {
            refused: repacked.map_or(Vec::new(), |repacked| repacked.refused),
            ..Written::default()
        })
    }

    async fn tend(&self, _: bool) -> Result<u64, WriteError> {
        self.send_again(self.flying.take_failed())?;
        match self.trouble().filter(|_| self.flying.bytes() > 0) {
            Some(error) => Err(error),
            None => Ok(self.flying.safe_below()),
        }
    }

    async fn changed(&self) {
        self.flying.changed().await;
    }
}

impl DeliveryReports for Flying {
    fn delivered(&self, state: &LinkState, sequence: usize, result: &DeliveryResult<'_>) {
        let sequence = sequence as u64;
        match result {
            Ok(message) if message.offset() >= 0 => {
                state.works();
                self.landed(sequence, message.payload_len());
            }
            // librdkafka takes it for stored because a later record was. A record counts as safe only by an answer of its own; a repeat has the same ids.
            Ok(message) => {
                let payload = message.payload().unwrap_or_default();
                self.failed(sequence, RDKafkaErrorCode::Unknown, payload);
            }
            Err((error, message)) => {
                let code = error.rdkafka_error_code();
                let code = code.unwrap_or(RDKafkaErrorCode::Unknown);
                self.failed(sequence, code, message.payload().unwrap_or_default());
            }
        }
    }
}
