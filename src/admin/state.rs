//! What the admin port needs to know.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use super::{InForce, Reloads, desk::Desk, events::STREAMS, guesses::Guesses, shapes::Tick};
use crate::{
    abuse::{AuditLog, Registry, bans::Bans},
    config::model::Secret,
    limit::Clock,
    telemetry::{
        Events,
        diagnostics::Warnings,
        metrics::{History, Metrics},
    },
};

/// Everything that the admin port shows or changes, but the store.
pub struct State {
    /// `None`: only loopback may ask.
    pub token: Option<Secret>,
    pub registry: Arc<Registry>,
    pub bans: Arc<Bans>,
    pub audit: Arc<AuditLog>,
    /// What goes by the configuration.
    pub in_force: Arc<InForce>,
    /// Where a reload is asked for.
    pub reloads: Reloads,
    pub metrics: Arc<Metrics>,
    pub readiness: Arc<Readiness>,
    /// What happens, for whoever watches.
    pub events: Events,
    /// What was found out since the start, in words.
    pub warnings: Warnings,
    /// The same that stamps denials.
    pub clock: Arc<dyn Clock>,
    pub facts: Facts,
}

/// What is known once everything has been built.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Where clients are served: the addresses as they were bound.
    pub listeners: Vec<SocketAddr>,
}

/// What the handlers share.
pub(super) struct Shared {
    pub(super) state: State,
    pub(super) desk: Desk,
    /// Places for those who listen to events.
    pub(super) streams: Arc<Semaphore>,
    /// How things stand; `None` as long as nobody listens.
    pub(super) ticks: watch::Sender<Option<Arc<Tick>>>,
    pub(super) history: Mutex<History>,
    /// Of the token, where it is typed in.
    pub(super) typed: Guesses,
    /// Of the token, as programs bear it: they are not to wait for whoever types.
    pub(super) borne: Guesses,
}

impl Shared {
    pub(super) fn new(state: State, desk: Desk) -> Self {
        Self {
            state,
            desk,
            streams: Arc::new(Semaphore::new(STREAMS)),
            ticks: watch::Sender::new(None),
            history: Mutex::default(),
            typed: Guesses::default(),
            borne: Guesses::default(),
        }
    }
}

/// Where the process is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Starting,
    Ready,
    /// Finishes what runs, takes nothing new.
    Draining,
}

/// The phase, as the process tells it to whoever balances load over it. Begins with
/// [`Phase::Starting`].
#[derive(Debug, Default)]
pub struct Readiness(AtomicU8);

impl Readiness {
    /// Enters a phase.
    pub fn enter(&self, phase: Phase) {
        self.0.store(phase as u8, Relaxed);
    }

    /// The phase it is in.
    pub fn phase(&self) -> Phase {
        let phases = [Phase::Starting, Phase::Ready, Phase::Draining];
        phases.into_iter().find(|&phase| phase as u8 == self.0.load(Relaxed)).unwrap_or(Phase::Draining)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_told_as_it_was_entered() {
        let readiness = Readiness::default();
        assert_eq!(readiness.phase(), Phase::Starting);
        for phase in [Phase::Ready, Phase::Draining] {
            readiness.enter(phase);
            assert_eq!(readiness.phase(), phase);
        }
    }
}
