//! HTTP/1.1 on a listener: connections, their time-outs and their end.
//!
//! A component gives a [`Handler`], which gets each request with its body unread, and so decides when to read on. A
//! connection holds little while it is idle: hyper's buffers of 8 KiB for each direction, of which the one for reading
//! grows up to [`BUFFER_BYTES_MAX`] with large bodies (see `guarded`).
//!
//! Stopping closes the port and the idle connections at once; connections with a request under way end after its answer.
//! How long that may take is up to the handler.
//!
//! Limits: no HTTP/2. The head of a request is at most [`BUFFER_BYTES_MAX`] long (431) and has at most 100 headers.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::{Instant, timeout};

use crate::accept::{Notice, Peer, Stopping, accept};
use crate::guarded::Guarded;
use crate::listen::{Connection, Incoming, Listener};

/// How much of a connection is buffered outside of the memory budget.
pub const BUFFER_BYTES_MAX: usize = 32 * 1024;

/// Answers requests.
pub trait Handler: Send + Sync + 'static {
    /// What it keeps of each connection.
    type Session: Send + Sync;

    /// A connection begins.
    fn begin(&self, peer: Peer) -> Self::Session;

    /// A connection is closed because of what the client sent, before a request could be handled.
    fn refused(&self, peer: Peer, reason: &ConnectionError);

    /// The answer to a request. Dropped when the client goes away.
    fn handle(
        &self,
        session: &Self::Session,
        request: Request<body::Incoming>,
    ) -> impl Future<Output = Response<Full<Bytes>>> + Send;
}

/// Why a connection is closed without an answer of the handler.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The client does not speak TLS, or one of both does not accept the certificate of the other.
    #[error("the TLS handshake failed: {0}")]
    Handshake(io::Error),
    /// The client speaks TLS to a listener without it.
    #[error("the client speaks TLS, which is not enabled here")]
    Tls,
    /// What came is not HTTP/1.1, or its head is too long.
    #[error("malformed request: {0}")]
    Malformed(hyper::Error),
    /// The client went away.
    #[error("the connection ended in the middle of a request")]
    Cut,
}

impl ConnectionError {
    /// What was wrong with a connection, of which these bytes are unread. None where the client can see it itself: it got an
    /// answer, or closed the connection.
    fn of(error: hyper::Error, unread: &[u8]) -> Option<Self> {
        if error.is_incomplete_message() {
            return Some(Self::Cut);
        }
        if !error.is_parse() {
            return None;
        }
        // The start of a TLS record of a handshake.
        Some(match unread.starts_with(&[0x16, 3]) {
            true => Self::Tls,
            false => Self::Malformed(error),
        })
    }
}

/// Serves requests until `stop` completes and every connection has ended. `idle_timeout` is how long a client may take
/// from one answer to the whole head of the next request, and how long it may take nothing of an answer. What happens at
/// the listener goes to `notice`.
pub async fn serve<H: Handler>(
    listener: Listener,
    handler: Arc<H>,
    idle_timeout: Duration,
    stop: impl Future<Output = ()>,
    notice: impl Fn(Notice<'_>) + Clone + Send + 'static,
) {
    let connection = |incoming, peer, stopping| {
        converse(incoming, peer, handler.clone(), idle_timeout, stopping)
    };
    accept(listener, connection, stop, notice).await;
}

/// One connection from its first byte to its last.
async fn converse<H: Handler>(
    incoming: Incoming,
    peer: Peer,
    handler: Arc<H>,
    idle_timeout: Duration,
    mut stopping: Stopping,
) {
    let connection: Connection = tokio::select! {
        // Boxed, as it is large and soon over.
        done = Box::pin(incoming.handshake()) => match done {
            Ok(Some(connection)) => connection,
            Ok(None) => return,
            Err(error) => return handler.refused(peer, &ConnectionError::Handshake(error)),
        },
        () = stopping.begun() => return,
    };
    let session = handler.begin(peer);
    let at_work = AtomicUsize::new(0);
    let service = service_fn(|request| {
        let answer = handler.handle(&session, request);
        let at_work = AtWork::begin(&at_work);
        // Boxed, or an idle connection would keep the room for it.
        Box::pin(async move {
            let _at_work = at_work;
            Ok::<_, Infallible>(answer.await)
        })
    });
    let mut served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(idle_timeout)
        .max_buf_size(BUFFER_BYTES_MAX)
        .half_close(false)
        .serve_connection(
            TokioIo::new(Guarded::new(connection, idle_timeout).with_small_reads()),
            service,
        );
    let ended = tokio::select! {
        biased;
        done = &mut served => Some(done),
        () = stopping.begun() => None,
    };
    let done = match ended {
        Some(done) => Some(done),
        None => {
            Pin::new(&mut served).graceful_shutdown();
            last_answers(&mut served, &at_work).await
        }
    };
    if let Some(Err(error)) = done
        && let Some(reason) = ConnectionError::of(error, &served.into_parts().read_buf)
    {
        handler.refused(peer, &reason);
    }
}

/// What a connection ends with during a stop. None for a client that sends half a request, or keeps its side open after its
/// answer: it is not waited for.
async fn last_answers<T>(served: impl Future<Output = T>, at_work: &AtomicUsize) -> Option<T> {
    let mut served = pin!(served);
    let patient_until = Instant::now() + PATIENCE;
    let mut was_idle = false;
    loop {
        if let Ok(done) = timeout(LAST_BYTES, &mut served).await {
            return Some(done);
        }
        let is_idle = at_work.load(Ordering::Relaxed) == 0;
        if is_idle && was_idle && Instant::now() >= patient_until {
            return None;
        }
        was_idle = is_idle;
    }
}

/// How long a stop waits at least for a connection that no request is answered on.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long a client at least has to read its last answer during a stop. At most it has twice that.
const LAST_BYTES: Duration = Duration::from_millis(100);

/// That a request is being answered.
struct AtWork<'a>(&'a AtomicUsize);

impl<'a> AtWork<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
