//! `algorithm`, and the settings that only one algorithm has.

use std::time::Duration;

use crate::config::{
    model::{Algorithm, DEFAULT_BUCKETS, Rate},
    reader::MappingCursor,
    value::{MAX_LIMIT, duration, named_choice, number},
};

/// Settings that only one algorithm has, and its name.
const SETTING_OWNERS: [(&str, &str); 4] =
    [("buckets", "sliding_window"), ("burst", "gcra"), ("lease", "concurrency"), ("value", "distinct")];

/// What other proxies and the literature call the algorithms, and the line to write.
const OTHER_NAMES: [(&str, &str); 29] = [
    ("token_bucket", TOKEN_BUCKET),
    ("bucket", TOKEN_BUCKET),
    ("local_rate_limit", TOKEN_BUCKET),
    ("leaky_bucket", LEAKY_BUCKET),
    ("leaky", LEAKY_BUCKET),
    ("limit_req", LEAKY_BUCKET),
    ("throttle", LEAKY_BUCKET),
    ("generic_cell_rate", "write `algorithm: gcra`"),
    ("generic_cell_rate_algorithm", "write `algorithm: gcra`"),
    ("counter", "write `algorithm: fixed_window`"),
    ("fixed", "write `algorithm: fixed_window`"),
    ("fixed_window_counter", "write `algorithm: fixed_window`"),
    ("fixed_counter", "write `algorithm: fixed_window`"),
    ("window", SLIDING),
    ("sliding", SLIDING),
    ("rolling", SLIDING),
    ("rolling_window", SLIDING),
    ("moving_window", SLIDING),
    ("sliding_window_log", "write `algorithm: sliding_log`"),
    ("sliding_window_counter", "write `algorithm: sliding_counter`"),
    ("sliding_window_approximate", "write `algorithm: sliding_counter`"),
    ("log", "write `algorithm: sliding_log`"),
    ("sorted_set", "write `algorithm: sliding_log`"),
    ("connections", CONCURRENCY),
    ("limit_conn", CONCURRENCY),
    ("max_connections", CONCURRENCY),
    ("concurrent_requests", CONCURRENCY),
    ("in_flight", CONCURRENCY),
    ("semaphore", CONCURRENCY),
];
const TOKEN_BUCKET: &str =
    "write `algorithm: gcra`, which admits what a token bucket does; `burst` is the bucket's size";
const LEAKY_BUCKET: &str = "write `algorithm: gcra`; with `delay: 5s`, excess requests wait as in a leaky bucket, rather than being denied";
const SLIDING: &str = "write `algorithm: sliding_window`";
const CONCURRENCY: &str = "write `algorithm: concurrency`; its limit is a plain number, such as `limit: 8`";

/// The algorithm of a policy, with the defaults of its settings.
pub(super) fn kind(mapping: &mut MappingCursor<'_>) -> Option<Algorithm> {
    let names = Algorithm::ALL.map(|(name, _)| name).join(", ");
    mapping.require("algorithm", &format!("one of {names}"))?.parse(named_choice(
        "algorithm",
        &Algorithm::ALL,
        &OTHER_NAMES,
    ))
}

/// Its name in `proxy.yaml`.
pub(super) fn algorithm_name(kind: Algorithm) -> &'static str {
    let same = |other: &Algorithm| std::mem::discriminant(other) == std::mem::discriminant(&kind);
    Algorithm::ALL.iter().find(|(_, other)| same(other)).map_or("", |(name, _)| name)
}

/// Whether it counts members (running requests, or distinct values) instead of units.
pub(super) fn counts_members(kind: Option<Algorithm>) -> bool {
    matches!(kind, Some(Algorithm::Concurrency | Algorithm::Distinct))
}

/// The settings that only one algorithm has.
#[derive(Clone, Copy)]
pub(super) struct AlgorithmSettings {
    buckets: u32,
    burst: Option<u64>,
    delay: Duration,
    /// How long a lease lasts that is not renewed.
    pub(super) lease: Duration,
}

impl AlgorithmSettings {
    /// Reads the settings, and reports those that belong to another algorithm than `kind`.
    pub(super) fn read(mapping: &mut MappingCursor<'_>, kind: Option<Algorithm>) -> Self {
        for (key, owner) in SETTING_OWNERS {
            report_foreign_setting(mapping, key, owner, kind);
        }
        let buckets = mapping.parse_or("buckets", u64::from(DEFAULT_BUCKETS), number(4..=100));
        let burst = burst(mapping);
        let delay = duration(Duration::ZERO..=Duration::from_secs(60 * 60));
        let delay = mapping.parse_or("delay", Duration::ZERO, delay);
        if !delay.is_zero() {
            report_foreign_setting(mapping, "delay", "gcra", kind);
        }
        let lease = duration(Duration::from_secs(1)..=Duration::from_secs(24 * 60 * 60));
        let lease = mapping.parse_or("lease", Duration::from_secs(60), lease);
        Self { buckets: u32::try_from(buckets).unwrap_or(DEFAULT_BUCKETS), burst, delay, lease }
    }

    /// The settings of an override, which has its own burst.
    pub(super) fn with_burst(self, burst: Option<u64>) -> Self {
        Self { burst, ..self }
    }

    /// `kind` with its settings. The default burst is the limit.
    pub(super) fn complete(self, kind: Algorithm, tiers: &[Rate]) -> Algorithm {
        let limit = tiers.first().map_or(1, |tier| tier.limit);
        match kind {
            Algorithm::SlidingWindow { .. } => Algorithm::SlidingWindow { buckets: self.buckets },
            Algorithm::Gcra { .. } => {
                Algorithm::Gcra { burst: self.burst.unwrap_or(limit), delay: self.delay }
            }
            other => other,
        }
    }

    pub(super) fn has_delay(self) -> bool {
        !self.delay.is_zero()
    }
}

/// `burst`, of a policy or of an override.
pub(super) fn burst(mapping: &mut MappingCursor<'_>) -> Option<u64> {
    mapping.take("burst")?.parse(number(1..=MAX_LIMIT))
}

/// Reports `key` if it is there, and `kind` is not the algorithm named `owner`.
pub(super) fn report_foreign_setting(
    mapping: &MappingCursor<'_>,
    key: &str,
    owner: &str,
    kind: Option<Algorithm>,
) {
    let (Some(location), Some(kind)) = (mapping.key_location(key), kind) else { return };
    if algorithm_name(kind) != owner {
        let message = format!("`{key}` is a setting of {owner}, not of {}", algorithm_name(kind));
        mapping.report_at(location, message, format!("remove it, or set `algorithm: {owner}`"));
    }
}
