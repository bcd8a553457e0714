//! Counts distinct hashes in a bounded space.

use serde::{Deserialize, Serialize};

/// Hashes that are kept.
const KEPT: usize = 128;

/// The smallest hashes of a set (k minimum values; Bar-Yossef et al., 2002): exact up to 128, then wrong by about a tenth. Merged
/// in any order and any number of times, it is the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<u32>")]
pub struct Distinct(Vec<u32>);

impl Distinct {
    /// Adds a hash, whose bits are evenly distributed.
    pub(in crate::abuse) fn add(&mut self, hash: u32) {
        let Err(at) = self.0.binary_search(&hash) else { return };
        if at < KEPT {
            self.0.truncate(KEPT - 1);
            self.0.insert(at, hash);
        }
    }

    pub(in crate::abuse) fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|&hash| self.add(hash));
    }

    /// The approximate number of different hashes.
    pub fn count(&self) -> u64 {
        match (self.0.len(), self.0.last()) {
            (KEPT.., Some(&largest)) => {
                ((KEPT - 1) as u64) * (u64::from(u32::MAX) + 1) / (u64::from(largest) + 1)
            }
            (few, _) => few as u64,
        }
    }

    /// Bytes on the heap.
    pub(in crate::abuse) fn bytes(&self) -> usize {
        crate::memory_budget::heap::array::<u32>(self.0.capacity())
    }
}

impl From<Vec<u32>> for Distinct {
    /// They may be received from elsewhere, so they are put in order, and excess ones are left out.
    fn from(mut hashes: Vec<u32>) -> Self {
        hashes.sort_unstable();
        hashes.dedup();
        hashes.truncate(KEPT);
        Self(hashes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_counted_exactly_and_many_roughly() {
        let mut random = fastrand::Rng::with_seed(1);
        for (count, most_off) in [(0, 0), (1, 0), (100, 0), (1_000, 250), (100_000, 25_000)] {
            let hashes: Vec<u32> = (0..count).map(|_| random.u32(..)).collect();
            let [mut one, mut other] = [(); 2].map(|()| Distinct::default());
            hashes.iter().for_each(|&hash| one.add(hash));
            hashes.iter().rev().for_each(|&hash| other.add(hash));
            other.merge(&one);
            assert_eq!(one, other);
            assert!(one.count().abs_diff(count) <= most_off, "{count}: {}", one.count());
        }
    }
}
