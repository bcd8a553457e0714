//! The state of one upstream that all workers of the process share: a client must not see how many workers there
//! are.

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{ConnectError, UpstreamTlsContext, addresses::AddressTable, queue::ConnectionQueue, with_cause};
use crate::{
    config::model,
    telemetry::metrics::{EndpointFacts, UpstreamTlsFacts},
    tls::{ServerSettings, find_tls_error, handshake_hint},
};

/// One upstream, with the counters that hold for the whole process.
#[derive(Debug)]
pub struct SharedUpstream {
    /// Its configuration.
    pub config: model::Upstream,
    /// `None`: no endpoint is `https`.
    pub(super) tls: Option<UpstreamTlsContext>,
    /// One permit per open connection, idle ones included, and the requests that wait because none is left.
    pub(super) queue: ConnectionQueue,
    /// The client addresses whose requests hold the connections.
    pub(super) addresses: AddressTable,
    /// Notified when a request begins to wait, so that workers close idle connections for it.
    pub(super) wanted: Notify,
    /// Requests in flight, by endpoint.
    in_flight: Vec<AtomicUsize>,
    /// Reachability, by endpoint.
    health: Vec<Health>,
}

/// Whether an endpoint can be reached.
#[derive(Debug, Default)]
struct Health {
    /// Whether the last attempt to connect failed.
    is_down: AtomicBool,
    /// How often it was ejected after it had been reachable.
    ejections: AtomicU64,
    /// Why the last attempt to connect failed.
    error: Mutex<String>,
}

impl SharedUpstream {
    /// An upstream without connections. `tls` is made of its configuration.
    pub fn new(config: model::Upstream, tls: Option<UpstreamTlsContext>) -> Arc<Self> {
        Arc::new(Self {
            tls,
            queue: ConnectionQueue::new(config.max_connections),
            addresses: AddressTable::new(&config),
            wanted: Notify::new(),
            health: config.endpoints.iter().map(|_| Health::default()).collect(),
            in_flight: config.endpoints.iter().map(|_| AtomicUsize::new(0)).collect(),
            config,
        })
    }

    /// Counts a request to `endpoint` that starts; [`SharedUpstream::request_ended`] must follow.
    pub(super) fn request_started(&self, endpoint: usize) {
        self.in_flight[endpoint].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn request_ended(&self, endpoint: usize) {
        self.in_flight[endpoint].fetch_sub(1, Ordering::Relaxed);
    }

    /// Requests in flight on one endpoint.
    pub fn in_flight(&self, endpoint: usize) -> usize {
        self.in_flight.get(endpoint).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Notes that a connection to `endpoint` was opened, or that it has answered over one that was open.
    pub fn mark_reachable(&self, endpoint: usize) {
        if let Some(health) = self.health.get(endpoint) {
            // Mostly it is up already: don't take the cache line from the other workers for nothing.
            if health.is_down.load(Ordering::Relaxed) {
                health.is_down.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Notes that `endpoint` could not be reached and is ejected, and why.
    pub(super) fn mark_unreachable(&self, endpoint: usize, error: String) {
        let Some(health) = self.health.get(endpoint) else { return };
        *health.error.lock() = error;
        if !health.is_down.swap(true, Ordering::Relaxed) {
            health.ejections.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Why `endpoint` could not be reached the last time that it was tried. `None`: it could.
    pub fn endpoint_error(&self, endpoint: usize) -> Option<String> {
        let health = self.health.get(endpoint).filter(|health| health.is_down.load(Ordering::Relaxed))?;
        Some(health.error.lock().clone())
    }

    /// Whether the last attempt to reach `endpoint` succeeded. An endpoint that was never tried counts as healthy.
    pub fn is_healthy(&self, endpoint: usize) -> bool {
        self.health.get(endpoint).is_none_or(|health| !health.is_down.load(Ordering::Relaxed))
    }

    /// How often `endpoint` was ejected since the start.
    pub fn ejections(&self, endpoint: usize) -> u64 {
        self.health.get(endpoint).map_or(0, |health| health.ejections.load(Ordering::Relaxed))
    }

    /// How an endpoint is named to operators: `http://127.0.0.1:3000`.
    pub fn endpoint_url(&self, endpoint: usize) -> String {
        let endpoint = self.config.endpoints.get(endpoint);
        endpoint.map(|endpoint| format!("{}://{}", endpoint.scheme(), endpoint.authority)).unwrap_or_default()
    }

    /// An error of an endpoint in words, behind what to look at if that is known.
    pub fn describe(&self, endpoint: usize, error: &(dyn Error + 'static)) -> String {
        if !self.config.endpoints.get(endpoint).is_some_and(model::Endpoint::is_https) {
            let is_nonsense = error.downcast_ref().is_some_and(hyper::Error::is_parse);
            let also = if is_nonsense { " (if the port uses TLS, write https://)" } else { "" };
            return with_cause(error) + also;
        }
        let section = format!("upstreams.{}.tls", self.config.name);
        let host = match self.config.tls.as_ref().and_then(|tls| tls.server_name.as_ref()) {
            Some(name) => format!("{section}.server_name ({name})"),
            None => "the host in its URL".to_owned(),
        };
        let settings = ServerSettings { tls: &section, host: &host, without_tls: "write http://" };
        let hint = find_tls_error(error).and_then(|error| handshake_hint(error, settings));
        let error = with_cause(error);
        match hint {
            Some(hint) => format!("{hint} ({error})"),
            None => error,
        }
    }

    /// Why there is no connection to an endpoint: the end of a sentence that begins with it.
    pub fn describe_connect_error(&self, endpoint: usize, error: &ConnectError) -> String {
        match error {
            ConnectError::Handshake(error) => self.describe(endpoint, &**error),
            ConnectError::HandshakeTimeout => {
                format!("{error}: if the port does not use TLS, write http://")
            }
            ConnectError::Full(_) | ConnectError::Unreachable(_) | ConnectError::Timeout => error.to_string(),
        }
    }

    /// How the TLS to its endpoints stands. `None`: none is `https`.
    pub fn tls_facts(&self) -> Option<UpstreamTlsFacts> {
        self.tls.as_ref().map(UpstreamTlsContext::facts)
    }

    /// Reads the files of its certificates and authorities that have changed. Blocks: not for a worker's thread.
    pub fn reload_changed_files(&self) {
        if let Some(tls) = &self.tls {
            tls.reload_changed_files();
        }
    }

    /// Whether a connection that was opened under this version of the TLS settings may be used.
    pub(super) fn is_current_tls(&self, version: u64) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_current(version))
    }

    /// The health of each endpoint.
    pub fn endpoint_facts(&self) -> Vec<EndpointFacts> {
        let facts = |index| EndpointFacts {
            upstream: self.config.name.clone(),
            url: self.endpoint_url(index),
            is_healthy: self.is_healthy(index),
            ejections: self.ejections(index),
            error: self.endpoint_error(index),
        };
        (0..self.config.endpoints.len()).map(facts).collect()
    }
}
