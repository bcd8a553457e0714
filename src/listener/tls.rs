//! TLS of one listener: which certificate a client is shown, what it is asked for, and how both change.

use std::{collections::HashMap, io, path::PathBuf, sync::Arc, time::SystemTime};

use parking_lot::{Mutex, RwLock};
use rustls::{
    ServerConfig, SupportedProtocolVersion,
    crypto::aws_lc_rs::default_provider,
    server::{
        ClientHello, NoServerSessionStorage, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier,
        danger::ClientCertVerifier,
    },
    sign::CertifiedKey,
    version::{TLS12, TLS13},
};
use serde::{Deserialize, Serialize};

use super::{
    reread::{self, Reread},
    tickets::{TicketKey, Tickets},
};
use crate::{
    config::model::{self, Listener, TlsVersion},
    telemetry::metrics::{CertificateFacts, ClientCaFacts, TlsFacts},
    tls::{self, Certificate, CertificateError, PemError},
    watched_file::WatchedFile,
};

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
    /// Apart from the files, which are locked while they are read.
    facts: Mutex<TlsFacts>,
}

/// What handshakes use now.
#[derive(Debug)]
pub(super) struct CurrentTls {
    pub(super) config: Arc<ServerConfig>,
    pub(super) certificates: Arc<Certificates>,
    tickets: Arc<Tickets>,
    /// A hash of the authorities of clients' certificates.
    client_ca: Option<String>,
}

/// What is made of the files. One that is wrong delays no other.
#[derive(Debug)]
struct TlsFiles {
    /// In the configuration's order.
    certificates: Vec<Reread<Certificate, 2>>,
    client_ca: Option<Reread<Arc<dyn ClientCertVerifier>, 1>>,
    /// What was made anew and is not served yet.
    pending: Changed,
}

impl TlsContext {
    /// Reads all files. The sessions of the context `before` go on, unless it asked clients for other certificates.
    ///
    /// A certificate that has expired, or is not valid yet, is served all the same: whether that may be is the
    /// caller's decision.
    ///
    /// # Errors
    /// A file can't be read, or what is in it can't be used.
    pub fn new(settings: model::Tls, before: Option<&Self>) -> Result<Self, TlsError> {
        let files = TlsFiles::open(&settings)?;
        let tickets = match before.and_then(|before| before.tickets_for(&settings, &files)) {
            Some(tickets) => tickets,
            None => new_tickets()?,
        };
        let current = RwLock::new(Arc::new(CurrentTls::new(&settings, &files, tickets)?));
        let facts = Mutex::new(files.facts(&settings));
        Ok(Self { settings, files: Mutex::new(files), current, facts })
    }

    /// The tickets, if clients of both are asked for the same certificates. Those of one may then resume sessions with the
    /// other.
    fn tickets_for(&self, settings: &model::Tls, files: &TlsFiles) -> Option<Arc<Tickets>> {
        let current = self.current();
        let is_same = self.settings.client_auth == settings.client_auth
            && current.client_ca == files.client_ca_digest();
        is_same.then(|| Arc::clone(&current.tickets))
    }

    /// What is configured.
    pub fn settings(&self) -> &model::Tls {
        &self.settings
    }

    /// What a handshake that begins now uses.
    pub(super) fn current(&self) -> Arc<CurrentTls> {
        Arc::clone(&self.current.read())
    }

    /// What is served, and how its files stand. Without addresses, which the context does not know.
    pub fn facts(&self) -> TlsFacts {
        self.facts.lock().clone()
    }

    /// The keys of its sessions, for a new process. `listener`: the listener that it is of.
    pub fn session_keys(&self, listener: &Listener) -> SessionKeys {
        let current = self.current();
        SessionKeys {
            listener: listener_name(listener),
            client_ca: current.client_ca.clone(),
            keys: current.tickets.export(),
        }
    }

    /// Goes on with the sessions that an old process has begun on `listener`, unless it asked clients for other
    /// certificates.
    pub fn continue_sessions(&self, listener: &Listener, sessions: &[SessionKeys]) {
        let (name, current) = (listener_name(listener), self.current());
        let same = |of: &&SessionKeys| of.listener == name && of.client_ca == current.client_ca;
        if let Some(SessionKeys { keys, .. }) = sessions.iter().find(same) {
            current.tickets.import(keys);
        }
    }

    /// Reads the files that have changed. What can't be used is logged, and changes nothing. Blocks: not for a worker's
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

    /// Serves what was made of the files.
    fn replace(&self, files: &TlsFiles) -> Result<(), TlsError> {
        // A ticket carries the certificate that its client showed, and nothing would verify that anew.
        let tickets = match files.pending.client_ca {
            true => new_tickets()?,
            false => Arc::clone(&self.current.read().tickets),
        };
        let current = CurrentTls::new(&self.settings, files, tickets)?;
        *self.current.write() = Arc::new(current);
        Ok(())
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

fn new_tickets() -> Result<Arc<Tickets>, TlsError> {
    Tickets::new().map(Arc::new).map_err(|_| TlsError::Random)
}

/// Of which files another value was made.
#[derive(Debug, Clone, Copy, Default)]
struct Changed {
    any: bool,
    client_ca: bool,
}

impl TlsFiles {
    fn open(settings: &model::Tls) -> Result<Self, TlsError> {
        let certificate = |files: &model::CertificateFiles| {
            let opened = [reread::open(&files.cert)?, reread::open(&files.key)?];
            Reread::new(opened, |opened| certificate(opened, &files.names))
        };
        let certificates = settings.certificates.iter().map(certificate).collect::<Result<_, _>>()?;
        let client_ca = settings.client_auth.as_ref();
        let client_ca = client_ca.map(|client| Reread::new([reread::open(&client.ca)?], verifier));
        Ok(Self { certificates, client_ca: client_ca.transpose()?, pending: Changed::default() })
    }

    fn client_ca_digest(&self) -> Option<String> {
        self.client_ca.as_ref().map(Reread::digest)
    }

    /// Reads those that have changed.
    fn refresh(&mut self, settings: &model::Tls) {
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
                tracing::info!(file = %files.cert.display(), names, expires, "certificate reloaded");
                self.pending.any = true;
            }
        }
        if let Some(reread) = &mut self.client_ca
            && reread.refresh(verifier)
        {
            tracing::info!("authorities of clients' certificates reloaded: no session is resumed");
            self.pending = Changed { any: true, client_ca: true };
        }
    }

    fn facts(&self, settings: &model::Tls) -> TlsFacts {
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

/// Reads the authorities of clients' certificates.
fn verifier([file]: &[WatchedFile; 1]) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let trusted = tls::authorities(file.bytes()).map_err(|error| pem_error(file, error))?;
    // A client without a certificate is refused by a reply, which says why. An alert would not.
    let builder =
        WebPkiClientVerifier::builder_with_provider(Arc::new(trusted), Arc::new(default_provider()));
    Ok(builder.allow_unauthenticated().build()?)
}

impl CurrentTls {
    fn new(settings: &model::Tls, files: &TlsFiles, tickets: Arc<Tickets>) -> Result<Self, TlsError> {
        let all = files.certificates.iter().map(|reread| reread.value().clone()).collect();
        let certificates = Arc::new(Certificates::new(all));
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(versions(settings.min_version))?;
        let builder = match &files.client_ca {
            None => builder.with_no_client_auth(),
            Some(reread) => builder.with_client_cert_verifier(Arc::clone(reread.value())),
        };
        let mut config = builder.with_cert_resolver(Arc::clone(&certificates) as Arc<dyn ResolvesServerCert>);
        // A client of HTTP/1.0 may name it (`curl --http1.0` does), and is refused if nothing it names is known.
        config.alpn_protocols = vec![b"http/1.1".to_vec(), b"http/1.0".to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = Arc::clone(&tickets) as Arc<_>;
        Ok(Self { config: Arc::new(config), certificates, tickets, client_ca: files.client_ca_digest() })
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
            for name in &certificate.info().names {
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

    /// As [`TlsContext::facts`], of each listener that speaks TLS. `addresses`: those of each listener.
    pub fn facts(&self, addresses: &[Vec<String>]) -> Vec<TlsFacts> {
        let facts = self.all().into_iter().map(|(index, context)| {
            let addresses = addresses.get(index).cloned().unwrap_or_default();
            TlsFacts { addresses, ..context.facts() }
        });
        facts.collect()
    }

    /// As [`TlsContext::reload_changed_files`], of each.
    pub fn reload_changed_files(&self) {
        for (_, context) in self.all() {
            context.reload_changed_files();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use rcgen::{CertificateParams, KeyPair};
    use rustls::{
        ClientConfig, ClientConnection, DigitallySignedStruct, HandshakeKind, ServerConnection,
        SignatureScheme,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        pki_types::{CertificateDer, ServerName, UnixTime},
    };
    use tempfile::TempDir;

    use super::*;

    /// Files of certificates.
    struct Files(TempDir);

    impl Files {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        /// Writes `NAME.pem` and `NAME.key`: a certificate for `hosts`, valid for so many days from yesterday on.
        fn issue(&self, name: &str, hosts: &[&str], days: u64) -> model::CertificateFiles {
            let key = KeyPair::generate().unwrap();
            let hosts: Vec<_> = hosts.iter().map(|&host| host.to_owned()).collect();
            let mut params = CertificateParams::new(hosts).unwrap();
            let day = Duration::from_secs(24 * 60 * 60);
            params.not_before = (SystemTime::now() - day * 2).into();
            params.not_after = (SystemTime::now() - day + day * u32::try_from(days).unwrap()).into();
            let path = |end: &str| self.0.path().join(format!("{name}.{end}"));
            fs::write(path("pem"), params.self_signed(&key).unwrap().pem()).unwrap();
            fs::write(path("key"), key.serialize_pem()).unwrap();
            model::CertificateFiles { cert: path("pem"), key: path("key"), names: Vec::new() }
        }

        /// Puts the file `from` in the place of `to`.
        fn put(&self, from: &str, to: &str) {
            fs::copy(self.0.path().join(from), self.0.path().join(to)).unwrap();
        }
    }

    fn settings(certificates: Vec<model::CertificateFiles>) -> model::Tls {
        model::Tls { certificates, client_auth: None, min_version: TlsVersion::V1_2, hsts: None }
    }

    fn asking_for(ca: &model::CertificateFiles, settings: model::Tls) -> model::Tls {
        let client_auth = Some(model::ClientAuth { ca: ca.cert.clone(), required: None });
        model::Tls { client_auth, ..settings }
    }

    /// Takes any certificate: the tests ask which one it was.
    #[derive(Debug)]
    struct TakeAny;

    impl ServerCertVerifier for TakeAny {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, rustls::Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            self.verify_tls12_signature(message, certificate, signature)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            default_provider().signature_verification_algorithms.supported_schemes()
        }
    }

    /// Remembers its sessions.
    fn client(version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_protocol_versions(&[version]).unwrap().dangerous();
        Arc::new(builder.with_custom_certificate_verifier(Arc::new(TakeAny)).with_no_client_auth())
    }

    /// Shakes hands: how, and the first name of the certificate that the client was shown.
    fn connect(context: &TlsContext, client: &Arc<ClientConfig>, name: &str) -> (HandshakeKind, String) {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut client = ClientConnection::new(Arc::clone(client), name).unwrap();
        let mut server = ServerConnection::new(Arc::clone(&context.current().config)).unwrap();
        while client.wants_write() || server.wants_write() {
            let mut bytes = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut bytes).unwrap();
            }
            server.read_tls(&mut bytes.as_slice()).unwrap();
            server.process_new_packets().unwrap();
            bytes.clear();
            while server.wants_write() {
                server.write_tls(&mut bytes).unwrap();
            }
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                client.read_tls(&mut rest).unwrap();
                client.process_new_packets().unwrap();
            }
        }
        let shown = client.peer_certificates().unwrap().to_vec();
        (client.handshake_kind().unwrap(), first_name(&shown[0]))
    }

    fn first_name(shown: &CertificateDer<'_>) -> String {
        tls::CertificateInfo::read(shown).unwrap().names[0].clone()
    }

    fn shown(context: &TlsContext, name: &str) -> String {
        connect(context, &client(&TLS13), name).1
    }

    /// As often as it takes until wrong files are an error.
    fn reload(context: &TlsContext) {
        for _ in 0..3 {
            context.reload_changed_files();
        }
    }

    fn reload_errors(context: &TlsContext) -> Vec<String> {
        context.facts().reload_errors().map(|(_, error)| error.clone()).collect()
    }

    #[test]
    fn a_client_is_shown_the_certificate_for_its_name() {
        let files = Files::new();
        let certificates = vec![
            files.issue("first", &["first.test"], 90),
            files.issue("wildcard", &["*.example.com"], 90),
            files.issue("exact", &["API.example.com", "192.0.2.7"], 90),
            files.issue("again", &["again.test", "first.test"], 90),
        ];
        let context = TlsContext::new(settings(certificates), None).unwrap();
        for (name, expected) in [
            ("api.example.com", "api.example.com"),
            ("Api.EXAMPLE.com", "api.example.com"),
            ("www.example.com", "*.example.com"),
            ("WWW.example.com", "*.example.com"),
            // A wildcard stands for one label, and for one at least.
            ("a.b.example.com", "first.test"),
            ("example.com", "first.test"),
            ("unknown.test", "first.test"),
            // The first that has a name serves it.
            ("first.test", "first.test"),
            ("again.test", "again.test"),
            // Clients send no server name for an address (RFC 6066, 3).
            ("192.0.2.7", "first.test"),
        ] {
            assert_eq!(shown(&context, name), expected, "{name}");
        }
        let certificates = &context.current().certificates;
        assert!(certificates.cover("www.example.com") && !certificates.cover("example.com"));
    }

    #[test]
    fn a_renewed_certificate_is_served_and_sessions_go_on() {
        let files = Files::new();
        let old = files.issue("served", &["old.test"], 90);
        files.issue("new", &["new.test"], 90);
        for version in [&TLS12, &TLS13] {
            files.issue("served", &["old.test"], 90);
            let context = TlsContext::new(settings(vec![old.clone()]), None).unwrap();
            let client = client(version);
            assert_eq!(connect(&context, &client, "a.test"), (HandshakeKind::Full, "old.test".to_owned()));
            assert_eq!(connect(&context, &client, "a.test").0, HandshakeKind::Resumed);
            files.put("new.pem", "served.pem");
            context.reload_changed_files();
            assert_eq!((shown(&context, "b.test"), reload_errors(&context)), ("old.test".to_owned(), vec![]));
            files.put("new.key", "served.key");
            context.reload_changed_files();
            assert_eq!((shown(&context, "b.test"), reload_errors(&context)), ("new.test".to_owned(), vec![]));
            assert_eq!(connect(&context, &client, "a.test").0, HandshakeKind::Resumed, "{version:?}");
        }
    }

    #[test]
    fn a_wrong_pair_is_not_served_and_delays_no_other() {
        let files = Files::new();
        let certificates = vec![files.issue("one", &["one.test"], 90), files.issue("two", &["two.test"], 90)];
        let context = TlsContext::new(settings(certificates), None).unwrap();
        let loaded = context.facts().certificates[0].loaded;
        files.issue("other", &["other.test"], 90);
        files.put("other.pem", "one.pem");
        files.issue("two", &["renewed.test"], 90);
        reload(&context);
        assert_eq!(
            [shown(&context, "one.test"), shown(&context, "renewed.test")],
            ["one.test", "renewed.test"]
        );
        let errors = reload_errors(&context);
        assert!(
            errors.len() == 1 && errors[0].ends_with("one.key is not the private key of `cert`"),
            "{errors:?}"
        );
        let facts = context.facts();
        assert_eq!(
            (&*facts.certificates[0].info.names, facts.certificates[0].loaded),
            (&["one.test".to_owned()][..], loaded)
        );
        assert!(facts.certificates[1].loaded > loaded);
        files.put("other.key", "one.key");
        reload(&context);
        assert_eq!((shown(&context, "one.test"), reload_errors(&context)), ("other.test".to_owned(), vec![]));
    }

    #[test]
    fn a_certificate_that_has_expired_is_served_from_the_start_but_replaces_none() {
        let files = Files::new();
        let served = files.issue("served", &["served.test"], 0);
        let context = TlsContext::new(settings(vec![served]), None).unwrap();
        assert_eq!(shown(&context, "a.test"), "served.test");
        files.issue("served", &["renewed.test"], 90);
        reload(&context);
        assert_eq!(shown(&context, "a.test"), "renewed.test");
        files.issue("served", &["expired.test"], 0);
        reload(&context);
        assert_eq!(shown(&context, "a.test"), "renewed.test");
        let errors = reload_errors(&context);
        assert!(errors.len() == 1 && errors[0].contains("served.pem expired on "), "{errors:?}");
    }

    #[test]
    fn a_certificate_without_a_wanted_name_is_not_served() {
        let files = Files::new();
        let served = model::CertificateFiles {
            names: vec!["api.test".to_owned()],
            ..files.issue("served", &["api.test", "www.test"], 90)
        };
        let context = TlsContext::new(settings(vec![served.clone()]), None).unwrap();
        files.issue("served", &["www.test"], 90);
        reload(&context);
        assert_eq!(shown(&context, "a.test"), "api.test");
        let error = format!("{} is not for api.test, but for www.test", served.cert.display());
        assert_eq!(reload_errors(&context), [error]);
    }

    #[test]
    fn no_session_outlives_the_authorities_that_it_began_with() {
        let files = Files::new();
        let (served, ca) = (files.issue("served", &["a.test"], 90), files.issue("ca", &["ca.test"], 90));
        files.issue("ca2", &["ca.test"], 90);
        let settings = asking_for(&ca, settings(vec![served]));
        for version in [&TLS12, &TLS13] {
            let context = TlsContext::new(settings.clone(), None).unwrap();
            let client = client(version);
            let kind = |context: &TlsContext| connect(context, &client, "a.test").0;
            assert_eq!([kind(&context), kind(&context)], [HandshakeKind::Full, HandshakeKind::Resumed]);
            // Reread while it runs.
            files.put("ca.pem", "ca1.pem");
            files.put("ca2.pem", "ca.pem");
            context.reload_changed_files();
            assert_eq!([kind(&context), kind(&context)], [HandshakeKind::Full, HandshakeKind::Resumed]);
            // By a reload of the configuration, with the same authorities and with others.
            let same = TlsContext::new(settings.clone(), Some(&context)).unwrap();
            assert_eq!(kind(&same), HandshakeKind::Resumed);
            files.put("ca1.pem", "ca.pem");
            let other = TlsContext::new(settings.clone(), Some(&same)).unwrap();
            assert_eq!(kind(&other), HandshakeKind::Full);
            let none = model::Tls { client_auth: None, ..settings.clone() };
            assert_eq!(kind(&TlsContext::new(none, Some(&other)).unwrap()), HandshakeKind::Full);
        }
    }

    #[test]
    fn authorities_that_are_wrong_change_nothing() {
        let files = Files::new();
        let (served, ca) = (files.issue("served", &["a.test"], 90), files.issue("ca", &["ca.test"], 90));
        let context = TlsContext::new(asking_for(&ca, settings(vec![served])), None).unwrap();
        let client = client(&TLS13);
        connect(&context, &client, "a.test");
        fs::write(&ca.cert, "").unwrap();
        reload(&context);
        assert_eq!(reload_errors(&context), [format!("{} contains no certificate", ca.cert.display())]);
        assert_eq!(connect(&context, &client, "a.test").0, HandshakeKind::Resumed);
    }
}
