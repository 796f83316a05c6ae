//! The settings of `journald`.

use std::path::PathBuf;

use config::{ConfigError, Node, Size};
use schemars::JsonSchema;
use serde::Deserialize;

/// The names of priorities, as journalctl knows them.
const PRIORITIES: [&str; 8] = [
    "emerg", "alert", "crit", "err", "warning", "notice", "info", "debug",
];

/// Settings of the input `journald`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// The units whose entries are read: `nginx` and `nginx.service` are the same. This includes what systemd says of them,
    /// and their core dumps. Default: every unit, and everything else in the journal.
    #[serde(default)]
    pub(super) units: Vec<String>,
    /// Fields that entries must have, such as `_COMM=sshd`. Of several values for the same field, one must match; different
    /// fields must match all. Default: none.
    #[serde(default)]
    pub(super) matches: Vec<String>,
    /// The lowest priority of entries: `err` or `3` reads errors and what is worse, `warning..err` only these two. Default: every
    /// priority.
    pub(super) priority: Option<String>,
    /// Whether the kernel's messages are read. Default: true without `units`, false with `units`.
    pub(super) kernel: Option<bool>,
    /// Where to begin if there is no saved position: a time as journalctl knows it, such as `yesterday`, `-2h`, `now` or
    /// `2026-01-31 12:00`. Default: the oldest entry.
    pub(super) since: Option<String>,
    /// Reads only entries since the last start of the machine.
    #[serde(default)]
    pub(super) boot: bool,
    /// Whether to wait for more entries at the end of the journal. Otherwise the input reads to the end, saves the position
    /// if there is a data directory, and ends. Default: true in a service, false in a one-line pipeline.
    pub(super) follow: Option<bool>,
    /// The directory with the journal's files. Default: the journal of this machine.
    pub(super) directory: Option<PathBuf>,
    /// The namespace of the journal; `*` reads all, `+NAME` reads one together with the default one. Default: the default namespace.
    pub(super) namespace: Option<String>,
    /// The program that reads the journal.
    #[serde(default = "program_default")]
    pub(super) program: PathBuf,
    /// How much of an entry is kept. Values beyond that are truncated to 256 bytes, and the event is tagged `_truncated`. At
    /// most 64MiB.
    #[serde(default = "size_default")]
    pub(super) max_event_bytes: Size,
}

fn program_default() -> PathBuf {
    "journalctl".into()
}

fn size_default() -> Size {
    Size(1 << 20)
}

impl Config {
    /// Refuses settings that cannot work.
    pub(super) fn check(&self, node: &Node) -> Result<(), ConfigError> {
        for (index, unit) in self.units.iter().enumerate() {
            if unit.is_empty() || unit.contains(['*', '?', '[', '/', ' ']) {
                let setting = node.nearest(&format!("units[{index}]"));
                return Err(setting.error("the name of a unit is expected, without wildcards"));
            }
        }
        for (index, given) in self.matches.iter().enumerate() {
            let name = given.split_once('=').map_or("", |(name, _)| name);
            let is_valid =
                |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
            if name.is_empty() || !name.bytes().all(is_valid) {
                let setting = node.nearest(&format!("matches[{index}]"));
                return Err(setting.error("`FIELD=value` is expected, such as `_COMM=sshd`"));
            }
        }
        let is_priority =
            |text: &str| PRIORITIES.contains(&text) || matches!(text.as_bytes(), [b'0'..=b'7']);
        if let Some(priority) = &self.priority
            && !priority.split("..").all(is_priority)
        {
            let names = PRIORITIES.join(", ");
            let message = format!(
                "one of {names}, a number from 0 to 7, or a range of these such as `warning..err` is expected"
            );
            return Err(node.nearest("priority").error(message));
        }
        if !(1024..=64 << 20).contains(&self.max_event_bytes.0) {
            let setting = node.nearest("max_event_bytes");
            return Err(setting.error("1KiB to 64MiB is expected"));
        }
        Ok(())
    }

    /// Whether entries of the kernel are left out after they were read.
    pub(super) fn leaves_out_kernel(&self) -> bool {
        self.kernel == Some(false)
    }
}
