//! Extractors: the query, the path, the body and the connection of a request, as handlers take them. An invalid one is
//! refused with a problem.

use std::{convert::Infallible, net::IpAddr, time::Duration};

use axum::{
    body::Bytes,
    extract::{self, FromRequest, FromRequestParts, Path, Request, rejection::QueryRejection},
};
use http::{StatusCode, header::IF_MATCH, request::Parts};
use http_body_util::{BodyExt, Limited};
use ipnet::IpNet;
use serde::{Deserialize, de::DeserializeOwned};
use tokio::{sync::watch, time};

use super::problem::Problem;
use crate::abuse;

/// Longest body in most requests, in bytes.
const MAX_BODY: usize = 64 << 10;
/// Longest reason, in characters.
const MAX_REASON: usize = 256;
/// Time for a whole body to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The query as `T`, which should deny unknown fields.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query: Result<extract::Query<T>, QueryRejection> =
            extract::Query::from_request_parts(parts, state).await;
        query
            .map(|extract::Query(params)| Self(params))
            .map_err(|rejection| Problem::bad_request(rejection.body_text()))
    }
}

/// The query of a path without parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoParams {}

/// The client in the path: any of its addresses, or the prefix that identifies it.
pub(super) struct ClientParam(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for ClientParam {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(text)| Self(text)).map_err(|rejection| Problem::bad_request(rejection.body_text()))
    }
}

impl ClientParam {
    /// Parses it. An IPv6 address becomes the prefix that identifies its client.
    pub(super) fn client(&self, ipv6_prefix: u8) -> Result<IpNet, Problem> {
        if let Ok(address) = self.0.parse::<IpAddr>() {
            return Ok(abuse::masked(address, ipv6_prefix));
        }
        let net = abuse::parse(&self.0).filter(|&net| abuse::masked(net.addr(), ipv6_prefix) == net);
        net.ok_or_else(|| {
            let what = format!("not a client's address: {}", self.0.escape_debug());
            Problem::bad_request(format!("{what}; write 203.0.113.7, or 2001:db8::/{ipv6_prefix}"))
        })
    }
}

/// The user in the path, by name or as records name it.
pub(super) struct UserParam(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for UserParam {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(text)| Self(text)).map_err(|rejection| Problem::bad_request(rejection.body_text()))
    }
}

/// The ID of the API key in the path.
pub(super) struct KeyParam(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for KeyParam {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(text)| Self(text)).map_err(|rejection| Problem::bad_request(rejection.body_text()))
    }
}

/// The ID of the incident in the path.
pub(super) struct IncidentParam(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for IncidentParam {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(text)| Self(text)).map_err(|rejection| Problem::bad_request(rejection.body_text()))
    }
}

/// The customer in the path, by name.
pub(super) struct CustomerParam(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for CustomerParam {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(text)| Self(text)).map_err(|rejection| Problem::bad_request(rejection.body_text()))
    }
}

/// The versions of which the resource must have one, by `If-Match` (RFC 9110, 13.1.1). `None`: any.
pub(super) struct IfMatch(pub(super) Option<Vec<String>>);

impl<S: Send + Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let lines = parts.headers.get_all(IF_MATCH).iter();
        let tags: Vec<_> = lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b',')).collect();
        if tags.iter().all(|tag| tag.trim_ascii() == b"*") {
            return Ok(Self(None));
        }
        let version = |tag: &&[u8]| {
            let tag = tag.trim_ascii();
            // A weak one equals none.
            let quoted = tag.strip_prefix(b"W/").unwrap_or(tag);
            let opaque = quoted.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
            let version = opaque.map(String::from_utf8_lossy);
            version.map(|version| if quoted == tag { version.into_owned() } else { String::new() })
        };
        let versions: Option<Vec<String>> = tags.iter().map(version).collect();
        let malformed =
            || Problem::bad_request("If-Match: write the version in double quotes, as ETag has it, or *");
        versions.map(|versions| Self(Some(versions))).ok_or_else(malformed)
    }
}

/// The policy in the path, by name.
pub(super) struct PolicyParam(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for PolicyParam {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(text)| Self(text)).map_err(|rejection| Problem::bad_request(rejection.body_text()))
    }
}

/// The body as `T`, which should deny unknown fields. It has at most `MAX` bytes.
pub(super) struct JsonBody<T, const MAX: usize = MAX_BODY>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync, const MAX: usize> FromRequest<S> for JsonBody<T, MAX> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        parse_json(&read_body(request, MAX).await?).map(Self)
    }
}

/// Reads the whole body. `max`: its longest length, in bytes.
pub(super) async fn read_body(request: Request, max: usize) -> Result<Bytes, Problem> {
    let body = time::timeout(BODY_TIMEOUT, Limited::new(request.into_body(), max).collect()).await;
    let too_slow = |_| Problem::new(StatusCode::REQUEST_TIMEOUT, "the body was sent too slowly");
    let too_long = |_| Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is incomplete or too long");
    Ok(body.map_err(too_slow)?.map_err(too_long)?.to_bytes())
}

/// Parses a body.
pub(super) fn parse_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    // serde would read the items of a list as fields, in order.
    if body.trim_ascii_start().starts_with(b"[") {
        return Err(Problem::bad_request("can't parse the body: it is a list, not an object"));
    }
    serde_json::from_slice(body)
        .map_err(|error| Problem::bad_request(format!("can't parse the body: {error}")))
}

/// Checks that a reason is one line of at most [`MAX_REASON`] characters.
pub(super) fn checked_reason(reason: &str) -> Result<(), Problem> {
    if reason.chars().any(char::is_control) || reason.chars().count() > MAX_REASON {
        let detail = format!("a reason must have at most {MAX_REASON} characters and no control characters");
        return Err(Problem::bad_request(detail));
    }
    Ok(())
}

/// The client's address: its end of the connection, or what a proxy of `trusted_proxies` says.
#[derive(Debug, Clone, Copy)]
pub(super) struct RemoteAddress(pub(super) IpAddr);

/// Ends an endless response, such as an event stream, cleanly.
#[derive(Debug, Clone)]
pub(super) struct ShutdownSignal(pub(super) watch::Receiver<bool>);

impl ShutdownSignal {
    /// Completes once the connection or the process has to end.
    pub(super) async fn ended(&mut self) {
        // An error means that the sender is gone, so the connection has ended.
        let _gone = self.0.wait_for(|&ended| ended).await;
    }
}

/// The operator, as the audit log names it: `operator at 127.0.0.1`.
#[derive(Debug, Clone)]
pub(super) struct Operator(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Operator {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let peer = parts.extensions.get::<RemoteAddress>();
        Ok(Self(peer.map_or_else(
            || "operator".to_owned(),
            |RemoteAddress(address)| format!("operator at {address}"),
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_named_by_address_or_as_they_are_shown() {
        let client = |text: &str| ClientParam(text.to_owned()).client(64).map(abuse::shown);
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
