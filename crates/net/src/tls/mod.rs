//! TLS for clients and servers: rustls with the `ring` provider, TLS 1.2 and 1.3.
//!
//! Roots come from the system's store through `rustls-native-certs`, which reads the same files as OpenSSL and heeds
//! `SSL_CERT_FILE` and `SSL_CERT_DIR`. The alternative, `rustls-platform-verifier`, does the same on Linux with a layer more,
//! and reads it again for every verifier that is made.
//!
//! Certificates that were renewed on disk are picked up without a restart, see [`renew`]: a server's own with its key and
//! `client_ca`, a client's own with its key. Not picked up: a client's `ca` and the system's roots.
//!
//! Limits: no encrypted private keys, no revocation lists, no HTTP/2 in ALPN.

mod client;
mod explain;
mod pem;
mod renew;
mod server;
mod verify;

pub use client::ClientContext;
pub use explain::{explained, is_of_tls};
pub use server::ServerContext;

use std::path::PathBuf;
use std::sync::Arc;

use config::{ConfigError, Node};
use rustls::SupportedProtocolVersion;
use rustls::crypto::{CryptoProvider, ring};
use rustls::version::{TLS12, TLS13};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a client speaks TLS. All files are PEM.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientTls {
    /// The certificates of the authorities that may vouch for the server, in one file, in place of the system's.
    #[serde(default, deserialize_with = "config::paths")]
    pub ca: Option<PathBuf>,
    /// The client's own certificate, the certificates that lead to its authority behind it. Needs `key`. A renewed one is
    /// picked up within a second of its next use.
    #[serde(default, deserialize_with = "config::paths")]
    pub cert: Option<PathBuf>,
    /// The private key of `cert`, not encrypted.
    #[serde(default, deserialize_with = "config::paths")]
    pub key: Option<PathBuf>,
    /// The name that the server's certificate must have. Default: the name in the address.
    pub server_name: Option<String>,
    /// Whether the server must prove who it is. **With `false` anybody on the way can read and change everything, passwords
    /// included.** For trials only: for a server with a certificate of its own, set `ca` to that certificate.
    pub verify: bool,
    /// The oldest version of TLS that is spoken.
    pub min_version: Version,
}

impl Default for ClientTls {
    fn default() -> Self {
        Self {
            ca: None,
            cert: None,
            key: None,
            server_name: None,
            verify: true,
            min_version: Version::default(),
        }
    }
}

/// How a server speaks TLS. All files are PEM; renewed ones are picked up within a second of the next connection.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerTls {
    /// The server's certificate, the certificates that lead to its authority behind it.
    #[serde(deserialize_with = "config::paths")]
    pub cert: PathBuf,
    /// The private key of `cert`, not encrypted.
    #[serde(deserialize_with = "config::paths")]
    pub key: PathBuf,
    /// The certificates of the authorities that may vouch for clients. With it, clients must show a certificate.
    #[serde(default, deserialize_with = "config::paths")]
    pub client_ca: Option<PathBuf>,
    /// With `client_ca`: whether clients may also come without a certificate. One that they show must be good in any case.
    #[serde(default)]
    pub client_cert_optional: bool,
    /// The oldest version of TLS that is spoken.
    #[serde(default)]
    pub min_version: Version,
}

/// A version of TLS.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Version {
    /// TLS 1.2.
    #[default]
    #[serde(rename = "1.2")]
    Tls12,
    /// TLS 1.3.
    #[serde(rename = "1.3")]
    Tls13,
}

impl Version {
    /// This version and those after it.
    fn and_later(self) -> &'static [&'static SupportedProtocolVersion] {
        static VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];
        match self {
            Self::Tls12 => &VERSIONS,
            Self::Tls13 => &VERSIONS[1..],
        }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// What is wrong with a setting or its file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
struct Fault {
    setting: &'static str,
    message: String,
}

impl Fault {
    fn new(setting: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { setting, message }
    }

    /// The error at its setting within `node`, which holds the settings of TLS.
    fn at(self, node: &Node) -> ConfigError {
        node.nearest(self.setting).error(self.message)
    }
}
