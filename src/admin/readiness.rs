//! The phase of the process, as load balancers see it.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// A phase in the life of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessPhase {
    Starting,
    Ready,
    /// Finishes requests in flight, accepts no new ones.
    Draining,
}

/// The current phase, reported to load balancers. It begins with [`ProcessPhase::Starting`].
#[derive(Debug, Default)]
pub struct Readiness(AtomicU8);

impl Readiness {
    pub fn enter(&self, phase: ProcessPhase) {
        self.0.store(phase as u8, Relaxed);
    }

    /// The current phase.
    pub fn phase(&self) -> ProcessPhase {
        let phases = [ProcessPhase::Starting, ProcessPhase::Ready, ProcessPhase::Draining];
        phases
            .into_iter()
            .find(|&phase| phase as u8 == self.0.load(Relaxed))
            .unwrap_or(ProcessPhase::Draining)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_told_as_it_was_entered() {
        let readiness = Readiness::default();
        assert_eq!(readiness.phase(), ProcessPhase::Starting);
        for phase in [ProcessPhase::Ready, ProcessPhase::Draining] {
            readiness.enter(phase);
            assert_eq!(readiness.phase(), phase);
        }
    }
}
