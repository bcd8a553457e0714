//! The lengths of banned prefixes: an address is looked up once for each length.

use smallvec::SmallVec;

/// Lengths of prefixes, the longest first, and the number of prefixes with each.
#[derive(Debug, Clone, Default)]
pub(super) struct PrefixLengths(SmallVec<[(u8, usize); 4]>);

impl PrefixLengths {
    pub(super) fn add(&mut self, length: u8) {
        match self.0.binary_search_by(|(known, _)| length.cmp(known)) {
            Ok(at) => self.0[at].1 += 1,
            Err(at) => self.0.insert(at, (length, 1)),
        }
    }

    pub(super) fn remove(&mut self, length: u8) {
        if let Ok(at) = self.0.binary_search_by(|(known, _)| length.cmp(known)) {
            self.0[at].1 -= 1;
            if self.0[at].1 == 0 {
                self.0.remove(at);
            }
        }
    }

    /// The longest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = u8> {
        self.0.iter().map(|&(length, _)| length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_there_for_as_long_as_some_prefix_has_it() {
        let mut lengths = PrefixLengths::default();
        [8, 32, 24, 8].into_iter().for_each(|length| lengths.add(length));
        assert_eq!(lengths.iter().collect::<Vec<_>>(), [32, 24, 8]);
        [8, 24, 9].into_iter().for_each(|length| lengths.remove(length));
        assert_eq!(lengths.iter().collect::<Vec<_>>(), [32, 8]);
        lengths.remove(8);
        assert_eq!(lengths.iter().collect::<Vec<_>>(), [32]);
    }
}
