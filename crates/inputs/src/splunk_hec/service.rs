//! Requests on the reactor: understood, read into reserved memory, answered.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use component::InputContext;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use net::{ConnectionError, Handler, Peer, Secret};
use serde::Deserialize;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::acks::Acks;
use super::decode::{Decoding, Format, Message};
use super::failure::Failure;
use super::route::{Parameters, Route};
use super::settings::Config;
use super::token;
use crate::connections::answer::{Outcome, answer};
use crate::connections::batcher::Inbox;
use crate::connections::pages::Cut;
use crate::connections::request::{Fault, Received, Requests};
use crate::connections::session::{Session, Sessions};
use crate::reading::emitter::now;

/// How long a question for acknowledgements may be, in bytes.
const QUESTION_BYTES_MAX: usize = 256 << 10;

/// Answers requests.
pub(super) struct Service {
    tokens: Vec<Secret>,
    /// None where clients get no numbers.
    acks: Option<Arc<Acks>>,
    requests: Requests,
    sessions: Sessions,
    inbox: Inbox<Decoding>,
}

/// Which requests a client asks for.
#[derive(Deserialize)]
struct Question {
    acks: Vec<u64>,
}

impl Service {
    pub(super) fn new(
        config: Config,
        ctx: InputContext,
        local: SocketAddr,
        inbox: Inbox<Decoding>,
    ) -> Self {
        Self {
            tokens: config.tokens,
            acks: config.acknowledgements.then(|| Arc::new(Acks::new())),
            sessions: Sessions::new(&ctx.host.name, "splunk_hec", local),
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
        head: &Parts,
        body: Incoming,
    ) -> Result<Bytes, Failure> {
        let is_empty = body.is_end_stream();
        let leaving = |failure: Failure| failure.leaving_body(!is_empty);
        let route = Route::of(head).map_err(leaving)?;
        match route {
            Route::Health => {
                return Ok(Bytes::from_static(
                    br#"{"text":"HEC is healthy","code":17}"#,
                ));
            }
            Route::Options => return Ok(success(None)),
            Route::Events(_) | Route::Acks => {}
        }
        let known = token::check(&self.tokens, &head.headers);
        let known = known.map_err(|error| self.requests.unreadable(&error));
        known
            .map_err(|fault| leaving(fault.into()))?
            .map_err(leaving)?;
        let parameters = Parameters::of(head).map_err(leaving)?;
        let coding = self.requests.admit(head, &body);
        let coding = coding.map_err(|fault| leaving(fault.into()))?;
        let received = self.requests.read(session, body, coding, Cut::Nowhere);
        let received = received
            .await
            .map_err(|fault| Failure::from(fault).leaving_body(true))?;
        match route {
            Route::Events(format) => self.events(session, received, format, parameters).await,
            _ => self.asked(&received, parameters.channel),
        }
    }

    /// Takes events. With a channel, the answer comes when they were read and checked, else when they are safe.
    async fn events(
        &self,
        session: &Arc<Session>,
        received: Received,
        format: Format,
        parameters: Parameters,
    ) -> Result<Bytes, Failure> {
        let message = Message {
            received,
            format,
            defaults: parameters.defaults,
            time: now(),
            session: session.clone(),
            checked: None,
        };
        match (&self.acks, parameters.channel) {
            (Some(acks), Some(channel)) => {
                let number = self.promised(acks, &channel, message).await?;
                Ok(success(Some(number)))
            }
            _ => {
                self.requests.deliver(&self.inbox, message).await?;
                Ok(success(None))
            }
        }
    }

    /// Takes events and gives the number under which the client may ask for them.
    async fn promised(
        &self,
        acks: &Arc<Acks>,
        channel: &str,
        mut message: Message,
    ) -> Result<u64, Failure> {
        let (sender, checked) = oneshot::channel();
        message.checked = Some(sender);
        let (answer, outcome) = answer();
        self.inbox.put(message, answer);
        match timeout(self.requests.ack_timeout, checked).await {
            Ok(Ok(())) => {}
            // Why, the outcome says.
            Ok(Err(_)) => {
                self.requests.settle(outcome).await?;
                return Err(Fault::NotDelivered.into());
            }
            Err(_) => return Err(Fault::NotInTime.into()),
        }
        let number = acks.begin(channel);
        let acks = acks.clone();
        tokio::spawn(async move {
            let outcome = outcome.await;
            let is_safe = matches!(outcome, Ok(Outcome::Delivered));
            acks.end(number, is_safe);
        });
        Ok(number)
    }

    /// Says which requests are safe.
    fn asked(&self, received: &Received, channel: Option<String>) -> Result<Bytes, Failure> {
        let acks = self.acks.as_ref().ok_or_else(Failure::acks_disabled)?;
        let channel = channel.ok_or_else(Failure::channel_missing)?;
        let [body] = &received.pages[..] else {
            return Err(Failure::no_data());
        };
        if received.coding.is_some() || body.len() > QUESTION_BYTES_MAX {
            let reason = "at most 256 KiB without compression are accepted";
            return Err(Failure::invalid_format(reason));
        }
        let question: Question = serde_json::from_slice(body)
            .map_err(|error| Failure::invalid_format(error.to_string()))?;
        let mut states = BTreeMap::new();
        for number in question.acks {
            let is_safe = states.entry(number).or_insert(false);
            *is_safe |= acks.ask(&channel, number);
        }
        let states: Vec<String> = states
            .iter()
            .map(|(number, is_safe)| format!("\"{number}\":{is_safe}"))
            .collect();
        Ok(format!("{{\"acks\":{{{}}}}}", states.join(",")).into())
    }
}

/// The answer that all is well.
fn success(number: Option<u64>) -> Bytes {
    match number {
        Some(number) => format!("{{\"text\":\"Success\",\"code\":0,\"ackId\":{number}}}").into(),
        None => Bytes::from_static(br#"{"text":"Success","code":0}"#),
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
        let (head, body) = request.into_parts();
        let (status, body, header, closes) = match self.take(session, &head, body).await {
            Ok(body) => (StatusCode::OK, body, None, false),
            Err(failure) => {
                if failure.status.is_client_error() {
                    let (counter, reason) = (failure.counter, failure.shown());
                    self.requests.refuse(session, counter, &reason);
                }
                let body = failure.body();
                (failure.status, body, failure.header, failure.closes)
            }
        };
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some((name, value)) = header.map(|header| *header) {
            headers.insert(name, value);
        }
        response
    }
}
