//! The state of one limit, whichever its algorithm.

use std::sync::Arc;

use super::{
    Tier, Verdict,
    fixed_window::FixedWindow,
    metadata_list::{Entry, MetadataList},
    single_counter::SingleCounter,
    sliding_log::SlidingLog,
};

/// Which algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    SingleCounter,
    FixedWindow,
    SlidingLog,
    MetadataList,
}

/// What one limit remembers. `tiers` is always that of its policy: never empty, and of its first alone
/// where the algorithm has no several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    SingleCounter(SingleCounter),
    FixedWindow(FixedWindow),
    SlidingLog(SlidingLog),
    MetadataList(MetadataList),
}

impl State {
    /// A limit that nothing was taken of. Allocates nothing.
    pub fn new(kind: Kind) -> Self {
        match kind {
            Kind::SingleCounter => Self::SingleCounter(SingleCounter::default()),
            Kind::FixedWindow => Self::FixedWindow(FixedWindow::default()),
            Kind::SlidingLog => Self::SlidingLog(SlidingLog::default()),
            Kind::MetadataList => Self::MetadataList(MetadataList::default()),
        }
    }

    /// What a request of `cost` units is told, were it to come `now`; remaining and reset as they are
    /// after it where it is admitted. Changes nothing. A cost of 0 only looks.
    pub fn read(&self, tiers: &[Tier], now: i64, cost: u64) -> Verdict {
        match self {
            Self::SingleCounter(state) => state.read(tiers[0], now, cost),
            Self::FixedWindow(state) => state.read(tiers, now, cost),
            Self::SlidingLog(state) => state.read(tiers[0], now, cost),
            Self::MetadataList(state) => state.read(tiers[0], now, cost),
        }
    }

    /// Takes `cost` units, which a read at the same `now` has admitted. `metadata_list` writes `entry`
    /// down and keeps the newest `keep`. Says whether state from the future was discarded.
    pub fn write(
        &mut self,
        tiers: &[Tier],
        now: i64,
        cost: u64,
        entry: Option<&Arc<Entry>>,
        keep: usize,
    ) -> bool {
        match self {
            Self::SingleCounter(state) => state.write(tiers[0], now, cost),
            Self::FixedWindow(state) => state.write(tiers, now, cost),
            Self::SlidingLog(state) => state.write(tiers[0], now, cost),
            Self::MetadataList(state) => state.write(tiers[0], now, cost, entry, keep),
        }
    }

    /// Units of the tier `index` that are taken `now`.
    pub fn used(&self, tiers: &[Tier], index: usize, now: i64) -> u64 {
        match self {
            Self::SingleCounter(state) => state.used(tiers[0], now),
            Self::FixedWindow(state) => state.used(index, tiers[index], now),
            Self::SlidingLog(state) => state.used(tiers[0], now),
            Self::MetadataList(state) => state.used(tiers[0], now),
        }
    }

    /// Whether units of any tier are taken `now`.
    pub fn is_touched(&self, tiers: &[Tier], now: i64) -> bool {
        (0..tiers.len()).any(|index| self.used(tiers, index, now) > 0)
    }

    /// What `metadata_list` wrote down in the window of `now`, oldest first; of the others, nothing.
    pub fn entries(&self, tiers: &[Tier], now: i64) -> Vec<Arc<Entry>> {
        match self {
            Self::MetadataList(state) => state.entries(tiers[0], now).cloned().collect(),
            Self::SingleCounter(_) | Self::FixedWindow(_) | Self::SlidingLog(_) => Vec::new(),
        }
    }

    /// How many entries of `metadata_list` take up memory, whether their window is over or not.
    pub fn held(&self) -> usize {
        match self {
            Self::MetadataList(state) => state.held(),
            Self::SingleCounter(_) | Self::FixedWindow(_) | Self::SlidingLog(_) => 0,
        }
    }

    /// When nothing in it matters any more, in microseconds since the Unix epoch.
    pub fn expires(&self, tiers: &[Tier]) -> i64 {
        match self {
            Self::SingleCounter(state) => state.expires(tiers[0]),
            Self::FixedWindow(state) => state.expires(tiers),
            Self::SlidingLog(state) => state.expires(tiers[0]),
            Self::MetadataList(state) => state.expires(tiers[0]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte here is paid a million times.
    #[test]
    fn the_state_of_a_limit_is_small() {
        assert!(size_of::<State>() <= 32, "{} bytes", size_of::<State>());
    }
}
