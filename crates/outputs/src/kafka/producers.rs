//! The clients of librdkafka.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::kafka::rdkafka::client::{ClientContext, OAuthToken};
use ::kafka::rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use ::kafka::rdkafka::error::{KafkaError, RDKafkaErrorCode};
use ::kafka::rdkafka::message::{Header, OwnedHeaders};
use ::kafka::rdkafka::producer::{
    BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext,
};
use ::kafka::{BrokerSettings, Link, LinkState, OptionOwner, client_config, created, words};
use component::thread;
use config::{ConfigError, Node};

use super::flights::{FlightHandle, Flights};
use super::record::Record;
use super::settings::KafkaSettings;

/// How long a poll waits for something to report. The end of a client takes as long.
pub const POLL: Duration = Duration::from_millis(100);

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

/// What producers are made of.
pub struct ProducerParts {
    settings: BrokerSettings,
    config: ClientConfig,
    node: Node,
    headers: Vec<String>,
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
        Ok(Self {
            config: client_config(&settings.brokers, node, &own, OWNERS)?,
            settings: settings.brokers.clone(),
            node: node.clone(),
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
        let sasl = self.settings.sasl.as_ref();
        let token = sasl.and_then(|sasl| sasl.token.clone());
        let reports = Reports {
            link: Link::new(state, token),
            flights: self.flights.clone(),
        };
        let client = created(&self.settings, &self.node, config, |config| {
            config.create_with_context(reports)
        })?;
        let client: Arc<BaseProducer<Reports>> = Arc::new(client);
        let has_ended = Arc::new(AtomicBool::new(false));
        let (polled, ends) = (client.clone(), has_ended.clone());
        let poll = move || {
            while !ends.load(Ordering::Relaxed) {
                polled.poll(POLL);
            }
        };
        let started = thread::start("kafka", poll);
        started.map_err(|error| self.node.error(format!("there is no thread: {error}")))?;
        Ok(Producer {
            client,
            has_ended,
            headers: self.headers.clone(),
        })
    }
}

fn bool_text(is: bool) -> &'static str {
    if is { "true" } else { "false" }
}

/// A client that sends records. When it is dropped, reports come for those that are on their way.
pub struct Producer {
    client: Arc<BaseProducer<Reports>>,
    has_ended: Arc<AtomicBool>,
    headers: Vec<String>,
}

impl Producer {
    /// Why it cannot go on, if that is so: another one has to be made. What was on its way in it is reported as failed.
    pub fn failure(&self) -> Option<String> {
        let failure = self.client.client().fatal_error();
        failure.map(|(code, text)| format!("{code}: {}", words(&text)))
    }

    /// Hands a record over. Whatever becomes of it is reported, also where that is known at once.
    pub fn send(&self, topic: &str, record: &Record<'_>, flight: &FlightHandle, row: usize) {
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
        if let Err((error, _)) = self.client.send(message) {
            let code = error.rdkafka_error_code();
            let code = code.unwrap_or(RDKafkaErrorCode::InvalidArgument);
            self.client.context().flights.report(number, Some(code));
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

impl Drop for Producer {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }
}

/// Hears what librdkafka reports.
struct Reports {
    link: Link,
    flights: Arc<Flights>,
}

impl ClientContext for Reports {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, level: RDKafkaLogLevel, kind: &str, text: &str) {
        self.link.log(level, kind, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.link.error(error, reason);
    }

    fn generate_oauth_token(
        &self,
        config: Option<&str>,
    ) -> Result<OAuthToken, Box<dyn std::error::Error>> {
        self.link.generate_oauth_token(config)
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        let error = result.as_ref().err();
        let code = error.map(|(error, _)| {
            let code = error.rdkafka_error_code();
            code.unwrap_or(RDKafkaErrorCode::Unknown)
        });
        self.flights.report(number, code);
    }
}
