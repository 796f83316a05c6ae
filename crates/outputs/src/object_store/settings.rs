//! The settings of `object_store`, without those of the codec and the store.

use std::collections::BTreeMap;

use component::Compression;
use config::{ConfigError, Count, Node, Period, Positive, Size};
use schemars::JsonSchema;
use serde::Deserialize;

use super::columns::{ColumnType, Columns};
use crate::codec::CodecName;
use crate::compression::CompressionName;

/// The settings of `object_store`, without those of the codec and the store.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where objects go: `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX`, or a directory: `file:///PATH`, `/PATH` or `./PATH`.
    pub url: String,
    /// The names of objects between the prefix and the part that makes each one unique; may contain `%{field}` and `%{+time format}`. There is one
    /// open object for each different text. An empty text leaves it out.
    #[serde(default = "path")]
    pub path: String,
    /// How events are written: page [codecs](codecs.md); or `parquet`, which makes a Parquet file of each object.
    #[serde(default)]
    pub codec: ObjectCodec,
    /// With `codec: parquet`: the columns.
    pub parquet: Option<ParquetSettings>,
    /// How objects are compressed. Default: `gzip`; with `codec: parquet`, whose pages are compressed, `zstd`.
    pub compression: Option<CompressionName>,
    /// The compression level: gzip 0 to 9, zstd 1 to 22. Default: 6 for gzip, 3 for zstd, 1 for the zstd of Parquet.
    pub compression_level: Option<i32>,
    /// An object ends when its events have this size, before compression.
    #[serde(default = "max_bytes")]
    pub max_bytes: Positive<Size>,
    /// An object ends this long after its first event.
    #[serde(default = "max_age")]
    pub max_age: Positive<Period>,
    /// The maximum number of open objects; beyond that, the one without events for the longest time ends.
    #[serde(default = "max_open")]
    pub max_open_objects: Positive<Count>,
}

/// How events are written.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ObjectCodec {
    /// A JSON object on one line.
    #[default]
    Json,
    /// The same as `json`.
    Ndjson,
    /// `key=value` pairs on one line.
    Logfmt,
    /// Time, level, host and message on one line, and behind them all other fields as `key=value`.
    Compact,
    /// A row of CSV, with the fields in `csv.columns`.
    Csv,
    /// The text of `template`.
    Template,
    /// The field `message` as it is, or another field that `text.field` names.
    Text,
    /// A MessagePack map.
    Msgpack,
    /// A row of a Parquet file, with the columns in `parquet.columns`.
    Parquet,
}

impl ObjectCodec {
    /// The codec of a stream; none for Parquet.
    pub fn of_stream(self) -> Option<CodecName> {
        Some(match self {
            Self::Json => CodecName::Json,
            Self::Ndjson => CodecName::Ndjson,
            Self::Logfmt => CodecName::Logfmt,
            Self::Compact => CodecName::Compact,
            Self::Csv => CodecName::Csv,
            Self::Template => CodecName::Template,
            Self::Text => CodecName::Text,
            Self::Msgpack => CodecName::Msgpack,
            Self::Parquet => return None,
        })
    }
}

/// The columns of Parquet files.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ParquetSettings {
    /// The columns, each with its type: `text`, `int`, `float`, `bool`, `timestamp` or `json`. The name is that of a field. Default:
    /// `@timestamp: timestamp`.
    pub columns: BTreeMap<String, ColumnType>,
    /// The name of a column with everything that no other column has, as JSON. An empty text means none: what no column has is not written.
    pub rest: String,
    /// A row group ends when it has so many rows, with the batch that reaches them.
    pub row_group_rows: Positive<Count>,
}

impl Default for ParquetSettings {
    fn default() -> Self {
        Self {
            columns: BTreeMap::new(),
            rest: "rest".to_owned(),
            row_group_rows: Positive::<Count>::from_count(250_000),
        }
    }
}

impl Config {
    /// The columns of Parquet files, where they are wanted. `node` holds all settings.
    ///
    /// # Errors
    /// A column cannot be, or settings do not go together, with their place.
    pub fn parquet(&self, node: &Node) -> Result<Option<(Columns, Compression)>, ConfigError> {
        if self.codec != ObjectCodec::Parquet {
            return match node.get("parquet").filter(|set| !set.is_null()) {
                Some(set) => Err(set.error("`parquet` requires `codec: parquet`")),
                None => Ok(None),
            };
        }
        let compression = match self.compression.unwrap_or(CompressionName::Zstd) {
            CompressionName::Gzip => {
                let error = node
                    .nearest("compression")
                    .error("Parquet files are not compressed with gzip here");
                return Err(error.note("use `compression: zstd`, which is the default, or `none`"));
            }
            CompressionName::Zstd => {
                CompressionName::Zstd.with_level(node, Some(self.compression_level.unwrap_or(1)))?
            }
            none => none.with_level(node, self.compression_level)?,
        };
        let settings = self.parquet.clone().unwrap_or_default();
        let at = node.get("parquet").and_then(|set| set.get("columns"));
        Ok(Some((Columns::new(at, &settings.rest)?, compression)))
    }
}

fn path() -> String {
    "%{+yyyy/MM/dd}".to_owned()
}

fn max_bytes() -> Positive<Size> {
    Positive::<Size>::from_bytes(256 << 20)
}

fn max_age() -> Positive<Period> {
    Positive::<Period>::from_secs(300)
}

fn max_open() -> Positive<Count> {
    Positive::<Count>::from_count(64)
}
