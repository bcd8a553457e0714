//! A running Tollgate: housekeeping, draining and shutdown.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use tokio::{sync::mpsc, time::timeout_at};

use super::{reload::Reloader, workers::WorkerThreads};
use crate::{
    admin::{self, AdminHandle, Readiness, ReloadRequest},
    api_keys::data_file::DataFile,
    config::model::ListenAddress,
    listener::{Lifecycle, ListeningSockets, SessionKeys},
    peers::Monitor,
    store::memory::MemoryStore,
    telemetry::{access_log::AccessLogHandle, traces::Traces},
};

/// The interval of housekeeping while there is something to do.
const TICK: Duration = Duration::from_millis(100);
/// The longest interval: limits and bans expire, and the clock may have been set.
const REST: Duration = Duration::from_secs(1);
/// Number of limits examined per round, to drop expired ones.
const SWEEP: usize = 20_000;
/// Maximum time for workers to abort running requests and release their leases.
const ABORT_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time for writing the last lines of the access log.
const LAST_LINES: Duration = Duration::from_secs(2);
/// Maximum time for recording the last denials.
const LAST_DENIALS: Duration = Duration::from_secs(1);

/// Maximum time for noting the last alerts.
const LAST_ALERTS: Duration = Duration::from_secs(2);
/// Maximum time for writing the last part of the history, which is in the spool otherwise.
const LAST_HISTORY: Duration = Duration::from_secs(5);

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
    /// `None` with Redis, or if no API keys are made.
    pub(super) key_data: Option<DataFile>,
    pub(super) workers: WorkerThreads,
    /// When housekeeping is due.
    pub(super) housekeeping: Housekeeping,
    pub(super) access_log: AccessLogHandle,
    pub(super) traces: Option<Traces>,
    pub(super) readiness: Arc<Readiness>,
    pub(super) admin: AdminHandle,
}

/// The schedule of housekeeping.
pub(super) struct Housekeeping {
    pause: Duration,
    due: Instant,
}

impl Housekeeping {
    pub(super) fn new() -> Self {
        Self { pause: TICK, due: Instant::now() + TICK }
    }
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

    /// Waits for the next interval, at most until `limit`, then drops expired limits and bans. The interval grows as
    /// long as there are none and workers have no requests. Returns false if all workers have ended, which is
    /// unexpected. Cancel-safe.
    pub async fn housekeeping(&mut self, limit: Instant) -> bool {
        let Self { workers, housekeeping: Housekeeping { pause, due }, .. } = self;
        let until = (*due).min(limit).into();
        let (is_woken, is_working) = if *pause > TICK {
            let woken = timeout_at(until, workers.busy()).await.ok();
            (woken == Some(true), woken != Some(false))
        } else {
            // A busy worker does not cut the shortest pause shorter.
            (false, timeout_at(until, workers.ended()).await.is_err())
        };
        let is_busy = is_woken || workers.busy().now_or_never() == Some(true);
        let has_expired = self.memory.sweep(SWEEP) > 0;
        let has_more = self.reloader.shared.bans.tick();
        *pause = if is_busy || has_expired || has_more { TICK } else { (*pause * 2).min(REST) };
        *due = Instant::now() + *pause;
        is_working
    }

    /// Whether every worker has made progress since this last returned true. Workers without requests do so soon after
    /// the call.
    pub fn all_workers_alive(&mut self) -> bool {
        self.workers.all_alive()
    }

    /// The listening sockets, to be passed to a new process.
    pub fn listening_sockets(&self) -> &ListeningSockets {
        &self.listening
    }

    /// Leaves the listening sockets to a new process, which already serves on them: accepts no more connections of
    /// clients or operators. Client connections are closed after their next response. Call [`App::drain`] afterwards,
    /// which closes idle ones.
    pub fn leave_sockets(&mut self) {
        self.listening.leave();
        self.readiness.enter(admin::ProcessPhase::Draining);
        self.admin.close();
        self.workers.enter(Lifecycle::HandedOver);
    }

    /// Waits until the last client connection has ended, at most `limit`. Returns whether it has ended.
    pub async fn ended_within(&mut self, limit: Duration) -> bool {
        tokio::time::timeout(limit, self.workers.ended()).await.is_ok()
    }

    /// Accepts no more connections, and closes idle ones.
    pub fn drain(&mut self) {
        // As long as one descriptor is open, clients would queue at a socket on which nothing accepts.
        self.listening.close();
        self.readiness.enter(admin::ProcessPhase::Draining);
        self.workers.enter(Lifecycle::Draining);
    }

    /// Maximum time for running requests to complete (`shutdown.drain`).
    pub fn drain_limit(&self) -> Duration {
        self.reloader.generation.config.shutdown.drain
    }

    /// Aborts running requests and waits until their leases are released, at most two seconds.
    pub async fn abort_requests(&mut self) {
        self.workers.enter(Lifecycle::Ending);
        if tokio::time::timeout(ABORT_TIMEOUT, self.workers.ended()).await.is_err() {
            tracing::warn!("some workers did not stop in time");
        }
    }

    /// Writes the last lines of the access log and the last spans, then stops the admin port and the monitor, which
    /// sends the last denials and bans to other instances. Removes the files of Unix sockets that no new process uses.
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
        if let Some(alerts) = &self.reloader.shared.alerts {
            alerts.finish(LAST_ALERTS);
        }
        if let Some(history) = &self.reloader.shared.history
            && !history.finish(LAST_HISTORY)
        {
            tracing::warn!("the last part of the history was not written");
        }
        if let Some(keys) = self.key_data {
            keys.close();
        }
        if let Some(monitor) = self.monitor {
            monitor.stop();
        }
    }
}
