//! HTTP/1.1 on a listener, and HTTP/2 beside it for handlers that speak it: connections, their time-outs and their end.
//!
//! A component gives a [`Handler`], which gets each request with its body unread, and so decides when to read on. A
//! connection on which requests come has hyper's buffers of 8 KiB for each direction, of which the one for reading grows up to
//! [`BUFFER_BYTES_MAX`] with bodies of at least as many bytes (see `guarded`). When none has come for [`AWAKE`], all of hyper's state is given up,
//! and made again for the next request.
//!
//! Stopping closes the port and the idle connections at once; connections with a request under way end after its answer.
//! How long that may take is up to the handler.
//!
//! A client speaks HTTP/2 if its first bytes are those of HTTP/2 (see `http2`). With TLS it also asks for it by ALPN, for which the certificates are
//! opened with [`ServerTls::open_with_http2`](crate::ServerTls::open_with_http2).
//!
//! Limits of HTTP/1.1: the head of a request is at most [`BUFFER_BYTES_MAX`] long (431) and has at most 100 headers.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};

use crate::accept::{Peer, accept};
use crate::closing::last_answers;
use crate::guarded::{BUFFER_BYTES_MAX, Guarded};
use crate::handler::{ConnectionError, Handler};
use crate::http2;
use crate::listen::{Connection, Incoming, Listener};
use crate::notice::Notice;
use crate::places::Stopping;

/// Serves requests until `stop` completes and every connection has ended. `idle_timeout` is how long a client may send nothing after an
/// answer, how long it may take for the head of a request, and how long it may take nothing of an answer. What happens at
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

/// One connection from its first byte to its last. Between requests, only the connection is kept.
async fn converse<H: Handler>(
    incoming: Incoming,
    peer: Peer,
    handler: Arc<H>,
    idle_timeout: Duration,
    mut stopping: Stopping,
) {
    let connection: Connection = tokio::select! {
        // First, because a client without TLS may have sent a request already.
        biased;
        // Boxed, as it is large and soon over.
        done = Box::pin(incoming.handshake()) => match done {
            Ok(Some(connection)) => connection,
            Ok(None) => return,
            Err(error) => return handler.refused(peer, &ConnectionError::Handshake(error)),
        },
        () = stopping.begun() => return,
    };
    let session = handler.begin(peer);
    let mut connection = Guarded::new(connection, idle_timeout).resting(&[]);
    let mut preface = if H::SPEAKS_HTTP2 { http2::PREFACE } else { &[] };
    loop {
        tokio::select! {
            biased;
            waited = timeout(idle_timeout, connection.wait_beyond(preface)) => match waited {
                Ok(Ok(true)) => {}
                Ok(_) => return,
                Err(_) => return handler.refused(peer, &ConnectionError::Idle),
            },
            () = stopping.begun() => {
                if !stopping.is_for_another() {
                    // Where the client is gone, there is nothing to close.
                    let _ = last_answers(connection.shutdown(), &AtomicUsize::new(0)).await;
                }
                return;
            }
        }
        if !preface.is_empty() && connection.is_ahead(preface) {
            let requests = http2::converse(
                connection,
                handler.clone(),
                session,
                idle_timeout,
                &mut stopping,
            );
            if let Some(reason) = Box::pin(requests).await {
                handler.refused(peer, &reason);
            }
            return;
        }
        // Only the beginning of a connection says what it speaks.
        preface = &[];
        let requests = converse_awake(connection, &*handler, &session, idle_timeout, &mut stopping);
        connection = match Box::pin(requests).await {
            Ok(Some(connection)) => connection,
            Ok(None) => return,
            Err(reason) => return handler.refused(peer, &reason),
        };
    }
}

/// Answers requests until the client has been silent for a moment, then gives the connection back; none when it has ended.
async fn converse_awake<H: Handler>(
    mut connection: Guarded,
    handler: &H,
    session: &H::Session,
    idle_timeout: Duration,
    stopping: &mut Stopping,
) -> Result<Option<Guarded>, ConnectionError> {
    let rests = connection.rests();
    let at_work = AtomicUsize::new(0);
    let service = service_fn(|request| {
        let answer = handler.handle(session, request);
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
        .serve_connection(TokioIo::new(connection), service);
    let is_at_work = || at_work.load(Ordering::Relaxed) > 0;
    let is_silent = || rests.load(Ordering::Relaxed) && !is_at_work();
    let done = tokio::select! {
        biased;
        done = while_awake(&mut served, is_silent) => match done {
            None => {
                let parts = served.into_parts();
                return Ok(Some(parts.io.into_inner().resting(&parts.read_buf)));
            }
            done => done,
        },
        () = stopping.begun() => {
            if stopping.is_for_another() && !is_at_work() {
                return Ok(None);
            }
            Pin::new(&mut served).graceful_shutdown();
            last_answers(&mut served, &at_work).await
        }
    };
    let Some(Err(error)) = done else {
        return Ok(None);
    };
    let parts = served.into_parts();
    let has_begun = parts.io.inner().has_begun();
    match ConnectionError::of(error, &parts.read_buf, has_begun) {
        Some(reason) => Err(reason),
        None => Ok(None),
    }
}

/// What a connection ends with; none where it is silent for [`AWAKE`].
async fn while_awake<T>(
    mut served: impl Future<Output = T> + Unpin,
    is_silent: impl Fn() -> bool,
) -> Option<T> {
    let mut silence = None;
    poll_fn(|cx| {
        if let Poll::Ready(done) = Pin::new(&mut served).poll(cx) {
            return Poll::Ready(Some(done));
        }
        if !is_silent() {
            silence = None;
            return Poll::Pending;
        }
        let silence = silence.get_or_insert_with(|| Box::pin(sleep(AWAKE)));
        silence.as_mut().poll(cx).map(|()| None)
    })
    .await
}

/// After how long without a request the memory for requests is given back.
const AWAKE: Duration = Duration::from_millis(100);

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
