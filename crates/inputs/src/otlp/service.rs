//! Requests and calls on the reactor: checked, read into reserved memory, answered.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use component::InputContext;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use net::grpc::{self, AnswerBody};
use net::{Auth, ConnectionError, Handler, Peer};

use super::decode::{Decoding, Message};
use super::refusal::{Form, Refusal};
use super::settings::Config;
use crate::connections::batcher::Inbox;
use crate::connections::inflate::Coding;
use crate::connections::pages::Cut;
use crate::connections::request::{Received, Requests};
use crate::connections::session::{Session, Sessions};

/// The path of logs over HTTP. Source: <https://opentelemetry.io/docs/specs/otlp/#otlphttp-request>.
pub(super) const PATH: &str = "/v1/logs";

/// The method of the service for logs over gRPC. Source: `collector/logs/v1/logs_service.proto` of
/// <https://github.com/open-telemetry/opentelemetry-proto>.
pub(super) const METHOD: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";

const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// What stands before the message of a call: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// Answers requests.
pub(super) struct Service {
    auth: Option<Auth>,
    requests: Requests,
    sessions: Sessions,
    inbox: Inbox<Decoding>,
}

impl Service {
    pub(super) fn new(
        config: Config,
        ctx: InputContext,
        local: SocketAddr,
        inbox: Inbox<Decoding>,
    ) -> Self {
        Self {
            auth: config.auth,
            sessions: Sessions::new(&ctx.host.name, "otlp", local),
            requests: Requests {
                ctx,
                max_bytes: config.max_request_bytes,
                body_timeout: config.body_timeout.get().0,
                ack_timeout: config.ack_timeout.get().0,
            },
            inbox,
        }
    }

    /// Takes a request over HTTP.
    async fn take(
        &self,
        session: &Arc<Session>,
        head: &Parts,
        body: Incoming,
    ) -> Result<Form, Refusal> {
        let is_empty = body.is_end_stream();
        let (form, coding) = self
            .admit(head, &body)
            .map_err(|refusal| refusal.leaving_body(!is_empty))?;
        let received = self
            .requests
            .read(session, body, coding, Cut::Nowhere)
            .await;
        let received = received.map_err(|fault| Refusal::from(fault).leaving_body(true))?;
        self.deliver(session, received, form).await?;
        Ok(form)
    }

    /// Checks what is known before the body is read.
    fn admit(&self, head: &Parts, body: &Incoming) -> Result<(Form, Option<Coding>), Refusal> {
        if head.uri.path() != PATH {
            return Err(Refusal::unknown(format!("logs are received at {PATH}")));
        }
        if head.method != Method::POST {
            return Err(Refusal::method());
        }
        let auth = self.auth.as_ref();
        self.requests.authenticate(auth, &head.headers)?;
        let form = form(&head.headers).ok_or_else(|| {
            Refusal::unsupported(
                "the Content-Type is not supported: application/x-protobuf or application/json",
            )
        })?;
        Ok((form, self.requests.admit(head, body)?))
    }

    /// Takes a call over gRPC.
    async fn take_call(
        &self,
        session: &Arc<Session>,
        head: &Parts,
        body: Incoming,
    ) -> Result<(), Refusal> {
        if head.uri.path() != METHOD {
            return Err(Refusal::unknown(format!("logs are received by {METHOD}")));
        }
        let auth = self.auth.as_ref();
        self.requests.authenticate(auth, &head.headers)?;
        let coding = head.headers.get(GRPC_ENCODING);
        let coding = Coding::of(coding.map_or(&b""[..], HeaderValue::as_bytes));
        let coding = coding.map_err(|()| {
            Refusal::unsupported("the grpc-encoding is not supported: gzip, zstd, deflate or none")
        })?;
        let received = self
            .requests
            .read(session, body, None, Cut::Nowhere)
            .await?;
        let received = unframed(received, coding)?;
        self.deliver(session, received, Form::Protobuf).await
    }

    /// Waits until the events of a request are safe.
    async fn deliver(
        &self,
        session: &Arc<Session>,
        received: Received,
        form: Form,
    ) -> Result<(), Refusal> {
        let message = Message {
            received,
            form,
            session: session.clone(),
        };
        self.requests.deliver(&self.inbox, message).await
    }

    /// Counts a request that is refused, and reports it, if its client is at fault.
    fn note(&self, session: &Session, refusal: &Refusal) {
        if refusal.is_of_client() {
            let (counter, reason) = (refusal.counter, &refusal.reason);
            self.requests.refuse(session, counter, reason);
        }
    }
}

/// The form of a request.
fn form(headers: &HeaderMap) -> Option<Form> {
    let kind = headers.get(CONTENT_TYPE)?.as_bytes();
    let media = kind.split(|byte| *byte == b';').next()?.trim_ascii();
    match media.to_ascii_lowercase().as_slice() {
        b"application/x-protobuf" | b"application/protobuf" => Some(Form::Protobuf),
        b"application/json" => Some(Form::Json),
        _ => None,
    }
}

/// The message of a call without what stands before it.
pub(super) fn unframed(
    mut received: Received,
    coding: Option<Coding>,
) -> Result<Received, Refusal> {
    // A body that is cut nowhere is one page.
    let [page] = received.pages.as_mut_slice() else {
        return Err(Refusal::malformed("the message is cut off"));
    };
    let Some((prefix, message)) = page.split_first_chunk::<PREFIX_BYTES>() else {
        return Err(Refusal::malformed("the message is cut off"));
    };
    let [is_compressed, length @ ..] = *prefix;
    if u32::from_be_bytes(length) as usize != message.len() {
        return Err(Refusal::malformed(
            "the call has not exactly one whole message",
        ));
    }
    received.coding = match is_compressed {
        0 => None,
        1 if coding.is_some() => coding,
        _ => {
            let reason = "the message is compressed, and `grpc-encoding` does not say how";
            return Err(Refusal::malformed(reason));
        }
    };
    *page = page.slice(PREFIX_BYTES..);
    Ok(received)
}

impl Handler for Service {
    type Session = Arc<Session>;
    const SPEAKS_HTTP2: bool = true;

    fn begin(&self, peer: Peer) -> Arc<Session> {
        self.sessions.begin(peer)
    }

    fn refused(&self, peer: Peer, reason: &ConnectionError) {
        self.requests.refused(peer, reason);
    }

    async fn handle(
        &self,
        session: &Arc<Session>,
        request: Request<Incoming>,
    ) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        match self.take(session, &head, body).await {
            Ok(Form::Json) => Form::Json.response(StatusCode::OK, "{}"),
            Ok(form) => form.response(StatusCode::OK, Bytes::new()),
            Err(refusal) => {
                self.note(session, &refusal);
                refusal.response(form(&head.headers).unwrap_or(Form::Json))
            }
        }
    }

    async fn call(
        &self,
        session: &Arc<Session>,
        request: Request<Incoming>,
    ) -> Response<AnswerBody> {
        let (head, body) = request.into_parts();
        match self.take_call(session, &head, body).await {
            // An `ExportLogsServiceResponse` that has nothing to say is empty.
            Ok(()) => grpc::answer(Ok(&[])),
            Err(refusal) => {
                self.note(session, &refusal);
                grpc::answer(Err(refusal.into()))
            }
        }
    }
}
