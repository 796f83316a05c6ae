//! A client of librdkafka that is polled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::kafka::rdkafka::client::{ClientContext, OAuthToken};
use ::kafka::rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use ::kafka::rdkafka::error::{KafkaError, RDKafkaErrorCode};
use ::kafka::rdkafka::producer::{
    BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext,
};
use ::kafka::{BrokerSettings, Link, LinkState, PlainRecord, created, produce, words};
use component::thread;
use config::{ConfigError, Node};

/// How long a poll waits for something to report. The end of a client takes as long.
const POLL: Duration = Duration::from_millis(100);

/// What hears of the records that a client was given.
pub trait DeliveryReports: Send + Sync + 'static {
    /// What became of a record, by the number that it was given with. `state` is that of the client's connections.
    fn delivered(&self, state: &LinkState, number: usize, result: &DeliveryResult<'_>);
}

/// A client of librdkafka, with a thread that polls it. When it is dropped, reports come for what is on its way.
pub struct PolledProducer<R: DeliveryReports> {
    client: Arc<BaseProducer<Context<R>>>,
    has_ended: Arc<AtomicBool>,
}

impl<R: DeliveryReports> PolledProducer<R> {
    /// Makes a client with these settings, which stand in `node`.
    ///
    /// # Errors
    /// A file cannot be used, at the place of its setting, or there is no memory or thread for the client.
    pub fn new(
        settings: &BrokerSettings,
        node: &Node,
        config: ClientConfig,
        state: &Arc<LinkState>,
        reports: &Arc<R>,
    ) -> Result<Self, ConfigError> {
        let token = settings.sasl.as_ref().and_then(|sasl| sasl.token.clone());
        let context = Context {
            link: Link::new(state, token),
            reports: reports.clone(),
        };
        let client = created(settings, node, config, |config| {
            config.create_with_context(context)
        })?;
        let client: Arc<BaseProducer<Context<R>>> = Arc::new(client);
        let has_ended = Arc::new(AtomicBool::new(false));
        let (polled, ends) = (client.clone(), has_ended.clone());
        let poll = move || {
            while !ends.load(Ordering::Relaxed) {
                polled.poll(POLL);
            }
        };
        let started = thread::start("kafka", poll);
        started.map_err(|error| node.error(format!("there is no thread: {error}")))?;
        Ok(Self { client, has_ended })
    }

    /// Why it cannot go on, if that is so: another one has to be made. What was on its way in it is reported as failed.
    pub fn failure(&self) -> Option<String> {
        let failure = self.client.client().fatal_error();
        failure.map(|(code, text)| format!("{code}: {}", words(&text)))
    }

    /// What hears of the records.
    pub fn reports(&self) -> &R {
        &self.client.context().reports
    }

    /// Hands a record over. Whatever becomes of it is reported, unless that is known at once.
    ///
    /// # Errors
    /// It was not taken.
    pub fn send(&self, record: BaseRecord<'_, [u8], [u8], usize>) -> Result<(), RDKafkaErrorCode> {
        self.client.send(record).map_err(|(error, _)| {
            let code = error.rdkafka_error_code();
            code.unwrap_or(RDKafkaErrorCode::InvalidArgument)
        })
    }

    /// Hands records over. Whatever becomes of one is reported, unless that is known at once: `refuse` is called for those that were
    /// not taken.
    pub fn send_plain<'a>(
        &self,
        topic: &str,
        records: impl IntoIterator<Item = PlainRecord<'a>>,
        refuse: impl FnMut(usize, RDKafkaErrorCode),
    ) {
        produce(&self.client, topic, records, refuse);
    }
}

impl<R: DeliveryReports> Drop for PolledProducer<R> {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }
}

/// Hears what librdkafka reports.
struct Context<R> {
    link: Link,
    reports: Arc<R>,
}

impl<R: DeliveryReports> ClientContext for Context<R> {
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

impl<R: DeliveryReports> ProducerContext for Context<R> {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        self.reports.delivered(self.link.state(), number, result);
    }
}
