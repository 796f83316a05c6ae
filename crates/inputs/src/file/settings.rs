//! The settings of the input `file`.

use std::time::Duration;

use codec::LineEnding;
use config::{ConfigError, Node, Period, Size, setting_names};
use rustix::process::{Resource, getrlimit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::content_settings::ContentSettings;
use super::watch::WatchMode;
use crate::reading::settings::{Codec, Compression};

/// Settings of the input `file`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// The files to read. Wildcards are allowed, a folder stands for the files in it, `~` for the home directory.
    #[serde(deserialize_with = "config::paths")]
    pub(super) paths: Vec<String>,
    /// Files to exclude: patterns for whole paths or for names. Default: none.
    #[serde(default, deserialize_with = "config::paths")]
    pub(super) exclude: Vec<String>,
    /// Whether to wait for more data at the end of the files, and for new files. Otherwise the input reads to the
    /// end, saves the positions if there is a data directory, and ends. Default: true in a service, false in a
    /// one-line pipeline.
    #[serde(default)]
    pub(super) follow: Option<bool>,
    /// Where to start in unknown files that exist at startup: `beginning`, or `end` to skip their current content.
    /// Files that appear later are read from the beginning.
    #[serde(default)]
    pub(super) start_at: StartAt,
    /// Ignores files whose last write was longer ago than this, until they are written to. Default: no file is
    /// ignored.
    #[serde(default)]
    pub(super) ignore_older: Option<Period>,
    /// Whether wildcards follow symbolic links to files and directories.
    #[serde(default = "yes")]
    pub(super) follow_links: bool,
    /// How files are watched.
    #[serde(default)]
    pub(super) watch: Watching,
    /// How often files are checked where the system does not report changes.
    #[serde(default = "second")]
    pub(super) scan_interval: Period,
    /// How many files are kept open after they have been read to the end, so that they can be read to the end if they
    /// are renamed or deleted. Beyond that, the files that have been idle longest are closed until they are written
    /// to. At most half of the process's limit on open files (`ulimit -n`).
    #[serde(default = "open_files_default")]
    pub(super) max_open_files: usize,
    /// When files that have been read to the end are closed. An incomplete line at the end then becomes an event.
    #[serde(default)]
    pub(super) close: Close,
    /// Deletes a file when all of its events have been acknowledged by every output and nothing has been written to
    /// it for this long. Requires `follow`. Default: files are never deleted.
    #[serde(default)]
    pub(super) delete_after: Option<Period>,
    /// How many bytes at the start of a file, decompressed, are used to recognise it. From 64B to 32KiB.
    #[serde(default = "fingerprint_default")]
    pub(super) fingerprint_bytes: Size,
    /// How long the state of files that have disappeared is kept, so that a copy is recognised.
    #[serde(default = "day")]
    pub(super) forget_after: Period,
    /// How their content becomes events.
    #[serde(skip)]
    pub(super) content: ContentSettings,
}

impl Config {
    /// Reads the settings in `node`.
    ///
    /// # Errors
    /// One of them cannot be used, at its place.
    pub(super) fn read(node: &Node) -> Result<Self, ConfigError> {
        let (content, own) = ContentSettings::divide(node)?;
        let names = setting_names::<ContentSettings>();
        let parsed = component::parse(&own);
        let parsed: Self =
            parsed.map_err(|error: ConfigError| error.accepted_beside(&own, names))?;
        Ok(Self { content, ..parsed })
    }
}

/// Where to start in files that exist at startup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StartAt {
    /// At the beginning.
    #[default]
    Beginning,
    /// At the end.
    End,
}

/// How files are watched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Watching {
    /// Uses `inotify`, except on network file systems, which do not report the changes of other machines: those are
    /// polled.
    #[default]
    Auto,
    /// The system reports changes.
    Inotify,
    /// Files are checked every `scan_interval`.
    Poll,
}

/// When files that were read to their end are closed.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CloseSettings {
    /// When nothing has been written for this long.
    inactive: Period,
    /// 5 seconds after the last write, if the file was deleted.
    removed: bool,
    /// 5 seconds after the last write, if the file was renamed.
    renamed: bool,
    /// This long after it was opened, in any case. Default: never.
    after: Option<Period>,
}

impl Default for CloseSettings {
    fn default() -> Self {
        Self {
            inactive: Period::from_secs(300),
            removed: true,
            renamed: false,
            after: None,
        }
    }
}

pub(super) type Close = CloseSettings;

/// The rules for closing, as durations.
#[derive(Debug, Clone)]
pub(crate) struct CloseRules {
    pub(super) inactive: Duration,
    pub(super) removed: bool,
    pub(super) renamed: bool,
    pub(super) after: Option<Duration>,
}

/// What the tracker goes by.
#[derive(Debug, Clone)]
pub(crate) struct Following {
    pub(super) follow: bool,
    pub(super) start_at: StartAt,
    pub(super) ignore_older: Option<Duration>,
    pub(super) compression: Compression,
    pub(super) fingerprint_bytes: usize,
    pub(super) open_files_max: usize,
    pub(super) close: CloseRules,
    pub(super) delete_after: Option<Duration>,
    pub(super) forget_after: Duration,
    /// Whether NULs at the end of a plain file are room that is still to be written to, and no content.
    pub(super) has_room: bool,
    /// When a record that waits for its end is given.
    pub(super) record_timeout: Duration,
    /// When what cannot be read is tried again.
    pub(super) retry_interval: Duration,
    /// How often positions are written to the registry.
    pub(super) save_interval: Duration,
}

impl Following {
    pub(super) fn new(config: &Config, follow: bool, record_timeout: Duration) -> Self {
        Self {
            follow,
            start_at: config.start_at,
            ignore_older: config.ignore_older.map(|period| period.0),
            compression: config.content.compression,
            fingerprint_bytes: config.fingerprint_bytes.bytes(),
            open_files_max: config.max_open_files.min(open_files_allowed()),
            close: CloseRules {
                inactive: config.close.inactive.0,
                removed: config.close.removed,
                renamed: config.close.renamed,
                after: config.close.after.map(|period| period.0),
            },
            delete_after: config.delete_after.map(|period| period.0),
            forget_after: config.forget_after.0,
            has_room: config.content.codec != Some(Codec::Msgpack)
                && config.content.encoding.as_deref().is_none_or(is_like_ascii)
                && config.content.line_ending != LineEnding::Nul,
            record_timeout,
            retry_interval: Duration::from_secs(10),
            save_interval: Duration::from_millis(250),
        }
    }
}

/// Whether text in an encoding holds NULs only where somebody wrote one.
fn is_like_ascii(encoding: &str) -> bool {
    let encoding = encoding_rs::Encoding::for_label(encoding.as_bytes());
    encoding.is_some_and(encoding_rs::Encoding::is_ascii_compatible)
}

/// How many files an input may keep open: half of what the process may, because it needs some for other things.
fn open_files_allowed() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit / 2).unwrap_or(usize::MAX).max(1)
}

impl From<Watching> for WatchMode {
    fn from(watching: Watching) -> Self {
        match watching {
            Watching::Auto => Self::Auto,
            Watching::Inotify => Self::Inotify,
            Watching::Poll => Self::Poll,
        }
    }
}

fn yes() -> bool {
    true
}

fn second() -> Period {
    Period::from_secs(1)
}

fn day() -> Period {
    Period::from_secs(24 * 3600)
}

fn open_files_default() -> usize {
    512
}

fn fingerprint_default() -> Size {
    Size(1024)
}
