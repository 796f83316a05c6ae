//! The clients of librdkafka.

use std::sync::Arc;

use ::kafka::rdkafka::config::ClientConfig;
use ::kafka::rdkafka::message::{Header, OwnedHeaders};
use ::kafka::rdkafka::producer::BaseRecord;
use ::kafka::{BrokerSettings, LinkState, OptionOwner, PlainRecord, client_config};
use config::{ConfigError, Node};

use super::flights::{FlightHandle, Flights};
use super::polled::PolledProducer;
use super::record::Record;
use super::settings::KafkaSettings;

/// Options that the user may not set, beside those of every client.
pub const OWNERS: &[OptionOwner] = &[
    ("acks", "acks"),
    ("request.required.acks", "acks"),
    ("enable.idempotence", "idempotent"),
    ("compression.codec", "compression"),
    ("compression.type", "compression"),
    ("message.timeout.ms", ""),
    ("delivery.timeout.ms", ""),
    ("retries", ""),
    ("message.send.max.retries", ""),
    ("queue.buffering.max.messages", ""),
    ("queue.buffering.max.kbytes", ""),
    ("delivery.report.only.error", ""),
    ("dr_cb", ""),
    ("transactional.id", ""),
    ("enable.gapless.guarantee", ""),
];

/// How many requests an idempotent producer has on their way to a broker. With more, records may be lost without a word: a broker that knows nothing of a
/// producer yet takes the second request although the first has failed, and librdkafka takes that for an answer to both
/// (<https://github.com/confluentinc/confluent-kafka-go/issues/921>).
pub const ONE_REQUEST: &str = "1";

/// What producers are made of.
pub struct ProducerParts {
    settings: BrokerSettings,
    config: ClientConfig,
    node: Node,
    headers: Vec<String>,
    is_plain: bool,
    flights: Arc<Flights>,
}

impl ProducerParts {
    /// What the settings of an output say. `node` holds all of them; `headers` are the names of headers.
    ///
    /// # Errors
    /// An option of librdkafka cannot be set, at its place.
    pub fn new(
        settings: &KafkaSettings,
        node: &Node,
        headers: Vec<String>,
        flights: &Arc<Flights>,
    ) -> Result<Self, ConfigError> {
        let own = [
            ("acks", settings.own.acks.name()),
            ("enable.idempotence", bool_text(settings.is_idempotent)),
            ("compression.codec", settings.own.compression.name()),
            // As clients in Java do.
            ("partitioner", "murmur2_random"),
            // The engine limits what is on its way, and says when something takes long.
            ("message.timeout.ms", "0"),
            ("queue.buffering.max.messages", "0"),
            ("queue.buffering.max.kbytes", "2147483647"),
        ];
        let in_flight = ("max.in.flight.requests.per.connection", ONE_REQUEST);
        let mut own = own.to_vec();
        own.extend(settings.is_idempotent.then_some(in_flight));
        Ok(Self {
            config: client_config(&settings.brokers, node, &own, OWNERS)?,
            settings: settings.brokers.clone(),
            node: node.clone(),
            is_plain: headers.is_empty()
                && settings.own.timestamp.is_none()
                && settings.own.partition.is_none(),
            headers,
            flights: flights.clone(),
        })
    }

    /// A producer that makes connections.
    ///
    /// # Errors
    /// A file cannot be used, at the place of its setting, or there is no memory or thread for the client.
    pub fn producer(&self, state: &Arc<LinkState>) -> Result<Producer, ConfigError> {
        self.make(self.config.clone(), state)
    }

    /// A producer whose batches hold one record each.
    ///
    /// # Errors
    /// As for [`Self::producer`].
    pub fn lonely(&self, state: &Arc<LinkState>) -> Result<Producer, ConfigError> {
        let mut config = self.config.clone();
        config.set("batch.num.messages", "1");
        self.make(config, state)
    }

    fn make(&self, config: ClientConfig, state: &Arc<LinkState>) -> Result<Producer, ConfigError> {
        Ok(Producer {
            client: PolledProducer::new(&self.settings, &self.node, config, state, &self.flights)?,
            headers: self.headers.clone(),
            is_plain: self.is_plain,
        })
    }
}

fn bool_text(is: bool) -> &'static str {
    if is { "true" } else { "false" }
}

/// A client that sends records of a request.
pub struct Producer {
    client: PolledProducer<Flights>,
    headers: Vec<String>,
    /// Whether records have nothing but a key and a value.
    is_plain: bool,
}

impl Producer {
    /// As [`PolledProducer::failure`].
    pub fn failure(&self) -> Option<String> {
        self.client.failure()
    }

    /// Hands records over, each with its row. Whatever becomes of one is reported, also where that is known at once.
    pub fn send<'a>(
        &self,
        topic: &str,
        records: impl Iterator<Item = (usize, Record<'a>)>,
        flight: &FlightHandle,
    ) {
        if self.is_plain {
            let plain = records.map(|(row, record)| PlainRecord {
                key: record.key,
                value: record.value,
                number: flight.number(row),
            });
            let flights = self.client.reports();
            let refuse = |number, code| flights.report(number, Some(code));
            return self.client.send_plain(topic, plain, refuse);
        }
        for (row, record) in records {
            self.send_one(topic, &record, flight, row);
        }
    }

    fn send_one(&self, topic: &str, record: &Record<'_>, flight: &FlightHandle, row: usize) {
        let number = flight.number(row);
        let message = BaseRecord {
            topic,
            partition: record.partition,
            payload: Some(record.value),
            key: record.key,
            // librdkafka would ask the clock for each.
            timestamp: record.millis.or(Some(flight.begun_millis())),
            headers: self.headers(record),
            delivery_opaque: number,
        };
        if let Err(code) = self.client.send(message) {
            self.client.reports().report(number, Some(code));
        }
    }

    fn headers(&self, record: &Record<'_>) -> Option<OwnedHeaders> {
        if self.headers.is_empty() {
            return None;
        }
        let mut headers = OwnedHeaders::new_with_capacity(self.headers.len());
        for (key, value) in self.headers.iter().zip(record.headers()) {
            if value.is_some() {
                headers = headers.insert(Header { key, value });
            }
        }
        Some(headers)
    }
}
