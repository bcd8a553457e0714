//! The algorithms that count requests.

use std::{mem, time::Duration};

use serde::Serialize;

use crate::config::{
    settings::{Kind, Value},
    value::{Invalid, named_choice},
    written::serialize,
};

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

    /// Its name in `proxy.yaml`.
    pub(in crate::config) fn name(self) -> &'static str {
        let is_same = |other: &Self| mem::discriminant(other) == mem::discriminant(&self);
        Self::ALL.iter().find(|(_, other)| is_same(other)).map_or("", |(name, _)| name)
    }

    /// Whether it counts members (running requests, or distinct values) instead of units.
    pub(in crate::config) fn counts_members(self) -> bool {
        matches!(self, Self::Concurrency | Self::Distinct)
    }

    /// The help where `algorithm` is missing.
    pub(in crate::config) fn one_of() -> String {
        format!("one of {}", Self::ALL.map(|(name, _)| name).join(", "))
    }

    const NAMES: [&'static str; 9] = {
        let mut names = [""; 9];
        let mut index = 0;
        while index < names.len() {
            names[index] = Self::ALL[index].0;
            index += 1;
        }
        names
    };
}

impl Value for Algorithm {
    const KIND: Kind = Kind::Word(&Self::NAMES);

    /// The algorithm with the defaults of its settings.
    fn parse(text: &str) -> Result<Self, Invalid> {
        named_choice("algorithm", &Self::ALL, &OTHER_NAMES)(text)
    }
}

/// Names of the algorithms in other proxies and in the literature, and the line to write.
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
