//! What a limit goes by: an algorithm with its tiers.

use super::Tier;

/// Which algorithm, with what it takes beside its tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    SingleCounter,
    FixedWindow,
    MetadataList,
    /// Into how many buckets each window is cut, 4 to 100.
    SlidingWindow {
        buckets: u32,
    },
    SlidingLog,
    SlidingCounter,
    /// The units that the bucket holds, and for how many microseconds a request may wait for its place in it.
    Gcra {
        burst: u64,
        delay: i64,
    },
    /// Its tier's limit is how many may be under way, its window how long a lease lasts that nobody renews.
    Concurrency,
    Distinct,
}

impl Kind {
    /// Whether members are counted, each once, and not units.
    pub fn counts_members(self) -> bool {
        matches!(self, Self::Concurrency | Self::Distinct)
    }
}

/// An algorithm and its tiers: never empty, and only one where the algorithm has no several.
#[derive(Debug, Clone, Copy)]
pub struct Rule<'a> {
    pub kind: Kind,
    pub tiers: &'a [Tier],
}
