//! The settings of `dns`, checked.

use std::net::{IpAddr, SocketAddr};

use config::{ConfigError, Node, Period};
use schemars::JsonSchema;
use serde::Deserialize;

use super::answers::Times;
use super::question::LookupType;
use super::resolver::NameServers;
use crate::object_lookup::default_cache_entries;

/// The longest time-out: it delays all events behind, and those of other pipelines.
const TIMEOUT_MAX: Period = Period::from_secs(5);

/// The most entries of the cache: about 2 GB.
const CACHE_ENTRIES_MAX: usize = 10_000_000;

/// The port of name servers (RFC 1035, section 4.2).
const PORT: u16 = 53;

/// The settings of `dns`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// The field that holds the address, or the name with `type=forward`.
    pub field: String,
    /// The field to write.
    pub target: String,
    /// What is looked up.
    #[serde(default, rename = "type")]
    pub lookup_type: LookupType,
    /// The name servers, by their IP addresses, with a port if it is not 53: `[10.0.0.53, "10.0.1.53:5353", "[2001:db8::53]:53"]`. Default: those of the system.
    servers: Option<Vec<String>>,
    /// How long the events of a batch wait for answers, from 0s to 5s.
    #[serde(default = "default_timeout")]
    timeout: Period,
    /// The shortest time for which a record is remembered, whatever its own TTL.
    #[serde(default = "default_min_ttl")]
    min_ttl: Period,
    /// The longest time for which a record is remembered, whatever its own TTL.
    #[serde(default = "default_max_ttl")]
    max_ttl: Period,
    /// How long it is remembered that there is no record, or no answer.
    #[serde(default = "default_negative_ttl")]
    negative_ttl: Period,
    /// How many addresses or names are remembered, for all workers together, from 1 to 10,000,000.
    #[serde(default = "default_cache_entries")]
    cache_entries: usize,
}

fn default_timeout() -> Period {
    Period::from_millis(500)
}

fn default_min_ttl() -> Period {
    Period::from_secs(60)
}

fn default_max_ttl() -> Period {
    Period::from_secs(3600)
}

fn default_negative_ttl() -> Period {
    Period::from_secs(60)
}

impl Config {
    /// How long answers are waited for and kept.
    ///
    /// # Errors
    /// Times that make no sense, with their place.
    pub fn times(&self, node: &Node) -> Result<Times, ConfigError> {
        if self.timeout > TIMEOUT_MAX {
            let message = format!("`timeout` must be from 0s to {TIMEOUT_MAX}");
            let error = node.nearest("timeout").error(message);
            return Err(error.note("while a batch waits, so does one of the workers that the pipeline has for itself; an answer that comes later is in the cache for later events"));
        }
        if self.min_ttl > self.max_ttl {
            let message = format!(
                "`min_ttl` must not be longer than `max_ttl`: {} and {}",
                self.min_ttl, self.max_ttl
            );
            let place = ["max_ttl", "min_ttl"]
                .into_iter()
                .find(|it| node.get(it).is_some());
            return Err(node.nearest(place.unwrap_or_default()).error(message));
        }
        Ok(Times {
            timeout: *self.timeout,
            min_ttl: *self.min_ttl,
            max_ttl: *self.max_ttl,
            negative_ttl: *self.negative_ttl,
        })
    }

    /// How many answers are remembered.
    ///
    /// # Errors
    /// None, or too many.
    pub fn entries_max(&self, node: &Node) -> Result<usize, ConfigError> {
        let place = node.nearest("cache_entries");
        match self.cache_entries {
            0 => Err(place.error("the cache needs room for one answer at least")),
            entries if entries > CACHE_ENTRIES_MAX => {
                Err(place.error("`cache_entries` must be from 1 to 10,000,000"))
            }
            entries => Ok(entries),
        }
    }

    /// The servers to ask.
    ///
    /// # Errors
    /// A text that is no address, or a system that names no servers, with its place.
    pub fn name_servers(&self, node: &Node) -> Result<NameServers, ConfigError> {
        let Some(servers) = &self.servers else {
            return NameServers::of_system().map_err(|error| {
                let message = format!(
                    "cannot read the name servers of the system from /etc/resolv.conf: {error}"
                );
                node.error(message)
                    .note("name them, for example: servers=[10.0.0.53]")
            });
        };
        let place = |index: usize| node.nearest(&format!("servers[{index}]"));
        if servers.is_empty() {
            let message =
                "name at least one name server, or leave `servers` out for those of the system";
            return Err(node.nearest("servers").error(message));
        }
        let numbered = servers.iter().enumerate();
        let addresses = numbered.map(|(index, text)| server(place(index), text));
        Ok(NameServers::at(&addresses.collect::<Result<Vec<_>, _>>()?))
    }
}

/// The address of a name server, which stands at `at`.
fn server(at: &Node, text: &str) -> Result<SocketAddr, ConfigError> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok((address, PORT).into());
    }
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() > 0 => Ok(address),
        _ => Err(at
            .error(format!("`{text}` is not the address of a name server"))
            .note("expected an IP address, with a port if it is not 53: 10.0.0.53, \"10.0.0.53:5353\" or \"[2001:db8::53]:53\"")),
    }
}
