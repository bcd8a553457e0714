//! The number of distinct users behind an address, in a form that instances can share: small, and independent of the
//! order in which it is merged.

use std::{cmp::Reverse, mem::replace};

use serde::{Deserialize, Serialize};

/// Maximum number of users kept. Up to this number the count is exact, and beyond it is within about 2 %.
const MOST: usize = 8_192;

/// A theta sketch: the hashes of users below a threshold, each with the time slice in which the user was last seen.
/// When there are too many, the threshold is lowered and the hashes above it are removed. The rest is extrapolated:
/// hashes are spread evenly, so their number in a part of the range gives the number in the whole range.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserSample {
    /// Hashes from here on were left out. 0: none were.
    threshold: u32,
    /// The last slice in which any user was seen.
    newest: u32,
    /// By hash: the difference from the previous hash, and the number of slices before `newest` in which the user was
    /// last seen.
    users: Vec<(u32, u32)>,
}

impl UserSample {
    /// Adds users who were seen in this slice, by their hashes.
    pub(super) fn add(&mut self, hashes: &[u64], slice: u32) {
        if hashes.is_empty() {
            return;
        }
        let mut all = self.hashes();
        // The upper half is enough, because only an even spread is needed.
        all.extend(hashes.iter().map(|hash| ((hash >> 32) as u32, slice)));
        self.replace(all);
    }

    /// Removes users who were seen before this slice.
    pub(super) fn expire(&mut self, first: u32) {
        let is_over = |age: u32| self.newest.saturating_sub(age) < first;
        if self.users.iter().any(|&(_, age)| is_over(age)) {
            let mut all = self.hashes();
            all.retain(|&(_, slice)| slice >= first);
            self.replace(all);
        }
        if self.users.is_empty() {
            *self = Self::default();
        }
    }

    /// The number of users, approximately.
    pub fn len(&self) -> u64 {
        let known = self.users.len() as u64;
        match self.threshold {
            0 => known,
            threshold => (known << 32) / u64::from(threshold),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// The hashes and slices in ascending order. They may be received from elsewhere, so excess ones are left out.
    fn hashes(&self) -> Vec<(u32, u32)> {
        let mut hash = 0_u32;
        let add = |&(difference, age): &(u32, u32)| {
            hash = hash.saturating_add(difference);
            (hash, self.newest.saturating_sub(age))
        };
        self.users.iter().take(MOST).map(add).collect()
    }

    fn replace(&mut self, mut all: Vec<(u32, u32)>) {
        // For the same hash, the last slice sorts first.
        all.sort_unstable_by_key(|&(hash, slice)| (hash, Reverse(slice)));
        all.dedup_by_key(|(hash, _)| *hash);
        if self.threshold > 0 {
            all.retain(|&(hash, _)| hash < self.threshold);
        }
        if let Some(&(hash, _)) = all.get(MOST) {
            self.threshold = hash.max(1);
            all.truncate(MOST);
        }
        let newest = all.iter().map(|&(_, slice)| slice).max().unwrap_or(0);
        let mut last = 0;
        self.newest = newest;
        self.users =
            all.into_iter().map(|(hash, slice)| (hash - replace(&mut last, hash), newest - slice)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(random: &mut fastrand::Rng, count: usize) -> Vec<u64> {
        (0..count).map(|_| random.u64(..)).collect()
    }

    #[test]
    fn few_users_are_counted_exactly_and_once() {
        let mut random = fastrand::Rng::with_seed(1);
        let (all, mut sample) = (users(&mut random, MOST), UserSample::default());
        sample.add(&all[..5_000], 1);
        sample.add(&all[3_000..], 2);
        assert_eq!(sample.len(), MOST as u64);
        sample.expire(2);
        assert_eq!(sample.len(), MOST as u64 - 3_000, "those who were seen again stay");
        sample.expire(3);
        assert!(sample.is_empty());
    }

    #[test]
    fn many_users_are_counted_nearly_exactly_in_little_space() {
        for size in [5_000, 10_000, 100_000] {
            let mut random = fastrand::Rng::with_seed(size as u64);
            let mut worst = 0;
            for _ in 0..20 {
                let (all, mut sample) = (users(&mut random, size), UserSample::default());
                all.chunks(4_000).for_each(|some| sample.add(some, 1));
                worst = worst.max(sample.len().abs_diff(size as u64) * 100 / size as u64);
                assert!(sample.users.len() <= MOST);
            }
            assert!(worst <= 4, "{size} users: {worst} %");
        }
    }

    #[test]
    fn slices_that_expire_leave_their_share_of_an_estimate() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut sample = UserSample::default();
        sample.add(&users(&mut random, 50_000), 1);
        sample.add(&users(&mut random, 20_000), 2);
        sample.expire(2);
        assert!(sample.len().abs_diff(20_000) < 1_600, "{}", sample.len());
    }

    #[test]
    fn values_that_no_instance_writes_do_no_harm() {
        let mut sample = UserSample { threshold: 1, newest: 3, users: vec![(u32::MAX, 7); 20_000] };
        sample.add(&[7 << 32], 9);
        assert!(sample.len() <= u64::from(u32::MAX) * MOST as u64);
        sample.expire(9);
        sample.expire(10);
        assert_eq!(sample, UserSample::default());
    }
}
