//! A question about a request, and its explanation.

use std::{net::IpAddr, sync::Arc};

use bytes::Bytes;
use compact_str::CompactString;
use http::{StatusCode, request};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{abuse::bans::Ban, tls::TlsIdentity};

/// Shown in place of a secret.
pub(super) const MASK: &str = "***";

/// The request to explain.
pub struct ExplainedRequest {
    pub request: request::Parts,
    /// Its body. `None`: it is not known.
    pub body: Option<Bytes>,
    /// The peer address of its connection.
    pub peer: IpAddr,
    /// Whether it arrives over HTTPS. `None`: either way.
    pub is_https: Option<bool>,
    /// The certificate that the client would have proved to hold.
    pub certificate: Option<TlsIdentity>,
    /// The index of the listener on which it comes in. `None`: on any.
    pub listener: Option<usize>,
}

/// The explained outcome of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Explanation {
    /// `None`: the request names its host.
    pub assumed_host: Option<AssumedHost>,
    /// Or the one where another proxy asks for decisions. `None`: the question names the listener, or the route is the same on
    /// all of them.
    pub assumed_listener: Option<AssumedListener>,
    /// The client's address in the form that limits and records use, and its source.
    pub address: (CompactString, String),
    /// The user in the form that keys use, and the source that names it; or why none does.
    pub user: (Option<CompactString>, String),
    /// Listeners that reply to the request themselves, if they receive it. The rest is about the others, unless the
    /// question names the listener.
    pub listeners: Vec<ExplainedListener>,
    /// `None`: the request's target is malformed.
    pub route: Option<ExplainedRoute>,
    pub upstream: Option<String>,
    /// `None`: any of the upstream's endpoints may get the request.
    pub endpoint: Option<ExplainedEndpoint>,
    /// Whether pages of its origin may read the response. `None`: the route has no `cors`, or no page has sent the
    /// request.
    pub cors: Option<String>,
    /// The route's reply; `None`: it has an upstream.
    pub reply: Option<ExplainedReply>,
    /// The path and the query that the upstream gets. `None`: the client's.
    pub rewritten_path: Option<String>,
    pub request_headers: Vec<HeaderChange>,
    pub response_headers: Vec<HeaderChange>,
    /// `None`: the body may have any length.
    pub body_limit: Option<ExplainedBodyLimit>,
    pub verdict: ExplainedVerdict,
    /// The status of the proxy's own reply; `None`: the request is forwarded.
    pub status: Option<StatusCode>,
    pub because: String,
    /// In the order of the route's policies. Included even if a ban denies the request, although a real one is not
    /// checked then.
    pub checks: Vec<ExplainedCheck>,
    /// The bans that match the client, whether they deny the request or not.
    pub bans: Vec<Arc<Ban>>,
}

/// A change of a header, of these names and values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderChange {
    /// A name, or the beginning of names and `*`.
    Remove(String),
    Set(String, String),
    Add(String, String),
}

/// The proxy's verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExplainedVerdict {
    #[default]
    Allowed,
    Denied,
    /// The client is banned.
    Banned,
    /// The store can't be asked, and a policy says `on_store_error: deny`.
    Undecided,
    /// `deny` or `allow` refuses its address.
    Forbidden,
    /// It lacks the credential that its route requires.
    Unauthorized,
    /// No route matches, the request is malformed, or its body is too long.
    Refused,
}

/// One check, and its verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedCheck {
    pub policy: String,
    /// The identifier; where there is none, the keys as in proxy.yaml.
    pub key: String,
    pub algorithm: &'static str,
    pub cost: u64,
    pub limit: u64,
    /// As clients see it: including this request, if it is admitted. `None`: the store was not asked.
    pub used: Option<u64>,
    pub remaining: Option<u64>,
    /// Microseconds.
    pub retry_after: Option<i64>,
    pub verdict: CheckVerdict,
    pub is_shadow: bool,
    /// Further explanations.
    pub because: String,
    /// The policy's index in the configuration.
    pub(super) index: usize,
}

/// The verdict of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckVerdict {
    Allowed,
    Denied,
    Exempt,
    /// The request has nothing to check.
    Skipped,
    /// The store can't be asked.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AssumedHost {
    #[schema(example = "api.example.com")]
    pub host: String,
    pub because: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AssumedListener {
    /// Its name, or else its addresses.
    #[schema(example = "internal")]
    pub listener: String,
    pub because: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedRoute {
    /// `null` if no route matches.
    pub name: Option<String>,
    pub because: String,
    /// Earlier routes, and why each did not match: all, or of many the first whose paths match.
    pub passed_over: Vec<PassedOver>,
    /// Number of other earlier routes that did not match.
    #[serde(default)]
    pub others: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PassedOver {
    pub name: String,
    pub because: String,
}

/// The response of a route without an upstream, or of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedReply {
    pub status: u16,
    /// The target of a redirect.
    #[serde(default)]
    pub location: Option<String>,
}

/// A listener that responds by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedListener {
    /// Its addresses.
    #[schema(example = "0.0.0.0:80")]
    pub listener: String,
    pub reply: ExplainedReply,
    #[schema(example = "it redirects to HTTPS")]
    pub because: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedEndpoint {
    #[schema(example = "http://10.0.0.5:3000")]
    pub url: String,
    /// The reason for its selection.
    #[schema(example = "the hash of ip:203.0.113.7, while it is healthy")]
    pub because: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedBodyLimit {
    /// In bytes; `null`: it depends on the listener.
    pub max: Option<u64>,
    /// The setting that it comes from.
    #[schema(example = "max_body of the route")]
    pub because: String,
}
