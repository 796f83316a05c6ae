//! The HTTP server and the client against each other.

mod common;

use std::env;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Authority, Server, Settings, node, read, said};
use config::Node;
use http::Method;
use net::client::{Client, ClientSettings, RequestError, url};
use net::{Address, Auth, ClientTls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

const IDLE: Duration = Duration::from_secs(30);

fn client(node: &Node, https: bool) -> Client {
    Client::build(&read::<ClientSettings>(node), node, https).expect("a client")
}

async fn post(client: &Client, address: &str, body: &str) -> Result<String, RequestError> {
    let url = url(&node("url"), address).expect("an address");
    let request = client.request(Method::POST, url)?.body(body.to_owned());
    let answer = client.send(request).await?;
    Ok(answer.text().await.expect("a body"))
}

#[tokio::test]
async fn requests_carry_what_the_settings_say() {
    let server = Server::start(None, IDLE, 10).await;
    let address = format!("http://{}/a?b=c", server.address);
    for (settings, expected) in [
        ("{}", "POST /a?b=c - hello 0"),
        (
            "auth: {basic: {user: Aladdin, password: open sesame}}",
            "POST /a?b=c Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ== hello 1",
        ),
        ("auth: {bearer: abc}", "POST /a?b=c Bearer abc hello 2"),
        (
            "headers: {Authorization: ApiKey xyz}",
            "POST /a?b=c ApiKey xyz hello 3",
        ),
    ] {
        let client = client(&node(settings), false);
        for _ in 0..3 {
            // Later requests go over the same connection.
            let answer = post(&client, &address, "hello").await.expect("an answer");
            assert_eq!(answer, expected);
        }
    }
}

#[test]
fn what_a_server_says_is_shown_without_secrets() {
    let said = "hunter2 abc ZWxhc3RpYzpodW50ZXIy key-1";
    for (settings, shown) in [
        ("{}", said),
        (
            "auth: {basic: {user: elastic, password: hunter2}}",
            "[secret] abc [secret] key-1",
        ),
        (
            "auth: {bearer: hunter2}",
            "[secret] abc ZWxhc3RpYzpodW50ZXIy key-1",
        ),
        // A secret that short is in any text.
        (
            "headers: {x-key: key-1, x-org: abc}",
            "hunter2 abc ZWxhc3RpYzpodW50ZXIy [secret]",
        ),
    ] {
        let client = client(&node(settings), false);
        assert_eq!(client.without_secrets(said.to_owned()), shown, "{settings}");
    }
}

#[tokio::test]
async fn tls_both_ways() {
    let authority = Authority::new();
    authority.issue("server", "localhost");
    authority.issue("client", "shipper");
    let tls = authority.node("cert: DIR/server.pem\nkey: DIR/server.key\nclient_ca: DIR/ca.pem\n");
    let server = Server::start(Some(&tls), IDLE, 10).await;
    let address = format!("https://localhost:{}/", server.address.port());
    let with = authority.node("tls: {ca: DIR/ca.pem, cert: DIR/client.pem, key: DIR/client.key}");
    let answer = post(&client(&with, true), &address, "x").await;
    assert_eq!(answer.expect("an answer"), "POST / - x 0");
    for settings in ["tls: {ca: DIR/ca.pem}", "{}"] {
        let answer = post(&client(&authority.node(settings), true), &address, "x").await;
        assert!(answer.is_err(), "{settings}: {answer:?}");
    }
}

#[tokio::test]
async fn failures_say_what_happened() {
    let server = Server::start(None, IDLE, 10).await;
    let plain = client(&node("timeout: 100ms"), false);
    let base = format!("http://{}", server.address);
    let moved = post(&plain, &format!("{base}/moved"), "x").await;
    assert!(
        matches!(&moved, Err(RequestError::Redirect { location, .. }) if location == "http://elsewhere/"),
        "{moved:?}"
    );
    let slow = post(&plain, &format!("{base}/slow"), "x").await;
    assert!(matches!(slow, Err(RequestError::Timeout(_))), "{slow:?}");
    let nobody = post(&plain, "http://127.0.0.1:1/", "x").await;
    let error = nobody.expect_err("nobody listens").to_string();
    assert!(
        error.contains("cannot connect: Connection refused"),
        "{error}"
    );
    let authority = Authority::new();
    let trusting = client(&authority.node("tls: {ca: DIR/ca.pem}"), true);
    let error = post(&trusting, &format!("https://{}/", server.address), "x").await;
    assert!(matches!(error, Err(RequestError::Connect(_))), "{error:?}");
}

#[test]
fn settings_that_cannot_work_are_refused_at_their_place() {
    for (settings, place, part) in [
        (
            "proxy: 'socks5://hunter2@x:1'",
            "t.yaml:1:8",
            "http://HOST:PORT",
        ),
        (
            "proxy: file:/nowhere/proxy",
            "t.yaml:1:8",
            "cannot read the secret",
        ),
        (
            "headers: {'a b': x}",
            "t.yaml:1:10",
            "`a b` is not the name of a header",
        ),
        (
            "headers: {x-key: \"hunter2\\n\"}",
            "t.yaml:1:18",
            "`headers.x-key` contains characters",
        ),
        (
            "auth: {bearer: \"hunter2\\n\"}",
            "t.yaml:1:16",
            "not allowed in a header",
        ),
        ("auth: {bearer: ''}", "t.yaml:1:16", "the secret is empty"),
        (
            "auth: {bearer: file:/nowhere/token}",
            "t.yaml:1:16",
            "cannot read the secret",
        ),
        (
            "auth: {basic: {user: 'a:b', password: hunter2}}",
            "t.yaml:1:22",
            "not contain a colon",
        ),
        ("tls: {ca: /nowhere/ca.pem}", "t.yaml:1:11", "cannot read"),
    ] {
        let node = node(settings);
        let error = said(Client::build(&read(&node), &node, false));
        assert!(
            error.contains(place) && error.contains(part),
            "{settings}: {error}"
        );
        assert!(!error.contains("hunter2"), "{error}");
    }
    for (address, part) in [
        ("localhost:9200", "write `http://localhost:9200`"),
        ("10.0.0.1:9200", "write `http://10.0.0.1:9200`"),
        ("es.example", "write `http://es.example`"),
        ("/x", "invalid URL"),
        ("ftp://x/", "not `ftp`"),
        ("https://elastic:hunter2@x/", "use `auth`"),
    ] {
        let error = said(url(&node(&format!("'{address}'")), address));
        assert!(
            error.contains(part) && error.contains("t.yaml:1"),
            "{address}: {error}"
        );
        assert!(!error.contains("hunter2"), "{error}");
    }
    let auth: Auth = read(&node("{basic: {user: u, password: hunter2}}"));
    assert!(!format!("{auth:?}").contains("hunter2"));
}

#[tokio::test]
async fn a_taken_port_is_an_error_of_its_setting() {
    let server = Server::start(None, IDLE, 10).await;
    let setting = node(&format!("address: {}", server.address));
    let setting = setting.nearest("address");
    let address: Address = read(setting);
    let error = said(address.bind(setting).await);
    assert!(
        error.contains("another program is already listening there"),
        "{error}"
    );
    assert!(error.contains("t.yaml:1:10"), "{error}");
    let elsewhere: Address = "192.0.2.1:80".parse().expect("an address");
    let error = said(elsewhere.bind(setting).await);
    assert!(
        error.contains("this machine does not have that address"),
        "{error}"
    );
}

#[tokio::test]
async fn every_address_is_that_of_both_families() {
    let address: Address = ":0".parse().expect("an address");
    let tcp = address.bind(&node("x")).await.expect("a free port");
    let port = tcp.local_addr().expect("an address").port();
    TcpStream::connect(("127.0.0.1", port))
        .await
        .expect("connected");
}

/// Reads until the other side closes; none if it does not within a second.
async fn rest(stream: &mut TcpStream) -> Option<String> {
    let mut text = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(1), stream.read_to_end(&mut text)).await;
    read.ok()?.ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

#[tokio::test]
async fn clients_that_dawdle_are_disconnected() {
    let server = Server::start(None, Duration::from_millis(200), 10).await;
    let mut silent = TcpStream::connect(server.address).await.expect("connected");
    let mut half = TcpStream::connect(server.address).await.expect("connected");
    half.write_all(b"POST / HTTP/1.1\r\nHost:")
        .await
        .expect("sent");
    let mut idle = TcpStream::connect(server.address).await.expect("connected");
    idle.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        .await
        .expect("sent");
    let begin = Instant::now();
    assert_eq!(rest(&mut silent).await.as_deref(), Some(""));
    assert!(rest(&mut half).await.is_some());
    assert!(
        rest(&mut idle)
            .await
            .expect("closed")
            .starts_with("HTTP/1.1 200 OK")
    );
    assert!(begin.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn a_client_that_sends_everything_first_reads_why_it_was_refused() {
    let authority = Authority::new();
    authority.issue("server", "localhost");
    let tls = authority.node("{cert: DIR/server.pem, key: DIR/server.key}");
    let server = Server::start(None, IDLE, 10).await;
    let secure = Server::start(Some(&tls), IDLE, 10).await;
    let mut body = vec![b'x'; 8 << 20];
    let head = format!(
        "POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    body.splice(0..0, head.into_bytes());
    let mut stream = TcpStream::connect(server.address).await.expect("connected");
    stream.write_all(&body).await.expect("all of it is taken");
    let answer = rest(&mut stream).await.expect("an answer");
    assert!(answer.ends_with("refused"), "{answer}");
    // Nobody waits for a client that has read and goes.
    drop(stream);

    let context = read::<ClientTls>(&authority.node("{ca: DIR/ca.pem}"))
        .open(&node("{}"))
        .expect("certificates");
    let tcp = TcpStream::connect(secure.address).await.expect("connected");
    let mut stream = context.connect(tcp, "localhost").await.expect("TLS");
    stream.write_all(&body).await.expect("all of it is taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.ends_with("refused"), "{answer}");
}

#[tokio::test]
async fn a_large_body_is_read_in_large_pieces() {
    let server = Server::start(None, IDLE, 10).await;
    let mut stream = TcpStream::connect(server.address).await.expect("connected");
    let body = vec![b'x'; 1 << 20];
    for _ in 0..2 {
        let head = format!(
            "POST /pieces HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.expect("sent");
        stream.write_all(&body).await.expect("sent");
        let mut answer = Vec::new();
        while !answer.windows(4).any(|part| part == b"\r\n\r\n") {
            let read = stream.read_buf(&mut answer).await;
            assert!(read.expect("an answer") > 0, "closed");
        }
        let answer = String::from_utf8(answer).expect("text");
        let (_, pieces) = answer.rsplit_once("\r\n").expect("a head and a body");
        // As the first ones, of 8 KiB, there would be 128.
        let pieces: usize = pieces.parse().expect("a number");
        assert!(pieces < 64, "{pieces}");
    }
}

#[tokio::test]
async fn a_client_that_reads_no_answer_is_disconnected() {
    let server = Server::start(None, Duration::from_millis(300), 1).await;
    let mut deaf = TcpStream::connect(server.address).await.expect("connected");
    // More than the buffers of both systems hold.
    let body = vec![b'x'; 32 << 20];
    let head = format!(
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    deaf.write_all(head.as_bytes()).await.expect("sent");
    deaf.write_all(&body).await.expect("sent");
    let next = TcpStream::connect(server.address).await;
    let mut next = next.expect("connected");
    next.write_all(
        b"POST /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    )
    .await
    .expect("sent");
    let mut answer = String::new();
    let read = next.read_to_string(&mut answer);
    let read = tokio::time::timeout(Duration::from_secs(20), read).await;
    read.expect("its place is free").expect("an answer");
    assert!(answer.contains("POST /x"), "{answer}");
    drop(deaf);
}

const EMPTY: &[u8] = b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";

/// The answer to [`EMPTY`] on a connection, which stays open.
async fn ask(stream: &mut TcpStream) -> String {
    stream.write_all(EMPTY).await.expect("sent");
    let mut answer = Vec::new();
    while !answer.windows(6).any(|part| part == b"POST /") {
        let soon = Duration::from_secs(5);
        let read = tokio::time::timeout(soon, stream.read_buf(&mut answer)).await;
        assert!(read.expect("an answer").expect("an answer") > 0, "closed");
    }
    String::from_utf8(answer).expect("text")
}

#[tokio::test]
async fn silent_connections_leave_for_another_one_and_others_stay() {
    let authority = Authority::new();
    authority.issue("server", "localhost");
    let tls = authority.node("{cert: DIR/server.pem, key: DIR/server.key}");
    let server = Server::start(None, IDLE, 10).await;
    let secure = Server::start(Some(&tls), IDLE, 10).await;
    let mut speaking = TcpStream::connect(server.address).await.expect("connected");
    ask(&mut speaking).await;
    let mut silent = Vec::new();
    for address in [server.address; 9].into_iter().chain([secure.address; 10]) {
        silent.push(TcpStream::connect(address).await.expect("connected"));
    }
    let begin = Instant::now();
    let mut more = Vec::new();
    for _ in 0..3 {
        let mut another = TcpStream::connect(server.address).await.expect("connected");
        ask(&mut another).await;
        more.push(another);
    }
    let context = read::<ClientTls>(&authority.node("{ca: DIR/ca.pem}"))
        .open(&node("{}"))
        .expect("certificates");
    let tcp = TcpStream::connect(secure.address).await.expect("connected");
    context.connect(tcp, "localhost").await.expect("TLS");
    assert!(begin.elapsed() < Duration::from_secs(3), "{begin:?}");
    // Those that came first left.
    for stream in &mut silent[..3] {
        assert_eq!(rest(stream).await.as_deref(), Some(""));
    }
    assert_eq!(rest(&mut silent[3]).await, None);
    for stream in [&mut speaking].into_iter().chain(&mut more) {
        ask(stream).await;
    }
}

#[tokio::test]
async fn a_connection_that_rests_goes_on_with_the_next_request() {
    let server = Server::start(None, IDLE, 10).await;
    let mut stream = TcpStream::connect(server.address).await.expect("connected");
    // The second request begins together with the first one.
    let (begin, end) = EMPTY.split_at(20);
    stream.write_all(EMPTY).await.expect("sent");
    stream.write_all(begin).await.expect("sent");
    for rest in [end, &[EMPTY, begin].concat(), end] {
        sleep(Duration::from_millis(1200)).await;
        stream.write_all(rest).await.expect("sent");
    }
    let mut answers = Vec::new();
    while String::from_utf8_lossy(&answers).matches("POST /x").count() < 4 {
        let soon = Duration::from_secs(5);
        let read = tokio::time::timeout(soon, stream.read_buf(&mut answers)).await;
        let shown = String::from_utf8_lossy(&answers);
        assert!(matches!(read, Ok(Ok(1..))), "{read:?}: {shown}");
    }
}

#[tokio::test]
async fn connections_beyond_the_limit_wait() {
    let server = Server::start(None, IDLE, 1).await;
    let mut first = TcpStream::connect(server.address).await.expect("connected");
    // One that sent nothing would leave.
    first.write_all(b"P").await.expect("sent");
    let mut second = TcpStream::connect(server.address).await.expect("connected");
    second
        .write_all(b"POST /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        .await
        .expect("sent");
    assert_eq!(rest(&mut second).await, None);
    drop(first);
    let answer = rest(&mut second).await.expect("an answer");
    assert!(answer.contains("POST /x"), "{answer}");
}

#[tokio::test]
async fn stopping_lets_requests_end() {
    let mut server = Server::start(None, IDLE, 10).await;
    let address = server.address;
    let mut idle = TcpStream::connect(address).await.expect("connected");
    let mut busy = TcpStream::connect(address).await.expect("connected");
    busy.write_all(b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        .await
        .expect("sent");
    sleep(Duration::from_millis(100)).await;
    server.stop();
    assert_eq!(rest(&mut idle).await.as_deref(), Some(""));
    let answer = rest(&mut busy).await.expect("closed after the answer");
    assert!(answer.contains("POST /slow"), "{answer}");
    server.stopped().await;
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_proxy_of_the_settings_is_used() {
    let proxy = Server::start(None, IDLE, 10).await;
    let settings = format!("proxy: http://user:secret@{}", proxy.address);
    let answer = post(
        &client(&node(&settings), false),
        "http://far.example/x",
        "y",
    )
    .await;
    // A proxy is asked for the whole address.
    assert_eq!(
        answer.expect("an answer"),
        "POST http://far.example/x - y 0"
    );
}

/// Run by the test below in a process of its own, whose environment names a proxy.
#[tokio::test]
async fn a_child_uses_the_proxy_of_its_environment() {
    let Ok(proxy) = env::var("http_proxy") else {
        return;
    };
    let through = client(&node("{}"), false);
    let answer = post(&through, "http://far.example/x", "y").await;
    assert_eq!(
        answer.expect("an answer"),
        "POST http://far.example/x - y 0"
    );
    let direct = post(&through, &format!("{proxy}/direct"), "y").await;
    assert_eq!(direct.expect("no_proxy names it"), "POST /direct - y 1");
    let direct = client(&node("{proxy: none, connect_timeout: 1s}"), false);
    let answer = post(&direct, &format!("{proxy}/none"), "y").await;
    assert_eq!(answer.expect("an answer"), "POST /none - y 2");
}

#[tokio::test]
async fn a_proxy_of_the_environment_is_used() {
    let proxy = Server::start(None, IDLE, 10).await;
    let program = env::current_exe().expect("this program");
    let child = tokio::task::spawn_blocking(move || {
        Command::new(program)
            .args(["--exact", "a_child_uses_the_proxy_of_its_environment"])
            .env("http_proxy", format!("http://{}", proxy.address))
            .env("no_proxy", "127.0.0.1")
            .output()
    });
    let output = child.await.expect("no panic").expect("it ran");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
}
