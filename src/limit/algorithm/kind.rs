//! The algorithms that there are, and the one table of what the rest of the crate needs to know of each.

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

/// What an algorithm is to everybody but itself.
#[derive(Debug, PartialEq, Eq)]
pub struct Description {
    /// As proxy.yaml and the API write it.
    pub name: &'static str,
    /// By which a batch names it to the script; its place in [`Kind::ALL`], from 1.
    pub number: u64,
    /// With which its shapes begin. Keys in Redis have it in their names.
    pub shape: &'static str,
    /// What it is in Lua: defines `algorithms[NUMBER]`.
    pub script: &'static str,
    /// How many numbers the script says of one tier.
    pub reply_width: usize,
    /// Whether Redis keeps its state as a string, so that a batch reads it together with others.
    pub is_string: bool,
    /// What a check takes beside its cost.
    pub takes: Takes,
}

/// What a check of some algorithms takes beside its cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    /// Who made the request, to be written down.
    Entry,
    /// The token of a lease.
    Token,
    /// The value that is counted, hashed.
    Value,
}

impl Kind {
    /// One of each, by their numbers.
    pub const ALL: [Self; 9] = [
        Self::SingleCounter,
        Self::FixedWindow,
        Self::SlidingLog,
        Self::MetadataList,
        Self::SlidingWindow { buckets: 10 },
        Self::SlidingCounter,
        Self::Gcra { burst: 1, delay: 0 },
        Self::Concurrency,
        Self::Distinct,
    ];

    /// The table.
    pub const fn description(self) -> &'static Description {
        match self {
            Self::SingleCounter => &Description {
                name: "single_counter",
                number: 1,
                shape: "sc",
                script: include_str!("../../../lua/single_counter.lua"),
                reply_width: 2,
                is_string: true,
                takes: Takes::Nothing,
            },
            Self::FixedWindow => &Description {
                name: "fixed_window",
                number: 2,
                shape: "fw",
                script: include_str!("../../../lua/fixed_window.lua"),
                reply_width: 2,
                is_string: true,
                takes: Takes::Nothing,
            },
            Self::SlidingLog => &Description {
                name: "sliding_log",
                number: 3,
                shape: "sl",
                script: include_str!("../../../lua/sliding_log.lua"),
                reply_width: 3,
                is_string: false,
                takes: Takes::Nothing,
            },
            Self::MetadataList => &Description {
                name: "metadata_list",
                number: 4,
                shape: "ml",
                script: include_str!("../../../lua/metadata_list.lua"),
                reply_width: 2,
                is_string: false,
                takes: Takes::Entry,
            },
            Self::SlidingWindow { .. } => &Description {
                name: "sliding_window",
                number: 5,
                shape: "sw",
                script: include_str!("../../../lua/sliding_window.lua"),
                reply_width: 3,
                is_string: true,
                takes: Takes::Nothing,
            },
            Self::SlidingCounter => &Description {
                name: "sliding_counter",
                number: 6,
                shape: "sx",
                script: include_str!("../../../lua/sliding_counter.lua"),
                reply_width: 3,
                is_string: true,
                takes: Takes::Nothing,
            },
            Self::Gcra { .. } => &Description {
                name: "gcra",
                number: 7,
                shape: "gcra",
                script: include_str!("../../../lua/gcra.lua"),
                reply_width: 3,
                is_string: true,
                takes: Takes::Nothing,
            },
            Self::Concurrency => &Description {
                name: "concurrency",
                number: 8,
                shape: "cc",
                script: include_str!("../../../lua/concurrency.lua"),
                reply_width: 2,
                is_string: false,
                takes: Takes::Token,
            },
            Self::Distinct => &Description {
                name: "distinct",
                number: 9,
                shape: "di",
                script: include_str!("../../../lua/distinct.lua"),
                reply_width: 4,
                is_string: false,
                takes: Takes::Value,
            },
        }
    }

    /// Whether members are counted, each once, and not units.
    pub const fn counts_members(self) -> bool {
        matches!(self.description().takes, Takes::Token | Takes::Value)
    }
}

/// An algorithm and its tiers: never empty, and only one where the algorithm has no several.
#[derive(Debug, Clone, Copy)]
pub struct Rule<'a> {
    pub kind: Kind,
    pub tiers: &'a [Tier],
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
        let names: BTreeSet<_> = all.iter().map(|algorithm| algorithm.name).collect();
        let shapes: BTreeSet<_> = all.iter().map(|algorithm| algorithm.shape).collect();
        assert_eq!((names.len(), shapes.len()), (all.len(), all.len()));
    }

    #[test]
    fn each_script_defines_the_number_that_the_table_says() {
        for Description { name, number, script, .. } in Kind::ALL.map(Kind::description) {
            assert!(script.contains(&format!("\nalgorithms[{number}] = ")), "{name}");
        }
    }
}
