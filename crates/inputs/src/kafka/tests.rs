use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::kafka::rdkafka::ClientConfig;
use ::kafka::rdkafka::message::{Header, OwnedHeaders};
use ::kafka::rdkafka::mocking::MockCluster;
use ::kafka::rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use ::kafka::rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use async_trait::async_trait;
use batch::{Batch, Budget, FieldPath, HostInfo, JsonWriter};
use component::input::{Issuer, receipt};
use component::{
    Build, BuildContext, Delivery, Diagnostics, Effects, Input, InputContext, InputError, Receipt,
    Sink, Stop, Stopped,
};
use config::{Source, parse_yaml};
use parking_lot::Mutex;
use tokio::runtime::Runtime;

use super::SPEC;

type Cluster = MockCluster<'static, DefaultProducerContext>;

/// Brokers of topics `a` and `b` with two partitions each.
fn cluster() -> Cluster {
    let cluster = Cluster::new(1).expect("brokers");
    for topic in ["a", "b"] {
        cluster.create_topic(topic, 2, 1).expect("a topic");
    }
    cluster
}

/// Sends values to partitions of topics.
fn produce(cluster: &Cluster, records: &[(&str, i32, &str)]) {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", cluster.bootstrap_servers());
    let producer: BaseProducer = config.create().expect("a producer");
    for (topic, partition, value) in records {
        let headers = OwnedHeaders::new().insert(Header {
            key: "event_id",
            value: Some(&format!("id-{value}")),
        });
        let record = BaseRecord::to(topic)
            .partition(*partition)
            .key("k\"")
            .payload(*value);
        let sent = producer.send(record.headers(headers).timestamp(1_767_323_045_678));
        sent.map_err(|(error, _)| error).expect("it is taken");
    }
    producer.flush(Duration::from_secs(10)).expect("delivered");
}

/// An event that arrived.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Arrived {
    document: String,
    id: String,
    metadata: Vec<String>,
}

/// Takes batches, and holds their receipts back when it is to.
#[derive(Default)]
struct Taker {
    holds: bool,
    events: Mutex<Vec<Arrived>>,
    held: Mutex<Vec<Issuer>>,
}

#[async_trait]
impl Sink for Taker {
    async fn send(&self, batch: Batch) -> Result<Receipt, Stopped> {
        let (issuer, receipt) = receipt();
        let fields = [
            "topic.name",
            "topic.partition",
            "log.offset",
            "kafka.timestamp",
            "kafka.key",
            "kafka.headers.event_id",
        ];
        let columns = fields.map(|field| {
            let path = FieldPath::from_keys(format!("@metadata.{field}").split('.'));
            batch.column(&path)
        });
        let writer = JsonWriter::new(&batch);
        let mut events = self.events.lock();
        for row in 0..batch.len() {
            let text = |write: &dyn Fn(&mut Vec<u8>)| {
                let mut text = Vec::new();
                write(&mut text);
                String::from_utf8(text).expect("UTF-8")
            };
            events.push(Arrived {
                document: text(&|out| writer.write(row, out)),
                id: text(&|out| batch.origin().write_id(row, out)),
                metadata: columns
                    .iter()
                    .map(|column| text(&|out| column.value(row).write_text(out)))
                    .collect(),
            });
        }
        match self.holds {
            true => self.held.lock().push(issuer),
            false => issuer.resolve(Delivery::accepted(&batch)),
        }
        Ok(receipt)
    }
}

/// An input at work.
struct Working {
    runtime: Runtime,
    taker: Arc<Taker>,
    stop: Stop,
    running: tokio::task::JoinHandle<Result<(), InputError>>,
}

impl Working {
    fn begin(cluster: &Cluster, settings: &str, holds: bool) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let brokers = cluster.bootstrap_servers();
        // The brokers wait nearly that long for members that have left.
        let options = "session.timeout.ms: 2500, heartbeat.interval.ms: 300";
        let yaml =
            format!("{{brokers: '{brokers}', group: g, options: {{{options}}}, {settings}}}");
        let node = parse_yaml(&Source::new("t.yaml", &*yaml)).expect("YAML");
        let host = Arc::new(HostInfo { name: "h".into() });
        let Build::Input(build) = SPEC.build else {
            panic!("it is an input")
        };
        let context = BuildContext {
            host: host.clone(),
            tag: None,
            finite: true,
            effects: Effects::All,
        };
        let mut input: Box<dyn Input> = build(&node, &context).expect("settings");
        let taker = Arc::new(Taker {
            holds,
            ..Taker::default()
        });
        let stop = Stop::default();
        let context = InputContext {
            sink: taker.clone(),
            pool: Budget::new(64 << 20).pool(32 << 20, 256 << 10),
            host,
            stop: stop.clone(),
            metrics: Arc::default(),
            progress: Arc::default(),
            diagnostics: Diagnostics::silent(),
            scope: "test/input".into(),
            registry: None,
            data_dir: None,
            ledger: Arc::default(),
            written: Arc::default(),
            own: component::Own::new(Vec::new, component::own::LogTails::default()),
        };
        runtime.block_on(input.open()).expect("it opens");
        let running = runtime.spawn(async move { input.run(context).await });
        Self {
            runtime,
            taker,
            stop,
            running,
        }
    }

    fn wait_for(&self, count: usize) {
        let begin = Instant::now();
        while self.taker.events.lock().len() < count {
            assert!(begin.elapsed() < Duration::from_secs(20), "in vain");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The ids of what has arrived.
    fn known(&self) -> BTreeSet<String> {
        let events = self.taker.events.lock();
        events.iter().map(|event| event.id.clone()).collect()
    }

    /// Waits for its end; gives what arrived, in order.
    fn end(self) -> Vec<Arrived> {
        let ended = self
            .runtime
            .block_on(async { tokio::time::timeout(Duration::from_secs(20), self.running).await });
        let ended = ended.expect("it ends").expect("it does not panic");
        assert_eq!(ended, Ok(()));
        let mut events = self.taker.events.lock().clone();
        events.sort();
        events
    }
}

fn documents(events: &[Arrived]) -> Vec<&str> {
    events.iter().map(|event| &*event.document).collect()
}

const RECORDS: &[(&str, i32, &str)] = &[
    ("a", 0, r#"{ "n" : 1.50 }"#),
    ("a", 0, ""),
    ("a", 0, r#"{"n":2}"#),
    ("a", 1, "no document"),
    ("b", 0, r#"{"n":3}"#),
];

#[test]
fn records_stay_documents_and_say_where_they_are() {
    let cluster = cluster();
    produce(&cluster, RECORDS);
    let events = Working::begin(&cluster, "topics: ['^[ab]$'], until: end", false).end();
    assert_eq!(events.len(), 4, "{events:?}");
    let shown = documents(&events);
    assert_eq!(shown[0], r#"{ "n" : 1.50 }"#);
    assert_eq!(shown[2..], [r#"{"n":2}"#, r#"{"n":3}"#]);
    assert!(shown[1].contains("_jsonparsefailure"), "{}", shown[1]);
    let time = "2026-01-02T03:04:05.678Z";
    assert_eq!(
        events[0].metadata,
        ["a", "0", "0", time, "k\"", r#"id-{ "n" : 1.50 }"#]
    );
    assert_eq!(events[2].metadata[..3], ["a", "0", "2"]);
    assert_eq!(events[3].metadata[..3], ["b", "0", "0"]);
    assert!(events[2].id.ends_with("-2-3"), "{}", events[2].id);
}

#[test]
fn events_have_the_ids_that_their_records_carry() {
    let cluster = cluster();
    produce(
        &cluster,
        &[
            ("a", 0, r#"{"n":1}"#),
            ("a", 0, r#"{"n":2}"#),
            ("a", 1, r#"{"n":3}"#),
        ],
    );
    let events = Working::begin(&cluster, "topics: a, until: end, event_ids: true", false).end();
    let ids: Vec<_> = events.iter().map(|event| &*event.id).collect();
    assert_eq!(ids, [r#"id-{"n":1}"#, r#"id-{"n":2}"#, r#"id-{"n":3}"#]);
    assert_eq!(events[2].metadata[..3], ["a", "1", "0"]);
}

#[test]
fn what_is_safe_is_read_once_and_the_rest_again_with_the_same_ids() {
    let cluster = cluster();
    produce(&cluster, RECORDS);
    let silent = Working::begin(&cluster, "topics: [a, b]", true);
    silent.wait_for(4);
    silent.stop.stop();
    silent.taker.held.lock().clear();
    let first = silent.end();
    let second = Working::begin(&cluster, "topics: [a, b], until: end", false).end();
    // Texts have the time at which they were read.
    let known = |events: &[Arrived]| -> Vec<_> {
        let event = |event: &Arrived| (event.id.clone(), event.metadata.clone());
        events.iter().map(event).collect()
    };
    assert_eq!(known(&first), known(&second), "nothing was safe");
    produce(&cluster, &[("a", 0, r#"{"n":4}"#)]);
    let third = Working::begin(&cluster, "topics: [a, b], until: end", false).end();
    assert_eq!(documents(&third), [r#"{"n":4}"#]);
}

#[test]
fn partitions_that_go_to_another_member_lose_nothing() {
    let cluster = cluster();
    let records: Vec<(&str, i32, String)> = (0..200)
        .map(|n| ("a", n % 2, format!(r#"{{"n":{n}}}"#)))
        .collect();
    let part = |from: usize, to: usize| {
        let part = records[from..to].iter();
        let part: Vec<_> = part
            .map(|(topic, number, value)| (*topic, *number, &**value))
            .collect();
        produce(&cluster, &part);
    };
    part(0, 100);
    let one = Working::begin(&cluster, "topics: a", false);
    one.wait_for(100);
    let two = Working::begin(&cluster, "topics: a", false);
    std::thread::sleep(Duration::from_secs(4));
    part(100, 200);
    let begin = Instant::now();
    let known = |one: &Working, two: &Working| one.known().union(&two.known()).count();
    while known(&one, &two) < 200 {
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "{}",
            known(&one, &two)
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    two.stop.stop();
    let moved = two.end().len();
    one.stop.stop();
    one.end();
    assert!(moved > 0, "the other member got a partition");
}

#[test]
fn what_brokers_refuse_or_give_again_is_read_from_there() {
    let cluster = cluster();
    let all: Vec<(&str, i32, String)> = (0..700)
        .map(|n| ("a", n % 2, format!(r#"{{"n":{n}}}"#)))
        .collect();
    let records = all.iter();
    let records: Vec<_> = records
        .map(|(topic, number, value)| (*topic, *number, &**value))
        .collect();
    produce(&cluster, &records[..600]);
    let working = Working::begin(&cluster, "topics: a", false);
    working.wait_for(600);
    let fetch = RDKafkaApiKey::Fetch;
    cluster.request_errors(
        fetch,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR],
    );
    produce(&cluster, &records[600..650]);
    working.wait_for(650);
    // The client begins anew.
    let lost = RDKafkaRespErr::RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE;
    cluster.request_errors(fetch, &[lost]);
    working.wait_for(1300);
    produce(&cluster, &records[650..]);
    working.wait_for(1350);
    working.stop.stop();
    let events = working.end();
    let mut times: HashMap<&str, usize> = HashMap::new();
    for document in documents(&events) {
        *times.entry(document).or_default() += 1;
    }
    for (index, (_, _, value)) in records.iter().enumerate() {
        let expected = if index < 650 { 2 } else { 1 };
        assert_eq!(times.get(value), Some(&expected), "{value}");
    }
}

#[test]
fn where_partitions_begin_is_asked_again_if_brokers_do_not_say_it() {
    let cluster = cluster();
    produce(&cluster, RECORDS);
    let refused = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    cluster.request_errors(RDKafkaApiKey::ListOffsets, &[refused; 12]);
    let working = Working::begin(&cluster, "topics: [a, b]", false);
    let begin = Instant::now();
    // Some may come again.
    while working.known().len() < 4 {
        assert!(begin.elapsed() < Duration::from_secs(20), "in vain");
        std::thread::sleep(Duration::from_millis(10));
    }
    working.stop.stop();
    working.end();
}

#[test]
fn a_start_is_for_partitions_without_an_offset() {
    let cluster = cluster();
    produce(&cluster, &[("a", 0, r#"{"n":1}"#)]);
    let new = Working::begin(&cluster, "topics: a, start: end, until: end", false).end();
    assert_eq!(documents(&new), [""; 0]);
    // Also partitions of which nothing was read: what comes before the next run is new.
    produce(&cluster, &[("a", 0, r#"{"n":2}"#), ("a", 1, r#"{"n":3}"#)]);
    let next = Working::begin(&cluster, "topics: a, start: end, until: end", false).end();
    assert_eq!(documents(&next), [r#"{"n":2}"#, r#"{"n":3}"#]);
}

#[test]
fn partitions_of_one_number_in_several_topics_come_to_their_ends() {
    let cluster = cluster();
    produce(&cluster, &[("a", 0, r#"{"n":1}"#), ("b", 0, r#"{"n":2}"#)]);
    let none = Working::begin(&cluster, "topics: [a, b], start: end, until: end", false).end();
    assert_eq!(documents(&none), [""; 0]);
}
