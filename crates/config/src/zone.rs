//! What is said of a setting that names no time zone.

use datetime::Zone;

use crate::{ConfigError, Node, closest};

/// The error for a setting whose text names no time zone. `others` are what it accepts beside zones.
pub fn no_zone(setting: &Node, text: &str, others: &[&str]) -> ConfigError {
    let zones = [
        "an IANA name such as Europe/Berlin",
        "an offset such as +02:00",
    ];
    let error = setting
        .error(format!("`{text}` is not a time zone"))
        .accepted(zones.iter().chain(others).copied());
    let names = Zone::names();
    match closest(text, names.iter().map(String::as_str)) {
        Some(closest) => error.suggest(closest),
        None => error,
    }
}
