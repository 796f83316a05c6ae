//! The settings of `object_store`, without those of the store.

use config::{Count, Period, Positive};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::file::content_settings::ContentSettings;

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
    /// How their content becomes events.
    #[serde(skip)]
    pub(super) content: ContentSettings,
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
