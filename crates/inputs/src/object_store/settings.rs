//! The settings of `object_store`, without those of the store.

use codec::{ContainerFormat, LineEnding, MultilineConfig};
use config::{Count, Period, Positive, Size};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::reading::settings::{Codec, Compression, CsvSettings, line_size_default};

/// Settings of the input `object_store`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// Where objects are: `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX`, or a directory: `file:///PATH`, `/PATH` or `./PATH`.
    pub(super) url: String,
    /// Which objects to read: patterns for their names behind the prefix, or for what stands behind the last slash. Default: all objects.
    #[serde(default, rename = "match", deserialize_with = "config::paths")]
    pub(super) matching: Vec<String>,
    /// Which objects to leave out: patterns as for `match`. Default: none.
    #[serde(default, deserialize_with = "config::paths")]
    pub(super) exclude: Vec<String>,
    /// Reads only objects whose names behind the prefix come later than this text in the order of bytes. Default: all objects.
    #[serde(default)]
    pub(super) start_after: Option<String>,
    /// Ignores objects that were written longer ago than this and that were not begun. Default: no object is ignored.
    #[serde(default)]
    pub(super) ignore_older: Option<Period>,
    /// Whether to wait for new objects. Otherwise the input reads the objects that are there, and ends. Default: true in a service, false in a
    /// one-line pipeline.
    #[serde(default)]
    pub(super) follow: Option<bool>,
    /// How often objects are listed.
    #[serde(default = "minute")]
    pub(super) scan_interval: Positive<Period>,
    /// Whether names grow with time, as those that begin with a date do. Then only what follows is listed: objects up to a name of which all were
    /// read, and were written longer ago than `lookback`, are not listed or remembered again.
    #[serde(default)]
    pub(super) ordered: bool,
    /// With `ordered`: how much later than an object another one may appear whose name comes before.
    #[serde(default = "hour")]
    pub(super) lookback: Period,
    /// Deletes an object when all of its events have been acknowledged by every output and it was written this long ago; `0s` at once. Default:
    /// objects are never deleted.
    #[serde(default)]
    pub(super) delete_after: Option<Period>,
    /// How many objects are read at the same time; 1 to 64.
    #[serde(default = "four")]
    pub(super) concurrency: Positive<Count>,
    /// How long it is remembered of an object that is no longer listed that it was read.
    #[serde(default = "day")]
    pub(super) forget_after: Period,
    /// How events are written in the objects. Default: `json` in objects called `.json`, `.ndjson` or `.jsonl`, `csv` in those called
    /// `.csv` or `.tsv`, and `text` in all others and where `container` or `multiline` is set.
    #[serde(default)]
    pub(super) codec: Option<Codec>,
    /// How rows of CSV are written.
    #[serde(default)]
    pub(super) csv: Option<CsvSettings>,
    /// Adds `@timestamp`, `host.name`, `log.file.path` and `log.offset` to JSON and MessagePack events that do not
    /// have these fields; lines of text always get them.
    #[serde(default)]
    pub(super) add_fields: bool,
    /// The maximum length of a line in bytes, without its line ending; longer lines are truncated. Also the maximum
    /// size of a multi-line record and of a MessagePack document; a larger document ends its object with an error. At
    /// most 1GiB.
    #[serde(default = "line_size_default")]
    pub(super) max_line_bytes: Size,
    /// How the objects are compressed.
    #[serde(default)]
    pub(super) compression: Compression,
    /// The character encoding, such as `utf-16le`, `windows-1252`, `shift_jis`: a label of the WHATWG Encoding Standard.
    /// Default: UTF-8.
    #[serde(default)]
    pub(super) encoding: Option<String>,
    /// What ends a line.
    #[serde(default)]
    pub(super) line_ending: LineEnding,
    /// Parses the log format of container runtimes, joins split lines, and sets `stream` and `@timestamp`. Default:
    /// lines are read as they are.
    #[serde(default)]
    pub(super) container: Option<ContainerFormat>,
    /// Combines several lines into one event. Default: each line is an event.
    #[serde(default)]
    pub(super) multiline: Option<MultilineConfig>,
    /// Regular expressions: only events that match one of them are read. Default: all events.
    #[serde(default)]
    pub(super) include_lines: Vec<String>,
    /// Regular expressions: events that match one of them are discarded. Default: none.
    #[serde(default)]
    pub(super) exclude_lines: Vec<String>,
    /// The time zone of syslog times without one, such as `Europe/Berlin` or `+02:00`. Default: the local time
    /// zone of the machine, as in `date`.
    #[serde(default)]
    pub(super) timezone: Option<String>,
}

/// The most objects that may be read at the same time: each takes a thread.
pub(super) const CONCURRENCY_MAX: u64 = 64;

fn minute() -> Positive<Period> {
    Positive::<Period>::from_secs(60)
}

fn hour() -> Period {
    Period::from_secs(3600)
}

fn day() -> Period {
    Period::from_secs(24 * 3600)
}

fn four() -> Positive<Count> {
    Positive::<Count>::from_count(4)
}
