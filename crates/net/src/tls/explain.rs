//! Says what a client did where its handshake failed, in words that are about certificates and versions, not about the library.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible};

/// An error of a handshake, saying what the client did.
pub fn explained(error: io::Error) -> io::Error {
    let reason = match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(reason) => explanation(reason),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            Some("the client closed the connection".to_owned())
        }
        None => None,
    };
    match reason {
        Some(reason) => io::Error::new(error.kind(), reason),
        None => error,
    }
}

/// Whether an error of a connection comes from TLS, such as a record that is damaged.
pub fn is_of_tls(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    inner.is_some_and(|_: &Error| true)
}

/// None where the library's own words do.
fn explanation(error: &Error) -> Option<String> {
    Some(match error {
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the client does not speak TLS".to_owned()
        }
        Error::NoCertificatesPresented => "the client shows no certificate".to_owned(),
        Error::InvalidCertificate(reason) => {
            let reason = certificate(reason);
            format!("the client's certificate is not accepted: {reason}")
        }
        Error::AlertReceived(
            alert @ (AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired),
        ) => format!("the client does not accept the certificate of this input ({alert:?})"),
        Error::PeerIncompatible(
            PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled,
        ) => "the client speaks no version of TLS that is accepted (`min_version`)".to_owned(),
        Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon) => {
            "the client offers no cipher suite that is accepted".to_owned()
        }
        _ => return None,
    })
}

/// What is wrong with a certificate.
fn certificate(error: &CertificateError) -> String {
    // The error of the library below can be told only by its name.
    let other = match error {
        CertificateError::Other(other) => other.to_string(),
        _ => String::new(),
    };
    match other.contains("CaUsedAsEndEntity") {
        true => "it is that of an authority (CA), and none that was issued to a client".to_owned(),
        false => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::OtherError;

    use super::*;

    fn reason(error: Error) -> String {
        explained(io::Error::new(io::ErrorKind::InvalidData, error)).to_string()
    }

    #[test]
    fn what_a_client_did_is_said_in_plain_words() {
        let other = OtherError(Arc::new(webpki_error()));
        let authority = Error::InvalidCertificate(CertificateError::Other(other));
        assert_eq!(
            reason(authority),
            "the client's certificate is not accepted: it is that of an authority (CA), and none that was issued to a client"
        );
        let issuer = Error::InvalidCertificate(CertificateError::UnknownIssuer);
        assert!(reason(issuer).starts_with("the client's certificate is not accepted: "));
        let version = Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered);
        assert!(reason(version).contains("no version of TLS"));
        let unknown = Error::General("something else".to_owned());
        assert!(reason(unknown).ends_with("something else"));
    }

    #[test]
    fn a_client_that_left_is_no_error_of_tls() {
        let left = explained(io::ErrorKind::UnexpectedEof.into());
        assert_eq!(left.to_string(), "the client closed the connection");
        let reset = explained(io::ErrorKind::ConnectionReset.into());
        assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
    }

    /// As `rustls-webpki` words it.
    fn webpki_error() -> io::Error {
        io::Error::other("CaUsedAsEndEntity")
    }
}
