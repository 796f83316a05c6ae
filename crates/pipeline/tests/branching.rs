//! Processors below an output: what they do is done to that output's events alone.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use batch::{Batch, Bitmap, ColumnBuilder, Edit, Failures, FieldPath, Stream, Value};
use component::{
    AnyOutput, Delivery, Encoded, Input, InputContext, InputError, Order, Output, Processor,
    WriteError, Writer, Written,
};
use config::Size;
use parking_lot::Mutex;
use pipeline::graph::{InputNode, OutputNode, StageNode};
use pipeline::settings::{
    MemoryQueueSettings, OnFailure, ProcessSettings, QueueSettings, SendingSettings,
};
use pipeline::{Graph, PipelineGraph, Report, Run};

use common::{BATCH, numbered, options, retry};

/// Sends batches of ten lines and keeps what became of them; how many it sent.
struct Lines {
    batches: usize,
    sent: Arc<AtomicUsize>,
    delivered: Arc<Mutex<Vec<Delivery>>>,
}

#[async_trait]
impl Input for Lines {
    async fn run(self: Box<Self>, ctx: InputContext) -> Result<(), InputError> {
        let stream = Arc::new(Stream::unnamed(1));
        let mut receipts = Vec::new();
        for batch in 0..self.batches {
            if ctx.stop.is_stopped() {
                break;
            }
            match ctx.send(numbered(&ctx.host, &stream, batch)).await {
                Ok(receipt) => receipts.push(receipt),
                Err(_) => break,
            }
            self.sent.fetch_add(1, Ordering::SeqCst);
        }
        let delivered = self.delivered.clone();
        tokio::spawn(async move {
            for receipt in receipts {
                if let Ok(delivery) = receipt.delivered().await {
                    delivered.lock().push(delivery);
                }
            }
        });
        Ok(())
    }
}

fn message() -> FieldPath {
    FieldPath::from_keys(["message"])
}

fn text(batch: &Batch, row: usize) -> String {
    match batch.column(&message()).value(row) {
        Value::Text(text) => String::from_utf8(text.to_vec()).expect("UTF-8"),
        other => panic!("{other:?}"),
    }
}

/// What a processor of the tests does.
#[derive(Clone, Copy)]
enum Does {
    /// Keeps lines whose number leaves this rest when it is divided by three.
    KeepRest(usize),
    /// Writes this in the place of the message.
    Write(&'static str),
    /// Lets so many lines pass, in sequence, and is finished then.
    Take(usize),
    /// Fails for lines that end with 7.
    Fail,
}

impl Processor for Does {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let mut failures = Failures::none();
        match self {
            Self::KeepRest(rest) => {
                let number = |row: usize| text(batch, row).parse::<usize>().expect("a number");
                let drops = |row| rows.contains(row) && number(row) % 3 != *rest;
                let drops = Bitmap::from_fn(batch.len(), drops);
                batch.drop_rows(&drops, &"keep".into());
            }
            Self::Write(text) => {
                let mut column = ColumnBuilder::new(batch.len());
                for row in rows.iter() {
                    column.set_text(row, text.as_bytes());
                }
                let mut edit = Edit::new();
                edit.set(message(), column.finish());
                assert!(batch.apply(edit).is_empty());
            }
            Self::Take(left) => {
                let passing: Vec<usize> = rows.iter().take(*left).collect();
                *left -= passing.len();
                let drops = |row| rows.contains(row) && !passing.contains(&row);
                let drops = Bitmap::from_fn(batch.len(), drops);
                batch.drop_rows(&drops, &"take".into());
            }
            Self::Fail => {
                for row in rows.iter().filter(|row| text(batch, *row).ends_with('7')) {
                    failures.push(row, &"_odd".into(), &"it ends with 7".into());
                }
            }
        }
        failures
    }

    fn is_finished(&self) -> bool {
        matches!(self, Self::Take(0))
    }
}

impl Does {
    fn stage(self, on_failure: OnFailure) -> StageNode {
        StageNode {
            fingerprint: 0,
            name: "does".into(),
            is_named: false,
            kind: "does",
            order: match self {
                Self::Take(_) => Order::Ordered,
                _ => Order::Stateless,
            },
            component: Box::new(self),
            sees_sealed: false,
            condition: None,
            on_failure,
            would_bury: false,
        }
    }
}

/// Collects messages; waits before each write.
struct Collect {
    pause: Duration,
    taken: Arc<Mutex<Vec<String>>>,
}

#[async_trait]
impl Output for Collect {
    fn encode(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        for row in rows.iter() {
            encoded.bytes.extend_from_slice(text(batch, row).as_bytes());
            encoded.bytes.push(b'\n');
            encoded.rows += 1;
        }
    }
}

#[async_trait]
impl Writer for Collect {
    async fn write(&self, encoded: &Encoded) -> Result<Written, WriteError> {
        tokio::time::sleep(self.pause).await;
        let text = String::from_utf8(encoded.bytes.clone()).expect("UTF-8");
        let mut taken = self.taken.lock();
        taken.extend(text.lines().map(str::to_owned));
        Ok(Written::default())
    }
}

struct Ran {
    report: Report,
    taken: Vec<Vec<String>>,
    sent: usize,
    delivered: Vec<Delivery>,
}

/// Sends so many batches to outputs with these processors, each with a pause for every write.
fn run(batches: usize, outputs: &[(u64, &[Does])], on_failure: OnFailure) -> Ran {
    let (sent, delivered) = (Arc::default(), Arc::default());
    let sinks: Vec<Arc<Mutex<Vec<String>>>> = outputs.iter().map(|_| Arc::default()).collect();
    let nodes = outputs.iter().zip(&sinks).enumerate();
    let nodes = nodes.map(|(index, ((pause, does), taken))| OutputNode {
        name: format!("out{index}"),
        component: AnyOutput::Writer(Arc::new(Collect {
            pause: Duration::from_millis(*pause),
            taken: taken.clone(),
        })),
        ordered: true,
        sending: SendingSettings::default(),
        condition: None,
        otherwise: Vec::new(),
        stages: does.iter().map(|does| does.stage(on_failure)).collect(),
    });
    let pipeline = PipelineGraph {
        name: "main".into(),
        inputs: vec![InputNode {
            name: "lines".into(),
            component: Box::new(Lines {
                batches,
                sent: Arc::clone(&sent),
                delivered: Arc::clone(&delivered),
            }),
        }],
        fed: None,
        queue: QueueSettings::Memory(MemoryQueueSettings {
            max_bytes: Size(8 << 10),
            ..MemoryQueueSettings::default()
        }),
        stages: Vec::new(),
        outputs: nodes.collect(),
        retry: retry(),
        fingerprint: 0,
        written: Arc::default(),
        is_watched: false,
        is_part: false,
    };
    let options = options();
    let process = ProcessSettings {
        workers: 4,
        ..ProcessSettings::default()
    };
    let graph = Graph {
        process,
        fingerprints: Default::default(),
        pipelines: vec![pipeline],
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let report = runtime.block_on(async {
        let run = Run::start(graph, options).await;
        let report = run.expect("a memory queue always starts").finish().await;
        // The task that collects the receipts gets its turn.
        tokio::time::sleep(Duration::from_millis(50)).await;
        report
    });
    let unlock = |sink: &Arc<Mutex<Vec<String>>>| sink.lock().clone();
    Ran {
        report,
        taken: sinks.iter().map(unlock).collect(),
        sent: sent.load(Ordering::SeqCst),
        delivered: delivered.lock().clone(),
    }
}

fn numbers(which: impl Iterator<Item = usize>) -> Vec<String> {
    which.map(|number| number.to_string()).collect()
}

#[test]
fn each_output_gets_what_its_processors_leave_in_order() {
    let ran = run(
        200,
        &[
            (0, &[Does::KeepRest(0)]),
            (2, &[Does::KeepRest(1), Does::Write("changed")]),
            (0, &[]),
        ],
        OnFailure::Publish,
    );
    let all = 200 * BATCH;
    assert_eq!(ran.taken[0], numbers((0..all).step_by(3)));
    let changed = (1..all).step_by(3).count();
    assert_eq!(ran.taken[1], vec!["changed"; changed]);
    assert_eq!(ran.taken[2], numbers(0..all), "nothing is done to it");
    assert!(ran.report.is_clean());
    // What one output does not want counts as taken: others have it.
    assert_eq!(ran.delivered.len(), 200);
    for delivery in &ran.delivered {
        let stream = &delivery.streams[0];
        assert_eq!((stream.kept, stream.dropped.len()), (BATCH as u64, 0));
    }
    let operators = &ran.report.pipelines[0].operators;
    let names: Vec<&str> = operators.iter().map(|it| &*it.name).collect();
    let expected = [
        "lines",
        "out0/does",
        "out0",
        "out1/does",
        "out1/does",
        "out1",
        "out2",
    ];
    assert_eq!(names, expected);
    let counts = |index: usize| {
        let counts = &operators[index].counts;
        (counts.events_in, counts.events_out, counts.dropped)
    };
    let kept = ran.taken[0].len() as u64;
    assert_eq!(counts(1), (all as u64, kept, all as u64 - kept));
    assert_eq!(counts(4), (changed as u64, changed as u64, 0));
}

#[test]
fn what_fails_below_an_output_fails_for_that_output_alone() {
    let ran = run(
        50,
        &[(0, &[Does::Fail, Does::Write("changed")]), (0, &[])],
        OnFailure::Publish,
    );
    let changed = |number: usize| match number % 10 {
        // It is published as it was.
        7 => number.to_string(),
        _ => "changed".to_owned(),
    };
    let all = 50 * BATCH;
    assert_eq!(ran.taken[0], (0..all).map(changed).collect::<Vec<_>>());
    assert_eq!(ran.taken[1], numbers(0..all));
    let dropping = run(50, &[(0, &[Does::Fail]), (0, &[])], OnFailure::Drop);
    let others = (0..all).filter(|number| number % 10 != 7);
    assert_eq!(dropping.taken[0], numbers(others));
    assert_eq!(dropping.taken[1], numbers(0..all));
    assert_eq!(
        dropping.report.pipelines[0].operators[1].counts.failures,
        50
    );
}

#[test]
fn a_processor_below_an_output_that_needs_the_sequence_has_it() {
    let ran = run(
        300,
        &[(1, &[Does::KeepRest(2), Does::Take(25)]), (0, &[])],
        OnFailure::Publish,
    );
    assert_eq!(ran.taken[0], numbers((2..).step_by(3).take(25)));
    assert_eq!(ran.taken[1], numbers(0..300 * BATCH), "others go on");
}

#[test]
fn a_run_ends_when_no_output_wants_more() {
    let ran = run(
        100_000,
        &[(0, &[Does::Take(25)]), (0, &[Does::Take(3)])],
        OnFailure::Publish,
    );
    assert_eq!(ran.taken[0], numbers(0..25));
    assert_eq!(ran.taken[1], numbers(0..3));
    assert!(ran.sent < 100_000, "it goes on");
    assert!(ran.report.is_clean());
}
