//! Signs of life, which tell a worker that hangs from one that has nothing to do.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// One worker's: beats with every tick.
#[derive(Debug, Clone, Default)]
pub struct Pulse(Arc<AtomicU64>);

impl Pulse {
    pub(super) fn beat(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Those of all workers.
#[derive(Debug)]
pub struct Pulses {
    workers: Vec<Pulse>,
    /// What each had counted when last they all had gone on.
    seen: Vec<u64>,
}

impl Pulses {
    /// One for each of `workers`.
    pub fn new(workers: usize) -> Self {
        Self { workers: (0..workers).map(|_| Pulse::default()).collect(), seen: vec![0; workers] }
    }

    /// Each worker's own.
    pub fn each(&self) -> impl Iterator<Item = Pulse> {
        self.workers.iter().cloned()
    }

    /// Whether every worker has beaten since this was last true.
    pub fn all_went_on(&mut self) -> bool {
        let now: Vec<u64> = self.workers.iter().map(|Pulse(beats)| beats.load(Relaxed)).collect();
        let went_on = now.iter().zip(&self.seen).all(|(now, seen)| now != seen);
        if went_on {
            self.seen = now;
        }
        went_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_worker_that_hangs_is_noticed() {
        let mut pulses = Pulses::new(2);
        let workers: Vec<Pulse> = pulses.each().collect();
        assert!(!pulses.all_went_on(), "nobody has beaten yet");
        workers[0].beat();
        assert!(!pulses.all_went_on());
        workers[1].beat();
        assert!(pulses.all_went_on());
        workers[1].beat();
        assert!(!pulses.all_went_on(), "the first has not gone on");
        workers[0].beat();
        assert!(pulses.all_went_on());
    }
}
