//! The state of one limit, of any algorithm.

use std::sync::Arc;

use super::{
    Detail, Kind, LimitRule, Tier, Verdict,
    calendar_window::CalendarWindow,
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

/// The state of one limit. The `rule` passed to its methods must always be its policy's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LimitState {
    SingleCounter(SingleCounter),
    FixedWindow(FixedWindow),
    CalendarWindow(CalendarWindow),
    MetadataList(MetadataList),
    SlidingWindow(SlidingWindow),
    SlidingLog(SlidingLog),
    SlidingCounter(SlidingCounter),
    Gcra(Gcra),
    Concurrency(Concurrency),
    Distinct(Distinct),
}

impl LimitState {
    /// The state of an unused limit. Does not allocate.
    pub fn new(kind: Kind) -> Self {
        match kind {
            Kind::SingleCounter => Self::SingleCounter(SingleCounter::default()),
            Kind::FixedWindow => Self::FixedWindow(FixedWindow::default()),
            Kind::CalendarWindow => Self::CalendarWindow(CalendarWindow::default()),
            Kind::MetadataList { .. } => Self::MetadataList(MetadataList::default()),
            Kind::SlidingWindow { .. } => Self::SlidingWindow(SlidingWindow::default()),
            Kind::SlidingLog => Self::SlidingLog(SlidingLog::default()),
            Kind::SlidingCounter => Self::SlidingCounter(SlidingCounter::default()),
            Kind::Gcra { .. } => Self::Gcra(Gcra::default()),
            Kind::Concurrency => Self::Concurrency(Concurrency::default()),
            Kind::Distinct => Self::Distinct(Distinct::default()),
        }
    }

    /// The verdict for a request of `cost` units with this `detail` at the time `now`. If it is admitted, `remaining`
    /// and `reset` are those after it. Changes nothing. A cost of 0 only reads.
    pub fn read(&self, rule: LimitRule<'_>, now: i64, cost: u64, detail: &Detail) -> Verdict {
        let tier = rule.tiers[0];
        match self {
            Self::SingleCounter(state) => state.read(tier, now, cost),
            Self::FixedWindow(state) => state.read(rule.tiers, now, cost),
            Self::CalendarWindow(state) => state.read(rule.tiers, rule.bounds, now, cost),
            Self::MetadataList(state) => state.read(tier, now, cost),
            Self::SlidingWindow(state) => state.read(rule.tiers, buckets(rule), now, cost),
            Self::SlidingLog(state) => state.read(tier, now, cost),
            Self::SlidingCounter(state) => state.read(tier, now, cost),
            Self::Gcra(state) => state.read(tier, bucket(rule), now, cost),
            Self::Concurrency(state) => state.read(tier, now, cost, detail.member()),
            Self::Distinct(state) => state.read(tier, now, cost, detail.member()),
        }
    }

    /// Takes `cost` units that a read at the same `now` has admitted. `metadata_list` keeps its newest `max_entries`
    /// entries. Returns whether state from the future was discarded.
    pub fn write(
        &mut self,
        rule: LimitRule<'_>,
        now: i64,
        cost: u64,
        detail: &Detail,
        max_entries: usize,
    ) -> bool {
        let tier = rule.tiers[0];
        match self {
            Self::SingleCounter(state) => state.write(tier, now, cost),
            Self::FixedWindow(state) => state.write(rule.tiers, now, cost),
            Self::CalendarWindow(state) => state.write(rule.tiers, rule.bounds, now, cost),
            Self::MetadataList(state) => {
                state.write(tier, now, cost, detail.entry().map(Arc::as_ref), max_entries, retain(rule))
            }
            Self::SlidingWindow(state) => state.write(rule.tiers, buckets(rule), now, cost),
            Self::SlidingLog(state) => state.write(tier, now, cost),
            Self::SlidingCounter(state) => state.write(tier, now, cost),
            Self::Gcra(state) => state.write(tier, bucket(rule), now, cost),
            Self::Concurrency(state) => state.write(tier, now, detail.member()),
            Self::Distinct(state) => state.write(tier, now, detail.member()),
        }
    }

    /// Counts a request of `cost` units that a read at the same `now` has denied, and whose cost is not above the
    /// limit. The count stops at the limit: the denied units replace the oldest. Returns whether state from the future
    /// was discarded. Algorithms that count members do nothing.
    pub fn count_denied(&mut self, rule: LimitRule<'_>, now: i64, cost: u64) -> bool {
        let tier = rule.tiers[0];
        match self {
            Self::SingleCounter(state) => state.count_denied(tier, now, cost),
            Self::FixedWindow(state) => state.count_denied(rule.tiers, now, cost),
            Self::CalendarWindow(state) => state.count_denied(rule.tiers, rule.bounds, now, cost),
            Self::MetadataList(state) => state.count_denied(tier, now, cost),
            Self::SlidingWindow(state) => state.count_denied(rule.tiers, buckets(rule), now, cost),
            Self::SlidingLog(state) => state.count_denied(tier, now, cost),
            Self::SlidingCounter(state) => state.count_denied(tier, now, cost),
            Self::Gcra(state) => state.count_denied(tier, bucket(rule), now, cost),
            Self::Concurrency(_) | Self::Distinct(_) => false,
        }
    }

    /// Refunds a write of `cost` units with this `detail` at the time `at`, as far as it still counts at the time
    /// `now`.
    pub fn refund(&mut self, rule: LimitRule<'_>, now: i64, at: i64, cost: u64, detail: &Detail) {
        let tier = rule.tiers[0];
        match self {
            Self::SingleCounter(state) => state.refund(tier, now, at, cost),
            Self::FixedWindow(state) => state.refund(rule.tiers, now, at, cost),
            Self::CalendarWindow(state) => state.refund(rule.bounds, now, at, cost),
            Self::MetadataList(state) => state.refund(tier, at, cost, detail.entry().map(Arc::as_ref)),
            Self::SlidingWindow(state) => state.refund(rule.tiers, buckets(rule), now, at, cost),
            Self::SlidingLog(state) => state.refund(at, cost),
            Self::SlidingCounter(state) => state.refund(tier, now, at, cost),
            Self::Gcra(state) => state.refund(tier, now, at, cost),
            Self::Concurrency(state) => state.refund(detail.member()),
            Self::Distinct(state) => state.refund(at, detail.member()),
        }
    }

    /// When units were taken that were taken `now`: by the limit's own time, which is ahead if the clock was set back. A
    /// refund needs it.
    pub fn taken_at(&self, rule: LimitRule<'_>, now: i64) -> i64 {
        let newest = match self {
            Self::SingleCounter(state) => state.start(),
            Self::FixedWindow(state) => state.newest_start(),
            Self::CalendarWindow(state) => state.newest_start(rule.bounds),
            Self::MetadataList(state) => state.start(),
            Self::SlidingWindow(state) => state.newest_start(rule.tiers, buckets(rule)),
            Self::SlidingLog(state) => state.newest().unwrap_or(now),
            Self::SlidingCounter(state) => state.start,
            Self::Gcra(state) => state.at,
            Self::Distinct(state) => state.newest().unwrap_or(now),
            // A lease is found by its token.
            Self::Concurrency(_) => now,
        };
        newest.max(now)
    }

    /// Used units of the tier `index` at the time `now`.
    pub fn used(&self, rule: LimitRule<'_>, index: usize, now: i64) -> u64 {
        let tier = rule.tiers[0];
        match self {
            Self::SingleCounter(state) => state.used(tier, now),
            Self::FixedWindow(state) => state.used(index, rule.tiers[index], now),
            Self::CalendarWindow(state) => state.used(index, rule.bounds, now),
            Self::MetadataList(state) => state.used(tier, now),
            Self::SlidingWindow(state) => state.used(index, rule.tiers[index], buckets(rule), now),
            Self::SlidingLog(state) => state.used(tier, now),
            Self::SlidingCounter(state) => state.used(tier, now),
            Self::Gcra(state) => state.used(tier, now),
            Self::Concurrency(state) => state.used(tier, now),
            Self::Distinct(state) => state.used(tier, now),
        }
    }

    /// Whether units of any tier are used at the time `now`.
    pub fn is_used(&self, rule: LimitRule<'_>, now: i64) -> bool {
        (0..rule.tiers.len()).any(|index| self.used(rule, index, now) > 0)
    }

    /// The entries that `metadata_list` recorded in the window of `now`, oldest first. Empty for the others.
    pub fn entries(&self, rule: LimitRule<'_>, now: i64) -> Vec<Arc<Entry>> {
        match self {
            Self::MetadataList(state) => {
                state.entries(rule.tiers[0], now, retain(rule)).map(Arc::new).collect()
            }
            _ => Vec::new(),
        }
    }

    /// How many entries of `metadata_list` are in memory, including those of a window that has ended.
    pub fn stored_entries(&self) -> usize {
        match self {
            Self::MetadataList(state) => state.stored_entries(),
            _ => 0,
        }
    }

    /// Drops the entries of `metadata_list`; all of them still count.
    pub fn drop_entries(&mut self) {
        if let Self::MetadataList(state) = self {
            state.drop_entries();
        }
    }

    /// Bytes on the heap, in blocks of the allocator.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::SingleCounter(_) | Self::SlidingCounter(_) | Self::Gcra(_) => 0,
            Self::FixedWindow(state) => state.heap_bytes(),
            Self::CalendarWindow(state) => state.heap_bytes(),
            Self::MetadataList(state) => state.heap_bytes(),
            Self::SlidingWindow(state) => state.heap_bytes(),
            Self::SlidingLog(state) => state.heap_bytes(),
            Self::Concurrency(state) => state.heap_bytes(),
            Self::Distinct(state) => state.heap_bytes(),
        }
    }

    /// When the state expires, in microseconds since the Unix epoch: from then on it counts nothing. `slowest_tier`:
    /// the lowest rate among the policies that share this state.
    pub fn expires_at(&self, rule: LimitRule<'_>, slowest_tier: Tier) -> i64 {
        let tier = rule.tiers[0];
        match self {
            Self::SingleCounter(state) => state.expires_at(tier),
            Self::FixedWindow(state) => state.expires_at(rule.tiers),
            Self::CalendarWindow(state) => state.expires_at(),
            Self::MetadataList(state) => state.expires_at(tier),
            Self::SlidingWindow(state) => state.expires_at(rule.tiers, buckets(rule)),
            Self::SlidingLog(state) => state.expires_at(tier),
            Self::SlidingCounter(state) => state.expires_at(tier),
            Self::Gcra(state) => state.expires_at(slowest_tier),
            Self::Concurrency(state) => state.expires_at(),
            Self::Distinct(state) => state.expires_at(tier),
        }
    }
}

/// The parameter of `metadata_list`.
fn retain(rule: LimitRule<'_>) -> i64 {
    match rule.kind {
        Kind::MetadataList { retain } => retain,
        _ => 0,
    }
}

/// The parameter of `sliding_window`.
fn buckets(rule: LimitRule<'_>) -> u32 {
    match rule.kind {
        Kind::SlidingWindow { buckets } => buckets,
        _ => 1,
    }
}

/// The parameters of `gcra`: burst and delay.
fn bucket(rule: LimitRule<'_>) -> (u64, i64) {
    match rule.kind {
        Kind::Gcra { burst, delay } => (burst, delay),
        _ => (rule.tiers[0].limit, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte here is needed a million times.
    #[test]
    fn the_state_of_a_limit_is_small() {
        assert!(size_of::<LimitState>() <= 32, "{} bytes", size_of::<LimitState>());
    }
}
