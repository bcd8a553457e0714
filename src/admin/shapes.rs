//! What the admin port answers, as it is written and as the command line reads it. Times are RFC 3339 in
//! UTC, durations as in proxy.yaml, keys as in the store (`ip:203.0.113.7`).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::vocabulary;

/// `GET /healthz`, `GET /readyz`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `alive`, `ready`
    #[schema(value_type = vocabulary::HealthWord)]
    pub status: String,
}

/// `GET /v1/status`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    #[schema(example = "0.1.0")]
    pub version: String,
    #[schema(value_type = vocabulary::Time)]
    pub started: String,
    #[schema(value_type = vocabulary::Duration)]
    pub uptime: String,
    pub ready: bool,
    pub draining: bool,
    pub configuration: Configuration,
    pub store: StoreStatus,
    pub workers: usize,
    pub listeners: Vec<String>,
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Configuration {
    pub hash: String,
    /// The hash of what decides over requests, which instances compare: of all but listeners, `admin`, `workers`, `log`,
    /// `access_log`, `tracing` and `shutdown`.
    #[serde(default)]
    pub decides: String,
    #[schema(value_type = vocabulary::Time)]
    pub loaded: String,
    /// `null`: it was read at the start, and not since.
    pub last_reload: Option<LastReload>,
}

/// What became of reading the configuration again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LastReload {
    #[schema(value_type = vocabulary::Time)]
    pub time: String,
    /// `null`: it is in force. Else the first error; the configuration before it is.
    pub error: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreStatus {
    /// `memory` or `redis`.
    #[schema(value_type = vocabulary::Topology)]
    pub topology: String,
    /// Of the memory store, which stands in where another one is away.
    pub keys: u64,
    pub evicted: u64,
    #[serde(flatten)]
    #[schema(value_type = SharedStore)]
    pub shared: Option<SharedStore>,
}

/// The store that instances share, as this one sees it. None of it is told where limits are kept in memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SharedStore {
    /// `master` or `slave`; `null`, like the version, until it was reached.
    #[schema(required = false)]
    pub role: Option<String>,
    #[schema(required = false)]
    pub version: Option<String>,
    /// Of the last heartbeat; `null` if that was not answered.
    #[schema(required = false, value_type = Option<vocabulary::Duration>)]
    pub latency: Option<String>,
    /// `closed`, or `open`: it is not asked.
    #[schema(required = false, value_type = vocabulary::Breaker)]
    pub breaker: String,
    /// Those alive, this one among them.
    #[schema(required = false)]
    pub instances: u32,
}

/// `GET /v1/blocked`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Blocked {
    pub blocked: Vec<BlockedAddress>,
    /// Where the next page begins; `null` on the last.
    #[schema(value_type = Option<vocabulary::Cursor>)]
    pub cursor: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockedAddress {
    #[schema(value_type = vocabulary::Client)]
    pub address: String,
    pub policies: Vec<String>,
    #[schema(value_type = vocabulary::Time)]
    pub first: String,
    #[schema(value_type = vocabulary::Time)]
    pub last: String,
    /// When its last limit frees. May be past: addresses stay listed for a while.
    #[schema(value_type = vocabulary::Time)]
    pub until: String,
    pub denied: u64,
    pub distinct_users: usize,
    #[schema(value_type = vocabulary::UsersBehind)]
    pub hint: String,
}

/// `GET /v1/blocked/{ip}`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Evidence {
    #[serde(flatten)]
    pub address: BlockedAddress,
    /// Newest first.
    pub records: Vec<Record>,
    pub limits: Vec<Limit>,
    pub bans: Vec<Ban>,
}

/// A request that filled a limit, or one that was held back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Record {
    #[schema(value_type = vocabulary::Time)]
    pub time: String,
    pub user: Option<String>,
    pub method: String,
    pub path: String,
    pub policy: String,
}

/// How a limit of the address stands: its tightest tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Limit {
    pub policy: String,
    pub key: String,
    pub used: u64,
    pub limit: u64,
    pub remaining: u64,
    #[schema(value_type = vocabulary::Duration)]
    pub reset: String,
}

/// Somebody who is shut out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ban {
    /// `ip:203.0.113.7`, `ip:10.0.0.0/8`, `user:acme`
    #[schema(value_type = vocabulary::BanKey)]
    pub key: String,
    #[schema(value_type = vocabulary::Time)]
    pub since: String,
    #[schema(value_type = vocabulary::Time)]
    pub until: String,
    pub reason: String,
    /// The operator, or the ladder of `bans` that it comes from.
    pub by: String,
    /// How often the ladder has banned this key in a row; 0 where an operator did.
    pub level: u32,
    /// `enforce`, or `shadow`: nobody is shut out.
    #[schema(value_type = vocabulary::Mode)]
    pub mode: String,
}

/// `GET /v1/bans`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Bans {
    /// Those that hold, the one that ends last first.
    pub bans: Vec<Ban>,
    #[schema(value_type = Option<vocabulary::Cursor>)]
    pub cursor: Option<String>,
}

/// What `POST /v1/bans` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewBan {
    #[schema(value_type = vocabulary::BanKey)]
    pub key: String,
    /// A duration as in proxy.yaml.
    #[serde(rename = "for")]
    #[schema(value_type = vocabulary::Lasts)]
    pub lasts: String,
    #[serde(default)]
    #[schema(value_type = vocabulary::Reason)]
    pub reason: String,
}

/// `DELETE /v1/bans?key=`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Lifted {
    #[schema(value_type = vocabulary::BanKey)]
    pub key: String,
    pub bans_lifted: u64,
}

/// `GET /v1/users/{user}`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct User {
    pub user: String,
    /// Most lately denied first.
    pub addresses: Vec<UserAddress>,
}

/// An address that a user was limited from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserAddress {
    #[schema(value_type = vocabulary::Client)]
    pub address: String,
    /// Requests of this user from there.
    pub denied: u64,
    #[schema(value_type = vocabulary::Time)]
    pub last: String,
}

/// `GET /v1/audit`: the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Audit {
    pub entries: Vec<AuditEntry>,
    #[schema(value_type = Option<vocabulary::Cursor>)]
    pub cursor: Option<String>,
}

/// Something that was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    #[schema(value_type = vocabulary::Time)]
    pub time: String,
    /// Who: `operator at 127.0.0.1`, `bans.hammering`.
    pub by: String,
    /// `unblock`, `ban`, `lift`, `reset`, `reload`
    #[schema(value_type = vocabulary::Action)]
    pub action: String,
    /// What: an address, a key, a policy with a key, a configuration.
    pub target: String,
    pub detail: String,
    /// The instance that did it.
    pub instance: String,
}

/// `GET /v1/routes`, in the order in which they are tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Routes {
    pub routes: Vec<Route>,
}

/// A route, and what came of its requests since the start of this instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Route {
    pub name: String,
    pub hosts: Vec<String>,
    pub path: String,
    pub methods: Vec<String>,
    pub upstream: String,
    /// All that hold for it, those of its upstream among them.
    pub policies: Vec<String>,
    pub requests: u64,
    pub denied: u64,
    /// By class, 1xx first.
    pub statuses: [u64; 5],
    /// Seconds, estimated from the histogram; `null` without requests.
    pub latency: Option<Latency>,
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
}

/// An upstream, and how the attempts at it ended since the start of this instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Upstream {
    pub name: String,
    pub policies: Vec<String>,
    pub endpoints: Vec<Endpoint>,
    /// By outcome, as the metric names it: `ok`, `connect_error`, `timeout` …
    pub attempts: std::collections::BTreeMap<String, u64>,
    pub connections: Connections,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Endpoint {
    pub url: String,
    pub weight: u32,
    /// `false`: when it was last tried, no connection could be made.
    pub healthy: bool,
    /// Requests that it has under way, all workers' together.
    pub active: u64,
}

/// Open connections to an upstream, all workers' together.
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

/// A policy, and what it said since the start of this instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Policy {
    pub name: String,
    #[schema(value_type = vocabulary::Algorithm)]
    pub algorithm: String,
    /// As in proxy.yaml: `ip`, `ip+path`
    pub keys: Vec<String>,
    /// `100/1s`
    pub limits: Vec<String>,
    /// `enforce` or `shadow`
    #[schema(value_type = vocabulary::Mode)]
    pub mode: String,
    pub overrides: usize,
    /// The routes that it holds for.
    pub routes: Vec<String>,
    pub allowed: u64,
    pub denied: u64,
    pub shadow_denied: u64,
    pub errors: u64,
}

/// `GET /v1/config`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InForce {
    pub hash: String,
    #[schema(value_type = vocabulary::Time)]
    pub loaded: String,
    /// Where it was read.
    pub path: String,
    /// As it was written, with what is secret as `***`.
    pub yaml: String,
}

/// `GET /v1/limits?policy=&key=`: one limit, by each variant of its policy that counts apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Limits {
    pub limits: Vec<Limit>,
}

/// `DELETE /v1/limits?policy=&key=`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResetLimits {
    pub cleared: Vec<ClearedLimit>,
}

/// What `POST /v1/explain` takes: a request as it would come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainedRequest {
    #[serde(default = "get")]
    #[schema(value_type = vocabulary::Method)]
    pub method: String,
    /// Absolute, or a path with the host in `headers`.
    #[schema(example = "https://api.example.com/login", min_length = 1)]
    pub url: String,
    #[serde(default)]
    pub headers: std::collections::BTreeMap<String, HeaderValues>,
    /// The address that the connection comes from; 127.0.0.1 where it is left out.
    #[serde(default)]
    #[schema(value_type = Option<vocabulary::Peer>)]
    pub peer: Option<String>,
}

/// One value, or several lines of one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum HeaderValues {
    One(String),
    Many(Vec<String>),
}

fn get() -> String {
    "GET".to_owned()
}

/// What would become of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    pub client_address: ExplainedAddress,
    /// Who is asking, where that is known, and from which source.
    pub user: ExplainedUser,
    /// `null`: it can't be read what the request is for.
    pub route: Option<ExplainedRoute>,
    pub upstream: Option<String>,
    /// `allowed`, `denied`, `banned`, `undecided` (the store can't be asked), `refused` (no route, or no request that
    /// would be forwarded).
    #[schema(value_type = vocabulary::Verdict)]
    pub verdict: String,
    /// What the proxy would answer itself; `null` where it would ask the upstream.
    pub status: Option<u16>,
    /// In words: which policy, or what is wrong with the request.
    pub because: String,
    pub checks: Vec<ExplainedCheck>,
    pub bans: Vec<Ban>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedAddress {
    pub address: String,
    pub because: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedUser {
    /// `null`: nobody says; `because` tells why.
    pub user: Option<String>,
    pub because: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedRoute {
    /// `null`: there is none for the request.
    pub name: Option<String>,
    pub because: String,
    /// The routes before it, and why each did not match.
    pub passed_over: Vec<PassedOver>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PassedOver {
    pub name: String,
    pub because: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedCheck {
    pub policy: String,
    pub key: String,
    #[schema(value_type = vocabulary::Algorithm)]
    pub algorithm: String,
    pub cost: u64,
    pub limit: u64,
    /// Counting this request, where it is admitted; `null` where nobody was asked.
    pub used: Option<u64>,
    pub remaining: Option<u64>,
    /// `null` where it would admit, or never will.
    #[schema(value_type = Option<vocabulary::Duration>)]
    pub retry_after: Option<String>,
    /// `allowed` or `denied`; of an exempt request `exempt`, of one that lacks the key `skipped`; `unknown` where the
    /// store can't be asked.
    #[schema(value_type = vocabulary::CheckVerdict)]
    pub verdict: String,
    /// `enforce` or `shadow`
    #[schema(value_type = vocabulary::Mode)]
    pub mode: String,
    /// What else there is to know: the override that applies, the tightest of several limits, why it is exempt.
    pub because: String,
}

/// `POST /v1/reload`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reloaded {
    pub configuration: Configuration,
    /// What is in force now and was not before, in words.
    pub changed: Vec<String>,
    /// What has changed in the file and needs a restart.
    pub needs_restart: Vec<String>,
    pub warnings: Vec<String>,
}

/// What is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigurationError {
    /// From 1, as the column; `null` where the file as a whole is meant.
    pub line: Option<usize>,
    pub column: Option<usize>,
    pub message: String,
    /// As `tollgate check` prints it, with the line and a caret.
    pub text: String,
}

impl ConfigurationError {
    /// Of the configuration as a whole.
    pub fn of_all(message: String) -> Self {
        Self { line: None, column: None, text: message.clone(), message }
    }

    /// Its place and what is wrong there, in one line.
    pub fn summary(&self) -> &str {
        self.text.lines().next().unwrap_or(&self.message)
    }
}

/// `DELETE /v1/blocked/{ip}`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unblocked {
    #[schema(value_type = vocabulary::Client)]
    pub address: String,
    pub cleared: Vec<ClearedLimit>,
    pub bans_lifted: u64,
    /// Denied behind the address, and not cleared: users, API keys.
    pub other_keys: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClearedLimit {
    pub policy: String,
    pub key: String,
}

/// What went wrong (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProblemDetails {
    /// `about:blank`: nothing more than the status says.
    #[serde(rename = "type", default)]
    pub kind: String,
    #[serde(default)]
    pub title: String,
    #[serde(default)]
    pub status: u16,
    /// What went wrong, in words.
    #[serde(default)]
    pub detail: String,
    /// Of a configuration that can't be used; else left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ConfigurationError>,
}

/// How things stand: the data of the event `tick` of `GET /v1/events`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Tick {
    #[schema(value_type = vocabulary::Time)]
    pub time: String,
    /// By this instance, in the last seconds.
    pub requests_per_second: f64,
    pub denied_per_second: f64,
    /// Addresses with a limit that is not over.
    pub blocked: usize,
    pub ready: bool,
    pub draining: bool,
    pub store: StoreStatus,
}

/// What `POST /login` takes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Login {
    pub token: String,
}
