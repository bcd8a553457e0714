//! A finding: a problem that a rule has found, and its subject.

use std::{net::IpAddr, path::PathBuf};

use ipnet::IpNet;

/// The subject of a warning. Each subject has at most one warning at a time; its text may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Subject {
    /// The requests of a route fail.
    FailingRoute(String),
    /// An endpoint is unreachable.
    UnreachableEndpoint { upstream: String, url: String },
    /// Resolving an endpoint's name fails, and its last addresses are used.
    StaleAddresses { upstream: String, url: String },
    /// No endpoint of an upstream takes requests.
    UnusableUpstream(String),
    /// Fewer than half of the endpoints of an upstream take requests.
    FewEndpoints(String),
    /// A Redis server of the store is unavailable.
    UnavailableStore(String),
    /// One client sends most requests.
    HeaviestClient(IpAddr),
    /// One client has most connections.
    MostConnections(IpNet),
    /// Clients send HTTP/2 floods.
    Floods,
    /// All clients have private addresses.
    PrivateClients,
    /// Untrusted peers send forwarding fields.
    UntrustedForwarding,
    /// The clock of this instance is off.
    OwnClock,
    /// The clocks of other instances are off.
    OtherClocks,
    /// The instances' configurations differ.
    Configurations,
    /// The instances' versions differ.
    Versions,
    /// The certificate in this file expires soon.
    CertificateExpiry(PathBuf),
    /// The certificate in this file is invalid now.
    InvalidCertificate(PathBuf),
    /// Reloading this TLS file fails.
    TlsReload(PathBuf),
    /// The file of API keys has changed, and can't be used.
    KeysFile,
    /// The history can't be written.
    History,
    /// The spool of the history can't be written.
    HistorySpool,
    /// Parts of the history were lost.
    HistoryDropped,
    /// The clock differs from that of the history's database.
    HistoryClock,
    /// This month waits for processes that are silent.
    HistoryMonth(String),
    /// This webhook does not take alerts.
    Alerts(String),
    /// The database refuses alerts.
    AlertsFault,
    /// There were too many alerts.
    AlertsDropped,
    /// The key set of this provider can't be fetched.
    KeySet(String),
    /// The memory for limits is nearly full.
    LimitsMemory,
    /// The memory for evidence is nearly full.
    EvidenceMemory,
    /// A warning that the store reports itself, with its text.
    Store(String),
}

impl Subject {
    /// The kind and name of an outage; `None` for other warnings.
    pub(super) fn outage(&self) -> Option<(OutageKind, &str)> {
        match self {
            Self::FailingRoute(route) => Some((OutageKind::Route, route)),
            Self::UnreachableEndpoint { url, .. } => Some((OutageKind::Endpoint, url)),
            Self::UnusableUpstream(upstream) => Some((OutageKind::Upstream, upstream)),
            Self::UnavailableStore(address) => Some((OutageKind::Store, address)),
            _ => None,
        }
    }
}

/// A problem that a rule has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) subject: Subject,
    pub(super) text: String,
}

/// The kind of thing that is out of order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutageKind {
    /// A route, by its name.
    Route,
    /// An endpoint, by its URL.
    Endpoint,
    /// An upstream, by its name.
    Upstream,
    /// A Redis server, by its address.
    Store,
}

impl OutageKind {
    /// `route`
    pub fn name(self) -> &'static str {
        match self {
            Self::Route => "route",
            Self::Endpoint => "endpoint",
            Self::Upstream => "upstream",
            Self::Store => "store",
        }
    }
}
