//! The state of one upstream that all workers of the process share: a client must not see how many workers there
//! are.

use std::{error::Error, sync::Arc};

use tokio::sync::Notify;

use super::{
    ConnectError, Host, UpstreamTlsContext,
    addresses::AddressTable,
    health::Outliers,
    hosts::{Hosts, HostsSnapshot},
    queue::ConnectionQueue,
    with_cause,
};
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
    /// The addresses that requests are sent to.
    hosts: Hosts,
    /// Ejects hosts that fail requests.
    pub(super) outliers: Outliers,
}

impl SharedUpstream {
    /// An upstream without connections. `tls` is made of its configuration.
    pub fn new(config: model::Upstream, tls: Option<UpstreamTlsContext>) -> Arc<Self> {
        Arc::new(Self {
            tls,
            queue: ConnectionQueue::new(config.max_connections),
            addresses: AddressTable::new(&config),
            wanted: Notify::new(),
            hosts: Hosts::new(&config.endpoints),
            outliers: Outliers::new(config.outlier),
            config,
        })
    }

    /// The addresses that requests are sent to now.
    pub fn hosts(&self) -> Arc<[Arc<Host>]> {
        self.hosts.snapshot().hosts
    }

    /// The same, with their version.
    pub(super) fn hosts_snapshot(&self) -> HostsSnapshot {
        self.hosts.snapshot()
    }

    /// Differs from that of a snapshot once the hosts are others.
    pub(super) fn hosts_version(&self) -> u64 {
        self.hosts.version()
    }

    /// An error of a host in words, behind what to look at if that is known.
    pub fn describe(&self, host: &Host, error: &(dyn Error + 'static)) -> String {
        if !host.endpoint.is_https() {
            let is_nonsense = error.downcast_ref().is_some_and(hyper::Error::is_parse);
            let also = if is_nonsense { " (if the port uses TLS, write https://)" } else { "" };
            return with_cause(error) + also;
        }
        let section = format!("upstreams.{}.tls", self.config.name);
        let named = match self.config.tls.as_ref().and_then(|tls| tls.server_name.as_ref()) {
            Some(name) => format!("{section}.server_name ({name})"),
            None => "the host in its URL".to_owned(),
        };
        let settings = ServerSettings { tls: &section, host: &named, without_tls: "write http://" };
        let hint = find_tls_error(error).and_then(|error| handshake_hint(error, settings));
        let error = with_cause(error);
        match hint {
            Some(hint) => format!("{hint} ({error})"),
            None => error,
        }
    }

    /// Why there is no connection to a host: the end of a sentence that begins with it.
    pub fn describe_connect_error(&self, host: &Host, error: &ConnectError) -> String {
        match error {
            ConnectError::Handshake(error) => self.describe(host, &**error),
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
        let facts = |host: &Arc<Host>| EndpointFacts {
            upstream: self.config.name.clone(),
            url: host.url(),
            is_healthy: host.state.is_healthy(),
            status: host.state.status(),
            ejections: host.state.ejections(),
            error: host.state.error(),
        };
        self.hosts().iter().map(facts).collect()
    }
}
