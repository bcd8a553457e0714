//! How many different users were behind an address.

use std::collections::HashSet;

use sha2::{Digest, Sha256};

/// Users counted exactly; an address that shows this many has them at least.
pub const USERS: usize = 1_000;

/// A set of users. Their names are not needed, only what tells them apart: the first 64 bits of SHA-256 of
/// the name, big-endian, which are the same on every instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Users(HashSet<u64, foldhash::fast::RandomState>);

impl Users {
    pub(super) fn add(&mut self, user: &str) {
        if self.0.len() < USERS {
            self.0.insert(hash(user));
        }
    }

    /// Adds those of another set, or of another instance.
    pub(super) fn extend(&mut self, hashes: impl IntoIterator<Item = u64>) {
        for hash in hashes {
            if self.0.len() >= USERS {
                return;
            }
            self.0.insert(hash);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn hashes(&self) -> impl Iterator<Item = u64> {
        self.0.iter().copied()
    }

    /// How many there are in either; [`USERS`] at most.
    pub(super) fn len_with(&self, other: &Self) -> usize {
        let (more, fewer) = if self.len() < other.len() { (other, self) } else { (self, other) };
        if more.len() >= USERS || fewer.len() == 0 {
            return more.len();
        }
        (more.len() + fewer.0.difference(&more.0).count()).min(USERS)
    }
}

fn hash(user: &str) -> u64 {
    let digest = Sha256::digest(user);
    digest.iter().take(8).fold(0, |hash, &byte| hash << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(names: std::ops::Range<usize>) -> Users {
        let mut users = Users::default();
        names.for_each(|name| users.add(&name.to_string()));
        users
    }

    #[test]
    fn the_hash_is_the_same_everywhere() {
        // printf acme | sha256sum
        assert_eq!(hash("acme"), 0x822b_33ad_87c1_48a0);
    }

    #[test]
    fn sets_are_united_up_to_the_bound() {
        let mut all = users(0..10);
        assert_eq!(all.len_with(&users(5..20)), 20);
        assert_eq!(users(5..20).len_with(&all), 20);
        all.extend(users(5..20).hashes());
        assert_eq!(all.len(), 20);
        assert_eq!(users(0..USERS - 1).len_with(&users(USERS..USERS + 9)), USERS);
        all.extend(users(0..2 * USERS).hashes());
        all.extend([1, 2, 3]);
        assert_eq!((users(0..2 * USERS).len(), all.len()), (USERS, USERS));
    }
}
