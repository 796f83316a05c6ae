//! What answers requests, and why a connection ends without an answer.

use std::error::Error;
use std::future::Future;
use std::io;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body;

use crate::accept::Peer;
use crate::grpc::{self, AnswerBody, Code, Failure};

/// Answers requests.
pub trait Handler: Send + Sync + 'static {
    /// What it keeps of each connection.
    type Session: Send + Sync + 'static;

    /// Whether clients may speak HTTP/2.
    const SPEAKS_HTTP2: bool = false;

    /// A connection begins.
    fn begin(&self, peer: Peer) -> Self::Session;

    /// A connection is closed because of what the client sent, or did not send, before a request could be handled.
    fn refused(&self, peer: Peer, reason: &ConnectionError);

    /// The answer to a request. Dropped when the client goes away.
    fn handle(
        &self,
        session: &Self::Session,
        request: Request<body::Incoming>,
    ) -> impl Future<Output = Response<Full<Bytes>>> + Send;

    /// The answer to a call of gRPC, which only comes over HTTP/2. Dropped when the client goes away.
    fn call(
        &self,
        _session: &Self::Session,
        _request: Request<body::Incoming>,
    ) -> impl Future<Output = Response<AnswerBody>> + Send {
        let failure = Failure::new(Code::Unimplemented, "there are no calls here");
        std::future::ready(grpc::answer(Err(failure)))
    }
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
    /// The client broke the rules of HTTP/2, or floods the connection with frames.
    #[error("error of HTTP/2: {}", cause(.0))]
    Http2(hyper::Error),
    /// The client went away.
    #[error("the connection ended in the middle of a request")]
    Cut,
    /// The client read nothing of an answer for too long.
    #[error("the client read nothing of an answer for too long")]
    Unread,
    /// The client sent nothing for too long.
    #[error("the client sent no request for too long")]
    Idle,
    /// The client began a request, and was too slow.
    #[error("the head of a request did not arrive in time")]
    Late,
}

impl ConnectionError {
    /// What was wrong with a connection, of which these bytes are unread; `has_begun` says whether a request had begun. None where the
    /// client can see it itself: it got an answer, or closed the connection.
    pub(crate) fn of(error: hyper::Error, unread: &[u8], has_begun: bool) -> Option<Self> {
        if error.is_timeout() {
            return Some(if has_begun { Self::Late } else { Self::Idle });
        }
        if is_of_writing(&error) {
            return Some(Self::Unread);
        }
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

    /// The same for a connection of HTTP/2. None where the client is gone, or does not answer.
    pub(crate) fn of_http2(error: hyper::Error) -> Option<Self> {
        if is_of_writing(&error) {
            return Some(Self::Unread);
        }
        let cause = error.source();
        let is_gone = error.is_timeout() || cause.is_none_or(<dyn Error>::is::<io::Error>);
        (!is_gone).then_some(Self::Http2(error))
    }
}

/// Whether a write has waited for too long (see `guarded`).
fn is_of_writing(error: &hyper::Error) -> bool {
    // Ours: the system's has a number.
    let is_ours = |cause: &io::Error| {
        cause.kind() == io::ErrorKind::TimedOut && cause.raw_os_error().is_none()
    };
    let cause = error.source().and_then(|cause| cause.downcast_ref());
    cause.is_some_and(is_ours)
}

/// What an error consists in. The library's text is "http2 error" for all of them.
fn cause(error: &hyper::Error) -> String {
    error
        .source()
        .map_or_else(|| error.to_string(), ToString::to_string)
}
