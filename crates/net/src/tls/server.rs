//! The server's side of TLS.

use std::sync::Arc;

use config::{ConfigError, Node};
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use rustls::sign::SingleCertAndKey;

use super::renew::Renewing;
use super::{Fault, ServerTls, pem, provider};

/// What a server needs to speak TLS. Cheap to clone.
#[derive(Clone)]
pub struct ServerContext(Arc<Renewing<ServerConfig>>);

impl ServerTls {
    /// Reads the certificates. `node` holds the settings of TLS.
    ///
    /// # Errors
    /// A file that cannot be used, with the place of its setting.
    pub fn open(&self, node: &Node) -> Result<ServerContext, ConfigError> {
        self.open_for(node, &[])
    }

    /// As [`ServerTls::open`], for servers that speak HTTP/2 beside HTTP/1.1.
    ///
    /// # Errors
    /// A file that cannot be used, with the place of its setting.
    pub fn open_with_http2(&self, node: &Node) -> Result<ServerContext, ConfigError> {
        self.open_for(node, &[b"h2", b"http/1.1"])
    }

    /// `protocols` are those that clients may ask for.
    fn open_for(
        &self,
        node: &Node,
        protocols: &'static [&'static [u8]],
    ) -> Result<ServerContext, ConfigError> {
        if self.client_cert_optional && self.client_ca.is_none() {
            let setting = node.nearest("client_cert_optional");
            return Err(setting.error("`client_cert_optional` requires `client_ca`"));
        }
        let files = [Some(&self.cert), Some(&self.key), self.client_ca.as_ref()];
        let files = files.into_iter().flatten().cloned().collect();
        let settings = self.clone();
        let config = move || {
            let mut config = settings.config()?;
            config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
            Ok(Arc::new(config))
        };
        Renewing::new(files, config)
            .map(|config| ServerContext(Arc::new(config)))
            .map_err(|fault| fault.at(node))
    }

    fn config(&self) -> Result<ServerConfig, Fault> {
        let identity = pem::identity(&self.cert, &self.key)?;
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(self.min_version.and_later())
            .map_err(|error| Fault::new("min_version", error.to_string()))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(pem::authorities("client_ca", path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                let verifier = if self.client_cert_optional {
                    verifier.allow_unauthenticated()
                } else {
                    verifier
                };
                let verifier = verifier
                    .build()
                    .map_err(|error| Fault::new("client_ca", error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        Ok(builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(identity))))
    }
}

impl ServerContext {
    /// The configuration for the next connection.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.0.get()
    }

    /// What a person should hear, such as a renewed certificate that cannot be used, since the last call.
    pub fn take_warnings(&self) -> Vec<String> {
        self.0.take_warnings()
    }
}
