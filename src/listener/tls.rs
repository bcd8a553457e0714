//! TLS of one listener: which certificate a client is shown, what it is asked for, and how both change.

use std::{collections::HashMap, io, path::PathBuf, sync::Arc, time::SystemTime};

use parking_lot::{Mutex, RwLock};
use rustls::{
    ServerConfig, SupportedProtocolVersion,
    crypto::aws_lc_rs::default_provider,
    server::{
        ClientHello, NoServerSessionStorage, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier,
    },
    sign::CertifiedKey,
    version::{TLS12, TLS13},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::tickets::{TicketKey, Tickets};
use crate::{
    config::model::{self, Listener, TlsVersion},
    tls::{self, Certificate, CertificateError, PemError},
    watched_file::WatchedFile,
};

/// How many times in a row changed files may be wrong before it is an error: who renews a certificate writes two files.
const PATIENCE: u32 = 2;

/// Why TLS can't be served.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{} can't be read: {error}", .path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{} {error}", .path.display())]
    Pem { path: PathBuf, error: PemError },
    #[error("{} {error}", .path.display())]
    Certificate { path: PathBuf, error: CertificateError },
    #[error("the authorities of clients' certificates can't be used: {0}")]
    Authorities(#[from] VerifierBuilderError),
    #[error("TLS can't be set up: {0}")]
    Setup(#[from] rustls::Error),
    #[error("the system has no random numbers")]
    Random,
}

/// The TLS of one listener, which follows its files.
#[derive(Debug)]
pub struct TlsContext {
    settings: model::Tls,
    files: Mutex<TlsFiles>,
    current: RwLock<Arc<CurrentTls>>,
}

/// What handshakes use now.
#[derive(Debug)]
pub(super) struct CurrentTls {
    pub(super) config: Arc<ServerConfig>,
    pub(super) certificates: Arc<Certificates>,
    tickets: Arc<Tickets>,
}

/// A certificate that is served.
#[derive(Debug, Clone)]
pub struct CertificateFacts {
    /// Its file.
    pub path: PathBuf,
    /// The hosts that it is for. At least one.
    pub names: Vec<String>,
    pub not_after: SystemTime,
}

#[derive(Debug)]
struct TlsFiles {
    /// In the configuration's order: the certificate's and the key's.
    pairs: Vec<(WatchedFile, WatchedFile)>,
    client_ca: Option<WatchedFile>,
    /// What was read and is not served yet.
    pending: Changed,
    /// How many times in a row it could not be served.
    failures: u32,
}

impl TlsContext {
    /// Reads all files. The sessions of the context `before` go on, unless it asked clients for other certificates.
    ///
    /// # Errors
    /// A file can't be read, or what is in it can't be used.
    pub fn new(settings: model::Tls, before: Option<&Self>) -> Result<Self, TlsError> {
        let files = TlsFiles::open(&settings)?;
        let tickets = match before {
            Some(before) if before.asks_clients_as(&settings, &files) => {
                Arc::clone(&before.current.read().tickets)
            }
            _ => new_tickets()?,
        };
        let current = RwLock::new(Arc::new(CurrentTls::new(&settings, &files, tickets)?));
        Ok(Self { settings, files: Mutex::new(files), current })
    }

    /// Whether clients of both are asked for the same certificates. Those of one may then resume sessions with the other.
    fn asks_clients_as(&self, settings: &model::Tls, files: &TlsFiles) -> bool {
        let authorities = |files: &TlsFiles| files.client_ca.as_ref().map(|file| file.bytes().to_vec());
        self.settings.client_auth == settings.client_auth
            && authorities(&self.files.lock()) == authorities(files)
    }

    /// What is configured.
    pub fn settings(&self) -> &model::Tls {
        &self.settings
    }

    /// What a handshake that begins now uses.
    pub(super) fn current(&self) -> Arc<CurrentTls> {
        Arc::clone(&self.current.read())
    }

    /// The certificates that are served, in the configuration's order.
    pub fn certificates(&self) -> Vec<CertificateFacts> {
        let current = self.current();
        let pairs = current.certificates.all.iter().zip(&self.settings.certificates);
        pairs
            .map(|(certificate, files)| CertificateFacts {
                path: files.cert.clone(),
                names: certificate.names().cloned().collect(),
                not_after: certificate.not_after(),
            })
            .collect()
    }

    /// The keys of its sessions, for a new process. `listener`: the listener that it is of.
    pub fn session_keys(&self, listener: &Listener) -> SessionKeys {
        SessionKeys {
            listener: listener_name(listener),
            client_ca: self.files.lock().client_ca.as_ref().map(digest),
            keys: self.current.read().tickets.export(),
        }
    }

    /// Goes on with the sessions that an old process has begun on `listener`, unless it asked clients for other
    /// certificates.
    pub fn continue_sessions(&self, listener: &Listener, sessions: &[SessionKeys]) {
        let client_ca = self.files.lock().client_ca.as_ref().map(digest);
        let name = listener_name(listener);
        let same = |of: &&SessionKeys| of.listener == name && of.client_ca == client_ca;
        if let Some(SessionKeys { keys, .. }) = sessions.iter().find(same) {
            self.current.read().tickets.import(keys);
        }
    }

    /// Reads the files that have changed. What can't be used is logged, and changes nothing. Blocks: not for a worker's
    /// thread.
    pub fn reload_changed_files(&self) {
        let mut files = self.files.lock();
        let reloaded = files.refresh().and_then(|()| self.replace(&files));
        match reloaded {
            Ok(false) => {}
            Ok(true) => {
                files.pending = Changed::default();
                for CertificateFacts { path, names, .. } in self.certificates() {
                    tracing::info!(file = %path.display(), names = names.join(", "), "certificate reloaded");
                }
            }
            Err(error) => {
                files.failures = files.failures.saturating_add(1);
                if files.failures == PATIENCE {
                    tracing::error!("keeping the previous certificates: {error}");
                }
                return;
            }
        }
        files.failures = 0;
    }

    /// Serves what the files hold now. False: they hold what is served.
    fn replace(&self, files: &TlsFiles) -> Result<bool, TlsError> {
        let Changed { any, client_ca } = files.pending;
        if any {
            // A ticket carries the certificate that its client showed, and nothing would verify that anew.
            let tickets = if client_ca { new_tickets()? } else { Arc::clone(&self.current.read().tickets) };
            let current = CurrentTls::new(&self.settings, files, tickets)?;
            *self.current.write() = Arc::new(current);
        }
        Ok(any)
    }
}

/// The keys of a listener's sessions, for a new process. Secret.
#[derive(Serialize, Deserialize)]
pub struct SessionKeys {
    /// Its addresses as they are configured.
    listener: String,
    /// A hash of the authorities of clients' certificates.
    client_ca: Option<String>,
    keys: Vec<TicketKey>,
}

fn listener_name(listener: &Listener) -> String {
    listener.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// SHA-256, in hexadecimal digits.
fn digest(file: &WatchedFile) -> String {
    Sha256::digest(file.bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn new_tickets() -> Result<Arc<Tickets>, TlsError> {
    Tickets::new().map(Arc::new).map_err(|_| TlsError::Random)
}

/// Which files have changed since they were last served.
#[derive(Debug, Clone, Copy, Default)]
struct Changed {
    any: bool,
    client_ca: bool,
}

impl TlsFiles {
    fn open(settings: &model::Tls) -> Result<Self, TlsError> {
        let open = |path: &PathBuf| {
            WatchedFile::open(path.clone())
                .map_err(|error| TlsError::Unreadable { path: path.clone(), error })
        };
        let pairs = settings.certificates.iter().map(|files| Ok((open(&files.cert)?, open(&files.key)?)));
        let pairs = pairs.collect::<Result<_, TlsError>>()?;
        let client_ca = settings.client_auth.as_ref().map(|client| open(&client.ca)).transpose()?;
        Ok(Self { pairs, client_ca, pending: Changed::default(), failures: 0 })
    }

    /// Reads those that have changed.
    fn refresh(&mut self) -> Result<(), TlsError> {
        let refresh = |file: &mut WatchedFile| {
            file.refresh().map_err(|error| TlsError::Unreadable { path: file.path().to_owned(), error })
        };
        for file in self.pairs.iter_mut().flat_map(|(cert, key)| [cert, key]) {
            self.pending.any |= refresh(file)?;
        }
        if let Some(file) = &mut self.client_ca {
            let has_changed = refresh(file)?;
            self.pending.any |= has_changed;
            self.pending.client_ca |= has_changed;
        }
        Ok(())
    }
}

impl CurrentTls {
    fn new(settings: &model::Tls, files: &TlsFiles, tickets: Arc<Tickets>) -> Result<Self, TlsError> {
        let mut all = Vec::new();
        for ((cert, key), model::CertificateFiles { names, .. }) in
            files.pairs.iter().zip(&settings.certificates)
        {
            let chain = tls::certificates(cert.bytes()).map_err(|error| pem_error(cert, error))?;
            let private_key = tls::private_key(key.bytes()).map_err(|error| pem_error(key, error))?;
            let certificate = Certificate::new(chain, private_key, names).map_err(|error| {
                let file = if error.is_of_key() { key } else { cert };
                TlsError::Certificate { path: file.path().to_owned(), error }
            })?;
            all.push(certificate);
        }
        let certificates = Arc::new(Certificates::new(all));
        let provider = Arc::new(default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions(settings.min_version))?;
        let builder = match &files.client_ca {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let authorities = tls::authorities(file.bytes()).map_err(|error| pem_error(file, error))?;
                // A client without a certificate is refused by a reply, which says why. An alert would not.
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider)
                    .allow_unauthenticated()
                    .build()?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::clone(&certificates) as Arc<dyn ResolvesServerCert>);
        // A client of HTTP/1.0 may name it (`curl --http1.0` does), and is refused if nothing it names is known.
        config.alpn_protocols = vec![b"http/1.1".to_vec(), b"http/1.0".to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = Arc::clone(&tickets) as Arc<_>;
        Ok(Self { config: Arc::new(config), certificates, tickets })
    }
}

fn pem_error(file: &WatchedFile, error: PemError) -> TlsError {
    TlsError::Pem { path: file.path().to_owned(), error }
}

fn versions(min: TlsVersion) -> &'static [&'static SupportedProtocolVersion] {
    static ALL: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
    match min {
        TlsVersion::V1_2 => &ALL,
        TlsVersion::V1_3 => &ALL[..1],
    }
}

/// The certificates of a listener, and which of them is for a name.
#[derive(Debug)]
pub(super) struct Certificates {
    all: Vec<Certificate>,
    /// By name, in lower case; a wildcard by what follows its `*`.
    by_name: HashMap<String, usize>,
}

impl Certificates {
    fn new(all: Vec<Certificate>) -> Self {
        let mut by_name = HashMap::new();
        for (index, certificate) in all.iter().enumerate() {
            for name in certificate.names() {
                // The first that has a name serves it.
                by_name.entry(name.strip_prefix('*').unwrap_or(name).to_owned()).or_insert(index);
            }
        }
        Self { all, by_name }
    }

    /// Whether a certificate is for `name`, in lower case.
    pub(super) fn cover(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// The certificate for exactly this name, or with a wildcard in place of its first label.
    fn find(&self, name: &str) -> Option<&Certificate> {
        let index = self.by_name.get(name).or_else(|| self.by_name.get(name.get(name.find('.')?..)?))?;
        self.all.get(*index)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let named = hello.server_name().and_then(|name| self.find(name));
        named.or(self.all.first()).map(|certificate| Arc::clone(certificate.key()))
    }
}

/// The TLS of each listener, shared by all workers and replaced by reloads.
#[derive(Debug, Clone, Default)]
pub struct TlsContexts(Arc<RwLock<Vec<Option<Arc<TlsContext>>>>>);

impl TlsContexts {
    /// In the order of the listeners. `None`: plain HTTP.
    pub fn new(contexts: Vec<Option<Arc<TlsContext>>>) -> Self {
        Self(Arc::new(RwLock::new(contexts)))
    }

    /// Replaces all of them. Connections keep what they began with.
    pub fn replace(&self, contexts: Vec<Option<Arc<TlsContext>>>) {
        *self.0.write() = contexts;
    }

    /// That of the listener with this index.
    pub(super) fn of(&self, listener: usize) -> Option<Arc<TlsContext>> {
        self.0.read().get(listener)?.clone()
    }

    /// Each listener's index, and its TLS.
    pub fn all(&self) -> Vec<(usize, Arc<TlsContext>)> {
        let contexts = self.0.read();
        contexts.iter().enumerate().filter_map(|(index, context)| Some((index, context.clone()?))).collect()
    }

    /// As [`TlsContext::reload_changed_files`], of each.
    pub fn reload_changed_files(&self) {
        for (_, context) in self.all() {
            context.reload_changed_files();
        }
    }
}
