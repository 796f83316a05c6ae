//! The client, and what happens when partitions come and go.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ::kafka::rdkafka::client::{ClientContext, OAuthToken};
use ::kafka::rdkafka::config::RDKafkaLogLevel;
use ::kafka::rdkafka::consumer::{
    BaseConsumer, CommitMode, Consumer, ConsumerContext, RebalanceProtocol,
};
use ::kafka::rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use ::kafka::rdkafka::types::RDKafkaRespErr;
use ::kafka::rdkafka::{Offset, Statistics, TopicPartitionList};
use ::kafka::{Link, LinkState, OptionOwner, RecordConsumer, client_config, created, hold_back};
use component::Limit;
use component::Warning;
use config::{ConfigError, Node};
use parking_lot::Mutex;

use super::partitions::{AssignedPartition, Partitions};
use super::settings::{KafkaSettings, RecordForm};
use crate::messages::settings::Start;

/// How long brokers are waited for when partitions are assigned.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Options that the user may not set, beside those of every client.
const OWNERS: &[OptionOwner] = &[
    ("group.id", "group"),
    ("auto.offset.reset", "start"),
    ("enable.auto.commit", ""),
    ("auto.commit.enable", ""),
    ("enable.auto.offset.store", ""),
    ("enable.partition.eof", ""),
    ("statistics.interval.ms", ""),
    ("check.crcs", ""),
];

/// The client of an input.
pub(super) type KafkaConsumer = RecordConsumer<Membership>;

/// Makes a client that takes part in nothing yet.
///
/// # Errors
/// A setting cannot be used, at its place.
pub(super) fn consumer(
    settings: &KafkaSettings,
    node: &Node,
    state: &Arc<LinkState>,
    partitions: &Arc<Partitions>,
) -> Result<KafkaConsumer, ConfigError> {
    let config = configuration(settings, node)?;
    let sasl = settings.brokers.sasl.as_ref();
    let membership = Membership {
        link: Link::new(state, sasl.and_then(|sasl| sasl.token.clone())),
        partitions: partitions.clone(),
        start: settings.start,
        is_finite: settings.is_finite,
        lag: Mutex::new(None),
    };
    created(&settings.brokers, node, config, |config| {
        config
            .create_with_context(membership)
            .map(KafkaConsumer::new)
    })
}

/// The settings as the configuration of librdkafka.
///
/// # Errors
/// An option cannot be set, at its place.
pub(super) fn configuration(
    settings: &KafkaSettings,
    node: &Node,
) -> Result<::kafka::rdkafka::ClientConfig, ConfigError> {
    let reset = match settings.start {
        Start::End => "latest",
        Start::Beginning | Start::Time(_) => "earliest",
    };
    let own = [
        ("group.id", &*settings.group),
        ("auto.offset.reset", reset),
        // What is stored is committed; it is stored when it is safe.
        ("enable.auto.commit", "true"),
        ("enable.auto.offset.store", "false"),
        ("auto.commit.interval.ms", "1000"),
        // Where it is told, records are lost that follow it: see `RecordConsumer`. A run that is to end takes none of them.
        (
            "enable.partition.eof",
            if settings.is_finite { "true" } else { "false" },
        ),
        ("statistics.interval.ms", "5000"),
        // Otherwise damaged values would be taken for good ones.
        ("check.crcs", "true"),
        // What is fetched ahead is in no budget.
        ("queued.max.messages.kbytes", "16384"),
        // Once so much is there; the default, a second, is longer than it lasts.
        ("fetch.queue.backoff.ms", "10"),
    ];
    let mut own = own.to_vec();
    if settings.topics.iter().any(|topic| topic.starts_with('^')) {
        // Those of brokers themselves: commits of this very group would come back as events.
        own.push(("topic.blacklist", "^__.*"));
    }
    if matches!(settings.form, RecordForm::Batches) {
        // Machines come and go: those that stay keep their partitions.
        own.push(("partition.assignment.strategy", "cooperative-sticky"));
    }
    client_config(&settings.brokers, node, &own, OWNERS)
}

/// What librdkafka tells the input.
pub(super) struct Membership {
    link: Link,
    partitions: Arc<Partitions>,
    start: Start,
    is_finite: bool,
    lag: Mutex<Option<u64>>,
}

impl Membership {
    /// Records behind those that were read, in all partitions that are assigned, if that was learned since the last call.
    pub(super) fn take_lag(&self) -> Option<u64> {
        self.lag.lock().take()
    }

    fn assign(&self, consumer: &BaseConsumer<Self>, list: &mut TopicPartitionList) {
        let begun = match self.start {
            Start::Beginning => TopicPartitionList::new(),
            start => begin(consumer, list, start).unwrap_or_else(|error| {
                let text = format!(
                    "the offsets for `start` are unknown: {error}; partitions without an offset are read from where brokers are asked first"
                );
                self.warn(text);
                TopicPartitionList::new()
            }),
        };
        let cluster = consumer.client().fetch_cluster_id(ANSWER_MAX);
        let cluster = cluster.unwrap_or_default();
        let ends = match self.is_finite {
            true => ends(consumer, list),
            false => HashMap::new(),
        };
        let assigned = list.elements().into_iter().map(|element| {
            let (topic, partition) = (element.topic(), element.partition());
            hold_back(consumer, topic, partition);
            let end = ends.get(&(topic.to_owned(), partition));
            let assigned =
                AssignedPartition::new(&cluster, topic, partition, end.map(|end| end.offset));
            if end.is_some_and(|end| end.is_reached) {
                assigned.reached_end();
            }
            assigned
        });
        self.partitions.assign(assigned.collect::<Vec<_>>());
        let taken = match consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => consumer.incremental_assign(list),
            _ => consumer.assign(list),
        };
        if let Err(error) = taken {
            self.warn(format!("partitions cannot be taken: {error}"));
        }
        // Otherwise who reads them next would begin anew, behind what comes until then.
        if begun.count() > 0
            && let Err(error) = consumer.commit(&begun, CommitMode::Async)
        {
            self.warn(format!(
                "where partitions are begun cannot be committed: {error}"
            ));
        }
    }

    fn revoke(&self, consumer: &BaseConsumer<Self>, list: &TopicPartitionList) {
        store_safe(consumer, &self.partitions);
        let elements = list.elements();
        let revoked = elements.iter();
        let revoked = revoked.map(|element| (element.topic(), element.partition()));
        self.partitions.revoke(revoked);
        // Commits what is stored of them.
        let left = match consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => consumer.incremental_unassign(list),
            _ => consumer.unassign(),
        };
        if let Err(error) = left {
            self.warn(format!("partitions cannot be given back: {error}"));
        }
    }

    fn warn(&self, text: String) {
        let warning = Warning::limited(Limit::events("rebalances"), text);
        self.link.state().warn(warning);
    }
}

/// The end of a partition.
struct PartitionEnd {
    offset: i64,
    /// Whether there is nothing that the group has not read.
    is_reached: bool,
}

/// The ends of partitions, as far as brokers tell.
fn ends(
    consumer: &BaseConsumer<Membership>,
    list: &TopicPartitionList,
) -> HashMap<(String, i32), PartitionEnd> {
    let committed = consumer.committed_offsets(list.clone(), ANSWER_MAX);
    let committed = committed
        .map(|list| list.to_topic_map())
        .unwrap_or_default();
    let end = |key: (String, i32)| {
        let (low, high) = consumer.fetch_watermarks(&key.0, key.1, ANSWER_MAX).ok()?;
        let read = committed.get(&key);
        let is_read = matches!(read, Some(Offset::Offset(offset)) if *offset >= high);
        let end = PartitionEnd {
            offset: high,
            is_reached: low == high || is_read,
        };
        Some((key, end))
    };
    list.to_topic_map().into_keys().filter_map(end).collect()
}

/// Sets the offsets at which to begin for partitions for which the group has none; gives these.
fn begin(
    consumer: &BaseConsumer<Membership>,
    list: &mut TopicPartitionList,
    start: Start,
) -> KafkaResult<TopicPartitionList> {
    let committed = consumer.committed_offsets(list.clone(), ANSWER_MAX)?;
    let committed = committed.elements();
    let new = committed.iter();
    let new = new.filter(|element| element.offset() == Offset::Invalid);
    let mut wanted = TopicPartitionList::new();
    for element in new {
        let at = match start {
            Start::Time(millis) => Offset::Offset(millis),
            Start::Beginning | Start::End => Offset::End,
        };
        wanted.add_partition_offset(element.topic(), element.partition(), at)?;
    }
    if let Start::Time(_) = start
        && wanted.count() > 0
    {
        wanted = consumer.offsets_for_times(wanted, ANSWER_MAX)?;
    }
    let mut begun = TopicPartitionList::new();
    for element in wanted.elements() {
        let (topic, partition) = (element.topic(), element.partition());
        let offset = match element.offset() {
            Offset::Offset(offset) => offset,
            // Nothing has that time yet.
            _ => consumer.fetch_watermarks(topic, partition, ANSWER_MAX)?.1,
        };
        let offset = Offset::Offset(offset);
        list.set_partition_offset(topic, partition, offset)?;
        begun.add_partition_offset(topic, partition, offset)?;
    }
    Ok(begun)
}

/// Notes for librdkafka what has become safe; it commits that.
pub(super) fn store_safe(consumer: &BaseConsumer<Membership>, partitions: &Partitions) {
    for safe in partitions.take_safe() {
        // An error says that the partition was taken away, so that its next member decides.
        let _ = consumer.store_offset(&safe.topic, safe.partition, safe.offset - 1);
    }
}

impl ClientContext for Membership {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, level: RDKafkaLogLevel, kind: &str, text: &str) {
        self.link.log(level, kind, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.link.error(error, reason);
    }

    fn stats(&self, statistics: Statistics) {
        let mut lag = 0;
        for topic in statistics.topics.values() {
            for one in topic.partitions.values() {
                if self.partitions.find(&topic.topic, one.partition).is_none() {
                    continue;
                }
                // Negative where it is not known.
                let safe = [one.stored_offset, one.committed_offset, one.lo_offset];
                let safe = safe.into_iter().find(|offset| *offset >= 0);
                let behind = safe.map_or(0, |safe| one.hi_offset - safe);
                lag += u64::try_from(behind).unwrap_or(0);
            }
        }
        *self.lag.lock() = Some(lag);
    }

    fn generate_oauth_token(
        &self,
        config: Option<&str>,
    ) -> Result<OAuthToken, Box<dyn std::error::Error>> {
        self.link.generate_oauth_token(config)
    }
}

impl ConsumerContext for Membership {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        error: RDKafkaRespErr,
        list: &mut TopicPartitionList,
    ) {
        match error {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => self.assign(consumer, list),
            _ => self.revoke(consumer, list),
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        let code = result
            .as_ref()
            .err()
            .and_then(KafkaError::rdkafka_error_code);
        // Nothing was there to commit.
        if let (Err(error), false) = (&result, code == Some(RDKafkaErrorCode::NoOffset)) {
            let text = format!(
                "offsets cannot be committed: {error}; if Millpond ends before they can be, records are read again"
            );
            let limit = Limit::events("unsaved_positions");
            self.link.state().warn(Warning::limited(limit, text));
        }
    }
}
