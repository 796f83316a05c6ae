//! What the tests of TLS and HTTP share: settings from YAML, a server that answers.
#![allow(dead_code)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use config::{ConfigError, Node, Source, parse_yaml};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use net::grpc::{self, AnswerBody};
use net::{Address, ConnectionError, Handler, Listener, Peer, ServerTls, serve};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
pub use testkit::authority::Authority;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Settings that name files of an authority.
pub trait Settings {
    /// A YAML text with `DIR` replaced by the authority's folder.
    fn node(&self, yaml: &str) -> Node;
}

impl Settings for Authority {
    fn node(&self, yaml: &str) -> Node {
        node(&self.with_folder(yaml))
    }
}

pub fn node(yaml: &str) -> Node {
    parse_yaml(&Source::new("t.yaml", yaml)).expect("YAML")
}

pub fn read<T: DeserializeOwned>(node: &Node) -> T {
    node.deserialize().expect("settings")
}

/// Answers every call with its message; `/slow` takes its time. Answers every request with its method, its path, its `Authorization` and its body; `/pieces` with how many pieces the body came
/// in, all of which is there when the first one is read. Keeps why connections were refused.
#[derive(Default)]
pub struct Echo {
    pub refusals: Mutex<Vec<String>>,
}

impl Handler for Echo {
    type Session = Peer;
    const SPEAKS_HTTP2: bool = true;

    fn begin(&self, peer: Peer) -> Peer {
        peer
    }

    fn refused(&self, _: Peer, reason: &ConnectionError) {
        self.refusals.lock().push(reason.to_string());
    }

    async fn handle(&self, peer: &Peer, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, mut body) = request.into_parts();
        let path = head.uri.to_string();
        if path.ends_with("/slow") {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        if path.ends_with("/pieces") {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let mut pieces = 0;
            while let Some(Ok(_)) = body.frame().await {
                pieces += 1;
            }
            return Response::new(Full::new(pieces.to_string().into()));
        }
        if path.ends_with("/refused") {
            let mut answer = Response::new(Full::new("refused".into()));
            let close = "close".parse().expect("a value");
            answer.headers_mut().insert("connection", close);
            return answer;
        }
        let body = match body.collect().await {
            Ok(body) => body.to_bytes(),
            Err(_) => Bytes::from_static(b"broken"),
        };
        let auth = head.headers.get("authorization");
        let auth = auth.map_or("-", |auth| auth.to_str().expect("text"));
        let text = format!(
            "{} {path} {auth} {} {}",
            head.method,
            String::from_utf8_lossy(&body),
            peer.connection
        );
        let mut answer = Response::new(Full::new(text.into()));
        if path.ends_with("/moved") {
            *answer.status_mut() = http::StatusCode::FOUND;
            let place = "http://elsewhere/".parse().expect("a value");
            answer.headers_mut().insert("location", place);
        }
        answer
    }

    async fn call(&self, _: &Peer, request: Request<Incoming>) -> Response<AnswerBody> {
        let (head, body) = request.into_parts();
        if head.uri.path() == "/slow" {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let message = match grpc::is_gzip(&head.headers) {
            Ok(is_gzip) => grpc::message(body, is_gzip, MESSAGE_BYTES_MAX).await,
            Err(failure) => Err(failure),
        };
        grpc::answer(message.as_deref().map_err(Clone::clone))
    }
}

/// How long a message of a call may be.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// A server on a port of its own.
pub struct Server {
    pub address: SocketAddr,
    pub handler: Arc<Echo>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Server {
    pub async fn start(tls: Option<&Node>, idle_timeout: Duration, connections: usize) -> Self {
        let setting = node("0");
        let address: Address = "0".parse().expect("an address");
        let tcp = address.bind(&setting).await.expect("a free port");
        let tls = tls.map(|node| {
            read::<ServerTls>(node)
                .open_with_http2(node)
                .expect("certificates")
        });
        let listener = Listener::new(tcp, tls, connections);
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async {
            let _ = stopped.await;
        };
        let handler = Arc::new(Echo::default());
        let serving = serve(listener, handler.clone(), idle_timeout, stopped, |_| {});
        let task = tokio::spawn(serving);
        Self {
            address,
            handler,
            stop: Some(stop),
            task,
        }
    }

    /// Begins to stop; [`Server::stopped`] waits for the end.
    pub fn stop(&mut self) {
        drop(self.stop.take());
    }

    pub async fn stopped(self) {
        self.task.await.expect("no panic");
    }
}

/// What an error says.
pub fn said<T>(result: Result<T, ConfigError>) -> String {
    match result {
        Ok(_) => panic!("an error is expected"),
        Err(error) => error.to_string(),
    }
}
