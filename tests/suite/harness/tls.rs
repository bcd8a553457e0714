//! A client that speaks TLS, and remembers its sessions.

use std::{
    fs,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use rustls::{
    ClientConfig, ClientConnection, ConfigBuilder, HandshakeKind, RootCertStore, ServerConfig, StreamOwned,
    SupportedProtocolVersion, WantsVerifier,
    crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs::default_provider},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    version::{TLS12, TLS13},
};

use super::{Authority, Client, Issued, PATIENCE, Reply, http_reader::HttpReader};

/// The versions that a client may speak, and their names in metrics.
pub const TLS_VERSIONS: [(&str, &SupportedProtocolVersion); 2] = [("1.2", &TLS12), ("1.3", &TLS13)];

/// A client of HTTP over TLS.
pub type HttpsClient = Client<StreamOwned<ClientConnection, TcpStream>>;

/// What the connections of one client have in common: whom it trusts, its certificate, its sessions.
#[derive(Clone)]
pub struct TlsConnector(Arc<ClientConfig>);

/// A connection over TLS.
pub struct TlsClient(pub StreamOwned<ClientConnection, TcpStream>);

impl TlsConnector {
    /// It trusts `authority`, and shows no certificate.
    pub fn new(authority: &Authority) -> Self {
        let config = ClientConfig::builder().with_root_certificates(roots(authority));
        Self(Arc::new(config.with_no_client_auth()))
    }

    /// The same, and speaks this version alone.
    pub fn speaking(authority: &Authority, version: &'static SupportedProtocolVersion) -> Self {
        let config = ClientConfig::builder_with_protocol_versions(&[version]);
        Self(Arc::new(config.with_root_certificates(roots(authority)).with_no_client_auth()))
    }

    /// Likewise TLS 1.3 with these groups alone.
    pub fn offering(authority: &Authority, groups: &[&'static dyn SupportedKxGroup]) -> Self {
        let provider = CryptoProvider { kx_groups: groups.to_vec(), ..default_provider() };
        let config = ClientConfig::builder_with_provider(Arc::new(provider));
        let config = config.with_protocol_versions(&[&TLS13]).unwrap();
        Self(Arc::new(config.with_root_certificates(roots(authority)).with_no_client_auth()))
    }

    /// It shows the certificate `own` to a server that asks for one.
    pub fn with_certificate(authority: &Authority, own: &Issued) -> Self {
        Self::identified(ClientConfig::builder(), authority, own)
    }

    /// The same, and speaks this version alone.
    pub fn with_certificate_speaking(
        authority: &Authority,
        own: &Issued,
        version: &'static SupportedProtocolVersion,
    ) -> Self {
        Self::identified(ClientConfig::builder_with_protocol_versions(&[version]), authority, own)
    }

    fn identified(
        builder: ConfigBuilder<ClientConfig, WantsVerifier>,
        authority: &Authority,
        own: &Issued,
    ) -> Self {
        let (chain, key) = own.read();
        let config = builder.with_root_certificates(roots(authority));
        Self(Arc::new(config.with_client_auth_cert(chain, key).unwrap()))
    }

    /// The same, and chooses HTTP/2.
    pub fn choosing_http2(&self) -> Self {
        let mut config = ClientConfig::clone(&self.0);
        config.alpn_protocols = vec![b"h2".to_vec()];
        Self(Arc::new(config))
    }

    /// What it shakes hands with.
    pub fn config(&self) -> &Arc<ClientConfig> {
        &self.0
    }

    /// Connects and shakes hands.
    pub fn connect(&self, address: SocketAddr, name: &str) -> io::Result<TlsClient> {
        let stream = TcpStream::connect(address)?;
        self.over(stream, name)
    }

    /// Shakes hands over a connection on which something was sent already.
    pub fn over(&self, mut stream: TcpStream, name: &str) -> io::Result<TlsClient> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut connection = ClientConnection::new(Arc::clone(&self.0), name).unwrap();
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        Ok(TlsClient(StreamOwned::new(connection, stream)))
    }
}

impl From<ClientConfig> for TlsConnector {
    fn from(config: ClientConfig) -> Self {
        Self(Arc::new(config))
    }
}

impl Issued {
    /// The chain and the key.
    pub fn read(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let chain = CertificateDer::pem_slice_iter(&fs::read(&self.cert).unwrap()).collect::<Result<_, _>>();
        (chain.unwrap(), PrivateKeyDer::from_pem_slice(&fs::read(&self.key).unwrap()).unwrap())
    }
}

impl HttpsClient {
    /// A request, where there may be no answer.
    pub fn try_request(&mut self, method: &str, path: &str, body: &[u8]) -> io::Result<Reply> {
        let (host, length) = (&self.host, body.len());
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {length}\r\n\r\n");
        self.stream.write_all(&[head.as_bytes(), body].concat())?;
        self.stream.flush()?;
        self.try_reply()
    }
}

impl TlsClient {
    /// Whether the session of an earlier connection goes on.
    pub fn is_resumed(&self) -> bool {
        self.0.conn.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// For requests whose answers are read one by one.
    pub fn into_http(self) -> HttpsClient {
        let host = self.0.sock.peer_addr().unwrap().to_string();
        Client { stream: self.0, host, reader: HttpReader::default() }
    }

    /// GET `path`, and everything that comes until the connection ends.
    pub fn get(mut self, path: &str, headers: &str) -> io::Result<String> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n");
        self.0.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        self.0.read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

/// What a server with this certificate shakes hands with.
pub fn server_config(own: &Issued) -> ServerConfig {
    let (chain, key) = own.read();
    ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap()
}

pub fn roots(authority: &Authority) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&fs::read(authority.file()).unwrap()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    roots
}
