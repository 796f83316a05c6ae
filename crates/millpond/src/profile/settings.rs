//! The settings of the profiler in a service.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use config::{ConfigError, Node, Period, Positive, Size};
use net::{Address, Auth, ClientSettings, ClientTls, Secret, ServerTls};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::archive::ArchiveSettings;
use super::tariff::TariffSettings;

/// The name of the profiler's settings at the top of a configuration.
pub const SETTING: &str = "profile";

/// The folder of the store in the data directory.
const FOLDER: &str = "profile";

/// The most samples a second of a core.
const FREQUENCY_MAX: u32 = 1000;

/// The least room for profiles.
const STORE_MIN: Size = Size(1 << 20);

/// The profiler. A service samples itself where it has a `data_dir` or a `store`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProfileSettings {
    /// Whether anything is sampled. With `false`, profiles are still received if `receive` says so.
    pub enabled: bool,
    /// Whether every process of the machine is sampled, not only Millpond.
    pub host: bool,
    /// How often a second each core is sampled while it is busy: from 1 to 1000.
    pub frequency: u32,
    /// Whether Java virtual machines are asked for the names of their functions, by `SIGQUIT` and the attach protocol; with `host: true`.
    pub attach: bool,
    /// The directory where profiles are stored, as pprof files. Several machines may use one directory. Default: `profile`
    /// in `data_dir`.
    #[serde(deserialize_with = "config::paths")]
    pub store: Option<PathBuf>,
    /// The maximum size of the stored profiles; the oldest are deleted.
    pub max_bytes: Size,
    /// The maximum age of the stored profiles.
    pub max_age: Period,
    /// What cores cost, which `millpond profile --rates` reads.
    pub rates: TariffSettings,
    /// A bucket that gets a copy of the stored profiles. Default: none.
    #[serde(skip_serializing, deserialize_with = "read_apart")]
    #[schemars(schema_with = "super::archive::schema")]
    pub archive: Option<ArchiveSettings>,
    /// The server that profiles are sent to as OTLP, beside being stored. Default: none.
    #[serde(skip_serializing)]
    pub send: Option<SendSettings>,
    /// The address where profiles of other machines are received as OTLP, and stored. Default: none.
    #[serde(skip_serializing)]
    pub receive: Option<ReceiveSettings>,
}

impl Default for ProfileSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            host: false,
            frequency: 20,
            attach: true,
            store: None,
            max_bytes: Size(1 << 30),
            max_age: Period::from_secs(30 * 24 * 3600),
            rates: TariffSettings::default(),
            archive: None,
            send: None,
            receive: None,
        }
    }
}

/// The settings of a bucket are divided: [`ArchiveSettings::of`].
fn read_apart<'de, D: serde::Deserializer<'de>>(
    settings: D,
) -> Result<Option<ArchiveSettings>, D::Error> {
    serde::de::IgnoredAny::deserialize(settings).map(|_| None)
}

/// How OTLP is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Protocol {
    /// Over HTTP/1.1, as protobuf.
    #[default]
    #[serde(rename = "http/protobuf")]
    Http,
    /// Over gRPC.
    #[serde(rename = "grpc")]
    Grpc,
}

/// Where profiles are sent to, as OTLP.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendSettings {
    /// The `http` or `https` URL. Without a path, that of profiles is added: `/v1development/profiles`, or the method of gRPC.
    pub url: String,
    /// The protocol: OTLP over HTTP as protobuf, or over gRPC.
    #[serde(default)]
    pub protocol: Protocol,
    /// The credentials of the client.
    pub auth: Option<Auth>,
    /// Headers for every request. A value may be `file:PATH` for the content of a file.
    #[serde(default)]
    pub headers: BTreeMap<String, Secret>,
    /// The proxy to use; `none` for no proxy. Default: the environment variables `http_proxy`, `https_proxy` and `no_proxy`.
    pub proxy: Option<Secret>,
    /// The maximum time for a request.
    #[serde(default = "send_timeout")]
    pub timeout: Positive<Period>,
    /// The maximum time for which a stop of the service waits until the last profile is sent, half of it for names.
    #[serde(default = "send_shutdown_deadline")]
    pub shutdown_deadline: Positive<Period>,
    /// TLS settings.
    #[serde(default)]
    pub tls: ClientTls,
}

fn send_shutdown_deadline() -> Positive<Period> {
    Positive::<Period>::from_secs(10)
}

fn send_timeout() -> Positive<Period> {
    Positive::<Period>::from_secs(60)
}

impl SendSettings {
    /// Those of the client.
    pub fn client(&self) -> ClientSettings {
        ClientSettings {
            auth: self.auth.clone(),
            headers: self.headers.clone(),
            proxy: self.proxy.clone(),
            timeout: self.timeout,
            tls: self.tls.clone(),
            ..ClientSettings::default()
        }
    }
}

/// Where profiles are received, as OTLP: over HTTP as protobuf, at `/v1development/profiles`, and over gRPC.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiveSettings {
    /// The address to listen on: `4318`, `:4318` or `HOST:4318`.
    pub address: Address,
    /// TLS settings. Default: no TLS.
    pub tls: Option<ServerTls>,
    /// The credentials that clients must have. Default: none.
    pub auth: Option<Auth>,
    /// The maximum number of connections.
    #[serde(default = "max_connections")]
    pub max_connections: usize,
    /// The maximum size of a request, as it is sent and once it is decompressed.
    #[serde(default = "max_request_bytes")]
    pub max_request_bytes: Positive<Size>,
}

fn max_connections() -> usize {
    1024
}

fn max_request_bytes() -> Positive<Size> {
    Positive::<Size>::from_bytes(64 << 20)
}

/// The profiler of a configuration.
#[derive(Debug, Clone)]
pub struct Profiling {
    /// Its settings.
    pub settings: ProfileSettings,
    /// Where they stand, or the configuration where there are none.
    pub node: Node,
}

impl Profiling {
    /// Those of a configuration.
    ///
    /// # Errors
    /// A setting cannot work, at its place.
    pub fn of(root: &Node) -> Result<Self, ConfigError> {
        let Some(node) = root.get(SETTING) else {
            return Ok(Self {
                settings: ProfileSettings::default(),
                node: root.clone(),
            });
        };
        let mut settings: ProfileSettings = node.deserialize()?;
        let archive = node.get("archive").map(ArchiveSettings::of).transpose()?;
        settings.archive = archive;
        let profiling = Self {
            settings,
            node: node.clone(),
        };
        profiling.check()?;
        Ok(profiling)
    }

    /// Whether a configuration without pipelines does something: it samples the machine, or receives profiles.
    pub fn works_alone(&self) -> bool {
        let settings = &self.settings;
        (settings.enabled && settings.host) || settings.receive.is_some()
    }

    fn check(&self) -> Result<(), ConfigError> {
        let settings = &self.settings;
        let refuse = |setting: &str, text: String| Err(self.node.nearest(setting).error(text));
        if settings.frequency == 0 || settings.frequency > FREQUENCY_MAX {
            return refuse(
                "frequency",
                format!("`frequency` must be from 1 to {FREQUENCY_MAX}"),
            );
        }
        if settings
            .store
            .as_ref()
            .is_some_and(|store| store.as_os_str().is_empty())
        {
            return refuse("store", "`store` must be a directory".to_owned());
        }
        if settings.max_bytes < STORE_MIN {
            return refuse(
                "max_bytes",
                format!("`max_bytes` of `profile` must be at least {STORE_MIN}"),
            );
        }
        if settings.max_age.0 < Duration::from_secs(3600) {
            return refuse(
                "max_age",
                "`max_age` of `profile` must be at least 1h".to_owned(),
            );
        }
        if let Some((name, wrong)) = settings.rates.wrong() {
            let setting = format!("rates.{name}");
            return refuse(&setting, format!("`{name}` is {wrong}"));
        }
        if let Some(send) = &settings.send {
            net::client::url(self.node.nearest("send.url"), &send.url)?;
        }
        Ok(())
    }

    /// The folder of the store.
    ///
    /// # Errors
    /// There is none, and something asks for it.
    pub fn store(&self, data_dir: Option<&Path>) -> Result<Option<PathBuf>, ConfigError> {
        let settings = &self.settings;
        let own = data_dir.map(|folder| folder.join(FOLDER));
        let store = settings.store.clone().or(own);
        let needs_it = [
            (settings.enabled && settings.host, "host"),
            (settings.enabled && settings.send.is_some(), "send"),
            (settings.receive.is_some(), "receive"),
            (settings.archive.is_some(), "archive"),
        ];
        match (&store, needs_it.iter().find(|(needs, _)| *needs)) {
            (None, Some((_, setting))) => {
                let error = self.node.nearest(setting);
                Err(error.error(format!(
                    "`{setting}` needs a `store`, or a `data_dir` in which profiles are stored"
                )))
            }
            _ => Ok(store),
        }
    }
}
