//! Settings that several outputs of this kind have.

use std::time::Duration;

use config::{ConfigError, Node, Period, Positive, Size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::framing::Framing;

/// Kinds of sockets of Unix.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Connections, as with TCP.
    #[default]
    Stream,
    /// Each event is a datagram, as with UDP.
    Datagram,
}

/// What happens to an event that is too large for a datagram.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Oversized {
    /// It is rejected.
    #[default]
    Reject,
    /// It is truncated.
    Truncate,
}

/// The most bytes of a datagram over IPv4, which leaves room for the headers of UDP and IP.
pub const DATAGRAM_BYTES: u64 = 65_507;

/// The settings of datagrams, in the outputs that send them only or also.
pub fn datagrams(
    size: Option<Positive<Size>>,
    oversized: Option<Oversized>,
    node: &Node,
) -> Result<Framing, ConfigError> {
    let size = size.map_or(DATAGRAM_BYTES, |size| size.get().0);
    if size > DATAGRAM_BYTES {
        let at = node.nearest("max_datagram_bytes");
        return Err(at.error(format!("a datagram has at most {DATAGRAM_BYTES} bytes")));
    }
    Ok(Framing::Datagrams {
        bytes_max: size as usize,
        truncates: oversized == Some(Oversized::Truncate),
    })
}

/// The first of these settings that is there.
pub fn first_set<'n>(node: &'n Node, names: &[&'static str]) -> Option<(&'static str, &'n Node)> {
    let mut names = names.iter();
    names.find_map(|name| {
        let setting = node.get(name).filter(|setting| !setting.is_null())?;
        Some((*name, setting))
    })
}

/// Refuses settings that do not go with the others.
///
/// # Errors
/// One is there, with its place.
pub fn refuse(node: &Node, names: &[&'static str], required: &str) -> Result<(), ConfigError> {
    match first_set(node, names) {
        None => Ok(()),
        Some((name, setting)) => Err(setting.error(format!("`{name}` requires {required}"))),
    }
}

pub fn timeout_default() -> Positive<Period> {
    Positive::<Period>::from_secs(10)
}

pub fn write_timeout_default() -> Positive<Period> {
    Positive::<Period>::from_secs(60)
}

pub fn resend_default() -> Size {
    Size(8 << 20)
}

/// A time-out.
pub fn duration(period: &Positive<Period>) -> Duration {
    period.get().0
}
