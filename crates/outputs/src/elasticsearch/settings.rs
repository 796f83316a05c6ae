//! The settings of `elasticsearch`, and what they come to.

use component::{Compression, parse};
use config::{ConfigError, Node};
use expr::Template;
use net::ClientSettings;
use schemars::JsonSchema;
use serde::Deserialize;

use super::action::{Action, DocumentId, Verb};
use super::cloud;
use super::hosts::Hosts;
use super::target::Target;
use crate::compression::CompressionName;

/// The data stream of who names none.
const DATA_STREAM: &str = "logs-generic-default";

/// What gzip does unless it is told otherwise: more takes far more CPU time, and makes logs little smaller.
const GZIP_LEVEL: i32 = 1;

/// The settings of `elasticsearch`, without those of the client.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The addresses of servers of one cluster, such as `https://es.example:9200`; or one address.
    #[serde(default)]
    hosts: Vec<String>,
    /// The id of a deployment of Elastic Cloud, in place of `hosts`.
    cloud_id: Option<String>,
    /// The data stream to write to. May hold `%{field}` and `%{+time format}`. Default: `logs-generic-default`, unless `index` is set.
    data_stream: Option<String>,
    /// The index or alias to write to, in place of a data stream. May hold `%{field}` and `%{+time format}`.
    index: Option<String>,
    /// What makes the `_id`: `event` for the event's id, `none` for one that the server makes, or a text with `%{field}` in it.
    #[serde(default = "event")]
    document_id: String,
    /// What happens to a document whose id is there already: with `create` that one stays, with `index`, which is not for data
    /// streams, it is replaced. Default: `create`.
    #[serde(default)]
    op_type: OpType,
    /// The ingest pipeline that documents go through. May hold `%{field}`.
    pipeline: Option<String>,
    /// The zone of times in `%{+time format}`: an IANA name such as `Europe/Berlin`, or an offset such as `+02:00`. Default: UTC.
    #[serde(default)]
    #[allow(dead_code, reason = "read from the tree, for its place")]
    timezone: Option<String>,
    /// What decides about the shard of a document in place of its id. May hold `%{field}`.
    routing: Option<String>,
    /// What the target must be for documents to be stored, so that no index is made of its name by mistake.
    require: Option<Require>,
    /// The index template to make if there is none: `none`, `default`, or the path of a file with its body.
    #[serde(default = "none")]
    template: String,
    /// How bodies are compressed. Default: `gzip`.
    #[serde(default)]
    compression: BodyCompression,
    /// How hard to compress, 0 to 9. Default: 1.
    compression_level: Option<i32>,
}

fn event() -> String {
    "event".to_owned()
}

fn none() -> String {
    "none".to_owned()
}

/// What happens to a document whose id is there already.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum OpType {
    /// The one that is there stays.
    #[default]
    Create,
    /// It replaces the one that is there. Not for data streams.
    Index,
}

/// What the target must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Require {
    /// An alias.
    Alias,
    /// A data stream.
    DataStream,
}

/// How bodies are compressed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum BodyCompression {
    /// As gzip.
    #[default]
    Gzip,
    /// Not at all.
    None,
}

/// What the settings come to.
pub struct Settings {
    pub hosts: Hosts,
    pub target: Target,
    pub action: Action,
    /// What the address of every request says beside what the output itself wants.
    pub parameters: Vec<(&'static str, String)>,
    pub compression: Compression,
    /// Where an index template is wanted: the file with its body, none for the default.
    pub template: Option<Option<String>>,
    pub client: ClientSettings,
}

impl Settings {
    /// Reads the settings of a node.
    ///
    /// # Errors
    /// One of them cannot be used, or two do not go together; with its place.
    pub fn read(node: &Node) -> Result<Self, ConfigError> {
        let (client, own) = node.divide(ClientSettings::NAMES);
        let client = client.map(|client| parse::<ClientSettings>(&client));
        let client = client.transpose()?.unwrap_or_default();
        let config: Config =
            parse(&own).map_err(|error| error.accepted_beside(&own, ClientSettings::NAMES))?;
        let target = target(&config, node)?;
        let mut parameters = Vec::new();
        let pipeline = template(node, "pipeline", config.pipeline.as_deref())?;
        // The same for all documents, it need not stand with each of them.
        let fixed = pipeline.as_ref().and_then(Template::constant);
        let pipeline = match fixed {
            Some(fixed) => {
                parameters.push(("pipeline", fixed.to_owned()));
                None
            }
            None => pipeline,
        };
        parameters.extend(config.require.map(|require| match require {
            Require::Alias => ("require_alias", "true".to_owned()),
            Require::DataStream => ("require_data_stream", "true".to_owned()),
        }));
        Ok(Self {
            hosts: hosts(&config, node)?,
            action: Action {
                verb: match config.op_type {
                    OpType::Create => Verb::Create,
                    OpType::Index => Verb::Index,
                },
                id: match &*config.document_id {
                    "event" => DocumentId::Event,
                    "none" => DocumentId::None,
                    text => DocumentId::Text(document_id(node, text)?),
                },
                pipeline,
                routing: template(node, "routing", config.routing.as_deref())?,
                adds_timestamp: target.is_data_stream(),
            },
            target,
            parameters,
            compression: compression(&config, node)?,
            template: match &*config.template {
                "none" => None,
                "default" => Some(None),
                path => Some(Some(path.to_owned())),
            },
            client,
        })
    }
}

fn target(config: &Config, node: &Node) -> Result<Target, ConfigError> {
    match (&config.data_stream, &config.index) {
        (Some(_), Some(_)) => {
            let error = node
                .nearest("index")
                .error("`data_stream` and `index` exclude each other");
            Err(error)
        }
        (None, Some(index)) => Target::new(node, node.nearest("index"), index, false),
        (stream, None) => {
            if config.op_type == OpType::Index {
                let error = node
                    .nearest("op_type")
                    .error("data streams take `create` only");
                return Err(error.note("`index` names an index in place of a data stream"));
            }
            let name = stream.as_deref().unwrap_or(DATA_STREAM);
            Target::new(node, node.nearest("data_stream"), name, true)
        }
    }
}

fn hosts(config: &Config, node: &Node) -> Result<Hosts, ConfigError> {
    if let Some(id) = &config.cloud_id {
        let setting = node.nearest("cloud_id");
        if !config.hosts.is_empty() {
            return Err(setting.error("`hosts` and `cloud_id` exclude each other"));
        }
        let address = cloud::address(id)
            .map_err(|problem| setting.error(format!("this is no cloud id: {problem}")))?;
        return Hosts::new([(setting, address)]);
    }
    if config.hosts.is_empty() {
        let error = node.error("`hosts` is missing: the addresses of servers");
        return Err(error.note("write `hosts: https://HOST:9200`, or `cloud_id`"));
    }
    let items = node.nearest("hosts").items();
    Hosts::new(items.iter().zip(config.hosts.iter().cloned()))
}

fn template(node: &Node, name: &str, text: Option<&str>) -> Result<Option<Template>, ConfigError> {
    let setting = node.nearest(name);
    let template = text.map(|text| match text {
        "" => Err(setting.error(format!("`{name}` is empty"))),
        text => crate::format::template(node, setting, text),
    });
    template.transpose()
}

fn document_id(node: &Node, text: &str) -> Result<Template, ConfigError> {
    let setting = node.nearest("document_id");
    let template = crate::format::template(node, setting, text)?;
    if template.constant().is_some() {
        let error = setting.error("one id for all documents: each would replace the one before");
        return Err(error
            .accepted(["event", "none"])
            .note("a text holds a field, such as `%{order.id}`"));
    }
    Ok(template)
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
