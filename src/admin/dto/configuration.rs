//! The configuration in force with its counters, and its reload.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Configuration, Drain, schema};

/// `GET /v1/routes`, in the order in which they are tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Routes {
    pub routes: Vec<Route>,
}

/// A route, and the outcomes of its requests since the start of this instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Route {
    pub name: String,
    /// The names of the listeners that it is for; empty: all.
    #[serde(default)]
    pub listeners: Vec<String>,
    pub hosts: Vec<String>,
    pub path: String,
    pub methods: Vec<String>,
    /// Of several, the one with the largest share of requests. `null`: Tollgate itself responds to them.
    pub upstream: Option<String>,
    /// The upstreams among which its requests are split; empty if there is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub upstreams: Vec<UpstreamShare>,
    /// The status of its own response to every request; `null`: it has an upstream.
    #[serde(default)]
    pub reply: Option<u16>,
    /// The target of its redirect: `https://new.example.com/{rest}`; `null`: it does not redirect.
    #[serde(default)]
    pub redirect: Option<String>,
    /// All policies that apply to it, including those of its upstream.
    pub policies: Vec<String>,
    /// Its own `max_body`: the longest request body, in bytes; 0: any length; `null`: it has none of its own.
    #[serde(default)]
    pub max_body: Option<u64>,
    /// Addresses, networks and files in its own `deny`.
    #[serde(default)]
    pub deny: usize,
    /// Addresses, networks and files in its own `allow`; `null`: it has none, and allows every address.
    #[serde(default)]
    pub allow: Option<usize>,
    /// The origins in its `cors`.
    #[serde(default)]
    pub cors: Vec<String>,
    pub requests: u64,
    pub denied: u64,
    /// Responses by status class, 1xx first.
    pub statuses: [u64; 5],
    /// Responses with a 5xx status, without denials.
    #[serde(default)]
    pub server_errors: ServerErrors,
    /// Seconds, estimated from the histogram; `null` without requests.
    pub latency: Option<Latency>,
    /// Open WebSockets and other upgraded connections.
    #[serde(default)]
    pub tunnels: u64,
}

/// An upstream that takes a share of a route's requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpstreamShare {
    pub name: String,
    pub weight: u32,
}

/// Responses with a 5xx status, by their sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServerErrors {
    /// By the origin.
    pub origin: u64,
    /// By Tollgate itself: 502, 503, 504 and the like.
    pub proxy: u64,
}

/// Seconds by quantile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Latency {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
}

/// `GET /v1/upstreams`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Upstreams {
    pub upstreams: Vec<Upstream>,
    /// Drains of endpoints that this instance does not have.
    #[serde(default)]
    pub other_drains: Vec<Drain>,
}

/// An upstream, and the outcomes of requests to it since the start of this instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Upstream {
    pub name: String,
    pub policies: Vec<String>,
    pub endpoints: Vec<Endpoint>,
    /// By outcome, as the metric names it: `ok`, `connect_error`, `timeout` …
    pub attempts: std::collections::BTreeMap<String, u64>,
    /// Retries after failed attempts.
    #[serde(default)]
    pub retries: u64,
    pub connections: Connections,
}

/// An endpoint, as this instance sees it. Counts are since its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Endpoint {
    pub url: String,
    pub weight: u32,
    /// The best state of its addresses, unless it is drained.
    #[serde(default)]
    #[schema(value_type = schema::EndpointState)]
    pub state: String,
    /// `false`: it is unreachable at all of its addresses.
    pub healthy: bool,
    /// The reason, if it is not healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The reason for its state; `null` if it has always been healthy.
    #[serde(default)]
    #[schema(required)]
    pub reason: Option<String>,
    /// The time of the last change; `null`: none since the start, or since the configuration was loaded.
    #[serde(default)]
    #[schema(required, value_type = Option<schema::Time>)]
    pub changed: Option<String>,
    /// The cause of the last change: `operator at 127.0.0.1`, `connection`, `probe`, `outlier`, `configuration`.
    #[serde(default)]
    #[schema(required)]
    pub by: Option<String>,
    /// Requests in flight, over all workers.
    pub active: u64,
    #[serde(default)]
    pub requests: u64,
    /// Requests without a response, or with a 5xx status.
    #[serde(default)]
    pub errors: u64,
    /// Number of times that it, or one of its addresses, was taken out of rotation.
    #[serde(default)]
    pub ejections: u64,
    /// Failed health checks.
    #[serde(default)]
    pub probe_failures: u64,
    /// `null` if the URL has an address, not a name.
    #[serde(default)]
    #[schema(required)]
    pub resolution: Option<Resolution>,
    #[serde(default)]
    pub addresses: Vec<EndpointAddress>,
}

impl Endpoint {
    /// Why resolving its name failed; the previous addresses are used meanwhile.
    pub fn resolver_error(&self) -> Option<&str> {
        let Resolution { resolved, error, .. } = self.resolution.as_ref()?;
        resolved.as_ref()?;
        error.as_deref()
    }
}

/// The resolution of an endpoint's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Resolution {
    /// The time of the last successful resolution; `null`: never.
    #[schema(required, value_type = Option<schema::Time>)]
    pub resolved: Option<String>,
    /// The time of the next resolution; `null` if it is not known.
    #[schema(required, value_type = Option<schema::Time>)]
    pub next: Option<String>,
    /// Why the last resolution failed; the previous addresses are used then. `null` if it succeeded.
    #[schema(required)]
    pub error: Option<String>,
}

/// An address of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EndpointAddress {
    #[schema(example = "10.0.0.5:3000")]
    pub address: String,
    #[schema(value_type = schema::EndpointState)]
    pub state: String,
    /// The reason for its state; `null` if it has always been healthy.
    #[schema(required)]
    pub reason: Option<String>,
    #[schema(required, value_type = Option<schema::Time>)]
    pub changed: Option<String>,
    #[schema(required)]
    pub by: Option<String>,
    pub active: u64,
    pub requests: u64,
    pub errors: u64,
    pub ejections: u64,
}

/// Open connections to an upstream, over all workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Connections {
    pub active: u64,
    pub idle: u64,
}

/// `GET /v1/policies`, in the configuration's order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Policies {
    pub policies: Vec<Policy>,
}

/// The current window of a limit by hour, day, week or month.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CalendarWindow {
    #[schema(example = "1000/month (Europe/Berlin)")]
    pub limit: String,
    /// With the time zone (RFC 9557).
    #[schema(example = "2026-12-01T00:00:00+01:00[Europe/Berlin]")]
    pub ends: String,
}

/// The units that a request of a route takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoutePrice {
    pub route: String,
    #[schema(example = 5)]
    pub cost: u64,
}

/// A policy, and its decisions since the start of this instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Policy {
    pub name: String,
    #[schema(value_type = schema::Algorithm)]
    pub algorithm: String,
    /// As in proxy.yaml: `ip`, `ip+path`
    pub keys: Vec<String>,
    /// `100/1s`, `1000/month (Europe/Berlin)`; for `concurrency`, `2 at a time`
    pub limits: Vec<String>,
    /// When the windows of the calendar end that hold now, in the order of their limits.
    #[serde(default)]
    pub calendar_windows: Vec<CalendarWindow>,
    /// `enforce` or `shadow`
    #[schema(value_type = schema::Mode)]
    pub mode: String,
    pub overrides: usize,
    /// `true`: Tollgate adds this policy by itself, to limit wrong API keys and tokens on all routes. Its limit is
    /// `api_keys.attempts`.
    #[serde(default)]
    pub implicit: bool,
    /// The routes that it applies to.
    pub routes: Vec<String>,
    /// The routes whose requests do not take the policy's own `cost`, in the order of the routes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prices: Vec<RoutePrice>,
    /// `false`: no route uses it, so it limits nothing.
    pub used: bool,
    pub allowed: u64,
    pub denied: u64,
    pub shadow_denied: u64,
    pub errors: u64,
    /// The units of a cost that the response tells; `null`: its cost is another one.
    #[serde(default)]
    pub response_cost: Option<ResponseCostUnits>,
}

/// Units of a cost that the response tells, on this instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResponseCostUnits {
    /// Reserved by requests in progress.
    pub reserved: u64,
    /// What responses have cost since the start of this instance.
    pub charged: u64,
}

impl Policy {
    /// The names of its routes, with the cost of their requests where they have a price.
    pub fn priced_routes(&self) -> Vec<String> {
        let priced = |route: &String| {
            let prices = self.prices.iter().filter(|price| price.route == *route);
            let costs: Vec<String> = prices.map(|price| price.cost.to_string()).collect();
            if costs.is_empty() { route.clone() } else { format!("{route} (cost {})", costs.join(" or ")) }
        };
        self.routes.iter().map(priced).collect()
    }
}

/// `GET /v1/config`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = InForce)]
pub struct ActiveConfiguration {
    pub hash: String,
    #[schema(value_type = schema::Time)]
    pub loaded: String,
    /// The file that it was read from.
    pub path: String,
    /// The text as it was written, with secrets as `***`.
    pub yaml: String,
}

/// `POST /v1/reload`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reloaded {
    pub configuration: Configuration,
    /// The changes that took effect, in words.
    pub changed: Vec<String>,
    /// The changes that take effect after a restart.
    pub needs_restart: Vec<String>,
    pub warnings: Vec<String>,
}
