use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::kafka::rdkafka::consumer::{BaseConsumer, Consumer};
use ::kafka::rdkafka::message::{Headers, Message, Timestamp};
use ::kafka::rdkafka::mocking::MockCluster;
use ::kafka::rdkafka::producer::DefaultProducerContext;
use ::kafka::rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use ::kafka::rdkafka::{ClientConfig, Offset, TopicPartitionList};
use batch::Batch;
use component::{Request, SendError, Sender, Sent};
use tokio::runtime::Runtime;

use super::SPEC;
use super::record::records;
use crate::testing;

type Cluster = MockCluster<'static, DefaultProducerContext>;

/// Brokers of a topic `t` with three partitions.
fn cluster() -> Cluster {
    let cluster = Cluster::new(1).expect("brokers");
    cluster.create_topic("t", 3, 1).expect("a topic");
    cluster
}

fn output(cluster: &Cluster, settings: &str) -> Arc<dyn Sender> {
    let brokers = cluster.bootstrap_servers();
    let yaml = format!("{{brokers: ['{brokers}'], topic: t, {settings}}}");
    testing::build_sender(&SPEC, &yaml).expect("settings")
}

/// The rows of a batch as one request for each destination.
fn requests(output: &dyn Sender, batch: &Batch, id: u128) -> Vec<Request> {
    let encoded = testing::encode(output, batch);
    let starts = encoded.parts.iter().map(|part| part.bytes.start);
    let ends = starts.clone().skip(1).chain([encoded.bytes.len()]);
    let places = starts.zip(ends);
    let parts = encoded.parts.iter().zip(places).zip(id..);
    let request = |((part, (start, end)), id): ((&component::DestinationPart, _), _)| Request {
        id,
        destination: part.destination.clone(),
        body: encoded.bytes[start..end].to_vec().into(),
        rows: records(&encoded.bytes[start..end]).count(),
        attempt: 0,
    };
    parts.map(request).collect()
}

fn send(runtime: &Runtime, output: &dyn Sender, request: &Request) -> Result<Sent, SendError> {
    let patience = Duration::from_secs(20);
    let sent =
        runtime.block_on(async { tokio::time::timeout(patience, output.send(request)).await });
    sent.expect("it ends")
}

/// A record as a consumer gets it.
#[derive(Debug, PartialEq, Eq)]
struct Got {
    partition: i32,
    key: Option<String>,
    headers: Vec<(String, String)>,
    value: String,
}

/// Records of the topic, by partition in order; at least so many, and all that come within a moment.
fn read(cluster: &Cluster, count: usize) -> Vec<Got> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", cluster.bootstrap_servers());
    config.set("group.id", "test");
    let consumer: BaseConsumer = config.create().expect("a consumer");
    let mut list = TopicPartitionList::new();
    for partition in 0..3 {
        let added = list.add_partition_offset("t", partition, Offset::Beginning);
        added.expect("it is new");
    }
    consumer.assign(&list).expect("partitions");
    let (mut got, begin) = (Vec::new(), Instant::now());
    loop {
        let Some(message) = consumer.poll(Duration::from_millis(500)) else {
            match got.len() >= count || begin.elapsed() > Duration::from_secs(10) {
                true => break,
                false => continue,
            }
        };
        let message = message.expect("a message");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let headers = message
            .headers()
            .into_iter()
            .flat_map(|headers| headers.iter());
        got.push(Got {
            partition: message.partition(),
            key: message.key().map(text),
            headers: headers
                .map(|header| (header.key.to_owned(), header.value.map_or("".into(), text)))
                .collect(),
            value: message.payload().map_or("".into(), text),
        });
        assert!(matches!(message.timestamp(), Timestamp::CreateTime(_)));
    }
    got.sort_by_key(|got| got.partition);
    got
}

#[test]
fn an_event_is_a_record_with_key_partition_time_and_headers() {
    let settings = "key: '%{k}', partition: p, timestamp: at, headers: {h: 'x-%{k}', none: '%{none}'}, event_ids: true";
    let yaml = format!("{{brokers: b, topic: 't-%{{k}}', {settings}}}");
    let output = testing::build_sender(&SPEC, &yaml).expect("settings");
    let batch = testing::documents(&[
        r#"{"k":"a","p":2,"at":"2026-01-02T03:04:05.678Z"}"#,
        r#"{ "p":"7" }"#,
        r#"{"k":"a","p":-1}"#,
        r#"{"k":"/"}"#,
    ]);
    let encoded = testing::encode(&*output, &batch);
    let refused: Vec<_> = encoded.refused.iter().map(|row| row.row).collect();
    assert_eq!(refused, [2, 3]);
    let topics: Vec<_> = encoded
        .parts
        .iter()
        .map(|part| &*part.destination)
        .collect();
    assert_eq!(topics, ["t-a", "t--"]);
    let found: Vec<_> = records(&encoded.bytes).collect();
    let headers = |row: usize| -> Vec<_> {
        let text =
            |header: Option<&[u8]>| header.map(|it| String::from_utf8_lossy(it).into_owned());
        found[row].headers().map(text).collect()
    };
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].partition, Some(2));
    assert_eq!(found[0].key, Some(&b"a"[..]));
    assert_eq!(found[0].millis, Some(1_767_323_045_678));
    let id = |row| Some(batch.origin().shown_id(row));
    assert_eq!(headers(0), [Some("x-a".to_owned()), None, id(0)]);
    assert_eq!(found[0].value, batch_text(&batch, 0));
    assert_eq!((found[1].partition, found[1].key), (Some(7), None));
    assert_eq!(found[1].millis, None);
    assert_eq!(headers(1), [Some("x-".to_owned()), None, id(1)]);
    assert_eq!(found[1].value, br#"{ "p":"7" }"#);
}

fn batch_text(batch: &Batch, row: usize) -> Vec<u8> {
    let mut text = Vec::new();
    batch::JsonWriter::new(batch).write(row, &mut text);
    text
}

#[test]
fn records_arrive_once_and_in_order_while_brokers_come_and_go() {
    let (cluster, runtime) = (cluster(), Runtime::new().expect("a runtime"));
    let output = output(
        &cluster,
        "key: '%{k}', event_ids: true, timeout: 1s, compression: lz4",
    );
    runtime.block_on(output.open()).expect("it opens");
    let documents: Vec<String> = (0..300)
        .map(|n| format!(r#"{{"k":"k{}","n":{n}}}"#, n % 10))
        .collect();
    let mut requests_made = Vec::new();
    for (number, part) in documents.chunks(30).enumerate() {
        let part: Vec<&str> = part.iter().map(String::as_str).collect();
        let batch = testing::documents(&part);
        requests_made.extend(requests(&*output, &batch, number as u128 * 10));
    }
    // All at once, and the broker goes away in between.
    let sending: Vec<_> = requests_made
        .into_iter()
        .enumerate()
        .map(|(number, request)| {
            if number == 5 {
                cluster.broker_down(1).expect("it goes");
            }
            let output = output.clone();
            runtime.block_on(async {
                // The first part of a call, as the engine makes them one after the other.
                let mut call = Box::pin(async move {
                    loop {
                        match output.send(&request).await {
                            Err(SendError::Retry(_)) => {}
                            other => return other,
                        }
                    }
                });
                let begun = tokio::time::timeout(Duration::from_millis(1), &mut call).await;
                (begun.ok(), call)
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(1500));
    cluster.broker_up(1).expect("it comes");
    for (done, call) in sending {
        let sent = match done {
            Some(sent) => sent,
            None => runtime.block_on(async {
                tokio::time::timeout(Duration::from_secs(20), call)
                    .await
                    .expect("it ends")
            }),
        };
        assert_eq!(sent, Ok(Sent::default()));
    }
    let got = read(&cluster, 300);
    assert_eq!(got.len(), 300, "each once");
    let mut by_key: HashMap<String, Vec<usize>> = HashMap::new();
    for record in &got {
        let n = record
            .value
            .rsplit(':')
            .next()
            .map(|n| n.trim_end_matches('}'));
        let n = n.and_then(|n| n.parse().ok()).expect("a number");
        by_key
            .entry(record.key.clone().expect("a key"))
            .or_default()
            .push(n);
    }
    assert_eq!(by_key.len(), 10);
    assert!(
        by_key.values().all(|numbers| numbers.is_sorted()),
        "{by_key:?}"
    );
}

#[test]
fn a_record_that_brokers_refuse_is_found_among_others() {
    let (cluster, runtime) = (cluster(), Runtime::new().expect("a runtime"));
    let output = output(&cluster, "partition: p, options: {message.max.bytes: 1000}");
    runtime.block_on(output.open()).expect("it opens");
    let long = format!(r#"{{"p":0,"m":"{}"}}"#, "x".repeat(2000));
    let batch = testing::documents(&[r#"{"p":0,"n":1}"#, &long, r#"{"p":0,"n":2}"#, r#"{"p":9}"#]);
    let too_large = RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
    // The batch, and one record on its own.
    cluster.request_errors(RDKafkaApiKey::Produce, &[too_large, too_large]);
    let request = &requests(&*output, &batch, 1)[0];
    let sent = send(&runtime, &*output, request).expect("it is answered");
    assert_eq!(sent.retry, []);
    let mut refused = sent.refused;
    refused.sort_by_key(|row| row.row);
    let rows: Vec<_> = refused.iter().map(|row| row.row).collect();
    assert_eq!(
        (rows.len(), rows.contains(&1), rows.contains(&3)),
        (3, true, true)
    );
    assert!(refused[1].reason.contains("too large"), "{refused:?}");
    assert!(
        refused[2].reason.contains("no such partition"),
        "{refused:?}"
    );
    let got: Vec<_> = read(&cluster, 1).into_iter().map(|got| got.value).collect();
    assert_eq!(got.len(), 1, "{got:?}");
}

#[test]
fn trouble_is_reported_while_records_wait() {
    let runtime = Runtime::new().expect("a runtime");
    let yaml = format!(
        "{{brokers: '127.0.0.1:{}', topic: t}}",
        testkit::ports::free_port()
    );
    let output = testing::build_sender(&SPEC, &yaml).expect("settings");
    runtime
        .block_on(output.open())
        .expect("brokers may be away");
    let batch = testing::documents(&["{}"]);
    let request = &requests(&*output, &batch, 1)[0];
    let error = send(&runtime, &*output, request).expect_err("nobody is there");
    let SendError::Retry(reason) = error else {
        panic!("{error:?}")
    };
    assert!(reason.contains("Connection refused"), "{reason}");
    let begin = Instant::now();
    send(&runtime, &*output, request).expect_err("still nobody");
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[test]
fn settings_that_cannot_work_are_refused_at_their_place() {
    for (yaml, part) in [
        ("{topic: t}", "`brokers` is missing"),
        ("{brokers: b}", "topic"),
        (
            "{brokers: b, topic: 'a b'}",
            "cannot be the name of a topic",
        ),
        ("{brokers: b, topic: t, acks: 2}", "acks"),
        (
            "{brokers: b, topic: t, acks: 1, idempotent: true}",
            "requires `acks: all`",
        ),
        (
            "{brokers: b, topic: t, partition: 'a,b'}",
            "not a field name",
        ),
        (
            "{brokers: b, topic: t, options: {retries: 1}}",
            "cannot be changed",
        ),
        ("{brokers: b, topic: t, options: {linger: 1}}", "linger"),
        (
            "{brokers: b, topic: t, tls: {ca: /nowhere.pem}}",
            "/nowhere.pem",
        ),
        (
            "{brokers: b, topic: t, sasl: {mechanism: PLAIN, user: u, password: 'file:/nowhere'}}",
            "/nowhere",
        ),
        (
            "{brokers: b, topic: t, template: x}",
            "requires `codec: template`",
        ),
        (
            "{brokers: b, topic: t, hosts: x}",
            "unknown setting `hosts`",
        ),
    ] {
        let error = match testing::build_sender(&SPEC, yaml) {
            Ok(output) => testing::wait(output.open()).expect_err(yaml),
            Err(error) => error,
        };
        assert!(error.to_string().contains(part), "{yaml}: {error}");
    }
}
