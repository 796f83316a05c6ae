//! What a steady flow of events allocates, counted by the allocator. On its own, because the count is that of the whole process.
//!
//! Sent are windows, messages and bodies of few and of many events, over a socket, by a client that allocates nothing itself.
//! What those of many events allocate in addition is what events cost: nothing but the growth of a few lists.

mod common;

use std::alloc::System;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use batch::msgpack::{write_array_header, write_bin, write_i64, write_map_header, write_str};
use batch::{Batch, Budget};
use common::{build, host};
use component::{Delivery, Diagnostics, InputContext, Receipt, Sink, Stop, Stopped, receipt};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use testkit::lumberjack;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// How many events few and many are, which go in one batch each; the last one is what Beats send in a window, and is two batches
/// of at most 900 KiB.
const SIZES: [usize; 3] = [256, 1024, 2048];

/// How much is sent before anything is counted, and then.
const WARM_UP: usize = 20;
const COUNTED: usize = 50;

/// What a request of the largest size may allocate.
struct Allowed {
    input: &'static str,
    request: f64,
}

/// Measured are 126, 148 and 190, which here have a quarter added: two batches, their columns, receipts and answers.
const ALLOWED: [Allowed; 3] = [
    Allowed {
        input: "beats",
        request: 158.0,
    },
    Allowed {
        input: "forward",
        request: 185.0,
    },
    Allowed {
        input: "elasticsearch",
        request: 238.0,
    },
];

/// What four times the events in a batch may allocate in addition: six lists grow twice, by doubling.
const GROWTH_MAX: f64 = 16.0;

/// Takes every batch, and drops it.
struct Discard;

#[async_trait]
impl Sink for Discard {
    async fn send(&self, batch: Batch) -> Result<Receipt, Stopped> {
        let (issuer, receipt) = receipt();
        issuer.resolve(Delivery::accepted(&batch));
        Ok(receipt)
    }
}

/// A document of about 700 bytes.
fn document(number: usize) -> String {
    format!(
        r#"{{"@timestamp":"2026-11-23T10:00:00.000Z","n":{number},"host":{{"name":"web-1"}},"message":"{}"}}"#,
        "a line of a log ".repeat(38)
    )
}

fn beats_window(events: usize) -> Vec<u8> {
    lumberjack::compressed_window((0..events).map(document))
}

fn forward_message(events: usize) -> Vec<u8> {
    let (mut entries, mut out) = (Vec::new(), Vec::new());
    for number in 0..events {
        write_array_header(&mut entries, 2);
        write_i64(&mut entries, 1_763_892_000);
        write_map_header(&mut entries, 2);
        write_str(&mut entries, b"n");
        write_i64(&mut entries, number as i64);
        write_str(&mut entries, b"message");
        write_str(&mut entries, "a line of a log ".repeat(41).as_bytes());
    }
    write_array_header(&mut out, 3);
    write_str(&mut out, b"tag");
    write_bin(&mut out, &entries);
    write_map_header(&mut out, 1);
    write_str(&mut out, b"chunk");
    write_str(&mut out, b"p8n9gmxTQVC8/nh2wlKKeQ==");
    out
}

fn bulk_request(events: usize) -> Vec<u8> {
    let line = |number| {
        format!(
            "{{\"create\":{{\"_index\":\"logs\"}}}}\n{}\n",
            document(number)
        )
    };
    let body: String = (0..events).map(line).collect();
    let length = body.len();
    format!("POST /_bulk HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// A client that has one answer in its hands before it sends again.
struct Client {
    stream: TcpStream,
    space: Vec<u8>,
}

impl Client {
    fn connect(port: u16) -> Self {
        let begin = Instant::now();
        let stream = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => break stream,
                Err(_) => assert!(begin.elapsed() < Duration::from_secs(20), "it listens"),
            }
        };
        stream.set_nodelay(true).expect("set");
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("set");
        Self {
            stream,
            space: vec![0; 2 << 20],
        }
    }

    /// Sends a request, and reads until `is_whole` says so of the answer.
    fn ask(&mut self, request: &[u8], is_whole: impl Fn(&[u8]) -> bool) {
        self.stream.write_all(request).expect("sent");
        let mut filled = 0;
        while !is_whole(&self.space[..filled]) {
            let read = self.stream.read(&mut self.space[filled..]);
            let read = read.expect("an answer");
            assert!(read > 0, "the connection stays open");
            filled += read;
        }
    }
}

/// Whether the head of an HTTP response and the body that it announces are there.
fn is_answered(answer: &[u8]) -> bool {
    let Some(head) = answer.windows(4).position(|end| end == b"\r\n\r\n") else {
        return false;
    };
    assert!(answer.starts_with(b"HTTP/1.1 200"), "it is taken");
    let name = b"content-length: ";
    let at = answer.windows(name.len()).position(|part| part == name);
    let digits = answer[at.expect("a length") + name.len()..].iter();
    let digits = digits.take_while(|byte| byte.is_ascii_digit());
    let length = digits.fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'));
    answer.len() >= head + 4 + length
}

/// How often a request of so many events allocates.
fn allocations(input: &str, client: &mut Client, events: usize) -> f64 {
    let request = match input {
        "beats" => beats_window(events),
        "forward" => forward_message(events),
        _ => bulk_request(events),
    };
    let mut last = *b"2A\0\0\0\0";
    last[2..].copy_from_slice(&(events as u32).to_be_bytes());
    let whole = |answer: &[u8]| match input {
        "beats" => answer.ends_with(&last),
        "forward" => answer.ends_with(b"p8n9gmxTQVC8/nh2wlKKeQ=="),
        _ => is_answered(answer),
    };
    for _ in 0..WARM_UP {
        client.ask(&request, whole);
    }
    let before = ALLOCATOR.stats();
    for _ in 0..COUNTED {
        client.ask(&request, whole);
    }
    let counted = ALLOCATOR.stats() - before;
    (counted.allocations + counted.reallocations) as f64 / COUNTED as f64
}

#[test]
fn a_steady_flow_allocates_nothing_for_an_event() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let mut problems = Vec::new();
    for Allowed { input, request } in ALLOWED {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let built = build(input, &format!("address: {port}")).expect("valid settings");
        let stop = Stop::default();
        let budget = Budget::new(256 << 20);
        let ctx = InputContext {
            sink: Arc::new(Discard),
            pool: budget.pool(256 << 20, 256 << 10),
            host: host(),
            stop: stop.clone(),
            metrics: Arc::default(),
            progress: Arc::default(),
            diagnostics: Diagnostics::silent(),
            scope: "test/input".into(),
            registry: None,
            data_dir: None,
            ledger: Arc::default(),
            written: Arc::default(),
            own: Default::default(),
        };
        let run = runtime.spawn(built.run(ctx));
        let mut client = Client::connect(port);
        let counts = SIZES.map(|events| allocations(input, &mut client, events));
        drop(client);
        stop.stop();
        runtime
            .block_on(run)
            .expect("no panic")
            .expect("it ends well");
        let said = format!("{input}: {counts:?} allocations for requests of {SIZES:?} events");
        // Shown where the test fails, or is run with --nocapture.
        std::io::stderr()
            .write_all(format!("{said}\n").as_bytes())
            .expect("written");
        if counts[1] - counts[0] > GROWTH_MAX || counts[2] > request {
            problems.push(said);
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
