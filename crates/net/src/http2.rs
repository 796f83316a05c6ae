//! HTTP/2 on a connection that begins with it, for handlers that speak it ([`Handler::SPEAKS_HTTP2`]).
//!
//! # Limits
//! A connection has up to [`STREAMS_MAX`] requests at the same time; a further one waits at its client, or is refused as one that was
//! not handled (REFUSED_STREAM) if the client sends it before it has read the settings. What is received of a request and not
//! read yet is up to [`WINDOW_BYTES`], so that a connection holds up to [`STREAMS_MAX`] times as much: requests that wait in the
//! handler cannot hold up the others. A head has up to [`HEAD_BYTES_MAX`].
//!
//! The library ends a connection with GOAWAY and ENHANCE_YOUR_CALM if its client resets many requests before they begin, sends a head in many
//! pieces, or many frames that are almost empty. Frames are not read on while answers to them, such as those to pings, wait for the client, which
//! loses the connection if it reads nothing for `idle_timeout`. Pings do not keep a connection without requests.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use component::activity::carry;
use http::{Request, Response};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::{Instant, sleep_until};

use crate::closing::last_answers;
use crate::grpc::{self, AnswerBody};
use crate::guarded::Guarded;
use crate::handler::{ConnectionError, Handler};
use crate::places::{AtWork, Stopping, at_work};

/// What a connection begins with.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How many requests of a connection are answered at the same time.
const STREAMS_MAX: u32 = 4;

/// How much of a request is received ahead.
const WINDOW_BYTES: u32 = 64 << 10;

/// How long the head of a request may be.
const HEAD_BYTES_MAX: u32 = 16 << 10;

/// How often a client is asked whether it is there, and how long it has for an answer.
const PING_EVERY: Duration = Duration::from_secs(60);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs requests as tasks that count for who runs the connection.
#[derive(Clone)]
struct Tasks;

impl<F> Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, request: F) {
        tokio::spawn(carry(request));
    }
}

/// What is going on at a connection.
struct Activity {
    at_work: AtomicUsize,
    /// How many requests have ended.
    ended: AtomicUsize,
}

/// That a request is being answered.
struct Answering {
    activity: Arc<Activity>,
    /// The client is not silent meanwhile.
    _at_work: Option<AtWork>,
}

impl Answering {
    fn begin(activity: &Arc<Activity>) -> Self {
        activity.at_work.fetch_add(1, Ordering::Relaxed);
        Self {
            activity: activity.clone(),
            _at_work: at_work(),
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.activity.ended.fetch_add(1, Ordering::Relaxed);
        self.activity.at_work.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Answers the requests of a connection until it ends. One without requests for `idle_timeout` is closed. Gives what was wrong with it, where
/// the client does not just leave.
pub(crate) async fn converse<H: Handler>(
    connection: Guarded,
    handler: Arc<H>,
    session: H::Session,
    idle_timeout: Duration,
    stopping: &mut Stopping,
) -> Option<ConnectionError> {
    let session = Arc::new(session);
    let activity = Arc::new(Activity {
        at_work: AtomicUsize::new(0),
        ended: AtomicUsize::new(0),
    });
    let noted = activity.clone();
    let service = service_fn(move |request| {
        let (handler, session) = (handler.clone(), session.clone());
        let answering = Answering::begin(&noted);
        Box::pin(async move {
            let _answering = answering;
            Ok::<_, Infallible>(answer(&*handler, &session, request).await)
        })
    });
    let mut served = http2::Builder::new(Tasks)
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(STREAMS_MAX * WINDOW_BYTES)
        .max_header_list_size(HEAD_BYTES_MAX)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .serve_connection(TokioIo::new(connection), service);
    tokio::select! {
        // The connection comes last: while a client floods it with frames, it uses up the turns of its task, and what follows would never see the time.
        biased;
        () = stopping.begun() => {
            if stopping.is_for_another() && activity.at_work.load(Ordering::Relaxed) == 0 {
                return None;
            }
        }
        () = silence(&activity, idle_timeout) => {}
        done = &mut served => return done.err().and_then(ConnectionError::of_http2),
    }
    Pin::new(&mut served).graceful_shutdown();
    let done = last_answers(&mut served, &activity.at_work).await?;
    done.err().and_then(ConnectionError::of_http2)
}

/// Waits until there was no request for so long.
async fn silence(activity: &Activity, idle_timeout: Duration) {
    let mut ended = activity.ended.load(Ordering::Relaxed);
    let mut since = Instant::now();
    loop {
        sleep_until(since + idle_timeout).await;
        let now = activity.ended.load(Ordering::Relaxed);
        if now == ended && activity.at_work.load(Ordering::Relaxed) == 0 {
            return;
        }
        (ended, since) = (now, Instant::now());
    }
}

/// The body of an answer.
type Answer = Either<Full<Bytes>, AnswerBody>;

async fn answer<H: Handler>(
    handler: &H,
    session: &H::Session,
    request: Request<Incoming>,
) -> Response<Answer> {
    match grpc::is_call(request.headers()) {
        true => handler.call(session, request).await.map(Either::Right),
        false => handler.handle(session, request).await.map(Either::Left),
    }
}
