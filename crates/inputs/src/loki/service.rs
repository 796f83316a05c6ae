//! Requests on the reactor: understood, read into reserved memory, answered.

use std::net::SocketAddr;
use std::sync::Arc;

use batch::json;
use bytes::Bytes;
use component::InputContext;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use net::{Auth, ConnectionError, Handler, Peer};

use super::decode::{Decoding, Format, Message};
use super::settings::Config;
use crate::connections::batcher::Inbox;
use crate::connections::pages::Cut;
use crate::connections::refusal::Refusal;
use crate::connections::request::Requests;
use crate::connections::session::{Session, Sessions};

/// The header that names the tenant.
const TENANT: HeaderName = HeaderName::from_static("x-scope-orgid");

/// How long a tenant's name may be, as for Loki.
const TENANT_BYTES_MAX: usize = 150;

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
            sessions: Sessions::new(&ctx.host.name, "loki", local),
            requests: Requests {
                ctx,
                max_bytes: config.max_request_bytes,
                body_timeout: config.body_timeout.get().0,
                ack_timeout: config.ack_timeout.get().0,
            },
            inbox,
        }
    }

    async fn take(
        &self,
        session: &Arc<Session>,
        mut head: Parts,
        body: Incoming,
    ) -> Result<Response<Full<Bytes>>, Refusal> {
        let is_empty = body.is_end_stream();
        let leaving = |refusal: Refusal| refusal.leaving_body(!is_empty);
        if !is_push(&head).map_err(leaving)? {
            return Ok(Response::new(Full::from("ready\n")));
        }
        let auth = self.auth.as_ref();
        let known = self.requests.authenticate(auth, &head.headers);
        known.map_err(|fault| leaving(fault.into()))?;
        let metadata = metadata(&head.headers).map_err(leaving)?;
        // Clients may name the compression that is part of the format, or not.
        let coding = head.headers.get(CONTENT_ENCODING);
        if coding.is_some_and(|coding| coding == "snappy") {
            head.headers.remove(CONTENT_ENCODING);
        }
        let coding = self.requests.admit(&head, &body);
        let coding = coding.map_err(|fault| leaving(fault.into()))?;
        let received = self.requests.read(session, body, coding, Cut::Nowhere);
        let received = received
            .await
            .map_err(|fault| Refusal::from(fault).leaving_body(true))?;
        let message = Message {
            received,
            format: format(&head.headers),
            session: session.clone(),
            metadata,
        };
        self.requests.deliver(&self.inbox, message).await?;
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::NO_CONTENT;
        Ok(response)
    }
}

/// Whether a request pushes entries, and does not ask whether that is possible.
fn is_push(head: &Parts) -> Result<bool, Refusal> {
    let (is_push, method) = match head.uri.path() {
        "/loki/api/v1/push" | "/api/prom/push" => (true, Method::POST),
        "/ready" => (false, Method::GET),
        _ => {
            let reason = "entries are accepted at /loki/api/v1/push";
            return Err(Refusal::new(StatusCode::NOT_FOUND, reason));
        }
    };
    match head.method == method {
        true => Ok(is_push),
        false => {
            let allowed = HeaderValue::from_static(if is_push { "POST" } else { "GET" });
            Err(Refusal::method(allowed))
        }
    }
}

/// As Loki tells the formats apart.
fn format(headers: &HeaderMap) -> Format {
    let media = headers
        .get(CONTENT_TYPE)
        .map_or(&b""[..], HeaderValue::as_bytes);
    let media = media.split(|byte| *byte == b';').next().unwrap_or_default();
    match media.trim_ascii().eq_ignore_ascii_case(b"application/json") {
        true => Format::Json,
        false => Format::Protobuf,
    }
}

/// The tenant of a request, as an object that is readable under `@metadata`.
fn metadata(headers: &HeaderMap) -> Result<Vec<u8>, Refusal> {
    let Some(tenant) = headers.get(TENANT) else {
        return Ok(Vec::new());
    };
    let tenant = std::str::from_utf8(tenant.as_bytes()).unwrap_or_default();
    if tenant.is_empty() || tenant.len() > TENANT_BYTES_MAX {
        let reason = "the header X-Scope-OrgID must have 1 to 150 bytes of UTF-8";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, reason));
    }
    let mut metadata = b"{\"loki\":{\"tenant\":".to_vec();
    json::write_string(&mut metadata, tenant.as_bytes());
    metadata.extend_from_slice(b"}}");
    Ok(metadata)
}

impl Handler for Service {
    type Session = Arc<Session>;

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
        self.take(session, head, body)
            .await
            .unwrap_or_else(|refusal| {
                // Clients do not send again what was answered with 4xx.
                let refusal = refusal.later_if_slow();
                if refusal.status.is_client_error() {
                    let (counter, reason) = (refusal.counter, refusal.reason());
                    self.requests.refuse(session, counter, reason);
                }
                refusal.response()
            })
    }
}
