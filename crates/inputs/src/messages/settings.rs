//! Settings of inputs that take messages from a server, with the same names in all of them.

use codec::LineEnding;
use config::{ConfigError, Node, Size};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reading::records::Records;
use crate::reading::settings::Codec;

/// How messages are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MessageCodec {
    /// Each value is a JSON object. One that is not becomes an event of text with the tag `_jsonparsefailure`.
    #[default]
    Json,
    /// The same as `json`.
    Ndjson,
    /// Each value is the `message` of an event.
    Text,
    /// Each value is a syslog message, RFC 5424 or 3164: its parts become fields. One that is not becomes an event of text
    /// with the tag `_syslogparsefailure`.
    Syslog,
}

impl MessageCodec {
    /// What codecs make of messages that are written so, with the other settings of their inputs. `node` holds all of them.
    ///
    /// # Errors
    /// A setting that cannot be taken, with its place.
    pub(crate) fn settings(
        self,
        (add_fields, max_line_bytes, timezone): (bool, Size, Option<&str>),
        node: &Node,
    ) -> Result<codec::Settings, ConfigError> {
        let records = Records {
            codec: match self {
                Self::Json | Self::Ndjson => Codec::Json,
                Self::Text => Codec::Text,
                Self::Syslog => Codec::Syslog,
            },
            add_fields,
            max_line_bytes,
            timezone,
            line_ending: LineEnding::Lf,
            delimiter: b',',
            ..Records::default()
        };
        records.settings(node)
    }
}

/// Where a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Until {
    /// At what was last when the input began.
    End,
}

/// Where reading begins for a reader that the server does not know yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Beginning,
    End,
    /// At a time in milliseconds since 1970.
    Time(i64),
}

impl Start {
    /// The start in a setting, which `node` holds.
    ///
    /// # Errors
    /// Another text, at the place of the setting.
    pub(crate) fn read(text: &str, node: &Node) -> Result<Self, ConfigError> {
        match text {
            "beginning" => Ok(Self::Beginning),
            "end" => Ok(Self::End),
            _ => match text.parse::<Timestamp>() {
                Ok(time) => Ok(Self::Time(time.as_millisecond())),
                Err(_) => Err(node.error(
                    "`beginning`, `end` or a time such as `2026-01-31T12:00:00Z` is expected",
                )),
            },
        }
    }
}

pub(crate) fn start_default() -> String {
    "beginning".to_owned()
}
