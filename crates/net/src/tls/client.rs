//! The client's side of TLS.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use config::{ConfigError, Node};
use rustls::client::{ResolvesClientCert, WebPkiServerVerifier};
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::renew::Renewing;
use super::verify::{Anybody, Usual};
use super::{ClientTls, Fault, pem, provider};

/// What a client needs to speak TLS. Cheap to clone.
#[derive(Clone)]
pub struct ClientContext {
    config: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
    identity: Option<Arc<Identity>>,
}

impl ClientTls {
    /// Reads the certificates. `node` holds the settings of TLS.
    ///
    /// # Errors
    /// A file that cannot be used, with the place of its setting.
    pub fn open(&self, node: &Node) -> Result<ClientContext, ConfigError> {
        self.context().map_err(|fault| fault.at(node))
    }

    fn context(&self) -> Result<ClientContext, Fault> {
        let roots = if self.verify {
            self.roots()?
        } else {
            RootCertStore::empty()
        };
        self.trusting(roots)
    }

    fn trusting(&self, roots: RootCertStore) -> Result<ClientContext, Fault> {
        let server_name = self.server_name()?;
        let identity = self.identity()?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(self.min_version.and_later())
            .map_err(|error| Fault::new("min_version", error.to_string()))?;
        let builder = if self.verify && roots.is_empty() {
            builder.with_root_certificates(roots)
        } else if self.verify {
            let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
                .build()
                .map_err(|error| Fault::new("ca", error.to_string()))?;
            let pinned = match &self.ca {
                Some(path) => pem::certificates("ca", path)?,
                None => Vec::new(),
            };
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Usual {
                    name: server_name.clone(),
                    pinned,
                    verifier,
                }))
        } else {
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Anybody(provider())))
        };
        let config = match identity.clone() {
            Some(identity) => builder.with_client_cert_resolver(identity),
            None => builder.with_no_client_auth(),
        };
        Ok(ClientContext {
            config: Arc::new(config),
            server_name,
            identity,
        })
    }

    fn server_name(&self) -> Result<Option<ServerName<'static>>, Fault> {
        let Some(name) = self.server_name.clone() else {
            return Ok(None);
        };
        ServerName::try_from(name).map(Some).map_err(|_| {
            Fault::new(
                "server_name",
                "expected a host name or an IP address without a port",
            )
        })
    }

    fn identity(&self) -> Result<Option<Arc<Identity>>, Fault> {
        match (self.cert.clone(), self.key.clone()) {
            (None, None) => Ok(None),
            (Some(cert), Some(key)) => Identity::open(cert, key).map(Arc::new).map(Some),
            (Some(_), None) => Err(Fault::new(
                "cert",
                "`cert` requires `key`, the file with the private key of the certificate",
            )),
            (None, Some(_)) => Err(Fault::new(
                "key",
                "`key` requires `cert`, the file with the certificate of the key",
            )),
        }
    }

    fn roots(&self) -> Result<RootCertStore, Fault> {
        if let Some(path) = &self.ca {
            return pem::authorities("ca", path);
        }
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        // Stores hold certificates that nobody can use any more: the others count.
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            let reason = found.errors.first().map(ToString::to_string);
            let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
            let message = format!(
                "this system has no CA certificates{reason}: install the package `ca-certificates`, or set `ca`"
            );
            return Err(Fault::new("ca", message));
        }
        Ok(roots)
    }
}

impl ClientContext {
    /// For clients that speak no TLS: no certificate is good enough.
    pub(crate) fn trusting_nobody(node: &Node) -> Result<Self, ConfigError> {
        let roots = RootCertStore::empty();
        let context = ClientTls::default().trusting(roots);
        context.map_err(|fault| fault.at(node))
    }

    /// The configuration for a library that makes its connections itself.
    pub fn config(&self) -> &Arc<ClientConfig> {
        &self.config
    }

    /// Speaks TLS on a connection to `host`.
    ///
    /// # Errors
    /// The handshake failed.
    pub async fn connect(&self, tcp: TcpStream, host: &str) -> io::Result<TlsStream<TcpStream>> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned())
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?,
        };
        TlsConnector::from(self.config.clone())
            .connect(name, tcp)
            .await
    }

    /// What a person should hear, such as a renewed certificate that cannot be used, since the last call.
    pub fn take_warnings(&self) -> Vec<String> {
        let identity = self.identity.as_ref();
        identity.map_or_else(Vec::new, |identity| identity.0.take_warnings())
    }
}

/// The client's own certificate, as its files have it.
struct Identity(Renewing<CertifiedKey>);

impl Identity {
    fn open(cert: PathBuf, key: PathBuf) -> Result<Self, Fault> {
        let files = vec![cert.clone(), key.clone()];
        Renewing::new(files, move || pem::identity(&cert, &key)).map(Self)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity")
    }
}

impl ResolvesClientCert for Identity {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.get())
    }

    fn has_certs(&self) -> bool {
        true
    }
}
