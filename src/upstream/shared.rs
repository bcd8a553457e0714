//! The state of one upstream that all workers of the process share: the number of workers must not be visible to
//! clients.

use std::{
    net::IpAddr,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant, UNIX_EPOCH},
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{
    addresses::{AddressTable, UpstreamClient},
    affinity::{Affinity, AffinityHash, HostId},
    balance::{Balancer, HostChoice, KeyOwner},
    drains::{DrainFollower, DrainTable, EndpointId},
    endpoints_file::{EndpointsFileError, ListedInFile},
    health::{Eligible, Outliers},
    hosts::{Hosts, HostsSnapshot, ListedEndpoint, UpstreamHost},
    names::Name,
    queue::ConnectionQueue,
    tls::UpstreamTlsContext,
};
use crate::{
    config::model,
    telemetry::metrics::{EndpointFacts, StateChange, UpstreamTlsFacts},
};

/// One upstream, with its state for the whole process.
#[derive(Debug)]
pub struct SharedUpstream {
    /// Its configuration when it was opened. Later changes of endpoints are in [`SharedUpstream::hosts`], those of
    /// retries and of the time limits of requests in the routes.
    pub config: model::Upstream,
    /// `None`: no endpoint is `https`.
    pub(super) tls: Option<UpstreamTlsContext>,
    /// One permit per open connection, idle ones included, and the requests that wait for a permit.
    pub(super) queue: Arc<ConnectionQueue>,
    /// The client addresses whose requests hold the connections.
    pub(super) addresses: Arc<AddressTable>,
    /// Notified when a request begins to wait, so that workers close idle connections for it.
    pub(super) wanted: Notify,
    /// The addresses that requests are sent to.
    hosts: Hosts,
    /// Ejects hosts that fail requests.
    pub(super) outliers: Outliers,
    /// The endpoints that operators have drained.
    drains: Arc<DrainTable>,
    /// `None`: the configuration lists its endpoints.
    file: Mutex<Option<ListedInFile>>,
}

impl SharedUpstream {
    /// Opens an upstream without connections. `tls` is made from its configuration. Hosts and names that `before`, the
    /// upstream that it replaces, already had keep their state. A file with its endpoints is read, and from then on
    /// followed.
    ///
    /// # Errors
    /// The file can't be read, or is invalid.
    pub fn open(
        config: model::Upstream,
        tls: Option<UpstreamTlsContext>,
        drains: &Arc<DrainTable>,
        before: Option<&Self>,
    ) -> Result<Arc<Self>, EndpointsFileError> {
        let file = config.endpoints_file.as_ref().map(ListedInFile::open).transpose()?;
        let endpoints = file.as_ref().map_or(&*config.endpoints, ListedInFile::endpoints);
        let is_drained = |endpoint: &_| drain_of(drains, &config.name, endpoint).is_some();
        let hosts = Hosts::new(endpoints, before.map(|before| &before.hosts), is_drained);
        let upstream = Arc::new(Self {
            tls,
            queue: ConnectionQueue::new(config.max_connections),
            addresses: Arc::new(AddressTable::new(&config)),
            wanted: Notify::new(),
            hosts,
            outliers: Outliers::new(config.outlier),
            drains: Arc::clone(drains),
            file: Mutex::new(file),
            config,
        });
        drains.watch(&upstream);
        Ok(upstream)
    }

    /// A client with this address, as limits identify it.
    pub fn client(&self, ip: IpAddr) -> Rc<UpstreamClient> {
        UpstreamClient::new(&self.addresses, ip)
    }

    /// Whether `client` is a client of this upstream with this address.
    pub fn has_client(&self, client: &UpstreamClient, ip: IpAddr) -> bool {
        client.is(&self.addresses, ip)
    }

    /// The addresses of all endpoints, drained ones included.
    pub fn hosts(&self) -> Arc<[Arc<UpstreamHost>]> {
        self.hosts.all()
    }

    /// The hosts that take new requests, with their version.
    pub(super) fn hosts_snapshot(&self) -> HostsSnapshot {
        self.hosts.snapshot()
    }

    /// Differs from the version of a snapshot once the hosts have changed.
    pub(super) fn hosts_version(&self) -> u64 {
        self.hosts.version()
    }

    /// The drain of an endpoint. `None`: it takes requests.
    fn drain_of(&self, endpoint: &model::Endpoint) -> Option<StateChange> {
        drain_of(&self.drains, &self.config.name, endpoint)
    }

    /// The URLs of all endpoints.
    pub fn endpoint_urls(&self) -> Vec<String> {
        self.hosts.endpoints().iter().map(|listed| listed.endpoint.base_url()).collect()
    }

    /// The URLs of the endpoints that are not drained.
    pub fn endpoints_in_use(&self) -> Vec<String> {
        let endpoints = self.hosts.endpoints();
        let in_use = endpoints.iter().filter(|listed| self.drain_of(&listed.endpoint).is_none());
        in_use.map(|listed| listed.endpoint.base_url()).collect()
    }

    /// Whether the endpoint with this URL has `drain: true`.
    pub fn is_drained_by_configuration(&self, url: &str) -> bool {
        let is_it = |listed: &ListedEndpoint| listed.endpoint.drain && listed.endpoint.base_url() == url;
        self.hosts.endpoints().iter().any(is_it)
    }

    /// The state of TLS to its endpoints. `None`: no endpoint is `https`.
    pub fn tls_facts(&self) -> Option<UpstreamTlsFacts> {
        self.tls.as_ref().map(UpstreamTlsContext::facts)
    }

    /// Whether any of its files may change.
    pub fn has_files(&self) -> bool {
        self.tls.is_some() || self.config.endpoints_file.is_some()
    }

    /// Reads changed files of its certificates, authorities and endpoints. Blocks: not for a worker's thread.
    pub fn reload_changed_files(&self) {
        let mut file = self.file.lock();
        if let Some(listed) = file.as_mut()
            && listed.refresh()
        {
            self.list(listed.endpoints());
            let (name, endpoints) = (&self.config.name, listed.endpoints().len());
            let path = listed.path().display();
            tracing::info!(endpoints, "upstream {name}: the endpoints in {path} have changed");
        }
        drop(file);
        if let Some(tls) = &self.tls {
            tls.reload_changed_files();
        }
    }

    /// Whether a connection that was opened under this version of the TLS settings may be used.
    pub(super) fn is_current_tls(&self, version: u64) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_current(version))
    }

    /// Replaces its endpoints.
    fn list(&self, endpoints: &[model::Endpoint]) {
        self.hosts.list(endpoints, |endpoint| self.drain_of(endpoint).is_some());
    }

    /// The names of its endpoints.
    pub(super) fn names(&self) -> Vec<Arc<Name>> {
        self.hosts.names()
    }

    /// Whether it can be kept under this configuration, connections included.
    pub fn is_compatible_with(&self, config: &model::Upstream) -> bool {
        let own = &self.config;
        let timeouts = model::Timeouts { idle: config.timeouts.idle, ..own.timeouts };
        let (endpoints, retry) = (own.endpoints.clone(), own.retry.clone());
        model::Upstream { endpoints, retry, timeouts, ..config.clone() } == *own
    }

    /// Puts this configuration into force: its own, or one under which it can be kept. Names may have been resolved
    /// since it was opened.
    pub fn apply(&self, config: &model::Upstream) {
        match config.endpoints_file {
            Some(_) => self.hosts.names_resolved(|endpoint| self.drain_of(endpoint).is_some()),
            None => self.list(&config.endpoints),
        }
    }

    /// Updates the hosts after a name was resolved, if the name is one of its own. Returns whether it is.
    pub(super) fn name_resolved(&self, name: &Arc<Name>) -> bool {
        let is_its_own = self.names().iter().any(|its| Arc::ptr_eq(its, name));
        if is_its_own {
            self.hosts.name_resolved(name, |endpoint| self.drain_of(endpoint).is_some());
        }
        is_its_own
    }

    /// The host with this ID in a cookie, if it gets requests now.
    pub fn named_host(&self, id: HostId, now: Instant) -> Option<Arc<UpstreamHost>> {
        let hosts = self.hosts_snapshot().hosts;
        let eligible = Eligible::new(&hosts, &[], now);
        hosts.iter().find(|host| host.id == id && eligible.admits(host)).cloned()
    }

    /// The host of a key, where requests are balanced by hash. `None`: all hosts are drained.
    pub fn owner_of_key(&self, key: AffinityHash, now: Instant) -> Option<KeyOwner> {
        let (all, in_use) = (self.hosts(), self.hosts_snapshot().hosts);
        let of_key = Balancer::new(all, &self.config, 0).owner_of_all(key)?.clone();
        let affinity = Affinity { key, host: None };
        let choice = HostChoice { affinity: &affinity, tried: &[], within: self.config.timeouts.connect };
        let serving =
            in_use.get(Balancer::new(Arc::clone(&in_use), &self.config, 0).pick(&choice, now))?.clone();
        let why_not_itself = (!Arc::ptr_eq(&of_key, &serving)).then(|| match () {
            () if !in_use.iter().any(|host| Arc::ptr_eq(host, &of_key)) => "is drained".to_owned(),
            () if of_key.state.is_healthy() => "begins slowly".to_owned(),
            () => format!("is {}", of_key.state.status().name()),
        });
        Some(KeyOwner { of_key, serving, why_not_itself })
    }

    /// The state of each endpoint.
    pub fn endpoint_facts(&self) -> Vec<EndpointFacts> {
        let file = self.config.endpoints_file.as_ref().map(|file| file.path.display().to_string());
        let facts = |listed: &ListedEndpoint| EndpointFacts {
            upstream: self.config.name.clone(),
            file: file.clone(),
            url: listed.endpoint.base_url(),
            weight: listed.endpoint.weight,
            drain: self.drain_of(&listed.endpoint),
            addresses: listed.addresses(),
            past: listed.past().clone(),
            resolution: listed.resolution(),
        };
        self.hosts.endpoints().iter().map(facts).collect()
    }
}

impl DrainFollower for SharedUpstream {
    fn apply_drains(&self) {
        self.hosts.apply_drains(|endpoint| self.drain_of(endpoint).is_some());
    }
}

/// The drain of an endpoint of the upstream with this name. `None`: it takes requests.
fn drain_of(drains: &DrainTable, upstream: &str, endpoint: &model::Endpoint) -> Option<StateChange> {
    if endpoint.drain {
        let reason = "drain: true".to_owned();
        return Some(StateChange { time: None, reason, by: "configuration".to_owned() });
    }
    let drain = drains.get(&EndpointId { upstream: upstream.to_owned(), url: endpoint.base_url() })?;
    let since = Duration::from_micros(u64::try_from(drain.since).unwrap_or_default());
    let (reason, by) = (drain.reason.clone(), drain.by.clone());
    Some(StateChange { time: Some(UNIX_EPOCH + since), reason, by })
}
