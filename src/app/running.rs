//! A running Tollgate, until it ends.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::sync::mpsc;

use super::{reload::Reloader, workers::Workers};
use crate::{
    admin::{self, AdminHandle, Readiness, ReloadRequest},
    listener::Lifecycle,
    peers::Monitor,
    store::memory::MemoryStore,
    telemetry::{access_log::AccessLog, traces::Traces},
};

/// How long one round of housekeeping waits.
const TICK: Duration = Duration::from_millis(100);
/// How many limits a round looks at, to drop those that are over.
const SWEEP: usize = 20_000;
/// How long workers may take to break off what runs, and to give back what it holds.
const BREAK_OFF: Duration = Duration::from_secs(2);
/// How long the last lines of the access log may take to be written.
const LAST_LINES: Duration = Duration::from_secs(2);

/// A running Tollgate.
pub struct App {
    /// Where clients are served, with the real ports.
    pub addresses: Vec<SocketAddr>,
    pub(super) reloader: Reloader,
    pub(super) reload_requests: Option<mpsc::Receiver<ReloadRequest>>,
    pub(super) memory: Arc<MemoryStore>,
    /// Where instances share their limits.
    pub(super) monitor: Option<Monitor>,
    pub(super) workers: Workers,
    pub(super) access_log: AccessLog,
    pub(super) traces: Option<Traces>,
    pub(super) readiness: Arc<Readiness>,
    pub(super) admin: AdminHandle,
}

impl App {
    /// Where operators are.
    pub fn admin(&self) -> SocketAddr {
        self.admin.address()
    }

    /// Open client connections.
    pub fn connections(&self) -> usize {
        self.workers.connections()
    }

    /// Opens the access log anew, after its file was moved away.
    pub fn reopen_access_log(&self) {
        self.access_log.reopen();
    }

    /// Waits a moment, then drops limits and bans that are over. False if all workers have ended, which they do not do
    /// unasked.
    pub async fn housekeeping(&mut self) -> bool {
        let working = tokio::time::timeout(TICK, self.workers.ended()).await.is_err();
        self.memory.sweep(SWEEP);
        self.reloader.shared.bans.tick();
        working
    }

    /// Whether every worker has given a sign of life since this was last true; they do some ten times a
    /// second.
    pub fn workers_go_on(&mut self) -> bool {
        self.workers.all_alive()
    }

    /// Takes no more connections, and closes those on which nothing runs.
    pub fn drain(&self) {
        self.readiness.enter(admin::ProcessPhase::Draining);
        self.workers.enter(Lifecycle::Draining);
    }

    /// How long requests may run on (`shutdown.drain`).
    pub fn drain_limit(&self) -> Duration {
        self.reloader.generation.config.shutdown.drain
    }

    /// Waits until the last request has ended, for `shutdown.drain` at most. Says whether it has.
    pub async fn drained(&mut self) -> bool {
        tokio::time::timeout(self.drain_limit(), self.workers.ended()).await.is_ok()
    }

    /// Breaks off what still runs, and waits until what it held of limits is given back, as far as it can be: two seconds
    /// at most.
    pub async fn break_off(&mut self) {
        self.workers.enter(Lifecycle::Ending);
        if tokio::time::timeout(BREAK_OFF, self.workers.ended()).await.is_err() {
            tracing::warn!("some workers do not end");
        }
    }

    /// Ends what is left, and writes the last lines of the access log.
    pub fn close(self) {
        if !self.access_log.close(LAST_LINES) {
            tracing::warn!("the last lines of the access log could not be written");
        }
        if !self.traces.is_none_or(Traces::close) {
            tracing::warn!("the last spans could not be sent");
        }
        self.admin.stop();
        if let Some(monitor) = self.monitor {
            monitor.stop();
        }
    }
}
