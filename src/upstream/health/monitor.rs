//! Probes every host of the upstreams that have `health`, each in a task of its own.

use std::{collections::HashMap, convert::Infallible, sync::Arc, time::Duration};

use tokio::{
    task::{AbortHandle, spawn_local},
    time::{Instant, sleep, sleep_until, timeout_at},
};

use super::probe::probe;
use crate::{
    changes::Changes,
    config::model::HealthCheck,
    upstream::{SharedUpstream, UpstreamHost},
};

/// How often it looks for new upstreams and hosts, and ends ejections, while there are any.
const TICK: Duration = Duration::from_millis(100);

/// Monitors the health of the hosts of `upstreams`, which is called again after each change. To be run on one thread
/// for the whole process, in a local runtime.
pub async fn monitor(upstreams: impl Fn() -> Vec<Arc<SharedUpstream>>) -> Infallible {
    let mut watched: Vec<WatchedUpstream> = Vec::new();
    let mut changes = Changes::new();
    loop {
        let mut next_end: Option<std::time::Instant> = None;
        let upstreams = upstreams();
        let is_kept =
            |old: &mut WatchedUpstream| upstreams.iter().any(|kept| Arc::ptr_eq(kept, &old.upstream));
        let gone: Vec<_> = watched.extract_if(.., |old| !is_kept(old)).map(|old| old.upstream).collect();
        for upstream in upstreams {
            match watched.iter_mut().find(|known| Arc::ptr_eq(&known.upstream, &upstream)) {
                Some(known) => known.refresh(),
                None => {
                    // Its hosts may be those of the upstream that it replaces.
                    let before = gone.iter().find(|gone| gone.config.name == upstream.config.name);
                    if before.is_some_and(|before| before.config.health != upstream.config.health) {
                        upstream.checks_changed();
                    }
                    watched.push(WatchedUpstream::new(Arc::clone(&upstream)));
                }
            }
            next_end = next_end.into_iter().chain(upstream.settle_ejections(std::time::Instant::now())).min();
        }
        sleep(TICK).await;
        match next_end {
            None => changes.next().await,
            Some(end) => {
                let _ended = timeout_at(end.into(), changes.next()).await;
            }
        }
    }
}

/// An upstream, and the probes of its hosts.
struct WatchedUpstream {
    upstream: Arc<SharedUpstream>,
    /// The version of its hosts.
    version: u64,
    probes: Vec<ProbeTask>,
}

impl WatchedUpstream {
    fn new(upstream: Arc<SharedUpstream>) -> Self {
        let version = upstream.hosts_version().wrapping_sub(1);
        let mut watched = Self { upstream, version, probes: Vec::new() };
        watched.refresh();
        watched
    }

    /// Starts and ends probes for changed hosts.
    fn refresh(&mut self) {
        let Some(check) = &self.upstream.config.health else { return };
        if self.version == self.upstream.hosts_version() {
            return;
        }
        let version = self.upstream.hosts_version();
        let before = std::mem::take(&mut self.probes).into_iter();
        let mut before: HashMap<_, _> = before.map(|probe| (Arc::as_ptr(&probe.host), probe)).collect();
        // Drained hosts are probed as well, so that their health is known once they are undrained.
        for host in self.upstream.hosts().iter().filter(|host| !host.is_unresolved()) {
            let known = before.remove(&Arc::as_ptr(host));
            self.probes.push(known.unwrap_or_else(|| ProbeTask::spawn(&self.upstream, host, check)));
        }
        self.version = version;
    }
}

/// The probes of one host. Dropping it ends them.
struct ProbeTask {
    host: Arc<UpstreamHost>,
    task: AbortHandle,
}

impl ProbeTask {
    fn spawn(upstream: &Arc<SharedUpstream>, host: &Arc<UpstreamHost>, check: &HealthCheck) -> Self {
        let task = probe_again_and_again(Arc::clone(upstream), Arc::clone(host), check.clone());
        Self { host: Arc::clone(host), task: spawn_local(task).abort_handle() }
    }
}

impl Drop for ProbeTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Sends the first probe at once. Each later one begins an interval after the start of the previous one, but never
/// before that has ended.
async fn probe_again_and_again(
    upstream: Arc<SharedUpstream>,
    host: Arc<UpstreamHost>,
    check: HealthCheck,
) -> Infallible {
    loop {
        let began = Instant::now();
        if let Some(result) = probe(&upstream, &host, &check).await {
            let has_failed = result.is_err();
            if let Some(change) = host.state.probed(result, &check) {
                upstream.report_change(&host, &change);
            }
            if has_failed {
                upstream.resolve_if_all_fail(&host);
            }
        }
        // Spreads the probes of hosts, and of instances, that began together.
        sleep_until(began + check.interval.mul_f64(0.9 + fastrand::f64() / 5.0)).await;
    }
}
