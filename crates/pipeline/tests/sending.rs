//! The engine with outputs that send requests.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use batch::{Batch, Bitmap, FieldPath, Stream, Value};
use component::{
    AnyOutput, Compression, Encoded, Framing, Input, InputContext, InputError, Output, Receipt,
    Request, RequestLimits, RequestOrder, Requests, RowAnswer, SendError, Sender, Sent,
};
use config::{Period, Positive, Size};
use parking_lot::Mutex;
use pipeline::graph::{InputNode, OutputNode};
use pipeline::settings::{
    Concurrency, DiskSettings, MemoryQueueSettings, ProcessSettings, QueueSettings, RetrySettings,
    SendingSettings,
};
use pipeline::{Graph, PipelineGraph, Report, Run, RunOptions};

use common::{BATCH, numbered, options, retry};

/// No run takes this long.
const DEADLINE: Duration = Duration::from_secs(60);

/// Sends so many batches of ten numbered lines.
struct Lines {
    batches: usize,
    receipts: Arc<Mutex<Vec<Receipt>>>,
    /// Whether it ends when it has the receipts, like one that saves positions.
    waits: bool,
}

#[async_trait]
impl Input for Lines {
    async fn run(self: Box<Self>, ctx: InputContext) -> Result<(), InputError> {
        let stream = Arc::new(Stream::unnamed(1));
        for batch in 0..self.batches {
            let batch = numbered(&ctx.host, &stream, batch);
            match ctx.send(batch).await {
                Ok(receipt) => self.receipts.lock().push(receipt),
                Err(_) => break,
            }
        }
        if self.waits {
            drop(ctx);
            let receipts = std::mem::take(&mut *self.receipts.lock());
            for receipt in receipts {
                assert!(receipt.delivered().await.is_ok());
            }
        }
        Ok(())
    }
}

/// What the other end does with a request. Gets its lines and the number of the request.
type Server = dyn Fn(&[usize], usize) -> Result<Sent, SendError> + Send + Sync;

/// The other end, and what it saw.
struct Remote {
    latency: Duration,
    destinations: usize,
    /// Spaces before each line.
    padding: usize,
    requests: Requests,
    /// Panics when it renders such lines: multiples of this.
    panics_at: Option<usize>,
    server: Box<Server>,
    calls: AtomicUsize,
    in_flight: AtomicUsize,
    /// The largest request, in bytes.
    largest: AtomicUsize,
    ends_rows: bool,
    /// The most requests that were in flight at once.
    at_once: AtomicUsize,
    /// Lines as they were taken, by destination.
    /// Lines of requests, in the order in which these were begun.
    begun: Mutex<Vec<usize>>,
    taken: Mutex<BTreeMap<String, Vec<usize>>>,
}

impl Remote {
    fn new(
        server: impl Fn(&[usize], usize) -> Result<Sent, SendError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            latency: Duration::from_millis(1),
            destinations: 1,
            padding: 0,
            requests: Requests {
                framing: Framing {
                    before: b"[",
                    between: b",",
                    after: b"]",
                },
                compression: Compression::None,
                limits: RequestLimits {
                    size_max: 1 << 20,
                    rows_max: 7,
                    age_max: Duration::from_millis(20),
                    is_filled: false,
                },
                order: RequestOrder::Free,
            },
            panics_at: None,
            server: Box::new(server),
            calls: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
            largest: AtomicUsize::new(0),
            ends_rows: false,
            at_once: AtomicUsize::new(0),
            begun: Mutex::default(),
            taken: Mutex::default(),
        }
    }

    /// Its batches are cut into several requests each, which share their memory.
    fn sliced(mut self) -> Self {
        self.requests.framing = Framing::default();
        self.ends_rows = true;
        self.padding = 20;
        self.requests.limits.rows_max = 1000;
        self.requests.limits.size_max = 64;
        self
    }

    fn taken(&self) -> Vec<usize> {
        let taken = self.taken.lock();
        let mut all: Vec<usize> = taken.values().flatten().copied().collect();
        all.sort_unstable();
        all
    }
}

fn good(_: &[usize], _: usize) -> Result<Sent, SendError> {
    Ok(Sent::default())
}

#[async_trait]
impl Output for Remote {
    fn encode(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        let column = batch.column(&FieldPath::from_keys(["message"]));
        for destination in 0..self.destinations {
            if self.destinations > 1 {
                encoded.begin_part(format!("to {destination}").into());
            }
            for row in rows.iter() {
                let Value::Text(text) = column.value(row) else {
                    panic!("a line of text")
                };
                let line: usize = str::from_utf8(text)
                    .expect("text")
                    .parse()
                    .expect("a number");
                let panics = self
                    .panics_at
                    .is_some_and(|every| line.is_multiple_of(every));
                assert!(!panics, "as asked");
                if line % self.destinations == destination {
                    encoded
                        .bytes
                        .resize(encoded.bytes.len() + self.padding, b' ');
                    encoded.bytes.extend_from_slice(text);
                    if self.ends_rows {
                        encoded.bytes.push(b',');
                    }
                    encoded.end_row(row);
                }
            }
        }
    }
}

#[async_trait]
impl Sender for Remote {
    fn requests(&self) -> Requests {
        self.requests.clone()
    }

    async fn send(&self, request: &Request) -> Result<Sent, SendError> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        let in_flight = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.at_once.fetch_max(in_flight, Ordering::SeqCst);
        let text = str::from_utf8(&request.body).expect("text");
        let bare = text
            .strip_prefix('[')
            .and_then(|text| text.strip_suffix(']'));
        assert!(bare.is_some() || self.requests.framing.before.is_empty());
        let text = bare.unwrap_or(text);
        self.largest.fetch_max(request.body.len(), Ordering::SeqCst);
        let lines = text.strip_suffix(',').unwrap_or(text).split(',');
        let lines = lines.map(|line| line.trim_start().parse().expect("a number"));
        let lines: Vec<usize> = lines.collect();
        assert_eq!(lines.len(), request.rows);
        self.begun.lock().extend(&lines);
        tokio::time::sleep(self.latency).await;
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        let sent = (self.server)(&lines, call)?;
        let declined = sent.retry.iter().chain(&sent.refused);
        let declined: BTreeSet<usize> = declined.map(|row| row.row).collect();
        let rows = lines.iter().enumerate();
        let rows = rows.filter(|(row, _)| !declined.contains(row));
        let mut taken = self.taken.lock();
        let of_destination = taken.entry(request.destination.to_string()).or_default();
        of_destination.extend(rows.map(|(_, line)| *line));
        Ok(sent)
    }
}

/// A pipeline from `Lines` to such outputs.
struct Case {
    batches: usize,
    waits: bool,
    remotes: Vec<Arc<Remote>>,
    concurrency: Concurrency,
    queue: QueueSettings,
    give_up_after: Option<Period>,
    /// A service, that is stopped after this time.
    stop_after: Option<Duration>,
    /// How many rows the first output must have before that.
    stop_behind: usize,
    memory: Size,
}

struct Ran {
    report: Report,
    delivered: usize,
    took: Duration,
}

impl Ran {
    fn counter(&self, output: usize, name: &str) -> u64 {
        let operators = self.report.pipelines[0].operators.iter();
        let mut outputs = operators.filter(|operator| operator.name.starts_with("out"));
        let output = outputs.nth(output).expect("an output");
        output.counts.named.get(name).copied().unwrap_or(0)
    }
}

impl Case {
    fn new(batches: usize, remotes: Vec<Remote>) -> Self {
        Self {
            batches,
            waits: false,
            remotes: remotes.into_iter().map(Arc::new).collect(),
            concurrency: Concurrency::Fixed(4),
            queue: QueueSettings::Memory(MemoryQueueSettings {
                max_bytes: Size(4 << 10),
                ..MemoryQueueSettings::default()
            }),
            give_up_after: Some(Period::from_secs(10)),
            stop_after: None,
            stop_behind: 0,
            memory: ProcessSettings::default().max_memory_bytes,
        }
    }

    fn on_disk(mut self, folder: PathBuf) -> Self {
        self.queue = QueueSettings::Disk(DiskSettings {
            path: Some(folder),
            cache_bytes: Size(4 << 10),
            min_free_bytes: Size(0),
            ..DiskSettings::default()
        });
        self
    }

    fn run(&self) -> Ran {
        let receipts = Arc::new(Mutex::new(Vec::new()));
        let outputs = self.remotes.iter().enumerate();
        let outputs = outputs.map(|(index, remote)| OutputNode {
            name: format!("out{index}"),
            component: AnyOutput::Sender(remote.clone()),
            ordered: false,
            sending: SendingSettings {
                concurrency: self.concurrency,
                ..SendingSettings::default()
            },
            condition: None,
            otherwise: Vec::new(),
            stages: Vec::new(),
        });
        let pipeline = PipelineGraph {
            name: "test".into(),
            inputs: vec![InputNode {
                name: "lines".into(),
                component: Box::new(Lines {
                    batches: self.batches,
                    receipts: receipts.clone(),
                    waits: self.waits,
                }),
            }],
            fed: None,
            queue: self.queue.clone(),
            stages: Vec::new(),
            outputs: outputs.collect(),
            retry: RetrySettings {
                max: Positive::<Period>::from_millis(50),
                give_up_after: self.give_up_after,
                ..retry()
            },
            fingerprint: 0,
            written: Arc::default(),
            is_watched: false,
            is_part: false,
        };
        let graph = Graph {
            process: ProcessSettings {
                max_memory_bytes: self.memory,
                workers: 2,
                ..ProcessSettings::default()
            },
            fingerprints: Default::default(),
            pipelines: vec![pipeline],
        };
        let options = RunOptions {
            finite: self.stop_after.is_none(),
            ..options()
        };
        let begin = Instant::now();
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let report = runtime.block_on(async {
            let stop = options.stop.clone();
            let run = Run::start(graph, options).await.expect("it starts");
            if let Some(after) = self.stop_after {
                let (first, rows) = (self.remotes[0].clone(), self.stop_behind);
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    while first.taken().len() < rows {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                    stop.stop();
                });
            }
            let finished = tokio::time::timeout(DEADLINE, run.finish()).await;
            finished.expect("the run comes to its end")
        });
        let mut receipts = receipts.lock();
        let is_delivered = |receipt: &mut Receipt| matches!(receipt.try_delivered(), Some(Ok(_)));
        Ran {
            report,
            delivered: receipts
                .iter_mut()
                .filter_map(|one| is_delivered(one).then_some(()))
                .count(),
            took: begin.elapsed(),
        }
    }
}

fn answer(row: usize, reason: &str) -> RowAnswer {
    RowAnswer {
        row,
        reason: reason.into(),
    }
}

fn lines(batches: usize) -> Vec<usize> {
    (0..batches * BATCH).collect()
}

#[test]
fn every_row_arrives_once_and_every_receipt_resolves() {
    let case = Case::new(100, vec![Remote::new(good)]);
    let ran = case.run();
    assert_eq!(case.remotes[0].taken(), lines(100));
    assert!(ran.report.is_clean());
    assert_eq!(ran.delivered, 100);
    let requests = ran.counter(0, "requests");
    assert!(requests >= 1000 / 7, "at most 7 rows a request: {requests}");
    assert!(case.remotes[0].at_once.load(Ordering::SeqCst) <= 4);
}

#[test]
fn requests_keep_to_their_limits_and_fill_them() {
    let lines_of = |before, between, after| Framing {
        before,
        between,
        after,
    };
    // The last one has batches become requests as they are, where that fills half a request.
    for framing in [
        lines_of(b"[", b",", b"]"),
        lines_of(b"[", b"", b"]"),
        lines_of(b"", b"", b""),
    ] {
        let mut remote = Remote::new(good);
        remote.requests.limits.rows_max = 1000;
        remote.requests.limits.size_max = 64;
        remote.requests.framing = framing;
        // Without anything between them rows end with what separates them.
        remote.ends_rows = framing.between.is_empty();
        let case = Case::new(100, vec![remote]);
        let ran = case.run();
        assert_eq!(case.remotes[0].taken(), lines(100));
        let largest = case.remotes[0].largest.load(Ordering::SeqCst);
        assert!(
            (40..=65).contains(&largest),
            "{largest} bytes with the last bracket"
        );
        // 3,890 bytes with what separates them.
        let requests = ran.counter(0, "requests");
        assert!((60..150).contains(&requests), "{requests} requests");
    }
}

#[test]
fn what_is_in_flight_is_not_bound_by_the_queue() {
    let mut far = Remote::new(good);
    far.latency = Duration::from_millis(50);
    let mut case = Case::new(2000, vec![far]);
    case.concurrency = Concurrency::Adaptive;
    let ran = case.run();
    assert_eq!(case.remotes[0].taken(), lines(2000));
    let at_once = case.remotes[0].at_once.load(Ordering::SeqCst);
    assert!(
        at_once > 32,
        "{at_once} at once; the queue alone has room for about 12"
    );
    assert!(ran.report.is_clean());
}

#[test]
fn the_last_request_does_not_wait_to_become_full() {
    for waits in [false, true] {
        let mut patient = Remote::new(good);
        patient.requests.limits.rows_max = 1000;
        patient.requests.limits.age_max = DEADLINE;
        let mut case = Case::new(3, vec![patient]);
        case.waits = waits;
        let ran = case.run();
        assert_eq!(case.remotes[0].taken(), lines(3));
        assert!(ran.took < DEADLINE / 4, "{:?}, waits: {waits}", ran.took);
        assert!(ran.report.is_clean());
    }
}

#[test]
fn workers_go_on_when_requests_give_room_back() {
    let mut slow = Remote::new(good);
    slow.padding = 100 << 10;
    slow.latency = Duration::from_millis(10);
    // Several times what may be in flight, which is a quarter of the memory.
    let case = Case::new(200, vec![slow]);
    let ran = case.run();
    assert_eq!(case.remotes[0].taken(), lines(200));
    assert_eq!(ran.delivered, 200);
}

#[test]
fn failures_of_every_kind_lose_and_double_nothing() {
    let retry = |reason: &str| Err(SendError::Retry(reason.into()));
    let moody = move |lines: &[usize], call: usize| match call % 7 {
        1 => retry("no connection"),
        2 => Err(SendError::Later {
            reason: "too many requests".into(),
            after: Some(Duration::from_millis(5)),
        }),
        3 if lines.len() > 1 => Err(SendError::Unfit("too large".into())),
        4 => Ok(Sent {
            retry: vec![answer(0, "busy")],
            ..Sent::default()
        }),
        5 => Ok(Sent {
            retry: (1..lines.len())
                .rev()
                .map(|row| answer(row, "busy"))
                .collect(),
            because: Some(SendError::Retry("busy".into())),
            ..Sent::default()
        }),
        _ => Ok(Sent::default()),
    };
    let remotes = || {
        let mut several = Remote::new(moody);
        several.destinations = 3;
        [several, Remote::new(moody).sliced()]
    };
    let orders = [
        RequestOrder::Free,
        RequestOrder::Begun,
        RequestOrder::ByDestination,
    ];
    let of_order = |order| remotes().map(|remote| (order, remote));
    for (order, mut remote) in orders.into_iter().flat_map(of_order) {
        remote.requests.order = order;
        let case = Case::new(60, vec![remote]);
        let ran = case.run();
        assert_eq!(case.remotes[0].taken(), lines(60), "{order:?}");
        assert_eq!(ran.delivered, 60);
        assert!(
            ran.report.is_clean(),
            "{:?}",
            ran.report.pipelines[0].problems
        );
        assert!(ran.counter(0, "retries") > 0 && ran.counter(0, "rows_retried") > 0);
    }
}

#[test]
fn one_destination_keeps_the_order_of_the_events() {
    let fails = |_: &[usize], call: usize| match call % 5 {
        3 => Err(SendError::Retry("away".into())),
        _ => Ok(Sent::default()),
    };
    let mut several = Remote::new(fails);
    several.destinations = 3;
    let one = Remote::new(fails).sliced();
    for (mut remote, at_once) in [(several, 2..=3), (one, 1..=1)] {
        remote.requests.order = RequestOrder::ByDestination;
        let destinations = remote.destinations;
        let case = Case::new(60, vec![remote]);
        assert!(case.run().report.is_clean());
        let taken = case.remotes[0].taken.lock();
        assert_eq!(taken.len(), destinations);
        for (destination, lines) in taken.iter() {
            assert!(lines.is_sorted(), "{destination}: {lines:?}");
            assert_eq!(lines.len(), 600 / destinations);
        }
        let most = case.remotes[0].at_once.load(Ordering::SeqCst);
        assert!(at_once.contains(&most), "{most} at once");
    }
}

#[test]
fn requests_are_begun_in_the_order_of_the_events_many_at_a_time() {
    let mut remote = Remote::new(good);
    remote.requests.order = RequestOrder::Begun;
    let case = Case::new(60, vec![remote]);
    assert!(case.run().report.is_clean());
    let begun = case.remotes[0].begun.lock();
    assert!(begun.is_sorted(), "{begun:?}");
    assert_eq!(*begun, lines(60));
    let most = case.remotes[0].at_once.load(Ordering::SeqCst);
    assert!(most > 1, "{most} at once");
}

#[test]
fn a_batch_that_is_larger_than_a_request_is_cut_evenly() {
    // Ten rows of 22 to 24 bytes: two fit.
    let case = Case::new(50, vec![Remote::new(good).sliced()]);
    let ran = case.run();
    assert!(ran.report.is_clean());
    assert_eq!(case.remotes[0].taken(), lines(50));
    assert_eq!(ran.counter(0, "requests"), 5 * 50);
    assert!(case.remotes[0].largest.load(Ordering::SeqCst) <= 64);
    // A row that is larger than a request goes alone.
    let mut remote = Remote::new(good).sliced();
    remote.requests.limits.size_max = 10;
    let case = Case::new(20, vec![remote]);
    let ran = case.run();
    assert_eq!(case.remotes[0].taken(), lines(20));
    assert_eq!(ran.counter(0, "requests"), 200);
    // The number of rows limits them too: ten become four requests of two or three.
    let mut remote = Remote::new(good).sliced();
    remote.requests.limits.size_max = 400;
    remote.requests.limits.rows_max = 3;
    let case = Case::new(20, vec![remote]);
    let ran = case.run();
    assert_eq!(case.remotes[0].taken(), lines(20));
    assert_eq!(ran.counter(0, "requests"), 4 * 20);
    // Unless they are to be filled.
    let mut remote = Remote::new(good).sliced();
    remote.requests.limits.size_max = 400;
    remote.requests.limits.rows_max = 3;
    remote.requests.limits.is_filled = true;
    let case = Case::new(20, vec![remote]);
    let ran = case.run();
    assert_eq!(case.remotes[0].taken(), lines(20));
    assert_eq!(ran.counter(0, "requests"), 67);
}

#[test]
fn a_row_that_does_not_fit_is_found_and_refused_alone() {
    let poison = |lines: &[usize], _: usize| match lines.contains(&123) {
        true => Err(SendError::Unfit("400: no such field".into())),
        false => Ok(Sent::default()),
    };
    let case = Case::new(30, vec![Remote::new(poison)]);
    let ran = case.run();
    let expected: Vec<usize> = lines(30).into_iter().filter(|&line| line != 123).collect();
    assert_eq!(case.remotes[0].taken(), expected);
    assert_eq!(ran.counter(0, "refused"), 1);
    assert_eq!(ran.delivered, 30);
}

#[test]
fn an_output_that_is_away_fails_after_its_time_and_a_panic_at_once() {
    let away = |_: &[usize], _: usize| Err(SendError::Retry("away".into()));
    let panics = |_: &[usize], call: usize| match call {
        5 => panic!("as asked"),
        _ => Ok(Sent::default()),
    };
    for (remote, reason) in [
        (Remote::new(away), "away"),
        (Remote::new(panics), "panicked in `send`: as asked"),
    ] {
        let mut case = Case::new(50, vec![remote]);
        case.give_up_after = Some(Period::from_millis(300));
        let ran = case.run();
        let pipeline = &ran.report.pipelines[0];
        assert!(
            pipeline.problems[0].text.contains(reason),
            "{:?}",
            pipeline.problems
        );
        let taken = case.remotes[0].taken().len() as u64;
        let accepted = pipeline.operators[0].counts.events_out;
        assert!(
            pipeline.undelivered > 0,
            "what was accepted and not delivered is said"
        );
        assert!(
            taken + pipeline.undelivered >= accepted,
            "a batch counts as a whole"
        );
        assert!(pipeline.undelivered <= accepted);
        assert!(ran.took < Duration::from_secs(60), "{:?}", ran.took);
    }
}

#[test]
fn a_dead_output_holds_up_no_other_and_gets_its_events_later() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("queue");
    let away = |_: &[usize], _: usize| Err(SendError::Retry("away".into()));
    let mut case =
        Case::new(3000, vec![Remote::new(good), Remote::new(away)]).on_disk(path.clone());
    case.give_up_after = None;
    case.stop_after = Some(Duration::from_secs(2));
    case.stop_behind = 3000 * BATCH;
    let ran = case.run();
    assert_eq!(
        case.remotes[0].taken(),
        lines(3000),
        "the other one has everything"
    );
    assert!(case.remotes[1].taken().is_empty());
    assert_eq!(ran.delivered, 3000, "everything is safe on disk");
    assert!(ran.counter(1, "circuit_opened") > 0);
    let calls = case.remotes[1].calls.load(Ordering::SeqCst);
    assert!(
        calls < 200,
        "an open circuit spares the other end: {calls} requests"
    );
    let again = Case::new(0, vec![Remote::new(good), Remote::new(good)]).on_disk(path);
    again.run();
    assert_eq!(again.remotes[1].taken(), lines(3000));
    assert!(
        again.remotes[0].taken().len() < 3000 * BATCH / 2,
        "it goes on where it was"
    );
}

#[test]
fn a_destination_that_asks_for_time_gets_no_more_than_retries_may_take() {
    let later = |_: &[usize], _: usize| {
        Err(SendError::Later {
            reason: "come back in an hour".into(),
            after: Some(Duration::from_secs(3600)),
        })
    };
    let mut case = Case::new(5, vec![Remote::new(later)]);
    case.give_up_after = Some(Period::from_millis(300));
    let ran = case.run();
    let pipeline = &ran.report.pipelines[0];
    assert!(pipeline.problems[0].text.contains("come back in an hour"));
    assert_eq!(pipeline.undelivered, 50);
    assert!(ran.took < Duration::from_secs(60), "{:?}", ran.took);
}

#[test]
fn a_stop_does_not_wait_for_a_destination_that_hangs() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut remote = Remote::new(good);
    remote.latency = Duration::from_secs(600);
    let mut case = Case::new(20, vec![remote]).on_disk(folder.path().join("queue"));
    case.give_up_after = None;
    case.stop_after = Some(Duration::from_millis(500));
    let ran = case.run();
    assert_eq!(ran.delivered, 20, "everything is safe on disk");
    assert_eq!(ran.report.pipelines[0].queued, 200);
    assert!(ran.took < Duration::from_secs(60), "{:?}", ran.took);
}

#[test]
fn requests_cost_memory_however_small_their_rows_are() {
    let mut remote = Remote::new(good);
    remote.requests.limits.rows_max = 1;
    remote.latency = Duration::from_millis(300);
    let mut case = Case::new(300, vec![remote]);
    case.memory = Size(1 << 20);
    case.concurrency = Concurrency::Fixed(1024);
    let ran = case.run();
    assert_eq!(case.remotes[0].taken(), lines(300));
    let at_once = case.remotes[0].at_once.load(Ordering::SeqCst);
    // A quarter of a MiB, 512 bytes each, and what workers had in hand.
    assert!(at_once <= 600, "{at_once} at once");
    assert!(ran.report.is_clean());
}

#[test]
fn one_destination_that_is_away_holds_up_no_other() {
    // Every fourth line, by line number, goes to the destination that is away, which comes back after a while.
    let back = Instant::now() + Duration::from_secs(2);
    let moody = move |lines: &[usize], _: usize| match lines[0] % 4 {
        0 if Instant::now() < back => Err(SendError::Later {
            reason: "not now".into(),
            after: Some(Duration::from_millis(2500)),
        }),
        _ => Ok(Sent::default()),
    };
    let mut remote = Remote::new(moody);
    remote.destinations = 4;
    let case = Case::new(200, vec![remote]);
    let remote = case.remotes[0].clone();
    let before = std::thread::scope(|scope| {
        let seen = scope.spawn(|| {
            // Before the time is over that the destination asked for, the others have everything.
            let wanted = 200 * BATCH * 3 / 4;
            while remote.taken().len() < wanted && Instant::now() < back {
                std::thread::sleep(Duration::from_millis(10));
            }
            remote.taken().len()
        });
        let ran = case.run();
        assert!(ran.report.is_clean());
        seen.join().expect("no panic")
    });
    assert_eq!(before, 200 * BATCH * 3 / 4);
    assert_eq!(case.remotes[0].taken(), lines(200));
}

#[test]
fn rows_that_are_blocked_name_the_cause_and_wait() {
    let blocked_until = Instant::now() + Duration::from_millis(400);
    let blocked = move |lines: &[usize], _: usize| {
        if Instant::now() >= blocked_until || lines.len() < 2 {
            return Ok(Sent::default());
        }
        Ok(Sent {
            retry: vec![answer(1, "the disk is full")],
            because: Some(SendError::Blocked("the disk is full".into())),
            ..Sent::default()
        })
    };
    let folder = tempfile::tempdir().expect("a folder");
    let mut service =
        Case::new(20, vec![Remote::new(blocked)]).on_disk(folder.path().join("queue"));
    service.give_up_after = None;
    service.stop_after = Some(Duration::from_secs(2));
    service.stop_behind = 20 * BATCH;
    let ran = service.run();
    assert_eq!(service.remotes[0].taken(), lines(20));
    assert!(ran.report.is_clean());
    let always = |lines: &[usize], _: usize| {
        Ok(Sent {
            retry: vec![answer(lines.len() - 1, "the disk is full")],
            because: Some(SendError::Blocked("the disk is full".into())),
            ..Sent::default()
        })
    };
    let ran = Case::new(20, vec![Remote::new(always)]).run();
    let problems = &ran.report.pipelines[0].problems;
    assert!(problems[0].text.contains("the disk is full"));
}

#[test]
fn rows_that_cannot_be_rendered_hold_up_nothing_in_a_disk_queue() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("queue");
    for destinations in [1, 2] {
        let mut remote = Remote::new(good);
        remote.panics_at = Some(100);
        remote.destinations = destinations;
        // More batches than an output may hold beyond its cursor come after the first one.
        let mut case = Case::new(1500, vec![remote]).on_disk(path.clone());
        case.give_up_after = None;
        let ran = case.run();
        let expected: Vec<usize> = lines(1500)
            .into_iter()
            .filter(|line| line % 100 != 0)
            .collect();
        assert_eq!(case.remotes[0].taken(), expected);
        assert_eq!(ran.counter(0, "refused"), 150);
        assert_eq!(ran.report.pipelines[0].queued, 0, "nothing comes again");
    }
}
