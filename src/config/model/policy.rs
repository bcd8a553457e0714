//! Policies: limits, algorithms, keys, and exceptions.

use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode};
use ipnet::IpNet;
use serde::Serialize;

use super::serialize;
use crate::tls::CertificateField;

/// Limits, and which requests they apply to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Policy {
    pub name: String,
    #[serde(flatten)]
    pub algorithm: Algorithm,
    /// Never empty; keys are limited independently.
    #[serde(rename = "key")]
    pub keys: Vec<KeyRecipe>,
    pub missing: Missing,
    /// For `distinct` alone: the value that is counted.
    pub value: Option<KeyRecipe>,
    /// Never empty; exactly one where the algorithm has no tiers. Windows differ from one another. Of
    /// `concurrency` the window is the lease.
    #[serde(rename = "limits")]
    pub tiers: Vec<Rate>,
    /// If set, only requests with such a response count.
    pub count: Option<CountedResponses>,
    pub on_store_error: OnStoreError,
    pub record: Record,
    pub cost: Cost,
    pub mode: Mode,
    /// Whether requests that the policy denies are counted as well.
    pub count_denied: bool,
    /// Whether CORS preflights are counted.
    pub preflight: bool,
    /// The share of a window's quota that an instance may take at once, 0 to 1. Not 0: `fixed_window` with one
    /// tier.
    #[serde(serialize_with = "serialize::percentage")]
    pub slice: f64,
    /// Clients that the policy does not apply to.
    pub exempt: Vec<Condition>,
    /// Other limits for some clients; the first that matches wins.
    pub overrides: Vec<Override>,
    /// The reply to a denied client; `None`: 429 and problem details.
    pub reply: Option<DenialReply>,
}

impl Policy {
    /// A policy with every default.
    pub fn new(
        name: impl Into<String>,
        algorithm: Algorithm,
        keys: Vec<KeyRecipe>,
        tiers: Vec<Rate>,
    ) -> Self {
        Self {
            name: name.into(),
            algorithm,
            keys,
            missing: Missing::Skip,
            value: None,
            tiers,
            count: None,
            on_store_error: OnStoreError::Local,
            record: Record { keep: 50, retain: Duration::from_secs(60 * 60) },
            cost: Cost::Fixed(1),
            mode: Mode::Enforce,
            count_denied: false,
            preflight: false,
            slice: 0.0,
            exempt: Vec::new(),
            overrides: Vec::new(),
            reply: None,
        }
    }
}

/// The units that a request takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Cost {
    /// At least 1.
    Fixed(u64),
    /// What a trusted proxy says, at least 1 and at most `max`; else `default`.
    Header {
        #[serde(rename = "header", serialize_with = "serialize::displayed")]
        name: HeaderName,
        default: u64,
        max: u64,
    },
}

/// Whether a policy denies requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    Enforce,
    /// Counted and reported, never denies.
    Shadow,
}

/// The responses that count: those with one of these statuses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CountedResponses {
    #[serde(skip_serializing_if = "Statuses::is_empty")]
    pub statuses: Statuses,
    /// `grpc-status`, in the head or in the trailers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grpc_statuses: Vec<u32>,
}

/// Statuses of responses that count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statuses(pub Vec<std::ops::RangeInclusive<u16>>);

impl Statuses {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this status is one of them.
    pub fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|range| range.contains(&status))
    }
}

/// What selects clients for an exemption or an override. Only verified values match, and fields from trusted proxies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    Address(IpNet),
    User(String),
    /// A claim of a verified token has this value.
    Jwt {
        claim: String,
        value: String,
    },
    /// A trusted proxy sent this field with this value.
    Header {
        name: HeaderName,
        value: HeaderValue,
    },
    /// The client's verified certificate has this subject (as [`crate::tls::canonical_subject`] writes it) or this
    /// fingerprint (in lower case).
    Tls {
        field: CertificateField,
        value: String,
    },
}

/// Other limits than the policy's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Override {
    pub condition: Condition,
    /// As [`Policy::tiers`].
    #[serde(rename = "limits")]
    pub tiers: Vec<Rate>,
    /// The algorithm of the policy, with the settings of the override.
    #[serde(flatten)]
    pub algorithm: Algorithm,
}

/// The reply to a denied client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DenialReply {
    #[serde(serialize_with = "serialize::status")]
    pub status: StatusCode,
    #[serde(serialize_with = "serialize::headers")]
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// `None`: problem details.
    pub body: Option<DenialBody>,
}

/// A body with `{{retry_after}}`, `{{policy}}` and `{{limit}}` in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DenialBody {
    #[serde(serialize_with = "serialize::header_value")]
    pub content_type: HeaderValue,
    pub template: Vec<TemplatePart>,
}

/// A piece of a body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TemplatePart {
    Text(String),
    /// Whole seconds, rounded up; `null` if no wait helps.
    RetryAfter,
    /// The policy's name.
    Policy,
    /// The limit that was reached, in units.
    Limit,
}

/// See `limits.md`, "The algorithms".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "algorithm", rename_all = "snake_case")]
pub enum Algorithm {
    SingleCounter,
    FixedWindow,
    MetadataList,
    /// The number of buckets in each window, 4 to 100.
    SlidingWindow {
        buckets: u32,
    },
    SlidingLog,
    SlidingCounter,
    /// `burst`: how many units may pass at once, at least 1. `delay`: how long further requests may wait.
    Gcra {
        burst: u64,
        #[serde(serialize_with = "serialize::duration")]
        delay: Duration,
    },
    Concurrency,
    Distinct,
}

/// The default number of buckets of a sliding window.
pub const DEFAULT_BUCKETS: u32 = 10;

impl Algorithm {
    /// The name of each in `proxy.yaml`, and its default settings.
    pub const ALL: [(&'static str, Self); 9] = [
        ("single_counter", Self::SingleCounter),
        ("fixed_window", Self::FixedWindow),
        ("sliding_log", Self::SlidingLog),
        ("metadata_list", Self::MetadataList),
        ("sliding_window", Self::SlidingWindow { buckets: DEFAULT_BUCKETS }),
        ("sliding_counter", Self::SlidingCounter),
        ("gcra", Self::Gcra { burst: 1, delay: Duration::ZERO }),
        ("concurrency", Self::Concurrency),
        ("distinct", Self::Distinct),
    ];
}

/// The parts of one key; more than one make a composite (`ip+path`), in which the address comes first.
/// Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecipe(pub Vec<KeyPart>);

/// One part of a key: which value of a request identifies the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyPart {
    Ip,
    User,
    Header(HeaderName),
    Cookie(String),
    Query(String),
    /// A claim of a verified token.
    Jwt(String),
    /// Of the client's verified certificate.
    Tls(CertificateField),
    /// The normalised path without query.
    Path,
    Route,
    Host,
    Method,
    /// One budget for all.
    Global,
}

/// What happens to a request without the identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    Skip,
    /// Limit by address instead.
    Ip,
    Deny,
}

/// A limit per window: `100/1s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// 1 to 10⁹.
    pub limit: u64,
    /// 1 ms to 366 days.
    pub window: Duration,
}

/// What a policy does while the store is unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnStoreError {
    /// Each instance enforces its share in memory.
    Local,
    Allow,
    /// 503.
    Deny,
}

/// The evidence kept of limited clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Record {
    /// How many records are kept per address.
    pub keep: usize,
    /// How long each is kept. YAML: `for`.
    #[serde(rename = "for", serialize_with = "serialize::duration")]
    pub retain: Duration,
}
