//! The settings of a client of Kafka, which components have among their own.

use std::collections::BTreeMap;
use std::path::PathBuf;

use config::{ConfigError, Node, Period, Positive, setting_names};
use net::{ClientTls, Endpoint, Secret};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The port of brokers.
pub const PORT: u16 = 9092;

/// The settings of a client.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BrokerSettings {
    /// Brokers, such as `kafka.example:9092`, from which the client learns about all others of the cluster. The default port is 9092.
    pub brokers: Vec<Endpoint>,
    /// The name of the client in the logs and quotas of brokers.
    pub client_id: String,
    /// Enables TLS. Default: disabled.
    pub tls: Option<BrokerTls>,
    /// Who the client is. Default: it does not say.
    pub sasl: Option<Sasl>,
    /// The maximum time to establish a connection, including TLS and SASL.
    pub connect_timeout: Positive<Period>,
    /// Further options of librdkafka with their values, such as `linger.ms: 20`. Options that a setting of Millpond stands for are refused.
    pub options: BTreeMap<String, OptionValue>,
}

impl Default for BrokerSettings {
    fn default() -> Self {
        Self {
            brokers: Vec::new(),
            client_id: "millpond".to_owned(),
            tls: None,
            sasl: None,
            connect_timeout: Positive::<Period>::from_secs(10),
            options: BTreeMap::new(),
        }
    }
}

/// How brokers are spoken to over TLS. All files are PEM, and are read at the start.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BrokerTls {
    /// The certificates of the authorities that may vouch for brokers, in one file, in place of the system's.
    #[serde(default, deserialize_with = "config::paths")]
    pub ca: Option<PathBuf>,
    /// The client's own certificate, the certificates that lead to its authority behind it. Needs `key`.
    #[serde(default, deserialize_with = "config::paths")]
    pub cert: Option<PathBuf>,
    /// The private key of `cert`, not encrypted.
    #[serde(default, deserialize_with = "config::paths")]
    pub key: Option<PathBuf>,
    /// Whether brokers must prove who they are. **With `false` anybody on the way can read and change everything, passwords
    /// included.** For trials only: for brokers with certificates of their own, set `ca` to these certificates.
    pub verify: bool,
}

impl Default for BrokerTls {
    fn default() -> Self {
        Self {
            ca: None,
            cert: None,
            key: None,
            verify: true,
        }
    }
}

impl BrokerTls {
    /// Reads the files, so that one that cannot be used is reported as it is for other components.
    ///
    /// # Errors
    /// It cannot be used, at the place of its setting within `node`, which holds the settings of TLS.
    pub fn check(&self, node: &Node) -> Result<(), ConfigError> {
        let settings = ClientTls {
            ca: self.ca.clone(),
            cert: self.cert.clone(),
            key: self.key.clone(),
            verify: self.verify,
            ..ClientTls::default()
        };
        settings.open(node).map(drop)
    }
}

/// Who the client is.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sasl {
    /// How it proves that.
    pub mechanism: Mechanism,
    /// The user, for all mechanisms but `OAUTHBEARER`.
    pub user: Option<String>,
    /// The password of the user, read at the start.
    pub password: Option<Secret>,
    /// The token, for `OAUTHBEARER`. One in a file is read again before it expires; when that is, the claim `exp` of a JSON Web Token says, and other tokens
    /// are read again within five minutes.
    pub token: Option<Secret>,
}

/// How a client proves who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mechanism {
    /// User and password as they are; use it with TLS only.
    #[serde(rename = "PLAIN")]
    Plain,
    /// A proof that the client knows the password, with SHA-256.
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    /// A proof that the client knows the password, with SHA-512.
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
    /// A token.
    #[serde(rename = "OAUTHBEARER")]
    OAuthBearer,
}

impl Mechanism {
    /// Its name in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
            Self::OAuthBearer => "OAUTHBEARER",
        }
    }
}

/// The value of an option of librdkafka.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OptionValue {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A text.
    Text(String),
}

impl OptionValue {
    /// As librdkafka reads it.
    pub fn text(&self) -> String {
        match self {
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Float(value) => value.to_string(),
            Self::Text(value) => value.clone(),
        }
    }
}

/// How batches of records are compressed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RecordCompression {
    /// They are not.
    #[default]
    None,
    /// Gzip.
    Gzip,
    /// Snappy.
    Snappy,
    /// LZ4.
    Lz4,
    /// Zstd.
    Zstd,
}

impl RecordCompression {
    /// As librdkafka writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

impl BrokerSettings {
    /// Takes the settings of a client out of those of a component; gives them and the rest.
    ///
    /// # Errors
    /// One of them cannot be used, at its place.
    pub fn divide(node: &Node) -> Result<(Self, Node), ConfigError> {
        let (mine, own) = node.divide(setting_names::<Self>());
        let mine = mine
            .map(|mine| component::parse::<Self>(&mine))
            .transpose()?;
        let mine = mine.unwrap_or_default();
        if mine.brokers.is_empty() {
            let error = node.error("`brokers` is missing: the addresses of brokers");
            return Err(error.note("set `brokers: HOST:PORT`, or a list of them"));
        }
        if let Some(sasl) = &mine.sasl {
            sasl.check(node.nearest("sasl"))?;
        }
        Ok((mine, own))
    }

    /// The rest of the settings, which a component has beside these.
    ///
    /// # Errors
    /// One of them cannot be used, at its place.
    pub fn parse_rest<T: DeserializeOwned>(rest: &Node) -> Result<T, ConfigError> {
        let names = setting_names::<Self>();
        component::parse(rest).map_err(|error: ConfigError| error.accepted_beside(rest, names))
    }

    /// The brokers, as librdkafka reads them.
    pub fn addresses(&self) -> String {
        let brokers = self.brokers.iter().cloned();
        let addresses = brokers.map(|broker| broker.or_port(PORT).to_string());
        addresses.collect::<Vec<_>>().join(",")
    }
}

impl Sasl {
    fn check(&self, node: &Node) -> Result<(), ConfigError> {
        let is_token = self.mechanism == Mechanism::OAuthBearer;
        let name = self.mechanism.name();
        for (setting, is_set, is_wanted) in [
            ("user", self.user.is_some(), !is_token),
            ("password", self.password.is_some(), !is_token),
            ("token", self.token.is_some(), is_token),
        ] {
            if is_set && !is_wanted {
                let message = format!("`{setting}` is not for `mechanism: {name}`");
                return Err(node.nearest(setting).error(message));
            }
            if !is_set && is_wanted {
                return Err(node.error(format!("`mechanism: {name}` requires `{setting}`")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ::config::{Source, parse_yaml};

    use super::*;

    fn read(yaml: &str) -> Result<BrokerSettings, ConfigError> {
        let node = parse_yaml(&Source::new("t.yaml", yaml)).expect("YAML");
        BrokerSettings::divide(&node).map(|(settings, _)| settings)
    }

    #[test]
    fn settings_are_read_with_their_defaults() {
        let yaml = "{brokers: [a, 'b:1', '[::1]:2'], options: {linger.ms: 20, debug: all, x: true, y: 0.5}}";
        let settings = read(yaml).expect("settings");
        assert_eq!(settings.addresses(), "a:9092,b:1,[::1]:2");
        assert_eq!(settings.client_id, "millpond");
        let options: Vec<_> = settings.options.values().map(OptionValue::text).collect();
        assert_eq!(options, ["all", "20", "true", "0.5"]);
    }

    #[test]
    fn settings_that_cannot_work_are_refused_at_their_place() {
        for (yaml, part) in [
            ("{}", "`brokers` is missing"),
            ("brokers: 'kafka://a:1'", "try `a:1`"),
            ("{brokers: a, sasl: {mechanism: plain}}", "PLAIN"),
            ("{brokers: a, sasl: {mechanism: PLAIN}}", "requires `user`"),
            (
                "{brokers: a, sasl: {mechanism: SCRAM-SHA-256, user: u, password: p, token: t}}",
                "`token` is not for `mechanism: SCRAM-SHA-256`",
            ),
            (
                "{brokers: a, sasl: {mechanism: OAUTHBEARER}}",
                "requires `token`",
            ),
            ("{brokers: a, tls: {server_name: x}}", "server_name"),
        ] {
            let error = read(yaml).expect_err(yaml).to_string();
            assert!(error.contains(part), "{yaml}: {error}");
        }
    }
}
