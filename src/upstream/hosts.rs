//! The hosts of an upstream: the addresses that its requests are sent to, and the state of each that all workers share.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use parking_lot::RwLock;

use super::{affinity::HostId, host_state::HostState, names::Name, rendezvous};
use crate::{
    changes,
    config::model::Endpoint,
    telemetry::metrics::{AddressFacts, ResolutionFacts, StateChange},
};

/// One address that requests are sent to.
pub struct UpstreamHost {
    /// Its endpoint in the configuration.
    pub endpoint: Endpoint,
    /// `None`: the endpoint has a name without a known address, or a name for this machine, which the system resolves.
    pub address: Option<SocketAddr>,
    /// Names the host in cookies.
    pub id: HostId,
    /// Identifies the endpoint where requests are balanced by hash.
    pub(super) endpoint_hash: u64,
    /// The name of the endpoint. `None`: the endpoint has an address, or a name for this machine.
    pub(super) name: Option<Arc<Name>>,
    /// Its share of the requests, as the bits of a float.
    weight: AtomicU64,
    /// The state that all workers share. It is kept where a reload replaces the upstream.
    pub state: Arc<HostState>,
}

impl UpstreamHost {
    /// Without an `address`, the host represents the name of the endpoint.
    fn new(
        endpoint: Endpoint,
        address: Option<SocketAddr>,
        name: Option<Arc<Name>>,
        state: Arc<HostState>,
    ) -> Arc<Self> {
        let is_name = endpoint.host().parse::<IpAddr>().is_err();
        let id = HostId::new(&endpoint, address.filter(|_| is_name));
        let endpoint_hash = rendezvous::hash(endpoint.base_url().as_bytes());
        let weight = AtomicU64::new(f64::from(endpoint.weight).to_bits());
        Arc::new(Self { endpoint, address, id, endpoint_hash, name, weight, state })
    }

    /// Whether it represents a name without an address.
    pub(super) fn is_unresolved(&self) -> bool {
        self.address.is_none() && self.name.is_some()
    }

    /// Its share of the requests, in proportion to the weights of the others.
    pub fn weight(&self) -> f64 {
        f64::from_bits(self.weight.load(Ordering::Relaxed))
    }

    /// The endpoint as operators know it: `http://127.0.0.1:3000`.
    pub fn url(&self) -> String {
        self.endpoint.base_url()
    }

    /// Its state and counters, drained or not.
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

impl fmt::Debug for UpstreamHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamHost")
            .field("url", &self.url())
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// The current hosts of an upstream. The list is replaced as a whole; a host that is kept remains the same object.
#[derive(Debug)]
pub(super) struct Hosts {
    current: RwLock<CurrentHosts>,
    /// The version of the snapshot: each request compares it.
    version: AtomicU64,
}

#[derive(Debug)]
struct CurrentHosts {
    endpoints: Vec<ListedEndpoint>,
    /// Includes drained hosts.
    all: Arc<[Arc<UpstreamHost>]>,
    in_use: HostsSnapshot,
}

/// An endpoint of an upstream. Its hosts change with the addresses of its name.
#[derive(Debug, Clone)]
pub(super) struct ListedEndpoint {
    /// Its configuration.
    pub(super) endpoint: Endpoint,
    /// Never empty.
    hosts: Vec<Arc<UpstreamHost>>,
    /// `None`: it has an address, or a name for this machine.
    name: Option<Arc<Name>>,
    /// Counters of removed hosts.
    past: AddressFacts,
}

impl ListedEndpoint {
    /// The state of its name's resolution. `None`: it has no name that is resolved.
    pub(super) fn resolution(&self) -> Option<ResolutionFacts> {
        self.name.as_ref().map(|name| name.facts())
    }

    /// The state of its addresses. Empty: its name has no address yet.
    pub(super) fn addresses(&self) -> Vec<AddressFacts> {
        self.hosts.iter().filter(|host| !host.is_unresolved()).map(|host| host.facts()).collect()
    }

    /// Counters of removed addresses.
    pub(super) fn past(&self) -> &AddressFacts {
        &self.past
    }

    /// The same endpoint for a replaced upstream: its name, and the state of its hosts, are kept.
    fn successor(&self) -> Self {
        let host = |host: &Arc<UpstreamHost>| {
            let (endpoint, name, state) = (host.endpoint.clone(), host.name.clone(), Arc::clone(&host.state));
            UpstreamHost::new(endpoint, host.address, name, state)
        };
        Self { hosts: self.hosts.iter().map(host).collect(), ..self.clone() }
    }

    /// Updates the hosts to the current addresses, each with its share of the weight. Known hosts are kept.
    fn renew_hosts(&mut self) {
        let port = self.endpoint.port;
        let mut addresses: Vec<Option<SocketAddr>> = match &self.name {
            Some(name) => name.known().into_iter().map(|ip| Some(SocketAddr::new(ip, port))).collect(),
            None => vec![self.endpoint.host().parse().ok().map(|ip| SocketAddr::new(ip, port))],
        };
        if addresses.is_empty() {
            addresses.push(None);
        }
        let share = f64::from(self.endpoint.weight) / addresses.len() as f64;
        let mut before = std::mem::take(&mut self.hosts);
        let host = |address: Option<SocketAddr>| {
            let host = match before.iter().position(|host| host.address == address) {
                Some(known_at) => before.swap_remove(known_at),
                None => {
                    let state = HostState::new(address.is_some() || self.name.is_none());
                    UpstreamHost::new(self.endpoint.clone(), address, self.name.clone(), Arc::new(state))
                }
            };
            host.weight.store(share.to_bits(), Ordering::Relaxed);
            host
        };
        self.hosts = addresses.into_iter().map(host).collect();
        for gone in before {
            let (past, gone) = (&mut self.past, gone.facts());
            past.requests += gone.requests;
            past.errors += gone.errors;
            past.ejections += gone.ejections;
            past.probe_failures += gone.probe_failures;
        }
    }
}

/// The hosts of an upstream that take new requests, at one moment. Empty if all are drained.
#[derive(Debug, Clone)]
pub(super) struct HostsSnapshot {
    pub(super) version: u64,
    pub(super) hosts: Arc<[Arc<UpstreamHost>]>,
}

impl Hosts {
    /// Builds the hosts of `endpoints`. Hosts that `before`, the previous upstream's, already had keep their health and
    /// statistics.
    pub(super) fn new(
        endpoints: &[Endpoint],
        before: Option<&Self>,
        is_drained: impl Fn(&Endpoint) -> bool,
    ) -> Self {
        let mut current = match before {
            Some(before) => before.current.read().successor(),
            None => CurrentHosts {
                endpoints: Vec::new(),
                all: Arc::new([]),
                in_use: HostsSnapshot { version: 0, hosts: Arc::new([]) },
            },
        };
        current.list(endpoints);
        current.renew(is_drained);
        let version = AtomicU64::new(current.in_use.version);
        Self { current: RwLock::new(current), version }
    }

    /// Replaces the endpoints. Hosts that are kept keep their state.
    pub(super) fn list(&self, endpoints: &[Endpoint], is_drained: impl Fn(&Endpoint) -> bool) {
        self.change(|current| current.list(endpoints), is_drained);
    }

    /// Updates the hosts after a name was resolved.
    pub(super) fn name_resolved(&self, name: &Arc<Name>, is_drained: impl Fn(&Endpoint) -> bool) {
        let renew = |current: &mut CurrentHosts| {
            let is_its = |listed: &&mut ListedEndpoint| {
                listed.name.as_ref().is_some_and(|listed| Arc::ptr_eq(listed, name))
            };
            current.endpoints.iter_mut().filter(is_its).for_each(ListedEndpoint::renew_hosts);
        };
        self.change(renew, is_drained);
    }

    /// Updates the hosts of all names.
    pub(super) fn names_resolved(&self, is_drained: impl Fn(&Endpoint) -> bool) {
        let renew = |current: &mut CurrentHosts| {
            let named = current.endpoints.iter_mut().filter(|listed| listed.name.is_some());
            named.for_each(ListedEndpoint::renew_hosts);
        };
        self.change(renew, is_drained);
    }

    /// Removes drained hosts from the snapshot, and adds those that are undrained.
    pub(super) fn apply_drains(&self, is_drained: impl Fn(&Endpoint) -> bool) {
        self.change(|_| (), is_drained);
    }

    fn change(&self, change: impl FnOnce(&mut CurrentHosts), is_drained: impl Fn(&Endpoint) -> bool) {
        // Drains are read under the lock: the last change of the snapshot has seen the newest drains.
        let mut current = self.current.write();
        change(&mut current);
        current.renew(is_drained);
        let is_new = self.version.swap(current.in_use.version, Ordering::Relaxed) != current.in_use.version;
        drop(current);
        if is_new {
            changes::announce();
        }
    }

    /// Changes with each snapshot.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// The hosts that take new requests.
    pub(super) fn snapshot(&self) -> HostsSnapshot {
        self.current.read().in_use.clone()
    }

    /// All hosts, drained ones included.
    pub(super) fn all(&self) -> Arc<[Arc<UpstreamHost>]> {
        Arc::clone(&self.current.read().all)
    }

    /// The endpoints, with their hosts.
    pub(super) fn endpoints(&self) -> Vec<ListedEndpoint> {
        self.current.read().endpoints.clone()
    }

    /// The names of the endpoints.
    pub(super) fn names(&self) -> Vec<Arc<Name>> {
        self.current.read().endpoints.iter().filter_map(|listed| listed.name.clone()).collect()
    }
}

impl CurrentHosts {
    /// The same hosts for a replaced upstream.
    fn successor(&self) -> Self {
        let endpoints: Vec<_> = self.endpoints.iter().map(ListedEndpoint::successor).collect();
        let hosts = |endpoints: &[ListedEndpoint]| -> Vec<_> {
            endpoints.iter().flat_map(|listed| listed.hosts.clone()).collect()
        };
        let in_use: HashSet<_> = self.in_use.hosts.iter().map(Arc::as_ptr).collect();
        let pairs = hosts(&self.endpoints).into_iter().zip(hosts(&endpoints));
        let in_use = pairs.filter(|(before, _)| in_use.contains(&Arc::as_ptr(before)));
        let in_use = HostsSnapshot { version: 0, hosts: in_use.map(|(_, host)| host).collect() };
        Self { endpoints, all: Arc::new([]), in_use }
    }

    fn list(&mut self, endpoints: &[Endpoint]) {
        let before = std::mem::take(&mut self.endpoints).into_iter();
        let mut before: HashMap<_, _> = before.map(|listed| (listed.endpoint.url.clone(), listed)).collect();
        let listed = |endpoint: &Endpoint| {
            let mut listed = before.remove(&endpoint.url).unwrap_or_else(|| ListedEndpoint {
                endpoint: endpoint.clone(),
                hosts: Vec::new(),
                name: needs_resolving(endpoint.host()).then(|| Name::in_use(endpoint.host())),
                past: AddressFacts::default(),
            });
            listed.endpoint = endpoint.clone();
            listed.renew_hosts();
            listed
        };
        self.endpoints = endpoints.iter().map(listed).collect();
    }

    fn renew(&mut self, is_drained: impl Fn(&Endpoint) -> bool) {
        let hosts = |listed: &ListedEndpoint| listed.hosts.clone();
        let all: Arc<[_]> = self.endpoints.iter().flat_map(hosts).collect();
        let in_use = self.endpoints.iter().filter(|listed| !is_drained(&listed.endpoint));
        let in_use: Arc<[_]> = in_use.flat_map(hosts).collect();
        let before = &self.in_use.hosts;
        let is_same = |one: &[Arc<UpstreamHost>], other: &[Arc<UpstreamHost>]| {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| Arc::ptr_eq(one, other))
        };
        // Drained hosts get no requests, but they are probed.
        if is_same(&in_use, before) && is_same(&all, &self.all) {
            return;
        }
        self.all = all;
        if !before.is_empty() {
            let known: HashSet<_> = before.iter().map(Arc::as_ptr).collect();
            // Once a name is resolved for the first time, its hosts replace the one that represented the name. They
            // begin without slow start if that one would have.
            let stood_for = before.iter().filter(|known| known.address.is_none());
            let stood_for: HashMap<_, _> = stood_for.map(|known| (&known.endpoint.url, known)).collect();
            let was_there = |host: &&Arc<UpstreamHost>| {
                let is_from_the_start = |known: &&Arc<UpstreamHost>| known.state.in_use_since().is_none();
                known.contains(&Arc::as_ptr(host))
                    || stood_for.get(&host.endpoint.url).is_some_and(is_from_the_start)
            };
            let now = Instant::now();
            in_use.iter().filter(|host| !was_there(host)).for_each(|host| host.state.came_back(now));
        }
        self.in_use = HostsSnapshot { version: self.in_use.version + 1, hosts: in_use };
    }
}

/// Whether the host is a name that has to be resolved. A name for this machine always has the same addresses, and
/// servers often listen on one of them only, so these are tried one after the other.
fn needs_resolving(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host.parse::<IpAddr>().is_err() && host != "localhost" && !host.ends_with(".localhost")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Hosts at addresses of this machine, with these weights.
    pub(in crate::upstream) fn hosts(weights: &[u32]) -> Arc<[Arc<UpstreamHost>]> {
        let endpoint = |(port, &weight)| Endpoint {
            url: format!("http://127.0.0.1:{port}").parse().unwrap(),
            authority: format!("127.0.0.1:{port}").parse().unwrap(),
            port,
            weight,
            drain: false,
        };
        let endpoints: Vec<_> = (1..).zip(weights).map(endpoint).collect();
        Hosts::new(&endpoints, None, |_| false).snapshot().hosts
    }

    fn endpoint(url: &str, weight: u32) -> Endpoint {
        let url: http::Uri = url.parse().unwrap();
        let (authority, port) = (url.authority().unwrap().clone(), url.port_u16().unwrap());
        Endpoint { url, authority, port, weight, drain: false }
    }

    fn shown(hosts: &Hosts) -> Vec<(String, f64)> {
        let host = |host: &Arc<UpstreamHost>| match host.address {
            Some(address) => (address.to_string(), host.weight()),
            None => (host.endpoint.host().to_owned(), host.weight()),
        };
        hosts.snapshot().hosts.iter().map(host).collect()
    }

    #[test]
    fn a_host_that_stays_keeps_what_is_known_of_it_whatever_its_weight() {
        let endpoints = [endpoint("http://10.0.0.1:1", 1), endpoint("http://10.0.0.2:1", 1)];
        let hosts = Hosts::new(&endpoints, None, |_| false);
        let before = hosts.snapshot();
        assert_eq!(hosts.version(), before.version, "nothing has changed yet");
        before.hosts[1].state.mark_unreachable("refused".into(), Instant::now());
        hosts.list(&[endpoint("http://10.0.0.3:1", 1), endpoint("http://10.0.0.2:1", 5)], |_| false);
        assert_eq!(shown(&hosts), [("10.0.0.3:1".to_owned(), 1.0), ("10.0.0.2:1".to_owned(), 5.0)]);
        let after = hosts.snapshot();
        assert!(Arc::ptr_eq(&before.hosts[1], &after.hosts[1]) && !after.hosts[1].state.is_healthy());
        let since = |host: &UpstreamHost| host.state.in_use_since();
        assert!(since(&before.hosts[0]).is_none() && since(&after.hosts[0]).is_some(), "it begins slowly");
        assert!(hosts.version() > before.version && hosts.version() == after.version);
        hosts.list(&[endpoint("http://10.0.0.3:1", 2), endpoint("http://10.0.0.2:1", 5)], |_| false);
        assert_eq!(hosts.version(), after.version, "the same hosts");
        hosts.list(&[endpoint("http://10.0.0.3:1", 2), endpoint("http://10.0.0.2:1", 5)], |endpoint| {
            endpoint.weight == 5
        });
        assert_eq!(shown(&hosts), [("10.0.0.3:1".to_owned(), 2.0)], "the other is drained");
        assert_eq!(hosts.all().len(), 2);
    }

    #[test]
    fn a_name_stands_for_itself_until_it_has_addresses_which_share_its_weight() {
        let hosts = Hosts::new(&[endpoint("http://db.test:7", 3)], None, |_| false);
        assert_eq!(shown(&hosts), [("db.test".to_owned(), 3.0)]);
        let name = hosts.names().remove(0);
        name.found(&["10.0.0.1", "10.0.0.2", "::1"]);
        hosts.name_resolved(&name, |_| false);
        let share = |address: &str| (address.to_owned(), 1.0);
        assert_eq!(shown(&hosts), ["10.0.0.1:7", "10.0.0.2:7", "[::1]:7"].map(share));
        let before = hosts.snapshot();
        assert!(before.hosts.iter().all(|host| host.state.in_use_since().is_none()), "all are the first");
        before.hosts[0].state.mark_unreachable("refused".into(), Instant::now());
        name.found(&["10.0.0.2"]);
        hosts.name_resolved(&name, |_| false);
        assert_eq!(shown(&hosts), [("10.0.0.2:7".to_owned(), 3.0)]);
        assert!(Arc::ptr_eq(&before.hosts[1], &hosts.snapshot().hosts[0]));
        assert_eq!(hosts.endpoints()[0].past().ejections, 1, "that of the address that is gone");
    }

    #[test]
    fn a_name_that_is_added_begins_slowly_once_it_has_addresses() {
        let (first, added) = (endpoint("http://10.0.0.1:1", 1), endpoint("http://added.test:7", 1));
        let hosts = Hosts::new(std::slice::from_ref(&first), None, |_| false);
        hosts.list(&[first, added], |_| false);
        let name = hosts.names().remove(0);
        name.found(&["10.0.0.2"]);
        hosts.name_resolved(&name, |_| false);
        let begins: Vec<_> =
            hosts.snapshot().hosts.iter().map(|host| host.state.in_use_since().is_some()).collect();
        assert_eq!(begins, [false, true]);
    }

    #[test]
    fn state_and_addresses_of_hosts_outlast_their_upstream() {
        let endpoints =
            ["http://10.0.0.1:1", "http://stays.test:7", "http://10.0.0.3:1", "http://10.0.0.4:1"];
        let before =
            Hosts::new(&endpoints[..3].iter().map(|url| endpoint(url, 1)).collect::<Vec<_>>(), None, |_| {
                false
            });
        let name = before.names().remove(0);
        name.found(&["10.0.0.2"]);
        before.name_resolved(&name, |_| false);
        let old = before.snapshot().hosts;
        old[0].state.mark_unreachable("refused".into(), Instant::now());
        let heavier = [2, 2, 2, 2].into_iter().zip(endpoints).map(|(weight, url)| endpoint(url, weight));
        let heavier: Vec<_> = heavier.collect();
        let after = Hosts::new(&heavier, Some(&before), |endpoint| endpoint.url.host() == Some("10.0.0.3"));
        let share = |address: &str| (address.to_owned(), 2.0);
        assert_eq!(shown(&after), ["10.0.0.1:1", "10.0.0.2:7", "10.0.0.4:1"].map(share));
        let new = after.snapshot().hosts;
        assert!(!new[0].state.is_healthy(), "it is unreachable as before");
        assert_eq!(old[0].weight(), 1.0, "the upstream that is in force still has the old weights");
        let begins = |nth: usize| new[nth].state.in_use_since().is_some();
        assert!(!begins(1) && begins(2), "the new one alone begins slowly");
        // The name was resolved while the old upstream was in force.
        name.found(&["10.0.0.5"]);
        before.name_resolved(&name, |_| false);
        after.names_resolved(|_| false);
        assert_eq!(shown(&after)[1], share("10.0.0.5:7"));
    }

    #[test]
    fn ten_times_the_hosts_change_in_some_ten_times_the_time() {
        let took = |count: usize| {
            let endpoints = |from: usize| -> Vec<_> {
                (from..from + count)
                    .map(|nth| endpoint(&format!("http://10.0.{}.{}:1", nth / 250, nth % 250), 1))
                    .collect()
            };
            let hosts = Hosts::new(&endpoints(0), None, |_| false);
            let (half, began) = (endpoints(count / 2), Instant::now());
            hosts.list(&half, |_| false);
            let after = Hosts::new(&half, Some(&hosts), |_| false);
            let took = began.elapsed();
            assert_eq!(after.snapshot().hosts.len(), count);
            took
        };
        let quickest = |count| (0..5).map(|_| took(count)).min().expect("five tries");
        // A search among all others for each host would take a hundred times as long.
        let (few, many) = (quickest(500), quickest(5_000));
        assert!(many < few * 40, "{few:?} and {many:?}");
    }

    #[test]
    fn names_of_this_machine_and_addresses_are_not_resolved_again() {
        for host in ["localhost", "LOCALHOST.", "api.localhost", "10.0.0.1", "::1"] {
            assert!(!needs_resolving(host), "{host}");
        }
        assert!(["db", "localhost.example.com", "mylocalhost"].iter().all(|host| needs_resolving(host)));
    }
}
