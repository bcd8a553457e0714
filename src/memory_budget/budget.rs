//! The shares of memory for limits and for evidence.
//!
//! A quarter for limits and a fifth for evidence leave more than half for connections, buffers, the runtime, bans, and
//! fragmentation of the heap, which can double the memory of evidence for a while when entries are replaced.

use super::{AvailableMemory, available};

/// The divisor of a budget that `proxy.yaml` does not set.
const LIMITS: u64 = 4;
const EVIDENCE: u64 = 5;
/// Upper bounds on a large machine: some ten million limits, and the evidence of a million addresses.
const MAX_LIMITS: u64 = 1 << 30;
const MAX_EVIDENCE: u64 = 512 << 20;
/// The memory assumed if the system does not tell.
const UNKNOWN: u64 = 512 << 20;

/// The bytes that limits and evidence may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryBudgets {
    pub limits: usize,
    pub evidence: usize,
    /// The memory that they are shares of. `None`: the system does not tell.
    pub available: Option<AvailableMemory>,
}

impl MemoryBudgets {
    /// `limits` and `evidence` as set in `proxy.yaml`, or else their shares of the available memory.
    pub fn new(limits: Option<usize>, evidence: Option<usize>) -> Self {
        Self::of(available(), limits, evidence)
    }

    fn of(available: Option<AvailableMemory>, limits: Option<usize>, evidence: Option<usize>) -> Self {
        let bytes = available.as_ref().map_or(UNKNOWN, |available| available.bytes);
        let share = |of: u64, most: u64| usize::try_from((bytes / of).min(most)).unwrap_or(usize::MAX);
        Self {
            limits: limits.unwrap_or_else(|| share(LIMITS, MAX_LIMITS)),
            evidence: evidence.unwrap_or_else(|| share(EVIDENCE, MAX_EVIDENCE)),
            available,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_budget_is_a_share_unless_it_is_set() {
        let of = |mib: u64, limits, evidence| {
            let available = Some(AvailableMemory { bytes: mib << 20, limited_by: None });
            let MemoryBudgets { limits, evidence, .. } = MemoryBudgets::of(available, limits, evidence);
            (limits >> 20, evidence >> 20)
        };
        assert_eq!(of(512, None, None), (128, 102));
        assert_eq!(of(512, Some(300 << 20), None), (300, 102));
        assert_eq!(of(512, None, Some(8 << 20)), (128, 8));
        assert_eq!(of(256 << 10, None, None), (1 << 10, 512));
        assert_eq!(MemoryBudgets::of(None, None, None).limits, 128 << 20);
    }
}
