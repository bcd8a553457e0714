//! The approximate number of different URLs that a client requests.

use serde::{Deserialize, Serialize};

/// Linear counting (Whang et al., 1990) in 128 bits: within a tenth up to a hundred URLs, and full at about 600.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UrlSketch(u128);

impl UrlSketch {
    pub(super) fn add(&mut self, url: u32) {
        // The upper bits are the best mixed.
        self.0 |= 1 << (url >> 25);
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// The approximate number of URLs.
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
            let mut sketch = UrlSketch::default();
            for n in 0..urls {
                let query = format!("page={n}");
                let line = RequestLine { is_safe: true, path: "/api/prices", query: Some(&query) };
                (0..3).for_each(|_| sketch.add(line.hashes().1));
            }
            assert!(sketch.count().abs_diff(urls) <= most_off, "{urls}: {}", sketch.count());
        }
        assert_eq!(UrlSketch(u128::MAX).count(), 621);
    }
}
