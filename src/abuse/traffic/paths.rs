//! The paths that a client requests most.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// Number of paths that are counted.
const PATHS: usize = 4;

/// A Misra-Gries summary: it contains each path with more than a fifth of the requests, with a count that is too low
/// by at most a fifth of them. Paths are hashes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u32, u32)>", into = "Vec<(u32, u32)>")]
pub(super) struct PathCounts(SmallVec<[(u32, u32); PATHS]>);

impl PathCounts {
    /// Adds requests for a path.
    pub(super) fn add(&mut self, path: u32, requests: u32) {
        if let Some((_, count)) = self.0.iter_mut().find(|(known, _)| *known == path) {
            *count = count.saturating_add(requests);
            return;
        }
        if self.0.len() < PATHS {
            self.0.push((path, requests));
            return;
        }
        // Requests for different paths cancel each other.
        let least = self.0.iter().map(|&(_, count)| count).min().unwrap_or(0);
        let cancelled = least.min(requests);
        self.0.iter_mut().for_each(|(_, count)| *count -= cancelled);
        self.0.retain(|(_, count)| *count > 0);
        if requests > cancelled {
            self.0.push((path, requests - cancelled));
        }
    }

    /// Adds the requests of others, and keeps all paths, so that the order of merging does not matter.
    pub(super) fn merge(&mut self, other: &Self) {
        for &(path, requests) in &other.0 {
            match self.0.iter_mut().find(|(known, _)| *known == path) {
                Some((_, count)) => *count = count.saturating_add(requests),
                None => self.0.push((path, requests)),
            }
        }
    }

    /// Subtracts requests that were added.
    pub(super) fn subtract(&mut self, part: &Self) {
        for &(path, requests) in &part.0 {
            if let Some((_, count)) = self.0.iter_mut().find(|(known, _)| *known == path) {
                *count = count.saturating_sub(requests);
            }
        }
        self.0.retain(|(_, count)| *count > 0);
    }

    /// Drops paths that a single summary would not have.
    pub(super) fn trim(&mut self) {
        if self.0.len() > PATHS {
            self.0.sort_unstable_by_key(|&(path, count)| (std::cmp::Reverse(count), path));
            let next = self.0.get(PATHS).map_or(0, |&(_, count)| count);
            self.0.truncate(PATHS);
            self.0.iter_mut().for_each(|(_, count)| *count -= next);
            self.0.retain(|(_, count)| *count > 0);
            self.0.shrink_to_fit();
        }
    }

    /// The path that is requested most, and its number of requests.
    pub(super) fn top(&self) -> Option<(u32, u32)> {
        self.0.iter().copied().max_by_key(|&(path, count)| (count, path))
    }

    /// Bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        if self.0.spilled() { crate::memory_budget::heap::array::<(u32, u32)>(self.0.capacity()) } else { 0 }
    }
}

impl From<Vec<(u32, u32)>> for PathCounts {
    /// They may be received from elsewhere, so excess ones are left out.
    fn from(counts: Vec<(u32, u32)>) -> Self {
        Self(counts.into_iter().take(PATHS).collect())
    }
}

impl From<PathCounts> for Vec<(u32, u32)> {
    fn from(PathCounts(counts): PathCounts) -> Self {
        counts.into_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_that_is_requested_most_is_found_among_many() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut paths = PathCounts::default();
        for _ in 0..10_000 {
            paths.add(if random.u8(..10) < 6 { 7 } else { random.u32(..) }, 1);
        }
        let (path, count) = paths.top().unwrap();
        assert!(path == 7 && (4_000..6_200).contains(&count), "{path} {count}");
    }

    #[test]
    fn merging_is_the_same_in_any_order() {
        let counts = |paths: &[u32]| {
            let mut counts = PathCounts::default();
            paths.iter().for_each(|&path| counts.add(path, 1));
            counts
        };
        let all = [counts(&[1, 1, 2]), counts(&[3, 4, 5]), counts(&[2, 6, 6, 7])];
        let merged = |order: [usize; 3]| {
            let mut merged = PathCounts::default();
            order.iter().for_each(|&nth| merged.merge(&all[nth]));
            merged
        };
        assert_eq!(merged([0, 1, 2]).top(), merged([2, 1, 0]).top());
        let mut trimmed = merged([1, 2, 0]);
        trimmed.trim();
        assert!(trimmed.0.len() <= PATHS && trimmed.bytes() == 0, "{trimmed:?}");
    }
}
