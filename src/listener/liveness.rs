//! Liveness of the workers: distinguishes a worker that hangs from an idle one, and a busy one from both.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use tokio::sync::Notify;

/// One worker's signal that it is alive, sent with every tick.
#[derive(Debug, Clone, Default)]
pub struct WorkerLiveness(Arc<Signals>);

#[derive(Debug, Default)]
struct Signals {
    count: AtomicU64,
    /// Notified when a worker that rests has to give a signal.
    asked: Notify,
    /// Of all workers: notified by each tick of one that is busy.
    busy: Arc<Notify>,
}

impl WorkerLiveness {
    pub(super) fn signal(&self) {
        self.0.count.fetch_add(1, Relaxed);
    }

    /// The worker has served requests since its last tick.
    pub(super) fn signal_busy(&self) {
        self.0.busy.notify_one();
    }

    /// Ready once a signal is asked for.
    pub(super) async fn asked(&self) {
        self.0.asked.notified().await;
    }
}

/// Watches the signals of all workers.
#[derive(Debug)]
pub struct LivenessMonitor {
    workers: Vec<WorkerLiveness>,
    busy: Arc<Notify>,
    /// The count of each when [`LivenessMonitor::all_alive`] was last true.
    seen: Vec<u64>,
}

impl LivenessMonitor {
    /// For this many workers.
    pub fn new(workers: usize) -> Self {
        let busy = Arc::<Notify>::default();
        let signals = |_| Signals { busy: Arc::clone(&busy), ..Signals::default() };
        let each = (0..workers).map(signals).map(|signals| WorkerLiveness(Arc::new(signals))).collect();
        Self { workers: each, busy, seen: vec![0; workers] }
    }

    /// The signal of each worker.
    pub fn each(&self) -> impl Iterator<Item = WorkerLiveness> {
        self.workers.iter().cloned()
    }

    /// Ready if a worker was busy since the last call, or once one is. Cancel-safe.
    pub async fn busy(&self) {
        self.busy.notified().await;
    }

    /// Whether every worker has sent a signal since this was last true. Asks each for another one, as workers without
    /// requests send few by themselves.
    pub fn all_alive(&mut self) -> bool {
        let now: Vec<u64> = self.workers.iter().map(|worker| worker.0.count.load(Relaxed)).collect();
        self.workers.iter().for_each(|worker| worker.0.asked.notify_one());
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
