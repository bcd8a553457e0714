//! `listeners` and `admin`: the sockets that Tollgate opens, their protocols and TLS; and secrets.

use std::{fmt, net::SocketAddr, path::PathBuf, time::Duration};

use serde::{Serialize, Serializer, ser::SerializeMap};
use tollgate_derive::{Settings, Word};

use crate::config::{
    reader::Cursor,
    settings::{Kind, Read, Settings, Value, count_in, duration_in},
    value::{
        Invalid, body_size, choice, file_mode, name_pattern,
        network::{ListenAddress, UnixSocket},
        printable_text,
    },
    written::format::format_size,
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
    /// of [`ClientLimits`](crate::config::listeners::clients::ClientLimits).
    pub max_body: Option<usize>,
    /// What another proxy asks is answered here. `None`: requests are forwarded.
    pub decisions: Option<DecisionService>,
}

/// What a listener does with its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum Serves {
    Proxying,
    /// Another proxy asks about its requests, and forwards them itself.
    Decisions,
}

/// How another proxy asks about its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionService {
    /// The proxy that asks by HTTP. `None`: it asks by gRPC.
    pub front: Option<Front>,
    /// What Envoy writes before the path of a question by HTTP.
    pub path_prefix: Option<String>,
}

impl DecisionService {
    /// Whether questions may come by gRPC.
    pub fn takes_calls(&self) -> bool {
        matches!(self.front, None | Some(Front::Envoy))
    }
}

/// A proxy that asks about its requests by HTTP. Each describes them in its own fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum Front {
    /// `auth_request`
    Nginx,
    /// `nginx.ingress.kubernetes.io/auth-url`
    #[word("ingress-nginx")]
    IngressNginx,
    /// `forwardAuth`
    Traefik,
    /// `forward_auth`
    Caddy,
    /// `ext_authz` with an HTTP service
    Envoy,
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
            decisions: None,
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
        let Self { name, addresses, has_proxy_protocol, redirect, tls, http2, max_body, decisions } = self;
        let unix = addresses.iter().find_map(|address| match address {
            ListenAddress::Tcp(_) => None,
            ListenAddress::Unix(socket) => Some(socket),
        });
        let access = unix.filter(|UnixSocket { mode, owner, group, .. }| {
            mode.is_some() || owner.is_some() || group.is_some()
        });
        if let (None, [address], None, false, None, None, true, None, None) = (
            name,
            addresses.as_slice(),
            access,
            has_proxy_protocol,
            redirect,
            tls,
            http2,
            max_body,
            decisions,
        ) {
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
        if let Some(DecisionService { front, path_prefix }) = decisions {
            map.serialize_entry("serves", &Serves::Decisions)?;
            if let Some(front) = front {
                map.serialize_entry("front", front)?;
            }
            if let Some(prefix) = path_prefix {
                map.serialize_entry("path_prefix", prefix)?;
            }
        }
        map.end()
    }
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

/// One or more addresses on which clients are served in the same way.
#[derive(Settings)]
#[settings(written, page = "connections.md", foreign = "listeners[]", sample = "address: 127.0.0.1:8090")]
#[settings(rules(
    Where("front", "serves", &["decisions"]),
    Where("path_prefix", "front", &["envoy"]),
    NotWhere("redirect", "serves", &["decisions"]),
    NotWhere("proxy_protocol", "serves", &["decisions"]),
    NotWhere("max_body", "serves", &["decisions"])
))]
pub(in crate::config) struct ListenerSettings<'t> {
    /// The address to listen on, or a list of them.
    #[setting(either(text = LISTEN, list(text = LISTEN, SomeUnique)), example = "[0.0.0.0:8080, \"[::]:8080\"]")]
    #[setting(missing = "such as `address: 127.0.0.1:8080`")]
    pub(in crate::config) address: Option<Cursor<'t>>,
    /// The name by which routes refer to the listener.
    #[setting(text = RESOURCE, unset = "it has none", example = "internal", see = ["routes[].listeners"])]
    pub(in crate::config) name: Option<Cursor<'t>>,
    /// The permissions of a Unix socket.
    #[setting(text = FILE_MODE, parse = file_mode, unset = "depends on the umask", example = "\"0660\"")]
    #[setting(beside = "address: \"unix:/run/tollgate.sock\"")]
    pub(in crate::config) mode: Option<u32>,
    /// The owner of a Unix socket, by name or number.
    #[setting(text = NAME, parse = printable_text, unset = "the user that Tollgate runs as", example = "tollgate")]
    #[setting(beside = "address: \"unix:/run/tollgate.sock\"")]
    pub(in crate::config) owner: Option<String>,
    /// The group of a Unix socket, by name or number.
    #[setting(text = NAME, parse = printable_text, unset = "the group that Tollgate runs as", example = "www-data")]
    #[setting(beside = "address: \"unix:/run/tollgate.sock\"")]
    pub(in crate::config) group: Option<String>,
    /// Redirects every request to the same URL with https, with status 308. A request that a trusted proxy sends with
    /// `X-Forwarded-Proto: https` is served instead.
    #[setting(
        either(word("https"), mapping(HttpsRedirectSettings)),
        unset = "no redirect",
        example = "https"
    )]
    #[setting(see = ["listeners[].tls"])]
    pub(in crate::config) redirect: Option<Cursor<'t>>,
    /// Whether connections begin with a header of the PROXY protocol, version 1 or 2. Connections that do not come from
    /// `trusted_proxies` are then closed.
    #[setting(boolean, default = "false", example = "true", see = ["trusted_proxies"])]
    pub(in crate::config) proxy_protocol: Option<Cursor<'t>>,
    /// Serves clients over TLS.
    #[setting(mapping(ListenerTlsSettings), unset = "clear text")]
    #[setting(example = "{ certificates: [{ cert: api.pem, key: api.key }] }")]
    pub(in crate::config) tls: Option<Cursor<'t>>,
    /// Whether clients may use HTTP/2: over TLS, negotiated by ALPN; in clear text, with prior knowledge.
    #[setting(default = "true", example = "false", see = ["client_limits.h2_streams"])]
    pub(in crate::config) http2: bool,
    /// The longest request body on this listener; a longer one gets 413. `0` allows any length.
    #[setting(size = "0..=1024TiB", parse = body_size, unset = "`client_limits.max_body`", example = "10MiB")]
    #[setting(see = ["routes[].max_body", "client_limits.max_body"])]
    pub(in crate::config) max_body: Option<usize>,
    /// What the listener does: `proxying` forwards requests to upstreams. `decisions` answers another proxy that asks about
    /// its requests and forwards them itself: nginx, Caddy, Traefik or Envoy. Only `trusted_proxies` may ask.
    #[setting(default = "proxying", example = "decisions", see = ["listeners[].front", "trusted_proxies"])]
    pub(in crate::config) serves: Serves,
    /// The proxy that asks by HTTP. It decides in which headers a question describes a request; the other ones are dropped.
    #[setting(unset = "the proxy asks by gRPC", example = "traefik", beside = "serves: decisions")]
    pub(in crate::config) front: Option<Front>,
    /// What Envoy writes before the path of each question by HTTP: as `path_prefix` of its `http_service`, with or without
    /// a slash at the end. Requests with other paths are gRPC.
    #[setting(text = PLAIN_PATH, parse = question_prefix, unset = "Envoy asks by gRPC", example = "/decide")]
    #[setting(beside = "serves: decisions, front: envoy")]
    pub(in crate::config) path_prefix: Option<String>,
}

/// The redirect to https.
#[derive(Settings)]
#[settings(written, page = "connections.md", sample = "to: https")]
pub(in crate::config) struct HttpsRedirectSettings {
    /// The scheme that clients are sent to.
    #[setting(word("https"), parse = https, missing = "write `to: https`", example = "https")]
    pub(in crate::config) to: (),
    /// The port at which clients reach the https listener.
    #[setting(count = "1..=65535", default = "443", example = "8443")]
    pub(in crate::config) port: u16,
    /// Sends `Strict-Transport-Security` on all TLS listeners that have no `hsts` of their own.
    #[setting(of(Hsts), read = Hsts::of, unset = "no such header", example = "365d")]
    #[setting(see = ["listeners[].tls.hsts"])]
    pub(in crate::config) hsts: Option<Hsts>,
}

pub(in crate::config) fn https(text: &str) -> Result<(), Invalid> {
    choice(&[("https", ())])(text)
}

/// The admin port.
#[derive(Settings)]
#[settings(written, page = "admin.md", foreign = "admin")]
pub(in crate::config) struct AdminSettings<'t> {
    /// The address to listen on.
    #[setting(text = ADDRESS_AND_PORT, default = "127.0.0.1:9900", example = "0.0.0.0:9900")]
    #[setting(beside = "token: \"9c1185a5c5e9fc54612808977ee8f548b2258d31\"", see = ["admin.token"])]
    pub(in crate::config) address: Option<Cursor<'t>>,
    /// The bearer token that every request to the admin port needs. It is required unless the address is loopback. An
    /// empty one is an error, unless it is the fallback of `${NAME:-}`.
    #[setting(text = BEARER, unset = "no token is needed", example = "\"${TOLLGATE_ADMIN_TOKEN:-}\"")]
    pub(in crate::config) token: Option<Cursor<'t>>,
}

/// TLS to clients.
#[derive(Settings)]
#[settings(written, page = "tls.md", sample = "certificates: [{ cert: api.pem, key: api.key }]")]
#[settings(foreign = "listeners[].tls", rules(With("client_auth", "client_ca")))]
pub(in crate::config) struct ListenerTlsSettings<'t> {
    /// The certificates. Tollgate chooses one by the name that the client asks for (SNI); the first serves all other
    /// names.
    #[setting(list(mapping(CertificateFiles), Some), example = "[{ cert: api.pem, key: api.key }]")]
    #[setting(missing = "such as `certificates: [{ cert: api.pem, key: api.key }]`")]
    pub(in crate::config) certificates: Option<Cursor<'t>>,
    /// The authorities that sign the certificates of clients, in PEM. With this setting, Tollgate asks clients for a
    /// certificate.
    #[setting(file, unset = "clients are not asked for a certificate", example = "clients.pem")]
    #[setting(see = ["listeners[].tls.client_auth", "policies.*.key"])]
    pub(in crate::config) client_ca: Option<Cursor<'t>>,
    /// Whether a client must have a certificate. If it must, a client without one gets 403; `{ required: 401 }` sends
    /// another status.
    #[setting(either(word("required", "optional"), mapping(ClientAuthSettings)), default = "required")]
    #[setting(example = "optional", beside = "client_ca: clients.pem")]
    pub(in crate::config) client_auth: Option<Cursor<'t>>,
    /// The oldest version of TLS that clients may use.
    #[setting(of(TlsVersion), default = "\"1.2\"", example = "\"1.3\"")]
    pub(in crate::config) min_version: TlsVersion,
    /// Sends `Strict-Transport-Security`, so that browsers use only https.
    #[setting(of(Hsts), read = Hsts::of)]
    #[setting(unset = "the `hsts` of a listener that redirects here, or no such header", example = "365d")]
    #[setting(see = ["listeners[].redirect.hsts"])]
    pub(in crate::config) hsts: Option<Hsts>,
}

/// A client must have a certificate, and gets this status without one.
#[derive(Settings)]
#[settings(written, page = "tls.md")]
pub(in crate::config) struct ClientAuthSettings {
    /// The status that a client without a certificate gets.
    #[setting(missing = "the status of the reply to a client without a certificate")]
    #[setting(count = "400..=499", parse = refusal, example = "400")]
    pub(in crate::config) required: u16,
}

/// What stands before the path of a question. The path that follows has a slash of its own.
fn question_prefix(text: &str) -> Result<String, Invalid> {
    match text.starts_with('/') && !text.contains(['?', '#', ' ']) {
        true => Ok(text.to_owned()),
        false => Err(Invalid::new("is not a path").expected("such as /decide")),
    }
}

pub(in crate::config) fn refusal(text: &str) -> Result<u16, Invalid> {
    count_in(400..=499)(text).map_err(|invalid| invalid.expected("a status from 400 to 499"))
}
