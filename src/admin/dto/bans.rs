//! Bans.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema;

/// A ban.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ban {
    /// `ip:203.0.113.7`, `ip:10.0.0.0/8`, `user:acme`
    #[schema(value_type = schema::BanKey)]
    pub key: String,
    #[schema(value_type = schema::Time)]
    pub since: String,
    #[schema(value_type = schema::Time)]
    pub until: String,
    pub reason: String,
    /// The operator, or the rule under `bans` that issued it.
    pub by: String,
    /// How often in a row the rule has banned this key; 0 for a ban by an operator.
    pub level: u32,
    /// `enforce`, or `shadow`: no request is denied.
    #[schema(value_type = schema::Mode)]
    pub mode: String,
}

/// `GET /v1/bans`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Bans {
    /// The active bans, the one that ends last first.
    pub bans: Vec<Ban>,
    #[schema(value_type = Option<schema::Cursor>)]
    pub cursor: Option<String>,
}

/// The body of `POST /v1/bans`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewBan {
    #[schema(value_type = schema::BanKey)]
    pub key: String,
    /// A duration as in proxy.yaml.
    #[serde(rename = "for")]
    #[schema(value_type = schema::Lasts)]
    pub lasts: String,
    #[serde(default)]
    #[schema(value_type = schema::Reason)]
    pub reason: String,
    /// Bans even a large part of the internet, this machine, the operator's own address or a trusted proxy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// `POST /v1/bans`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Banned {
    #[serde(flatten)]
    pub ban: Ban,
    /// `false`: it was not sent to the other instances yet, so the ban applies at this one alone. Sending is retried.
    #[serde(default = "is_shared")]
    pub shared: bool,
}

/// The default, for instances of earlier versions, which do not send the field.
pub(super) fn is_shared() -> bool {
    true
}

/// `DELETE /v1/bans?key=`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Lifted {
    #[schema(value_type = schema::BanKey)]
    pub key: String,
    pub bans_lifted: u64,
    /// `false`: it was not sent to the other instances yet, so the bans are lifted at this one alone. Sending is
    /// retried.
    #[serde(default = "is_shared")]
    pub shared: bool,
}
