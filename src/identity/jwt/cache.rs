//! Tokens that were looked at before: verifying one costs as much as the rest of a request.

use std::hash::RandomState;

use indexmap::IndexMap;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::{Verified, source::Source};

/// Shards, each behind a lock of its own.
const SHARDS: usize = 16;
/// Tokens that count, and as many that do not. A flood of bad ones puts no good one out.
const KEPT: usize = 10_000;
/// For how many seconds it is remembered that a token does not count. One may come to count when its time comes.
const REFUSED: u64 = 5;

/// What a token came to, by the hash of the token and its source: whoever reads this memory finds no token.
type Id = [u8; 32];

/// A bounded memory of tokens.
pub(super) struct Cache {
    shards: Vec<Mutex<Shard>>,
}

#[derive(Default)]
struct Shard {
    good: Kept<Verified>,
    bad: Kept<()>,
}

/// Bounded; when it is full, any one makes room.
struct Kept<T>(IndexMap<Id, Entry<T>, RandomState>);

struct Entry<T> {
    what: T,
    /// The last second in which it holds.
    until: u64,
    /// It holds for these keys alone.
    generation: u64,
}

impl Default for Cache {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(IndexMap::default())
    }
}

impl<T: Clone> Kept<T> {
    fn get(&mut self, id: &Id, generation: u64, now: u64) -> Option<T> {
        let entry = self.0.get(id)?;
        if entry.generation == generation && now <= entry.until {
            return Some(entry.what.clone());
        }
        self.0.swap_remove(id);
        None
    }

    fn put(&mut self, id: Id, entry: Entry<T>) {
        if self.0.len() >= KEPT / SHARDS && !self.0.contains_key(&id) {
            self.0.swap_remove_index(fastrand::usize(..self.0.len()));
        }
        self.0.insert(id, entry);
    }
}

impl Cache {
    /// What the `token` of this source says, the `index`-th of all, if it counts `now`, in seconds.
    pub(super) fn verified(&self, source: &Source, index: usize, token: &[u8], now: u64) -> Option<Verified> {
        let id = id(index, token);
        let shard = &self.shards[usize::from(id[0]) % SHARDS];
        // Before the token is verified, so that what it comes to is never taken for newer than it is.
        let keys = source.keys();
        {
            let mut shard = shard.lock();
            if let Some(verified) = shard.good.get(&id, keys.generation, now) {
                return Some(verified);
            }
            if shard.bad.get(&id, keys.generation, now).is_some() {
                return None;
            }
        }
        let found = source.verify(token, &keys).ok();
        let mut shard = shard.lock();
        let generation = keys.generation;
        match found {
            Some(found) => {
                let what = found.verified.clone();
                shard.good.put(id, Entry { what, until: found.until, generation });
                Some(found.verified)
            }
            None => {
                shard.bad.put(id, Entry { what: (), until: now + REFUSED, generation });
                None
            }
        }
    }
}

fn id(index: usize, token: &[u8]) -> Id {
    Sha256::new().chain_update(index.to_le_bytes()).chain_update(token).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(until: u64, generation: u64) -> Entry<u8> {
        Entry { what: 1, until, generation }
    }

    #[test]
    fn what_is_over_or_of_other_keys_does_not_hold() {
        let mut kept = Kept::default();
        kept.put([1; 32], entry(100, 7));
        assert_eq!(kept.get(&[1; 32], 7, 100), Some(1));
        assert_eq!(kept.get(&[1; 32], 7, 101), None);
        kept.put([1; 32], entry(100, 7));
        assert_eq!(kept.get(&[1; 32], 8, 50), None);
        assert_eq!(kept.get(&[1; 32], 7, 50), None, "it was dropped");
    }

    #[test]
    fn it_is_bounded() {
        let mut kept = Kept::default();
        for n in 0..10 * KEPT as u64 {
            let mut id = [0; 32];
            id[..8].copy_from_slice(&n.to_le_bytes());
            kept.put(id, entry(100, 0));
            assert_eq!(kept.get(&id, 0, 1), Some(1), "the newest is kept");
        }
        assert_eq!(kept.0.len(), KEPT / SHARDS);
    }
}
