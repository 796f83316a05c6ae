//! The settings of codecs, which outputs have among their own.

use config::{ConfigError, Node, setting_names};
use expr::zone_setting;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::csv::Csv;
use super::event::Codec;
use super::template::template;
use super::text::TextField;

/// How events are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CodecName {
    /// A JSON object on one line.
    Json,
    /// The same as `json`.
    Ndjson,
    /// `key=value` pairs on one line.
    Logfmt,
    /// Time, level, host and message on one line, and behind them all other fields as `key=value`: for people.
    Compact,
    /// A row of CSV, with the fields in `csv.columns`.
    Csv,
    /// The text of `template`.
    Template,
    /// The field `message` as it is, or another field that `text.field` names. An event without it is written as JSON.
    Text,
    /// A MessagePack map.
    Msgpack,
}

/// The settings of a codec. The page `codecs` of the reference describes them.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CodecSettings {
    /// How events are written: page [codecs](codecs.md).
    codec: Option<CodecName>,
    /// With `codec: template`: the text of an event, which may contain `%{field}` and `%{+time format}`.
    template: Option<String>,
    /// With `codec: csv`: how rows are written.
    csv: Option<CsvSettings>,
    /// With `codec: text`: what is written.
    text: Option<TextSettings>,
    /// The zone of times in `%{+time format}`: an IANA name such as `Europe/Berlin`, or an offset such as `+02:00`. Default: UTC.
    #[allow(dead_code, reason = "read from the tree, for its place")]
    timezone: Option<String>,
}

/// How rows of CSV are written.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct CsvSettings {
    /// The fields of a row, in order; required with `codec: csv`.
    columns: Vec<String>,
    /// The character between fields: one ASCII character, or `tab`.
    delimiter: String,
    /// Whether the first row names the columns: at the start of every file of `file`, and of the output of `stdout`. Other outputs write none.
    header: bool,
}

impl Default for CsvSettings {
    fn default() -> Self {
        Self {
            columns: Vec::new(),
            delimiter: ",".into(),
            header: true,
        }
    }
}

/// Which text is written.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct TextSettings {
    /// The field that is written.
    field: String,
}

impl Default for TextSettings {
    fn default() -> Self {
        Self {
            field: "message".into(),
        }
    }
}

/// What other names for codecs are called here.
const OTHER_NAMES: &[(&str, &str)] = &[("line", "template"), ("raw", "text"), ("plain", "text")];

impl CodecSettings {
    /// Takes the settings of the codec out of those of an output; gives them and the rest.
    ///
    /// # Errors
    /// One of them is invalid, with its place.
    pub fn divide(node: &Node) -> Result<(Self, Node), ConfigError> {
        Self::divide_without(node, &[])
    }

    /// The same for an output that has some of these settings as its own, with other values.
    ///
    /// # Errors
    /// As for [`CodecSettings::divide`].
    pub fn divide_without(node: &Node, own: &[&str]) -> Result<(Self, Node), ConfigError> {
        refuse_format(node)?;
        let names = setting_names::<Self>().iter().copied();
        let names: Vec<&str> = names.filter(|name| !own.contains(name)).collect();
        let (settings, rest) = node.divide(&names);
        let settings = settings.map(|settings| settings.deserialize::<Self>());
        let settings = settings
            .transpose()
            .map_err(|error| suggest_codec(node, error))?;
        Ok((settings.unwrap_or_default(), rest))
    }

    /// Reads the rest of the settings.
    ///
    /// # Errors
    /// One of them is invalid, with its place.
    pub fn parse_rest<T: DeserializeOwned>(&self, rest: &Node) -> Result<T, ConfigError> {
        let own = setting_names::<T>();
        let names = setting_names::<Self>().iter().copied();
        let names: Vec<&str> = names.filter(|name| !own.contains(name)).collect();
        let read = rest.deserialize();
        read.map_err(|error| suggest_codec(rest, error.accepted_beside(rest, &names)))
    }

    /// The codec that is set, or else the default one. `node` holds all settings of the output.
    ///
    /// # Errors
    /// A setting is missing, belongs to another codec, or is invalid, with its place.
    pub fn codec(&self, node: &Node, default: CodecName) -> Result<Codec, ConfigError> {
        let name = self.codec.unwrap_or(default);
        self.refuse_idle(node, Some(name))?;
        Ok(match name {
            CodecName::Json | CodecName::Ndjson => Codec::Json,
            CodecName::Logfmt => Codec::Logfmt,
            CodecName::Compact => Codec::Compact,
            CodecName::Msgpack => Codec::MsgPack,
            CodecName::Template => self.template(node)?,
            CodecName::Csv => Codec::Csv(self.csv(node)?),
            CodecName::Text => Codec::Text(match &self.text {
                Some(set) => TextField::named(component::field(node, "text.field", &set.field)?),
                None => TextField::default(),
            }),
        })
    }

    /// Refuses settings that belong to another codec than this.
    ///
    /// # Errors
    /// There is one, with its place.
    pub fn refuse_idle(&self, node: &Node, name: Option<CodecName>) -> Result<(), ConfigError> {
        for (setting, is_set, owner) in [
            ("template", self.template.is_some(), CodecName::Template),
            ("csv", self.csv.is_some(), CodecName::Csv),
            ("text", self.text.is_some(), CodecName::Text),
        ] {
            if is_set && name != Some(owner) {
                let message = format!("`{setting}` requires `codec: {setting}`");
                return Err(node.nearest(setting).error(message));
            }
        }
        Ok(())
    }

    /// Refuses a time zone if no template is set, for outputs that have no other use for it.
    ///
    /// # Errors
    /// There is one, with its place.
    pub fn refuse_idle_zone(&self, node: &Node) -> Result<(), ConfigError> {
        let zone = node.get("timezone").filter(|zone| !zone.is_null());
        match zone.filter(|_| self.template.is_none()) {
            None => Ok(()),
            Some(zone) => {
                // A value that is none is reported first.
                zone_setting(node)?;
                Err(zone.error(
                    "`timezone` is for the times in a `template`, which requires `codec: template`",
                ))
            }
        }
    }

    fn template(&self, node: &Node) -> Result<Codec, ConfigError> {
        let Some(text) = &self.template else {
            let error = node
                .nearest("codec")
                .error("`codec: template` requires `template`");
            return Err(
                error.note("the text of an event, such as \"%{host.name} %{message}\"; the field `message` alone is `codec: text`"),
            );
        };
        Ok(Codec::Template {
            template: template(node, node.nearest("template"), text)?,
            escapes: false,
        })
    }

    fn csv(&self, node: &Node) -> Result<Csv, ConfigError> {
        let set = self.csv.clone().unwrap_or_default();
        let place = match set.columns.is_empty() {
            true if node.get("csv").is_none() => "codec",
            _ => "csv.columns",
        };
        if set.columns.is_empty() {
            let error = node
                .nearest(place)
                .error("`codec: csv` requires `csv.columns`: the fields of a row, in order");
            return Err(error.note("such as csv.columns=[host.name, message]"));
        }
        let paths = component::fields(node, "csv.columns", &set.columns, "")?;
        let delimiter = codec::csv_delimiter(&set.delimiter).ok_or_else(|| {
            let place = node.nearest("csv.delimiter");
            place.error("the delimiter is one ASCII character, or `tab`")
        })?;
        Ok(Csv::new(delimiter, paths, set.header))
    }
}

/// Refuses the setting `format`, which `codec` took the place of.
fn refuse_format(node: &Node) -> Result<(), ConfigError> {
    let entries = node.as_map().unwrap_or_default();
    let old = entries
        .iter()
        .find(|(key, _)| key.as_str() == Some("format"));
    let Some((key, value)) = old else {
        return Ok(());
    };
    let error = key.error("unknown setting `format`");
    let error = error.note("`format` has been renamed to `codec`");
    Err(match value.as_str().unwrap_or_default() {
        "line" => error.note(
            "lines of a template are `codec: template`, those of the field `message` `codec: text`",
        ),
        "array" | "single" => {
            error.note("whether a request holds an array or a single event is set with `body`")
        }
        _ => error,
    })
}

/// Suggests a codec for a name that others use.
fn suggest_codec(node: &Node, error: ConfigError) -> ConfigError {
    let codec = node.get("codec").and_then(Node::as_str);
    let is_there = error.path() == node.nearest("codec").path().to_string();
    let other = OTHER_NAMES
        .iter()
        .find(|(name, _)| Some(*name) == codec && is_there);
    match other {
        Some((_, name)) => error.suggest(*name),
        None => error,
    }
}
