//! Records on their way to a batch.
//!
//! Values are copied one after the other into one buffer, because librdkafka wants its memory back soon; so is what is told
//! about each record under `@metadata.kafka`. Both are charged to the budget when batches are made of them, which share the two buffers.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::kafka::{Header, Record};
use batch::json;
use codec::BATCH_EVENTS_MAX;
use datetime::rfc3339::write_rfc3339;

use super::partitions::AssignedPartition;

/// How much is gathered at a time, the last record not counted.
const GATHERED_BYTES: usize = 512 << 10;

/// How long a record waits for others to go with it.
const AGE_MAX: Duration = Duration::from_millis(50);

/// The header with the id of an event.
const ID_HEADER: &[u8] = b"event_id";

/// A record that was read.
#[derive(Debug)]
pub(super) struct ReadRecord {
    pub(super) offset: i64,
    /// Where its value is in the values.
    pub(super) value: Range<usize>,
    /// Where what is told about it is in the metadata.
    pub(super) metadata: Range<usize>,
    /// Where the id of its event is in the metadata. Empty where it has none.
    pub(super) id: Range<usize>,
}

/// Records of one partition, in the order of their offsets.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) partition: Arc<AssignedPartition>,
    /// Of the records.
    pub(super) records: Range<usize>,
}

/// Records of all partitions.
#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) values: Vec<u8>,
    pub(super) metadata: Vec<u8>,
    pub(super) records: Vec<ReadRecord>,
    pub(super) runs: Vec<Run>,
    began: Instant,
    /// The last time that was written, and where.
    time: (i64, Range<usize>),
    takes_ids: bool,
}

impl Gathered {
    /// Nothing. `takes_ids` says whether records may have the ids of their events.
    pub(super) fn new(takes_ids: bool) -> Self {
        Self {
            values: Vec::with_capacity(GATHERED_BYTES + GATHERED_BYTES / 8),
            metadata: Vec::new(),
            records: Vec::new(),
            runs: Vec::new(),
            began: Instant::now(),
            time: (i64::MIN, 0..0),
            takes_ids,
        }
    }

    /// Whether there are no records.
    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Whether the records are to leave before the next one.
    pub(super) fn is_full(&self) -> bool {
        self.records.len() >= BATCH_EVENTS_MAX || self.values.len() >= GATHERED_BYTES
    }

    /// How much longer the records may wait for others.
    pub(super) fn patience(&self) -> Duration {
        match self.is_empty() {
            true => AGE_MAX,
            false => AGE_MAX.saturating_sub(self.began.elapsed()),
        }
    }

    /// How many more records of this size there is room for, at least one.
    pub(super) fn room(&self, size: usize) -> usize {
        let bytes = GATHERED_BYTES.saturating_sub(self.values.len());
        let records = BATCH_EVENTS_MAX.saturating_sub(self.records.len());
        records.min(bytes.div_ceil(size.max(1))).max(1)
    }

    /// Takes a record.
    pub(super) fn push(&mut self, partition: &Arc<AssignedPartition>, record: Record<'_>) {
        if self.is_empty() {
            self.began = Instant::now();
        }
        let start = self.values.len();
        // A record without a value says that those with its key are void.
        self.values
            .extend_from_slice(record.payload().unwrap_or_default());
        let headers = record.headers();
        let id = match self.takes_ids {
            true => self.write_id(&headers),
            false => 0..0,
        };
        let read = ReadRecord {
            offset: record.offset(),
            value: start..self.values.len(),
            metadata: self.write_metadata(record, &headers),
            id,
        };
        let number = self.records.len();
        let follows = |run: &Run, before: Option<&ReadRecord>| {
            Arc::ptr_eq(&run.partition, partition)
                && before.is_some_and(|before| before.offset + 1 == read.offset)
        };
        partition.note_read(read.offset + 1);
        match self.runs.last_mut() {
            Some(run) if follows(run, self.records.last()) => run.records.end += 1,
            _ => self.runs.push(Run {
                partition: partition.clone(),
                records: number..number + 1,
            }),
        }
        self.records.push(read);
    }

    fn write_id(&mut self, headers: &[Header<'_>]) -> Range<usize> {
        let start = self.metadata.len();
        let mut ids = headers.iter().filter(|(name, _)| *name == ID_HEADER);
        if let Some((_, Some(id))) = ids.next() {
            self.metadata.extend_from_slice(id);
        }
        start..self.metadata.len()
    }

    /// Writes `{"timestamp":"…","key":"…","headers":{…}}`.
    fn write_metadata(&mut self, record: Record<'_>, headers: &[Header<'_>]) -> Range<usize> {
        let start = self.metadata.len();
        let out = &mut self.metadata;
        out.push(b'{');
        if let Some(millis) = record.timestamp() {
            out.extend_from_slice(b"\"timestamp\":\"");
            let begin = out.len();
            match self.time.0 == millis {
                true => out.extend_from_within(self.time.1.clone()),
                false => write_rfc3339(out, millis.saturating_mul(1_000_000)),
            }
            self.time = (millis, begin..out.len());
            out.push(b'"');
        }
        if let Some(key) = record.key() {
            member(out, start, "key");
            write_text(out, key);
        }
        if !headers.is_empty() {
            member(out, start, "headers");
            out.push(b'{');
            let first = out.len();
            // A name may come several times: the last value counts, as for clients in Java.
            let names = headers.iter().enumerate();
            let last: HashMap<_, _> = names.map(|(index, (name, _))| (*name, index)).collect();
            for (index, (name, value)) in headers.iter().enumerate() {
                if last.get(name) != Some(&index) {
                    continue;
                }
                if out.len() > first {
                    out.push(b',');
                }
                write_text(out, name);
                out.push(b':');
                write_text(out, value.unwrap_or_default());
            }
            out.push(b'}');
        }
        out.push(b'}');
        start..out.len()
    }
}

/// Begins a member of the object that begins at `start`.
fn member(out: &mut Vec<u8>, start: usize, name: &str) {
    if out.len() > start + 1 {
        out.push(b',');
    }
    json::write_string(out, name.as_bytes());
    out.push(b':');
}

/// Writes bytes as a string; what is not UTF-8 is replaced by U+FFFD.
fn write_text(out: &mut Vec<u8>, bytes: &[u8]) {
    json::write_string(out, String::from_utf8_lossy(bytes).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_for_at_least_one_record() {
        let gathered = Gathered::new(false);
        assert_eq!(gathered.room(usize::MAX), 1);
        assert_eq!(gathered.room(GATHERED_BYTES / 4), 4);
        assert_eq!(gathered.room(0), BATCH_EVENTS_MAX);
    }
}
