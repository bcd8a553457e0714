//! How clients are identified, their limits, and the fields that clients and upstreams receive.

use std::time::Duration;

use http::HeaderName;
use ipnet::IpNet;
use serde::{Serialize, Serializer};
use tollgate_derive::{Settings, Word};

use crate::config::{
    identity::settings::IdentitySources,
    reader::Cursor,
    settings::{Kind, ReadOver, Value, text},
    value::{Invalid, body_size, network, pseudonym, request_id_field_name, unreserved_field_name},
    written::serialize,
};

/// A peer whose forwarding fields and PROXY headers count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrustedProxy {
    Network(IpNet),
    /// All processes that connect by a Unix socket.
    Unix,
}

impl Serialize for TrustedProxy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Network(network) => serializer.collect_str(network),
            Self::Unix => serializer.serialize_str("unix"),
        }
    }
}

/// The client's address, as limits, bans and logs use it.
#[derive(Debug, Clone, PartialEq, Eq, Settings)]
#[settings(page = "identity.md")]
pub struct ClientAddress {
    /// The header in which trusted proxies send the client's address: `x-forwarded-for`, `forwarded`, or a header with a
    /// single address, such as `cf-connecting-ip`. From other peers it is ignored.
    #[setting(default = "x-forwarded-for", example = "cf-connecting-ip", see = ["trusted_proxies"])]
    pub header: AddressHeader,
    /// How many bits of an IPv6 address identify a client. A provider usually gives a customer a whole /64.
    #[setting(count = "1..=128", default = "64", example = "56")]
    #[setting(see = ["policies.*.key", "client_limits.connections_per_address"])]
    pub ipv6_prefix: u8,
}

/// The field in which trusted proxies send the client's address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressHeader {
    XForwardedFor,
    /// RFC 7239.
    Forwarded,
    /// A field with a single address, such as `cf-connecting-ip`.
    #[serde(untagged, serialize_with = "serialize::displayed")]
    Single(HeaderName),
}

impl Value for AddressHeader {
    const KIND: Kind = Kind::Text(&text::FIELD);

    fn parse(text: &str) -> Result<Self, Invalid> {
        let name = unreserved_field_name(text)?;
        Ok(match name.as_str() {
            "x-forwarded-for" => Self::XForwardedFor,
            "forwarded" => Self::Forwarded,
            _ => Self::Single(name),
        })
    }
}

/// Limits on connections and requests, for all routes.
#[derive(Debug, Clone, PartialEq, Eq, Settings)]
#[settings(page = "connections.md", foreign = "client_limits")]
pub struct ClientLimits {
    /// The longest head of a request: its first line and its headers. A longer one gets 431.
    #[setting(size = "1KiB..=1MiB", default = "32KiB", example = "64KiB")]
    pub header_size: usize,
    /// The most headers of a request. A request with more gets 431.
    #[setting(count = "1..=10000", default = "100", example = "200")]
    pub headers: usize,
    /// How long a client may take for the TLS handshake, and for the head of a request. If it takes longer, its
    /// connection is closed; it gets 408 if it has begun a request.
    #[setting(duration = "1ms..=366d", default = "10s", example = "5s")]
    pub header_timeout: Duration,
    /// How long a connection may be idle between two requests, and how long a client may pause while it sends a body.
    #[setting(duration = "1ms..=366d", default = "75s", example = "120s")]
    pub idle_timeout: Duration,
    /// The most client connections of the process. If there are more, an idle one is closed to accept a new one; if none
    /// is idle, the new one is refused.
    #[setting(count = "1..=10000000", default = "10000", example = "50000")]
    pub connections: usize,
    /// The most connections of one client address. `0` sets no limit. Connections of `trusted_proxies` do not count.
    #[setting(count = "0..=10000000", default = "1000", example = "100")]
    #[setting(see = ["client_address.ipv6_prefix", "trusted_proxies"])]
    pub connections_per_address: usize,
    /// The slowest rate at which a client may send a body or take a response.
    #[setting(mapping, unset = "240 bytes a second, after 20s", example = "{ bytes: 1KiB, grace: 10s }")]
    pub min_rate: MinRate,
    /// The most concurrent requests on one HTTP/2 connection.
    #[setting(count = "1..=10000", default = "100", example = "250", see = ["listeners[].http2"])]
    pub h2_streams: u32,
    /// The longest request body; a longer one gets 413. `0` allows any length. `max_body` of a route wins over that of a
    /// listener, and both win over this one.
    #[setting(size = "0..=1024TiB", parse = body_size, default = "0", example = "10MiB")]
    #[setting(see = ["routes[].max_body", "listeners[].max_body"])]
    pub max_body: usize,
}

/// A client that stays below this rate gets 408, or its connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Settings)]
#[settings(page = "slow-clients.md")]
pub struct MinRate {
    /// Bytes a second. `0` allows any rate.
    #[setting(size = "0..=1GiB", default = "240", example = "1KiB", shown = serialize::plain)]
    pub bytes: u64,
    /// How far behind the rate a client may fall, as the time that the missing bytes take at this rate.
    #[setting(duration = "1ms..=366d", default = "20s", example = "10s")]
    pub grace: Duration,
}

/// Headers in the responses to clients.
#[derive(Debug, Clone, PartialEq, Eq, Settings)]
#[settings(page = "policies.md#change-the-429-response")]
pub struct ReplyHeaders {
    /// The headers that tell clients how much of their limit is left: `RateLimit` and `RateLimit-Policy`
    /// (draft-ietf-httpapi-ratelimit-headers), or `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    #[setting(default = "draft", example = "both")]
    pub ratelimit: RateLimitFields,
    /// The name that Tollgate uses for itself in the header `Via`.
    #[setting(text = TOKEN, parse = pseudonym, default = "tollgate", example = "edge-1")]
    pub via: String,
}

/// The headers that show clients the state of their limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum RateLimitFields {
    /// draft-ietf-httpapi-ratelimit-headers-11.
    Draft,
    /// X-RateLimit-Limit, -Remaining, -Reset.
    Legacy,
    Both,
    Off,
}

/// The headers that show upstreams the client's verified certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum ForwardClientCertificate {
    Off,
    /// X-Forwarded-Client-Cert as Envoy writes it: hash, subject, URIs and DNS names.
    Xfcc,
    /// The same with the certificate itself.
    #[word("xfcc-cert")]
    XfccCert,
    /// Client-Cert (RFC 9440).
    #[word("client-cert")]
    ClientCert,
    /// Client-Cert and Client-Cert-Chain (RFC 9440).
    #[word("client-cert-chain")]
    ClientCertChain,
}

/// The headers that show upstreams the client's address, scheme and host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum Forwarded {
    /// X-Forwarded-For, -Proto, -Host.
    #[word("x-forwarded")]
    XForwarded,
    /// RFC 7239.
    Forwarded,
    Both,
    Off,
}

pub(in crate::config) fn trusted_proxies(value: Option<Cursor<'_>>) -> Vec<TrustedProxy> {
    let trusted = |item: Cursor<'_>| {
        let proxy = item.parse(trusted_proxy)?;
        if matches!(proxy, TrustedProxy::Network(network) if network.prefix_len() == 0) {
            item.warn(
                "every client is a trusted proxy: each can write the address that its limits are counted by",
                "list the addresses of your proxies alone; see docs/identity.md".to_owned(),
            );
        }
        Some(proxy)
    };
    value.map(|list| list.unique_items(trusted)).unwrap_or_default()
}

fn trusted_proxy(text: &str) -> Result<TrustedProxy, Invalid> {
    match text {
        "unix" => Ok(TrustedProxy::Unix),
        _ => network(text).map(TrustedProxy::Network),
    }
}

pub(in crate::config) fn trusted_headers(value: Option<Cursor<'_>>) -> Vec<HeaderName> {
    value.map(|list| list.unique_items(|item| item.parse(unreserved_field_name))).unwrap_or_default()
}

pub(in crate::config) fn client_address(
    value: Option<Cursor<'_>>,
    has_trusted_proxies: bool,
) -> ClientAddress {
    let header = value.filter(|_| !has_trusted_proxies).and_then(|value| value.entry("header"));
    // An invalid value is reported below.
    if let Some(header) =
        header.filter(|header| header.again(|| header.parse(AddressHeader::parse)).is_some())
    {
        let help =
            "add the addresses of what sets it to `trusted_proxies`: a load balancer, or a CDN".to_owned();
        header.warn("no trusted_proxies are configured, so this header is never read", help);
    }
    ClientAddress::or(value, ClientAddress::default())
}

pub(in crate::config) fn request_id(value: Option<Cursor<'_>>) -> HeaderName {
    value
        .and_then(|value| value.parse(request_id_field_name))
        .unwrap_or(HeaderName::from_static("x-request-id"))
}

pub(in crate::config) fn forward_client_certificate(
    value: Option<Cursor<'_>>,
    identity: IdentitySources,
) -> ForwardClientCertificate {
    let form = value.and_then(|value| Some((value, value.parse(ForwardClientCertificate::parse)?)));
    let Some((value, form)) = form else { return ForwardClientCertificate::Off };
    if form != ForwardClientCertificate::Off {
        identity.warn_without_client_certificates(value);
    }
    form
}
