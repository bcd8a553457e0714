//! How clients are identified, what they may ask of the proxy, and what they and upstreams are told.

use std::time::Duration;

use http::HeaderName;
use serde::Serialize;

use super::serialize;

/// How the client's address is told behind trusted proxies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClientAddress {
    pub header: AddressHeader,
    /// How much of an IPv6 address identifies a client, 1 to 128.
    pub ipv6_prefix: u8,
}

/// The field in which trusted proxies tell the client's address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressHeader {
    XForwardedFor,
    /// RFC 7239.
    Forwarded,
    /// A field that holds one address, such as `cf-connecting-ip`.
    #[serde(untagged, serialize_with = "serialize::displayed")]
    Single(HeaderName),
}

/// What a client may ask of the proxy itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClientLimits {
    /// Bytes of a request's head.
    #[serde(serialize_with = "serialize::size")]
    pub header_size: usize,
    /// Header fields of a request.
    pub headers: usize,
    #[serde(serialize_with = "serialize::duration")]
    pub header_timeout: Duration,
    #[serde(serialize_with = "serialize::duration")]
    pub idle_timeout: Duration,
    /// Connections of the process.
    pub connections: usize,
}

/// What clients are told in every answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplyHeaders {
    pub ratelimit: RateLimitFields,
    /// The pseudonym in `Via` (RFC 9110, 7.6.3).
    pub via: String,
}

/// Which fields tell clients how their limits stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RateLimitFields {
    /// draft-ietf-httpapi-ratelimit-headers-11.
    Draft,
    /// X-RateLimit-Limit, -Remaining, -Reset.
    Legacy,
    Both,
    Off,
}

/// Which fields tell the upstream about the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Forwarded {
    /// X-Forwarded-For, -Proto, -Host.
    XForwarded,
    /// RFC 7239.
    Forwarded,
    Both,
    Off,
}
