//! An authority of a test's own, and the certificates that it issues.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tempfile::TempDir;

/// An authority that writes certificates to a folder.
pub struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// A new authority, its certificate in `ca.pem`.
    ///
    /// # Panics
    /// When the folder cannot be written to.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        // Two authorities of the same name would be one whose signatures are wrong.
        let name = format!("authority {:032x}", fastrand::u128(..));
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
        fs::write(folder.path().join("ca.pem"), issuer.pem()).expect("written");
        Self { folder, issuer }
    }

    /// A certificate for `name` with its key, in `FILE.pem` and `FILE.key`; what is there is replaced.
    ///
    /// # Panics
    /// When the folder cannot be written to.
    pub fn issue(&self, file: &str, name: &str) {
        let params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate");
        fs::write(self.path(&format!("{file}.pem")), cert.pem()).expect("written");
        fs::write(self.path(&format!("{file}.key")), key.serialize_pem()).expect("written");
    }

    /// A certificate for `name` that it signs itself and that is one of an authority, as `openssl req -x509` makes it, with its
    /// key, in `FILE.pem` and `FILE.key`.
    ///
    /// # Panics
    /// When the folder cannot be written to.
    pub fn self_signed(&self, file: &str, name: &str) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let cert = params.self_signed(&key).expect("a certificate");
        fs::write(self.path(&format!("{file}.pem")), cert.pem()).expect("written");
        fs::write(self.path(&format!("{file}.key")), key.serialize_pem()).expect("written");
    }

    /// A file in the folder.
    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// A text with `DIR` replaced by the folder.
    ///
    /// # Panics
    /// When the folder's name is no text.
    pub fn with_folder(&self, text: &str) -> String {
        let folder = self.folder.path().to_str().expect("UTF-8");
        text.replace("DIR", folder)
    }

    /// A server with the certificate in `FILE.pem`, which asks clients for one of this authority.
    ///
    /// # Panics
    /// When there is no such certificate.
    pub fn server(&self, file: &str) -> Arc<ServerConfig> {
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        let read = |file: &str| CertificateDer::from_pem_file(self.path(file)).expect("PEM");
        roots.add(read("ca.pem")).expect("an authority");
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let key = PrivateKeyDer::from_pem_file(self.path(&format!("{file}.key"))).expect("PEM");
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(verifier.build().expect("a verifier"))
            .with_single_cert(vec![read(&format!("{file}.pem"))], key);
        Arc::new(config.expect("a key that fits"))
    }

    /// A client that trusts this authority alone, with the certificate in `FILE.pem` if one is given.
    ///
    /// # Panics
    /// When there is no such certificate.
    pub fn client(&self, file: Option<&str>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let read = |file: &str| CertificateDer::from_pem_file(self.path(file)).expect("PEM");
        roots.add(read("ca.pem")).expect("an authority");
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let Some(file) = file else {
            return Arc::new(config.with_no_client_auth());
        };
        let key = PrivateKeyDer::from_pem_file(self.path(&format!("{file}.key"))).expect("PEM");
        let chain = vec![read(&format!("{file}.pem"))];
        Arc::new(
            config
                .with_client_auth_cert(chain, key)
                .expect("a key that fits"),
        )
    }
}
