//! An HTTP server that does what a test wants and keeps what it got.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::{Mutex, MutexGuard};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use crate::ports::free_port;

/// A request whose body arrived as a whole.
#[derive(Debug, Clone)]
pub struct Taken {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, as its `Content-Encoding` says.
    pub body: Bytes,
    /// The status that it was answered with.
    pub status: StatusCode,
}

impl Taken {
    /// A header as text; empty where it is not there.
    ///
    /// # Panics
    /// When it is no text.
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().expect("text"))
    }

    /// The body as text, decompressed.
    ///
    /// # Panics
    /// When it is damaged, or no text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let read = match self.header("content-encoding") {
            "gzip" => flate2::read::GzDecoder::new(&*self.body).read_to_string(&mut text),
            "zstd" => zstd::stream::read::Decoder::new(&*self.body)
                .and_then(|mut decoder| decoder.read_to_string(&mut text)),
            _ => (&*self.body).read_to_string(&mut text),
        };
        read.expect("a body");
        text
    }
}

/// What a server answers.
#[derive(Debug, Clone)]
pub struct Answer {
    status: StatusCode,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
    delay: Duration,
}

impl Answer {
    /// An answer with a status.
    ///
    /// # Panics
    /// When there is no such status.
    pub fn new(status: u16) -> Self {
        Self {
            status: StatusCode::from_u16(status).expect("a status"),
            headers: Vec::new(),
            body: Bytes::new(),
            delay: Duration::ZERO,
        }
    }

    /// With a header.
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// With a body.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Given after a while.
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }
}

/// What a server does with a request, which it sees with the number of those before it.
type Behaviour = dyn Fn(&Taken, usize) -> Answer + Send + Sync;

/// A server on this machine. It ends in the middle of everything when it is dropped.
pub struct HttpServer {
    address: SocketAddr,
    taken: Arc<Mutex<Vec<Taken>>>,
    runtime: Option<Runtime>,
}

impl HttpServer {
    /// One that answers each request as it is told.
    ///
    /// # Panics
    /// When the machine has no port left.
    pub fn start(behaviour: impl Fn(&Taken, usize) -> Answer + Send + Sync + 'static) -> Self {
        // A port that it can have again after a stop.
        Self::start_at(free_port(), None, behaviour)
    }

    /// One at this port, with TLS where it is given certificates.
    ///
    /// # Panics
    /// When the port cannot be had.
    pub fn start_at(
        port: u16,
        tls: Option<Arc<ServerConfig>>,
        behaviour: impl Fn(&Taken, usize) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let listener = {
            let _entered = runtime.enter();
            listen(port)
        };
        let address = listener.local_addr().expect("an address");
        let taken = Arc::default();
        let shared = Shared {
            taken: Arc::clone(&taken),
            behaviour: Arc::new(behaviour),
        };
        runtime.spawn(accept(listener, tls, shared));
        Self {
            address,
            taken,
            runtime: Some(runtime),
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address as text.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The server without its connections and its port: what it took is still there.
    pub fn stopped(mut self) -> Self {
        if let Some(runtime) = self.runtime.take() {
            // Until no thread can answer any more, and the port is free.
            runtime.shutdown_timeout(Duration::from_secs(10));
        }
        self
    }

    /// Every request so far whose body arrived as a whole.
    pub fn taken(&self) -> Vec<Taken> {
        lock(&self.taken).clone()
    }

    /// The lines of the requests so far that were answered with 200.
    pub fn lines(&self) -> Vec<String> {
        let taken = self.taken();
        let good = taken.iter().filter(|taken| taken.status.is_success());
        let texts = good.map(Taken::text);
        texts
            .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
            .collect()
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[derive(Clone)]
struct Shared {
    taken: Arc<Mutex<Vec<Taken>>>,
    behaviour: Arc<Behaviour>,
}

fn lock(taken: &Mutex<Vec<Taken>>) -> MutexGuard<'_, Vec<Taken>> {
    taken.lock()
}

fn listen(port: u16) -> TcpListener {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseaddr(true).expect("an option");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    socket.bind(address).expect("a free port");
    socket.listen(1024).expect("it listens")
}

async fn accept(listener: TcpListener, tls: Option<Arc<ServerConfig>>, shared: Shared) {
    let tls = tls.map(TlsAcceptor::from);
    while let Ok((connection, _)) = listener.accept().await {
        let (tls, shared) = (tls.clone(), shared.clone());
        tokio::spawn(async move {
            match tls {
                None => shared.serve(connection).await,
                Some(tls) => {
                    if let Ok(connection) = tls.accept(connection).await {
                        shared.serve(connection).await;
                    }
                }
            }
        });
    }
}

impl Shared {
    async fn serve(self, connection: impl AsyncRead + AsyncWrite + Unpin) {
        let service = service_fn(|request| self.answer(request));
        // A connection that breaks is a part of many tests.
        let _ = http1::Builder::new()
            .serve_connection(TokioIo::new(connection), service)
            .await;
    }

    async fn answer(
        &self,
        request: http::Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, hyper::Error> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let mut taken = Taken {
            method: head.method,
            path: head.uri.to_string(),
            headers: head.headers,
            body,
            status: StatusCode::OK,
        };
        let answer = {
            let mut all = lock(&self.taken);
            let answer = (self.behaviour)(&taken, all.len());
            taken.status = answer.status;
            all.push(taken);
            answer
        };
        tokio::time::sleep(answer.delay).await;
        let mut response = Response::new(Full::new(answer.body));
        *response.status_mut() = answer.status;
        for (name, value) in answer.headers {
            if let Ok(value) = value.parse() {
                response.headers_mut().append(name, value);
            }
        }
        Ok(response)
    }
}
