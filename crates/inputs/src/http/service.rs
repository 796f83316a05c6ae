//! Requests on the reactor: checked, read into reserved memory, answered.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use component::InputContext;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use net::{ConnectionError, Handler, Peer};
use subtle::ConstantTimeEq;

use super::decode::{Decoding, Message};
use super::fields::Wanted;
use super::settings::Config;
use crate::connections::batcher::Inbox;
use crate::connections::inflate::Coding;
use crate::connections::pages::Cut;
use crate::connections::refusal::Refusal;
use crate::connections::request::Requests;
use crate::connections::session::{Session, Sessions};

/// Answers requests.
pub(super) struct Service {
    config: Config,
    status: StatusCode,
    allowed: HeaderValue,
    wanted: Option<Arc<Wanted>>,
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
        let allowed = HeaderValue::from_str(&config.method.join(", "));
        Self {
            status: config.status().unwrap_or(StatusCode::OK),
            // Methods are tokens, which every header can hold.
            allowed: allowed.unwrap_or(HeaderValue::from_static("POST")),
            wanted: Wanted::new(&config.headers, &config.query),
            sessions: Sessions::new(&ctx.host.name, "http", local),
            requests: Requests {
                ctx,
                max_bytes: config.max_request_bytes,
                body_timeout: config.body_timeout.get().0,
                ack_timeout: config.ack_timeout.get().0,
            },
            config,
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
        let received = self
            .requests
            .read(session, body, coding, Cut::Nowhere)
            .await
            .map_err(|fault| Refusal::from(fault).leaving_body(true))?;
        let fields = self
            .wanted
            .as_ref()
            .map(|wanted| wanted.given(&head.headers, head.uri.query()));
        let content_type = head.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let message = Message {
            received,
            format: self.config.codec.of(content_type),
            session: session.clone(),
            fields,
        };
        self.requests.deliver(&self.inbox, message).await
    }

    /// Checks what is known before the body is read; gives how it is compressed.
    fn admit(&self, head: &Parts, body: &Incoming) -> Result<Option<Coding>, Refusal> {
        if !self.takes(head.uri.path()) {
            let reason = "no events are accepted at this path";
            return Err(Refusal::new(StatusCode::NOT_FOUND, reason));
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
        Ok(self.requests.admit(head, body)?)
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
        self.requests
            .authenticate(self.config.auth.as_ref(), headers)?;
        for (name, secret) in &self.config.require_headers {
            let secret = secret
                .reveal()
                .map_err(|error| self.requests.unreadable(&error))?;
            let given = headers.get(name).map_or(&b""[..], HeaderValue::as_bytes);
            if !bool::from(given.ct_eq(secret.as_bytes())) {
                let reason = format!("the header {name} is missing or wrong");
                return Err(Refusal::new(StatusCode::FORBIDDEN, reason));
            }
        }
        Ok(())
    }
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
        match self.take(session, request).await {
            Ok(()) => {
                let mut response = Response::new(Full::default());
                *response.status_mut() = self.status;
                response
            }
            Err(refusal) => {
                if refusal.status.is_client_error() {
                    let (counter, reason) = (refusal.counter, refusal.reason());
                    self.requests.refuse(session, counter, reason);
                }
                refusal.response()
            }
        }
    }
}
