//! The whole configuration, and the settings that belong to no section.

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use http::HeaderName;
use serde::Serialize;

use super::{
    Abuse, Access, AccessLog, Admin, BanRule, ClientAddress, ClientLimits, ForwardClientCertificate,
    Forwarded, Listener, Log, Policy, RedisTopology, ReplyHeaders, Resolver, Route, Secret, Store, Tracing,
    TrustedProxy, Upstream, UserSource, serialize,
};

/// The contents of `proxy.yaml`, checked and resolved.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Config {
    /// Never empty.
    pub listeners: Vec<Listener>,
    pub admin: Admin,
    pub workers: Workers,
    /// Proxies whose forwarding fields are believed.
    pub trusted_proxies: Vec<TrustedProxy>,
    /// Fields that those proxies set or remove in every request. Nobody else may send them.
    #[serde(serialize_with = "serialize::displayed_each")]
    pub trusted_headers: Vec<HeaderName>,
    pub client_address: ClientAddress,
    /// Which addresses may send requests at all.
    #[serde(flatten)]
    pub access: Access,
    #[serde(serialize_with = "serialize::displayed")]
    pub request_id: HeaderName,
    /// Tried in order; the first that gives a user ID wins.
    pub user: Vec<UserSource>,
    pub store: Store,
    #[serde(serialize_with = "serialize::shared")]
    pub policies: Vec<Arc<Policy>>,
    #[serde(serialize_with = "serialize::shared")]
    pub bans: Vec<Arc<BanRule>>,
    /// Whether a ban closes the tunnels and the streamed responses of its client, too.
    #[serde(rename = "bans.close_tunnels")]
    pub close_banned_tunnels: bool,
    pub abuse: Abuse,
    pub upstreams: Vec<Upstream>,
    pub resolver: Resolver,
    /// Tried in order; the first that matches wins.
    pub routes: Vec<Route>,
    pub client_limits: ClientLimits,
    pub reply_headers: ReplyHeaders,
    pub forwarded: Forwarded,
    pub forward_client_certificate: ForwardClientCertificate,
    pub access_log: AccessLog,
    pub log: Log,
    /// `None`: no tracing.
    pub tracing: Option<Tracing>,
    pub shutdown: Shutdown,
    #[serde(skip)]
    pub source: ConfigSource,
}

impl Config {
    /// The most bytes that a request's body may have on `route`, if the request came by the listener with this index:
    /// what is set nearest to it holds. `None`: any number.
    pub fn max_body(&self, route: &Route, listener: usize) -> Option<u64> {
        let of_listener = || self.listeners.get(listener)?.max_body;
        let bytes = route.max_body.or_else(of_listener).unwrap_or(self.client_limits.max_body);
        (bytes > 0).then_some(bytes as u64)
    }

    /// All secrets, each with the path of its setting.
    pub fn secrets(&self) -> impl Iterator<Item = (&'static str, &Secret)> {
        let redis = self.store.redis.iter().flat_map(|redis| {
            let (path, urls) = redis.urls();
            let sentinel = match &redis.topology {
                RedisTopology::Sentinel(sentinel) => sentinel.password.as_ref(),
                _ => None,
            };
            let passwords = [
                ("store.redis.sentinel.password", sentinel),
                ("store.redis.password", redis.password.as_ref()),
            ];
            let passwords = passwords.into_iter().filter_map(|(path, secret)| Some((path, secret?)));
            urls.iter().map(move |url| (path, url)).chain(passwords)
        });
        let others =
            [("admin.token", self.admin.token.as_ref()), ("abuse.secret", self.abuse.secret.as_ref())];
        redis.chain(others.into_iter().filter_map(|(path, secret)| Some((path, secret?))))
    }
}

/// Where a configuration was read from, and its text. All sources are equal: configurations are compared by their
/// settings alone.
#[derive(Clone, Default)]
pub struct ConfigSource {
    /// The path as it was given.
    pub path: String,
    /// The text with its secrets masked.
    pub redacted_text: String,
    /// The settings that came from the environment or from files, and so must not be shown: their paths in
    /// [`Config::values`], in which items of lists have their names.
    pub inserted: BTreeSet<String>,
}

impl PartialEq for ConfigSource {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for ConfigSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// How many workers serve requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Workers {
    /// The CPUs that affinity and cgroup quota allow.
    Auto,
    /// At least 1.
    #[serde(untagged)]
    Count(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Shutdown {
    /// How long running requests may take to finish.
    #[serde(serialize_with = "serialize::duration")]
    pub drain: Duration,
}
