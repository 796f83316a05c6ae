//! The settings that say how the content of files and objects becomes events, with the same names for both.

use codec::{ContainerFormat, LineEnding, MultilineConfig};
use config::{ConfigError, Node, Size, setting_names};
use schemars::JsonSchema;
use serde::Deserialize;

use super::formats::Formats;
use crate::reading::records::Records;
use crate::reading::settings::{Codec, Compression, CsvSettings, line_size_default};

/// How content becomes events.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ContentSettings {
    /// How events are written. Default: `json` in what is called `.json`, `.ndjson` or `.jsonl`, `csv` in what is called
    /// `.csv` or `.tsv`, and `text` in all else and where `container` or `multiline` is set.
    pub(crate) codec: Option<Codec>,
    /// How rows of CSV are written.
    pub(crate) csv: Option<CsvSettings>,
    /// Adds `@timestamp`, `host.name`, `log.file.path` and `log.offset` to JSON and MessagePack events that do not
    /// have these fields; lines of text always get them.
    pub(crate) add_fields: bool,
    /// The maximum length of a line in bytes, without its line ending; longer lines are truncated. Also the maximum
    /// size of a multi-line record and of a MessagePack document; behind a larger document nothing more is read, which is an error. At
    /// most 1GiB.
    pub(crate) max_line_bytes: Size,
    /// How the content is compressed.
    pub(crate) compression: Compression,
    /// The character encoding, such as `utf-16le`, `windows-1252`, `shift_jis`: a label of the WHATWG Encoding Standard.
    /// Default: UTF-8.
    pub(crate) encoding: Option<String>,
    /// What ends a line.
    pub(crate) line_ending: LineEnding,
    /// Parses the log format of container runtimes, joins split lines, and sets `stream` and `@timestamp`. Default:
    /// lines are read as they are.
    pub(crate) container: Option<ContainerFormat>,
    /// Combines several lines into one event. Default: each line is an event.
    pub(crate) multiline: Option<MultilineConfig>,
    /// Regular expressions: only events that match one of them are read. Default: all events.
    pub(crate) include_lines: Vec<String>,
    /// Regular expressions: events that match one of them are discarded. Default: none.
    pub(crate) exclude_lines: Vec<String>,
    /// The time zone of syslog times without one, such as `Europe/Berlin` or `+02:00`. Default: the local time
    /// zone of the machine, as in `date`.
    pub(crate) timezone: Option<String>,
}

impl Default for ContentSettings {
    fn default() -> Self {
        Self {
            codec: None,
            csv: None,
            add_fields: false,
            max_line_bytes: line_size_default(),
            compression: Compression::default(),
            encoding: None,
            line_ending: LineEnding::default(),
            container: None,
            multiline: None,
            include_lines: Vec::new(),
            exclude_lines: Vec::new(),
            timezone: None,
        }
    }
}

impl ContentSettings {
    /// Takes these settings out of those of an input; gives them and the rest.
    ///
    /// # Errors
    /// One of them cannot be used, at its place.
    pub(crate) fn divide(node: &Node) -> Result<(Self, Node), ConfigError> {
        let (mine, own) = node.divide(setting_names::<Self>());
        let mine = mine.map(|mine| component::parse(&mine)).transpose()?;
        Ok((mine.unwrap_or_default(), own))
    }

    /// Whether other settings than `codec` make everything text.
    pub(crate) fn is_text(&self) -> bool {
        self.container.is_some() || self.multiline.is_some()
    }

    /// What codecs make of them. `node` holds the settings of the input.
    ///
    /// # Errors
    /// A setting that cannot be taken, with its place.
    pub(crate) fn formats(&self, node: &Node) -> Result<Formats, ConfigError> {
        Formats::new(self.codec, self.is_text(), |codec, delimiter| {
            let records = Records {
                codec,
                delimiter,
                csv: self
                    .csv
                    .as_ref()
                    .filter(|_| codec == Codec::Csv || self.codec.is_some()),
                add_fields: self.add_fields,
                max_line_bytes: self.max_line_bytes,
                encoding: self.encoding.as_deref(),
                line_ending: self.line_ending,
                container: self.container,
                multiline: self.multiline.as_ref(),
                include_lines: &self.include_lines,
                exclude_lines: &self.exclude_lines,
                timezone: self.timezone.as_deref(),
            };
            records.settings(node)
        })
    }
}
