//! The hosts of an upstream: the addresses that its requests can be sent to, and what all workers know of each.

use std::{
    fmt,
    net::SocketAddr,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use parking_lot::{Mutex, RwLock};

use crate::config::model::Endpoint;

/// How long a host that could not be reached is ejected while there are others. A host that refuses connections has no
/// requests in flight, and would otherwise look like the least loaded one.
pub(super) const EJECTION_TIME: Duration = Duration::from_secs(1);

/// One address that requests are sent to.
pub struct Host {
    /// Its endpoint in the configuration.
    pub endpoint: Endpoint,
    /// `None`: the endpoint has a name, which is resolved when a connection is opened.
    pub address: Option<SocketAddr>,
    /// What all workers know of it.
    pub state: HostState,
}

impl Host {
    /// A host of `endpoint` that was never tried. Without an `address` it stands for the name of the endpoint.
    pub fn new(endpoint: Endpoint, address: Option<SocketAddr>) -> Arc<Self> {
        Arc::new(Self { endpoint, address, state: HostState::default() })
    }

    /// The endpoint's host, if that is an address.
    fn of_endpoint(endpoint: &Endpoint) -> Arc<Self> {
        let address = endpoint.host().parse().ok().map(|ip| SocketAddr::new(ip, endpoint.port));
        Self::new(endpoint.clone(), address)
    }

    /// Its part of the requests, in proportion to that of the others.
    pub fn weight(&self) -> f64 {
        f64::from(self.endpoint.weight)
    }

    /// How its endpoint is named to operators: `http://127.0.0.1:3000`.
    pub fn url(&self) -> String {
        format!("{}://{}", self.endpoint.scheme(), self.endpoint.authority)
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("url", &self.url())
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// What all workers know of a host. Each change is seen by all of them at once.
#[derive(Debug, Default)]
pub struct HostState {
    /// Requests in flight.
    in_flight: AtomicUsize,
    /// Until when it is ejected.
    ejected_until: AtomicInstant,
    /// How often it was ejected after it had been reachable.
    ejections: AtomicU64,
    /// How often in a row it could not be reached.
    failures: AtomicU32,
    /// Whether the last attempt to reach it failed.
    is_down: AtomicBool,
    /// Why the last attempt that failed did.
    error: Mutex<String>,
    last_change: Mutex<Option<HostChange>>,
}

/// The last time that a host went out of use, or came back.
#[derive(Debug, Clone)]
pub struct HostChange {
    /// When.
    pub time: SystemTime,
    /// Why.
    pub reason: String,
    /// The operator who did it. `None`: Tollgate.
    pub by: Option<String>,
}

impl HostState {
    /// Counts a request that starts; [`HostState::request_ended`] must follow.
    pub(super) fn request_started(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn request_ended(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Whether it is left out for now, while there are others.
    pub fn is_ejected(&self, now: Instant) -> bool {
        self.ejected_until.is_after(now)
    }

    /// Notes that it has answered over a connection that was open: it can be reached. It may still accept no new connections,
    /// so its ejection goes on.
    pub fn answered(&self) {
        // Mostly it is up already: don't take the cache line from the other workers for nothing.
        if self.is_down.load(Ordering::Relaxed) && self.is_down.swap(false, Ordering::Relaxed) {
            self.failures.store(0, Ordering::Relaxed);
            self.changed("it can be reached again", None);
        }
    }

    /// Notes that a connection to it was opened, which ends its ejection.
    pub(super) fn connected(&self) {
        self.ejected_until.clear();
        self.answered();
    }

    /// Notes that it could not be reached, and why, and ejects it.
    pub(super) fn mark_unreachable(&self, error: String, now: Instant) {
        self.ejected_until.set(now + EJECTION_TIME);
        self.failures.fetch_add(1, Ordering::Relaxed);
        let was_down = self.is_down.swap(true, Ordering::Relaxed);
        if !was_down {
            self.ejections.fetch_add(1, Ordering::Relaxed);
            self.changed(&error, None);
        }
        *self.error.lock() = error;
    }

    /// Notes that it went out of use, or came back.
    pub(super) fn changed(&self, reason: &str, by: Option<String>) {
        let change = HostChange { time: SystemTime::now(), reason: reason.to_owned(), by };
        *self.last_change.lock() = Some(change);
    }

    /// Why it could not be reached the last time that it was tried. `None`: it could.
    pub fn error(&self) -> Option<String> {
        self.is_down.load(Ordering::Relaxed).then(|| self.error.lock().clone())
    }

    /// Whether the last attempt to reach it succeeded. One that was never tried counts as healthy.
    pub fn is_healthy(&self) -> bool {
        !self.is_down.load(Ordering::Relaxed)
    }

    /// How often it was ejected since the start.
    pub fn ejections(&self) -> u64 {
        self.ejections.load(Ordering::Relaxed)
    }

    /// How often in a row it could not be reached.
    pub fn failures(&self) -> u32 {
        self.failures.load(Ordering::Relaxed)
    }

    /// When it last went out of use or came back, and why. `None`: never.
    pub fn last_change(&self) -> Option<HostChange> {
        self.last_change.lock().clone()
    }
}

/// A point in time that workers share, or none. As microseconds since the first use of any.
#[derive(Debug, Default)]
pub(super) struct AtomicInstant(AtomicU64);

static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

impl AtomicInstant {
    pub(super) fn set(&self, at: Instant) {
        // 0 is none. In range for half a million years.
        let micros = at.saturating_duration_since(*EPOCH).as_micros().max(1);
        self.0.store(micros as u64, Ordering::Relaxed);
    }

    pub(super) fn clear(&self) {
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    /// `None`: it is none.
    pub(super) fn get(&self) -> Option<Instant> {
        let micros = self.0.load(Ordering::Relaxed);
        if micros == 0 { None } else { EPOCH.checked_add(Duration::from_micros(micros)) }
    }

    /// Whether it is later than `now`.
    pub(super) fn is_after(&self, now: Instant) -> bool {
        self.get().is_some_and(|at| now < at)
    }
}

/// The hosts of an upstream as they are now. Replaced as a whole; a host that stays is the same one.
#[derive(Debug)]
pub(super) struct Hosts {
    current: RwLock<HostsSnapshot>,
    /// That of `current`, to be asked by each request.
    version: AtomicU64,
}

/// The hosts of an upstream at one time. Never empty.
#[derive(Debug, Clone)]
pub(super) struct HostsSnapshot {
    pub(super) version: u64,
    pub(super) hosts: Arc<[Arc<Host>]>,
}

impl Hosts {
    /// One host for each endpoint.
    pub(super) fn new(endpoints: &[Endpoint]) -> Self {
        let hosts = endpoints.iter().map(Host::of_endpoint).collect();
        Self { current: RwLock::new(HostsSnapshot { version: 0, hosts }), version: AtomicU64::new(0) }
    }

    /// Differs from that of a snapshot once there is another.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    pub(super) fn snapshot(&self) -> HostsSnapshot {
        self.current.read().clone()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Hosts at addresses of this machine, with these weights.
    pub(in crate::upstream) fn hosts(weights: &[u32]) -> Arc<[Arc<Host>]> {
        let endpoint = |&weight| Endpoint {
            url: "http://127.0.0.1:1".parse().unwrap(),
            authority: "127.0.0.1:1".parse().unwrap(),
            port: 1,
            weight,
        };
        weights.iter().map(endpoint).map(|endpoint| Host::of_endpoint(&endpoint)).collect()
    }

    #[test]
    fn a_host_that_can_t_be_reached_is_down_until_it_answers_and_ejected_until_it_accepts_a_connection() {
        let hosts = hosts(&[1]);
        let (state, now) = (&hosts[0].state, Instant::now());
        assert!(state.is_healthy() && !state.is_ejected(now) && state.last_change().is_none());
        state.mark_unreachable("nobody listens".into(), now);
        state.mark_unreachable("it is silent".into(), now);
        assert_eq!((state.is_healthy(), state.ejections(), state.failures()), (false, 1, 2));
        assert_eq!(state.error().unwrap(), "it is silent");
        assert_eq!(state.last_change().unwrap().reason, "nobody listens");
        assert!(state.is_ejected(now) && !state.is_ejected(now + EJECTION_TIME));
        state.answered();
        assert_eq!((state.is_healthy(), state.error(), state.failures()), (true, None, 0));
        assert!(state.is_ejected(now));
        state.connected();
        assert!(!state.is_ejected(now));
    }
}
