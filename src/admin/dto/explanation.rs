//! The predicted outcome of a request.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Ban, schema};
pub use crate::proxy::explain::{
    AssumedHost, AssumedListener, ExplainedBodyLimit, ExplainedEndpoint, ExplainedListener, ExplainedReply,
    ExplainedRoute, PassedOver,
};

/// The body of `POST /v1/explain`: the request to explain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainedRequest {
    #[serde(default = "get")]
    #[schema(value_type = schema::Method)]
    pub method: String,
    /// A URL, or a path. A path without `host` in `headers` gets the host of the first route that could match it.
    #[schema(example = "https://api.example.com/login", min_length = 1)]
    pub url: String,
    #[serde(default)]
    pub headers: std::collections::BTreeMap<String, HeaderValues>,
    /// An API key, where requests have theirs: the first place of `api_keys.from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "tgk_TAcQlW8X20_K2vAktPxZGtneSarvp3NG6A8q3sw6g7x_0VLlnB")]
    pub api_key: Option<String>,
    /// The source address of the connection; 127.0.0.1 by default.
    #[serde(default)]
    #[schema(value_type = Option<schema::Peer>)]
    pub peer: Option<String>,
    /// A certificate that the client would prove to hold, on a connection over TLS; none by default.
    #[serde(default)]
    pub client_certificate: Option<AssumedCertificate>,
    /// The listener on which the request comes in, by its name or one of its addresses. Without it, it may be any, and is
    /// assumed if the route depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "internal")]
    pub listener: Option<String>,
    /// Its body. Without it, a policy that counts by the body is not decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = r#"{"model":"gpt-4o"}"#)]
    pub body: Option<String>,
}

/// A client certificate, in PEM or by its fields. It is assumed to be verified: neither its issuer nor its validity is
/// checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AssumedCertificate {
    /// The certificate, and the chain behind it. Excludes the other fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pem: Option<String>,
    /// RFC 4514: `CN=acme,O=Acme`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "CN=acme,O=Acme")]
    pub subject: Option<String>,
    /// SHA-256 in hexadecimal digits, with colons or without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

/// One value, or several values of one header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum HeaderValues {
    One(String),
    Many(Vec<String>),
}

fn get() -> String {
    "GET".to_owned()
}

/// The predicted outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// The assumed host; `null` if the request names its host.
    pub assumed_host: Option<AssumedHost>,
    /// The assumed listener, or one where another proxy asks for decisions; `null` if the request names it, or if its route
    /// is the same on all listeners.
    #[serde(default)]
    pub assumed_listener: Option<AssumedListener>,
    pub client_address: ExplainedAddress,
    /// The user, if it is known, and the source of the user ID.
    pub user: ExplainedUser,
    /// The assumed certificate; `null` if none.
    pub client_certificate: Option<ExplainedCertificate>,
    /// Listeners that would respond by themselves: with a redirect to HTTPS, or because the client has no certificate.
    /// The rest of the explanation is about the other listeners, unless the request names the listener.
    #[serde(default)]
    pub listeners: Vec<ExplainedListener>,
    /// `null` if the request target is malformed.
    pub route: Option<ExplainedRoute>,
    pub upstream: Option<String>,
    /// The endpoint that a hash or a cookie selects; `null`: any endpoint of the upstream.
    #[serde(default)]
    pub endpoint: Option<ExplainedEndpoint>,
    /// Whether pages of the request's origin may read the response; `null`: the route has no `cors`, or there is no
    /// `Origin`.
    #[serde(default)]
    pub cors: Option<String>,
    /// The route's own response to every request; `null`: it has an upstream, or there is no route.
    #[serde(default)]
    pub reply: Option<ExplainedReply>,
    /// The path and the query that the upstream gets, if the route rewrites the path; `null`: the client's, or the request
    /// is not forwarded.
    #[serde(default)]
    #[schema(example = "/users/7?page=2")]
    pub rewritten_path: Option<String>,
    /// Changes of request headers by the route, in order.
    #[serde(default)]
    pub request_headers: Vec<HeaderChange>,
    /// Changes of response headers by the route, in order.
    #[serde(default)]
    pub response_headers: Vec<HeaderChange>,
    /// The longest allowed body; `null`: any length.
    #[serde(default)]
    pub body_limit: Option<ExplainedBodyLimit>,
    /// `allowed`, `denied`, `banned`, `undecided` (the store is unavailable), `forbidden` (by `deny` or `allow`),
    /// `refused` (no route matches, the request is malformed, its body is too long, or the listener that it names responds
    /// by itself).
    #[schema(value_type = schema::Verdict)]
    pub verdict: String,
    /// The status of Tollgate's own response, or the route's; `null` if the request would be forwarded.
    pub status: Option<u16>,
    /// The reason: the policy that denies it, or the error in the request.
    pub because: String,
    pub checks: Vec<ExplainedCheck>,
    pub bans: Vec<Ban>,
}

/// A change of a header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeaderChange {
    /// `remove`, `set` or `add`
    #[schema(value_type = schema::HeaderChangeKind)]
    pub change: String,
    /// A name. If headers are removed, it may be a prefix followed by `*`.
    #[schema(example = "x-real-ip")]
    pub name: String,
    /// `null` if the header is removed; `***` if a part of it comes from outside the configuration file.
    pub value: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedAddress {
    pub address: String,
    pub because: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedUser {
    /// `null` if there is none; `because` says why.
    pub user: Option<String>,
    pub because: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedCertificate {
    /// `null` if it is not known, or empty.
    pub subject: Option<String>,
    /// `null` if it is not known.
    pub fingerprint: Option<String>,
    pub because: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedCheck {
    pub policy: String,
    pub key: String,
    #[schema(value_type = schema::Algorithm)]
    pub algorithm: String,
    pub cost: u64,
    pub limit: u64,
    /// Includes this request if it is admitted; `null` if the store was not read.
    pub used: Option<u64>,
    pub remaining: Option<u64>,
    /// `null` if the request is admitted, or never will be.
    #[schema(value_type = Option<schema::Duration>)]
    pub retry_after: Option<String>,
    /// `allowed` or `denied`; `exempt` for an exempt request, `skipped` if the request lacks the key, `unknown` if the
    /// store is unavailable.
    #[schema(value_type = schema::CheckVerdict)]
    pub verdict: String,
    /// `enforce` or `shadow`
    #[schema(value_type = schema::Mode)]
    pub mode: String,
    /// More details: the override that applies, the tightest of several limits, why the request is exempt.
    pub because: String,
}
