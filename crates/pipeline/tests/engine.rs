//! The engine with components that misbehave.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use batch::{Batch, Bitmap, Failures, FieldPath, JsonWriter, Stream, Value};
use component::{
    AnyOutput, Delivery, Encoded, Input, InputContext, InputError, Order, Output, Processor,
    RowAnswer, WriteError, Writer, Written,
};
use config::Size;
use parking_lot::Mutex;
use pipeline::graph::{InputNode, OutputNode, StageNode};
use pipeline::settings::{
    MemoryQueueSettings, OnFailure, ProcessSettings, QueueSettings, SendingSettings,
};
use pipeline::{Graph, PipelineGraph, Report, Run};

use common::{numbered, options, retry};

/// Sends batches of ten lines, `batches` of them, and keeps what became of them.
struct Lines {
    batches: usize,
    delivered: Arc<Mutex<Vec<Option<Delivery>>>>,
}

#[async_trait]
impl Input for Lines {
    async fn run(self: Box<Self>, ctx: InputContext) -> Result<(), InputError> {
        let stream = Arc::new(Stream::unnamed(1));
        let mut receipts = Vec::new();
        for batch in 0..self.batches {
            let batch = numbered(&ctx.host, &stream, batch);
            match ctx.send(batch).await {
                Ok(receipt) => receipts.push(receipt),
                Err(_) => break,
            }
        }
        let delivered = self.delivered.clone();
        tokio::spawn(async move {
            for receipt in receipts {
                let delivery = receipt.delivered().await.ok();
                delivered.lock().push(delivery);
            }
        });
        Ok(())
    }
}

fn message(batch: &Batch, row: usize) -> usize {
    match batch.column(&FieldPath::from_keys(["message"])).value(row) {
        Value::Text(text) => std::str::from_utf8(text)
            .expect("UTF-8")
            .parse()
            .expect("a number"),
        other => panic!("{other:?}"),
    }
}

/// Panics in every batch that holds this line; drops the lines that end with 7.
#[derive(Clone)]
struct Fragile(usize);

impl Processor for Fragile {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        assert!(
            !rows.iter().any(|row| message(batch, row) == self.0),
            "as asked"
        );
        let sevens = Bitmap::from_fn(batch.len(), |row| message(batch, row) % 10 == 7);
        batch.drop_rows(&sevens, &"seven".into());
        Failures::none()
    }
}

/// How an output misbehaves.
#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Good,
    /// Takes its time for every write.
    Slow,
    /// Fails every third write as a whole, and of the others has the last row refused.
    Moody,
    /// Panics when it encodes this line.
    PanicsAt(usize),
    /// Never takes anything.
    Broken,
    /// Is safe only after a flush.
    Buffered,
}

struct Collect {
    mood: Mood,
    calls: AtomicUsize,
    flushed: AtomicUsize,
    taken: Arc<Mutex<Vec<usize>>>,
}

#[async_trait]
impl Output for Collect {
    fn encode(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        let writer = JsonWriter::new(batch);
        for row in rows.iter() {
            assert!(self.mood != Mood::PanicsAt(message(batch, row)), "as asked");
            encoded
                .bytes
                .extend_from_slice(format!("{row} {}\n", message(batch, row)).as_bytes());
            encoded.rows += 1;
            writer.write(row, &mut Vec::new());
        }
    }
}

#[async_trait]
impl Writer for Collect {
    async fn write(&self, encoded: &Encoded) -> Result<Written, WriteError> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        let mut written = Written::default();
        let text = String::from_utf8(encoded.bytes.clone()).expect("UTF-8");
        let mut rows: Vec<(usize, usize)> = text
            .lines()
            .map(|line| line.split_once(' ').expect("a row"))
            .map(|(a, b)| (a.parse().expect("row"), b.parse().expect("line")))
            .collect();
        match self.mood {
            Mood::Slow => tokio::time::sleep(Duration::from_millis(20)).await,
            Mood::Broken => return Err(WriteError::Retry("away".into())),
            Mood::Moody if call.is_multiple_of(3) => {
                return Err(WriteError::Retry("not now".into()));
            }
            Mood::Moody if rows.len() > 2 => {
                let (row, _) = rows.pop().expect("a last row");
                written.refused.push(RowAnswer {
                    row,
                    reason: "too odd".into(),
                });
            }
            Mood::Buffered => written.until_flush = true,
            _ => {}
        }
        self.taken
            .lock()
            .extend(rows.into_iter().map(|(_, line)| line));
        Ok(written)
    }

    async fn flush(&self) -> Result<(), WriteError> {
        self.flushed.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

struct Ran {
    report: Report,
    taken: BTreeMap<usize, Vec<usize>>,
    delivered: Vec<Option<Delivery>>,
}

impl Ran {
    fn taken(&self, output: usize) -> &[usize] {
        &self.taken[&output]
    }

    fn undelivered(&self) -> u64 {
        self.report.pipelines[0].undelivered
    }
}

fn run(batches: usize, fragile_at: Option<usize>, moods: &[Mood], ordered: bool) -> Ran {
    let delivered = Arc::new(Mutex::new(Vec::new()));
    let sinks: Vec<_> = moods
        .iter()
        .map(|_| Arc::new(Mutex::new(Vec::new())))
        .collect();
    let outputs = moods
        .iter()
        .zip(&sinks)
        .enumerate()
        .map(|(index, (&mood, taken))| OutputNode {
            name: format!("output {index}"),
            component: AnyOutput::Writer(Arc::new(Collect {
                mood,
                calls: AtomicUsize::new(0),
                flushed: AtomicUsize::new(0),
                taken: taken.clone(),
            })),
            ordered,
            sending: SendingSettings::default(),
            condition: None,
            otherwise: Vec::new(),
            stages: Vec::new(),
        });
    let stage = |at| StageNode {
        fingerprint: 0,
        name: "fragile".into(),
        is_named: false,
        kind: "fragile",
        component: Box::new(Fragile(at)) as Box<dyn Processor>,
        order: Order::Stateless,
        sees_sealed: false,
        condition: None,
        on_failure: OnFailure::Publish,
        would_bury: false,
    };
    let pipeline = PipelineGraph {
        name: "main".into(),
        inputs: vec![InputNode {
            name: "lines".into(),
            component: Box::new(Lines {
                batches,
                delivered: delivered.clone(),
            }),
        }],
        fed: None,
        queue: QueueSettings::Memory(MemoryQueueSettings {
            max_bytes: Size(4 << 10),
            ..MemoryQueueSettings::default()
        }),
        stages: fragile_at.map(stage).into_iter().collect(),
        outputs: outputs.collect(),
        retry: retry(),
        fingerprint: 0,
        written: Arc::default(),
        is_watched: false,
        is_part: false,
    };
    let process = ProcessSettings {
        workers: 3,
        ..ProcessSettings::default()
    };
    let options = options();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let report = runtime.block_on(async {
        let report = Run::start(
            Graph {
                process,
                fingerprints: Default::default(),
                pipelines: vec![pipeline],
            },
            options,
        )
        .await
        .expect("a memory queue always starts")
        .finish()
        .await;
        // The input's task that collects the receipts gets its turn.
        tokio::time::sleep(Duration::from_millis(50)).await;
        report
    });
    let taken = sinks
        .iter()
        .map(|sink| sink.lock().clone())
        .enumerate()
        .collect();
    let delivered = delivered.lock().clone();
    Ran {
        report,
        taken,
        delivered,
    }
}

#[test]
fn every_output_gets_every_event_once_and_in_order() {
    let ran = run(100, None, &[Mood::Good, Mood::Slow, Mood::Buffered], true);
    for output in 0..3 {
        assert_eq!(ran.taken(output), (0..1000).collect::<Vec<_>>());
    }
    assert!(ran.report.is_clean());
    assert_eq!(
        ran.delivered.iter().flatten().count(),
        100,
        "every receipt resolved"
    );
}

#[test]
fn receipts_say_what_was_kept_and_dropped() {
    let ran = run(10, Some(usize::MAX), &[Mood::Good], true);
    for (batch, delivery) in ran.delivered.iter().enumerate() {
        let stream = &delivery.as_ref().expect("delivered").streams[0];
        assert_eq!((stream.end, stream.kept), ((batch as u64 + 1) * 10, 9));
        let [dropped] = &stream.dropped[..] else {
            panic!("one reason: {:?}", stream.dropped)
        };
        assert_eq!(
            (&*dropped.reason, dropped.rows, dropped.bytes),
            ("seven", 1, 1)
        );
    }
}

#[test]
fn writes_are_repeated_and_rows_refused() {
    let ran = run(20, None, &[Mood::Moody], true);
    let mut taken = ran.taken(0).to_vec();
    taken.sort_unstable();
    assert_eq!(
        taken,
        (0..200).filter(|line| line % 10 != 9).collect::<Vec<_>>(),
        "all but the refused ones, none twice"
    );
    let counts = &ran.report.pipelines[0].operators[1].counts;
    assert_eq!((counts.named["refused"], counts.events_out), (20, 180));
    assert_eq!(ran.undelivered(), 0);
}

#[test]
fn a_processor_that_panics_fails_its_batch_and_nothing_else() {
    let ran = run(50, Some(123), &[Mood::Good], true);
    let expected: Vec<usize> = (0..500)
        .filter(|line| line % 10 != 7 || (120..130).contains(line))
        .collect();
    assert_eq!(ran.taken(0), expected);
    assert_eq!(ran.report.pipelines[0].operators[1].counts.failures, 10);
}

#[test]
fn a_row_that_an_output_panics_on_is_refused_and_no_other() {
    for ordered in [true, false] {
        let ran = run(50, None, &[Mood::PanicsAt(123), Mood::Good], ordered);
        let mut taken = ran.taken(0).to_vec();
        taken.sort_unstable();
        let expected = (0..500).filter(|line| *line != 123);
        assert_eq!(taken, expected.collect::<Vec<_>>());
        assert_eq!(ran.undelivered(), 0);
        assert!(ran.delivered.iter().all(Option::is_some));
        let pipeline = &ran.report.pipelines[0];
        let refused = pipeline
            .operators
            .iter()
            .filter_map(|operator| operator.counts.named.get("refused"));
        assert_eq!(refused.sum::<u64>(), 1);
        assert!(!ran.report.is_clean(), "there are no dead letters");
    }
}

#[test]
fn an_output_that_gives_up_ends_the_run_and_is_reported() {
    let ran = run(10_000, None, &[Mood::Broken, Mood::Good], true);
    assert!(ran.taken(0).is_empty());
    let good = ran.taken(1);
    assert_eq!(
        good,
        (0..good.len()).collect::<Vec<_>>(),
        "the other one has all that was read"
    );
    assert_eq!(
        ran.undelivered(),
        good.len() as u64,
        "what the first did not take counts as not delivered"
    );
    assert!(ran.report.pipelines[0].problems[0].text.contains("away"));
    assert!(
        ran.delivered.iter().all(Option::is_none),
        "nothing is acknowledged that was not written everywhere"
    );
}
