//! `algorithm`, and the settings that one of them alone takes.

use std::time::Duration;

use crate::config::{
    model::{Algorithm, DEFAULT_BUCKETS, Rate},
    reader::MappingCursor,
    value::{MAX_LIMIT, choice, duration, number},
};

/// Settings, and the algorithm that each is of.
const SETTING_OWNERS: [(&str, &str); 4] =
    [("buckets", "sliding_window"), ("burst", "gcra"), ("lease", "concurrency"), ("value", "distinct")];

/// The algorithm of a policy, without what its settings say.
pub(super) fn kind(mapping: &mut MappingCursor<'_>) -> Option<Algorithm> {
    let names = Algorithm::ALL.map(|(name, _)| name).join(", ");
    mapping.require("algorithm", &format!("one of {names}"))?.parse(choice(&Algorithm::ALL))
}

/// What is written for it.
pub(super) fn algorithm_name(kind: Algorithm) -> &'static str {
    let same = |other: &Algorithm| std::mem::discriminant(other) == std::mem::discriminant(&kind);
    Algorithm::ALL.iter().find(|(_, other)| same(other)).map_or("", |(name, _)| name)
}

/// Whether members are counted, and not units: requests under way, or different values.
pub(super) fn counts_members(kind: Option<Algorithm>) -> bool {
    matches!(kind, Some(Algorithm::Concurrency | Algorithm::Distinct))
}

/// The settings that one algorithm alone takes.
#[derive(Clone, Copy)]
pub(super) struct AlgorithmSettings {
    buckets: u32,
    burst: Option<u64>,
    delay: Duration,
    /// How long a place is held that nobody renews.
    pub(super) lease: Duration,
}

impl AlgorithmSettings {
    /// Reads them, and reports those that are of another algorithm than `kind`.
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
        // Its value is read where the keys are known.
        mapping.mark_known("value");
        Self { buckets: u32::try_from(buckets).unwrap_or(DEFAULT_BUCKETS), burst, delay, lease }
    }

    /// The same for other limits, which have a burst of their own.
    pub(super) fn with_burst(self, burst: Option<u64>) -> Self {
        Self { burst, ..self }
    }

    /// `kind` with what was written for it. Without a burst, a bucket holds the limit's count.
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

/// `burst`, of a policy or of other limits.
pub(super) fn burst(mapping: &mut MappingCursor<'_>) -> Option<u64> {
    mapping.take("burst")?.parse(number(1..=MAX_LIMIT))
}

/// Reports `key` where it stands and `kind` is not its `owner`.
pub(super) fn report_foreign_setting(
    mapping: &MappingCursor<'_>,
    key: &str,
    owner: &str,
    kind: Option<Algorithm>,
) {
    let (Some(location), Some(kind)) = (mapping.key_location(key), kind) else { return };
    if algorithm_name(kind) != owner {
        let message = format!("`{key}` is a setting of {owner}, not of {}", algorithm_name(kind));
        mapping.report_at(location, message, format!("leave it out, or write `algorithm: {owner}`"));
    }
}
