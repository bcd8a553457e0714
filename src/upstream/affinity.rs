//! By what the host for a request is chosen: what ties it to one, and what it has tried.

use std::{fmt, net::SocketAddr};

use super::rendezvous::hash;
use crate::config::model::Endpoint;

/// What ties a request to one host. The default ties it to none.
#[derive(Debug, Clone, Copy, Default)]
pub struct Affinity {
    /// Where requests are balanced by hash, what the request is known by.
    pub key: KeyHash,
    /// The host that served the client before, as its cookie says.
    pub host: Option<HostId>,
}

/// The hash of a request's key. Requests with the same key have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyHash(pub(super) u64);

impl KeyHash {
    /// That of `key`.
    pub fn new(key: &str) -> Self {
        Self(hash(key.as_bytes()))
    }
}

/// What a host is called in cookies: 16 hexadecimal digits, which are the same in all instances and do not show its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostId(pub(super) u64);

impl HostId {
    /// That of an endpoint whose URL has an address.
    pub fn of_endpoint(endpoint: &Endpoint) -> Self {
        Self::new(endpoint, None)
    }

    /// That of an endpoint; of one of its addresses, where its name has been resolved.
    pub(super) fn new(endpoint: &Endpoint, address: Option<SocketAddr>) -> Self {
        let url = endpoint.base_url();
        Self(match address {
            None => hash(url.as_bytes()),
            Some(address) => hash(format!("{url} {address}").as_bytes()),
        })
    }

    /// Reads what a cookie says.
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
