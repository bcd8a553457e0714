//! The algorithms, with one table of their descriptions for the rest of the crate.

use super::{Tier, WindowBounds};

/// An algorithm, with its parameters beside the tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    SingleCounter,
    FixedWindow,
    /// `fixed_window` with windows of the calendar.
    CalendarWindow,
    /// `retain`: microseconds for which an entry may be kept.
    MetadataList {
        retain: i64,
    },
    /// The number of buckets in a window, 4 to 100.
    SlidingWindow {
        buckets: u32,
    },
    SlidingLog,
    SlidingCounter,
    /// `burst`: the size of the bucket. `delay`: how long a request may be delayed, in microseconds.
    Gcra {
        burst: u64,
        delay: i64,
    },
    /// The tier's limit is the number of requests in flight. Its window is how long a lease lasts unless it is renewed.
    Concurrency,
    Distinct,
}

/// The description of an algorithm for the rest of the crate.
#[derive(Debug, PartialEq, Eq)]
pub struct AlgorithmDescription {
    /// The name in proxy.yaml and the API. Two may be the same algorithm to users.
    pub name: &'static str,
    /// The number by which a batch names it to the Lua script: its position in [`Kind::ALL`], from 1.
    pub number: u64,
    /// The first word of the policy's shape, which is part of the key's name in Redis.
    pub shape: &'static str,
    /// Its Lua source, with the functions that it shares with another algorithm. Sets `algorithms[NUMBER]`.
    pub script: &'static str,
    /// Numbers in the script's reply for one tier.
    pub reply_width: usize,
    /// Whether its state is a Redis string. A batch reads all its strings with one MGET.
    pub is_string: bool,
    /// The input of a check besides its cost.
    pub detail: DetailKind,
}

/// The kind of an algorithm's input besides the cost. The input itself is a [`Detail`](super::Detail).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DetailKind {
    None,
    /// The entry to record: who made the request.
    Entry,
    /// The token of a lease.
    Token,
    /// The hash of the value that is counted.
    Value,
}

impl Kind {
    /// One of each, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::SingleCounter,
        Self::FixedWindow,
        Self::SlidingLog,
        Self::MetadataList { retain: i64::MAX },
        Self::SlidingWindow { buckets: 10 },
        Self::SlidingCounter,
        Self::Gcra { burst: 1, delay: 0 },
        Self::Concurrency,
        Self::Distinct,
        Self::CalendarWindow,
    ];

    /// The description of this algorithm.
    pub const fn description(self) -> &'static AlgorithmDescription {
        match self {
            Self::SingleCounter => &AlgorithmDescription {
                name: "single_counter",
                number: 1,
                shape: "sc",
                script: include_str!("../../../lua/single_counter.lua"),
                reply_width: 2,
                is_string: true,
                detail: DetailKind::None,
            },
            Self::FixedWindow => &AlgorithmDescription {
                name: "fixed_window",
                number: 2,
                shape: "fw",
                script: include_str!("../../../lua/fixed_window.lua"),
                reply_width: 2,
                is_string: true,
                detail: DetailKind::None,
            },
            Self::CalendarWindow => &AlgorithmDescription {
                name: "fixed_window",
                number: 10,
                shape: "fw",
                script: include_str!("../../../lua/calendar_window.lua"),
                reply_width: 2,
                is_string: true,
                detail: DetailKind::None,
            },
            Self::SlidingLog => &AlgorithmDescription {
                name: "sliding_log",
                number: 3,
                shape: "sl",
                script: include_str!("../../../lua/sliding_log.lua"),
                reply_width: 3,
                is_string: false,
                detail: DetailKind::None,
            },
            Self::MetadataList { .. } => &AlgorithmDescription {
                name: "metadata_list",
                number: 4,
                shape: "ml",
                script: include_str!("../../../lua/metadata_list.lua"),
                reply_width: 2,
                is_string: false,
                detail: DetailKind::Entry,
            },
            Self::SlidingWindow { .. } => &AlgorithmDescription {
                name: "sliding_window",
                number: 5,
                shape: "sw",
                script: include_str!("../../../lua/sliding_window.lua"),
                reply_width: 3,
                is_string: true,
                detail: DetailKind::None,
            },
            Self::SlidingCounter => &AlgorithmDescription {
                name: "sliding_counter",
                number: 6,
                shape: "sx",
                script: concat!(
                    include_str!("../../../lua/mul_div.lua"),
                    include_str!("../../../lua/sliding_counter.lua")
                ),
                reply_width: 3,
                is_string: true,
                detail: DetailKind::None,
            },
            Self::Gcra { .. } => &AlgorithmDescription {
                name: "gcra",
                number: 7,
                shape: "gcra",
                script: concat!(
                    include_str!("../../../lua/mul_div.lua"),
                    include_str!("../../../lua/gcra.lua")
                ),
                reply_width: 3,
                is_string: true,
                detail: DetailKind::None,
            },
            Self::Concurrency => &AlgorithmDescription {
                name: "concurrency",
                number: 8,
                shape: "cc",
                script: concat!(
                    include_str!("../../../lua/members.lua"),
                    include_str!("../../../lua/concurrency.lua")
                ),
                reply_width: 2,
                is_string: false,
                detail: DetailKind::Token,
            },
            Self::Distinct => &AlgorithmDescription {
                name: "distinct",
                number: 9,
                shape: "di",
                script: concat!(
                    include_str!("../../../lua/members.lua"),
                    include_str!("../../../lua/distinct.lua")
                ),
                reply_width: 4,
                is_string: false,
                detail: DetailKind::Value,
            },
        }
    }

    /// Whether it counts members, each once, instead of units.
    pub const fn counts_members(self) -> bool {
        matches!(self.description().detail, DetailKind::Token | DetailKind::Value)
    }

    /// Whether a request may cost more or less after its decision: its units are a count, and no entries of their own.
    pub const fn can_settle(self) -> bool {
        match self {
            Self::SingleCounter
            | Self::FixedWindow
            | Self::CalendarWindow
            | Self::SlidingWindow { .. }
            | Self::SlidingCounter
            | Self::Gcra { .. } => true,
            Self::MetadataList { .. } | Self::SlidingLog | Self::Concurrency | Self::Distinct => false,
        }
    }
}

/// An algorithm and its tiers. There is at least one tier, and exactly one unless the algorithm supports several.
#[derive(Debug, Clone, Copy)]
pub struct LimitRule<'a> {
    pub kind: Kind,
    pub tiers: &'a [Tier],
    /// For windows of the calendar: the windows about now, of each tier. Empty for the others.
    pub bounds: &'a [WindowBounds],
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_algorithm_has_a_place_a_name_and_a_shape_of_its_own() {
        let all = Kind::ALL.map(Kind::description);
        let numbers: Vec<u64> = all.iter().map(|algorithm| algorithm.number).collect();
        assert_eq!(numbers, (1..=all.len() as u64).collect::<Vec<_>>());
        let names: BTreeSet<_> = all.iter().map(|algorithm| (algorithm.name, algorithm.shape)).collect();
        // The two kinds of windows of `fixed_window` have one: the shape ends with the windows.
        assert_eq!(names.len(), all.len() - 1);
    }

    #[test]
    fn each_script_defines_the_number_that_the_table_says() {
        for AlgorithmDescription { name, number, script, .. } in Kind::ALL.map(Kind::description) {
            assert!(script.contains(&format!("\nalgorithms[{number}] = ")), "{name}");
        }
    }
}
