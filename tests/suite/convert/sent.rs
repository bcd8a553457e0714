//! Requests, and how they are sent.

use std::{
    fmt,
    io::{self, Read, Write},
    net::{IpAddr, SocketAddr},
};

use super::source::Listener;
use crate::harness::{Authority, Client, Issued, Reply, TlsConnector};

/// Addresses of clients that are met in `allow`, `deny` and the like. All are the loopback's.
pub const PEERS: [&str; 5] = ["127.0.0.1", "127.0.0.2", "127.0.0.9", "127.1.0.1", "127.1.2.3"];

/// A request to both programs.
#[derive(Debug, Clone)]
pub struct Sent {
    /// The number of the listener.
    pub listener: usize,
    /// The address that the client connects from.
    pub peer: IpAddr,
    /// Another address of the same listener, which listens on all addresses.
    pub to: Option<IpAddr>,
    /// The name in the handshake, and whether the client shows its certificate. For a listener with TLS.
    pub tls_name: String,
    pub has_certificate: bool,
    pub method: String,
    pub target: String,
    /// Header fields, `host` first unless the request has none.
    pub headers: Vec<(String, String)>,
    pub body: Body,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    None,
    Length(usize),
    Chunked(usize),
}

impl Sent {
    /// A request as cases write it: `METHOD HOST/PATH [from ADDRESS] [at LISTENER] [with certificate] [body BYTES]
    /// [| FIELD: VALUE …]`.
    #[track_caller]
    pub fn parse(request: &str) -> Self {
        let mut parts = request.split(" | ");
        let mut words = parts.next().unwrap().split(' ').peekable();
        let method = words.next().unwrap().to_owned();
        let url = words.next().unwrap();
        let (host, path) = url.split_at(url.find('/').unwrap());
        let mut sent = Self {
            listener: 0,
            peer: "127.0.0.1".parse().unwrap(),
            to: None,
            tls_name: "a.test".to_owned(),
            has_certificate: false,
            method,
            target: path.to_owned(),
            headers: vec![("host".to_owned(), host.to_owned())],
            body: Body::None,
        };
        while let (Some(word), Some(value)) = (words.next(), words.next()) {
            match word {
                "from" => sent.peer = value.parse().unwrap(),
                "at" => sent.listener = value.parse().unwrap(),
                "with" => sent.has_certificate = true,
                "body" => sent.body = Body::Length(value.parse().unwrap()),
                "chunked" => sent.body = Body::Chunked(value.parse().unwrap()),
                _ => panic!("{request}"),
            }
        }
        for field in parts {
            let (name, value) = field.split_once(": ").unwrap();
            sent.headers.push((name.to_owned(), value.to_owned()));
        }
        sent
    }

    /// The first field of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The requested host as it is written: in the target, or else in `Host`.
    pub fn authority(&self) -> &str {
        let in_target = self.target.strip_prefix("http://").and_then(|rest| rest.split('/').next());
        in_target.or(self.header("host")).unwrap_or_default()
    }

    /// The requested host, in lower case, without its port and a dot at its end.
    pub fn host(&self) -> String {
        let host = self.authority().to_ascii_lowercase();
        host.split(':').next().unwrap_or_default().trim_end_matches('.').to_owned()
    }

    /// The path without the query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        for (name, value) in &self.headers {
            bytes += &format!("{name}: {value}\r\n");
        }
        bytes += &match self.body {
            Body::None => "\r\n".to_owned(),
            Body::Length(length) => format!("content-length: {length}\r\n\r\n{}", "x".repeat(length)),
            Body::Chunked(length) => {
                format!("transfer-encoding: chunked\r\n\r\n{length:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(length))
            }
        };
        bytes.into_bytes()
    }

    /// Sends it over a connection of its own. An error: the connection ended without a whole response.
    pub fn send(&self, listener: &Listener, clients: &Clients) -> io::Result<Reply> {
        let at = listener.reached_at();
        let address = SocketAddr::new(self.to.unwrap_or(at.ip()), at.port());
        let client = Client::try_connect_from(self.peer, address)?;
        match listener.is_tls {
            true => {
                let tls = clients.connector(self.has_certificate).over(client.stream, &self.tls_name)?;
                self.exchange(tls.into_http())
            }
            false => self.exchange(client),
        }
    }

    fn exchange<S: Read + Write>(&self, mut client: Client<S>) -> io::Result<Reply> {
        // A response may come, and the connection end, before all of a body is written.
        let written = client.stream.write_all(&self.bytes()).and_then(|()| client.stream.flush());
        let reply = if self.method == "HEAD" { client.try_head() } else { client.try_reply() };
        reply.or_else(|error| written.and(Err(error)))
    }
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "from {}, listener {}", self.peer, self.listener)?;
        if let Some(to) = self.to {
            write!(f, " at {to}")?;
        }
        write!(f, " (TLS for {}, certificate: {}): ", self.tls_name, self.has_certificate)?;
        write!(f, "{} {}", self.method, self.target)?;
        for (name, value) in &self.headers {
            write!(f, " | {name}: {value}")?;
        }
        match self.body {
            Body::None => Ok(()),
            body => write!(f, " | {body:?}"),
        }
    }
}

/// Those who connect by TLS.
pub struct Clients {
    plain: TlsConnector,
    certified: TlsConnector,
}

impl Clients {
    pub fn new(authority: &Authority, own: &Issued) -> Self {
        let certified = TlsConnector::with_certificate(authority, own);
        Self { plain: TlsConnector::new(authority), certified }
    }

    fn connector(&self, has_certificate: bool) -> &TlsConnector {
        if has_certificate { &self.certified } else { &self.plain }
    }
}
