//! Usage of limits, and cleared limits.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema;

/// The usage of a limit: its tightest tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Limit)]
pub struct LimitUsage {
    pub policy: String,
    pub key: String,
    pub used: u64,
    pub limit: u64,
    pub remaining: u64,
    #[schema(value_type = schema::Duration)]
    pub reset: String,
    /// When the limit's window of the calendar ends, with its time zone (RFC 9557); `null` for other windows.
    #[serde(default)]
    #[schema(example = "2026-12-01T00:00:00+01:00[Europe/Berlin]")]
    pub window_ends: Option<String>,
}

/// `GET /v1/limits?policy=&key=`: one limit, by each variant of its policy that is counted separately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Limits {
    pub limits: Vec<LimitUsage>,
}

/// `DELETE /v1/limits?policy=&key=`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResetLimits {
    pub cleared: Vec<ClearedLimit>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClearedLimit {
    pub policy: String,
    pub key: String,
}
