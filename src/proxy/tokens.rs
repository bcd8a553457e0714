//! Tokens of leases: no two requests have the same, on whatever instance.

use std::{
    cell::Cell,
    hash::{BuildHasher, RandomState},
};

use crate::limit::algorithm::Member;

/// Draws tokens. Belongs to one worker.
#[derive(Debug)]
pub struct Tokens {
    /// Tells this worker from all others; from the system's random numbers.
    worker: u64,
    drawn: Cell<u64>,
}

impl Tokens {
    /// Tokens of another worker.
    pub fn new() -> Self {
        // The keys of a hasher are the only random numbers of the standard library.
        Self { worker: RandomState::new().hash_one(()), drawn: Cell::new(0) }
    }

    /// A new token.
    pub fn draw(&self) -> Member {
        self.drawn.set(self.drawn.get().wrapping_add(1));
        Member::from(self.worker) << 64 | Member::from(self.drawn.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_the_same() {
        let (one, other) = (Tokens::new(), Tokens::new());
        let drawn = [one.draw(), one.draw(), other.draw(), other.draw()];
        let different: std::collections::HashSet<_> = drawn.into_iter().collect();
        assert_eq!(different.len(), 4);
    }
}
