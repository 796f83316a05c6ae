//! An HTTP server that counts: `http_sink [ADDRESS:]PORT LATENCY_MS [STATUS [FILE]]`. Without an address it listens on 127.0.0.1 only.
//!
//! Every request is answered LATENCY_MS after its body arrived, with STATUS (200 by default). Whole bodies are appended to FILE.
//! A request to an address that ends with `/_bulk` is answered as Elasticsearch would answer it, every document stored; bodies
//! may be compressed with gzip. Splunk's event collector is answered as it would answer; of a push to Loki every entry counts as a
//! line. At `GET /` it says how many lines it
//! took, in how many requests, and how many of those were under way at once at most; `DELETE /` sets that to nothing.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use flate2::write::GzDecoder;
use http::header::CONTENT_ENCODING;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;

static LINES: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static REQUESTS: AtomicU64 = AtomicU64::new(0);
static FLYING: AtomicU64 = AtomicU64::new(0);
static KEPT: OnceLock<Mutex<File>> = OnceLock::new();
static FLYING_MAX: AtomicU64 = AtomicU64::new(0);

/// As much as the caches of a core hold: whoever is measured beside this server should notice little of it.
const BUFFER_BYTES: usize = 64 << 10;

#[tokio::main]
async fn main() -> ExitCode {
    if let Some(path) = std::env::args().nth(4) {
        let mut options = OpenOptions::new();
        match options.append(true).create(true).open(path) {
            Ok(file) => KEPT.get_or_init(|| Mutex::new(file)),
            Err(_) => return ExitCode::FAILURE,
        };
    }
    let place = std::env::args().nth(1).unwrap_or_default();
    let place: SocketAddr = match (place.parse(), place.parse()) {
        (Ok(address), _) => address,
        (_, Ok(port)) => (Ipv4Addr::LOCALHOST, port).into(),
        _ => return ExitCode::from(2),
    };
    let arguments = std::env::args().skip(2).take(2);
    let mut arguments = arguments.map(|text| text.parse::<u64>().ok());
    let Some(Some(latency)) = arguments.next() else {
        return ExitCode::from(2);
    };
    let status = arguments.next().flatten().unwrap_or(200);
    let status = StatusCode::from_u16(status as u16).unwrap_or(StatusCode::OK);
    let latency = Duration::from_millis(latency);
    let Ok(listener) = TcpListener::bind(place).await else {
        return ExitCode::FAILURE;
    };
    if let Ok(address) = listener.local_addr() {
        let _ = writeln!(std::io::stdout(), "{address}");
    }
    while let Ok((connection, _)) = listener.accept().await {
        // Answers are small and awaited.
        let _ = connection.set_nodelay(true);
        tokio::spawn(async move {
            let service = service_fn(|request| answer(request, status, latency));
            let _ = http1::Builder::new()
                .max_buf_size(BUFFER_BYTES)
                .serve_connection(TokioIo::new(connection), service)
                .await;
        });
    }
    ExitCode::SUCCESS
}

async fn answer(
    request: Request<Incoming>,
    status: StatusCode,
    latency: Duration,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let all = [&LINES, &BYTES, &REQUESTS, &FLYING_MAX];
    if request.method() == Method::GET {
        let [lines, bytes, requests, most] = all.map(|count| count.load(Ordering::Relaxed));
        let text = format!("{lines} lines, {bytes} bytes, {requests} requests, {most} at once\n");
        return Ok(Response::new(Full::new(text.into())));
    }
    if request.method() == Method::DELETE {
        all.iter()
            .for_each(|count| count.store(0, Ordering::Relaxed));
        return Ok(Response::new(Full::default()));
    }
    let path = request.uri().path();
    let is_bulk = path.ends_with("/_bulk");
    let is_collector = path.starts_with("/services/collector");
    let is_push = path.ends_with("/loki/api/v1/push");
    let is_gzip = request.headers().get(CONTENT_ENCODING).is_some();
    let flying = FLYING.fetch_add(1, Ordering::Relaxed) + 1;
    FLYING_MAX.fetch_max(flying, Ordering::Relaxed);
    let counted = count(request.into_body(), status, is_gzip, is_push).await;
    if !latency.is_zero() {
        // Even a sleep of nothing lasts until the next tick.
        tokio::time::sleep(latency).await;
    }
    FLYING.fetch_sub(1, Ordering::Relaxed);
    let lines = counted?;
    let mut response = Response::new(match is_bulk {
        true => Full::new(stored(lines / 2).into()),
        false if is_collector => Full::new(r#"{"text":"Success","code":0}"#.into()),
        false => Full::default(),
    });
    *response.status_mut() = status;
    Ok(response)
}

/// What Elasticsearch says of so many documents that it stored.
fn stored(documents: usize) -> String {
    let mut reply = String::from("{\"errors\":false,\"items\":[");
    for number in 0..documents {
        reply.push_str(if number > 0 { "," } else { "" });
        reply.push_str("{\"create\":{\"status\":201}}");
    }
    reply + "]}"
}

async fn count(
    mut body: Incoming,
    status: StatusCode,
    is_gzip: bool,
    is_push: bool,
) -> Result<usize, hyper::Error> {
    let (mut lines, mut bytes) = (0, 0);
    let mut kept = Vec::new();
    let mut inflated = GzDecoder::new(Vec::new());
    let (finder, mut last) = (memchr::memmem::Finder::new("[\""), 0);
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            bytes += data.len();
            match is_gzip {
                // What is damaged is not counted.
                true => drop(inflated.write_all(&data)),
                // Each entry begins so, and no text within a string does, because its quotes are escaped.
                false if is_push => {
                    let is_split = last == b'[' && data.first() == Some(&b'"');
                    lines += finder.find_iter(&data).count() + usize::from(is_split);
                    last = data.last().copied().unwrap_or(last);
                }
                false => lines += memchr::memchr_iter(b'\n', &data).count(),
            }
            if KEPT.get().is_some() {
                kept.extend_from_slice(&data);
            }
        }
    }
    if is_gzip {
        let text = inflated.finish().unwrap_or_default();
        lines = memchr::memchr_iter(b'\n', &text).count();
    }
    if status.is_success() {
        if let Some(mut file) = KEPT.get().map(Mutex::lock) {
            // Whoever reads the file finds out that something is missing.
            let _ = file.write_all(&kept);
        }
        LINES.fetch_add(lines as u64, Ordering::Relaxed);
        BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
        REQUESTS.fetch_add(1, Ordering::Relaxed);
    }
    Ok(lines)
}
