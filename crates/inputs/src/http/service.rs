//! Requests on the reactor: checked, read into reserved memory, answered.
//!
//! Nothing here blocks or decompresses. What is checked before the body is read costs no memory.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use batch::{PooledBuffer, Reservation, Source, Stream};
use bytes::Bytes;
use component::{InputContext, Limit};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use net::Handler;
use net::Peer;
use subtle::ConstantTimeEq;
use tokio::time::timeout;

use super::decode::{Decoding, Message, Session};
use super::fields::Wanted;
use super::refusal::Refusal;
use super::settings::Config;
use crate::connections::answer::{Outcome, answer};
use crate::connections::batcher::Inbox;
use crate::connections::inflate::Coding;
use crate::reading::identity::Identity;

/// What is reserved for a body whose length is not known.
const FIRST_BYTES: usize = 16 << 10;

/// Answers requests.
pub(super) struct Service {
    config: Config,
    status: StatusCode,
    allowed: HeaderValue,
    wanted: Option<Arc<Wanted>>,
    ctx: InputContext,
    /// Where it listens, and a number that no other run has.
    listener: Arc<str>,
    run: u128,
    inbox: Inbox<Decoding>,
}

/// A body that was read whole, and what is reserved beside it.
struct ReadBody {
    body: Bytes,
    reservation: Reservation,
}

impl Service {
    pub(super) fn new(
        config: Config,
        ctx: InputContext,
        local: SocketAddr,
        inbox: Inbox<Decoding>,
    ) -> Self {
        let allowed = HeaderValue::from_str(&config.method.join(", "));
        Self {
            status: config.status().unwrap_or(StatusCode::OK),
            // Methods are tokens, which every header can hold.
            allowed: allowed.unwrap_or(HeaderValue::from_static("POST")),
            wanted: Wanted::new(&config.headers, &config.query),
            config,
            ctx,
            listener: local.to_string().into(),
            run: fastrand::u128(..),
            inbox,
        }
    }

    async fn take(
        &self,
        session: &Arc<Session>,
        request: Request<Incoming>,
    ) -> Result<(), Refusal> {
        let (head, body) = request.into_parts();
        let is_empty = body.is_end_stream();
        let coding = self
            .admit(&head, &body)
            .map_err(|refusal| refusal.leaving_body(!is_empty))?;
        let ReadBody {
            body,
            mut reservation,
        } = self
            .read(body)
            .await
            .map_err(|refusal| refusal.leaving_body(true))?;
        // Others may wait for what it holds.
        reservation.settle();
        let fields = self
            .wanted
            .as_ref()
            .map(|wanted| wanted.given(&head.headers, head.uri.query()));
        let content_type = head.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let message = Message {
            body,
            compressed: coding.map(|coding| (coding, reservation)),
            format: self.config.format.of(content_type),
            session: session.clone(),
            fields,
        };
        let (answer, outcome) = answer();
        self.inbox.put(message, answer);
        match timeout(self.config.ack_timeout.get().0, outcome).await {
            Ok(Ok(Outcome::Delivered)) => Ok(()),
            Ok(Ok(Outcome::Rejected(refusal))) => Err(refusal),
            Ok(Ok(Outcome::Failed)) => Err(Refusal::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "an internal error, see Millpond's log; some of the events may have been accepted",
            )),
            Ok(Ok(Outcome::NotDelivered) | Err(_)) => Err(Refusal::later(
                "the events were not delivered; send them again",
            )),
            Err(_) => {
                self.ctx.metrics.count("ack_timeouts", 1);
                Err(Refusal::later(
                    "the events were not delivered in time; send them again",
                ))
            }
        }
    }

    /// Checks what is known before the body is read; gives how it is compressed.
    fn admit(&self, head: &Parts, body: &Incoming) -> Result<Option<Coding>, Refusal> {
        let refused = |status, reason: &str| Err(Refusal::new(status, reason));
        if !self.takes(head.uri.path()) {
            return refused(StatusCode::NOT_FOUND, "no events are accepted at this path");
        }
        if !self
            .config
            .method
            .iter()
            .any(|method| method == head.method.as_str())
        {
            return Err(Refusal::method(self.allowed.clone()));
        }
        self.authenticate(&head.headers)?;
        let mut codings = head.headers.get_all(CONTENT_ENCODING).iter();
        let coding = codings.next().map_or(&b""[..], HeaderValue::as_bytes);
        let coding = match (Coding::of(coding), codings.next()) {
            (Ok(coding), None) => coding,
            _ => {
                let reason = "the Content-Encoding is not supported: gzip, zstd, deflate or none";
                return refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason);
            }
        };
        if body.size_hint().lower() > self.config.max_request_bytes.0 {
            return Err(self.too_large());
        }
        Ok(coding)
    }

    fn takes(&self, path: &str) -> bool {
        let mut taken = self.config.path.iter();
        self.config.path.is_empty()
            || taken.any(|taken| match taken.strip_suffix('*') {
                Some(start) => path.starts_with(start),
                None => path == taken,
            })
    }

    fn authenticate(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let unreadable = |error: net::SecretError| {
            let limit = Limit::events("unreadable_secrets");
            let text = || format!("requests are answered with 503: {error}");
            self.ctx.diagnostics.warn_limited(limit, text);
            Refusal::later("credentials cannot be checked at the moment")
        };
        if let Some(auth) = &self.config.auth
            && !auth.admits(headers).map_err(unreadable)?
        {
            return Err(Refusal::unauthorized(auth.challenge()));
        }
        for (name, secret) in &self.config.require_headers {
            let secret = secret.reveal().map_err(unreadable)?;
            let given = headers.get(name).map_or(&b""[..], HeaderValue::as_bytes);
            if !bool::from(given.ct_eq(secret.as_bytes())) {
                let reason = format!("the header {name} is missing or wrong");
                return Err(Refusal::new(StatusCode::FORBIDDEN, reason));
            }
        }
        Ok(())
    }

    fn too_large(&self) -> Refusal {
        let limit = self.config.max_request_bytes;
        let reason = format!("the body is larger than {limit}");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, reason)
    }

    /// Reads a body into memory that is reserved before.
    async fn read(&self, mut body: Incoming) -> Result<ReadBody, Refusal> {
        let stopped = self.ctx.stop.stopped();
        let mut stopped = std::pin::pin!(stopped);
        let limit = self.config.max_request_bytes.bytes();
        // What is announced may never come: memory follows what does.
        let known = body.size_hint().exact().map(|length| length as usize);
        let largest = known.unwrap_or(limit).min(limit);
        let first = FIRST_BYTES.min(largest);
        let reserve = self.ctx.pool.reserve(first);
        let mut reservation = self.for_memory(reserve, stopped.as_mut()).await?;
        let mut buffer = reservation.take(first);
        let mut filled = 0;
        let mut deadline = Instant::now() + self.config.body_timeout.get().0;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let frame = tokio::select! {
                frame = timeout(left, body.frame()) => frame,
                () = stopped.as_mut() => return Err(stopping()),
            };
            let data = match frame {
                Ok(None) => break,
                Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
                Ok(Some(Err(_))) => {
                    let reason = "the body ends unexpectedly";
                    return Err(Refusal::new(StatusCode::BAD_REQUEST, reason));
                }
                Err(_) => {
                    let reason = "the body did not arrive in time";
                    return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, reason));
                }
            };
            if data.len() > limit - filled {
                return Err(self.too_large());
            }
            if data.len() > buffer.len() - filled {
                let begin = Instant::now();
                let needed = filled + data.len() - buffer.len();
                let more = needed.max(buffer.len().min(largest - buffer.len()));
                self.for_memory(reservation.grow(more), stopped.as_mut())
                    .await?;
                reservation.extend(&mut buffer, more);
                deadline += begin.elapsed();
            }
            buffer[filled..filled + data.len()].copy_from_slice(&data);
            filled += data.len();
        }
        Ok(ReadBody {
            body: frozen(buffer, filled),
            reservation,
        })
    }

    /// Waits for memory, but not for ever.
    async fn for_memory<T>(
        &self,
        memory: impl Future<Output = T>,
        stopped: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<T, Refusal> {
        let begin = Instant::now();
        let waited = tokio::select! {
            memory = timeout(self.config.ack_timeout.get().0, memory) => memory,
            () = stopped => return Err(stopping()),
        };
        self.ctx.metrics.waited(begin.elapsed());
        waited.map_err(|_| {
            self.ctx.metrics.count("memory_timeouts", 1);
            Refusal::later("no memory is available for the body at the moment; send it again")
        })
    }
}

fn stopping() -> Refusal {
    Refusal::later("Millpond is stopping; send the events again")
}

/// The bytes that were read. What was reserved for nothing is given back.
fn frozen(mut buffer: PooledBuffer, filled: usize) -> Bytes {
    buffer.shorten(filled);
    buffer.freeze(filled)
}

impl Handler for Service {
    type Session = Arc<Session>;

    fn begin(&self, peer: Peer) -> Arc<Session> {
        let id = Identity::new([
            self.ctx.host.name.as_bytes(),
            b"http",
            self.listener.as_bytes(),
            &self.run.to_le_bytes(),
            &peer.connection.to_le_bytes(),
        ]);
        let source = Source::Connection {
            peer: peer.address.to_string().into(),
            listener: self.listener.clone(),
        };
        let stream = Stream::new(id.id(), source);
        Arc::new(Session {
            stream: Arc::new(stream),
            next: AtomicU64::new(0),
        })
    }

    async fn handle(
        &self,
        session: &Arc<Session>,
        request: Request<Incoming>,
    ) -> Response<Full<Bytes>> {
        match self.take(session, request).await {
            Ok(()) => {
                let mut response = Response::new(Full::default());
                *response.status_mut() = self.status;
                response
            }
            Err(refusal) => {
                if refusal.status.is_client_error() {
                    self.ctx.metrics.count("refused_requests", 1);
                }
                refusal.response()
            }
        }
    }
}
