//! The records that brokers have not acknowledged.

use std::collections::BTreeMap;

use ::kafka::rdkafka::error::RDKafkaErrorCode;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// A record that came back.
#[derive(Debug)]
pub struct FailedRecord {
    /// That of its batch.
    pub sequence: u64,
    /// Why it was not taken.
    pub code: RDKafkaErrorCode,
    /// The record.
    pub payload: Vec<u8>,
}

/// The records that were handed over and are not safe. Those of a batch have its sequence.
#[derive(Debug, Default)]
pub struct Flying {
    table: Mutex<FlyingTable>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct FlyingTable {
    /// How many records of each batch are on their way.
    left: BTreeMap<u64, usize>,
    bytes: usize,
    /// Those that came back; they are still among the others.
    failed: Vec<FailedRecord>,
    /// The sequence behind the last batch.
    next: u64,
}

impl FlyingTable {
    fn end(&mut self, sequence: u64, size: usize) {
        self.bytes = self.bytes.saturating_sub(size);
        if let Some(left) = self.left.get_mut(&sequence) {
            *left -= 1;
            if *left == 0 {
                self.left.remove(&sequence);
            }
        }
    }
}

impl Flying {
    /// Records of these sizes are about to be handed over for a batch.
    pub fn begin(&self, sequence: u64, sizes: impl ExactSizeIterator<Item = usize>) {
        let mut table = self.table.lock();
        table.next = table.next.max(sequence + 1);
        if sizes.len() > 0 {
            *table.left.entry(sequence).or_default() += sizes.len();
            table.bytes += sizes.sum::<usize>();
        }
    }

    /// A record was acknowledged.
    pub fn landed(&self, sequence: u64, size: usize) {
        self.table.lock().end(sequence, size);
        self.changed.notify_waiters();
    }

    /// A record came back.
    pub fn failed(&self, sequence: u64, code: RDKafkaErrorCode, payload: &[u8]) {
        self.put_back(FailedRecord {
            sequence,
            code,
            payload: payload.to_vec(),
        });
        self.changed.notify_waiters();
    }

    /// A record that came back and cannot be sent again now.
    pub fn put_back(&self, record: FailedRecord) {
        self.table.lock().failed.push(record);
    }

    /// The records that came back since the last call.
    pub fn take_failed(&self) -> Vec<FailedRecord> {
        std::mem::take(&mut self.table.lock().failed)
    }

    /// Others take the place of a record that came back; they have begun.
    pub fn replaced(&self, sequence: u64, size: usize) {
        self.table.lock().end(sequence, size);
    }

    /// Bytes of all records.
    pub fn bytes(&self) -> usize {
        self.table.lock().bytes
    }

    /// The batches with a sequence below this are safe, among those that have begun.
    pub fn safe_below(&self) -> u64 {
        let table = self.table.lock();
        let first = table.left.first_key_value().map(|(sequence, _)| *sequence);
        first.unwrap_or(table.next)
    }

    /// Waits until a record is acknowledged or comes back after this call.
    pub fn changed(&self) -> impl Future<Output = ()> + '_ {
        let mut changed = Box::pin(self.changed.notified());
        changed.as_mut().enable();
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_safe_when_all_of_its_records_and_those_before_are() {
        let flying = Flying::default();
        assert_eq!(flying.safe_below(), 0);
        flying.begin(4, [10, 20].into_iter());
        flying.begin(5, [].into_iter());
        flying.begin(6, [30].into_iter());
        assert_eq!((flying.safe_below(), flying.bytes()), (4, 60));
        flying.landed(6, 30);
        flying.landed(4, 10);
        assert_eq!(flying.safe_below(), 4);
        flying.failed(4, RDKafkaErrorCode::MessageSizeTooLarge, &[0; 20]);
        let failed = flying.take_failed();
        assert_eq!((failed.len(), failed[0].sequence), (1, 4));
        flying.begin(4, [15, 15].into_iter());
        flying.replaced(4, 20);
        assert_eq!((flying.safe_below(), flying.bytes()), (4, 30));
        flying.landed(4, 15);
        flying.landed(4, 15);
        assert_eq!((flying.safe_below(), flying.bytes()), (7, 0));
    }
}
