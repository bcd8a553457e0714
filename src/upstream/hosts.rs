//! The hosts of an upstream: the addresses that its requests can be sent to, and what all workers know of each.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::RwLock;

use super::{HostId, HostState, rendezvous};
use crate::{
    config::model::Endpoint,
    telemetry::metrics::{AddressFacts, StateChange},
};

/// One address that requests are sent to.
pub struct Host {
    /// Its endpoint in the configuration.
    pub endpoint: Endpoint,
    /// `None`: the endpoint has a name, which is resolved when a connection is opened.
    pub address: Option<SocketAddr>,
    /// What it is called in cookies.
    pub id: HostId,
    /// Where requests are balanced by hash, what its endpoint is known by.
    pub(super) endpoint_hash: u64,
    /// What all workers know of it.
    pub state: HostState,
}

impl Host {
    /// A host of `endpoint` that was never tried. Without an `address` it stands for the name of the endpoint.
    pub fn new(endpoint: Endpoint, address: Option<SocketAddr>) -> Arc<Self> {
        let is_name = endpoint.host().parse::<IpAddr>().is_err();
        let id = HostId::new(&endpoint, address.filter(|_| is_name));
        let endpoint_hash = rendezvous::hash(endpoint.base_url().as_bytes());
        Arc::new(Self { endpoint, address, id, endpoint_hash, state: HostState::default() })
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
        self.endpoint.base_url()
    }

    /// How it stands, drained or not.
    pub fn facts(&self) -> AddressFacts {
        let state = &self.state;
        AddressFacts {
            address: match self.address {
                Some(address) => address.to_string(),
                None => format!("{}:{}", self.endpoint.host(), self.endpoint.port),
            },
            state: state.status(),
            change: state.last_change().map(|change| StateChange {
                time: Some(change.time),
                reason: change.reason,
                by: change.by.name().to_owned(),
            }),
            error: state.error(),
            in_flight: state.in_flight() as u64,
            requests: state.requests(),
            errors: state.errors(),
            ejections: state.ejections(),
            probe_failures: state.probe_failures(),
        }
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
    current: RwLock<CurrentHosts>,
    /// That of the snapshot, to be asked by each request.
    version: AtomicU64,
}

#[derive(Debug)]
struct CurrentHosts {
    /// Drained ones included. Never empty.
    all: Arc<[Arc<Host>]>,
    in_use: HostsSnapshot,
}

/// The hosts of an upstream that take new requests, at one time. Empty if all are drained.
#[derive(Debug, Clone)]
pub(super) struct HostsSnapshot {
    pub(super) version: u64,
    pub(super) hosts: Arc<[Arc<Host>]>,
}

impl Hosts {
    /// One host for each endpoint.
    pub(super) fn new(endpoints: &[Endpoint]) -> Self {
        let all: Arc<[_]> = endpoints.iter().map(Host::of_endpoint).collect();
        let in_use = HostsSnapshot { version: 0, hosts: Arc::clone(&all) };
        Self { current: RwLock::new(CurrentHosts { all, in_use }), version: AtomicU64::new(0) }
    }

    /// Differs from that of a snapshot once there is another.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// Those that take new requests.
    pub(super) fn snapshot(&self) -> HostsSnapshot {
        self.current.read().in_use.clone()
    }

    /// Those that are drained included.
    pub(super) fn all(&self) -> Arc<[Arc<Host>]> {
        Arc::clone(&self.current.read().all)
    }

    /// Leaves out of the snapshot those that are drained now.
    pub(super) fn apply_drains(&self, is_drained: impl Fn(&Host) -> bool) {
        // Asked while nobody else can change the snapshot: who comes last knows the newest drains.
        let mut current = self.current.write();
        current.use_all_but(is_drained);
        self.version.store(current.in_use.version, Ordering::Relaxed);
    }
}

impl CurrentHosts {
    fn use_all_but(&mut self, is_drained: impl Fn(&Host) -> bool) {
        let in_use: Arc<[_]> = self.all.iter().filter(|host| !is_drained(host)).cloned().collect();
        let is_same = in_use.len() == self.in_use.hosts.len()
            && in_use.iter().zip(&*self.in_use.hosts).all(|(one, other)| Arc::ptr_eq(one, other));
        if !is_same {
            let is_new = |host: &&Arc<Host>| !self.in_use.hosts.iter().any(|known| Arc::ptr_eq(known, host));
            in_use.iter().filter(is_new).for_each(|host| host.state.came_back(Instant::now()));
            self.in_use = HostsSnapshot { version: self.in_use.version + 1, hosts: in_use };
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Hosts at addresses of this machine, with these weights.
    pub(in crate::upstream) fn hosts(weights: &[u32]) -> Arc<[Arc<Host>]> {
        let endpoint = |(port, &weight)| Endpoint {
            url: format!("http://127.0.0.1:{port}").parse().unwrap(),
            authority: format!("127.0.0.1:{port}").parse().unwrap(),
            port,
            weight,
            drain: false,
        };
        (1..).zip(weights).map(endpoint).map(|endpoint| Host::of_endpoint(&endpoint)).collect()
    }
}
