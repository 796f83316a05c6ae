//! Runs an input against a sink that collects what it sends.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use batch::{Batch, Budget, FieldPath, HostInfo, Value};
use component::{
    Build, BuildContext, Diagnostics, Input, InputContext, InputError, OperatorMetrics, Progress,
    Receipt, Sink, Stop, Stopped, receipt,
};
use config::{Source, parse_yaml};

/// Takes every batch and keeps what `look` makes of it.
pub struct Collector<T> {
    look: fn(&Batch) -> T,
    seen: Mutex<Vec<T>>,
    /// How long each send takes.
    delay: Duration,
}

#[async_trait]
impl<T: Send> Sink for Collector<T> {
    async fn send(&self, batch: Batch) -> Result<Receipt, Stopped> {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        self.seen
            .lock()
            .expect("no panic while locked")
            .push((self.look)(&batch));
        Ok(receipt().1)
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
        },
    )
}

fn host() -> Arc<HostInfo> {
    Arc::new(HostInfo {
        name: "host".into(),
    })
}

impl Bench {
    /// Runs the input to its end.
    pub fn run<T: Send + 'static>(&self, input: Box<dyn Input>, look: fn(&Batch) -> T) -> Run<T> {
        let sink = Arc::new(Collector {
            look,
            seen: Mutex::default(),
            delay: self.delay,
        });
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
                heard.lock().expect("no panic").push(warning.to_owned());
            }),
            scope: "test/input".into(),
            registry: None,
            ledger: Arc::default(),
        };
        let (metrics, progress) = (ctx.metrics.clone(), ctx.progress.clone());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        let result = runtime.block_on(input.run(ctx));
        let batches = std::mem::take(&mut *sink.seen.lock().expect("no panic"));
        let warnings = warnings.lock().expect("no panic").clone();
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
