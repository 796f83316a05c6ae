//! The index template that the output makes where it is missing and the settings ask for it.
//!
//! One that is there stays as it is, whoever made it. It is made before the first documents are sent, because a data
//! stream is one only when a template says so at that time: without it, the first document makes an index of that name.

use config::{ConfigError, Node};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use net::Client;
use net::client::reqwest::{Response, Url};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::reply;
use super::target::Target;
use crate::failover::Failed;
use crate::hosts::below;
use component::SendError;

/// How much of an answer is read.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Above the templates that servers bring along: 100 for logs.
const PRIORITY: u32 = 200;

/// An index template, and whether it is known to be there.
#[derive(Debug)]
pub struct Setup {
    name: String,
    body: String,
    is_there: OnceCell<()>,
}

impl Setup {
    /// The template that the setting asks for: a file with its body, or none for that of Millpond's.
    ///
    /// # Errors
    /// The file cannot be read, or holds no JSON object; with the place of the setting.
    pub fn new(target: &Target, file: Option<&str>, setting: &Node) -> Result<Self, ConfigError> {
        let body = match file {
            None => standard(target),
            Some(path) => {
                let text = std::fs::read_to_string(path);
                let text =
                    text.map_err(|error| setting.error(format!("cannot read {path}: {error}")))?;
                let body: Result<Value, _> = serde_json::from_str(&text);
                let body = body
                    .map_err(|error| setting.error(format!("{path} is not valid JSON: {error}")))?;
                if !body.is_object() {
                    return Err(setting.error(format!("{path} does not contain a JSON object")));
                }
                body
            }
        };
        Ok(Self {
            name: format!("millpond-{}", target.with_each("any")),
            body: body.to_string(),
            is_there: OnceCell::new(),
        })
    }

    /// Makes the template unless it is there.
    ///
    /// # Errors
    /// The server does not answer, or does not take it.
    pub async fn ensure(&self, client: &Client, host: &Url, origin: &str) -> Result<(), Failed> {
        let made = self
            .is_there
            .get_or_try_init(|| self.make(client, host, origin));
        made.await.copied()
    }

    async fn make(&self, client: &Client, host: &Url, origin: &str) -> Result<(), Failed> {
        let mut url = below(host, &["_index_template", &self.name]);
        let failed = |error| Failed::unanswered(origin, error);
        let asked = client.request(Method::HEAD, url.clone()).map_err(failed)?;
        let mut answer = client.send(asked).await.map_err(failed)?;
        if answer.status() == StatusCode::NOT_FOUND {
            // Somebody else may make it at the same time, and is not to be overwritten.
            url.set_query(Some("create=true"));
            let made = client.request(Method::PUT, url).map_err(failed)?;
            let json = HeaderValue::from_static("application/json");
            let made = made.headers(HeaderMap::from_iter([(CONTENT_TYPE, json)]));
            answer = client
                .send(made.body(self.body.clone()))
                .await
                .map_err(failed)?;
        }
        let status = answer.status();
        let text = text(answer).await;
        if status.is_success() || text.contains("already exists") {
            return Ok(());
        }
        let error = match reply::failed(status, text.as_bytes(), origin, None) {
            SendError::Blocked(reason) | SendError::Unfit(reason) => SendError::Blocked(format!(
                "the index template `{}` cannot be created: {reason}",
                self.name
            )),
            error => error,
        };
        Err(Failed::answered(status, error))
    }
}

async fn text(mut answer: Response) -> String {
    let mut text = Vec::new();
    // An answer that breaks off has been given all the same.
    while let Ok(Some(chunk)) = answer.chunk().await {
        text.extend_from_slice(&chunk);
        if text.len() > ANSWER_BYTES_MAX {
            break;
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// A template that makes times dates, `message` full text, and other texts keywords.
fn standard(target: &Target) -> Value {
    let mut body = json!({
        "index_patterns": [target.with_each("*")],
        "priority": PRIORITY,
        "template": {
            "mappings": {
                "dynamic_templates": [{
                    "texts": {
                        "match_mapping_type": "string",
                        "mapping": { "type": "keyword", "ignore_above": 1024 },
                    },
                }],
                "properties": {
                    "@timestamp": { "type": "date" },
                    "message": { "type": "text" },
                },
            },
        },
        "_meta": { "description": "created by Millpond" },
    });
    if target.is_data_stream() {
        body["data_stream"] = json!({});
    }
    body
}
