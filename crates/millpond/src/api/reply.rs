//! Requests and answers, and what describes them.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use config::closest;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::json;

use super::state::ApiState;

/// What is answered.
pub type Answer = Response<Full<Bytes>>;

type Answering<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

/// A path.
pub struct Route {
    pub method: Method,
    pub path: &'static str,
    pub summary: &'static str,
    /// What may stand behind `?`: name, whether it is a number, and what it says.
    pub query: &'static [(&'static str, bool, &'static str)],
    /// The answers that it has beside those of every path.
    pub answers: &'static [Described],
    /// Whether clients without the token get an answer.
    pub is_open: bool,
    pub handle: for<'a> fn(&'a ApiState, &'a Request) -> Answering<'a>,
}

/// What an answer is.
pub struct Described {
    pub status: u16,
    pub what: &'static str,
    pub content_type: &'static str,
    pub schema: Option<fn(&mut SchemaGenerator) -> Schema>,
}

/// A request that was admitted.
pub struct Request {
    pub head: Parts,
    /// Whether the client has said who it is, where that is asked for.
    pub is_known: bool,
}

impl Request {
    /// Checks the names of the parameters: with those of a route that has any, each is there once at most, and there are no others.
    ///
    /// # Errors
    /// One is unknown or repeated: the answer that says so.
    pub fn check_parameters(&self, route: &Route) -> Result<(), Box<Answer>> {
        let mut seen: Vec<Cow<'_, str>> = Vec::new();
        let query = self.head.uri.query().unwrap_or_default();
        for (name, _) in form_urlencoded::parse(query.as_bytes()) {
            let known = || route.query.iter().map(|(known, _, _)| *known);
            let text = match known().any(|known| known == name) {
                _ if route.query.is_empty() => continue,
                true if seen.contains(&name) => format!("`{name}` is given twice"),
                true => {
                    seen.push(name);
                    continue;
                }
                false => {
                    let hint = closest(&name, known());
                    let hint = hint.map(|word| format!(", did you mean `{word}`?"));
                    let known = known().collect::<Vec<_>>().join("`, `");
                    format!(
                        "there is no parameter `{name}`{}; those there are: `{known}`",
                        hint.unwrap_or_default()
                    )
                }
            };
            return Err(Box::new(failed(StatusCode::BAD_REQUEST, &text)));
        }
        Ok(())
    }

    /// A parameter of the query.
    pub fn parameter(&self, name: &str) -> Option<String> {
        let query = self.head.uri.query().unwrap_or_default();
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        pairs
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.into_owned())
    }

    /// A parameter that is a number.
    ///
    /// # Errors
    /// It is none: the answer that says so.
    pub fn number(&self, name: &str, default: usize) -> Result<usize, Box<Answer>> {
        let Some(given) = self.parameter(name) else {
            return Ok(default);
        };
        given.parse().map_err(|_| {
            let text = format!("`{name}` must be a whole number, not `{given}`");
            Box::new(failed(StatusCode::BAD_REQUEST, &text))
        })
    }
}

pub const JSON: &str = "application/json";

pub const fn described<T: JsonSchema>(status: u16, what: &'static str) -> Described {
    Described {
        status,
        what,
        content_type: JSON,
        schema: Some(schema_of::<T>),
    }
}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

pub const fn plain(what: &'static str, content_type: &'static str) -> Described {
    Described {
        status: 200,
        what,
        content_type,
        schema: None,
    }
}

/// What an answer that is an error says.
#[derive(Serialize, JsonSchema)]
pub struct Failure {
    /// What is wrong.
    pub error: String,
}

/// An answer with a body.
pub fn answer(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    answer.headers_mut().insert(CONTENT_TYPE, content_type);
    answer
}

/// An answer as JSON.
pub fn json(status: StatusCode, body: &impl Serialize) -> Answer {
    match serde_json::to_vec(body) {
        Ok(body) => answer(status, JSON, body),
        Err(error) => failed(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// An answer that says what is wrong.
pub fn failed(status: StatusCode, text: &str) -> Answer {
    answer(status, JSON, json!({ "error": text }).to_string())
}
