//! A suggestion, as `tollgate suggest --json` prints it.

use serde::Serialize;

use super::{
    distribution::{HistogramRow, Knee},
    evidence::Appearance,
};
use crate::offline::access_logs::UnreadableLines;

/// Policies for the requests in logs, and why.
#[derive(Debug, Serialize)]
pub struct Suggestion {
    /// Requests that reached a route.
    pub requests: u64,
    /// Times of the first and the last request (RFC 3339).
    pub first: String,
    pub last: String,
    /// The key of all policies: `ip`.
    pub key: String,
    /// The share of the clients that each limit spares: `99.9%`.
    pub spare: String,
    /// The suggested policies, and the routes that need none of their own.
    pub routes: Vec<SuggestedRoute>,
    /// The replay of the suggestion over the same logs. `None`: they can't be read a second time.
    pub replayed: Option<ReplayedSuggestion>,
    /// Requests without a route, malformed requests, lines that are not HTTP, and requests that were refused before the
    /// policies.
    pub refused: u64,
    /// Requests whose route depends on the listener, which no log has. They were not measured.
    pub unknown: u64,
    /// Lines that can't be read.
    pub unreadable: UnreadableLines,
    /// Logs without a request.
    pub without_requests: Vec<String>,
    /// Requests whose lines were too far out of order.
    pub late: u64,
    /// Requests without a host in the log, if a route has `hosts`.
    pub without_host: u64,
    /// Whether requests with whole seconds were spread over their second.
    pub spread: bool,
    /// The whole output without `--json`.
    pub yaml: String,
}

/// The peaks of the clients of one route, and the policy for them.
#[derive(Debug, Serialize)]
pub struct SuggestedRoute {
    /// The route's name in the configuration, or its path.
    pub route: String,
    /// Empty: all.
    pub methods: Vec<String>,
    /// `None`: the policy of all routes is enough.
    pub policy: Option<SuggestedPolicy>,
    pub requests: u64,
    /// Number of different keys.
    pub clients: usize,
    /// Requests that were not counted, since the log lacks the parts of the key.
    pub not_in_log: u64,
    /// In ascending order.
    pub windows: Vec<MeasuredWindow>,
}

/// The peaks in one window, over all clients. A client's peak is the largest number of its requests in any window (t − W, t].
#[derive(Debug, Serialize)]
pub struct MeasuredWindow {
    /// `1m`
    pub window: String,
    pub p50: u32,
    pub p90: u32,
    pub p99: u32,
    pub p999: u32,
    pub max: u32,
    pub histogram: Vec<HistogramRow>,
    pub knee: Option<Knee>,
    /// The limit for this window.
    pub limit: u64,
    /// Whether the policy has it: no other limit of the policy implies it.
    pub is_needed: bool,
    /// Clients whose peak is above the limit.
    pub clients_above: usize,
}

/// A policy that `proxy.yaml` may have.
#[derive(Debug, Serialize)]
pub struct SuggestedPolicy {
    pub name: String,
    /// `20/1s`
    pub limits: Vec<String>,
    /// Other limits for addresses that many people share.
    pub overrides: Vec<SuggestedOverride>,
    /// The clients that it denies, the farthest above the limits first. The first 1000.
    pub above: Vec<ClientAbove>,
    /// Number of all such clients.
    pub clients_above: usize,
    /// Of the replay: the requests that this policy would have denied.
    pub denied: Option<u64>,
    /// Of the replay: the keys of these requests.
    pub denied_clients: Option<usize>,
}

#[derive(Debug, Serialize)]
pub struct SuggestedOverride {
    pub ip: String,
    pub limits: Vec<String>,
    #[serde(flatten)]
    pub client: ClientAbove,
}

/// A client with a peak above a limit. Of a log that can be read only once, nothing else is known.
#[derive(Debug, Clone, Serialize)]
pub struct ClientAbove {
    /// `ip:203.0.113.7`
    pub key: String,
    pub requests: u64,
    /// In each window.
    pub peaks: Vec<u32>,
    pub denied: Option<u64>,
    /// Number of different values, 1000 at most. 0: the log has none.
    pub user_agents: Option<usize>,
    pub paths: Option<usize>,
    pub users: Option<usize>,
    pub looks_like: Appearance,
}

/// The decisions of all suggested policies, with initially empty limits.
#[derive(Debug, Serialize)]
pub struct ReplayedSuggestion {
    pub requests: u64,
    pub denied: u64,
    /// Number of different keys with a denied request.
    pub denied_clients: usize,
}
