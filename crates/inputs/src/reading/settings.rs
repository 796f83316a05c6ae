//! Settings that all inputs that read bytes have.

use codec::compress::Format;
use config::Size;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the events of a stream are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Codec {
    /// Each line is an event with the line as `message`.
    #[default]
    Text,
    /// JSON objects: one per line, or of any layout if the stream begins with an array of objects or with an object that
    /// does not end on its line, or is not alone on it. What is no object becomes an event of text with the tag `_jsonparsefailure`.
    Json,
    /// The same as `json`.
    Ndjson,
    /// MessagePack maps, one after the other. A broken one ends the stream with an error.
    Msgpack,
    /// Each line is a syslog message, RFC 5424 or 3164, with or without a priority: its parts become fields. A line that is
    /// none is an event of text with the tag `_syslogparsefailure`.
    Syslog,
    /// Each row of CSV is an event, all of its values text. The first row names the fields, unless `csv.columns` does. A row with
    /// more or fewer fields than that is an event of text with the tag `_csvparsefailure`. Blank lines count for nothing.
    Csv,
}

/// How rows of CSV are written.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CsvSettings {
    /// The character between fields: one ASCII character, or `tab`. Default: a comma; a tab in files called `.tsv`.
    pub(crate) delimiter: Option<String>,
    /// The names of the fields, where the first row does not name them.
    pub(crate) columns: Vec<String>,
}

/// How a stream is compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Compression {
    /// Gzip and zstd are recognised by their first bytes, whatever the name is.
    #[default]
    Auto,
    /// The bytes are taken as they are.
    None,
    /// The stream must be gzip.
    Gzip,
    /// The stream must be zstd.
    Zstd,
}

impl Compression {
    /// The one that was set, without looking at the stream.
    pub(crate) fn format(self) -> Option<Format> {
        match self {
            Self::Auto | Self::None => None,
            Self::Gzip => Some(Format::Gzip),
            Self::Zstd => Some(Format::Zstd),
        }
    }
}

/// The default of `max_line_bytes`.
pub(crate) fn line_size_default() -> Size {
    Size(1 << 20)
}

/// The most that `max_line_bytes` may be: places in a batch are 32-bit numbers.
pub(crate) const LINE_SIZE_MAX: Size = Size(1 << 30);
