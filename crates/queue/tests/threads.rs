//! The queue with real threads on a real folder: senders, workers and outputs of different pace, over stops and starts.
//!
//! Every output gets every batch once, in sequence, whatever the others do. What a simulation cannot show is shown here:
//! that nobody waits for ever, and that nothing depends on who is faster.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use batch::{Batch, BatchBuilder, Encoding, HostInfo, JsonWriter, Span, Stream};
use component::{Receipt, Sink};
use config::{Period, Size};
use parking_lot::{Condvar, Mutex};
use queue::log::Compression;
use queue::{
    DiskOptions, DiskSettings, Durability, Inlet, Mode, NewOutput, Queue, QueuePhase, Taken,
    Ticket, WhenFull,
};

/// A batch of a few events that says which one it is.
fn batch(number: u64) -> Batch {
    let host = Arc::new(HostInfo { name: "h".into() });
    let mut builder = BatchBuilder::new(Encoding::Text, &host, 0, false);
    let text = format!(
        "batch {number:08} {}",
        "x".repeat(number as usize * 37 % 900)
    );
    let len = text.len() as u32;
    let buffer = builder.buffer(text.into_bytes().into());
    builder.stream(&Arc::new(Stream::unnamed(1)));
    for row in 0..1 + number % 5 {
        let start = 0;
        builder.push(Span { buffer, start, len }, row, row + 1);
    }
    builder.finish()
}

fn number(batch: &Batch) -> u64 {
    let mut text = Vec::new();
    JsonWriter::new(batch).write(0, &mut text);
    let text = String::from_utf8(text).expect("JSON is text");
    let at = text.find("batch ").expect("it says which one it is") + 6;
    text[at..at + 8].parse().expect("a number")
}

fn settings() -> DiskSettings {
    DiskSettings {
        max_bytes: Size(64 << 20),
        max_events: None,
        max_age: None,
        when_full: WhenFull::Block,
        durability: Durability::Fsync,
        sync_interval: Period::from_millis(20),
        group_bytes: Size(64 << 10),
        group_time: Period::from_millis(1),
        compression: Compression::None,
        segment_bytes: Size(64 << 10),
        cache_bytes: Size(8 << 10),
        min_free_bytes: Size(0),
        new_output: NewOutput::Oldest,
        orphan_retention: Period::default(),
        ..DiskSettings::default()
    }
}

/// One output: a thread that passes what it is given, in turn.
struct Output {
    state: Mutex<Given>,
    changed: Condvar,
    passed: Mutex<Vec<u64>>,
    pause: Duration,
}

#[derive(Default)]
struct Given {
    items: BTreeMap<u64, (u64, Arc<Ticket>)>,
    next: u64,
    is_closed: bool,
}

impl Output {
    fn new(pause: Duration) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            passed: Mutex::default(),
            pause,
        })
    }

    fn has_room(&self) -> bool {
        self.state.lock().items.len() < 4
    }

    fn run(&self, lane: usize, queue: &Queue) {
        loop {
            let mut state = self.state.lock();
            let next = state.next;
            let Some((number, ticket)) = state.items.remove(&next) else {
                if state.is_closed && state.items.is_empty() {
                    return;
                }
                self.changed.wait(&mut state);
                continue;
            };
            state.next += 1;
            drop(state);
            if !self.pause.is_zero() && number.is_multiple_of(16) {
                thread::sleep(self.pause);
            }
            self.passed.lock().push(number);
            ticket.pass(lane);
            queue.wake_workers();
        }
    }
}

struct Run {
    queue: Arc<Queue>,
    outputs: Vec<Arc<Output>>,
    threads: Vec<thread::JoinHandle<()>>,
    workers: Vec<thread::JoinHandle<()>>,
}

impl Run {
    fn start(folder: &Path, settings: DiskSettings, mode: Mode, pauses: &[u64]) -> Self {
        let names: Vec<String> = (0..pauses.len()).map(|lane| format!("out{lane}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let options = DiskOptions {
            mode,
            ..DiskOptions::new(settings, &names)
        };
        let queue = Queue::open(folder, options).expect("the queue opens");
        let pauses = pauses.iter().copied().map(Duration::from_micros);
        let outputs: Vec<_> = pauses.map(Output::new).collect();
        let lanes = outputs.iter().enumerate().map(|(lane, output)| {
            let (output, queue) = (output.clone(), queue.clone());
            thread::spawn(move || output.run(lane, &queue))
        });
        let threads = lanes.collect();
        let workers = (0..3).map(|_| {
            let (queue, outputs) = (queue.clone(), outputs.clone());
            thread::spawn(move || work(&queue, &outputs))
        });
        let workers = workers.collect();
        Self {
            queue,
            outputs,
            threads,
            workers,
        }
    }

    /// Ends it; what each output passed.
    fn end(self, closing: QueuePhase) -> Vec<Vec<u64>> {
        self.queue.close(closing);
        for worker in self.workers {
            worker.join().expect("no panic");
        }
        for output in &self.outputs {
            output.state.lock().is_closed = true;
            output.changed.notify_all();
        }
        for thread in self.threads {
            thread.join().expect("no panic");
        }
        self.queue.shut();
        assert_eq!(self.queue.held().unsafe_events, 0);
        assert_eq!(self.queue.lost(), 0);
        let passed = self.outputs.iter();
        passed.map(|output| output.passed.lock().clone()).collect()
    }
}

fn work(queue: &Arc<Queue>, outputs: &[Arc<Output>]) {
    while let Some(taken) = queue.take(&|lane| outputs[lane].has_room()) {
        let Taken::Batch(entry, batch) = taken else {
            panic!("nothing is damaged");
        };
        let number = number(&batch);
        for place in &entry.lanes {
            let output = &outputs[place.lane];
            let mut state = output.state.lock();
            let before = state
                .items
                .insert(place.turn, (number, entry.ticket.clone()));
            assert!(before.is_none() && place.turn >= state.next);
            drop(state);
            output.changed.notify_all();
        }
    }
}

/// Sends batches until there are `total` or it is told to stop; their receipts.
fn send(
    queue: &Arc<Queue>,
    counter: &AtomicU64,
    total: u64,
    can_wait: bool,
    stop: &AtomicBool,
) -> Vec<Receipt> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let inlet = Inlet {
        queue: queue.clone(),
        can_wait,
        repeats_in_order: false,
    };
    let mut receipts = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let number = counter.load(Ordering::SeqCst);
        if number == total {
            break;
        }
        match runtime.block_on(inlet.send(batch(number))) {
            Ok(receipt) => receipts.push(receipt),
            Err(_) => break,
        }
        counter.fetch_add(1, Ordering::SeqCst);
    }
    receipts
}

/// Several runs over one folder: each sends some batches and ends before everything has left, the last one empties it.
fn several_runs(settings: &DiskSettings, mode: Mode, pauses: &[u64], can_wait: bool) {
    const RUNS: u64 = 4;
    const EACH: u64 = 1500;
    let folder = tempfile::tempdir().expect("a folder");
    let counter = AtomicU64::new(0);
    let mut passed: Vec<Vec<u64>> = vec![Vec::new(); pauses.len()];
    for run in 1..=RUNS {
        let started = Run::start(folder.path(), settings.clone(), mode, pauses);
        let stop = AtomicBool::new(false);
        let receipts = send(&started.queue, &counter, run * EACH, can_wait, &stop);
        let closing = if run == RUNS {
            QueuePhase::Draining
        } else {
            QueuePhase::Leaving
        };
        for (all, some) in passed.iter_mut().zip(started.end(closing)) {
            all.extend(some);
        }
        for mut receipt in receipts {
            let resolved = receipt.try_delivered().expect("it is resolved by now");
            resolved.expect("it is delivered or stored");
        }
    }
    let expected: Vec<u64> = (0..RUNS * EACH).collect();
    for (lane, passed) in passed.iter().enumerate() {
        assert!(
            *passed == expected,
            "output {lane}: {} batches",
            passed.len()
        );
    }
}

#[test]
fn outputs_that_keep_up_get_everything_once() {
    several_runs(&settings(), Mode::Everything, &[0, 0], false);
}

#[test]
fn a_slow_output_goes_on_alone() {
    several_runs(&settings(), Mode::Everything, &[0, 2000, 50], false);
}

#[test]
fn a_source_that_can_wait_is_not_written_ahead() {
    several_runs(&settings(), Mode::Everything, &[20, 300], true);
}

#[test]
fn overflow_keeps_the_order() {
    several_runs(&settings(), Mode::Overflow, &[500, 1000], false);
}

#[test]
fn an_interval_and_compression_change_nothing() {
    let settings = DiskSettings {
        durability: Durability::Interval,
        compression: Compression::Lz4,
        ..settings()
    };
    several_runs(&settings, Mode::Everything, &[0, 700], false);
}

#[test]
fn a_small_queue_makes_senders_wait() {
    let settings = DiskSettings {
        max_bytes: Size(256 << 10),
        ..settings()
    };
    several_runs(&settings, Mode::Everything, &[0, 300], false);
}

#[test]
fn an_input_that_waits_for_outputs_does_not_hold_up_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = DiskSettings {
        cache_bytes: Size(1),
        ..settings()
    };
    let queue =
        Queue::open(folder.path(), DiskOptions::new(settings, &["slow"])).expect("it opens");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let inlet = |can_wait| Inlet {
        queue: queue.clone(),
        can_wait,
        repeats_in_order: false,
    };
    runtime.block_on(async {
        let (file, other) = (inlet(true), inlet(false));
        other.send(batch(0)).await.expect("it is open");
        let mut waiting = file.send(batch(1));
        let soon = Duration::from_millis(50);
        let still = tokio::time::timeout(soon, &mut waiting).await;
        assert!(still.is_err(), "the output makes progress");
        let sent = tokio::time::timeout(soon, other.send(batch(2))).await;
        sent.expect("it does not wait").expect("it is open");
        // The output has passed nothing for a second, so that waiting for it is no use.
        let sent = tokio::time::timeout(Duration::from_secs(30), waiting).await;
        sent.expect("it is let in").expect("it is open");
    });
    queue.close(QueuePhase::Leaving);
    queue.shut();
    assert_eq!(queue.held().unsafe_events, 0);
}
