//! Records of a consumer, many at a time.
//!
//! `BaseConsumer::poll` takes one record after the other through a queue that also tells of other things, and makes an event, several
//! readings of the clock and an entry in a histogram for each. Here the records of all partitions go into a queue of their own, which
//! librdkafka gives out by the hundred (`rd_kafka_consume_batch_queue`); `poll` still tells of everything else. A queue of which nothing
//! is taken fills up, and then nothing more is fetched, while `poll` keeps the consumer in its group.
//!
//! Three things about the position, as of librdkafka 2.12. A partition that goes on after its group has changed is read from there, where
//! members keep partitions (cooperative assignment), so that a position that is too far loses records.
//! - What is given in place of a record moves the position behind the record that comes next. So the ends of partitions must not be told
//!   (`enable.partition.eof`), unless nothing is taken behind them, and after an error that broke the reading off
//!   ([`Record::broke_off`]) the consumer must seek.
//! - It never goes back. Where a record comes that is before one that was read, because brokers have lost records, the consumer must seek.
//!
//! No safe interface of `rdkafka` gives out records so. This is one of the modules of the workspace that may hold `unsafe`, which a test
//! checks (`testkit/tests/tidy.rs`); what it gives out is safe.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_void};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::slice;
use std::time::Duration;

use rdkafka::Offset;
use rdkafka::bindings as native;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::types::{RDKafka, RDKafkaRespErr};

/// The name and the value of a header.
pub type Header<'r> = (&'r [u8], Option<&'r [u8]>);

/// How many records are taken at a time.
const RECORDS_MAX: usize = 256;

/// A queue of librdkafka. It must end before its client does.
struct NativeQueue(NonNull<native::rd_kafka_queue_t>);

// SAFETY: librdkafka locks its queues; every function that is called on one here may be called from any thread.
unsafe impl Send for NativeQueue {}
// SAFETY: as above.
unsafe impl Sync for NativeQueue {}

impl NativeQueue {
    fn new(client: *mut RDKafka) -> Self {
        // SAFETY: the client lives, because the consumer that it belongs to is borrowed by the caller.
        let queue = unsafe { native::rd_kafka_queue_new(client) };
        Self(NonNull::new(queue).expect("librdkafka ends the process where it has no memory"))
    }

    /// The queue into which the records of a partition are fetched; librdkafka knows the partition from then on.
    fn of_partition(client: *mut RDKafka, topic: &str, partition: i32) -> Option<Self> {
        let topic = CString::new(topic).ok()?;
        // SAFETY: the client lives, as above, and the name is copied.
        let queue =
            unsafe { native::rd_kafka_queue_get_partition(client, topic.as_ptr(), partition) };
        NonNull::new(queue).map(Self)
    }

    /// What this queue has, and what it gets from now on, goes into the other one; without another one it stays here.
    fn forward(&self, other: Option<&Self>) {
        let other = other.map_or(ptr::null_mut(), |other| other.0.as_ptr());
        // SAFETY: both queues live. librdkafka holds on to the other one by itself.
        unsafe { native::rd_kafka_queue_forward(self.0.as_ptr(), other) };
    }

    /// Up to so many messages. Where there are none it waits; it also waits for the others, unless `patience` is nothing.
    fn take(&self, count: usize, patience: Duration) -> Vec<NonNull<Message>> {
        let mut messages: Vec<NonNull<Message>> = Vec::with_capacity(count);
        let millis = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
        let room = messages.as_mut_ptr().cast();
        // SAFETY: the queue lives. There is room for `count` pointers, and a `NonNull` has the form of a pointer. So many of them as the
        // function says are set, none of them to null.
        unsafe {
            let taken = native::rd_kafka_consume_batch_queue(self.0.as_ptr(), millis, room, count);
            messages.set_len(usize::try_from(taken).unwrap_or(0));
        }
        messages
    }
}

impl Drop for NativeQueue {
    fn drop(&mut self) {
        // SAFETY: nobody else has this handle.
        unsafe { native::rd_kafka_queue_destroy(self.0.as_ptr()) };
    }
}

type Message = native::rd_kafka_message_t;

/// A consumer whose records are read many at a time.
pub struct RecordConsumer<C: ConsumerContext> {
    // Before the consumer, so that it ends first.
    records: NativeQueue,
    consumer: BaseConsumer<C>,
}

impl<C: ConsumerContext> RecordConsumer<C> {
    /// Of a consumer that has no partitions yet. When some are assigned to it, each must be named to [`hold_back`] before they are taken,
    /// and to [`RecordConsumer::collect`] afterwards.
    pub fn new(consumer: BaseConsumer<C>) -> Self {
        Self {
            records: NativeQueue::new(consumer.client().native_ptr()),
            consumer,
        }
    }

    /// The consumer, which tells of everything but records, and must be polled for that.
    pub fn consumer(&self) -> &BaseConsumer<C> {
        &self.consumer
    }

    /// From now on [`RecordConsumer::read`] gives the records of this partition, those that were held back first.
    pub fn collect(&self, topic: &str, partition: i32) {
        let client = self.consumer.client().native_ptr();
        if let Some(queue) = NativeQueue::of_partition(client, topic, partition) {
            queue.forward(Some(&self.records));
        }
    }

    /// Takes what there is, up to so many records, and to a few hundred. Where there is nothing, waits so long for the first.
    pub fn read(&self, count: usize, patience: Duration) -> Records<'_> {
        let mut messages = self.records.take(count.min(RECORDS_MAX), Duration::ZERO);
        if messages.is_empty() && !patience.is_zero() {
            messages = self.records.take(1, patience);
        }
        Records {
            messages,
            consumer: PhantomData,
        }
    }
}

/// Keeps the records of a partition that is about to be assigned from going where [`BaseConsumer::poll`] takes them, until
/// [`RecordConsumer::collect`] is called for it.
pub fn hold_back<C: ConsumerContext>(consumer: &BaseConsumer<C>, topic: &str, partition: i32) {
    let client = consumer.client().native_ptr();
    if let Some(queue) = NativeQueue::of_partition(client, topic, partition) {
        queue.forward(None);
    }
}

/// What was read.
pub struct Records<'c> {
    messages: Vec<NonNull<Message>>,
    consumer: PhantomData<&'c ()>,
}

impl Records<'_> {
    /// The records, and what was told about partitions between them.
    pub fn iter(&self) -> impl Iterator<Item = Record<'_>> {
        self.messages.iter().map(|message| Record {
            message: *message,
            records: PhantomData,
        })
    }
}

impl Drop for Records<'_> {
    fn drop(&mut self) {
        for message in &self.messages {
            // SAFETY: each was taken from the queue once, and nothing borrows it any more.
            unsafe { native::rd_kafka_message_destroy(message.as_ptr()) };
        }
    }
}

/// A record, or what is told about a partition in the place of one.
#[derive(Clone, Copy)]
pub struct Record<'r> {
    message: NonNull<Message>,
    records: PhantomData<&'r ()>,
}

impl<'r> Record<'r> {
    /// The number of what is told in place of a record; 0 for a record. Brokers may give numbers that librdkafka does not know.
    fn code(self) -> i32 {
        // SAFETY: the message lives as long as its `Records`, and nobody writes to its fields. The error is as large as a number of C.
        unsafe {
            (&raw const (*self.message.as_ptr()).err)
                .cast::<i32>()
                .read()
        }
    }

    /// What is told in place of a record.
    pub fn error(self) -> Option<RDKafkaErrorCode> {
        if self.code() == 0 {
            return None;
        }
        let code = RDKafkaRespErr::try_from(self.code());
        Some(code.map_or(RDKafkaErrorCode::Unknown, RDKafkaErrorCode::from))
    }

    /// Whether an error is told that broke off the reading of a partition, so that the consumer must seek to the offset; see the module. What
    /// librdkafka itself cannot read, such as a record that is damaged, is passed over.
    pub fn broke_off(self) -> bool {
        let is_logical =
            [Offset::Beginning, Offset::End].contains(&Offset::from_raw(self.offset()));
        self.code() != 0 && is_logical || self.code() > 0 && self.offset() >= 0
    }

    fn native_topic(self) -> *mut native::rd_kafka_topic_t {
        // SAFETY: as for the number.
        unsafe { (*self.message.as_ptr()).rkt }
    }

    /// The topic. Empty where an error is about none.
    pub fn topic(self) -> &'r str {
        if self.native_topic().is_null() {
            return "";
        }
        // SAFETY: the message holds on to its topic, which has a name that ends with a zero byte and does not change.
        let name = unsafe { CStr::from_ptr(native::rd_kafka_topic_name(self.native_topic())) };
        name.to_str().unwrap_or_default()
    }

    /// The number of the partition.
    pub fn partition(self) -> i32 {
        // SAFETY: as for the number of an error.
        unsafe { (*self.message.as_ptr()).partition }
    }

    /// Whether both are of the same partition.
    pub fn is_beside(self, other: Record<'_>) -> bool {
        // Both hold on to their topic, so that equal pointers are the same one.
        self.partition() == other.partition() && self.native_topic() == other.native_topic()
    }

    /// The offset in the partition.
    pub fn offset(self) -> i64 {
        // SAFETY: as for the number of an error.
        unsafe { (*self.message.as_ptr()).offset }
    }

    /// The value; `None` says that records with this key are void.
    pub fn payload(self) -> Option<&'r [u8]> {
        let message = self.message.as_ptr();
        // SAFETY: librdkafka says that so many bytes are there, as long as the message lives.
        unsafe { bytes((*message).payload, (*message).len) }
    }

    /// The key.
    pub fn key(self) -> Option<&'r [u8]> {
        let message = self.message.as_ptr();
        // SAFETY: as for the value.
        unsafe { bytes((*message).key, (*message).key_len) }
    }

    /// When it was made, or written by a broker; milliseconds since the epoch.
    pub fn timestamp(self) -> Option<i64> {
        let mut kind = native::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: the message lives, and the kind is written through the pointer.
        let millis =
            unsafe { native::rd_kafka_message_timestamp(self.message.as_ptr(), &raw mut kind) };
        let is_known = kind != native::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        (is_known && millis != -1).then_some(millis)
    }

    /// The headers, names and values, in their order. Each call of this reads the record.
    pub fn headers(self) -> Vec<Header<'r>> {
        let mut headers = ptr::null_mut();
        // SAFETY: the message lives. It keeps what it has parsed until it is destroyed; only the thread that has `Records` does this.
        let found =
            unsafe { native::rd_kafka_message_headers(self.message.as_ptr(), &raw mut headers) };
        let mut all = Vec::new();
        if found != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
            return all;
        }
        let (mut name, mut value, mut len) = (ptr::null(), ptr::null(), 0);
        // SAFETY: the headers live as long as the message, and the three are written where the answer is no error: a name that
        // ends with a zero byte, and a value of so many bytes or null.
        unsafe {
            while native::rd_kafka_header_get_all(
                headers,
                all.len(),
                &raw mut name,
                &raw mut value,
                &raw mut len,
            ) == RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR
            {
                all.push((CStr::from_ptr(name).to_bytes(), bytes(value, len)));
            }
        }
        all
    }
}

/// Bytes in the memory of librdkafka.
///
/// # Safety
/// So many bytes are there, for as long as the result is used, or the pointer is null.
unsafe fn bytes<'r>(start: *const c_void, len: usize) -> Option<&'r [u8]> {
    match start.is_null() {
        true => None,
        // SAFETY: said above.
        false => Some(unsafe { slice::from_raw_parts(start.cast(), len) }),
    }
}
