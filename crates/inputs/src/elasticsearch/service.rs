//! Requests on the reactor: understood, read into reserved memory, answered.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytes::Bytes;
use component::InputContext;
use http::header::{ACCEPT, CONNECTION, CONTENT_TYPE, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use net::{Auth, ConnectionError, Handler, Peer};
use tokio::sync::oneshot;

use super::bulk::Defaults;
use super::decode::{Decoding, Message};
use super::discovery::{self, Server};
use super::failure::Failure;
use super::filter::Filter;
use super::route::{Question, Route, route};
use super::settings::Config;
use super::target::Verb;
use crate::connections::batcher::Inbox;
use crate::connections::request::{Fault, Requests};
use crate::connections::session::{Session, Sessions};
use crate::reading::identity::Identity;

/// By which clients know that they talk to Elasticsearch.
const PRODUCT: HeaderName = HeaderName::from_static("x-elastic-product");

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=UTF-8");

/// Answers requests.
pub(super) struct Service {
    auth: Option<Auth>,
    server: Server,
    requests: Requests,
    sessions: Sessions,
    inbox: Inbox<Decoding>,
    /// That what clients set up is not kept.
    said_setup: AtomicBool,
}

/// What a client is answered.
struct Answer {
    status: StatusCode,
    content_type: HeaderValue,
    body: Bytes,
}

impl Answer {
    fn ok(body: Bytes) -> Self {
        Self {
            status: StatusCode::OK,
            content_type: JSON,
            body,
        }
    }
}

impl Service {
    pub(super) fn new(
        config: Config,
        ctx: InputContext,
        local: SocketAddr,
        inbox: Inbox<Decoding>,
    ) -> Self {
        let id = Identity::new([ctx.host.name.as_bytes(), b"elasticsearch"]);
        Self {
            auth: config.auth,
            server: Server {
                name: ctx.host.name.to_string(),
                version: config.version,
                address: local.to_string(),
                uuid: format!("{:032x}", id.id()),
            },
            sessions: Sessions::new(&ctx.host.name, "elasticsearch", local),
            requests: Requests {
                ctx,
                max_bytes: config.max_request_bytes,
                body_timeout: config.body_timeout.get().0,
                ack_timeout: config.ack_timeout.get().0,
            },
            inbox,
            said_setup: AtomicBool::new(false),
        }
    }

    async fn take(
        &self,
        session: &Arc<Session>,
        head: &Parts,
        body: Incoming,
    ) -> Result<Answer, Failure> {
        let is_empty = body.is_end_stream();
        let leaving = |failure: Failure| failure.leaving_body(!is_empty);
        let auth = self.auth.as_ref();
        let known = self.requests.authenticate(auth, &head.headers);
        known.map_err(|fault| leaving(fault.into()))?;
        let route = route(&head.method, head.uri.path()).map_err(leaving)?;
        let (document, index) = match route {
            Route::Bulk { index } => (None, index),
            Route::Document { index, id, creates } => (Some((id, creates)), Some(index)),
            other => {
                let read = self.requests.discard(body).await;
                read.map_err(|fault| Failure::from(fault).leaving_body(true))?;
                return self.answer(other, head);
            }
        };
        let Parameters {
            mut defaults,
            filter,
            creates,
        } = Parameters::of(head.uri.query());
        defaults.index = index;
        let filter = document.is_none().then_some(filter);
        defaults.document = document.map(|(id, only_creates)| match only_creates || creates {
            true => (Verb::Create, id),
            false => (Verb::Index, id),
        });
        self.documents(session, head, body, filter, defaults).await
    }

    /// Takes documents, and answers when they are safe.
    async fn documents(
        &self,
        session: &Arc<Session>,
        head: &Parts,
        body: Incoming,
        filter: Option<Filter>,
        defaults: Defaults,
    ) -> Result<Answer, Failure> {
        let begin = Instant::now();
        let is_empty = body.is_end_stream();
        let coding = self
            .requests
            .admit(head, &body)
            .map_err(|fault| Failure::from(fault).leaving_body(!is_empty))?;
        let received = self
            .requests
            .read(session, body, coding, defaults.cut())
            .await
            .map_err(|fault| Failure::from(fault).leaving_body(true))?;
        let (reply, mut written) = oneshot::channel();
        let message = Message {
            received,
            defaults,
            session: session.clone(),
            filter,
            reply,
        };
        self.requests.deliver(&self.inbox, message).await?;
        let reply = written.try_recv().map_err(|_| Fault::Panicked)?;
        let (status, body) = reply.sent(begin.elapsed().as_millis());
        Ok(Answer {
            status,
            ..Answer::ok(body)
        })
    }

    /// The answer to a request without documents.
    fn answer(&self, route: Route, head: &Parts) -> Result<Answer, Failure> {
        match route {
            Route::Question(Question::Table) => Ok(match wants_json(head) {
                true => Answer::ok(Bytes::from_static(b"[]")),
                false => Answer {
                    content_type: TEXT,
                    ..Answer::ok(Bytes::new())
                },
            }),
            Route::Question(question) => {
                let host = head.headers.get(HOST).and_then(|host| host.to_str().ok());
                Ok(Answer::ok(self.server.answer(question, host)))
            }
            Route::Setup { index } => {
                self.requests.ctx.metrics.count("setup_requests", 1);
                if !self.said_setup.swap(true, Ordering::Relaxed) {
                    let (method, path) = (&head.method, head.uri.path());
                    self.requests.ctx.diagnostics.info(&format!(
                        "what clients set up is acknowledged and not kept, such as {method} {path}"
                    ));
                }
                Ok(Answer::ok(discovery::acknowledged(index.as_deref())))
            }
            Route::Absent { kind, name } => Err(discovery::absent(kind, &name)),
            Route::Bulk { .. } | Route::Document { .. } => Err(Fault::Panicked.into()),
        }
    }
}

/// What the parameters of an address say.
#[derive(Default)]
struct Parameters {
    defaults: Defaults,
    filter: Filter,
    creates: bool,
}

impl Parameters {
    fn of(query: Option<&str>) -> Self {
        let mut parameters = Self::default();
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            match &*name {
                "pipeline" => parameters.defaults.pipeline = Some(value.into_owned()),
                "routing" => parameters.defaults.routing = Some(value.into_owned()),
                "filter_path" => parameters.filter = Filter::parse(&value),
                "op_type" => parameters.creates = value == "create",
                _ => {}
            }
        }
        parameters
    }
}

fn wants_json(head: &Parts) -> bool {
    let query = head.uri.query().unwrap_or_default();
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    pairs.any(|(name, value)| name == "format" && value == "json")
        || accepted(&head.headers).contains("json")
}

fn accepted(headers: &HeaderMap) -> &str {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.unwrap_or_default()
}

/// The type of a JSON answer: clients from version 8 on may ask for one that names their version.
fn json_type(headers: &HeaderMap) -> HeaderValue {
    let accept = accepted(headers);
    if !accept.contains("application/vnd.elasticsearch+") {
        return JSON;
    }
    let version = accept.split("compatible-with=").nth(1);
    HeaderValue::from_static(match version.and_then(|version| version.bytes().next()) {
        Some(b'7') => "application/vnd.elasticsearch+json;compatible-with=7",
        Some(b'8') => "application/vnd.elasticsearch+json;compatible-with=8",
        Some(b'9') => "application/vnd.elasticsearch+json;compatible-with=9",
        _ => return JSON,
    })
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
        let (answer, header, closes) = match self.take(session, &head, body).await {
            Ok(answer) => (answer, None, false),
            Err(mut failure) => {
                self.refuse(session, &head, &failure);
                let answer = Answer {
                    status: failure.status,
                    ..Answer::ok(failure.body())
                };
                (answer, failure.header.take(), failure.closes)
            }
        };
        let mut response = Response::new(Full::new(answer.body));
        *response.status_mut() = answer.status;
        let headers = response.headers_mut();
        headers.insert(PRODUCT, HeaderValue::from_static("Elasticsearch"));
        let content_type = match answer.content_type == JSON {
            true => json_type(&head.headers),
            false => answer.content_type,
        };
        headers.insert(CONTENT_TYPE, content_type);
        if closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some((name, value)) = header.map(|header| *header) {
            headers.insert(name, value);
        }
        response
    }
}

impl Service {
    /// Counts what is not taken, and reports it. That something is not there is no refusal, and a
    /// client that is to send again does nothing wrong.
    fn refuse(&self, session: &Session, head: &Parts, failure: &Failure) {
        let ctx = &self.requests.ctx;
        let asks = matches!(head.method, Method::GET | Method::HEAD);
        match failure.status {
            StatusCode::TOO_MANY_REQUESTS => ctx.metrics.count("postponed_requests", 1),
            StatusCode::NOT_FOUND if asks => {}
            status if status.is_client_error() => {
                self.requests
                    .refuse(session, failure.counter, &failure.reason);
            }
            _ => {}
        }
    }
}
