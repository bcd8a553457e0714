//! TLS to the `https` endpoints of an upstream: the settings of handshakes, and the files that they are read from.

use std::{
    fmt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use parking_lot::{Mutex, RwLock};
use rustls::{
    ClientConfig,
    client::VerifierBuilderError,
    crypto::aws_lc_rs::default_provider,
    pki_types::ServerName,
    sign::{CertifiedKey, SingleCertAndKey},
};

use super::server_verifier::ServerVerifier;
use crate::{
    config::model,
    file::{self, Reread, Unreadable, WatchedFile},
    telemetry::metrics::{CertificateFacts, UpstreamTlsFacts},
    tls::{self, CertificateError, CertificateInfo, PemError, system_authorities},
};

/// Why TLS to an upstream can't be used.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamTlsError {
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error("{} {error}", .path.display())]
    Pem { path: PathBuf, error: PemError },
    #[error("{} {error}", .path.display())]
    Certificate { path: PathBuf, error: CertificateError },
    #[error("`{0}` is no name that a certificate can be for")]
    Name(String),
    #[error("the authorities can't be used: {0}")]
    Authorities(#[from] VerifierBuilderError),
    #[error("TLS can't be set up: {0}")]
    Setup(#[from] rustls::Error),
}

/// The TLS settings of one upstream. Changed files are reloaded.
pub struct UpstreamTlsContext {
    /// The name of the upstream.
    name: String,
    protocol: model::Protocol,
    /// The name that certificates must have. `None`: the endpoint's host.
    server_name: Option<String>,
    files: Mutex<Files>,
    current: RwLock<HandshakeConfig>,
    /// Outside of `files`, which are locked while they are read.
    facts: Mutex<UpstreamTlsFacts>,
    /// The version of the current settings. Connections with another version must not be used any more.
    version: AtomicU64,
}

/// The settings of a handshake.
#[derive(Debug, Clone)]
pub(super) struct HandshakeConfig {
    /// Its cache has only the sessions of this upstream, and is emptied with each change: a session that was verified
    /// with other authorities must not be resumed.
    pub(super) config: Arc<ClientConfig>,
    /// Counts from 1.
    pub(super) version: u64,
}

/// The content of the files.
#[derive(Debug)]
struct Files {
    ca: Option<Reread<Arc<ServerVerifier>, 1>>,
    certificate: Option<Reread<LoadedCertificate, 2>>,
    /// Whether a reloaded file is not in use yet.
    is_pending: bool,
}

/// The client certificate of the proxy, shown to servers.
#[derive(Debug)]
struct LoadedCertificate {
    key: Arc<CertifiedKey>,
    info: Arc<CertificateInfo>,
}

impl UpstreamTlsContext {
    /// Reads the files of an upstream. `None`: none of its endpoints is `https`.
    ///
    /// # Errors
    /// A file can't be read, or its content can't be used.
    pub fn open(upstream: &model::Upstream) -> Result<Option<Self>, UpstreamTlsError> {
        let Some(settings) = &upstream.tls else { return Ok(None) };
        for endpoint in upstream.endpoints.iter().filter(|endpoint| endpoint.is_https()) {
            certificate_name(settings.server_name.as_deref(), endpoint)?;
        }
        let files = Files::open(&settings.client)?;
        let current = HandshakeConfig { config: files.config(upstream.protocol)?, version: 1 };
        Ok(Some(Self {
            name: upstream.name.clone(),
            protocol: upstream.protocol,
            facts: Mutex::new(files.facts(&upstream.name)),
            server_name: settings.server_name.clone(),
            files: Mutex::new(files),
            version: AtomicU64::new(current.version),
            current: RwLock::new(current),
        }))
    }

    /// The name for the certificate of `endpoint`, which is `https`, and the settings of a handshake that begins now.
    ///
    /// # Errors
    /// The host is not a valid name for a certificate.
    pub(super) fn handshake(
        &self,
        endpoint: &model::Endpoint,
    ) -> Result<(ServerName<'static>, HandshakeConfig), UpstreamTlsError> {
        let name = certificate_name(self.server_name.as_deref(), endpoint)?;
        Ok((name, self.current.read().clone()))
    }

    /// Whether a connection that was opened under `version` may be used.
    pub(super) fn is_current(&self, version: u64) -> bool {
        self.version.load(Ordering::Relaxed) == version
    }

    /// Reads changed files. Unusable content is logged, and changes nothing. Blocks: not for a worker's thread.
    pub fn reload_changed_files(&self) {
        let mut files = self.files.lock();
        files.refresh(&self.name);
        if files.is_pending {
            match files.config(self.protocol) {
                Ok(config) => {
                    files.is_pending = false;
                    let mut current = self.current.write();
                    *current = HandshakeConfig { config, version: current.version + 1 };
                    self.version.store(current.version, Ordering::Relaxed);
                }
                Err(error) => tracing::error!("TLS to upstream {} can't be set up anew: {error}", self.name),
            }
        }
        *self.facts.lock() = files.facts(&self.name);
    }

    /// The state of its files.
    pub(super) fn facts(&self) -> UpstreamTlsFacts {
        self.facts.lock().clone()
    }
}

impl fmt::Debug for UpstreamTlsContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamTlsContext").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Files {
    fn open(settings: &model::ClientTls) -> Result<Self, UpstreamTlsError> {
        let ca = settings.ca.as_ref();
        let ca = ca.map(|file| Reread::new([file::open(file)?], authorities));
        let certificate = settings.certificate.as_ref();
        let certificate = certificate.map(|model::ClientCertificate { cert, key }| {
            Reread::new([file::open(cert)?, file::open(key)?], certificate_with_key)
        });
        Ok(Self { ca: ca.transpose()?, certificate: certificate.transpose()?, is_pending: false })
    }

    /// Reads changed files of the upstream with this name.
    fn refresh(&mut self, upstream: &str) {
        if let Some(reread) = &mut self.ca
            && reread.refresh(authorities)
        {
            tracing::info!("the authorities of upstream {upstream} were reloaded: no session is resumed");
            self.is_pending = true;
        }
        let valid = |files: &[WatchedFile; 2]| {
            let certificate = certificate_with_key(files)?;
            let validity = certificate.info.check_validity(SystemTime::now());
            validity.map_err(|error| certificate_error(&files[0], error)).map(|()| certificate)
        };
        if let Some(reread) = &mut self.certificate
            && reread.refresh(valid)
        {
            let expires = reread.value().info.expiry_date();
            tracing::info!(expires, "the client certificate for upstream {upstream} was reloaded");
            self.is_pending = true;
        }
    }

    fn facts(&self, upstream: &str) -> UpstreamTlsFacts {
        let certificate = self.certificate.as_ref().map(|reread| CertificateFacts {
            file: reread.first_path().to_owned(),
            info: Arc::clone(&reread.value().info),
            loaded: reread.made(),
            reload_error: reread.error().cloned(),
        });
        let of_ca = self.ca.as_ref().and_then(|reread| Some((reread.first_path(), reread.error()?)));
        let of_certificate =
            self.certificate.as_ref().and_then(|reread| Some((reread.first_path(), reread.error()?)));
        let reload_errors = [of_ca, of_certificate].into_iter().flatten();
        UpstreamTlsFacts {
            upstream: upstream.to_owned(),
            certificate,
            reload_errors: reload_errors.map(|(file, error)| (file.to_owned(), error.clone())).collect(),
        }
    }

    /// The settings of handshakes, without sessions.
    fn config(&self, protocol: model::Protocol) -> Result<Arc<ClientConfig>, rustls::Error> {
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?;
        let builder = match &self.ca {
            None => builder.with_root_certificates(system_authorities::trusted()),
            Some(ca) => {
                let verifier = Arc::clone(ca.value()) as Arc<_>;
                builder.dangerous().with_custom_certificate_verifier(verifier)
            }
        };
        let mut config = match &self.certificate {
            None => builder.with_no_client_auth(),
            Some(reread) => builder
                .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(&reread.value().key)))),
        };
        let versions: &[&[u8]] = match protocol {
            model::Protocol::H1 => &[b"http/1.1"],
            model::Protocol::H2 => &[b"h2"],
            model::Protocol::Auto => &[b"h2", b"http/1.1"],
        };
        config.alpn_protocols = versions.iter().map(|version| version.to_vec()).collect();
        Ok(Arc::new(config))
    }
}

/// The name for the certificate of `endpoint`: `server_name`, or else its host.
fn certificate_name(
    server_name: Option<&str>,
    endpoint: &model::Endpoint,
) -> Result<ServerName<'static>, UpstreamTlsError> {
    let name = server_name.unwrap_or(endpoint.host()).to_owned();
    ServerName::try_from(name.clone()).map_err(|_| UpstreamTlsError::Name(name))
}

fn authorities([file]: &[WatchedFile; 1]) -> Result<Arc<ServerVerifier>, UpstreamTlsError> {
    let authorities = tls::authorities(file.bytes()).map_err(|error| pem_error(file, error))?;
    let trusted = tls::certificates(file.bytes()).map_err(|error| pem_error(file, error))?;
    Ok(Arc::new(ServerVerifier::new(authorities, trusted)?))
}

fn certificate_with_key([cert, key]: &[WatchedFile; 2]) -> Result<LoadedCertificate, UpstreamTlsError> {
    let chain = tls::certificates(cert.bytes()).map_err(|error| pem_error(cert, error))?;
    let private_key = tls::private_key(key.bytes()).map_err(|error| pem_error(key, error))?;
    let info = chain.first().and_then(CertificateInfo::read);
    let info = info.ok_or_else(|| certificate_error(cert, CertificateError::Damaged))?;
    let certified = tls::certified_key(chain, private_key);
    let certified =
        certified.map_err(|error| certificate_error(if error.is_of_key() { key } else { cert }, error))?;
    Ok(LoadedCertificate { key: Arc::new(certified), info: Arc::new(info) })
}

fn pem_error(file: &WatchedFile, error: PemError) -> UpstreamTlsError {
    UpstreamTlsError::Pem { path: file.path().to_owned(), error }
}

fn certificate_error(file: &WatchedFile, error: CertificateError) -> UpstreamTlsError {
    UpstreamTlsError::Certificate { path: file.path().to_owned(), error }
}
