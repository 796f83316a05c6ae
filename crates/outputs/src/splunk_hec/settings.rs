//! The settings of `splunk_hec`, and what they come to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use component::{Compression, parse};
use config::{ConfigError, Node, Period, Positive, setting_names};
use expr::Template;
use http::HeaderValue;
use net::client::reqwest::Url;
use net::{ClientSettings, RequestError, Secret};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::envelope::{Envelope, Rendering};
use super::target::Target;
use crate::compression::CompressionName;
use crate::hosts::Hosts;
use crate::members::Members;
use crate::schema::with_client;

/// The settings of `splunk_hec`, without those of the client.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The URLs of one or more HTTP Event Collectors, such as `https://splunk.example:8088`, without `/services/collector`.
    hosts: Vec<String>,
    /// The token. `${VARIABLE}` and `file:PATH` work as for passwords.
    token: Secret,
    /// The endpoint: `event` or `raw`.
    #[serde(default)]
    endpoint: Endpoint,
    /// The text of an event, which may contain `%{field}` and `%{+time format}`. Default: the whole event as a JSON object for
    /// `event`, `%{message}` for `raw`.
    template: Option<String>,
    /// The host of an event. May contain `%{field}`, like the next three settings.
    #[serde(default = "host")]
    host: String,
    /// The source of an event.
    #[serde(default = "source")]
    source: String,
    /// The source type of an event. Default: that of the token.
    sourcetype: Option<String>,
    /// The index of an event. Default: that of the token.
    index: Option<String>,
    /// With `endpoint: event`: fields to index beside the event, each with its text, which may contain `%{field}`.
    #[serde(default)]
    fields: BTreeMap<String, String>,
    /// The zone of times in `%{+time format}`: an IANA name such as `Europe/Berlin`, or an offset such as `+02:00`. Default: UTC.
    #[serde(default)]
    #[allow(dead_code, reason = "read from the tree, for its place")]
    timezone: Option<String>,
    /// Whether an event counts as delivered only when Splunk has indexed it. The token must have indexer acknowledgement.
    #[serde(default)]
    acknowledge: bool,
    /// With `acknowledge`: how often Splunk is asked what it has indexed.
    #[serde(default = "interval")]
    acknowledge_interval: Positive<Period>,
    /// With `acknowledge`: how long an acknowledgement may take. A request that has none by then is sent again.
    #[serde(default = "patience")]
    acknowledge_timeout: Positive<Period>,
    /// The GUID of the channel. Default: a random one for each host and run.
    channel: Option<String>,
    /// How bodies are compressed.
    #[serde(default)]
    compression: BodyCompression,
    /// The compression level, 0 to 9. Default: 1.
    compression_level: Option<i32>,
}

fn host() -> String {
    "%{host.name}".to_owned()
}

fn source() -> String {
    "%{log.file.path}".to_owned()
}

fn interval() -> Positive<Period> {
    Positive::<Period>::from_secs(1)
}

fn patience() -> Positive<Period> {
    Positive::<Period>::from_secs(120)
}

/// Which endpoint requests go to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Endpoint {
    /// `/services/collector/event`.
    #[default]
    Event,
    /// `/services/collector/raw`.
    Raw,
}

/// How bodies are compressed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum BodyCompression {
    /// No.
    #[default]
    None,
    /// Gzip.
    Gzip,
}

/// What the settings come to.
pub struct Settings {
    pub hosts: Hosts<Url>,
    pub token: Token,
    pub target: Target,
    pub rendering: Rendering,
    pub acknowledge: Option<Acknowledge>,
    pub channel: Option<String>,
    pub compression: Compression,
    pub client: ClientSettings,
}

/// How acknowledgements are waited for.
#[derive(Debug, Clone, Copy)]
pub struct Acknowledge {
    pub interval: Duration,
    pub timeout: Duration,
}

/// The token of the collector.
pub struct Token(Secret);

impl Token {
    /// The value of the header `Authorization`.
    ///
    /// # Errors
    /// The token cannot be read, or cannot be sent.
    pub fn header(&self) -> Result<HeaderValue, RequestError> {
        let text = format!("Splunk {}", self.0.reveal()?);
        let mut value =
            HeaderValue::try_from(text).map_err(|_| RequestError::NoHeader("token".into()))?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// The token itself, to keep it out of messages.
    pub fn reveal(&self) -> Option<Arc<str>> {
        self.0.reveal().ok()
    }

    /// Whether it can be sent.
    ///
    /// # Errors
    /// It cannot, with the place of the setting.
    pub fn check(&self, node: &Node) -> Result<(), ConfigError> {
        let failed = |text: String| node.nearest("token").error(text).hiding_value();
        self.header().map_err(|error| failed(error.to_string()))?;
        match self.reveal().is_some_and(|token| token.is_empty()) {
            true => Err(failed("the token is empty".to_owned())),
            false => Ok(()),
        }
    }
}

/// The schema of the settings: those of a client but for `auth`, in whose place the token stands.
pub fn schema(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = with_client::<Config>(generator);
    if let Some(properties) = schema
        .get_mut("properties")
        .and_then(|value| value.as_object_mut())
    {
        properties.remove("auth");
    }
    schema
}

impl Settings {
    /// Reads the settings of a node.
    ///
    /// # Errors
    /// One of them cannot be used, or two do not go together; with its place.
    pub fn read(node: &Node) -> Result<Self, ConfigError> {
        let names = setting_names::<ClientSettings>().iter().copied();
        let names: Vec<&str> = names.filter(|name| *name != "auth").collect();
        let (client, own) = node.divide(&names);
        let client = client.map(|client| parse::<ClientSettings>(&client));
        let client = client.transpose()?.unwrap_or_default();
        let config: Config = parse(&own).map_err(|error| error.accepted_beside(&own, &names))?;
        if config.hosts.is_empty() {
            return Err(node.error("`hosts` is missing: the URLs of HTTP Event Collectors"));
        }
        let items = node.nearest("hosts").items();
        let hosts = Hosts::at_urls(items.iter().zip(config.hosts.iter().cloned()))?;
        check_channel(&config, node)?;
        let is_raw = config.endpoint == Endpoint::Raw;
        Ok(Self {
            hosts,
            target: target(&config, node)?,
            rendering: match is_raw {
                true => raw(&config, node)?,
                false => envelope(&config, node)?,
            },
            acknowledge: config.acknowledge.then(|| Acknowledge {
                interval: config.acknowledge_interval.get().0,
                timeout: config.acknowledge_timeout.get().0,
            }),
            channel: config.channel.clone(),
            compression: compression(&config, node)?,
            token: Token(config.token),
            client,
        })
    }
}

/// The settings that say what Splunk stores beside an event, with their texts.
fn metadata(config: &Config) -> [(&'static str, Option<&str>); 4] {
    [
        ("host", Some(&*config.host)),
        ("source", Some(&*config.source)),
        ("sourcetype", config.sourcetype.as_deref()),
        ("index", config.index.as_deref()),
    ]
}

fn target(config: &Config, node: &Node) -> Result<Target, ConfigError> {
    let template = |(name, text): (&'static str, &str)| {
        let template = crate::codec::template(node, node.nearest(name), text)?;
        Ok((name, template))
    };
    let metadata = metadata(config);
    let metadata = metadata
        .iter()
        .filter_map(|(name, text)| Some((*name, (*text)?)));
    match config.endpoint {
        Endpoint::Raw => Ok(Target::Raw(
            metadata.map(template).collect::<Result<_, _>>()?,
        )),
        Endpoint::Event => {
            let index = config
                .index
                .as_deref()
                .map(|text| template(("index", text)));
            let index = index.transpose()?.map(|(_, index)| index);
            Ok(Target::Event(
                index.filter(|index| index.constant().is_none()),
            ))
        }
    }
}

fn raw(config: &Config, node: &Node) -> Result<Rendering, ConfigError> {
    if !config.fields.is_empty() {
        let error = node
            .nearest("fields")
            .error("`fields` requires `endpoint: event`");
        return Err(error);
    }
    let text = config.template.as_deref().unwrap_or("%{message}");
    let template: Template = crate::codec::template(node, node.nearest("template"), text)?;
    Ok(Rendering::Raw(template))
}

fn envelope(config: &Config, node: &Node) -> Result<Rendering, ConfigError> {
    let mut members = Members::default();
    for (name, text) in metadata(config) {
        if let Some(text) = text {
            members.add(node, node.nearest(name), name, text)?;
        }
    }
    let mut fields = Members::default();
    let at = node.nearest("fields");
    for (name, text) in &config.fields {
        let value = at.get(name).unwrap_or(at);
        if name.is_empty() {
            return Err(at.error("the name of a field is empty"));
        }
        fields.add(node, value, name, text)?;
    }
    let text = config.template.as_deref();
    let text = text.map(|text| crate::codec::template(node, node.nearest("template"), text));
    Ok(Rendering::Envelope(Envelope {
        metadata: members,
        fields,
        text: text.transpose()?,
    }))
}

fn check_channel(config: &Config, node: &Node) -> Result<(), ConfigError> {
    let Some(channel) = &config.channel else {
        return Ok(());
    };
    let is_guid = channel.len() == 36
        && channel.char_indices().all(|(place, letter)| match place {
            8 | 13 | 18 | 23 => letter == '-',
            _ => letter.is_ascii_hexdigit(),
        });
    if !is_guid {
        let error = node.nearest("channel").error("a channel must be a GUID");
        return Err(error.note("such as 1b0f7f3e-5c0c-4f3c-9d9b-2a6e7d0e6a51"));
    }
    if config.acknowledge {
        let error = node
            .nearest("channel")
            .error("`channel` and `acknowledge` cannot be used together");
        return Err(error.note("acknowledgements are counted on a channel, which must not outlive a restart of the server"));
    }
    Ok(())
}

fn compression(config: &Config, node: &Node) -> Result<Compression, ConfigError> {
    let level = config.compression_level;
    match config.compression {
        BodyCompression::None => CompressionName::None.with_level(node, level),
        BodyCompression::Gzip => CompressionName::Gzip.with_level(node, Some(level.unwrap_or(1))),
    }
}
