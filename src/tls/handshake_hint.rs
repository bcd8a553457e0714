//! Hints for failed handshakes with servers and clients.

use std::{error::Error, io};

use rustls::{AlertDescription, CertificateError};

/// The names of a server's settings, for hints.
#[derive(Debug, Clone, Copy)]
pub struct ServerSettings<'a> {
    /// The section of `ca`, `cert` and `key`: `store.redis.tls`.
    pub tls: &'a str,
    /// The place of the server's name: `the host in store.redis`.
    pub host: &'a str,
    /// The correct setting if the server does not use TLS.
    pub without_tls: &'a str,
    /// The problem if the server supports none of the offered protocols (ALPN).
    pub without_protocol: &'a str,
}

/// A hint for a failed TLS handshake with a server. `None`: the error is clear enough.
pub fn handshake_hint(error: &rustls::Error, settings: ServerSettings<'_>) -> Option<String> {
    use CertificateError as Wrong;
    let ServerSettings { tls, host, without_tls, without_protocol } = settings;
    Some(match error {
        // An authority with the same name but another key results in a bad signature.
        rustls::Error::InvalidCertificate(Wrong::UnknownIssuer | Wrong::BadSignature) => format!(
            "the server's certificate is not from a trusted authority: set {tls}.ca to the one that issued it"
        ),
        rustls::Error::InvalidCertificate(Wrong::Expired | Wrong::ExpiredContext { .. }) => {
            "the server's certificate has expired".to_owned()
        }
        rustls::Error::InvalidCertificate(Wrong::NotValidYet | Wrong::NotValidYetContext { .. }) => {
            "the server's certificate is not valid yet, or the clock of this machine is behind".to_owned()
        }
        rustls::Error::InvalidCertificate(Wrong::NotValidForName | Wrong::NotValidForNameContext { .. }) => {
            format!("the server's certificate does not match {host}")
        }
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
            format!("the server requires a client certificate: set {tls}.cert and key")
        }
        // Before TLS 1.3, a missing certificate has no alert of its own.
        rustls::Error::AlertReceived(AlertDescription::HandshakeFailure) => format!(
            "the server rejects the TLS handshake: it may require a client certificate ({tls}.cert and key)"
        ),
        rustls::Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::DecryptError,
        ) => format!("the server rejects the certificate in {tls}.cert"),
        rustls::Error::AlertReceived(AlertDescription::ProtocolVersion)
        | rustls::Error::PeerIncompatible(_) => {
            "the server and Tollgate have no version or cipher of TLS in common: Tollgate speaks TLS 1.2 and 1.3"
                .to_owned()
        }
        rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            without_protocol.to_owned()
        }
        rustls::Error::AlertReceived(AlertDescription::UnrecognisedName) => {
            format!("the server does not know {host}")
        }
        rustls::Error::InvalidMessage(_) => {
            format!("the server does not use TLS on this port: {without_tls}")
        }
        _ => return None,
    })
}

/// Why a client's certificate was refused, in plain words. `None`: the error is clear enough.
pub fn client_certificate_hint(error: &CertificateError) -> Option<&'static str> {
    use CertificateError as Wrong;
    Some(match error {
        Wrong::UnknownIssuer | Wrong::BadSignature => {
            "the client's certificate is not from an authority in client_ca"
        }
        Wrong::Expired | Wrong::ExpiredContext { .. } => "the client's certificate has expired",
        Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => {
            "the client's certificate is not valid yet, or the clock of this machine is behind"
        }
        Wrong::InvalidPurpose | Wrong::InvalidPurposeContext { .. } => {
            "the client's certificate is not for clients: its extended key usage lacks clientAuth"
        }
        // rustls has no variants for these.
        Wrong::Other(other) => match other.0.to_string().as_str() {
            "UnsupportedCertVersion" => {
                "the client's certificate is of X.509 version 1 or 2: issue it as version 3"
            }
            "CaUsedAsEndEntity" => "the client's certificate is that of an authority, not of a client",
            _ => return None,
        },
        _ => return None,
    })
}

/// The TLS error that `error` is or contains at any depth.
pub fn find_tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // The source of an `io::Error` is the source of its inner error, so the inner error itself is checked here.
        let held = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(found) = held.and_then(|held| held.downcast_ref()) {
            return Some(found);
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use std::{fmt, sync::Arc};

    use rustls::OtherError;

    use super::*;

    #[derive(Debug)]
    struct Wrong(&'static str);

    impl fmt::Display for Wrong {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Wrong {}

    #[test]
    fn errors_of_webpki_about_a_client_have_words() {
        let hint =
            |wrong| client_certificate_hint(&CertificateError::Other(OtherError(Arc::new(Wrong(wrong)))));
        assert!(hint("UnsupportedCertVersion").unwrap().ends_with("issue it as version 3"));
        assert!(hint("CaUsedAsEndEntity").unwrap().contains("that of an authority"));
        assert_eq!(hint("BadDer"), None);
        let expired = client_certificate_hint(&CertificateError::Expired);
        assert_eq!(expired, Some("the client's certificate has expired"));
    }
}
