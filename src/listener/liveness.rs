//! Liveness of the workers: distinguishes a worker that hangs from an idle one.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// One worker's signal that it is alive, sent with every tick.
#[derive(Debug, Clone, Default)]
pub struct WorkerLiveness(Arc<AtomicU64>);

impl WorkerLiveness {
    pub(super) fn signal(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Watches the signals of all workers.
#[derive(Debug)]
pub struct LivenessMonitor {
    workers: Vec<WorkerLiveness>,
    /// The count of each when [`LivenessMonitor::all_alive`] was last true.
    seen: Vec<u64>,
}

impl LivenessMonitor {
    /// For this many workers.
    pub fn new(workers: usize) -> Self {
        Self { workers: (0..workers).map(|_| WorkerLiveness::default()).collect(), seen: vec![0; workers] }
    }

    /// The signal of each worker.
    pub fn each(&self) -> impl Iterator<Item = WorkerLiveness> {
        self.workers.iter().cloned()
    }

    /// Whether every worker has sent a signal since this was last true.
    pub fn all_alive(&mut self) -> bool {
        let now: Vec<u64> = self.workers.iter().map(|WorkerLiveness(count)| count.load(Relaxed)).collect();
        let is_alive = now.iter().zip(&self.seen).all(|(now, seen)| now != seen);
        if is_alive {
            self.seen = now;
        }
        is_alive
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_worker_that_hangs_is_noticed() {
        let mut monitor = LivenessMonitor::new(2);
        let workers: Vec<WorkerLiveness> = monitor.each().collect();
        assert!(!monitor.all_alive(), "no worker has given a sign of life yet");
        workers[0].signal();
        assert!(!monitor.all_alive());
        workers[1].signal();
        assert!(monitor.all_alive());
        workers[1].signal();
        assert!(!monitor.all_alive(), "the first has given no sign of life since");
        workers[0].signal();
        assert!(monitor.all_alive());
    }
}
