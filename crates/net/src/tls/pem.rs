//! Certificates and private keys from PEM files.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::{Fault, provider};

/// The certificates in the file of a setting: at least one.
pub fn certificates(
    setting: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, Fault> {
    let content = read(setting, path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
    let certificates = certificates.map_err(|error| {
        let path = path.display();
        Fault::new(setting, format!("{path} is damaged: {error}"))
    })?;
    if certificates.is_empty() {
        let path = path.display();
        let message = format!(
            "there is no certificate in {path}: expected PEM, `-----BEGIN CERTIFICATE-----`"
        );
        return Err(Fault::new(setting, message));
    }
    Ok(certificates)
}

/// The authorities in the file of a setting.
pub fn authorities(setting: &'static str, path: &Path) -> Result<RootCertStore, Fault> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(setting, path)? {
        roots.add(certificate).map_err(|error| {
            let path = path.display();
            Fault::new(
                setting,
                format!(
                    "{path} contains a certificate that is not a valid CA certificate: {error}"
                ),
            )
        })?;
    }
    Ok(roots)
}

/// A certificate with its private key: those of the settings `cert` and `key`.
pub fn identity(cert: &Path, key: &Path) -> Result<Arc<CertifiedKey>, Fault> {
    let chain = certificates("cert", cert)?;
    let private = private_key(key)?;
    CertifiedKey::from_der(chain, private, &provider())
        .map(Arc::new)
        .map_err(|error| {
            let (cert, key) = (cert.display(), key.display());
            let message = match error {
                rustls::Error::InconsistentKeys(_) => {
                    format!("the private key in {key} does not belong to the certificate in {cert}")
                }
                error => format!("the private key in {key} cannot be used: {error}"),
            };
            Fault::new("key", message)
        })
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, Fault> {
    let content = read("key", path)?;
    PrivateKeyDer::from_pem_slice(&content).map_err(|error| {
        let shown = path.display();
        let encrypted = content
            .windows(ENCRYPTED.len())
            .any(|window| window == ENCRYPTED);
        let message = match error {
            PemError::NoItemsFound if encrypted => format!(
                "the private key in {shown} is encrypted, which is not supported: decrypt it with `openssl pkey -in {shown}`"
            ),
            PemError::NoItemsFound => format!(
                "there is no private key in {shown}: expected PEM, `-----BEGIN PRIVATE KEY-----`"
            ),
            error => format!("{shown} is damaged: {error}"),
        };
        Fault::new("key", message)
    })
}

const ENCRYPTED: &[u8] = b"BEGIN ENCRYPTED PRIVATE KEY";

fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, Fault> {
    fs::read(path).map_err(|error| {
        let path = path.display();
        let advice = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                "; the user that runs Millpond must be able to read it"
            }
            _ => "",
        };
        Fault::new(setting, format!("cannot read {path}: {error}{advice}"))
    })
}
