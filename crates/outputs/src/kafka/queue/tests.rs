use std::time::Duration;

use ::config::{Source, parse_yaml};
use ::kafka::rdkafka::consumer::{BaseConsumer, Consumer};
use ::kafka::rdkafka::mocking::MockCluster;
use ::kafka::rdkafka::producer::DefaultProducerContext;
use ::kafka::rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use ::kafka::rdkafka::{Offset, TopicPartitionList};
use tokio::runtime::Runtime;

use super::*;
use crate::testing;

type Cluster = MockCluster<'static, DefaultProducerContext>;

/// The documents in all records of the topic `t`, as soon as there are so many.
fn documents(cluster: &Cluster, count: usize) -> Vec<String> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", cluster.bootstrap_servers());
    config.set("group.id", "test");
    let consumer: BaseConsumer = config.create().expect("a consumer");
    let mut list = TopicPartitionList::new();
    let added = list.add_partition_offset("t", 0, Offset::Beginning);
    added.expect("it is new");
    consumer.assign(&list).expect("a partition");
    let mut found = Vec::new();
    for _ in 0..20 {
        match consumer.poll(Duration::from_millis(500)) {
            Some(message) => {
                let message = message.expect("a message");
                let payload = message.payload().expect("a batch").to_vec();
                let batch = Batch::thaw(payload.into()).expect("a batch");
                for row in 0..batch.len() {
                    let mut text = Vec::new();
                    batch::JsonWriter::new(&batch).write(row, &mut text);
                    found.push(String::from_utf8(text).expect("text"));
                }
            }
            None if found.len() >= count => break,
            None => {}
        }
    }
    found
}

#[test]
fn a_record_is_safe_by_an_answer_of_its_own_alone() {
    let cluster = Cluster::new(1).expect("brokers");
    cluster.create_topic("t", 1, 1).expect("a topic");
    let yaml = format!("{{brokers: '{}', topic: t}}", cluster.bootstrap_servers());
    let node = parse_yaml(&Source::new("t.yaml", &yaml)).expect("YAML");
    let queue = KafkaQueue::read(&node).expect("settings");
    let output = queue_output(&queue, "p").expect("an output");
    // The broker has not stored the record, and says that it had it before: librdkafka reports success, without an offset.
    let duplicate = RDKafkaRespErr::RD_KAFKA_RESP_ERR_DUPLICATE_SEQUENCE_NUMBER;
    cluster.request_errors(RDKafkaApiKey::Produce, &[duplicate]);
    let batch = testing::documents(&[r#"{"n":1}"#, r#"{"n":2}"#]);
    let encoded = testing::encode(&*output, &batch);
    Runtime::new().expect("a runtime").block_on(async {
        output.open().await.expect("it opens");
        let collector = output.collector().expect("it collects");
        collector.collect(&encoded, 7).await.expect("it is taken");
        let safe = async {
            while collector.tend(false).await.expect("brokers are there") < 8 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let safe = tokio::time::timeout(Duration::from_secs(30), safe).await;
        safe.expect("it is safe");
    });
    assert_eq!(documents(&cluster, 2), [r#"{"n":1}"#, r#"{"n":2}"#]);
}
