//! Many clients that post slowly, more than fits into memory, while Millpond is killed and started again.
//!
//! Afterwards everything that was acknowledged must be there, every client must have been served, and memory must have
//! stayed within its bounds. `bench/slow-connections` runs the long form.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::program::{Folder, command, ended, gzip};

/// How long a client waits for any answer before the test has failed.
const PATIENCE: Duration = Duration::from_secs(90);

/// Memory of a connection outside of the budget, in KiB: generous, for programs that are not optimised.
const CONNECTION_KIB: u64 = 40;

/// Memory of the rest of the program, in KiB.
const BASE_KIB: u64 = 150 << 10;

/// What the run is like.
struct Crowd {
    connections: u64,
    seconds: u64,
    memory_mib: u64,
    kills: u32,
}

impl Crowd {
    fn from_environment() -> Self {
        let number = |name: &str, otherwise: u64| {
            env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
        };
        Self {
            connections: number("CROWD_CONNECTIONS", 300),
            seconds: number("CROWD_SECONDS", 4),
            memory_mib: number("CROWD_MEMORY_MIB", 4),
            kills: number("CROWD_KILLS", 1) as u32,
        }
    }
}

/// What the clients share.
struct Shared {
    port: u16,
    over: AtomicBool,
    /// Longest time from the last byte sent to an answer of 200, and to any answer, in milliseconds.
    longest_ok_ms: AtomicU64,
    longest_ms: AtomicU64,
    later: AtomicU64,
    broken: AtomicU64,
}

/// What one client has.
struct Served {
    client: u64,
    /// Requests that were acknowledged, with the number of their events.
    acknowledged: Vec<u64>,
    /// Longest time from the first byte of a request to its acknowledgement, repetitions included.
    longest: Duration,
}

#[test]
fn nothing_acknowledged_is_lost_and_nobody_starves() {
    let crowd = Crowd::from_environment();
    allow_open_files();
    let folder = Folder::new();
    let port = testkit::ports::free_port();
    let config = format!(
        "data_dir: {}\nmax_memory_bytes: {}MiB\npipelines:\n  p:\n    input: {{http: {{address: {port}, ack_timeout: 30s, codec: ndjson}}}}\n    queue: disk\n    processors: [remove: {{fields: [pad]}}]\n    output: {{file: {{path: {}}}}}\n",
        folder.path("state"),
        crowd.memory_mib,
        folder.path("out")
    );
    let config = folder.write("c.yaml", config);
    let shared = Arc::new(Shared {
        port,
        over: AtomicBool::new(false),
        longest_ok_ms: AtomicU64::new(0),
        longest_ms: AtomicU64::new(0),
        later: AtomicU64::new(0),
        broken: AtomicU64::new(0),
    });
    let mut child = command(&["run", &config]).spawn().expect("it runs");
    let runtime = Runtime::new().expect("a runtime");
    let mut clients = JoinSet::new();
    for client in 0..crowd.connections {
        clients.spawn_on(post_until_over(client, shared.clone()), runtime.handle());
    }
    let mut peak = 0;
    let turn = Duration::from_secs(crowd.seconds) / (crowd.kills + 1);
    for _ in 0..crowd.kills {
        peak = peak.max(watch(&child, turn));
        child.kill().expect("killed");
        child.wait().expect("ended");
        child = command(&["run", &config]).spawn().expect("it runs");
    }
    peak = peak.max(watch(&child, turn));
    shared.over.store(true, Ordering::Relaxed);
    let served = runtime.block_on(clients.join_all());
    peak = peak.max(peak_kib(&child));
    let pid = Pid::from_raw(child.id() as i32).expect("a process");
    kill_process(pid, Signal::TERM).expect("signalled");
    ended(child.wait_with_output().expect("it ends")).expect(0);
    // What the queue holds when it is stopped is for the next run.
    let child = command(&["run", &config]).spawn().expect("it runs");
    judge(&crowd, &shared, &served, &folder, peak, child);
}

/// Waits until everything acknowledged is there, and says how it went.
#[expect(
    clippy::print_stdout,
    reason = "figures for a person, shown by `bench/slow-connections`"
)]
fn judge(
    crowd: &Crowd,
    shared: &Shared,
    served: &[Served],
    folder: &Folder,
    peak: u64,
    mut child: Child,
) {
    let begin = Instant::now();
    let (mut missing, mut found);
    loop {
        found = count(&folder.path("out"));
        missing = 0;
        for one in served {
            for request in &one.acknowledged {
                let seen = found.get(&(one.client, *request));
                let seen = seen.map_or(0, |found: &Found| found.seen.count_ones());
                missing += u64::from(u64::from(seen) < events_of(one.client, *request));
            }
        }
        if missing == 0 || begin.elapsed() > Duration::from_secs(20) {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    child.kill().expect("killed");
    child.wait().expect("ended");
    let acknowledged: usize = served.iter().map(|one| one.acknowledged.len()).sum();
    let events: u64 = found.values().map(|found| found.events).sum();
    let longest = served
        .iter()
        .map(|one| one.longest)
        .max()
        .unwrap_or_default();
    let least = served.iter().map(|one| one.acknowledged.len()).min();
    println!(
        "{} connections, {} s, memory {} MiB, {} kills: {acknowledged} requests acknowledged ({} to {} a client), \
         {events} events out, {missing} requests missing, peak RSS {} MiB, longest wait for 200 {} ms, for any answer {} ms, \
         longest request {:.1} s, {} answers 503, {} broken connections",
        crowd.connections,
        crowd.seconds,
        crowd.memory_mib,
        crowd.kills,
        least.unwrap_or_default(),
        served
            .iter()
            .map(|one| one.acknowledged.len())
            .max()
            .unwrap_or_default(),
        peak >> 10,
        shared.longest_ok_ms.load(Ordering::Relaxed),
        shared.longest_ms.load(Ordering::Relaxed),
        longest.as_secs_f64(),
        shared.later.load(Ordering::Relaxed),
        shared.broken.load(Ordering::Relaxed),
    );
    assert_eq!(missing, 0, "everything acknowledged is there");
    assert!(least >= Some(1), "every client was served");
    let bound = (crowd.memory_mib << 10) + crowd.connections * CONNECTION_KIB + BASE_KIB;
    assert!(peak < bound, "{peak} KiB are less than {bound} KiB");
}

/// Posts one request after the other until it is over, each until it is acknowledged.
async fn post_until_over(client: u64, shared: Arc<Shared>) -> Served {
    let mut served = Served {
        client,
        acknowledged: Vec::new(),
        longest: Duration::ZERO,
    };
    let mut connection = None;
    let mut request = 0;
    while request == 0 || !shared.over.load(Ordering::Relaxed) {
        let begin = Instant::now();
        loop {
            let answered = timeout(PATIENCE, post(&mut connection, client, request, &shared)).await;
            match answered.expect("every request is answered") {
                Ok(200) => break,
                Ok(503) => shared.later.fetch_add(1, Ordering::Relaxed),
                Ok(status) => panic!("an answer of {status}"),
                Err(_) => shared.broken.fetch_add(1, Ordering::Relaxed),
            };
            connection = None;
            sleep(Duration::from_millis(200)).await;
        }
        served.longest = served.longest.max(begin.elapsed());
        served.acknowledged.push(request);
        request += 1;
    }
    served
}

/// How many events a request has.
fn events_of(client: u64, request: u64) -> u64 {
    1 + (client * 7 + request * 13) % 40
}

/// The body of a request: up to 40 lines of a kilobyte.
fn body_of(client: u64, request: u64) -> Vec<u8> {
    let mut body = String::new();
    for event in 0..events_of(client, request) {
        let pad = "x".repeat(900 + (event as usize * 37) % 200);
        body += &format!("{{\"c\":{client},\"r\":{request},\"e\":{event},\"pad\":\"{pad}\"}}\n");
    }
    body.into_bytes()
}

/// Posts slowly: a tenth at a time. Gives the status of the answer.
async fn post(
    connection: &mut Option<TcpStream>,
    client: u64,
    request: u64,
    shared: &Shared,
) -> io::Result<u16> {
    if connection.is_none() {
        *connection = Some(TcpStream::connect(("127.0.0.1", shared.port)).await?);
    }
    let Some(stream) = connection else {
        return Err(io::ErrorKind::NotConnected.into());
    };
    let mut body = body_of(client, request);
    let mut head = "POST / HTTP/1.1\r\nHost: x\r\n".to_owned();
    if client.is_multiple_of(4) {
        body = gzip(&body);
        head += "Content-Encoding: gzip\r\n";
    }
    let is_chunked = (client + request).is_multiple_of(2);
    head += &if is_chunked {
        "Transfer-Encoding: chunked\r\n\r\n".to_owned()
    } else {
        format!("Content-Length: {}\r\n\r\n", body.len())
    };
    stream.write_all(head.as_bytes()).await?;
    for piece in body.chunks(body.len() / 10 + 1) {
        if is_chunked {
            let head = format!("{:x}\r\n", piece.len());
            stream
                .write_all(&[head.as_bytes(), piece, b"\r\n"].concat())
                .await?;
        } else {
            stream.write_all(piece).await?;
        }
        let pause = 20 + (client * 31 + piece.len() as u64) % 80;
        sleep(Duration::from_millis(pause)).await;
    }
    if is_chunked {
        stream.write_all(b"0\r\n\r\n").await?;
    }
    let sent = Instant::now();
    let status = status(stream).await?;
    let waited = sent.elapsed().as_millis() as u64;
    shared.longest_ms.fetch_max(waited, Ordering::Relaxed);
    if status == 200 {
        shared.longest_ok_ms.fetch_max(waited, Ordering::Relaxed);
    }
    Ok(status)
}

/// Reads the head of an answer; the one of 200 has no body.
async fn status(stream: &mut TcpStream) -> io::Result<u16> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let text = String::from_utf8_lossy(&head);
    let status = text.get(9..12).and_then(|status| status.parse().ok());
    status.ok_or_else(|| io::Error::other(format!("not an answer: {text}")))
}

/// What came out of a request, which may have been sent several times.
#[derive(Default)]
struct Found {
    /// A bit for each event.
    seen: u64,
    events: u64,
}

/// The events of each request in the output.
fn count(path: &str) -> HashMap<(u64, u64), Found> {
    let mut found = HashMap::new();
    let Ok(file) = fs::File::open(path) else {
        return found;
    };
    for line in BufReader::new(file).lines() {
        let line = line.expect("a readable file");
        let number = |name: &str| {
            let (_, rest) = line.split_once(name)?;
            let digits = rest.split_once([',', '}'])?.0;
            digits.parse::<u64>().ok()
        };
        // The last line may still be on its way.
        let parts = (number("\"c\":"), number("\"r\":"), number("\"e\":"));
        if let (Some(client), Some(request), Some(event)) = parts {
            let found: &mut Found = found.entry((client, request)).or_default();
            found.seen |= 1 << event;
            found.events += 1;
        }
    }
    found
}

/// Watches the memory of a process for a while; its peak in KiB.
fn watch(child: &Child, time: Duration) -> u64 {
    std::thread::sleep(time);
    peak_kib(child)
}

fn peak_kib(child: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    let digits = line.expect("a peak").chars().filter(char::is_ascii_digit);
    digits.collect::<String>().parse().expect("a number")
}

fn allow_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised).expect("what is allowed");
}
