//! Verifies the certificate of an endpoint against the authorities in the configuration.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        VerifierBuilderError, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::aws_lc_rs::default_provider,
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

use crate::tls::{CertificateInfo, Validity};

/// Verifies that a trusted authority has issued a certificate, or that the certificate itself is trusted.
///
/// webpki accepts no authority as a server, and so no certificate that `openssl req -x509` has signed with its own key:
/// these are marked as authorities. OpenSSL and Go accept them if they are trusted, byte for byte.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    webpki: Arc<WebPkiServerVerifier>,
    trusted: Vec<CertificateDer<'static>>,
}

impl ServerVerifier {
    /// `authorities` are the same certificates as `trusted`.
    pub(super) fn new(
        authorities: RootCertStore,
        trusted: Vec<CertificateDer<'static>>,
    ) -> Result<Self, VerifierBuilderError> {
        let provider = Arc::new(default_provider());
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(authorities), provider).build()?;
        Ok(Self { webpki, trusted })
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.webpki.verify_server_cert(certificate, intermediates, name, ocsp, now);
        if verified.is_err() && self.trusted.iter().any(|trusted| trusted == certificate) {
            verify_alone(certificate, name, now)?;
            return Ok(ServerCertVerified::assertion());
        }
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

/// Verifies everything except the issuer.
fn verify_alone(certificate: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<(), Error> {
    verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
    let info = CertificateInfo::read(certificate).ok_or(CertificateError::BadEncoding)?;
    match info.validity(SystemTime::UNIX_EPOCH + Duration::from_secs(now.as_secs())) {
        Validity::Valid | Validity::Expiring => Ok(()),
        Validity::Expired => Err(CertificateError::Expired.into()),
        Validity::NotYetValid => Err(CertificateError::NotValidYet.into()),
    }
}
