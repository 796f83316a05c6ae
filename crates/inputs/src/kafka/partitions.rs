//! Which partitions are read, and how far everything is safe.
//!
//! Batches are delivered in about the order in which they were sent, and a receipt is looked at when all before it have
//! resolved. So the offsets of a partition become safe without gaps.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use batch::{Source, Stream};
use component::{Delivery, Receipt, Stopped};
use parking_lot::Mutex;

use crate::reading::identity::Identity;

/// A partition from when it is assigned until it is taken away. If it is assigned again, that is another one.
#[derive(Debug)]
pub(super) struct AssignedPartition {
    pub(super) topic: Arc<str>,
    pub(super) partition: i32,
    pub(super) stream: Arc<Stream>,
    is_revoked: AtomicBool,
    /// The offset behind the last record that was read; −1 before the first.
    read: AtomicI64,
    /// The offset behind the last record that is to be read, where the run ends there.
    target: Option<i64>,
    is_at_end: AtomicBool,
    /// Where it begins, as a number that stands for an offset, if that could not be found out; otherwise 0.
    unknown: AtomicI64,
    /// Where the records begin that were found damaged last; −1 before the first.
    damaged: AtomicI64,
}

impl AssignedPartition {
    /// A partition of a cluster, to be read up to `target` where the run ends there.
    pub(super) fn new(cluster: &str, topic: &str, partition: i32, target: Option<i64>) -> Self {
        let number = partition.to_be_bytes();
        let identity = Identity::new([b"kafka", cluster.as_bytes(), topic.as_bytes(), &number]);
        let topic: Arc<str> = topic.into();
        let source = Source::Topic {
            name: topic.clone(),
            partition: partition.cast_unsigned(),
        };
        Self {
            stream: Arc::new(Stream::new(identity.id(), source)),
            topic,
            partition,
            is_revoked: AtomicBool::new(false),
            read: AtomicI64::new(-1),
            target,
            is_at_end: AtomicBool::new(false),
            unknown: AtomicI64::new(0),
            damaged: AtomicI64::new(-1),
        }
    }

    /// Whether it was taken away.
    pub(super) fn is_revoked(&self) -> bool {
        self.is_revoked.load(Ordering::Relaxed)
    }

    /// The offset behind the last record that was read; −1 before the first.
    pub(super) fn read(&self) -> i64 {
        self.read.load(Ordering::Relaxed)
    }

    /// What comes next begins at this offset or behind it.
    pub(super) fn note_read(&self, offset: i64) {
        self.read.store(offset, Ordering::Relaxed);
    }

    /// The offset could not be found out that a number such as that of the beginning stands for.
    pub(super) fn note_unknown(&self, begin: i64) {
        self.unknown.store(begin, Ordering::Relaxed);
    }

    /// Records from an offset on are damaged; whether that is new.
    pub(super) fn note_damaged(&self, offset: i64) -> bool {
        self.damaged.swap(offset, Ordering::Relaxed) != offset
    }

    /// It ends here for a run that is to end.
    pub(super) fn reached_end(&self) {
        self.is_at_end.store(true, Ordering::Relaxed);
    }

    /// Whether it was read as far as it is to be.
    pub(super) fn is_complete(&self) -> bool {
        let is_read = |target| self.read() >= target;
        self.is_at_end.load(Ordering::Relaxed) || self.target.is_some_and(is_read)
    }
}

/// How far a batch goes in a partition.
#[derive(Debug, Clone)]
pub(super) struct BatchEnd {
    pub(super) partition: Arc<AssignedPartition>,
    /// The offset of its first record.
    pub(super) first: i64,
    /// The offset behind its last one.
    pub(super) end: i64,
}

/// An offset up to which everything is safe.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SafeOffset {
    pub(super) topic: Arc<str>,
    pub(super) partition: i32,
    pub(super) offset: i64,
}

/// The partitions of an input.
#[derive(Debug, Default)]
pub(super) struct Partitions(Mutex<PartitionTable>);

#[derive(Debug, Default)]
struct PartitionTable {
    assigned: HashMap<(Arc<str>, i32), Arc<AssignedPartition>>,
    /// Those that [`Partitions::take_new`] has not given.
    new: Vec<Arc<AssignedPartition>>,
    /// Whether partitions were assigned, maybe none, since all were taken away.
    was_assigned: bool,
    waiting: VecDeque<(Receipt, Vec<BatchEnd>)>,
    /// Nobody wants what follows, or nothing is known of what was sent.
    has_ended: bool,
}

impl Partitions {
    /// Partitions that are read from now on.
    pub(super) fn assign(&self, partitions: impl IntoIterator<Item = AssignedPartition>) {
        let mut table = self.0.lock();
        table.was_assigned = true;
        for partition in partitions {
            let key = (partition.topic.clone(), partition.partition);
            let partition = Arc::new(partition);
            table.new.push(partition.clone());
            if let Some(old) = table.assigned.insert(key, partition) {
                old.is_revoked.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Partitions that are no longer read.
    pub(super) fn revoke<'t>(&self, partitions: impl IntoIterator<Item = (&'t str, i32)>) {
        let mut table = self.0.lock();
        for (topic, partition) in partitions {
            if let Some(old) = table.assigned.remove(&(topic.into(), partition)) {
                old.is_revoked.store(true, Ordering::Relaxed);
            }
        }
        // Others are assigned soon, or the same ones again.
        table.was_assigned &= !table.assigned.is_empty();
    }

    /// A partition that is read.
    pub(super) fn find(&self, topic: &str, partition: i32) -> Option<Arc<AssignedPartition>> {
        let table = self.0.lock();
        table.assigned.get(&(topic.into(), partition)).cloned()
    }

    /// The partitions that were assigned since the last call, and are still.
    pub(super) fn take_new(&self) -> Vec<Arc<AssignedPartition>> {
        let mut new = std::mem::take(&mut self.0.lock().new);
        new.retain(|partition| !partition.is_revoked());
        new
    }

    /// The partitions that began at an offset that could not be found out since the last call, and the numbers that stand for these.
    pub(super) fn take_unknown(&self) -> Vec<(Arc<AssignedPartition>, i64)> {
        let table = self.0.lock();
        let assigned = table.assigned.values();
        let begun = assigned.map(|one| (one.clone(), one.unknown.swap(0, Ordering::Relaxed)));
        begun.filter(|(_, begin)| *begin != 0).collect()
    }

    /// Whether all partitions were read as far as they are to be.
    pub(super) fn are_complete(&self) -> bool {
        let table = self.0.lock();
        table.was_assigned && table.assigned.values().all(|one| one.is_complete())
    }

    /// A batch was sent.
    pub(super) fn sent(&self, receipt: Receipt, ends: Vec<BatchEnd>) {
        self.0.lock().waiting.push_back((receipt, ends));
    }

    /// Whether something was sent that is not known to be safe.
    pub(super) fn is_waiting(&self) -> bool {
        let table = self.0.lock();
        !table.waiting.is_empty()
    }

    /// Whether there is nothing to be read any more.
    pub(super) fn has_ended(&self) -> bool {
        self.0.lock().has_ended
    }

    /// The offsets up to which everything has become safe since the last call.
    pub(super) fn take_safe(&self) -> Vec<SafeOffset> {
        let mut table = self.0.lock();
        let mut safe: Vec<SafeOffset> = Vec::new();
        while let Some((receipt, _)) = table.waiting.front_mut()
            && let Some(delivered) = receipt.try_delivered()
            && let Some((_, ends)) = table.waiting.pop_front()
        {
            let is_last = table.settle(&ends, delivered, &mut safe);
            if is_last {
                table.has_ended = true;
                table.waiting.clear();
            }
        }
        safe
    }
}

impl PartitionTable {
    /// Notes what became of a batch; whether nobody wants what follows.
    fn settle(
        &self,
        ends: &[BatchEnd],
        delivered: Result<Delivery, Stopped>,
        safe: &mut Vec<SafeOffset>,
    ) -> bool {
        let Ok(delivery) = delivered else {
            return true;
        };
        let mut is_cut = false;
        for end in ends {
            let mut streams = delivery.streams.iter();
            let stream = &end.partition.stream;
            let cut = streams.find(|known| known.stream.id == stream.id);
            let cut = cut.and_then(|known| known.cut);
            let offset = match cut {
                Some(cut) => {
                    is_cut = true;
                    i64::try_from(cut).unwrap_or(end.first)
                }
                None => end.end,
            };
            if end.partition.is_revoked() || offset <= end.first {
                continue;
            }
            let (topic, partition) = (&end.partition.topic, end.partition.partition);
            let is_known =
                |known: &&mut SafeOffset| known.topic == *topic && known.partition == partition;
            match safe.iter_mut().find(is_known) {
                Some(known) => known.offset = offset,
                None => safe.push(SafeOffset {
                    topic: topic.clone(),
                    partition,
                    offset,
                }),
            }
        }
        is_cut
    }
}

#[cfg(test)]
mod tests {
    use component::input::receipt;

    use super::*;

    fn end(partition: &Arc<AssignedPartition>, first: i64, end: i64) -> Vec<BatchEnd> {
        vec![BatchEnd {
            partition: partition.clone(),
            first,
            end,
        }]
    }

    #[test]
    fn offsets_are_safe_when_all_before_them_are() {
        let partitions = Partitions::default();
        partitions.assign([0, 1].map(|number| AssignedPartition::new("c", "t", number, None)));
        let [zero, one] = [0, 1].map(|number| partitions.find("t", number).expect("assigned"));
        let (issuers, receipts): (Vec<_>, Vec<_>) = (0..4).map(|_| receipt()).unzip();
        let ends = [
            end(&zero, 0, 10),
            end(&one, 5, 7),
            end(&zero, 10, 20),
            end(&one, 7, 9),
        ];
        for (receipt, ends) in receipts.into_iter().zip(ends) {
            partitions.sent(receipt, ends);
        }
        let mut issuers = issuers.into_iter();
        let mut next = || issuers.next().expect("four");
        let (first, second, third, fourth) = (next(), next(), next(), next());
        second.resolve(Delivery::default());
        third.resolve(Delivery::default());
        assert_eq!(partitions.take_safe(), []);
        partitions.revoke([("t", 1)]);
        first.resolve(Delivery::default());
        let safe = SafeOffset {
            topic: "t".into(),
            partition: 0,
            offset: 20,
        };
        assert_eq!(
            partitions.take_safe(),
            [safe],
            "what was taken away is forgotten"
        );
        assert!(partitions.is_waiting() && !partitions.has_ended());
        drop(fourth);
        assert_eq!(partitions.take_safe(), []);
        assert!(partitions.has_ended());
    }

    #[test]
    fn a_run_is_complete_when_all_partitions_are() {
        let partitions = Partitions::default();
        assert!(!partitions.are_complete());
        let assigned = [(0, 5), (1, 7)];
        let assigned =
            assigned.map(|(number, target)| AssignedPartition::new("c", "t", number, Some(target)));
        partitions.assign(assigned);
        let [zero, one] = [0, 1].map(|number| partitions.find("t", number).expect("assigned"));
        zero.note_read(5);
        one.note_read(6);
        assert!(!partitions.are_complete());
        one.reached_end();
        assert!(partitions.are_complete());
        partitions.revoke([("t", 0), ("t", 1)]);
        assert!(!partitions.are_complete(), "others may follow");
        partitions.assign([]);
        assert!(partitions.are_complete());
    }
}
