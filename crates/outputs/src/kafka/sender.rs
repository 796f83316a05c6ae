//! The output at work.

use std::sync::Arc;
use std::time::Duration;

use ::kafka::{LinkState, Trouble, is_topic};
use async_trait::async_trait;
use batch::{Batch, Bitmap, FieldRead};
use component::{
    BuildContext, Compression, Encoded, Framing, Output, Request, RequestLimits, RequestOrder,
    Requests, SendError, Sender, Sent, Warning,
};
use config::{ConfigError, Node, Period};
use expr::Template;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use super::flights::{FlightHandle, Flights, ROWS_MAX};
use super::producers::{Producer, ProducerParts};
use super::record::{RecordFormat, records};
use super::settings::KafkaSettings;
use super::verdict::{Verdict, judge, sent};
use crate::codec::{ABSENT, template};
use crate::partition::{encode_groups, partition};

/// How long brokers that are known to be away are waited for before that is reported.
const GRACE: Duration = Duration::from_secs(1);

struct Kafka {
    topic: Template,
    /// The topic, where it is the same for all events.
    constant_topic: Option<Arc<str>>,
    format: RecordFormat,
    timeout: Duration,
    parts: ProducerParts,
    flights: Arc<Flights>,
    state: Arc<LinkState>,
    producers: Mutex<Producers>,
}

/// The clients of an output.
#[derive(Default)]
struct Producers {
    /// Made when the output opens.
    usual: Option<Arc<Producer>>,
    /// The one whose batches hold one record each, made when it is needed.
    lonely: Option<Arc<Producer>>,
}

/// Makes the output of its settings.
///
/// # Errors
/// One of them cannot be used, at its place.
pub fn build(node: &Node, _: &BuildContext) -> Result<Arc<dyn Sender>, ConfigError> {
    let settings = KafkaSettings::read(node)?;
    // Also where no template needs it.
    expr::zone_setting(node)?;
    let at = node.nearest("topic");
    let topic = template(node, at, &settings.own.topic)?;
    let constant = topic.constant();
    if let Some(name) = constant.filter(|name| !is_topic(name)) {
        return Err(at.error(not_a_topic(name)));
    }
    let format = RecordFormat::new(&settings, node)?;
    let flights = Arc::new(Flights::default());
    Ok(Arc::new(Kafka {
        constant_topic: constant.map(Into::into),
        topic,
        timeout: settings.own.timeout.get().0,
        parts: ProducerParts::new(&settings, node, format.header_names(), &flights)?,
        format,
        flights,
        state: Arc::default(),
        producers: Mutex::default(),
    }))
}

fn not_a_topic(name: &str) -> String {
    format!(
        "`{name}` cannot be the name of a topic: up to 249 letters, digits, `.`, `_` and `-` are allowed"
    )
}

impl Kafka {
    /// The client that sends. One that cannot go on is replaced; what was on its way in it is reported as failed.
    fn producer(&self) -> Result<Arc<Producer>, SendError> {
        let mut producers = self.producers.lock();
        let failure = producers.usual.as_ref().and_then(|one| one.failure());
        if let Some(reason) = failure {
            let text = format!(
                "{reason}; another client is made, and what was on its way is sent again: some records may arrive twice"
            );
            self.state.warn(text.into());
            self.state.works();
            *producers = Producers::default();
        }
        if let Some(producer) = &producers.usual {
            return Ok(producer.clone());
        }
        let made = self.parts.producer(&self.state);
        let made = made.map_err(|error| SendError::Blocked(error.to_string()))?;
        let made = Arc::new(made);
        producers.usual = Some(made.clone());
        Ok(made)
    }

    fn lonely(&self) -> Result<Arc<Producer>, SendError> {
        let mut producers = self.producers.lock();
        let known = producers.lonely.as_ref();
        if let Some(producer) = known.filter(|one| one.failure().is_none()) {
            return Ok(producer.clone());
        }
        let made = self.parts.lonely(&self.state);
        let made = made.map_err(|error| SendError::Blocked(error.to_string()))?;
        let made = Arc::new(made);
        producers.lonely = Some(made.clone());
        Ok(made)
    }

    /// Hands the records of a request over, unless they are on their way already.
    fn begin(&self, request: &Request) -> Result<FlightHandle, SendError> {
        if let Some(flight) = self.flights.find(request.id) {
            return Ok(flight);
        }
        if request.rows > ROWS_MAX {
            let reason = format!("a request cannot hold more than {ROWS_MAX} records");
            return Err(SendError::Unfit(reason));
        }
        let producer = self.producer()?;
        let flight = self.flights.begin(request.id, request.rows);
        let rows = records(&request.body).enumerate();
        producer.send(&request.destination, rows, &flight);
        Ok(flight)
    }

    /// What became of a request, if all is known; records that were refused with others are sent alone first.
    fn landed(&self, request: &Request, flight: &FlightHandle) -> Result<Option<Sent>, SendError> {
        let Some(landed) = self.flights.landed(flight) else {
            return Ok(None);
        };
        let is_lonely = |code| judge(code, landed.is_alone) == Verdict::Alone;
        if !landed.failed.iter().any(|(_, code)| is_lonely(*code)) {
            self.flights.end(request.id);
            if landed.failed.len() < request.rows {
                self.state.works();
            }
            return Ok(Some(sent(
                &landed.failed,
                landed.is_alone,
                &request.destination,
            )));
        }
        let parted = landed.failed.into_iter();
        let (mut alone, others): (Vec<_>, Vec<_>) = parted.partition(|(_, code)| is_lonely(*code));
        let producer = self.lonely()?;
        self.flights.begin_alone(flight, alone.len(), others);
        alone.sort_unstable_by_key(|(row, _)| *row);
        let mut wanted = alone.iter().map(|(row, _)| *row).peekable();
        let rows = records(&request.body).enumerate();
        let rows = rows.filter(|(row, _)| wanted.next_if_eq(row).is_some());
        producer.send(&request.destination, rows, flight);
        Ok(None)
    }

    /// Why a request that is on its way has not arrived.
    fn overdue(&self) -> SendError {
        match self.state.trouble() {
            Some(Trouble::Down(reason)) => SendError::Retry(reason),
            Some(Trouble::Refused(reason)) => SendError::Blocked(reason),
            None => {
                let limit = Period(self.timeout);
                SendError::Retry(format!("no acknowledgement within {limit} (`timeout`)"))
            }
        }
    }
}

#[async_trait]
impl Output for Kafka {
    async fn open(&self) -> Result<(), ConfigError> {
        let producer = self.parts.producer(&self.state)?;
        self.producers.lock().usual = Some(Arc::new(producer));
        Ok(())
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        let mut reads = self.format.reads();
        reads.extend(self.topic.reads());
        reads
    }

    fn encode(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        if let Some(topic) = &self.constant_topic {
            if !rows.is_empty() {
                encoded.begin_part(topic.clone());
            }
            return self.format.write(batch, rows, encoded);
        }
        let mut topic = self.topic.bind(batch, ABSENT);
        let render = |row: usize, out: &mut Vec<u8>| topic.write(row, out);
        let check = |name: &[u8]| {
            let name = String::from_utf8_lossy(name);
            match is_topic(&name) {
                true => Ok(name.into()),
                false => Err(not_a_topic(&name).into()),
            }
        };
        let groups = partition(batch, rows, render, check);
        encode_groups(groups, encoded, |_, rows, encoded| {
            self.format.write(batch, rows, encoded);
        });
    }

    fn take_warnings(&self) -> Vec<Warning> {
        self.state.take_warnings()
    }
}

#[async_trait]
impl Sender for Kafka {
    fn requests(&self) -> Requests {
        Requests {
            framing: Framing::default(),
            compression: Compression::None,
            limits: RequestLimits {
                size_max: 2 << 20,
                rows_max: 10_000,
                age_max: Duration::from_millis(200),
                is_filled: false,
            },
            order: RequestOrder::Begun,
        }
    }

    async fn send(&self, request: &Request) -> Result<Sent, SendError> {
        // Before anything is waited for, because this is what decides the order of records.
        let flight = self.begin(request)?;
        let mut until = Instant::now() + self.timeout;
        loop {
            if let Some(sent) = self.landed(request, &flight)? {
                return Ok(sent);
            }
            if self.state.trouble().is_some() {
                until = until.min(Instant::now() + GRACE);
            }
            tokio::select! {
                () = flight.landed() => {}
                () = self.state.changed() => {}
                () = sleep_until(until) => return Err(self.overdue()),
            }
        }
    }
}
