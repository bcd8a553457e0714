//! What would become of a request.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Ban, schema};

/// What `POST /v1/explain` takes: a request as it would come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainedRequest {
    #[serde(default = "get")]
    #[schema(value_type = schema::Method)]
    pub method: String,
    /// Absolute, or a path with the host in `headers`.
    #[schema(example = "https://api.example.com/login", min_length = 1)]
    pub url: String,
    #[serde(default)]
    pub headers: std::collections::BTreeMap<String, HeaderValues>,
    /// The address that the connection comes from; 127.0.0.1 where it is left out.
    #[serde(default)]
    #[schema(value_type = Option<schema::Peer>)]
    pub peer: Option<String>,
}

/// One value, or several lines of one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum HeaderValues {
    One(String),
    Many(Vec<String>),
}

fn get() -> String {
    "GET".to_owned()
}

/// What would become of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    pub client_address: ExplainedAddress,
    /// Who is asking, where that is known, and from which source.
    pub user: ExplainedUser,
    /// `null`: it can't be read what the request is for.
    pub route: Option<ExplainedRoute>,
    pub upstream: Option<String>,
    /// `allowed`, `denied`, `banned`, `undecided` (the store can't be asked), `refused` (no route, or no request that
    /// would be forwarded).
    #[schema(value_type = schema::Verdict)]
    pub verdict: String,
    /// What the proxy would answer itself; `null` where it would ask the upstream.
    pub status: Option<u16>,
    /// In words: which policy, or what is wrong with the request.
    pub because: String,
    pub checks: Vec<ExplainedCheck>,
    pub bans: Vec<Ban>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedAddress {
    pub address: String,
    pub because: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedUser {
    /// `null`: nobody says; `because` tells why.
    pub user: Option<String>,
    pub because: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedRoute {
    /// `null`: there is none for the request.
    pub name: Option<String>,
    pub because: String,
    /// The routes before it, and why each did not match.
    pub passed_over: Vec<PassedOver>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PassedOver {
    pub name: String,
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
    /// Counting this request, where it is admitted; `null` where nobody was asked.
    pub used: Option<u64>,
    pub remaining: Option<u64>,
    /// `null` where it would admit, or never will.
    #[schema(value_type = Option<schema::Duration>)]
    pub retry_after: Option<String>,
    /// `allowed` or `denied`; of an exempt request `exempt`, of one that lacks the key `skipped`; `unknown` where the
    /// store can't be asked.
    #[schema(value_type = schema::CheckVerdict)]
    pub verdict: String,
    /// `enforce` or `shadow`
    #[schema(value_type = schema::Mode)]
    pub mode: String,
    /// What else there is to know: the override that applies, the tightest of several limits, why it is exempt.
    pub because: String,
}
