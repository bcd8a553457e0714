//! The state of one limit, whichever its algorithm.

use std::sync::Arc;

use super::{
    Detail, Kind, Rule, Tier, Verdict,
    concurrency::Concurrency,
    distinct::Distinct,
    fixed_window::FixedWindow,
    gcra::Gcra,
    metadata_list::{Entry, MetadataList},
    single_counter::SingleCounter,
    sliding_counter::SlidingCounter,
    sliding_log::SlidingLog,
    sliding_window::SlidingWindow,
};

/// What one limit remembers. The `rule` it is asked by is always that of its policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LimitState {
    SingleCounter(SingleCounter),
    FixedWindow(FixedWindow),
    MetadataList(MetadataList),
    SlidingWindow(SlidingWindow),
    SlidingLog(SlidingLog),
    SlidingCounter(SlidingCounter),
    Gcra(Gcra),
    Concurrency(Concurrency),
    Distinct(Distinct),
}

impl LimitState {
    /// A limit that nothing was taken of. Allocates nothing.
    pub fn new(kind: Kind) -> Self {
        match kind {
            Kind::SingleCounter => Self::SingleCounter(SingleCounter::default()),
            Kind::FixedWindow => Self::FixedWindow(FixedWindow::default()),
            Kind::MetadataList => Self::MetadataList(MetadataList::default()),
            Kind::SlidingWindow { .. } => Self::SlidingWindow(SlidingWindow::default()),
            Kind::SlidingLog => Self::SlidingLog(SlidingLog::default()),
            Kind::SlidingCounter => Self::SlidingCounter(SlidingCounter::default()),
            Kind::Gcra { .. } => Self::Gcra(Gcra::default()),
            Kind::Concurrency => Self::Concurrency(Concurrency::default()),
            Kind::Distinct => Self::Distinct(Distinct::default()),
        }
    }

    /// What a request of `cost` units with this `detail` is told, were it to come `now`; remaining and reset
    /// as they are after it where it is admitted. Changes nothing. A cost of 0 only looks.
    pub fn read(&self, rule: Rule<'_>, now: i64, cost: u64, detail: &Detail) -> Verdict {
        let tier = rule.tiers[0];
        match self {
            Self::SingleCounter(state) => state.read(tier, now, cost),
            Self::FixedWindow(state) => state.read(rule.tiers, now, cost),
            Self::MetadataList(state) => state.read(tier, now, cost),
            Self::SlidingWindow(state) => state.read(rule.tiers, buckets(rule), now, cost),
            Self::SlidingLog(state) => state.read(tier, now, cost),
            Self::SlidingCounter(state) => state.read(tier, now, cost),
            Self::Gcra(state) => state.read(tier, bucket(rule), now, cost),
            Self::Concurrency(state) => state.read(tier, now, cost, detail.member()),
            Self::Distinct(state) => state.read(tier, now, cost, detail.member()),
        }
    }

    /// Takes `cost` units, which a read at the same `now` has admitted. `metadata_list` keeps the newest
    /// `keep` of its entries. Says whether state from the future was discarded.
    pub fn write(&mut self, rule: Rule<'_>, now: i64, cost: u64, detail: &Detail, keep: usize) -> bool {
        let tier = rule.tiers[0];
        match self {
            Self::SingleCounter(state) => state.write(tier, now, cost),
            Self::FixedWindow(state) => state.write(rule.tiers, now, cost),
            Self::MetadataList(state) => state.write(tier, now, cost, detail.entry(), keep),
            Self::SlidingWindow(state) => state.write(rule.tiers, buckets(rule), now, cost),
            Self::SlidingLog(state) => state.write(tier, now, cost),
            Self::SlidingCounter(state) => state.write(tier, now, cost),
            Self::Gcra(state) => state.write(tier, bucket(rule), now, cost),
            Self::Concurrency(state) => state.write(tier, now, detail.member()),
            Self::Distinct(state) => state.write(tier, now, detail.member()),
        }
    }

    /// Counts a request of `cost` units that a read at the same `now` has denied, and that may fit one day: as
    /// many of its units as the limit has, in place of the oldest if there is no room. Says whether state from
    /// the future was discarded. Members are never counted so.
    pub fn count_denied(&mut self, rule: Rule<'_>, now: i64, cost: u64) -> bool {
        let tier = rule.tiers[0];
        match self {
            Self::SingleCounter(state) => state.count_denied(tier, now, cost),
            Self::FixedWindow(state) => state.count_denied(rule.tiers, now, cost),
            Self::MetadataList(state) => state.count_denied(tier, now, cost),
            Self::SlidingWindow(state) => state.count_denied(rule.tiers, buckets(rule), now, cost),
            Self::SlidingLog(state) => state.count_denied(tier, now, cost),
            Self::SlidingCounter(state) => state.count_denied(tier, now, cost),
            Self::Gcra(state) => state.count_denied(tier, bucket(rule), now, cost),
            Self::Concurrency(_) | Self::Distinct(_) => false,
        }
    }

    /// Refunds what a write of `cost` units with this `detail` took at the time `at`, as far as it still
    /// counts `now`.
    pub fn refund(&mut self, rule: Rule<'_>, now: i64, at: i64, cost: u64, detail: &Detail) {
        let tier = rule.tiers[0];
        match self {
            Self::SingleCounter(state) => state.refund(tier, at, cost),
            Self::FixedWindow(state) => state.refund(rule.tiers, at, cost),
            Self::MetadataList(state) => state.refund(tier, at, cost, detail.entry()),
            Self::SlidingWindow(state) => state.refund(rule.tiers, buckets(rule), now, at, cost),
            Self::SlidingLog(state) => state.refund(at, cost),
            Self::SlidingCounter(state) => state.refund(tier, now, at, cost),
            Self::Gcra(state) => state.refund(tier, now, at, cost),
            Self::Concurrency(state) => state.refund(detail.member()),
            Self::Distinct(state) => state.refund(detail.member()),
        }
    }

    /// Units of the tier `index` that are taken `now`.
    pub fn used(&self, rule: Rule<'_>, index: usize, now: i64) -> u64 {
        let tier = rule.tiers[0];
        match self {
            Self::SingleCounter(state) => state.used(tier, now),
            Self::FixedWindow(state) => state.used(index, rule.tiers[index], now),
            Self::MetadataList(state) => state.used(tier, now),
            Self::SlidingWindow(state) => state.used(index, rule.tiers[index], buckets(rule), now),
            Self::SlidingLog(state) => state.used(tier, now),
            Self::SlidingCounter(state) => state.used(tier, now),
            Self::Gcra(state) => state.used(tier, now),
            Self::Concurrency(state) => state.used(tier, now),
            Self::Distinct(state) => state.used(tier, now),
        }
    }

    /// Whether units of any tier are taken `now`.
    pub fn is_used(&self, rule: Rule<'_>, now: i64) -> bool {
        (0..rule.tiers.len()).any(|index| self.used(rule, index, now) > 0)
    }

    /// What `metadata_list` wrote down in the window of `now`, oldest first; of the others, nothing.
    pub fn entries(&self, rule: Rule<'_>, now: i64) -> Vec<Arc<Entry>> {
        match self {
            Self::MetadataList(state) => state.entries(rule.tiers[0], now).cloned().collect(),
            _ => Vec::new(),
        }
    }

    /// How many entries of `metadata_list` take up memory, whether their window is over or not.
    pub fn stored_entries(&self) -> usize {
        match self {
            Self::MetadataList(state) => state.stored_entries(),
            _ => 0,
        }
    }

    /// When nothing in it matters any more, in microseconds since the Unix epoch. `slowest_tier`: the lowest rate by which
    /// anybody counts of it.
    pub fn expires(&self, rule: Rule<'_>, slowest_tier: Tier) -> i64 {
        let tier = rule.tiers[0];
        match self {
            Self::SingleCounter(state) => state.expires(tier),
            Self::FixedWindow(state) => state.expires(rule.tiers),
            Self::MetadataList(state) => state.expires(tier),
            Self::SlidingWindow(state) => state.expires(rule.tiers, buckets(rule)),
            Self::SlidingLog(state) => state.expires(tier),
            Self::SlidingCounter(state) => state.expires(tier),
            Self::Gcra(state) => state.expires(slowest_tier),
            Self::Concurrency(state) => state.expires(),
            Self::Distinct(state) => state.expires(tier),
        }
    }
}

/// What only `sliding_window` has.
fn buckets(rule: Rule<'_>) -> u32 {
    match rule.kind {
        Kind::SlidingWindow { buckets } => buckets,
        _ => 1,
    }
}

/// What only `gcra` has: burst and delay.
fn bucket(rule: Rule<'_>) -> (u64, i64) {
    match rule.kind {
        Kind::Gcra { burst, delay } => (burst, delay),
        _ => (rule.tiers[0].limit, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte here is paid a million times.
    #[test]
    fn the_state_of_a_limit_is_small() {
        assert!(size_of::<LimitState>() <= 32, "{} bytes", size_of::<LimitState>());
    }
}
