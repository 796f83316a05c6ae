//! Clients against sockets of this process.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use component::{Request, SendError, Sender, Spec};
use tokio::runtime::{Builder, Runtime};

use crate::testing::build_sender;

fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}

struct Client {
    runtime: Runtime,
    output: Arc<dyn Sender>,
}

impl Client {
    fn new(spec: &Spec, settings: &str) -> Self {
        let runtime = runtime();
        let output = build_sender(spec, settings).expect("settings");
        runtime.block_on(output.open()).expect("it opens");
        Self { runtime, output }
    }

    fn send(&self, body: &[u8]) -> Result<component::Sent, SendError> {
        let request = Request {
            id: 1,
            destination: "".into(),
            body: body.to_vec().into(),
            rows: 1,
            attempt: 0,
        };
        self.runtime.block_on(self.output.send(&request))
    }

    fn counter(&self, name: &str) -> u64 {
        let counters = self.output.take_counters();
        let counter = counters.into_iter().find(|(known, _)| *known == name);
        counter.expect("a counter").1
    }
}

fn tcp(listener: &TcpListener, settings: &str) -> Client {
    let address = listener.local_addr().expect("an address");
    Client::new(
        &crate::tcp::SPEC,
        &format!("{{address: '{address}', {settings}}}"),
    )
}

fn exactly(mut from: &TcpStream, length: usize) -> String {
    let mut read = vec![0; length];
    from.read_exact(&mut read).expect("bytes");
    String::from_utf8(read).expect("UTF-8")
}

#[test]
fn what_a_server_did_not_read_is_sent_again() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = tcp(&listener, "");
    client.send(b"one\n").expect("the system has it");
    let (first, _) = listener.accept().expect("a connection");
    assert_eq!(exactly(&first, 4), "one\n");
    client.send(b"two\n").expect("the system has it");
    // Closed with bytes that were not read: a reset.
    drop(first);
    client.send(b"three\n").expect("the system has it");
    let (second, _) = listener.accept().expect("a connection");
    assert_eq!(exactly(&second, 14), "one\ntwo\nthree\n");
    assert_eq!(client.counter("resent_bytes"), 8);
    client.send(b"four\n").expect("the system has it");
    assert_eq!(exactly(&second, 5), "four\n", "on the same connection");
}

#[test]
fn what_was_sent_last_is_sent_again_without_a_further_request() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = tcp(&listener, "");
    client.send(b"one\n").expect("the system has it");
    // Closed with bytes that were not read.
    drop(listener.accept().expect("a connection"));
    let reader = thread::spawn(move || exactly(&listener.accept().expect("a connection").0, 4));
    client.runtime.block_on(async {
        while !reader.is_finished() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert_eq!(reader.join().expect("a reader"), "one\n");
}

#[test]
fn nothing_is_sent_again_if_that_is_set() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = tcp(&listener, "max_resend_bytes: 0");
    client.send(b"one\n").expect("the system has it");
    let (first, _) = listener.accept().expect("a connection");
    assert_eq!(exactly(&first, 4), "one\n");
    first.shutdown(Shutdown::Both).expect("open");
    client.send(b"two\n").expect("the system has it");
    let (second, _) = listener.accept().expect("a connection");
    assert_eq!(exactly(&second, 4), "two\n");
    assert_eq!(client.counter("reconnects"), 1);
}

#[test]
fn what_a_server_says_is_ignored() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = tcp(&listener, "");
    client.send(b"one\n").expect("the system has it");
    let (mut first, _) = listener.accept().expect("a connection");
    first.write_all(&[b'x'; 100_000]).expect("room");
    client.send(b"two\n").expect("the system has it");
    assert_eq!(exactly(&first, 8), "one\ntwo\n");
    drop(client);
    // The end is the usual one, although something had been said.
    assert_eq!(first.read(&mut [0; 1]).expect("no reset"), 0);
}

#[test]
fn a_server_that_reads_nothing_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = tcp(&listener, "write_timeout: 200ms");
    let error = client
        .send(&vec![b'x'; 64 << 20])
        .expect_err("nobody reads");
    assert!(matches!(&error, SendError::Retry(_)));
    let text = error.to_string();
    assert!(text.contains("has read nothing for 200ms"), "{text}");
}

#[test]
fn an_address_where_nobody_listens_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = tcp(&listener, "");
    let address = listener.local_addr().expect("an address").to_string();
    drop(listener);
    let text = client
        .send(b"one\n")
        .expect_err("nobody listens")
        .to_string();
    assert!(
        text.starts_with(&address) && text.contains("cannot connect"),
        "{text}"
    );
    let client = Client::new(&crate::tcp::SPEC, "address: 'no-such-host.invalid:1'");
    let text = client.send(b"one\n").expect_err("no such host").to_string();
    assert!(
        text.starts_with("no-such-host.invalid:1: cannot connect"),
        "{text}"
    );
}

#[test]
fn another_server_gets_what_the_first_one_does_not() {
    let (one, two) = [(); 2]
        .map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"))
        .into();
    let addresses = [&one, &two].map(|listener| listener.local_addr().expect("an address"));
    let settings = format!("address: ['{}', '{}']", addresses[0], addresses[1]);
    let client = Client::new(&crate::tcp::SPEC, &settings);
    client.send(b"one\n").expect("the system has it");
    let (first, _) = one.accept().expect("a connection");
    // Closed with bytes that were not read.
    drop((first, one));
    client.send(b"two\n").expect("the system has it");
    let (second, _) = two.accept().expect("a connection");
    assert_eq!(exactly(&second, 8), "one\ntwo\n");
    drop((second, two));
    let text = client
        .send(b"three\n")
        .expect_err("nobody is left")
        .to_string();
    assert!(text.contains("cannot connect"), "{text}");
}

#[test]
fn a_request_to_a_local_socket_is_delivered_when_it_was_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("s");
    let listener = UnixListener::bind(&path).expect("a socket");
    let settings = format!("{{path: '{}'}}", path.display());
    let client = Client::new(&crate::unix::SPEC, &settings);
    let reader = thread::spawn(move || {
        let (mut connection, _) = listener.accept().expect("a connection");
        thread::sleep(Duration::from_millis(50));
        let mut read = vec![0; 1 << 20];
        connection.read_exact(&mut read).expect("bytes");
        read
    });
    client.send(&vec![b'x'; 1 << 20]).expect("it is read");
    assert_eq!(reader.join().expect("a reader").len(), 1 << 20);
}

fn length(datagram: &[u8]) -> Vec<u8> {
    [&(datagram.len() as u32).to_le_bytes()[..], datagram].concat()
}

#[test]
fn datagrams_go_out_one_by_one() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("an address");
    let client = Client::new(&crate::udp::SPEC, &format!("address: '{address}'"));
    let body = [length(b"one"), length(b""), length(b"three")].concat();
    let sent = client.send(&body).expect("sent");
    assert!(sent.refused.is_empty());
    let mut space = [0; 100];
    for expected in ["one", "", "three"] {
        let read = socket.recv(&mut space).expect("a datagram");
        assert_eq!(&space[..read], expected.as_bytes());
    }
    drop(socket);
    let error = client.send(&body).expect_err("nobody receives");
    assert_eq!(
        error,
        SendError::Retry(format!("{address}: nobody receives there"))
    );
    let socket = UdpSocket::bind(address).expect("the port is free");
    client.send(&body).expect("sent");
    assert_eq!(socket.recv(&mut space).expect("a datagram"), 3);
}

#[test]
fn abstract_names_are_names() {
    let name = format!("millpond-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("an address");
    let socket = UnixDatagram::bind_addr(&address).expect("a socket");
    let settings = format!("{{path: '@{name}', kind: datagram}}");
    let client = Client::new(&crate::unix::SPEC, &settings);
    client.send(&length(b"one")).expect("sent");
    let mut space = [0; 100];
    assert_eq!(socket.recv(&mut space).expect("a datagram"), 3);
    drop(socket);
    let error = client.send(&length(b"one")).expect_err("nobody receives");
    assert!(
        error.to_string().starts_with(&format!("@{name}: ")),
        "{error}"
    );
    let listener = UnixListener::bind_addr(&address).expect("a socket");
    let client = Client::new(&crate::unix::SPEC, &format!("{{path: '@{name}'}}"));
    let reader = thread::spawn(move || {
        let (mut connection, _) = listener.accept().expect("a connection");
        connection.read_exact(&mut [0; 4]).expect("bytes");
    });
    client.send(b"one\n").expect("sent");
    reader.join().expect("a reader");
}

#[test]
fn settings_that_do_not_fit_are_refused() {
    for (spec, settings, part) in [
        (&crate::tcp::SPEC, "address: host", "no port"),
        (
            &crate::tcp::SPEC,
            "{address: 'h:1', codec: msgpack, framing: lf}",
            "may contain any byte",
        ),
        (
            &crate::tcp::SPEC,
            "{address: 'h:1', timezone: UTC}",
            "`timezone`",
        ),
        (
            &crate::udp::SPEC,
            "{address: 'h:1', max_datagram_bytes: 65508}",
            "at most 65507",
        ),
        (&crate::unix::SPEC, "{path: ''}", "expected the path"),
        (
            &crate::unix::SPEC,
            "{path: s, kind: datagram, framing: lf}",
            "`kind: stream`",
        ),
        (
            &crate::unix::SPEC,
            "{path: s, oversized: truncate}",
            "`kind: datagram`",
        ),
    ] {
        let error = build_sender(spec, settings).err();
        let error = error
            .unwrap_or_else(|| panic!("{settings} was taken"))
            .to_string();
        assert!(error.contains(part), "{settings}: {error}");
    }
    let long = "x".repeat(200);
    let error = build_sender(&crate::unix::SPEC, &format!("path: {long}")).err();
    assert!(
        error
            .expect("too long")
            .to_string()
            .contains("invalid path")
    );
}
