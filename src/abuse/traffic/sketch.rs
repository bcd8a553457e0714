//! The approximate number of different things that a client sends: URLs, `User-Agent`s, sessions.

use serde::{Deserialize, Serialize};

/// Linear counting (Whang et al., 1990) in 128 bits: within a tenth up to a hundred, and full at about 600.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::abuse) struct Sketch(u128);

impl Sketch {
    pub(super) fn add(&mut self, hash: u32) {
        // The upper bits are the best mixed.
        self.0 |= 1 << (hash >> 25);
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// The approximate number of them.
    pub(super) fn count(self) -> u32 {
        const BITS: f64 = 128.0;
        let unset = f64::from(self.0.count_zeros().max(1));
        (BITS * (BITS / unset).ln()).round() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::{super::request_line::RequestLine, *};

    #[test]
    fn urls_are_counted_roughly() {
        for (urls, most_off) in [(1, 0), (3, 1), (20, 4), (100, 20), (300, 75)] {
            let mut sketch = Sketch::default();
            for n in 0..urls {
                let query = format!("page={n}");
                let line = RequestLine {
                    is_safe: true,
                    path: "/api/prices",
                    query: Some(&query),
                    headers: None,
                    is_logged: false,
                };
                (0..3).for_each(|_| sketch.add(line.hashes().1));
            }
            assert!(sketch.count().abs_diff(urls) <= most_off, "{urls}: {}", sketch.count());
        }
        assert_eq!(Sketch(u128::MAX).count(), 621);
    }
}
