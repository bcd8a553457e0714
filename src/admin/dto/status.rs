//! The state of the process.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema;

/// `GET /healthz`, `GET /readyz`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `alive`, `ready`
    #[schema(value_type = schema::HealthWord)]
    pub status: String,
}

/// `GET /v1/status`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    #[schema(example = "0.1.0")]
    pub version: String,
    #[schema(value_type = schema::Time)]
    pub started: String,
    #[schema(value_type = schema::Duration)]
    pub uptime: String,
    pub ready: bool,
    pub draining: bool,
    pub configuration: Configuration,
    pub store: StoreStatus,
    pub workers: usize,
    pub listeners: Vec<String>,
    /// The listeners that speak TLS.
    #[serde(default)]
    pub tls: Vec<ListenerTls>,
    /// The key sets of the providers of tokens.
    #[serde(default)]
    pub key_sets: Vec<KeySetStatus>,
    #[serde(default)]
    pub memory: MemoryStatus,
    #[serde(default)]
    pub upstreams: Vec<UpstreamStatus>,
    /// Current outages, as this instance sees them.
    #[serde(default)]
    pub outages: Vec<Outage>,
    /// In words; warnings about outages come first.
    pub warnings: Vec<String>,
}

impl Status {
    /// The warnings without those about [`Status::outages`].
    pub fn other_warnings(&self) -> impl Iterator<Item = &String> {
        self.warnings.iter().filter(|warning| self.outages.iter().all(|outage| outage.text != **warning))
    }

    /// The warnings without those about [`Status::outages`] and [`Configuration::last_reload`].
    pub fn remaining_warnings(&self) -> impl Iterator<Item = &String> {
        let of_reload = self.configuration.reload_warning();
        self.other_warnings().filter(move |warning| of_reload.as_ref() != Some(warning))
    }
}

/// The endpoints of an upstream in short; `/v1/upstreams` has more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpstreamStatus {
    #[schema(example = "api")]
    pub name: String,
    pub endpoints: usize,
    /// Endpoints that get requests.
    pub healthy: usize,
    /// Problems of endpoints, in words; drained endpoints are listed, too.
    #[schema(example = json!(["http://10.0.0.6:3000 is unreachable: Connection refused (os error 111)"]))]
    pub problems: Vec<String>,
}

/// An outage: a route whose requests fail, an unreachable endpoint, an upstream without an endpoint that takes
/// requests, an unavailable Redis server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Outage {
    #[schema(value_type = schema::OutageKind)]
    pub kind: String,
    /// The name of the route or upstream, the URL of the endpoint, or the address of the Redis server.
    #[schema(example = "http://10.0.0.6:3000")]
    pub name: String,
    #[schema(value_type = schema::Time)]
    pub since: String,
    /// The warning.
    #[schema(
        example = "endpoint http://10.0.0.6:3000 of upstream api is unreachable: Connection refused (os error 111)"
    )]
    pub text: String,
}

/// The key set of a provider of tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeySetStatus {
    /// The URL of the set, or of its issuer.
    #[schema(example = "https://login.example.com")]
    pub source: String,
    /// The keys in use.
    pub keys: u64,
    /// When it was last fetched. `null`: never since the start.
    #[schema(required, value_type = Option<schema::Time>)]
    pub fetched: Option<String>,
    /// Until when its keys are used, unless it is fetched again. `null`: there are none.
    #[schema(required, value_type = Option<schema::Time>)]
    pub usable_until: Option<String>,
    /// Why the last fetch failed.
    #[schema(required, example = "https://login.example.com/keys responds with 503 Service Unavailable")]
    pub error: Option<String>,
}

/// Memory used by limits and by evidence.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemoryStatus {
    /// Memory available to the process: the lowest limit of its control groups, or the memory of the machine. `null` if
    /// it is not known.
    #[schema(required)]
    pub available_bytes: Option<u64>,
    pub limits: MemoryBudget,
    pub evidence: MemoryBudget,
}

/// A budget of memory, and its use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemoryBudget {
    pub held_bytes: u64,
    pub budget_bytes: u64,
    /// Limits, or clients' records, that were evicted for lack of memory since the start.
    pub evicted: u64,
}

/// The TLS of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListenerTls {
    #[schema(example = json!(["0.0.0.0:443"]))]
    pub addresses: Vec<String>,
    /// In the configuration's order; the first serves all names that no other has.
    pub certificates: Vec<ServedCertificate>,
    /// `null` if no client certificates are requested.
    #[schema(required)]
    pub client_ca: Option<ClientCa>,
}

/// A served certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServedCertificate {
    #[schema(example = "/etc/tollgate/api.pem")]
    pub file: String,
    /// DNS names and IP addresses.
    #[schema(example = json!(["api.example.com", "*.example.org"]))]
    pub names: Vec<String>,
    /// In the form of RFC 4514.
    #[schema(example = "CN=api.example.com")]
    pub subject: String,
    #[schema(example = "CN=R11,O=Let's Encrypt,C=US")]
    pub issuer: String,
    #[schema(example = "ECDSA P-256")]
    pub key_type: String,
    /// SHA-256, in hex.
    pub fingerprint: String,
    #[schema(value_type = schema::Time)]
    pub not_before: String,
    #[schema(value_type = schema::Time)]
    pub not_after: String,
    #[schema(value_type = schema::CertificateState)]
    pub state: String,
    /// Whole days until it expires; `null` if it has.
    #[schema(required)]
    pub days_left: Option<u64>,
    /// The time at which its files were read.
    #[schema(value_type = schema::Time)]
    pub loaded: String,
    /// Why a change of its files did not take effect; `null` if it did, or there was none.
    #[schema(required)]
    pub reload_error: Option<String>,
}

/// The authorities of clients' certificates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClientCa {
    pub file: String,
    #[schema(value_type = schema::Time)]
    pub loaded: String,
    /// Why a change of the file did not take effect; `null` if it did, or there was none.
    #[schema(required)]
    pub reload_error: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Configuration {
    pub hash: String,
    /// A hash of all settings that affect decisions, which instances compare: everything but listeners, `admin`,
    /// `workers`, `log`, `access_log`, `tracing` and `shutdown`.
    #[serde(default)]
    pub decides: String,
    #[schema(value_type = schema::Time)]
    pub loaded: String,
    /// `null` if it was not reloaded since the start.
    pub last_reload: Option<LastReload>,
}

impl Configuration {
    /// The time and the first error of the last reload; `None` if it took effect, or there was none.
    pub fn failed_reload(&self) -> Option<(&str, &str)> {
        let LastReload { time, error } = self.last_reload.as_ref()?;
        Some((time, error.as_deref()?))
    }

    /// The warning about a failed reload.
    pub fn reload_warning(&self) -> Option<String> {
        let (_, error) = self.failed_reload()?;
        Some(format!("the last reload failed, so the configuration of before is still running: {error}"))
    }
}

/// The result of a reload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LastReload {
    #[schema(value_type = schema::Time)]
    pub time: String,
    /// `null` if it took effect; otherwise the first error, and the previous configuration is still running.
    pub error: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreStatus {
    /// `memory`; `redis` for one server, `sentinel`, or `cluster`.
    #[schema(value_type = schema::Topology)]
    pub topology: String,
    /// Keys in the memory store, which is also the fallback while Redis is unavailable.
    pub keys: u64,
    pub evicted: u64,
    #[serde(flatten)]
    #[schema(value_type = SharedStore)]
    pub shared: Option<SharedStore>,
}

impl StoreStatus {
    /// Its Redis servers; none if limits are in memory.
    pub fn nodes(&self) -> &[StoreNode] {
        self.shared.as_ref().map_or(&[], |shared| &shared.nodes)
    }

    pub fn nodes_up(&self) -> usize {
        self.nodes().iter().filter(|node| node.state == "up").count()
    }

    /// Whether it replies and its breaker is closed; of a cluster, at least one primary's.
    pub fn is_available(&self) -> bool {
        let is_up = |node: &StoreNode| node.role.as_deref() == Some("primary") && node.state == "up";
        let is_used = |shared: &SharedStore| shared.breaker == "closed" || shared.nodes.iter().any(is_up);
        self.shared.as_ref().is_none_or(|shared| is_used(shared) && shared.latency.is_some())
    }

    /// Whether it and each of its servers are available.
    pub fn is_healthy(&self) -> bool {
        self.is_available() && !self.nodes().iter().any(StoreNode::is_failing)
    }
}

/// The store that instances share, as this instance sees it. Left out if limits are kept in memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SharedStore {
    /// `master` or `slave`; `null`, like the version, until the store was first reached.
    #[schema(required = false)]
    pub role: Option<String>,
    #[schema(required = false)]
    pub version: Option<String>,
    /// The round trip of the last heartbeat; `null` if it failed.
    #[schema(required = false, value_type = Option<schema::Duration>)]
    pub latency: Option<String>,
    /// `closed`, or `open` while the store, or one of its nodes, is not used.
    #[schema(required = false, value_type = schema::Breaker)]
    pub breaker: String,
    /// Live instances, including this one.
    #[schema(required = false)]
    pub instances: u32,
    /// Its Redis servers; with Sentinel and in a cluster there are several.
    #[serde(default)]
    pub nodes: Vec<StoreNode>,
}

/// One Redis server, as this instance saw it last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreNode {
    /// `HOST:PORT`, or the path of a socket.
    #[schema(example = "10.0.0.1:6379")]
    pub address: String,
    /// `primary` or `replica`; `null` until it is known.
    #[schema(required, value_type = Option<schema::NodeRole>)]
    pub role: Option<String>,
    /// Of a replica: the address of its primary.
    #[schema(required)]
    pub primary: Option<String>,
    /// Of a primary of a cluster: `7`, or the first and last slot of a range.
    #[schema(example = json!(["0-5460"]))]
    pub slots: Vec<String>,
    /// `breaker_open`: it failed so often that no decision is sent to it at the moment.
    #[schema(value_type = schema::NodeState)]
    pub state: String,
    /// The reason if it is not up.
    #[schema(required)]
    pub failure: Option<String>,
    /// The last round trip, in microseconds; `null` if it failed.
    #[schema(required)]
    pub latency_us: Option<u64>,
    /// Of a replica: bytes that its primary has written and it has not acknowledged.
    #[schema(required)]
    pub lag_bytes: Option<u64>,
    /// Decisions that it made for this instance since the start.
    pub decisions: u64,
    /// The same in the last second.
    pub decisions_per_second: u64,
    /// `null` until it was first reached.
    #[schema(required)]
    pub version: Option<String>,
}

impl StoreNode {
    /// Whether it is down or its breaker is open.
    pub fn is_failing(&self) -> bool {
        matches!(self.state.as_str(), "down" | "breaker_open")
    }

    /// Its slots in a line: `0-5460, 7000`. A cluster may have many ranges after resharding: only the first three are
    /// listed.
    pub fn slots_in_short(&self) -> String {
        const SHOWN: usize = 3;
        let shown = self.slots.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
        match self.slots.len().saturating_sub(SHOWN) {
            0 => shown,
            more => format!("{shown} and {more} more"),
        }
    }
}

/// Current rates: the data of the event `tick` of `GET /v1/events`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Tick {
    #[schema(value_type = schema::Time)]
    pub time: String,
    /// Of this instance, over the last seconds.
    pub requests_per_second: f64,
    pub denied_per_second: f64,
    /// Addresses that are limited now.
    pub blocked: usize,
    pub ready: bool,
    pub draining: bool,
    pub store: StoreStatus,
}
