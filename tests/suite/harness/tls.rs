//! A client that speaks TLS, and remembers its sessions.

use std::{
    fs,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};

use super::{Authority, Issued, PATIENCE};

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

    /// It shows the certificate `own` to a server that asks for one.
    pub fn with_certificate(authority: &Authority, own: &Issued) -> Self {
        let chain =
            CertificateDer::pem_slice_iter(&fs::read(&own.cert).unwrap()).collect::<Result<_, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_slice(&fs::read(&own.key).unwrap()).unwrap();
        let config = ClientConfig::builder().with_root_certificates(roots(authority));
        Self(Arc::new(config.with_client_auth_cert(chain, key).unwrap()))
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

impl TlsClient {
    /// Whether the session of an earlier connection goes on.
    pub fn is_resumed(&self) -> bool {
        self.0.conn.handshake_kind() == Some(HandshakeKind::Resumed)
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

fn roots(authority: &Authority) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&fs::read(authority.file()).unwrap()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    roots
}
