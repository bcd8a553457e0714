//! A running Tollgate: housekeeping, draining and shutdown.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::sync::mpsc;

use super::{reload::Reloader, workers::Workers};
use crate::{
    admin::{self, AdminHandle, Readiness, ReloadRequest},
    config::model::ListenAddress,
    listener::{Lifecycle, ListeningSockets, SessionKeys},
    peers::Monitor,
    store::memory::MemoryStore,
    telemetry::{access_log::AccessLog, traces::Traces},
};

/// The interval of housekeeping.
const TICK: Duration = Duration::from_millis(100);
/// How many limits a round examines, to drop expired ones.
const SWEEP: usize = 20_000;
/// How long workers may take to abort running requests, and to release their leases.
const BREAK_OFF: Duration = Duration::from_secs(2);
/// How long the last lines of the access log may take to be written.
const LAST_LINES: Duration = Duration::from_secs(2);
/// How long the last denials may take to be recorded.
const LAST_DENIALS: Duration = Duration::from_secs(1);

/// A running Tollgate.
pub struct App {
    /// The addresses where clients are served, with the actual ports.
    pub addresses: Vec<ListenAddress>,
    /// For a new process that takes over.
    pub(super) listening: ListeningSockets,
    pub(super) reloader: Reloader,
    pub(super) reload_requests: Option<mpsc::Receiver<ReloadRequest>>,
    pub(super) memory: Arc<MemoryStore>,
    /// `None` without Redis.
    pub(super) monitor: Option<Monitor>,
    pub(super) workers: Workers,
    pub(super) access_log: AccessLog,
    pub(super) traces: Option<Traces>,
    pub(super) readiness: Arc<Readiness>,
    pub(super) admin: AdminHandle,
}

impl App {
    /// The address of the admin port.
    pub fn admin(&self) -> SocketAddr {
        self.admin.address()
    }

    /// The keys of TLS sessions, for a new process that takes over.
    pub fn session_keys(&self) -> Vec<SessionKeys> {
        self.reloader.generation.session_keys()
    }

    /// Open client connections.
    pub fn connections(&self) -> usize {
        self.workers.connections()
    }

    /// Reopens the access log, after its file was rotated.
    pub fn reopen_access_log(&self) {
        self.access_log.reopen();
    }

    /// Waits for the next interval, then drops expired limits and bans. Returns false if all workers have ended, which is
    /// unexpected.
    pub async fn housekeeping(&mut self) -> bool {
        let working = tokio::time::timeout(TICK, self.workers.ended()).await.is_err();
        self.memory.sweep(SWEEP);
        self.reloader.shared.bans.tick();
        working
    }

    /// Whether every worker has made progress since this was last true. Workers report it about ten times a second.
    pub fn workers_go_on(&mut self) -> bool {
        self.workers.all_alive()
    }

    /// The listening sockets, to be handed over to a new process.
    pub fn listening_sockets(&self) -> &ListeningSockets {
        &self.listening
    }

    /// Leaves the listening sockets to a new process, which serves on them already: accepts no more connections, of
    /// clients or of operators. Connections of clients close after their next response. [`App::drain`] has to follow,
    /// which closes idle ones.
    pub fn leave_sockets(&mut self) {
        self.listening.leave();
        self.readiness.enter(admin::ProcessPhase::Draining);
        self.admin.close();
        self.workers.enter(Lifecycle::HandedOver);
    }

    /// Waits until the last connection of a client has ended, for `limit` at most. Returns whether it has ended.
    pub async fn ended_within(&mut self, limit: Duration) -> bool {
        tokio::time::timeout(limit, self.workers.ended()).await.is_ok()
    }

    /// Accepts no more connections, and closes idle ones.
    pub fn drain(&mut self) {
        // As long as one descriptor is open, clients would queue at a socket that nobody accepts on.
        self.listening.close();
        self.readiness.enter(admin::ProcessPhase::Draining);
        self.workers.enter(Lifecycle::Draining);
    }

    /// How long running requests may continue (`shutdown.drain`).
    pub fn drain_limit(&self) -> Duration {
        self.reloader.generation.config.shutdown.drain
    }

    /// Aborts the requests that still run, and waits until their leases are released, for two seconds at most.
    pub async fn break_off(&mut self) {
        self.workers.enter(Lifecycle::Ending);
        if tokio::time::timeout(BREAK_OFF, self.workers.ended()).await.is_err() {
            tracing::warn!("some workers did not stop in time");
        }
    }

    /// Writes the last lines of the access log and the last spans, then stops the admin port and the monitor, which tells
    /// other instances of the last denials and bans. Removes the files of Unix sockets on which a new process does not serve.
    pub fn close(self) {
        self.listening.remove_abandoned_files();
        if !self.access_log.close(LAST_LINES) {
            tracing::warn!("the last lines of the access log were not written");
        }
        if !self.traces.is_none_or(Traces::close) {
            tracing::warn!("the last trace spans were not sent");
        }
        self.admin.stop();
        if !self.reloader.collector.finish(LAST_DENIALS) {
            tracing::warn!("the last denials were not recorded");
        }
        if let Some(monitor) = self.monitor {
            monitor.stop();
        }
    }
}
