//! How close clients come to the limits of a policy.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema;

/// `GET /v1/policies/{name}/peaks`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PolicyPeaks {
    #[schema(example = "per-ip")]
    pub policy: String,
    #[schema(value_type = schema::Algorithm)]
    pub algorithm: String,
    /// `enforce` or `shadow`
    #[schema(value_type = schema::Mode)]
    pub mode: String,
    /// Each limit on each route, in the configuration's order: the policy's own, then those of its overrides.
    pub limits: Vec<LimitPeaks>,
}

/// The peaks of the keys of one limit on one route, in the last 24 hours: for each key, the most units that it had in
/// use in one window, with those that were denied in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LimitPeaks {
    #[schema(example = "/api/*")]
    pub route: String,
    /// The condition of the override whose limit it is; `null`: it is the policy's own.
    #[schema(required, example = "plan:pro")]
    pub condition: Option<String>,
    /// `100/1m`, `1000/month (Europe/Berlin)`; for `concurrency`, `2 at a time`
    #[schema(example = "100/1m")]
    pub limit: String,
    /// The units that a key can have in use: the limit's, or with `gcra` the size of the bucket.
    #[schema(example = 100)]
    pub units: u64,
    /// `1m`, `month (Europe/Berlin)`; `null` for `concurrency`.
    #[schema(required, example = "1m")]
    pub window: Option<String>,
    /// Keys that were seen. An estimate, unless `exact`.
    pub keys: u64,
    /// Keys whose peaks are known: a uniform sample.
    pub sampled: u64,
    /// Whether all keys are sampled.
    pub exact: bool,
    /// `null`: no key was seen.
    #[schema(required)]
    pub quantiles: Option<PeakQuantiles>,
    /// How many keys use how much of the limit at their peaks.
    pub shares: Vec<ShareOfKeys>,
    /// The sampled keys with the highest peaks, at most ten. A value of a header, a cookie or the query is hidden.
    pub highest: Vec<KeyPeak>,
    /// The lowest limit that spares the share of `spare`; `null` without `spare`, or if no key was seen.
    #[schema(required)]
    pub suggested: Option<u64>,
    /// The effect of the limit that the query names; `null`: it names none, or one with another window.
    #[schema(required)]
    pub change: Option<LimitChange>,
}

/// Peaks that shares of the keys do not exceed: half of the keys stay within `p50`, and 99.9 % within `p99_9`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PeakQuantiles {
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p99_9: u64,
    pub max: u64,
}

/// The keys whose peak is in a range of the limit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ShareOfKeys {
    /// Percent of the limit.
    pub above: u32,
    /// Percent of the limit; `null`: any number above.
    #[schema(required)]
    pub up_to: Option<u32>,
    pub keys: u64,
    /// 0 to 1
    pub share: f64,
}

/// A key and its peak.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyPeak {
    #[schema(example = "ip:203.0.113.7")]
    pub key: String,
    pub peak: u64,
}

/// What another limit would have done in the last 24 hours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LimitChange {
    /// Units.
    pub limit: u64,
    /// Keys that would have been denied requests.
    pub denied: u64,
    /// Their share of the keys, 0 to 1.
    pub denied_share: f64,
    /// Those of them that are within the present limit.
    pub newly_denied: u64,
    /// Keys above the present limit that would not have been denied.
    pub freed: u64,
    /// Sampled keys that would have been denied, the highest peaks first, at most ten.
    pub examples: Vec<KeyPeak>,
}
