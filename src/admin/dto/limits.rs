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
    /// What requests have for which this limit holds: a plan, or what an override names. `null`: the policy's own limit.
    #[serde(default)]
    #[schema(example = "plan:pro")]
    pub condition: Option<String>,
}

/// A key that a policy does not limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unlimited {
    pub policy: String,
    pub key: String,
    /// Why: an exemption, or an unlimited plan.
    #[schema(example = "plan:enterprise")]
    pub condition: Option<String>,
}

/// `GET /v1/limits?policy=&key=`: the limits that hold for a key now. Several of one policy: for requests with this key, but
/// with other plans, or with something else that an override names and that the key does not tell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Limits {
    pub limits: Vec<LimitUsage>,
    /// Policies that do not limit the key, because of its plan or an exemption.
    #[serde(default)]
    pub unlimited: Vec<Unlimited>,
}

/// `DELETE /v1/limits?policy=&key=`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResetLimits {
    pub cleared: Vec<ClearedLimit>,
    /// Redis was away: the limits were cleared at this instance alone, and may be left in Redis and at the others.
    #[serde(default)]
    pub redis_away: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClearedLimit {
    pub policy: String,
    pub key: String,
}
