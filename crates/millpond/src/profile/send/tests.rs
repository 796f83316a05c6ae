use std::collections::VecDeque;
use std::future::pending;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use bytes::Bytes;
use config::{Source, parse_yaml};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use net::grpc::{self, AnswerBody, Code, Failure};
use net::{Address, ConnectionError, Handler, Listener, Peer};
use parking_lot::Mutex;
use profiler::collapsed;

use super::*;

/// Sends a profile to this address, and stops; what is reported, and whether it is kept. `ending` is that of the service.
fn sent(
    address: SocketAddr,
    protocol: &str,
    symbolize: fn() -> Command,
    ending: &Ending,
) -> (String, bool) {
    let yaml = format!("{{url: 'http://{address}', protocol: {protocol}}}");
    let node = parse_yaml(&Source::new("t.yaml", &yaml)).unwrap();
    let said: Arc<Mutex<String>> = Arc::default();
    let saying = said.clone();
    let folder = tempfile::tempdir().unwrap();
    let store = Store::at(folder.path());
    let diagnostics = Diagnostics::new(move |text| saying.lock().push_str(text));
    let sender = Sender {
        destination: Destination::open(&node.deserialize().unwrap(), &node).unwrap(),
        outbox: Outbox::open(&store, "a").unwrap(),
        store: "/there".into(),
        symbolize,
        deadline: Duration::from_secs(1),
        pause: Duration::from_millis(1),
        ending: ending.clone(),
        diagnostics: diagnostics.clone(),
    };
    let profile = collapsed::read("main;work 3\n", 20.0).unwrap();
    for file in store.write(&profile, "a").unwrap() {
        sender.outbox.put(&file, &diagnostics).unwrap();
    }
    let (open, closed) = oneshot::channel();
    drop(open);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(sender.run(closed));
    let is_kept = sender.outbox.next().unwrap().is_some();
    (said.lock().clone(), is_kept)
}

/// A process that gives no names, and does not end.
fn hangs() -> Command {
    let mut command = Command::new("sleep");
    command.arg("1000");
    command
}

/// A process that gives no names at once.
fn fails() -> Command {
    Command::new("false")
}

#[test]
fn a_stop_waits_neither_for_names_nor_for_an_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ending = Ending::default();
    ending.begin();
    let address = listener.local_addr().unwrap();
    let (said, is_kept) = sent(address, "http/protobuf", hangs, &ending);
    assert!(is_kept);
    assert!(
        said.contains("addresses instead of names: `millpond profile symbolize` took too long"),
        "{said}"
    );
    assert!(
        said.contains("not all profiles were sent to http://127.0.0.1:")
            && said.ends_with("the next run sends them"),
        "{said}"
    );
    // It was sent, with addresses, and not answered.
    let mut request = [0; 5];
    let (mut connection, _) = listener.accept().unwrap();
    connection.read_exact(&mut request).unwrap();
    assert_eq!(&request, b"POST ");
}

/// Answers calls with these codes, one after the other, and then with success.
struct Scripted {
    codes: Mutex<VecDeque<Code>>,
    calls: Mutex<usize>,
}

impl Handler for Scripted {
    type Session = ();
    const SPEAKS_HTTP2: bool = true;

    fn begin(&self, _: Peer) {}

    fn refused(&self, _: Peer, _: &ConnectionError) {}

    async fn handle(&self, (): &(), _: Request<Incoming>) -> Response<Full<Bytes>> {
        let mut answer = Response::new(Full::new("no calls here".into()));
        *answer.status_mut() = StatusCode::NOT_FOUND;
        answer
    }

    async fn call(&self, (): &(), _: Request<Incoming>) -> Response<AnswerBody> {
        *self.calls.lock() += 1;
        grpc::answer(match self.codes.lock().pop_front() {
            Some(code) => Err(Failure::new(code, "that is the reason")),
            None => Ok(b""),
        })
    }
}

/// Sends a profile over gRPC to a server that answers so; how many calls there were, what is reported, and whether the profile is
/// kept.
fn called(codes: &[Code]) -> (usize, String, bool) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let handler = Arc::new(Scripted {
        codes: Mutex::new(codes.iter().copied().collect()),
        calls: Mutex::default(),
    });
    let node = parse_yaml(&Source::new("t.yaml", "0")).unwrap();
    let address: Address = "127.0.0.1:0".parse().unwrap();
    let tcp = runtime.block_on(address.bind(&node)).unwrap();
    let listener = Listener::new(tcp, None, 10);
    let address = listener.local_addr().unwrap();
    let idle = Duration::from_secs(60);
    runtime.spawn(net::serve(
        listener,
        handler.clone(),
        idle,
        pending(),
        |_| {},
    ));
    let (said, is_kept) = sent(address, "grpc", fails, &Ending::default());
    let calls = *handler.calls.lock();
    (calls, said, is_kept)
}

#[test]
fn a_profile_is_sent_again_if_a_server_is_not_available() {
    let (calls, said, is_kept) = called(&[Code::Unavailable, Code::DeadlineExceeded]);
    assert_eq!(calls, 3, "{said}");
    let expected = "and will be sent again: UNAVAILABLE (gRPC status 14): that is the reason";
    assert!(said.contains(expected), "{said}");
    assert!(!is_kept && !said.contains("is not sent again"), "{said}");
}

#[test]
fn a_profile_whose_content_is_refused_is_given_up() {
    for (code, name) in [
        (Code::InvalidArgument, "INVALID_ARGUMENT (gRPC status 3)"),
        (
            Code::ResourceExhausted,
            "RESOURCE_EXHAUSTED (gRPC status 8)",
        ),
    ] {
        let (calls, said, is_kept) = called(&[code]);
        assert_eq!((calls, is_kept), (1, false), "{said}");
        let expected =
            format!("is not sent again (only the store /there has it): {name}: that is the reason");
        assert!(said.contains(&expected), "{said}");
    }
}

#[test]
fn a_profile_is_kept_while_a_server_takes_none() {
    for code in [Code::Unauthenticated, Code::Unimplemented] {
        // Once by itself, and once at the stop.
        let (calls, said, is_kept) = called(&[code, code]);
        assert_eq!((calls, is_kept), (2, true), "{said}");
        assert!(said.ends_with("the next run sends them"), "{said}");
        let (calls, said, is_kept) = called(&[code]);
        assert_eq!((calls, is_kept), (2, false), "{said}");
    }
}

#[test]
fn a_server_without_http2_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let ending = Ending::default();
    let ends = ending.clone();
    let server = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut request = [0; 24];
        connection.read_exact(&mut request).unwrap();
        ends.begin();
        let answer = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        connection.write_all(answer).unwrap();
        // Closed once the client has closed, so that it reads the answer.
        let _ = connection.read_to_end(&mut Vec::new());
    });
    let (said, _) = sent(address, "grpc", fails, &ending);
    server.join().unwrap();
    assert!(
        said.contains("the server does not speak HTTP/2 on this port"),
        "{said}"
    );
}
