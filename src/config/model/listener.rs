//! The sockets that Tollgate opens, their protocols and TLS, and secrets.

use std::{fmt, net::SocketAddr, path::PathBuf, time::Duration};

use serde::{Serialize, Serializer, ser::SerializeMap};
use tollgate_derive::{Settings, Word};

use super::format::format_size;
use crate::config::{
    reader::Cursor,
    settings::{Kind, Read, Settings, Value, duration_in},
    value::{Invalid, name_pattern},
};

/// Sockets that serve clients in the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// The name by which routes refer to it.
    pub name: Option<String>,
    pub addresses: Vec<ListenAddress>,
    /// Whether trusted proxies must begin each connection with a PROXY header, and all other peers are closed.
    pub has_proxy_protocol: bool,
    /// Every request is redirected to https.
    pub redirect: Option<HttpsRedirect>,
    pub tls: Option<Tls>,
    /// Whether HTTP/2 is spoken, too: over TLS if the client chooses it (ALPN), in clear text if the client begins with
    /// it.
    pub http2: bool,
    /// The limit on a request's body, in bytes, on routes without a limit of their own. 0: no limit; `None`: the limit
    /// of [`ClientLimits`](super::ClientLimits).
    pub max_body: Option<usize>,
}

impl Listener {
    /// Plain HTTP on `address`.
    pub fn plain(address: SocketAddr) -> Self {
        let addresses = vec![ListenAddress::Tcp(address)];
        Self {
            name: None,
            addresses,
            has_proxy_protocol: false,
            redirect: None,
            tls: None,
            http2: true,
            max_body: None,
        }
    }

    /// The listener as operators see it: its name, or else its addresses.
    pub fn shown(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.shown_addresses())
    }

    /// Its addresses in a line.
    pub fn shown_addresses(&self) -> String {
        let addresses: Vec<_> = self.addresses.iter().map(ToString::to_string).collect();
        addresses.join(", ")
    }
}

/// Leaves out settings that are not set; without any, it is the address alone.
impl Serialize for Listener {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { name, addresses, has_proxy_protocol, redirect, tls, http2, max_body } = self;
        let unix = addresses.iter().find_map(|address| match address {
            ListenAddress::Tcp(_) => None,
            ListenAddress::Unix(socket) => Some(socket),
        });
        let access = unix.filter(|UnixSocket { mode, owner, group, .. }| {
            mode.is_some() || owner.is_some() || group.is_some()
        });
        if let (None, [address], None, false, None, None, true, None) =
            (name, addresses.as_slice(), access, has_proxy_protocol, redirect, tls, http2, max_body)
        {
            return address.serialize(serializer);
        }
        let mut map = serializer.serialize_map(None)?;
        match addresses.as_slice() {
            [address] => map.serialize_entry("address", address)?,
            addresses => map.serialize_entry("address", addresses)?,
        }
        if let Some(name) = name {
            map.serialize_entry("name", name)?;
        }
        if let Some(UnixSocket { mode, owner, group, .. }) = access {
            if let Some(mode) = mode {
                map.serialize_entry("mode", &format!("{mode:04o}"))?;
            }
            for (key, name) in [("owner", owner), ("group", group)] {
                if let Some(name) = name {
                    map.serialize_entry(key, name)?;
                }
            }
        }
        if *has_proxy_protocol {
            map.serialize_entry("proxy_protocol", &true)?;
        }
        if let Some(redirect) = redirect {
            map.serialize_entry("redirect", redirect)?;
        }
        if let Some(tls) = tls {
            map.serialize_entry("tls", tls)?;
        }
        if !*http2 {
            map.serialize_entry("http2", &false)?;
        }
        if let Some(bytes) = max_body {
            map.serialize_entry("max_body", &format_size(*bytes))?;
        }
        map.end()
    }
}

/// Where a socket listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    Tcp(SocketAddr),
    Unix(UnixSocket),
}

impl ListenAddress {
    /// Whether both are the same address. Permissions of Unix sockets are not compared.
    pub fn is_same_address(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Tcp(one), Self::Tcp(other)) => one == other,
            (Self::Unix(one), Self::Unix(other)) => one.path == other.path,
            (Self::Tcp(_), Self::Unix(_)) | (Self::Unix(_), Self::Tcp(_)) => false,
        }
    }

    /// Whether the two cannot both have a socket: `0.0.0.0` is all addresses of IPv4, and `[::]` all addresses of IPv6.
    /// Port 0 is any free port.
    pub fn overlaps(&self, other: &Self) -> bool {
        let (Self::Tcp(one), Self::Tcp(other)) = (self, other) else { return self.is_same_address(other) };
        let is_any = one.ip().is_unspecified() || other.ip().is_unspecified();
        let is_shared = one.ip() == other.ip() || is_any && one.is_ipv4() == other.is_ipv4();
        is_shared && one.port() == other.port() && one.port() != 0
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(socket) => write!(f, "unix:{}", socket.path.display()),
        }
    }
}

impl Serialize for ListenAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A Unix socket, and who may connect to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnixSocket {
    pub path: PathBuf,
    /// Permission bits. `None`: the umask decides.
    pub mode: Option<u32>,
    /// A name or a number; the process' own otherwise.
    pub owner: Option<String>,
    /// A name or a number; the process' own otherwise.
    pub group: Option<String>,
}

/// Redirects every request to https on the same host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HttpsRedirect {
    /// The port of the https address.
    pub port: u16,
}

/// TLS towards clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tls {
    /// At least one. The client's server name chooses among them; the first serves all others.
    pub certificates: Vec<CertificateFiles>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_auth: Option<ClientAuth>,
    pub min_version: TlsVersion,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hsts: Option<Hsts>,
}

/// A certificate and its key. Both files are read again when they change.
#[derive(Debug, Clone, PartialEq, Eq, Settings)]
#[settings(page = "tls.md", sample = "cert: api.pem, key: api.key")]
pub struct CertificateFiles {
    /// The certificate and the chain to its authority, in PEM.
    #[setting(file, read = Cursor::path, example = "api.pem")]
    #[setting(missing = "the file of the certificate and its chain, PEM")]
    pub cert: PathBuf,
    /// The private key, in PEM.
    #[setting(file, read = Cursor::path, example = "api.key", missing = "the file of the private key, PEM")]
    pub key: PathBuf,
    /// Names that the certificate must have. If it lacks one of them, that is an error.
    #[setting(list(text = CERTIFICATE_NAME, Unique), parse = name_pattern, unset = "it may have any names")]
    #[setting(example = "[api.example.com]", omit_if = Vec::is_empty)]
    pub names: Vec<String>,
}

/// Clients are asked for a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClientAuth {
    /// The file of the authorities that sign clients' certificates, PEM.
    pub ca: PathBuf,
    /// The status of the reply to a client without a certificate. `None`: a certificate is optional.
    pub required: Option<u16>,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum TlsVersion {
    #[word("1.2")]
    V1_2,
    #[word("1.3")]
    V1_3,
}

/// The header `Strict-Transport-Security` (RFC 6797).
#[derive(Debug, Clone, PartialEq, Eq, Settings)]
#[settings(page = "tls.md", sample = "max_age: 365d")]
pub struct Hsts {
    /// How long browsers use only https for the host.
    #[setting(duration = "0..=732d", example = "365d", missing = "such as `max_age: 365d`")]
    pub max_age: Duration,
    /// Whether this applies to all subdomains of the host, too.
    #[setting(default = "false", example = "true")]
    pub include_subdomains: bool,
    /// Whether browsers may include the host in their built-in lists (preload lists).
    #[setting(default = "false", example = "true")]
    pub preload: bool,
}

impl Hsts {
    /// Reads a duration, or a mapping.
    pub(in crate::config) fn of(value: Cursor<'_>) -> Option<Self> {
        match value.scalar() {
            None => Self::read(value),
            Some(_) => value.parse(Self::parse),
        }
    }
}

impl Value for Hsts {
    const KIND: Kind =
        Kind::Either(&[Kind::Duration(0, MOST_HSTS), Kind::Mapping(<Self as Settings>::mapping)]);

    fn parse(text: &str) -> Result<Self, Invalid> {
        let max_age = duration_in(0..=MOST_HSTS)(text)?;
        Ok(Self { max_age, include_subdomains: false, preload: false })
    }
}

/// Two leap years, in milliseconds.
const MOST_HSTS: u64 = 2 * 366 * 24 * 60 * 60 * 1_000;

/// The value of the field.
impl fmt::Display for Hsts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "max-age={}", self.max_age.as_secs())?;
        f.write_str(if self.include_subdomains { "; includeSubDomains" } else { "" })?;
        f.write_str(if self.preload { "; preload" } else { "" })
    }
}

/// The admin port. It always has a token, unless its address is loopback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Admin {
    pub address: SocketAddr,
    pub token: Option<Secret>,
}

/// A value that is never shown in a log or on a page.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps `value`.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// Reads a secret. `None`: it is empty, or wrong.
    pub(in crate::config) fn read(value: Cursor<'_>) -> Option<Self> {
        value.parse_secret(|text| Ok(text.to_owned())).filter(|text| !text.is_empty()).map(Self)
    }

    /// The value itself, to compare or to send it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
