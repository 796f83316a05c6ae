//! Outputs that fail for good, in a service: by an error, or by a panic in any of their functions.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use batch::{Batch, Bitmap, FieldPath, Stream, Value};
use component::{
    AnyOutput, Diagnostics, Encoded, Input, InputContext, InputError, Output, Receipt, WriteError,
    Writer, Written,
};
use config::Size;
use parking_lot::Mutex;
use pipeline::graph::{InputNode, OutputNode};
use pipeline::report::{Problem, Role};
use pipeline::settings::{
    DiskSettings, MemoryQueueSettings, ProcessSettings, QueueSettings, RetrySettings,
    SendingSettings,
};
use pipeline::{Graph, PipelineGraph, Report, Run, RunOptions};

use common::{BATCH, numbered, options, retry};

/// Sends this many batches of lines, and then ends, or waits for the stop.
struct Lines {
    batches: usize,
    waits: bool,
    receipts: Arc<Mutex<Vec<Receipt>>>,
}

#[async_trait]
impl Input for Lines {
    async fn run(self: Box<Self>, ctx: InputContext) -> Result<(), InputError> {
        let stream = Arc::new(Stream::unnamed(1));
        for batch in 0..self.batches {
            let batch = numbered(&ctx.host, &stream, batch);
            match ctx.send(batch).await {
                Ok(receipt) => self.receipts.lock().push(receipt),
                Err(_) => return Ok(()),
            }
        }
        if self.waits {
            ctx.stop.stopped().await;
        }
        Ok(())
    }
}

/// How an output fails at its third call, and ever after.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    None,
    Fatal,
    PanicsInWrite,
    PanicsInFlush,
    PanicsInClose,
    PanicsInCounters,
    /// A person has to mend something, and never does.
    Blocked,
}

const AT_CALL: usize = 3;

#[derive(Default)]
struct Calls {
    writes: AtomicUsize,
    flushes: AtomicUsize,
    closes: AtomicUsize,
}

struct Collect {
    fault: Fault,
    calls: Calls,
    taken: Arc<Mutex<Vec<usize>>>,
}

impl Collect {
    fn panics_if(&self, fault: Fault, calls: usize) {
        assert!(self.fault != fault || calls < AT_CALL, "as asked");
    }
}

#[async_trait]
impl Output for Collect {
    fn encode(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        let column = batch.column(&FieldPath::from_keys(["message"]));
        for row in rows.iter() {
            let Value::Text(text) = column.value(row) else {
                panic!("a line of text")
            };
            encoded.bytes.extend_from_slice(text);
            encoded.bytes.push(b'\n');
            encoded.rows += 1;
        }
    }

    fn take_counters(&self) -> Vec<(&'static str, u64)> {
        self.panics_if(
            Fault::PanicsInCounters,
            self.calls.writes.load(Ordering::SeqCst),
        );
        Vec::new()
    }
}

#[async_trait]
impl Writer for Collect {
    async fn write(&self, encoded: &Encoded) -> Result<Written, WriteError> {
        let call = self.calls.writes.fetch_add(1, Ordering::SeqCst) + 1;
        self.panics_if(Fault::PanicsInWrite, call);
        match self.fault {
            Fault::Fatal if call >= AT_CALL => {
                return Err(WriteError::Fatal("broken for good".into()));
            }
            Fault::Blocked if call >= AT_CALL => {
                return Err(WriteError::Blocked("no folder".into()));
            }
            _ => {}
        }
        let text = str::from_utf8(&encoded.bytes).expect("text");
        let lines = text
            .lines()
            .map(|line| line.parse::<usize>().expect("a number"));
        self.taken.lock().extend(lines);
        Ok(Written {
            until_flush: self.fault == Fault::PanicsInFlush,
            ..Written::default()
        })
    }

    async fn flush(&self) -> Result<(), WriteError> {
        let call = self.calls.flushes.fetch_add(1, Ordering::SeqCst) + 1;
        self.panics_if(Fault::PanicsInFlush, call);
        Ok(())
    }

    async fn close(&self) -> Result<(), WriteError> {
        self.calls.closes.fetch_add(1, Ordering::SeqCst);
        self.panics_if(Fault::PanicsInClose, AT_CALL);
        Ok(())
    }
}

/// A pipeline from `Lines` to outputs with these faults.
struct Pipeline {
    batches: usize,
    waits: bool,
    folder: Option<std::path::PathBuf>,
    outputs: Vec<Arc<Collect>>,
    receipts: Arc<Mutex<Vec<Receipt>>>,
}

impl Pipeline {
    fn new(batches: usize, faults: &[Fault]) -> Self {
        let output = |&fault: &Fault| {
            Arc::new(Collect {
                fault,
                calls: Calls::default(),
                taken: Arc::default(),
            })
        };
        Self {
            batches,
            waits: false,
            folder: None,
            outputs: faults.iter().map(output).collect(),
            receipts: Arc::default(),
        }
    }

    fn on_disk(self, folder: &tempfile::TempDir) -> Self {
        let folder = Some(folder.path().join("queue"));
        Self { folder, ..self }
    }

    fn graph(&self, name: &str) -> PipelineGraph {
        let size = Size(4 << 10);
        let queue = match &self.folder {
            Some(folder) => QueueSettings::Disk(DiskSettings {
                path: Some(folder.clone()),
                cache_bytes: size,
                min_free_bytes: Size(0),
                ..DiskSettings::default()
            }),
            None => QueueSettings::Memory(MemoryQueueSettings {
                max_bytes: size,
                ..MemoryQueueSettings::default()
            }),
        };
        let outputs = self.outputs.iter().enumerate();
        let outputs = outputs.map(|(index, output)| OutputNode {
            name: format!("out{index}"),
            component: AnyOutput::Writer(output.clone()),
            sending: SendingSettings::default(),
            ordered: true,
            condition: None,
            otherwise: Vec::new(),
            stages: Vec::new(),
        });
        PipelineGraph {
            fed: None,
            name: name.into(),
            inputs: vec![InputNode {
                name: "lines".into(),
                component: Box::new(Lines {
                    batches: self.batches,
                    waits: self.waits,
                    receipts: self.receipts.clone(),
                }),
            }],
            queue,
            stages: Vec::new(),
            outputs: outputs.collect(),
            retry: RetrySettings {
                give_up_after: None,
                ..retry()
            },
            fingerprint: 0,
            written: Arc::default(),
            is_watched: false,
            is_part: false,
        }
    }

    fn taken(&self, output: usize) -> Vec<usize> {
        self.outputs[output].taken.lock().clone()
    }
}

fn lines(range: std::ops::Range<usize>) -> Vec<usize> {
    range.collect()
}

/// Runs pipelines to their end; what was reported and said.
fn run(pipelines: &[&Pipeline], finite: bool) -> (Report, Vec<String>) {
    let said = Arc::new(Mutex::new(Vec::new()));
    let warnings = said.clone();
    let options = RunOptions {
        finite,
        diagnostics: Diagnostics::new(move |text| {
            warnings.lock().push(text.to_owned());
        }),
        ..options()
    };
    let graph = Graph {
        process: ProcessSettings {
            workers: 2,
            ..ProcessSettings::default()
        },
        fingerprints: Default::default(),
        pipelines: pipelines
            .iter()
            .enumerate()
            .map(|(index, pipeline)| pipeline.graph(&format!("p{index}")))
            .collect(),
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let report = runtime.block_on(async {
        let run = Run::start(graph, options).await.expect("it starts");
        let ended = tokio::time::timeout(Duration::from_secs(60), run.finish());
        ended.await.expect("it ends by itself")
    });
    let said = said.lock().clone();
    (report, said)
}

fn naming<'a>(said: &'a [String], output: &str) -> Vec<&'a String> {
    let name = format!("output {output}: ");
    said.iter().filter(|text| text.contains(&name)).collect()
}

const FOR_GOOD: [Fault; 4] = [
    Fault::Fatal,
    Fault::PanicsInWrite,
    Fault::PanicsInFlush,
    Fault::PanicsInCounters,
];

#[test]
fn with_a_memory_queue_the_others_go_on_and_the_rest_counts_as_not_delivered() {
    for fault in FOR_GOOD {
        let pipeline = Pipeline::new(1000, &[fault, Fault::None]);
        let (report, said) = run(&[&pipeline], false);
        let report = &report.pipelines[0];
        assert_eq!(pipeline.taken(1), lines(0..10_000), "{fault:?}");
        let taken = pipeline.taken(0);
        assert!(taken.len() < 5000, "{fault:?}: {}", taken.len());
        assert_eq!(taken, lines(0..taken.len()), "{fault:?}");
        let [said] = naming(&said, "out0")[..] else {
            panic!("{fault:?}: {said:?}")
        };
        assert!(said.contains("count as undelivered"), "{said}");
        let problems = &report.problems;
        assert!(
            problems.len() == 1 && problems[0].to_string().starts_with("output out0: "),
            "{problems:?}"
        );
        let mut receipts = pipeline.receipts.lock();
        let outcomes = receipts.iter_mut().map(Receipt::try_delivered);
        let delivered = outcomes.filter(|outcome| matches!(outcome, Some(Ok(_))));
        let delivered = delivered.count();
        assert_eq!(report.undelivered as usize, (1000 - delivered) * BATCH);
        // What was not flushed does not count, although the output has it.
        let safe = match fault {
            Fault::PanicsInFlush => delivered * BATCH <= taken.len(),
            // The third write was taken; what it counted could not be asked for.
            _ => delivered * BATCH == taken.len(),
        };
        assert!(
            safe,
            "{fault:?}: {delivered} batches, {} lines",
            taken.len()
        );
        let closes = &pipeline.outputs[0].calls.closes;
        assert_eq!(closes.load(Ordering::SeqCst), 0, "it is not called again");
    }
}

#[test]
fn with_a_disk_queue_its_events_stay_for_the_next_run() {
    for fault in FOR_GOOD {
        let folder = tempfile::tempdir().expect("a folder");
        let pipeline = Pipeline::new(3000, &[fault, Fault::None]).on_disk(&folder);
        let (report, said) = run(&[&pipeline], false);
        let report = &report.pipelines[0];
        assert_eq!(pipeline.taken(1), lines(0..30_000), "{fault:?}");
        assert_eq!(naming(&said, "out0").len(), 1, "{fault:?}: {said:?}");
        assert!(naming(&said, "out0")[0].contains("remain in the disk queue"));
        assert_eq!((report.problems.len(), report.undelivered), (1, 0));
        let safe = 30_000 - report.queued as usize;
        let taken = pipeline.taken(0);
        let lost_flush = fault == Fault::PanicsInFlush;
        assert!(safe == taken.len() || (lost_flush && safe < taken.len()));

        let mended = Pipeline::new(0, &[Fault::None, Fault::None]).on_disk(&folder);
        let (report, said) = run(&[&mended], false);
        assert!(report.is_clean() && said.is_empty(), "{said:?}");
        assert_eq!(mended.taken(0), lines(safe..30_000), "{fault:?}");
        assert!(mended.taken(1).is_empty(), "{fault:?}");
    }
}

#[test]
fn a_panic_at_the_end_is_said_as_well() {
    for finite in [true, false] {
        let pipeline = Pipeline::new(10, &[Fault::PanicsInClose, Fault::None]);
        let (report, _) = run(&[&pipeline], finite);
        let problems = &report.pipelines[0].problems;
        assert!(problems[0].text.contains("panicked in `close`: as asked"));
        assert_eq!(pipeline.taken(1), lines(0..100));
    }
}

#[test]
fn a_service_without_an_output_that_takes_events_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    for on_disk in [false, true] {
        let mut pipeline = Pipeline::new(100, &[Fault::Fatal, Fault::PanicsInWrite]);
        pipeline.waits = true;
        if on_disk {
            pipeline = pipeline.on_disk(&folder);
        }
        let (report, said) = run(&[&pipeline], false);
        assert_eq!(report.pipelines[0].problems.len(), 2);
        let stops = |text: &&String| text.contains("no output accepts events any more");
        assert_eq!(said.iter().filter(stops).count(), 1, "{said:?}");
        let lost = report.pipelines[0].undelivered;
        assert_eq!(lost == 0, on_disk, "{lost}");
    }
}

#[test]
fn a_pipeline_whose_outputs_have_failed_holds_up_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut dead = Pipeline::new(2000, &[Fault::Fatal]).on_disk(&folder);
    dead.waits = true;
    let good = Pipeline::new(2000, &[Fault::None]);
    // It ends when the other one has: until then its queue takes what comes in.
    let (report, _) = run(&[&dead, &good], false);
    assert_eq!(good.taken(0), lines(0..20_000));
    let [dead_report, good_report] = &report.pipelines[..] else {
        panic!("two pipelines")
    };
    assert_eq!(
        (good_report.problems.len(), good_report.undelivered),
        (0, 0)
    );
    assert_eq!(
        (dead_report.problems.len(), dead_report.undelivered),
        (1, 0)
    );
    let taken = dead.taken(0).len();
    assert_eq!(taken, (AT_CALL - 1) * BATCH);
    assert!(dead_report.queued > 0);
}

#[test]
fn what_a_person_can_mend_ends_a_finite_run_at_once() {
    let pipeline = Pipeline::new(1000, &[Fault::Blocked, Fault::None]);
    let begin = std::time::Instant::now();
    let (report, said) = run(&[&pipeline], true);
    assert!(begin.elapsed() < Duration::from_secs(20), "it did not try");
    assert_eq!(
        report.pipelines[0].problems,
        [Problem::new(Role::Output, "out0", "no folder".into())]
    );
    assert!(said.is_empty(), "the report says it: {said:?}");
    assert!(report.pipelines[0].undelivered > 0);
}
