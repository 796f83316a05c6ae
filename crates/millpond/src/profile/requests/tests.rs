use std::convert::Infallible;
use std::future::pending;
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use config::{Node, Source, parse_yaml};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::Method;
use hyper::body::{Body, Frame};
use net::client::reqwest;
use net::{Address, Client, Listener};
use parking_lot::Mutex;
use profiler::collapsed;
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::*;

/// A receiver of profiles with a client that knows the secret.
struct Receiver {
    folder: TempDir,
    url: String,
    said: Arc<Mutex<String>>,
}

fn node(yaml: &str) -> Node {
    parse_yaml(&Source::new("t.yaml", yaml)).unwrap()
}

impl Receiver {
    /// One that takes messages of up to 1 MiB, and waits so long for one.
    async fn start(body_timeout: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings =
            node("{address: '127.0.0.1:0', auth: {bearer: secret}, max_request_bytes: 1MiB}");
        let said: Arc<Mutex<String>> = Arc::default();
        let saying = said.clone();
        let diagnostics = Diagnostics::new(move |text| saying.lock().push_str(text));
        let store = Store::at(&folder.path().join("store"));
        let service = Service {
            body_timeout,
            ..Service::new(&settings.deserialize().unwrap(), store, diagnostics)
        };
        let address: Address = "127.0.0.1:0".parse().unwrap();
        let listener = Listener::new(address.bind(&settings).await.unwrap(), None, 10);
        let url = format!("http://{}", listener.local_addr().unwrap());
        let idle = Duration::from_secs(60);
        tokio::spawn(net::serve(
            listener,
            Arc::new(service),
            idle,
            pending(),
            |_| {},
        ));
        Self { folder, url, said }
    }

    /// The status of a call, with these headers beside those that every call has.
    async fn call(
        &self,
        path: &str,
        token: &str,
        encoding: &str,
        body: impl Into<reqwest::Body>,
    ) -> (u32, String) {
        let settings = node(&format!("{{auth: {{bearer: {token}}}}}"));
        let client = Client::build_http2(&settings.deserialize().unwrap(), &settings, false);
        let client = client.unwrap();
        let url = reqwest::Url::parse(&format!("{}{path}", self.url)).unwrap();
        let request = client.request(Method::POST, url).unwrap();
        let request = request
            .header(CONTENT_TYPE, grpc::MEDIA_TYPE)
            .header("grpc-encoding", encoding)
            .body(body);
        let answer = client.send(request).await.unwrap();
        let (head, body) = Response::<reqwest::Body>::from(answer).into_parts();
        let body = body.collect().await.unwrap();
        grpc::status(&head.headers, body.trailers()).unwrap()
    }

    fn profiles(&self) -> usize {
        let store = Store::at(&self.folder.path().join("store"));
        store.hosts().map_or(0, |hosts| hosts.len())
    }
}

fn profile() -> Vec<u8> {
    otlp::write(&collapsed::read("main;work 3\n", 20.0).unwrap(), "0")
}

fn packed(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    let packed = encoder.finish().unwrap();
    let mut framed = grpc::framed(&packed).unwrap().to_vec();
    framed[0] = 1;
    framed.into()
}

/// A body that begins, and never ends.
struct Stalled(Option<Bytes>);

impl Body for Stalled {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.0.take() {
            Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            None => Poll::Pending,
        }
    }
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn calls_that_cannot_be_taken_have_a_status_with_a_reason() {
    let receiver = Receiver::start(LONG).await;
    let framed = |bytes: &[u8]| grpc::framed(bytes).unwrap();
    let two = [framed(&profile()), framed(&profile())].concat();
    let bomb = packed(&vec![0; 64 << 20]);
    assert!(bomb.len() < 1 << 20);
    let mut damaged = packed(&profile()).to_vec();
    damaged.truncate(20);
    let length = damaged.len() as u8 - 5;
    damaged[1..5].copy_from_slice(&[0, 0, 0, length]);
    for (path, token, encoding, body, code, reason) in [
        (METHOD, "secret", "identity", framed(b"junk"), 3, ""),
        (METHOD, "secret", "identity", Bytes::new(), 3, "cut off"),
        (
            METHOD,
            "secret",
            "identity",
            Bytes::from_static(b"\0\xff"),
            3,
            "cut off",
        ),
        (
            METHOD,
            "secret",
            "identity",
            two.into(),
            3,
            "more than one message",
        ),
        (METHOD, "secret", "gzip", damaged.into(), 3, "is damaged"),
        (
            METHOD,
            "secret",
            "identity",
            framed(&vec![0; 2 << 20]),
            8,
            "larger than 1048576 bytes",
        ),
        (
            METHOD,
            "secret",
            "identity",
            vec![0xff; 5].into(),
            8,
            "larger than 1048576 bytes",
        ),
        (
            METHOD,
            "secret",
            "gzip",
            bomb,
            8,
            "larger than 1048576 bytes",
        ),
        (
            METHOD,
            "secret",
            "zstd",
            framed(&profile()),
            12,
            "gzip or none",
        ),
        (
            "/other/Export",
            "secret",
            "identity",
            framed(&profile()),
            12,
            METHOD,
        ),
        (
            METHOD,
            "wrong",
            "identity",
            framed(&profile()),
            16,
            "credentials",
        ),
    ] {
        let (status, text) = receiver.call(path, token, encoding, body).await;
        assert_eq!(status, code, "{path} {token} {encoding}: {text}");
        assert!(
            !text.is_empty() && text.contains(reason),
            "{reason}: {text}"
        );
    }
    assert_eq!(receiver.profiles(), 0);
    let said = receiver.said.lock().clone();
    assert!(
        said.contains("a profile of 127.0.0.1 was refused: "),
        "{said}"
    );
    for (encoding, body) in [
        ("identity", framed(&profile())),
        ("gzip", packed(&profile())),
    ] {
        let status = receiver.call(METHOD, "secret", encoding, body).await;
        assert_eq!(status, (0, String::new()));
    }
    assert_eq!(receiver.profiles(), 1);
}

#[tokio::test]
async fn slow_calls_end_and_make_room_for_others() {
    let receiver = Arc::new(Receiver::start(Duration::from_millis(300)).await);
    let slow = || reqwest::Body::wrap(Stalled(Some(Bytes::from_static(b"\0\0\0\x01\0half"))));
    // Twice as many as are read at the same time.
    let mut calls = JoinSet::new();
    for _ in 0..2 * BODIES_MAX {
        let (receiver, body) = (receiver.clone(), slow());
        calls.spawn(async move { receiver.call(METHOD, "secret", "identity", body).await });
    }
    for (status, text) in calls.join_all().await {
        assert_eq!((status, &*text), (4, "the message did not arrive in time"));
    }
    let body = grpc::framed(&profile()).unwrap();
    let status = receiver.call(METHOD, "secret", "identity", body).await;
    assert_eq!(status, (0, String::new()));
}

#[tokio::test]
async fn a_store_that_cannot_be_written_is_unavailable() {
    let receiver = Receiver::start(LONG).await;
    std::fs::write(receiver.folder.path().join("store"), "a file").unwrap();
    let body = grpc::framed(&profile()).unwrap();
    let (status, text) = receiver.call(METHOD, "secret", "identity", body).await;
    assert_eq!(status, 14, "{text}");
    assert!(text.contains("send them again"), "{text}");
    let said = receiver.said.lock().clone();
    assert!(said.contains("profiles cannot be stored in "), "{said}");
}
