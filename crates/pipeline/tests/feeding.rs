//! Pipelines that feed each other: receipts all the way, back pressure, order, and a fed pipeline that fails.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use batch::{Batch, Bitmap, FieldPath, Stream, Value};
use component::{
    AnyOutput, Delivery, Encoded, Feeder, Input, InputContext, InputError, Output, Stop,
    WriteError, Writer, Written,
};
use config::{Period, Size};
use parking_lot::Mutex;
use pipeline::graph::{InputNode, OutputNode};
use pipeline::settings::{MemoryQueueSettings, ProcessSettings, QueueSettings, SendingSettings};
use pipeline::{Graph, PipelineGraph, Report, Run, RunOptions};

use common::{BATCH, numbered, options, retry};

/// Sends batches of ten lines; counts what it sent and what was delivered.
#[derive(Clone, Default)]
struct Lines {
    batches: usize,
    first: usize,
    sent: Arc<AtomicUsize>,
    delivered: Arc<Mutex<Vec<Option<Delivery>>>>,
}

#[async_trait]
impl Input for Lines {
    async fn run(self: Box<Self>, ctx: InputContext) -> Result<(), InputError> {
        let stream = Arc::new(Stream::unnamed(1));
        let mut receipts = Vec::new();
        for batch in self.first..self.first + self.batches {
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
                let delivery = receipt.delivered().await.ok();
                delivered.lock().push(delivery);
            }
        });
        Ok(())
    }
}

impl Lines {
    fn of(first: usize, batches: usize) -> Self {
        Self {
            batches,
            first,
            ..Self::default()
        }
    }

    fn delivered(&self) -> usize {
        let delivered = self.delivered.lock();
        delivered.iter().flatten().count()
    }
}

/// Collects numbers; fails for good, or waits, while it is told to.
#[derive(Default)]
struct Collect {
    waits: AtomicBool,
    fails_at: Option<usize>,
    taken: Mutex<Vec<(usize, String)>>,
}

#[async_trait]
impl Output for Collect {
    fn encode(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        let message = batch.column(&FieldPath::from_keys(["message"]));
        for row in rows.iter() {
            let Value::Text(text) = message.value(row) else {
                panic!("a text")
            };
            encoded.bytes.extend_from_slice(text);
            encoded.bytes.push(b' ');
            batch.origin().write_id(row, &mut encoded.bytes);
            encoded.bytes.push(b'\n');
            encoded.rows += 1;
        }
    }
}

#[async_trait]
impl Writer for Collect {
    async fn write(&self, encoded: &Encoded) -> Result<Written, WriteError> {
        while self.waits.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let text = String::from_utf8(encoded.bytes.clone()).expect("UTF-8");
        let mut taken = self.taken.lock();
        for line in text.lines() {
            let (number, id) = line.split_once(' ').expect("number and id");
            let number = number.parse().expect("a number");
            if Some(number) == self.fails_at {
                return Err(WriteError::Fatal("it is broken".into()));
            }
            taken.push((number, id.to_owned()));
        }
        Ok(Written::default())
    }
}

impl Collect {
    fn numbers(&self) -> Vec<usize> {
        let taken = self.taken.lock();
        taken.iter().map(|(number, _)| *number).collect()
    }
}

fn output(name: &str, component: AnyOutput) -> OutputNode {
    OutputNode {
        name: name.into(),
        component,
        ordered: true,
        sending: SendingSettings::default(),
        condition: None,
        otherwise: Vec::new(),
        stages: Vec::new(),
    }
}

fn feeds(name: &str) -> OutputNode {
    output(name, AnyOutput::Feeder(Arc::new(Feeder::new(name))))
}

fn writes(collect: &Arc<Collect>) -> OutputNode {
    output("collect", AnyOutput::Writer(collect.clone()))
}

fn pipeline(name: &str, inputs: &[&Lines], outputs: Vec<OutputNode>) -> PipelineGraph {
    let node = |(index, lines): (usize, &&Lines)| InputNode {
        name: format!("lines{index}"),
        component: Box::new((*lines).clone()),
    };
    PipelineGraph {
        name: name.into(),
        inputs: inputs.iter().enumerate().map(node).collect(),
        fed: inputs.is_empty().then(|| "pipeline".into()),
        queue: QueueSettings::Memory(MemoryQueueSettings {
            max_bytes: Size(4 << 10),
            ..MemoryQueueSettings::default()
        }),
        stages: Vec::new(),
        outputs,
        retry: retry(),
        fingerprint: 0,
        written: Arc::default(),
        is_watched: false,
        is_part: false,
    }
}

/// Runs pipelines to their end; `meanwhile` on another thread.
fn run(pipelines: Vec<PipelineGraph>, finite: bool, meanwhile: impl FnOnce(&Stop)) -> Report {
    let stop = Stop::default();
    let options = RunOptions {
        finite,
        stop: stop.clone(),
        ..options()
    };
    let process = ProcessSettings {
        workers: 3,
        shutdown_deadline: Period::from_secs(2),
        ..ProcessSettings::default()
    };
    let graph = Graph {
        process,
        fingerprints: Default::default(),
        pipelines,
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let running = runtime.spawn(async {
        let run = Run::start(graph, options).await;
        let report = run.expect("memory queues always start").finish().await;
        // The tasks that collect receipts get their turn.
        tokio::time::sleep(Duration::from_millis(50)).await;
        report
    });
    meanwhile(&stop);
    runtime.block_on(running).expect("no panic")
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "waited for {what}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn events_go_all_the_way_in_order_with_their_ids() {
    let (lines, end, beside) = (Lines::of(0, 200), Arc::default(), Arc::default());
    let pipelines = vec![
        pipeline("one", &[&lines], vec![feeds("two"), writes(&beside)]),
        pipeline("two", &[], vec![feeds("three")]),
        pipeline("three", &[], vec![writes(&end)]),
    ];
    let report = run(pipelines, true, |_| {});
    assert!(report.is_clean());
    assert_eq!(end.numbers(), (0..200 * BATCH).collect::<Vec<_>>());
    let of = |collect: &Collect| collect.taken.lock().clone();
    assert_eq!(of(&end), of(&beside), "an id is the same everywhere");
    assert_eq!(lines.delivered(), 200);
    assert_eq!(report.events(), 200 * BATCH as u64, "each is counted once");
    let fed = &report.pipelines[2].operators[0];
    assert_eq!((&*fed.name, fed.counts.events_out), ("pipeline", 2000));
}

#[test]
fn several_pipelines_feed_one() {
    let (lower, upper, end) = (Lines::of(0, 100), Lines::of(100, 100), Arc::default());
    let pipelines = vec![
        pipeline("end", &[], vec![writes(&end)]),
        pipeline("one", &[&lower], vec![feeds("end")]),
        pipeline("two", &[&upper], vec![feeds("end")]),
    ];
    assert!(run(pipelines, true, |_| {}).is_clean());
    let mut numbers = end.numbers();
    let is_in_order = |part: Vec<usize>| part.is_sorted();
    let below = |number: &&usize| **number < 1000;
    assert!(is_in_order(numbers.iter().filter(below).copied().collect()));
    numbers.sort_unstable();
    assert_eq!(numbers, (0..200 * BATCH).collect::<Vec<_>>());
}

#[test]
fn a_receipt_waits_for_the_fed_pipeline_and_a_full_queue_for_room() {
    let (lines, end) = (Lines::of(0, 500), Arc::new(Collect::default()));
    end.waits.store(true, Ordering::SeqCst);
    let pipelines = vec![
        pipeline("one", &[&lines], vec![feeds("two")]),
        pipeline("two", &[], vec![writes(&end)]),
    ];
    let report = run(pipelines, true, |_| {
        until("events", || lines.sent.load(Ordering::SeqCst) > 10);
        std::thread::sleep(Duration::from_millis(300));
        let sent = lines.sent.load(Ordering::SeqCst);
        // Two queues of 4 KiB, what waits for each lane, and what is in hand.
        assert!(sent < 60, "{sent} batches were let in");
        assert_eq!(lines.delivered(), 0);
        end.waits.store(false, Ordering::SeqCst);
    });
    assert!(report.is_clean());
    assert_eq!(end.numbers(), (0..500 * BATCH).collect::<Vec<_>>());
    assert_eq!(lines.delivered(), 500);
}

#[test]
fn a_stop_delivers_what_was_taken() {
    let (lines, end) = (Lines::of(0, 1_000_000), Arc::default());
    let pipelines = vec![
        pipeline("two", &[], vec![writes(&end)]),
        pipeline("one", &[&lines], vec![feeds("two")]),
    ];
    let report = run(pipelines, false, |stop| {
        until("events", || lines.sent.load(Ordering::SeqCst) > 100);
        stop.stop();
    });
    assert!(report.is_clean(), "{report:?}");
    let sent = lines.sent.load(Ordering::SeqCst);
    assert_eq!(lines.delivered(), sent);
    assert_eq!(end.numbers(), (0..sent * BATCH).collect::<Vec<_>>());
}

#[test]
fn a_stop_ends_at_the_deadline_where_the_fed_pipeline_is_stuck() {
    let (lines, end) = (Lines::of(0, 1_000_000), Arc::new(Collect::default()));
    end.waits.store(true, Ordering::SeqCst);
    let pipelines = vec![
        pipeline("one", &[&lines], vec![feeds("two")]),
        pipeline("two", &[], vec![writes(&end)]),
    ];
    let begin = Instant::now();
    let report = run(pipelines, false, |stop| {
        until("events", || lines.sent.load(Ordering::SeqCst) > 5);
        stop.stop();
    });
    assert!(begin.elapsed() < Duration::from_secs(8));
    assert_eq!(lines.delivered(), 0);
    assert!(report.pipelines.iter().all(|one| one.undelivered > 0));
    end.waits.store(false, Ordering::SeqCst);
}

#[test]
fn a_fed_pipeline_that_fails_fails_who_feeds_it() {
    for finite in [true, false] {
        let (lines, beside) = (Lines::of(0, 300), Arc::default());
        let end = Arc::new(Collect {
            fails_at: Some(505),
            ..Collect::default()
        });
        let pipelines = vec![
            pipeline("one", &[&lines], vec![feeds("two"), writes(&beside)]),
            pipeline("two", &[], vec![writes(&end)]),
        ];
        let report = run(pipelines, finite, |_| {});
        assert!(!report.is_clean());
        let problems: BTreeMap<&str, Vec<String>> = report
            .pipelines
            .iter()
            .map(|one| {
                let problems = one.problems.iter().map(ToString::to_string);
                (one.name.as_str(), problems.collect())
            })
            .collect();
        assert!(problems["one"][0].contains("pipeline `two` takes no more events"));
        assert!(problems["two"][0].contains("it is broken"));
        // What was not delivered has no receipt: at most what was written before the failure has one.
        assert!(lines.delivered() <= 50, "{}", lines.delivered());
        assert!(end.numbers().iter().all(|number| *number < 505));
        if !finite {
            let all = (0..300 * BATCH).collect::<Vec<_>>();
            assert_eq!(beside.numbers(), all, "the other output goes on");
        }
    }
}
