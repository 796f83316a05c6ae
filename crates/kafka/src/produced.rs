//! Records for a producer, many at a time.
//!
//! `BaseProducer::send` looks its topic up by name, waits for two locks and reads the clock twice for each record.
//! `rd_kafka_produce_batch` does so once for all of them. It takes no headers, and gives records the time at which it is called. It
//! also takes partitions, but not here: it does not give back the memory of records for a partition that does not exist.
//!
//! No safe interface of `rdkafka` takes records so. This is one of the modules of the workspace that may hold `unsafe`, which a test
//! checks (`testkit/tests/tidy.rs`); what it gives out is safe.

#![allow(unsafe_code)]

use std::ffi::{CString, c_int};
use std::ptr::{self, NonNull};

use rdkafka::bindings as native;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::producer::{BaseProducer, Producer, ProducerContext};
use rdkafka::types::RDKafkaRespErr;

/// `RD_KAFKA_PARTITION_UA`: the producer chooses the partition.
const UNASSIGNED: i32 = -1;

/// How many records are handed over at a time.
const RECORDS_MAX: usize = 1024;

/// A record without headers, for the time at which it is handed over and the partition that the producer chooses.
#[derive(Debug, Clone, Copy)]
pub struct PlainRecord<'a> {
    pub key: Option<&'a [u8]>,
    pub value: &'a [u8],
    /// What reports on it have as their opaque value.
    pub number: usize,
}

/// Hands records over to a producer, which copies them. Whatever becomes of one is reported, unless that is known at once: `refuse`
/// is called with the numbers of those that were not taken.
pub fn produce<'a, C>(
    producer: &BaseProducer<C>,
    topic: &str,
    records: impl IntoIterator<Item = PlainRecord<'a>>,
    refuse: impl FnMut(usize, RDKafkaErrorCode),
) where
    C: ProducerContext<DeliveryOpaque = usize>,
{
    let mut refuse = refuse;
    let mut records = records.into_iter();
    let topic = NativeTopic::new(producer, topic);
    let mut messages = Vec::new();
    loop {
        let some = records.by_ref().take(RECORDS_MAX);
        messages.extend(some.map(|record| message(&record)));
        if messages.is_empty() {
            return;
        }
        match &topic {
            // SAFETY: the values and keys of the messages are borrowed for `'a`, which is not over.
            Some(topic) => unsafe { topic.produce(&mut messages) },
            None => messages
                .iter_mut()
                .for_each(|message| message.err = RDKafkaRespErr::RD_KAFKA_RESP_ERR__INVALID_ARG),
        }
        for message in messages.drain(..) {
            if message.err != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
                refuse(message._private.addr(), message.err.into());
            }
        }
    }
}

fn message(record: &PlainRecord<'_>) -> native::rd_kafka_message_t {
    let key = record.key;
    native::rd_kafka_message_t {
        err: RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR,
        rkt: ptr::null_mut(),
        partition: UNASSIGNED,
        payload: record.value.as_ptr().cast_mut().cast(),
        len: record.value.len(),
        key: key.map_or(ptr::null_mut(), |key| key.as_ptr().cast_mut().cast()),
        key_len: key.map_or(0, <[u8]>::len),
        offset: 0,
        // The form of an opaque `usize` for `rdkafka`.
        _private: ptr::without_provenance_mut(record.number),
    }
}

/// A topic as a producer knows it, with the settings of that.
struct NativeTopic(NonNull<native::rd_kafka_topic_t>);

impl NativeTopic {
    fn new<C: ProducerContext>(producer: &BaseProducer<C>, name: &str) -> Option<Self> {
        let name = CString::new(name).ok()?;
        let client = producer.client().native_ptr();
        // SAFETY: the client lives as long as its producer, the name is copied, and without settings the topic has those of the client.
        let topic = unsafe { native::rd_kafka_topic_new(client, name.as_ptr(), ptr::null_mut()) };
        NonNull::new(topic).map(Self)
    }

    /// Hands messages over, and sets the error of each.
    ///
    /// # Safety
    /// Their values and keys can be read.
    unsafe fn produce(&self, messages: &mut [native::rd_kafka_message_t]) {
        // SAFETY: the topic lives. Values and keys are copied before the function returns, and only errors are written.
        unsafe {
            native::rd_kafka_produce_batch(
                self.0.as_ptr(),
                UNASSIGNED,
                native::RD_KAFKA_MSG_F_COPY,
                messages.as_mut_ptr(),
                messages.len() as c_int,
            );
        }
    }
}

impl Drop for NativeTopic {
    fn drop(&mut self) {
        // SAFETY: this is the handle that `new` was given; librdkafka keeps the topic for the records that it has.
        unsafe { native::rd_kafka_topic_destroy(self.0.as_ptr()) };
    }
}
