//! Choices of the generators.

use fastrand::Rng;

pub struct Dice(pub Rng);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }

    pub fn chance(&mut self, percent: u8) -> bool {
        self.0.u8(..100) < percent
    }

    #[track_caller]
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.0.usize(..from.len())].clone()
    }

    /// One of these, for so many of a hundred.
    pub fn maybe<T: Clone>(&mut self, percent: u8, from: &[T]) -> Option<T> {
        self.chance(percent).then(|| self.pick(from))
    }

    /// So many of these, each once, or all if there are fewer.
    pub fn some<T: Clone>(&mut self, count: usize, from: &[T]) -> Vec<T> {
        let mut all = from.to_vec();
        self.0.shuffle(&mut all);
        all.truncate(count);
        all
    }

    pub fn number(&mut self, range: impl std::ops::RangeBounds<usize>) -> usize {
        self.0.usize(range)
    }

    /// One of these, by their weights.
    pub fn weighted<T: Clone>(&mut self, from: &[(u32, T)]) -> T {
        let sum: u32 = from.iter().map(|(weight, _)| weight).sum();
        let mut left = self.0.u32(..sum);
        for (weight, value) in from {
            if left < *weight {
                return value.clone();
            }
            left -= weight;
        }
        unreachable!("less than the sum")
    }
}
