//! What a request asks for, by its method and path, and what its query says.

use batch::json;
use http::request::Parts;
use http::{HeaderName, Method};

use super::decode::Format;
use super::document::Defaults;
use super::failure::Failure;
use super::time;

/// The header that names the channel of a client.
const CHANNEL: HeaderName = HeaderName::from_static("x-splunk-request-channel");

/// How long a channel may be. Splunk expects a GUID, of 36 characters.
const CHANNEL_BYTES_MAX: usize = 128;

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// It brings events.
    Events(Format),
    /// It asks which requests are safe.
    Acks,
    /// It asks whether events are accepted.
    Health,
    /// It asks whether there is a collector, as Docker's logging driver does before it begins.
    Options,
}

impl Route {
    /// What a request asks for.
    pub(super) fn of(head: &Parts) -> Result<Self, Failure> {
        let path = head.uri.path();
        let (route, method) = match path.strip_suffix('/').unwrap_or(path) {
            "/services/collector"
            | "/services/collector/event"
            | "/services/collector/event/1.0" => (Self::Events(Format::Envelopes), Method::POST),
            "/services/collector/raw" | "/services/collector/raw/1.0" => {
                (Self::Events(Format::Lines), Method::POST)
            }
            "/services/collector/ack" | "/services/collector/ack/1.0" => (Self::Acks, Method::POST),
            "/services/collector/health" | "/services/collector/health/1.0" => {
                (Self::Health, Method::GET)
            }
            _ => return Err(Failure::not_found()),
        };
        match (&head.method, route) {
            (given, route) if *given == method => Ok(route),
            (&Method::OPTIONS, _) => Ok(Self::Options),
            (_, Self::Health) => Err(Failure::method("GET")),
            _ => Err(Failure::method("POST, OPTIONS")),
        }
    }
}

/// What the query and the headers of a request say.
#[derive(Debug, Default)]
pub(super) struct Parameters {
    pub(super) channel: Option<String>,
    pub(super) defaults: Defaults,
}

impl Parameters {
    /// Reads them.
    pub(super) fn of(head: &Parts) -> Result<Self, Failure> {
        let mut parameters = Self::default();
        let query = head.uri.query().unwrap_or_default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let text = || {
                let mut text = Vec::new();
                json::write_string(&mut text, value.as_bytes());
                Some(text)
            };
            let defaults = &mut parameters.defaults;
            match &*name {
                "channel" => parameters.channel = Some(value.into_owned()),
                "host" => defaults.host = text(),
                "source" => defaults.source = text(),
                "sourcetype" => defaults.sourcetype = text(),
                "index" => defaults.index = text(),
                "time" => {
                    let nanos = time::nanos(value.as_bytes()).ok_or_else(|| {
                        let reason = "`time` in the query is not a number of seconds since 1970";
                        Failure::invalid_format(reason)
                    })?;
                    defaults.time = text().map(|text| (text, nanos));
                }
                _ => {}
            }
        }
        if let Some(channel) = head.headers.get(CHANNEL) {
            let channel = channel.to_str().map_err(|_| Failure::channel_invalid())?;
            parameters.channel = Some(channel.to_owned());
        }
        let is_valid = |channel: &String| {
            (1..=CHANNEL_BYTES_MAX).contains(&channel.len())
                && channel.bytes().all(|byte| byte.is_ascii_graphic())
        };
        match parameters.channel.as_ref().is_none_or(is_valid) {
            true => Ok(parameters),
            false => Err(Failure::channel_invalid()),
        }
    }
}
