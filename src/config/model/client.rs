//! How clients are identified, their limits, and the fields that clients and upstreams receive.

use std::time::Duration;

use http::HeaderName;
use ipnet::IpNet;
use serde::{Serialize, Serializer};

use super::serialize;

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

/// How the client's address is found behind trusted proxies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClientAddress {
    pub header: AddressHeader,
    /// How much of an IPv6 address identifies a client, 1 to 128.
    pub ipv6_prefix: u8,
}

/// The field in which trusted proxies send the client's address.
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

/// The limits of client connections and of request heads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClientLimits {
    /// Of a request's head, in bytes, 1 KiB to 1 MiB.
    #[serde(serialize_with = "serialize::size")]
    pub header_size: usize,
    /// Header fields of a request, 1 to 10,000.
    pub headers: usize,
    #[serde(serialize_with = "serialize::duration")]
    pub header_timeout: Duration,
    #[serde(serialize_with = "serialize::duration")]
    pub idle_timeout: Duration,
    /// Connections of the whole process, at least 1.
    pub connections: usize,
    /// Of these, connections of one client address. 0: any number.
    pub connections_per_address: usize,
    pub min_rate: MinRate,
    /// Requests of one HTTP/2 connection at a time, 1 to 10,000.
    pub h2_streams: u32,
    /// Bytes of a request's body, where neither its route nor its listener has a limit of its own. 0: any number.
    #[serde(serialize_with = "serialize::size")]
    pub max_body: usize,
}

/// The rate at which a client has to send request bodies, and to take responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MinRate {
    /// Bytes a second; 0: any rate will do.
    pub bytes: u64,
    /// How far a client may fall behind the rate.
    #[serde(serialize_with = "serialize::duration")]
    pub grace: Duration,
}

/// Fields that Tollgate adds to every response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplyHeaders {
    pub ratelimit: RateLimitFields,
    /// The pseudonym in `Via` (RFC 9110, 7.6.3).
    pub via: String,
}

/// Which fields show clients the state of their limits.
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

/// Which fields show the upstream the client's verified certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForwardClientCertificate {
    Off,
    /// X-Forwarded-Client-Cert as Envoy writes it: hash, subject, URIs and DNS names.
    Xfcc,
    /// The same with the certificate itself.
    XfccCert,
    /// Client-Cert (RFC 9440).
    ClientCert,
    /// Client-Cert and Client-Cert-Chain (RFC 9440).
    ClientCertChain,
}

/// Which fields show the upstream who the client is.
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
