//! What the handlers share.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use super::{AdminState, desk::Desk, dto::Tick, events::STREAMS, extract::Operator, token_throttle::Guesses};
use crate::telemetry::metrics::History;

/// What the handlers share.
pub(super) struct HandlerContext {
    pub(super) state: AdminState,
    pub(super) desk: Desk,
    /// Permits for event streams.
    pub(super) streams: Arc<Semaphore>,
    /// The last tick; `None` while nobody listens to events.
    pub(super) ticks: watch::Sender<Option<Arc<Tick>>>,
    pub(super) history: Mutex<History>,
    /// Wrong tokens typed in at the login page.
    pub(super) typed: Guesses,
    /// Wrong tokens in `Authorization`. Counted apart, so that programs with an old token keep nobody from signing in.
    pub(super) borne: Guesses,
}

impl HandlerContext {
    pub(super) fn new(state: AdminState, desk: Desk) -> Self {
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

    /// Writes to the audit log that `by` has changed something. `action`: `unblock`, `ban`, `lift`, `reset`, `reload`.
    pub(super) fn audit(&self, by: &Operator, action: &str, target: &str, detail: &str) {
        self.state.audit.write(&by.0, action, target, detail);
    }
}
