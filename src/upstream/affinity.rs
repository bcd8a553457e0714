//! The tie of a request to one host: by the hash of its key, or by a cookie.

use std::{fmt, net::SocketAddr};

use super::rendezvous::hash;
use crate::config::model::Endpoint;

/// The tie of a request to one host. The default is no tie.
#[derive(Debug, Clone, Copy, Default)]
pub struct Affinity {
    /// The hash of the request's key, where requests are balanced by hash.
    pub key: AffinityHash,
    /// The host that served the client before, by the client's cookie.
    pub host: Option<HostId>,
}

/// The hash of a request's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AffinityHash(pub(super) u64);

impl AffinityHash {
    pub fn new(key: &str) -> Self {
        Self(hash(key.as_bytes()))
    }
}

/// The name of a host in cookies: 16 hexadecimal digits. It is the same in all instances, and does not show the
/// address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostId(pub(super) u64);

impl HostId {
    /// For an endpoint with an address in its URL.
    pub fn of_endpoint(endpoint: &Endpoint) -> Self {
        Self::new(endpoint, None)
    }

    /// For an endpoint, or for one of its addresses if its name was resolved.
    pub(super) fn new(endpoint: &Endpoint, address: Option<SocketAddr>) -> Self {
        let url = endpoint.base_url();
        Self(match address {
            None => hash(url.as_bytes()),
            Some(address) => hash(format!("{url} {address}").as_bytes()),
        })
    }

    /// Parses the value of a cookie.
    pub fn read(text: &[u8]) -> Option<Self> {
        let is_hex = text.len() == 16 && text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let text = str::from_utf8(text).ok().filter(|_| is_hex)?;
        u64::from_str_radix(text, 16).ok().map(Self)
    }
}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_names_the_host_that_wrote_it_and_nothing_else_does() {
        let endpoint = |authority: &str| Endpoint {
            url: format!("http://{authority}").parse().unwrap(),
            authority: authority.parse().unwrap(),
            port: 3000,
            weight: 1,
            drain: false,
        };
        let id = HostId::of_endpoint(&endpoint("10.0.0.1:3000"));
        assert_eq!(HostId::read(id.to_string().as_bytes()), Some(id));
        assert_eq!(HostId::read(HostId(7).to_string().as_bytes()), Some(HostId(7)));
        let address = Some("10.0.0.1:3000".parse().unwrap());
        let app = endpoint("app:3000");
        assert_ne!(HostId::new(&app, address), HostId::new(&app, None));
        for text in ["", "7", "0000000000000g00", "+000000000000007", "00000000000000007", "000000000000000A"]
        {
            assert_eq!(HostId::read(text.as_bytes()), None, "{text}");
        }
    }
}
