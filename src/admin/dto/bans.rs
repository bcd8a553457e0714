//! Bans.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema;

/// Somebody who is shut out.
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
    /// The operator, or the ladder of `bans` that it comes from.
    pub by: String,
    /// How often the ladder has banned this key in a row; 0 where an operator did.
    pub level: u32,
    /// `enforce`, or `shadow`: nobody is shut out.
    #[schema(value_type = schema::Mode)]
    pub mode: String,
}

/// `GET /v1/bans`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Bans {
    /// Those that hold, the one that ends last first.
    pub bans: Vec<Ban>,
    #[schema(value_type = Option<schema::Cursor>)]
    pub cursor: Option<String>,
}

/// What `POST /v1/bans` takes.
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
}

/// `DELETE /v1/bans?key=`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Lifted {
    #[schema(value_type = schema::BanKey)]
    pub key: String,
    pub bans_lifted: u64,
}
