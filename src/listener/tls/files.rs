//! The files of a listener's certificates and authorities, and the values made from them.

use std::{sync::Arc, time::SystemTime};

use rustls::{
    crypto::aws_lc_rs::default_provider,
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};

use super::TlsError;
use crate::{
    config::model,
    file::{self, Reread, WatchedFile},
    telemetry::metrics::{CertificateFacts, ClientCaFacts, TlsFacts},
    tls::{self, Certificate, PemError},
};

/// The values made from the files. A wrong file does not delay the others.
#[derive(Debug)]
pub(super) struct TlsFiles {
    /// In the configuration's order.
    pub(super) certificates: Vec<Reread<Certificate, 2>>,
    pub(super) client_ca: Option<Reread<Arc<dyn ClientCertVerifier>, 1>>,
    /// Values that have changed and are not in use yet.
    pub(super) pending: Changed,
}

/// Which values have changed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Changed {
    pub(super) any: bool,
    pub(super) client_ca: bool,
}

impl TlsFiles {
    /// Reads all files.
    ///
    /// # Errors
    /// A file can't be read or used.
    pub(super) fn open(settings: &model::Tls) -> Result<Self, TlsError> {
        let certificate = |files: &model::CertificateFiles| {
            let opened = [file::open(&files.cert)?, file::open(&files.key)?];
            Reread::new(opened, |opened| certificate(opened, &files.names))
        };
        let certificates = settings.certificates.iter().map(certificate).collect::<Result<_, _>>()?;
        let client_ca = settings.client_auth.as_ref();
        let client_ca = client_ca.map(|client| Reread::new([file::open(&client.ca)?], verifier));
        Ok(Self { certificates, client_ca: client_ca.transpose()?, pending: Changed::default() })
    }

    /// A hash of the authorities for client certificates.
    pub(super) fn client_ca_digest(&self) -> Option<String> {
        self.client_ca.as_ref().map(Reread::digest)
    }

    /// Rereads files that have changed.
    pub(super) fn refresh(&mut self, settings: &model::Tls) {
        for (reread, files) in self.certificates.iter_mut().zip(&settings.certificates) {
            let is_new = reread.refresh(|opened| {
                let certificate = certificate(opened, &files.names)?;
                let validity = certificate.info().check_validity(SystemTime::now());
                validity
                    .map_err(|error| TlsError::Certificate { path: files.cert.clone(), error })
                    .map(|()| certificate)
            });
            if is_new {
                let info = reread.value().info();
                let (names, expires) = (info.names.join(", "), info.expiry_date());
                let file = files.cert.display();
                tracing::info!(%file, names, expires, "the certificate {file} was reloaded");
                self.pending.any = true;
            }
        }
        if let Some(reread) = &mut self.client_ca
            && reread.refresh(verifier)
        {
            tracing::info!("the authorities of clients' certificates were reloaded: no session is resumed");
            self.pending = Changed { any: true, client_ca: true };
        }
    }

    /// The state of the files. `addresses` are left empty.
    pub(super) fn facts(&self, settings: &model::Tls) -> TlsFacts {
        let certificates = self.certificates.iter().zip(&settings.certificates);
        let certificates = certificates.map(|(reread, files)| CertificateFacts {
            file: files.cert.clone(),
            info: Arc::clone(reread.value().info()),
            loaded: reread.made(),
            reload_error: reread.error().cloned(),
        });
        let client_ca = self.client_ca.as_ref().zip(settings.client_auth.as_ref());
        let client_ca = client_ca.map(|(reread, client)| ClientCaFacts {
            file: client.ca.clone(),
            loaded: reread.made(),
            reload_error: reread.error().cloned(),
        });
        TlsFacts { addresses: Vec::new(), certificates: certificates.collect(), client_ca }
    }
}

/// Reads a certificate and its key.
fn certificate([cert, key]: &[WatchedFile; 2], names: &[String]) -> Result<Certificate, TlsError> {
    let chain = tls::certificates(cert.bytes()).map_err(|error| pem_error(cert, error))?;
    let private_key = tls::private_key(key.bytes()).map_err(|error| pem_error(key, error))?;
    Certificate::new(chain, private_key, names).map_err(|error| {
        let file = if error.is_of_key() { key } else { cert };
        TlsError::Certificate { path: file.path().to_owned(), error }
    })
}

/// Reads the authorities for client certificates.
fn verifier([file]: &[WatchedFile; 1]) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let trusted = tls::authorities(file.bytes()).map_err(|error| pem_error(file, error))?;
    // A client without a certificate is refused by an HTTP response, which gives the reason. A TLS alert could not.
    let builder =
        WebPkiClientVerifier::builder_with_provider(Arc::new(trusted), Arc::new(default_provider()));
    Ok(builder.allow_unauthenticated().build()?)
}

fn pem_error(file: &WatchedFile, error: PemError) -> TlsError {
    TlsError::Pem { path: file.path().to_owned(), error }
}
