//! What a request names in its path and in its query: read, or refused as a problem.

use std::net::IpAddr;

use axum::extract::{FromRequestParts, Path, Query, rejection::QueryRejection};
use http::request::Parts;
use ipnet::IpNet;
use serde::{Deserialize, de::DeserializeOwned};

use super::problem::Problem;
use crate::abuse;

/// The query as `T`, which should deny unknown fields.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query: Result<Query<T>, QueryRejection> = Query::from_request_parts(parts, state).await;
        query
            .map(|Query(params)| Self(params))
            .map_err(|rejection| Problem::bad_request(rejection.body_text()))
    }
}

/// For pages without parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// The client that the path names, by any of its addresses or as it is shown.
pub(super) struct Address(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Address {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(text)| Self(text)).map_err(|rejection| Problem::bad_request(rejection.body_text()))
    }
}

impl Address {
    /// Reads it; an IPv6 address stands for the prefix that identifies a client.
    pub(super) fn client(&self, ipv6_prefix: u8) -> Result<IpNet, Problem> {
        if let Ok(address) = self.0.parse::<IpAddr>() {
            return Ok(abuse::masked(address, ipv6_prefix));
        }
        let net = abuse::parse(&self.0).filter(|&net| abuse::masked(net.addr(), ipv6_prefix) == net);
        net.ok_or_else(|| {
            let what = format!("not the address of a client: {}", self.0.escape_debug());
            Problem::bad_request(format!("{what}; write 203.0.113.7, or 2001:db8::/{ipv6_prefix}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_named_by_address_or_as_they_are_shown() {
        let client = |text: &str| Address(text.to_owned()).client(64).map(abuse::shown);
        assert_eq!(client("203.0.113.7").unwrap(), "203.0.113.7");
        assert_eq!(client("203.0.113.7/32").unwrap(), "203.0.113.7");
        assert_eq!(client("::ffff:203.0.113.7").unwrap(), "203.0.113.7");
        assert_eq!(client("2001:db8::1").unwrap(), "2001:db8::/64");
        assert_eq!(client("2001:db8::/64").unwrap(), "2001:db8::/64");
        for malformed in ["203.0.113", "203.0.113.0/24", "2001:db8::/48", "", "localhost"] {
            assert!(client(malformed).is_err(), "{malformed}");
        }
    }
}
