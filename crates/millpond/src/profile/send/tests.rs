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

/// Sends a profile to this address; what is reported. `ending` is that of the service.
fn sent(
    address: SocketAddr,
    protocol: &str,
    symbolize: fn() -> Command,
    ending: &Ending,
) -> String {
    let yaml = format!("{{url: 'http://{address}', protocol: {protocol}}}");
    let node = parse_yaml(&Source::new("t.yaml", &yaml)).unwrap();
    let said: Arc<Mutex<String>> = Arc::default();
    let saying = said.clone();
    let sender = Sender {
        destination: Destination::open(&node.deserialize().unwrap(), &node).unwrap(),
        store: Some("/there".into()),
        symbolize,
        deadline: Duration::from_secs(1),
        pause: Duration::from_millis(1),
        ending: ending.clone(),
        diagnostics: Diagnostics::new(move |text| saying.lock().push_str(text)),
    };
    let (queue, waiting) = sync_channel(2);
    let profile = collapsed::read("main;work 3\n", 20.0).unwrap();
    queue.send(profile).unwrap();
    drop(queue);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    sender.run(&waiting, &runtime.unwrap());
    said.lock().clone()
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
    let said = sent(address, "http/protobuf", hangs, &ending);
    assert!(
        said.contains("addresses instead of names: `millpond profile symbolize` took too long"),
        "{said}"
    );
    assert!(
        said.contains("1 profile was not sent to http://127.0.0.1:")
            && said.ends_with("only the store /there has it"),
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

/// Sends a profile over gRPC to a server that answers so; how many calls there were, and what is reported.
fn called(codes: &[Code]) -> (usize, String) {
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
    let said = sent(address, "grpc", fails, &Ending::default());
    let calls = *handler.calls.lock();
    (calls, said)
}

#[test]
fn a_profile_is_sent_again_if_a_server_is_not_available() {
    let (calls, said) = called(&[Code::Unavailable, Code::DeadlineExceeded]);
    assert_eq!(calls, 3, "{said}");
    let expected = "and will be sent again: UNAVAILABLE (gRPC status 14): that is the reason";
    assert!(said.contains(expected), "{said}");
    assert!(!said.contains("is not sent again"), "{said}");
}

#[test]
fn a_profile_that_is_refused_is_given_up() {
    for (code, name) in [
        (Code::Unauthenticated, "UNAUTHENTICATED (gRPC status 16)"),
        (Code::InvalidArgument, "INVALID_ARGUMENT (gRPC status 3)"),
        (
            Code::ResourceExhausted,
            "RESOURCE_EXHAUSTED (gRPC status 8)",
        ),
        (Code::Unimplemented, "UNIMPLEMENTED (gRPC status 12)"),
    ] {
        let (calls, said) = called(&[code]);
        assert_eq!(calls, 1, "{said}");
        let expected =
            format!("is not sent again (only the store /there has it): {name}: that is the reason");
        assert!(said.contains(&expected), "{said}");
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
    let said = sent(address, "grpc", fails, &ending);
    server.join().unwrap();
    assert!(
        said.contains("the server does not speak HTTP/2 on this port"),
        "{said}"
    );
}
