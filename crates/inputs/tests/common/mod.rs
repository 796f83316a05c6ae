//! Runs an input against a sink that collects what it sends.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use batch::{Batch, Budget, FieldPath, HostInfo, Stream, Value};
use component::{
    Build, BuildContext, Delivery, Diagnostics, Effects, Input, InputContext, InputError,
    OperatorMetrics, Progress, Receipt, Sink, Stop, Stopped, StreamDelivery, receipt,
};
use config::{Source, parse_yaml};
use parking_lot::Mutex;

/// When the batches that a [`Collector`] takes are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code)]
pub enum Receipts {
    /// At once.
    AtOnce,
    /// When [`Collector::release`] is called; not at all if it is not.
    Later,
    /// Never: what holds the receipt is told so at once.
    Never,
    /// At once until so many events were taken, from then on not until [`Collector::release`].
    AtOnceUpTo(usize),
}

/// A batch that a [`Collector`] took.
#[derive(Debug, Clone)]
#[allow(dead_code)]
pub struct Taken<T> {
    /// What was made of it.
    pub look: T,
    pub is_delivered: bool,
}

/// Takes every batch and keeps what `look` makes of it.
pub struct Collector<T> {
    look: fn(&Batch) -> T,
    inner: Mutex<Inner<T>>,
}

struct Inner<T> {
    /// How long each send takes.
    delay: Duration,
    taken: Vec<Taken<T>>,
    receipts: Receipts,
    events: usize,
    /// Which batches wait for being released, with what delivers them; dropped, it says that they were not delivered.
    held: Vec<(usize, Box<dyn FnOnce() + Send>)>,
}

#[allow(dead_code)]
impl<T> Collector<T> {
    pub fn new(look: fn(&Batch) -> T, receipts: Receipts, delay: Duration) -> Self {
        let inner = Inner {
            taken: Vec::new(),
            receipts,
            events: 0,
            held: Vec::new(),
            delay,
        };
        Self {
            look,
            inner: Mutex::new(inner),
        }
    }

    /// Says how long each send takes from now on.
    pub fn slow_down(&self, delay: Duration) {
        self.inner.lock().delay = delay;
    }

    /// Delivers what is held, and does so with what comes, as `receipts` says.
    pub fn release(&self, receipts: Receipts) {
        let mut inner = self.inner.lock();
        inner.receipts = receipts;
        for (index, deliver) in std::mem::take(&mut inner.held) {
            inner.taken[index].is_delivered = true;
            deliver();
        }
    }

    /// Ends: what is held is not delivered.
    pub fn give_up(&self) {
        let mut inner = self.inner.lock();
        inner.held.clear();
        if inner.receipts != Receipts::AtOnce {
            inner.receipts = Receipts::Never;
        }
    }

    /// Looks at the batches so far.
    pub fn with<R>(&self, see: impl FnOnce(&[Taken<T>]) -> R) -> R {
        see(&self.inner.lock().taken)
    }
}

#[async_trait]
impl<T: Send> Sink for Collector<T> {
    async fn send(&self, batch: Batch) -> Result<Receipt, Stopped> {
        let delay = self.inner.lock().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let (issuer, receipt) = receipt();
        let look = (self.look)(&batch);
        let mut inner = self.inner.lock();
        inner.events += batch.len();
        let is_delivered = match inner.receipts {
            Receipts::AtOnce => true,
            Receipts::AtOnceUpTo(events) => inner.events <= events,
            Receipts::Later | Receipts::Never => false,
        };
        let index = inner.taken.len();
        inner.taken.push(Taken { look, is_delivered });
        if is_delivered {
            issuer.resolve(delivery(&batch));
        } else if inner.receipts != Receipts::Never {
            let delivery = delivery(&batch);
            let deliver = Box::new(move || issuer.resolve(delivery));
            inner.held.push((index, deliver));
        }
        Ok(receipt)
    }
}

/// Every row was taken by every output.
fn delivery(batch: &Batch) -> Delivery {
    let stream = |(rows, stream): (std::ops::Range<usize>, &Arc<Stream>)| StreamDelivery {
        dead: 0,
        stream: stream.clone(),
        end: batch.origin().end(rows.end - 1),
        kept: rows.len() as u64,
        dropped: Vec::new(),
        cut: None,
    };
    Delivery {
        streams: batch.origin().streams().map(stream).collect(),
    }
}

/// What a run gave.
#[allow(dead_code)]
pub struct Run<T> {
    /// What was made of each batch.
    pub batches: Vec<T>,
    pub result: Result<(), InputError>,
    pub metrics: Arc<OperatorMetrics>,
    pub progress: Arc<Progress>,
    pub warnings: Vec<String>,
}

/// How an input is run.
pub struct Bench {
    pub buffer_size: usize,
    pub budget: usize,
    pub delay: Duration,
    pub stop: Stop,
}

impl Default for Bench {
    fn default() -> Self {
        Self {
            buffer_size: 256 << 10,
            budget: 64 << 20,
            delay: Duration::ZERO,
            stop: Stop::default(),
        }
    }
}

/// The input `name` with settings in YAML.
pub fn build(name: &str, settings: &str) -> Result<Box<dyn Input>, config::ConfigError> {
    let source = Source::new("test.yaml", settings);
    let node = parse_yaml(&source).expect("valid YAML");
    let spec = inputs::SPECS
        .iter()
        .find(|spec| spec.name == name)
        .expect("the input exists");
    let Build::Input(build) = spec.build else {
        panic!("{name} is an input")
    };
    build(
        &node,
        &BuildContext {
            host: host(),
            tag: None,
            finite: true,
            effects: Effects::All,
        },
    )
}

/// Facts of no machine.
pub fn host() -> Arc<HostInfo> {
    Arc::new(HostInfo {
        name: "host".into(),
    })
}

impl Bench {
    /// Runs the input to its end.
    #[allow(dead_code)]
    pub fn run<T: Send + 'static>(&self, input: Box<dyn Input>, look: fn(&Batch) -> T) -> Run<T> {
        let sink = Arc::new(Collector::new(look, Receipts::AtOnce, self.delay));
        let warnings = Arc::new(Mutex::new(Vec::new()));
        let heard = warnings.clone();
        let ctx = InputContext {
            sink: sink.clone(),
            pool: Budget::new(self.budget).pool(self.budget, self.buffer_size),
            host: host(),
            stop: self.stop.clone(),
            metrics: Arc::default(),
            progress: Arc::default(),
            diagnostics: Diagnostics::new(move |warning| {
                heard.lock().push(warning.to_owned());
            }),
            scope: "test/input".into(),
            registry: None,
            data_dir: None,
            ledger: Arc::default(),
            written: Arc::default(),
            own: Default::default(),
        };
        let (metrics, progress) = (ctx.metrics.clone(), ctx.progress.clone());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        let result = runtime.block_on(input.run(ctx));
        let taken = std::mem::take(&mut sink.inner.lock().taken);
        let batches = taken.into_iter().map(|taken| taken.look).collect();
        let warnings = warnings.lock().clone();
        Run {
            batches,
            result,
            metrics,
            progress,
            warnings,
        }
    }
}

/// One event, as far as inputs make it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(dead_code)]
pub struct Seen {
    pub message: Option<Vec<u8>>,
    /// The event as JSON, where it has no message.
    pub json: String,
    pub start: u64,
    pub end: u64,
    pub tags: String,
    pub error: String,
    pub id: u128,
}

/// The events of a batch.
#[allow(dead_code)]
pub fn events(batch: &Batch) -> Vec<Seen> {
    let column = |name: &str| batch.column(&FieldPath::parse(name).expect("a path"));
    let (messages, tags, errors) = (column("message"), column("tags"), column("error.message"));
    let writer = batch::JsonWriter::new(batch);
    (0..batch.len())
        .map(|row| {
            let text = |value: Value<'_>| {
                let mut text = Vec::new();
                if !matches!(value, Value::Missing) {
                    value.write_text(&mut text);
                }
                String::from_utf8(text).expect("text is UTF-8")
            };
            let mut json = Vec::new();
            writer.write(row, &mut json);
            Seen {
                message: match messages.value(row) {
                    Value::Text(text) => Some(text.to_vec()),
                    _ => None,
                },
                json: String::from_utf8(json).expect("JSON is UTF-8"),
                start: batch.origin().start(row),
                end: batch.origin().end(row),
                tags: text(tags.value(row)),
                error: text(errors.value(row)),
                id: batch.origin().stream(row).id,
            }
        })
        .collect()
}
