//! TLS of one listener: the settings of handshakes, which follow files and reloads.

mod certificates;
mod files;
#[cfg(test)]
mod tests;
mod tickets;

use std::{path::PathBuf, sync::Arc};

use parking_lot::{Mutex, RwLock};
use rustls::{
    ServerConfig, SupportedProtocolVersion,
    crypto::aws_lc_rs::default_provider,
    server::{NoServerSessionStorage, ResolvesServerCert, VerifierBuilderError},
    version::{TLS12, TLS13},
};
use serde::{Deserialize, Serialize};

use certificates::Certificates;
use files::{Changed, TlsFiles};
use tickets::{ExportedTicketKey, Tickets};

use crate::{
    config::model::{self, Listener, TlsVersion},
    file::Unreadable,
    telemetry::metrics::TlsFacts,
    tls::{CertificateError, PemError},
};

/// Why TLS can't be served.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
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

/// The TLS of one listener, updated when its files change.
#[derive(Debug)]
pub struct TlsContext {
    settings: model::Tls,
    http2: bool,
    files: Mutex<TlsFiles>,
    current: RwLock<Arc<CurrentTls>>,
    /// Separate from `files`, which are locked while they are read.
    facts: Mutex<TlsFacts>,
}

/// The settings for new handshakes.
#[derive(Debug)]
pub(super) struct CurrentTls {
    pub(super) config: Arc<ServerConfig>,
    pub(super) certificates: Arc<Certificates>,
    tickets: Arc<Tickets>,
    client_auth: ClientAuthDigest,
}

/// The client certificates that were required when a session began: the refusal's status or `optional`, and a hash of
/// the authorities. `None`: no client certificate was requested.
type ClientAuthDigest = Option<String>;

impl TlsContext {
    /// Reads all files. `http2`: whether it is offered to clients. The sessions of the context `before` can be resumed,
    /// unless it requested different client certificates.
    ///
    /// An expired certificate, or one that is not valid yet, is served all the same: the caller decides whether that is
    /// acceptable.
    ///
    /// # Errors
    /// A file can't be read or used.
    pub fn new(settings: model::Tls, http2: bool, before: Option<&Self>) -> Result<Self, TlsError> {
        let files = TlsFiles::open(&settings)?;
        let tickets = match before.and_then(|before| before.tickets_for(&settings, &files)) {
            Some(tickets) => tickets,
            None => new_tickets()?,
        };
        let current = RwLock::new(Arc::new(CurrentTls::new(&settings, http2, &files, tickets)?));
        let facts = Mutex::new(files.facts(&settings));
        Ok(Self { settings, http2, files: Mutex::new(files), current, facts })
    }

    /// The tickets, if both contexts request the same client certificates, so that sessions of one can be resumed with
    /// the other.
    fn tickets_for(&self, settings: &model::Tls, files: &TlsFiles) -> Option<Arc<Tickets>> {
        let current = self.current();
        (current.client_auth == client_auth(settings, files)).then(|| Arc::clone(&current.tickets))
    }

    /// The configuration.
    pub fn settings(&self) -> &model::Tls {
        &self.settings
    }

    /// The settings for a handshake that begins now.
    pub(super) fn current(&self) -> Arc<CurrentTls> {
        Arc::clone(&self.current.read())
    }

    /// The certificates in use, and the state of their files. `addresses` are left empty, since the context does not
    /// know them.
    pub fn facts(&self) -> TlsFacts {
        self.facts.lock().clone()
    }

    /// The session keys, for a new process. `listener`: the listener of this context.
    pub fn session_keys(&self, listener: &Listener) -> SessionKeys {
        let current = self.current();
        SessionKeys {
            listener: listener_name(listener),
            client_auth: current.client_auth.clone(),
            keys: current.tickets.export(),
        }
    }

    /// Accepts the sessions that an old process has begun on `listener`, unless it requested different client
    /// certificates.
    pub fn continue_sessions(&self, listener: &Listener, sessions: &[SessionKeys]) {
        let (name, current) = (listener_name(listener), self.current());
        let same = |of: &&SessionKeys| of.listener == name && of.client_auth == current.client_auth;
        if let Some(SessionKeys { keys, .. }) = sessions.iter().find(same) {
            current.tickets.import(keys);
        }
    }

    /// Rereads files that have changed. An unusable file is logged, and changes nothing. Blocks: not for a worker's
    /// thread.
    pub fn reload_changed_files(&self) {
        let mut files = self.files.lock();
        files.refresh(&self.settings);
        if files.pending.any {
            match self.replace(&files) {
                Ok(()) => files.pending = Changed::default(),
                Err(error) => tracing::error!("TLS can't be set up anew: {error}"),
            }
        }
        *self.facts.lock() = files.facts(&self.settings);
    }

    /// Puts the values made from the files into use.
    fn replace(&self, files: &TlsFiles) -> Result<(), TlsError> {
        // A ticket contains the client's certificate, which would not be verified again.
        let tickets = match files.pending.client_ca {
            true => new_tickets()?,
            false => Arc::clone(&self.current.read().tickets),
        };
        let current = CurrentTls::new(&self.settings, self.http2, files, tickets)?;
        *self.current.write() = Arc::new(current);
        Ok(())
    }
}

/// The keys of a listener's sessions, for a new process. Secret.
#[derive(Serialize, Deserialize)]
pub struct SessionKeys {
    /// The listener's configured addresses.
    listener: String,
    /// Earlier versions send only the hash of the authorities. It never equals a value of this version, so no session
    /// with a certificate is resumed.
    #[serde(rename = "client_ca")]
    client_auth: ClientAuthDigest,
    keys: Vec<ExportedTicketKey>,
}

fn client_auth(settings: &model::Tls, files: &TlsFiles) -> ClientAuthDigest {
    let (asked, authorities) = settings.client_auth.as_ref().zip(files.client_ca_digest())?;
    let refusal = asked.required.map_or("optional".to_owned(), |status| format!("required, {status}"));
    Some(format!("{refusal}, {authorities}"))
}

fn listener_name(listener: &Listener) -> String {
    listener.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn new_tickets() -> Result<Arc<Tickets>, TlsError> {
    Tickets::new().map(Arc::new).map_err(|_| TlsError::Random)
}

impl CurrentTls {
    fn new(
        settings: &model::Tls,
        http2: bool,
        files: &TlsFiles,
        tickets: Arc<Tickets>,
    ) -> Result<Self, TlsError> {
        let all = files.certificates.iter().map(|reread| reread.value().clone()).collect();
        let certificates = Arc::new(Certificates::new(all));
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(versions(settings.min_version))?;
        let builder = match &files.client_ca {
            None => builder.with_no_client_auth(),
            Some(reread) => builder.with_client_cert_verifier(Arc::clone(reread.value())),
        };
        let mut config = builder.with_cert_resolver(Arc::clone(&certificates) as Arc<dyn ResolvesServerCert>);
        // A client of HTTP/1.0 may offer it (`curl --http1.0` does), and the handshake fails if none of its protocols
        // is known.
        let protocols: &[&[u8]] = &[HTTP2_PROTOCOL, b"http/1.1", b"http/1.0"];
        let offered = if http2 { protocols } else { &protocols[1..] };
        config.alpn_protocols = offered.iter().map(|name| name.to_vec()).collect();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = Arc::clone(&tickets) as Arc<_>;
        Ok(Self {
            config: Arc::new(config),
            certificates,
            tickets,
            client_auth: client_auth(settings, files),
        })
    }
}

fn versions(min: TlsVersion) -> &'static [&'static SupportedProtocolVersion] {
    static ALL: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
    match min {
        TlsVersion::V1_2 => &ALL,
        TlsVersion::V1_3 => &ALL[..1],
    }
}

/// HTTP/2's name in ALPN (RFC 9113, 3.2).
pub(super) const HTTP2_PROTOCOL: &[u8] = b"h2";

/// The TLS of each listener, shared by all workers and replaced by reloads.
#[derive(Debug, Clone, Default)]
pub struct TlsContexts(Arc<RwLock<Vec<Option<Arc<TlsContext>>>>>);

impl TlsContexts {
    /// In the order of the listeners. `None`: plain HTTP.
    pub fn new(contexts: Vec<Option<Arc<TlsContext>>>) -> Self {
        Self(Arc::new(RwLock::new(contexts)))
    }

    /// Replaces all of them. Open connections keep their context.
    pub fn replace(&self, contexts: Vec<Option<Arc<TlsContext>>>) {
        *self.0.write() = contexts;
    }

    /// The TLS of the listener with this index.
    pub(super) fn of(&self, listener: usize) -> Option<Arc<TlsContext>> {
        self.0.read().get(listener)?.clone()
    }

    /// The TLS of each listener that has it, with the listener's index.
    pub fn all(&self) -> Vec<(usize, Arc<TlsContext>)> {
        let contexts = self.0.read();
        contexts.iter().enumerate().filter_map(|(index, context)| Some((index, context.clone()?))).collect()
    }

    /// [`TlsContext::facts`] of each listener with TLS. `addresses`: of each listener.
    pub fn facts(&self, addresses: &[Vec<String>]) -> Vec<TlsFacts> {
        let facts = self.all().into_iter().map(|(index, context)| {
            let addresses = addresses.get(index).cloned().unwrap_or_default();
            TlsFacts { addresses, ..context.facts() }
        });
        facts.collect()
    }

    /// [`TlsContext::reload_changed_files`] of each.
    pub fn reload_changed_files(&self) {
        for (_, context) in self.all() {
            context.reload_changed_files();
        }
    }
}
