//! Records on their way to a batch.
//!
//! Values are copied one after the other into one buffer, because librdkafka wants its memory back soon; so is what is told
//! about each record under `@metadata.kafka`. Both are charged to the budget when batches are made of them, which share the two buffers.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::kafka::rdkafka::message::{BorrowedMessage, Headers, Message, Timestamp};
use batch::json;
use codec::BATCH_EVENTS_MAX;
use datetime::rfc3339::write_rfc3339;

use super::partitions::AssignedPartition;

/// How much is gathered at a time, the last record not counted.
const GATHERED_BYTES: usize = 512 << 10;

/// How long a record waits for others to go with it.
const AGE_MAX: Duration = Duration::from_millis(50);

/// The header with the id of an event.
const ID_HEADER: &str = "event_id";

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

    /// The partition of the last record, if that is this one and was not taken away.
    pub(super) fn last_partition(
        &self,
        topic: &str,
        partition: i32,
    ) -> Option<Arc<AssignedPartition>> {
        let last = &self.runs.last()?.partition;
        let is_same = last.partition == partition && *last.topic == *topic && !last.is_revoked();
        is_same.then(|| last.clone())
    }

    /// Takes a record.
    pub(super) fn push(
        &mut self,
        partition: Arc<AssignedPartition>,
        message: &BorrowedMessage<'_>,
    ) {
        if self.is_empty() {
            self.began = Instant::now();
        }
        let start = self.values.len();
        // A record without a value says that those with its key are void.
        self.values
            .extend_from_slice(message.payload().unwrap_or_default());
        let id = match self.takes_ids {
            true => self.write_id(message),
            false => 0..0,
        };
        let record = ReadRecord {
            offset: message.offset(),
            value: start..self.values.len(),
            metadata: self.write_metadata(message),
            id,
        };
        let number = self.records.len();
        let follows = |run: &Run, before: Option<&ReadRecord>| {
            Arc::ptr_eq(&run.partition, &partition)
                && before.is_some_and(|before| before.offset + 1 == record.offset)
        };
        partition.has_read(record.offset);
        match self.runs.last_mut() {
            Some(run) if follows(run, self.records.last()) => run.records.end += 1,
            _ => self.runs.push(Run {
                partition,
                records: number..number + 1,
            }),
        }
        self.records.push(record);
    }

    fn write_id(&mut self, message: &BorrowedMessage<'_>) -> Range<usize> {
        let start = self.metadata.len();
        let headers = message
            .headers()
            .into_iter()
            .flat_map(|headers| headers.iter());
        let mut ids = headers.filter(|header| header.key == ID_HEADER);
        if let Some(id) = ids.next().and_then(|header| header.value) {
            self.metadata.extend_from_slice(id);
        }
        start..self.metadata.len()
    }

    /// Writes `{"timestamp":"…","key":"…","headers":{…}}`.
    fn write_metadata(&mut self, message: &BorrowedMessage<'_>) -> Range<usize> {
        let start = self.metadata.len();
        let out = &mut self.metadata;
        out.push(b'{');
        if let Timestamp::CreateTime(millis) | Timestamp::LogAppendTime(millis) =
            message.timestamp()
        {
            out.extend_from_slice(b"\"timestamp\":\"");
            let begin = out.len();
            match self.time.0 == millis {
                true => out.extend_from_within(self.time.1.clone()),
                false => write_rfc3339(out, millis.saturating_mul(1_000_000)),
            }
            self.time = (millis, begin..out.len());
            out.push(b'"');
        }
        if let Some(key) = message.key() {
            member(out, start, "key");
            write_text(out, key);
        }
        if let Some(headers) = message.headers().filter(|headers| headers.count() > 0) {
            member(out, start, "headers");
            out.push(b'{');
            let first = out.len();
            // A name may come several times: the last value counts, as for clients in Java.
            let mut last: HashMap<&str, usize> = HashMap::with_capacity(headers.count());
            for (index, header) in headers.iter().enumerate() {
                last.insert(header.key, index);
            }
            for (index, header) in headers.iter().enumerate() {
                if last.get(header.key) != Some(&index) {
                    continue;
                }
                if out.len() > first {
                    out.push(b',');
                }
                json::write_string(out, header.key.as_bytes());
                out.push(b':');
                write_text(out, header.value.unwrap_or_default());
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
