//! The keys of a batch, each once: hot keys are named repeatedly.

use std::{hash::BuildHasher, sync::LazyLock};

use hashbrown::HashTable;

/// Seeded at random: identifiers come from clients, who must not be able to choose collisions.
static HASHER: LazyLock<foldhash::fast::RandomState> = LazyLock::new(foldhash::fast::RandomState::default);

/// Keys in the order of their first use.
#[derive(Debug, Default)]
pub(super) struct LimitKeys {
    /// The concatenated keys.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    known: HashTable<usize>,
}

impl LimitKeys {
    /// The number, from 1, of the key that `write` appends.
    pub(super) fn number_of(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> i64 {
        let Self { bytes, ends, known } = self;
        let start = bytes.len();
        write(bytes);
        let key = |index: usize| &bytes[begin(ends, index)..ends[index]];
        let (hash, new) = (HASHER.hash_one(&bytes[start..]), &bytes[start..]);
        let index = match known.find(hash, |&index| key(index) == new) {
            Some(&index) => {
                bytes.truncate(start);
                index
            }
            None => {
                let index = ends.len();
                known.insert_unique(hash, index, |&index| HASHER.hash_one(key(index)));
                ends.push(bytes.len());
                index
            }
        };
        // At most a few hundred.
        i64::try_from(index).unwrap_or(i64::MAX - 1) + 1
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The total length of the keys.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The key with this index.
    pub(super) fn get(&self, index: usize) -> Option<&[u8]> {
        self.bytes.get(begin(&self.ends, index)..*self.ends.get(index)?)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

fn begin(ends: &[usize], index: usize) -> usize {
    index.checked_sub(1).map_or(0, |before| ends[before])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_number_however_often_it_comes() {
        let mut keys = LimitKeys::default();
        let mut number = |key: &str| keys.number_of(|bytes| bytes.extend_from_slice(key.as_bytes()));
        assert_eq!(["a", "bc", "a", "", "b", "bc", "c"].map(&mut number), [1, 2, 1, 3, 4, 2, 5]);
        for i in 0..200 {
            number(&format!("key-{i}"));
        }
        assert_eq!((number("key-7"), number("a")), (13, 1));
        assert_eq!((keys.len(), keys.iter().nth(12)), (205, Some(b"key-7".as_slice())));
    }
}
