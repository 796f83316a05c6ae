//! Records that are batches in their stored form, as the receiving half of `queue: kafka` puts them into the topic.

use std::sync::Arc;

use batch::{Batch, WireError};
use component::{InputContext, Limit, Stopped};

use super::gather::{Gathered, ReadRecord, Run};
use super::partitions::{BatchEnd, Partitions};
use crate::messages::batches::copied;

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
    pub(super) fn send(&self, gathered: &Gathered) -> Result<(), Stopped> {
        for run in &gathered.runs {
            for record in &gathered.records[run.records.clone()] {
                if run.partition.is_revoked() {
                    break;
                }
                self.send_one(gathered, run, record)?;
            }
        }
        Ok(())
    }

    fn send_one(&self, gathered: &Gathered, run: &Run, record: &ReadRecord) -> Result<(), Stopped> {
        let begin = std::time::Instant::now();
        let payload = &gathered.values[record.value.clone()];
        let batch = Batch::thaw(copied(&self.ctx.pool, payload));
        self.ctx.metrics.bytes(payload.len());
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
