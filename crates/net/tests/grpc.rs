//! HTTP/2 and calls of gRPC beside HTTP/1.1, on the same port.

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::{Authority, MESSAGE_BYTES_MAX, Server, Settings, node, read};
use config::Node;
use http::Method;
use http_body_util::{BodyExt, Full};
use net::client::reqwest::Body;
use net::client::{Client, ClientSettings, url};
use net::grpc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const IDLE: Duration = Duration::from_secs(30);

fn client(node: &Node, https: bool) -> Client {
    Client::build_http2(&read::<ClientSettings>(node), node, https).expect("a client")
}

/// Sends a body as a call; the status, and the message of the answer.
async fn send(
    client: &Client,
    address: &str,
    body: impl Into<Bytes>,
) -> ((u32, String), Result<Bytes, grpc::Failure>) {
    let url = url(&node("url"), address).expect("an address");
    let request = client.request(Method::POST, url).expect("a request");
    let request = request
        .header("content-type", grpc::MEDIA_TYPE)
        .body(body.into());
    let answer = client.send(request).await.expect("an answer");
    let (head, body) = http::Response::<Body>::from(answer).into_parts();
    let body = body.collect().await.expect("a whole answer");
    let status = grpc::status(&head.headers, body.trailers()).expect("a status");
    let message = grpc::message(Full::new(body.to_bytes()), false, usize::MAX).await;
    (status, message)
}

async fn call(client: &Client, address: &str, message: &[u8]) -> Bytes {
    let body = grpc::framed(message).expect("a message");
    let (status, answer) = send(client, address, body).await;
    assert_eq!(status, (0, String::new()));
    answer.expect("a message")
}

#[tokio::test]
async fn calls_are_answered_beside_requests() {
    let mut server = Server::start(None, IDLE, 10).await;
    let address = format!("http://{}/a", server.address);
    let calling = client(&node("{}"), false);
    assert_eq!(call(&calling, &address, b"hello").await, "hello");
    let large = vec![7; MESSAGE_BYTES_MAX];
    assert_eq!(call(&calling, &address, &large).await, large);
    // The same connection, without a call.
    let request = calling.request(
        Method::POST,
        url(&node("url"), &address).expect("an address"),
    );
    let answer = calling.send(request.expect("a request").body("x")).await;
    let text = answer.expect("an answer").text().await.expect("a body");
    assert!(text.ends_with("/a - x 0"), "{text}");
    let settings = ClientSettings::default();
    let plain = Client::build(&settings, &node("{}"), false).expect("a client");
    let request = plain.request(
        Method::POST,
        url(&node("url"), &address).expect("an address"),
    );
    let answer = plain.send(request.expect("a request").body("x")).await;
    let text = answer.expect("an answer").text().await.expect("a body");
    assert_eq!(text, "POST /a - x 1");
    server.stop();
    server.stopped().await;
}

#[tokio::test]
async fn many_calls_share_a_connection() {
    let server = Server::start(None, IDLE, 1).await;
    let address = format!("http://{}/slow", server.address);
    let client = client(&node("{}"), false);
    // From the first answer on, the client knows how many it may send at the same time; the server refuses others before that.
    call(&client, &address, b"first").await;
    // Each is larger than what a connection holds of it.
    let mut calls = JoinSet::new();
    for number in 0..10 {
        let (client, address) = (client.clone(), address.clone());
        calls.spawn(async move {
            let message = vec![number; 200_000];
            assert_eq!(call(&client, &address, &message).await, message);
        });
    }
    calls.join_all().await;
}

#[tokio::test]
async fn wrong_calls_have_a_status() {
    let server = Server::start(None, IDLE, 10).await;
    let address = format!("http://{}/", server.address);
    let client = client(&node("{}"), false);
    let large = grpc::framed(&vec![0; MESSAGE_BYTES_MAX + 1]).expect("a message");
    for (body, code) in [
        (large, 8),
        (Bytes::new(), 3),
        (vec![1, 0, 0, 0, 0].into(), 13),
    ] {
        let ((status, text), answer) = send(&client, &address, body).await;
        assert_eq!(status, code, "{text}");
        assert!(!text.is_empty() && answer.is_err());
    }
    assert_eq!(call(&client, &address, b"still there").await, "still there");
}

#[tokio::test]
async fn tls_agrees_on_http2() {
    let authority = Authority::new();
    authority.issue("server", "localhost");
    let tls = authority.node("{cert: DIR/server.pem, key: DIR/server.key}");
    let server = Server::start(Some(&tls), IDLE, 10).await;
    let address = format!("https://localhost:{}/", server.address.port());
    let client = client(&authority.node("tls: {ca: DIR/ca.pem}"), true);
    assert_eq!(call(&client, &address, b"secret").await, "secret");
}

#[tokio::test]
async fn the_beginning_of_a_connection_may_come_in_pieces() {
    let server = Server::start(None, IDLE, 10).await;
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let http2 = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings].concat();
    let http1 = b"P /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    // The head of a frame with settings.
    let frame = |answer: &[u8]| answer[3] == 4;
    for (bytes, is_answer) in [
        (&http2[..], &frame as &dyn Fn(&[u8]) -> bool),
        (http1, &|answer: &[u8]| answer == b"HTTP/1.1 "),
    ] {
        for first in [1, 2, 10, 24] {
            let mut stream = TcpStream::connect(server.address).await.expect("connected");
            stream.set_nodelay(true).expect("a socket");
            stream.write_all(&bytes[..first]).await.expect("sent");
            tokio::time::sleep(Duration::from_millis(20)).await;
            stream.write_all(&bytes[first..]).await.expect("sent");
            let mut answer = [0; 9];
            stream.read_exact(&mut answer).await.expect("an answer");
            assert!(is_answer(&answer), "{first}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn silent_connections_end() {
    let server = Server::start(None, Duration::from_millis(100), 10).await;
    let mut stream = TcpStream::connect(server.address).await.expect("connected");
    let bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    stream.write_all(bytes).await.expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("closed");
    // The last frames say that it ends: GOAWAY.
    assert!(
        answer.windows(3).any(|part| part == [8, 7, 0]),
        "{answer:?}"
    );
}
