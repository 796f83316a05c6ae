//! The settings of `otlp`, and what they come to.

use std::collections::BTreeMap;

use batch::FieldPath;
use component::{Compression, parse};
use config::{ConfigError, Node, setting_names};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use net::ClientSettings;
use net::client::reqwest::Url;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::origin::Origins;
use super::record::{Mapping, Wanted};
use crate::compression::CompressionName;

/// The path of logs at a server that is named without one.
const PATH: &str = "/v1/logs";

/// The method of the service for logs.
const METHOD: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";

/// What gzip does unless it is told otherwise: more takes far more CPU time, and makes logs little smaller.
const GZIP_LEVEL: i32 = 1;

/// The settings of `otlp`, without those of the client.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The URL of the server, such as `http://collector:4318`. Without a path, `/v1/logs` is used; with `protocol: grpc`, the method of
    /// the service for logs, as in `http://collector:4317`.
    url: String,
    /// The protocol.
    #[serde(default)]
    protocol: Protocol,
    /// How requests are compressed.
    #[serde(default)]
    compression: BodyCompression,
    /// The compression level, 0 to 9. Default: 1.
    compression_level: Option<i32>,
    /// What the body of a log record holds.
    #[serde(default)]
    body: BodyName,
    /// How objects become attributes.
    #[serde(default)]
    objects: Objects,
    /// The fields with the severity. The first one that is a text counts.
    #[serde(default = "severity_default")]
    severity: Vec<String>,
    /// The fields with the id of the trace: 32 hexadecimal digits.
    #[serde(default = "trace_default")]
    trace_id: Vec<String>,
    /// The fields with the id of the span: 16 hexadecimal digits.
    #[serde(default = "span_default")]
    span_id: Vec<String>,
    /// The attributes of the resource of events without a field `resource`, such as `service.name: web`. A value may contain `%{field}` and
    /// `%{+time format}`; an attribute whose text is empty is left out. Events with different attributes do not share a request.
    #[serde(default)]
    resource: BTreeMap<String, String>,
    /// The zone of times in `%{+time format}`: an IANA name such as `Europe/Berlin`, or an offset such as `+02:00`. Default: UTC.
    #[serde(default)]
    #[allow(dead_code, reason = "read from the tree, for its place")]
    timezone: Option<String>,
    /// The instrumentation scope of events without a field `scope`.
    #[serde(default)]
    scope: ScopeSettings,
}

/// The protocol of requests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP/1.1 with Protocol Buffers, by default on port 4318 of servers.
    #[default]
    Http,
    /// gRPC, by default on port 4317 of servers.
    Grpc,
}

/// How requests are compressed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum BodyCompression {
    /// Gzip.
    #[default]
    Gzip,
    /// No.
    None,
}

/// What the body of a log record holds.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum BodyName {
    /// The text in `message`, or else what is in `body` if that is no text. All other fields become attributes.
    #[default]
    Message,
    /// The whole event.
    Event,
}

/// How objects become attributes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Objects {
    /// As they are: attributes that hold attributes. The input `otlp` makes the same event of them.
    #[default]
    Keep,
    /// Each of their fields is an attribute, with names joined by dots, such as `http.request.method`: as the semantic conventions of OpenTelemetry
    /// name attributes. Objects in arrays stay as they are.
    Flatten,
}

/// The instrumentation scope.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct ScopeSettings {
    /// Its name.
    name: String,
    /// Its version.
    version: String,
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn severity_default() -> Vec<String> {
    texts(&["log.level", "level", "severity"])
}

fn trace_default() -> Vec<String> {
    texts(&["trace.id", "trace_id"])
}

fn span_default() -> Vec<String> {
    texts(&["span.id", "span_id"])
}

/// What the settings come to.
pub struct Settings {
    pub url: Url,
    pub protocol: Protocol,
    pub compression: Compression,
    pub mapping: Mapping,
    pub client: ClientSettings,
}

impl Settings {
    /// Reads the settings of a node.
    ///
    /// # Errors
    /// One of them cannot be used, with its place.
    pub fn read(node: &Node) -> Result<Self, ConfigError> {
        let names = setting_names::<ClientSettings>();
        let (client, own) = node.divide(names);
        let client = client.map(|client| parse::<ClientSettings>(&client));
        let client = client.transpose()?.unwrap_or_default();
        let config: Config = parse(&own).map_err(|error| error.accepted_beside(&own, names))?;
        check_headers(node, &client)?;
        // Also where no template needs it.
        expr::zone_setting(node)?;
        Ok(Self {
            url: url(&config, node)?,
            protocol: config.protocol,
            compression: compression(&config, node)?,
            mapping: mapping(&config, node)?,
            client,
        })
    }
}

/// Refuses headers that say what the output says itself.
fn check_headers(node: &Node, client: &ClientSettings) -> Result<(), ConfigError> {
    for own in [CONTENT_TYPE, CONTENT_ENCODING] {
        let mut names = client.headers.keys();
        if let Some(name) = names.find(|name| name.eq_ignore_ascii_case(own.as_str())) {
            let error = node.nearest("headers");
            return Err(error.error(format!(
                "the header `{name}` cannot be set: it follows from the other settings"
            )));
        }
    }
    Ok(())
}

fn url(config: &Config, node: &Node) -> Result<Url, ConfigError> {
    let at = node.nearest("url");
    let mut url = net::client::url(at, &config.url)?;
    let path = match config.protocol {
        Protocol::Http => PATH,
        Protocol::Grpc => METHOD,
    };
    if url.path() == "/" {
        url.set_path(path);
    }
    if config.protocol == Protocol::Http && url.port() == Some(4317) {
        let error = at.error("port 4317 is that of gRPC");
        return Err(error.note("set `protocol: grpc`, or use the port of HTTP, by default 4318"));
    }
    Ok(url)
}

fn compression(config: &Config, node: &Node) -> Result<Compression, ConfigError> {
    let level = config.compression_level;
    match config.compression {
        BodyCompression::None => CompressionName::None.with_level(node, level),
        BodyCompression::Gzip => {
            CompressionName::Gzip.with_level(node, Some(level.unwrap_or(GZIP_LEVEL)))
        }
    }
}

fn mapping(config: &Config, node: &Node) -> Result<Mapping, ConfigError> {
    let wanted = |name: &str, fields: &[String]| {
        let fields = fields.iter().enumerate().map(|(index, field)| {
            let path = FieldPath::parse(field).map_err(|error| {
                let at = node.nearest(name);
                let at = at.items().get(index).unwrap_or(at);
                at.error(format!("`{field}` is not a field name: {error}"))
            })?;
            Ok(Wanted::new(&path))
        });
        fields.collect::<Result<Vec<_>, ConfigError>>()
    };
    let templates = config.resource.iter().map(|(name, text)| {
        let at = node.nearest("resource").get(name).unwrap_or(node);
        Ok((name.clone(), crate::codec::template(node, at, text)?))
    });
    let templates = templates.collect::<Result<Vec<_>, ConfigError>>()?;
    Ok(Mapping {
        severity: wanted("severity", &config.severity)?,
        trace: wanted("trace_id", &config.trace_id)?,
        span: wanted("span_id", &config.span_id)?,
        is_whole: config.body == BodyName::Event,
        flattens: config.objects == Objects::Flatten,
        origins: Origins::new(templates, &config.scope.name, &config.scope.version),
    })
}
