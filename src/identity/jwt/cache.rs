//! A cache of verified tokens: verifying a token costs as much as the rest of a request.

use std::hash::RandomState;

use indexmap::IndexMap;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::{
    token::{TokenIdentity, TokenRefusal},
    token_source::TokenSource,
};

/// Shards, each with its own lock.
const SHARDS: usize = 16;
/// Valid tokens in the cache, and as many invalid ones. A flood of invalid tokens evicts no valid one.
const CAPACITY: usize = 10_000;
/// Seconds for which an invalid token is cached. It may become valid (`nbf`).
const INVALID_TTL: u64 = 5;

/// The hash of a token and its source, so that the cache contains no token.
type TokenHash = [u8; 32];

/// A bounded cache of tokens.
pub(super) struct TokenCache {
    shards: Vec<Mutex<TokenShard>>,
}

#[derive(Default)]
struct TokenShard {
    valid: BoundedMap<TokenIdentity>,
    invalid: BoundedMap<TokenRefusal>,
}

/// A map that evicts a random entry when it is full.
struct BoundedMap<T>(IndexMap<TokenHash, CachedToken<T>, RandomState>);

struct CachedToken<T> {
    value: T,
    /// The last second in which it is valid.
    valid_until: u64,
    /// The generation of keys that the result is valid for.
    generation: u64,
}

impl Default for TokenCache {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }
}

impl<T> Default for BoundedMap<T> {
    fn default() -> Self {
        Self(IndexMap::default())
    }
}

impl<T: Clone> BoundedMap<T> {
    fn get(&mut self, id: &TokenHash, generation: u64, now: u64) -> Option<T> {
        let entry = self.0.get(id)?;
        if entry.generation == generation && now <= entry.valid_until {
            return Some(entry.value.clone());
        }
        self.0.swap_remove(id);
        None
    }

    fn insert(&mut self, id: TokenHash, entry: CachedToken<T>) {
        if self.0.len() >= CAPACITY / SHARDS && !self.0.contains_key(&id) {
            self.0.swap_remove_index(fastrand::usize(..self.0.len()));
        }
        self.0.insert(id, entry);
    }
}

impl TokenCache {
    /// Verifies the `token` of `source`, the source number `index`. `now`: in Unix seconds.
    ///
    /// # Errors
    /// The token is refused.
    pub(super) fn verify(
        &self,
        source: &TokenSource,
        index: usize,
        token: &[u8],
        now: u64,
    ) -> Result<TokenIdentity, TokenRefusal> {
        // Read before the token is verified, so that the result is never assigned to newer keys.
        let Some(keys) = source.keys() else { return Err(TokenRefusal::NoKeySet) };
        let hash = hash(index, token);
        let shard = &self.shards[usize::from(hash[0]) % SHARDS];
        {
            let mut shard = shard.lock();
            if let Some(identity) = shard.valid.get(&hash, keys.generation, now) {
                return Ok(identity);
            }
            if let Some(refusal) = shard.invalid.get(&hash, keys.generation, now) {
                return Err(refusal);
            }
        }
        let verified = source.verify(token, &keys);
        let mut shard = shard.lock();
        let generation = keys.generation;
        match verified {
            Ok(token) => {
                let value = token.identity.clone();
                shard.valid.insert(hash, CachedToken { value, valid_until: token.valid_until, generation });
                Ok(token.identity)
            }
            Err(error) => {
                let (value, valid_until) = (error.refusal(), now + INVALID_TTL);
                shard.invalid.insert(hash, CachedToken { value, valid_until, generation });
                Err(value)
            }
        }
    }
}

fn hash(index: usize, token: &[u8]) -> TokenHash {
    Sha256::new().chain_update(index.to_le_bytes()).chain_update(token).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(valid_until: u64, generation: u64) -> CachedToken<u8> {
        CachedToken { value: 1, valid_until, generation }
    }

    #[test]
    fn entries_that_expired_or_are_of_other_keys_are_dropped() {
        let mut map = BoundedMap::default();
        map.insert([1; 32], entry(100, 7));
        assert_eq!(map.get(&[1; 32], 7, 100), Some(1));
        assert_eq!(map.get(&[1; 32], 7, 101), None);
        map.insert([1; 32], entry(100, 7));
        assert_eq!(map.get(&[1; 32], 8, 50), None);
        assert_eq!(map.get(&[1; 32], 7, 50), None, "it was dropped");
    }

    #[test]
    fn the_map_is_bounded() {
        let mut map = BoundedMap::default();
        for n in 0..10 * CAPACITY as u64 {
            let mut id = [0; 32];
            id[..8].copy_from_slice(&n.to_le_bytes());
            map.insert(id, entry(100, 0));
            assert_eq!(map.get(&id, 0, 1), Some(1), "the newest is kept");
        }
        assert_eq!(map.0.len(), CAPACITY / SHARDS);
    }
}
