//! Records that are batches in their stored form, as the receiving half of `queue: kafka` puts them into the topic.

use std::mem::take;
use std::sync::Arc;

use batch::{Batch, WireError};
use bytes::Bytes;
use component::{InputContext, Limit, Stopped};

use super::gather::{Gathered, ReadRecord, Run};
use super::partitions::{BatchEnd, Partitions};

/// Sends the batches that records hold.
pub(super) struct StoredBatches {
    ctx: InputContext,
    partitions: Arc<Partitions>,
}

impl StoredBatches {
    pub(super) fn new(ctx: &InputContext, partitions: &Arc<Partitions>) -> Self {
        Self {
            ctx: ctx.clone(),
            partitions: partitions.clone(),
        }
    }

    /// Sends the batches of records, waiting while there is no memory or the queue is full.
    ///
    /// # Errors
    /// The pipeline takes no more, or a later version of Millpond has written a record.
    pub(super) fn send(&self, mut gathered: Gathered) -> Result<(), Stopped> {
        // Batches share it, and it is charged until the last of them is gone.
        let values = self.ctx.pool.adopt(take(&mut gathered.values));
        for run in &gathered.runs {
            for record in &gathered.records[run.records.clone()] {
                if run.partition.is_revoked() {
                    break;
                }
                self.send_one(values.slice(record.value.clone()), run, record)?;
            }
        }
        Ok(())
    }

    fn send_one(&self, value: Bytes, run: &Run, record: &ReadRecord) -> Result<(), Stopped> {
        let begin = std::time::Instant::now();
        self.ctx.metrics.bytes(value.len());
        let batch = Batch::thaw(value);
        self.ctx.metrics.busy(begin.elapsed());
        let end = BatchEnd {
            partition: run.partition.clone(),
            first: record.offset,
            end: record.offset + 1,
        };
        match batch {
            Ok(batch) => {
                let receipt = self.ctx.send_blocking(batch)?;
                self.partitions.sent(receipt, vec![end]);
                Ok(())
            }
            Err(error) => self.unreadable(run, record, &error),
        }
    }

    /// A record that holds no batch is left out; one of a later version ends the input, so that a machine with that version reads it.
    fn unreadable(&self, run: &Run, record: &ReadRecord, error: &WireError) -> Result<(), Stopped> {
        let (topic, partition, offset) =
            (&run.partition.topic, run.partition.partition, record.offset);
        let place = format!("record {offset} of partition {partition} of topic {topic}");
        if let WireError::Newer { .. } = error {
            let text = format!("{place} cannot be read, and nothing more is read here: {error}");
            self.ctx.diagnostics.warn(&text);
            return Err(Stopped);
        }
        self.ctx.metrics.failures(1);
        self.ctx.metrics.count("damaged_records", 1);
        let limit = Limit::events("damaged_records");
        let text = || format!("{place} is left out: {error}");
        self.ctx.diagnostics.warn_limited(limit, text);
        Ok(())
    }
}
