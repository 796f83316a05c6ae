//! Clients that break the rules of HTTP/2, flood a connection, or leave it half open: frames are written by hand.

mod common;

use std::time::Duration;

use common::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const IDLE: Duration = Duration::from_secs(30);
const SHORT_IDLE: Duration = Duration::from_millis(200);

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// Kinds of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

// Flags of a head.
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Codes with which a connection ends.
const NO_ERROR: u32 = 0;
const PROTOCOL_ERROR: u32 = 1;
const FRAME_SIZE_ERROR: u32 = 6;
const ENHANCE_YOUR_CALM: u32 = 11;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

fn begin(settings: &[u8]) -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, settings)].concat()
}

/// The fields of a call of `/`: POST, http and the path are in the table of HPACK.
fn fields() -> Vec<u8> {
    let mut fields = vec![0x83, 0x86, 0x84, 0x01, 1, b'a', 0x0f, 0x10, 16];
    fields.extend(b"application/grpc");
    fields
}

/// The head of a call.
fn call(stream: u32, flags: u8) -> Vec<u8> {
    frame(HEADERS, flags | END_HEADERS, stream, &fields())
}

/// Numbers of the streams of a client.
fn streams() -> impl Iterator<Item = u32> {
    (1..).step_by(2)
}

/// Frames of an answer: their kinds, streams and payloads.
fn frames(mut bytes: &[u8]) -> Vec<(u8, u32, &[u8])> {
    let mut frames = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let (payload, rest) = rest.split_at(length.min(rest.len()));
        frames.push((head[3], stream, payload));
        bytes = rest;
    }
    frames
}

/// The code of the last GOAWAY.
fn end(answer: &[u8]) -> Option<u32> {
    let frames = frames(answer);
    let (_, _, payload) = frames.iter().rfind(|(kind, ..)| *kind == GOAWAY)?;
    let code = payload.get(4..8)?.try_into().ok()?;
    Some(u32::from_be_bytes(code))
}

/// Sends bytes, and again and again what `flood` gives, until it gives nothing or the server closes; what the server sent.
async fn converse(
    server: &Server,
    first: Vec<u8>,
    mut flood: impl FnMut() -> Option<Vec<u8>> + Send + 'static,
) -> Vec<u8> {
    let stream = TcpStream::connect(server.address).await.expect("connected");
    let (mut reading, mut writing) = stream.into_split();
    let sending = tokio::spawn(async move {
        let mut next = Some(first);
        while let Some(bytes) = next {
            // The server may have closed the connection.
            if writing.write_all(&bytes).await.is_err() {
                break;
            }
            next = flood();
        }
        writing
    });
    let mut answer = Vec::new();
    // What is read before a reset counts.
    let _ = reading.read_to_end(&mut answer).await;
    drop(reading);
    sending.abort();
    answer
}

/// Whether the server answers a call on a new connection.
async fn is_well(server: &Server) -> bool {
    let mut stream = TcpStream::connect(server.address).await.expect("connected");
    let message = [call(1, 0), frame(DATA, END_STREAM, 1, b"\0\0\0\0\x05hello")];
    let bytes = [begin(&[]), message.concat()].concat();
    stream.write_all(&bytes).await.expect("sent");
    let (mut answer, mut piece) = (Vec::new(), [0; 1024]);
    loop {
        let read = stream.read(&mut piece).await.expect("an answer");
        answer.extend(&piece[..read]);
        let is_answer = |(kind, stream, payload): &(u8, u32, &[u8])| {
            (*kind, *stream) == (DATA, 1) && payload.ends_with(b"hello")
        };
        if frames(&answer).iter().any(is_answer) || read == 0 {
            return read > 0;
        }
    }
}

#[tokio::test]
async fn floods_and_junk_end_a_connection_with_a_code() {
    let resets = |stream| [call(stream, 0), frame(RESET, 0, stream, &[0, 0, 0, 8])].concat();
    let pieces = || frame(CONTINUATION, 0, 1, &[0x00, 1, b'a', 1, b'b']);
    let large = [&[0x00, 1, b'a', 0x7f, 0x81, 0x7c][..], &[b'x'; 16_000]].concat();
    let unfinished = [frame(HEADERS, 0, 1, &fields()), pieces().repeat(20_000)];
    let empty = [call(1, 0), frame(DATA, 0, 1, b"").repeat(50_000)];
    let heads = frame(CONTINUATION, 0, 1, &large).repeat(1000);
    let heads = [frame(HEADERS, 0, 1, &fields()), heads];
    for (name, bytes, codes) in [
        ("junk", vec![0xff; 100], &[FRAME_SIZE_ERROR][..]),
        (
            "junk in a head",
            frame(HEADERS, END_HEADERS, 1, &[0xff; 50]),
            &[PROTOCOL_ERROR, 9],
        ),
        (
            "data of no request",
            frame(DATA, 0, 1, b"x"),
            &[PROTOCOL_ERROR],
        ),
        ("an even number", call(2, 0), &[PROTOCOL_ERROR]),
        (
            "resets",
            streams().take(10_000).flat_map(resets).collect(),
            &[ENHANCE_YOUR_CALM],
        ),
        (
            "a head without end",
            unfinished.concat(),
            &[ENHANCE_YOUR_CALM],
        ),
        ("a large head", heads.concat(), &[ENHANCE_YOUR_CALM]),
        ("empty data", empty.concat(), &[ENHANCE_YOUR_CALM]),
    ] {
        let mut server = Server::start(None, IDLE, 10).await;
        let answer = converse(&server, [begin(&[]), bytes].concat(), || None).await;
        let code = end(&answer);
        assert!(
            code.is_some_and(|code| codes.contains(&code)),
            "{name}: {code:?}"
        );
        assert!(is_well(&server).await, "{name}");
        // The connection has ended once the server has.
        let handler = server.handler.clone();
        server.stop();
        server.stopped().await;
        let refusals = handler.refusals.lock().clone();
        assert!(
            refusals.len() == 1 && refusals[0].starts_with("error of HTTP/2: "),
            "{name}: {refusals:?}"
        );
    }
}

#[tokio::test]
async fn requests_beyond_the_limit_are_refused_without_ending_the_connection() {
    let server = Server::start(None, SHORT_IDLE, 10).await;
    let calls = streams().take(10).flat_map(|stream| call(stream, 0));
    let mut stream = TcpStream::connect(server.address).await.expect("connected");
    let bytes: Vec<u8> = begin(&[]).into_iter().chain(calls).collect();
    stream.write_all(&bytes).await.expect("sent");
    // Four wait for their messages. They are given up after a moment, and the connection ends by itself.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let resets = streams().take(4);
    let resets = resets.flat_map(|stream| frame(RESET, 0, stream, &[0, 0, 0, 8]));
    stream
        .write_all(&resets.collect::<Vec<_>>())
        .await
        .expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("closed");
    let frames = frames(&answer);
    let refused =
        |(kind, _, payload): &&(u8, u32, &[u8])| *kind == RESET && *payload == [0, 0, 0, 7];
    assert_eq!(frames.iter().filter(refused).count(), 6, "{frames:?}");
    assert_eq!(end(&answer), Some(NO_ERROR));
}

#[tokio::test]
async fn pings_do_not_keep_a_connection() {
    let server = Server::start(None, SHORT_IDLE, 10).await;
    let pings = || frame(PING, 0, 0, &[7; 8]).repeat(1000);
    let answer = converse(&server, begin(&[]), move || Some(pings())).await;
    assert_eq!(end(&answer), Some(NO_ERROR));
    let is_pong = |(kind, _, payload): &(u8, u32, &[u8])| *kind == PING && *payload == [7; 8];
    assert!(frames(&answer).iter().any(is_pong));
    assert!(is_well(&server).await);
}

#[tokio::test]
async fn a_client_that_reads_no_pongs_loses_its_connection() {
    let server = Server::start(None, SHORT_IDLE, 10).await;
    let mut stream = TcpStream::connect(server.address).await.expect("connected");
    stream.write_all(&begin(&[])).await.expect("sent");
    let pings = frame(PING, 0, 0, &[7; 8]).repeat(1000);
    // It waits once the server reads no more, and ends when the server has closed.
    while stream.write_all(&pings).await.is_ok() {}
    assert!(is_well(&server).await);
}

#[tokio::test]
async fn a_client_that_takes_no_answer_loses_its_connection() {
    let server = Server::start(None, SHORT_IDLE, 10).await;
    // A window of 0 bytes for answers.
    let settings = begin(&[0, 4, 0, 0, 0, 0]);
    let message = frame(DATA, END_STREAM, 1, b"\0\0\0\0\x05hello");
    let bytes = [settings, call(1, 0), message].concat();
    let answer = converse(&server, bytes, || None).await;
    assert_eq!(end(&answer), Some(NO_ERROR));
    assert!(!frames(&answer).iter().any(|(kind, ..)| *kind == DATA));
    assert!(is_well(&server).await);
}

#[tokio::test]
async fn half_a_call_leaves_nothing_behind() {
    let mut server = Server::start(None, IDLE, 10).await;
    let half = frame(DATA, 0, 1, b"\0\0\0\x01\0half");
    for bytes in [
        begin(&[]),
        [begin(&[]), call(1, 0)].concat(),
        [begin(&[]), call(1, 0), half].concat(),
        PREFACE[..20].to_vec(),
    ] {
        let mut stream = TcpStream::connect(server.address).await.expect("connected");
        stream.write_all(&bytes).await.expect("sent");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(is_well(&server).await);
    server.stop();
    // A call that waits for its client would be waited for.
    server.stopped().await;
}
