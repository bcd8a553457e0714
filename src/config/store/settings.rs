//! The store of limits: memory or Redis.

use std::time::Duration;

use serde::{Serialize, Serializer};
use tollgate_derive::Settings;

use crate::config::{
    listeners::settings::Secret,
    reader::{Cursor, MappingCursor},
    settings::{Read, ReadOver},
    upstreams::client_tls::ClientTls,
    value::{REDIS_URL, choice, database, key_prefix, printable_text, redis_node_url, redis_url},
    written::serialize,
};

const SMALLEST_REDIS: &str = "such as `store: { redis: { url: redis://127.0.0.1:6379 } }`";

/// The store of limits.
#[derive(Debug, Clone, PartialEq, Eq, Settings)]
#[settings(page = "redis.md")]
pub struct StoreSettings {
    /// Counts limits in Redis, so that all instances share them. While Redis is down, limits are counted in memory.
    #[setting(mapping, read = redis, unset = "limits are counted in memory")]
    #[setting(example = "{ url: \"redis://127.0.0.1:6379\" }")]
    #[setting(see = ["policies.*.on_store_error"])]
    pub redis: Option<Redis>,
    /// How many limits may be held in memory, and how much of it they may take.
    #[setting(mapping, unset = "the defaults of its settings", example = "{ max_keys: 100000 }")]
    pub memory: MemoryStoreSettings,
}

impl StoreSettings {
    /// Reads `memory`, or a mapping.
    pub(in crate::config) fn read(value: Option<Cursor<'_>>) -> Self {
        let default = Self::default();
        let Some((value, word)) = value.and_then(|value| Some((value, value.scalar()?))) else {
            return Self::or(value, default);
        };
        if word == "redis" || word.contains("://") {
            value.report("`redis` needs a URL", SMALLEST_REDIS.to_owned());
        } else {
            value.parse(choice(&[("memory", ())]));
        }
        default
    }
}

fn redis(value: Cursor<'_>) -> Option<Redis> {
    if value.scalar().is_some() {
        value.report("expected a mapping, not a single value", SMALLEST_REDIS.to_owned());
        return None;
    }
    Redis::read(value)
}

/// The limits that this process holds in memory.
#[derive(Debug, Clone, PartialEq, Eq, Settings)]
#[settings(page = "limits.md#memory")]
pub struct MemoryStoreSettings {
    /// The most limits in memory: one for each policy and client (key). When there are more, expired ones are dropped
    /// first, and those that deny requests last.
    #[setting(count = "1..=1000000000", default = "1000000", example = "100000")]
    pub max_keys: usize,
    /// The most memory that all limits may take.
    #[setting(size = "1MiB..=16TiB", example = "256MiB")]
    #[setting(unset = "a quarter of what the cgroup or the machine has, at most 1GiB")]
    pub max_bytes: Option<usize>,
}

/// The Redis that holds the limits. Set exactly one of `url`, `sentinel` and `cluster`.
#[derive(Debug, Clone, PartialEq, Eq, Settings)]
#[settings(
    page = "redis.md",
    sample = "url: \"redis://127.0.0.1:6379\"",
    constructor,
    foreign = "store.redis"
)]
#[settings(check = check_redis, rules(
    One(&["url", "sentinel", "cluster"]),
    With("user", "password"),
    AtMostOne(&["url", "user"]),
    AtMostOne(&["url", "password"]),
    AtMostOne(&["url", "database"]),
    AtMostOne(&["cluster", "database"])
))]
pub struct Redis {
    #[setting(flatten)]
    pub topology: RedisTopology,
    /// The user (ACL) that Tollgate logs in to Redis as.
    #[setting(text = ANY, read = filled_text, unset = "the default user", example = "app")]
    #[setting(beside = "cluster: { nodes: [\"redis://10.0.0.1:6379\"] }, password: \"${REDIS_PASSWORD}\"")]
    #[setting(flags(of_the_instance))]
    pub user: Option<String>,
    /// The password of Redis.
    #[setting(text = SECRET, read = Secret::read, unset = "none", example = "\"${REDIS_PASSWORD}\"")]
    #[setting(beside = "cluster: { nodes: [\"redis://10.0.0.1:6379\"] }")]
    #[setting(flags(of_the_instance))]
    pub password: Option<Secret>,
    /// The number of the database on the servers behind Sentinel.
    #[setting(count = "0..=2147483647", parse = database, default = "0", example = "1", omit_if = serialize::is_zero)]
    #[setting(beside = "sentinel: { master: mymaster, nodes: [\"redis://10.0.0.1:26379\"] }")]
    pub database: u32,
    /// TLS to Redis. It applies to `rediss://` URLs.
    #[setting(
        mapping,
        unset = "the authorities of the system, and no client certificate",
        example = "{ ca: tls/ca.pem }"
    )]
    #[setting(beside = "url: \"rediss://redis.internal:6380\"")]
    pub tls: ClientTls,
    /// How long Tollgate waits for Redis to decide on a request; in a cluster, for each round trip. After that, each
    /// policy does what its `on_store_error` says.
    #[setting(duration = "1ms..=10s", default = "50ms", example = "20ms")]
    #[setting(see = ["policies.*.on_store_error", "store.redis.breaker.failures"])]
    pub timeout: Duration,
    /// The most connections of each worker to each server.
    #[setting(count = "1..=64", default = "2", example = "4", see = ["workers"])]
    pub connections: u32,
    /// The first part of every key in Redis.
    #[setting(text = PREFIX, parse = key_prefix, default = "ratelimit", example = "eu-1")]
    pub prefix: String,
    /// When Tollgate stops asking a Redis that does not answer, and for how long.
    #[setting(mapping, unset = "after 5 failures, for a second", example = "{ failures: 3 }")]
    pub breaker: Breaker,
}

impl Redis {
    /// A single server, with the default of every other setting.
    pub fn at(url: Secret) -> Self {
        Self::new(RedisTopology::Url(url))
    }

    /// The timeout of a reply that no request waits for.
    pub fn call_timeout(&self) -> Duration {
        self.timeout.max(Duration::from_millis(500))
    }

    /// The time for `round_trips`, each with the timeout of a decision. Four seconds at most, so that a silent server
    /// does not block for long.
    pub fn time_for(&self, round_trips: u32) -> Duration {
        (self.timeout * round_trips).min(Duration::from_secs(4))
    }

    /// The timeout of connecting, up to the greeting.
    pub fn connect_timeout(&self) -> Duration {
        self.time_for(4).max(Duration::from_secs(1))
    }

    /// The prefix of every key. `cluster.strict` makes it a hash tag, so that all keys are in one slot.
    pub fn key_prefix(&self) -> String {
        match &self.topology {
            RedisTopology::Cluster(Cluster { is_strict: true, .. }) => format!("{{{}}}", self.prefix),
            _ => self.prefix.clone(),
        }
    }

    /// All URLs, each with the path of its setting.
    pub fn urls(&self) -> (&'static str, &[Secret]) {
        self.topology.urls()
    }
}

/// The servers, and how they are found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RedisTopology {
    /// One server: `redis://`, `rediss://` or `unix://`, with user, password and database, if any.
    #[serde(serialize_with = "url_without_credentials")]
    Url(Secret),
    /// Sentinels name the primary.
    Sentinel(Sentinel),
    /// A Redis Cluster.
    Cluster(Cluster),
}

impl RedisTopology {
    /// All URLs, each with the path of its setting.
    pub fn urls(&self) -> (&'static str, &[Secret]) {
        match self {
            Self::Url(url) => ("store.redis.url", std::slice::from_ref(url)),
            Self::Sentinel(sentinel) => ("store.redis.sentinel.nodes", &sentinel.nodes),
            Self::Cluster(cluster) => ("store.redis.cluster.nodes", &cluster.nodes),
        }
    }

    /// The scheme of its URLs.
    pub(in crate::config) fn scheme(&self) -> &str {
        let (_, urls) = self.urls();
        urls.first().and_then(|url| url.reveal().split_once("://")).map_or("redis", |(scheme, _)| scheme)
    }
}

/// The ways to say where Redis is.
#[derive(Settings)]
#[settings(written, of = RedisTopology)]
struct TopologySettings<'t> {
    /// A single server: `redis://USER:PASSWORD@HOST:PORT/DATABASE`, `rediss://` for TLS, or `unix:///PATH`.
    #[setting(text = REDIS_URL, example = "redis://127.0.0.1:6379", flags(of_the_instance))]
    url: Option<Cursor<'t>>,
    /// Redis behind Sentinel, which tells Tollgate the current primary.
    #[setting(mapping(Sentinel), example = "{ master: mymaster, nodes: [\"redis://10.0.0.1:26379\"] }")]
    #[setting(flags(of_the_instance))]
    sentinel: Option<Cursor<'t>>,
    /// A Redis Cluster.
    #[setting(mapping(Cluster), example = "{ nodes: [\"redis://10.0.0.1:6379\"] }")]
    cluster: Option<Cursor<'t>>,
}

impl<'t> Read<'t> for RedisTopology {
    /// Exactly one of `url`, `sentinel` and `cluster`.
    fn fields(mapping: &mut MappingCursor<'t>) -> Option<Self> {
        let given: Vec<_> = ["url", "sentinel", "cluster"]
            .into_iter()
            .filter_map(|key| Some((key, mapping.key_location(key)?)))
            .collect();
        if let [(first, _), others @ ..] = &given[..] {
            for (key, location) in others {
                let help = format!("keep one of them: Redis is found by `{first}` or by `{key}`");
                mapping.report_at(*location, format!("`{key}` and `{first}` exclude each other"), help);
            }
        }
        let TopologySettings { url, sentinel, cluster } = TopologySettings::fields(mapping)?;
        if sentinel.is_none() && cluster.is_none() {
            mapping.report_if_missing("url", REDIS_URL);
            let url = url?.parse_secret(redis_url)?;
            return Some(Self::Url(Secret::new(url)));
        }
        // All of them are read, for their errors.
        let url = url.and_then(|value| value.parse_secret(redis_url));
        let sentinel = sentinel.map(|value| Sentinel::read(value).map(Self::Sentinel));
        let cluster = cluster.map(|value| Cluster::read(value).map(Self::Cluster));
        if given.len() != 1 || url.is_some() {
            return None;
        }
        sentinel.or(cluster)?
    }
}

/// Redis behind Sentinel.
#[derive(Debug, Clone, PartialEq, Eq, Settings)]
#[settings(page = "redis.md", rules(With("user", "password")), check = user_without_password)]
#[settings(sample = "master: mymaster, nodes: [\"redis://10.0.0.1:26379\"]")]
pub struct Sentinel {
    /// The name of the primary in `sentinel.conf`.
    #[setting(text = NAME, parse = printable_text, example = "mymaster")]
    #[setting(missing = "the name of the primary in sentinel.conf, such as mymaster")]
    pub master: String,
    /// The URLs of the Sentinels, port 26379 by default. It is enough if one of them answers.
    #[setting(list(text = REDIS_NODE, Some), read = sentinels, shown = urls_without_credentials)]
    #[setting(missing = SENTINELS, example = "[\"redis://10.0.0.1:26379\", \"redis://10.0.0.2:26379\"]")]
    pub nodes: Vec<Secret>,
    /// The user (ACL) that Tollgate logs in to the Sentinels as.
    #[setting(text = ANY, read = filled_text, unset = "the default user", example = "app")]
    #[setting(beside = "password: \"${SENTINEL_PASSWORD}\"")]
    pub user: Option<String>,
    /// The password of the Sentinels.
    #[setting(text = SECRET, read = Secret::read, unset = "none", example = "\"${SENTINEL_PASSWORD}\"")]
    pub password: Option<Secret>,
}

/// A Redis Cluster.
#[derive(Debug, Clone, PartialEq, Eq, Settings)]
#[settings(page = "redis.md", sample = "nodes: [\"redis://10.0.0.1:6379\"]")]
pub struct Cluster {
    /// The URLs of some nodes, port 6379 by default. From them, Tollgate learns all others.
    #[setting(list(text = REDIS_NODE, Some), read = nodes, shown = urls_without_credentials)]
    #[setting(missing = NODES, example = "[\"redis://10.0.0.1:6379\", \"redis://10.0.0.2:6379\"]")]
    #[setting(flags(of_the_instance))]
    pub nodes: Vec<Secret>,
    /// Whether all keys are in one hash slot, and so on one node. Each request is then decided in one step, but one node
    /// carries the whole load.
    #[setting(key = "strict", default = "false", example = "true")]
    pub is_strict: bool,
}

const SENTINELS: &str = "nodes: [redis://10.0.0.1:26379, redis://10.0.0.2:26379]";
const NODES: &str = "nodes: [redis://10.0.0.1:6379, redis://10.0.0.2:6379]";

fn sentinels(value: Cursor<'_>) -> Option<Vec<Secret>> {
    nodes_at(value, 26379, SENTINELS)
}

fn nodes(value: Cursor<'_>) -> Option<Vec<Secret>> {
    nodes_at(value, 6379, NODES)
}

/// URLs of nodes, all with the same scheme.
fn nodes_at(value: Cursor<'_>, default_port: u16, example: &str) -> Option<Vec<Secret>> {
    if value.is_empty_list() {
        value.report("this list is empty", format!("name at least one: {example}"));
        return None;
    }
    let items = value.list()?;
    let count = items.len();
    let mut scheme = None;
    let urls: Vec<Secret> = items
        .into_iter()
        .filter_map(|item| {
            let mut url = item.parse_secret(redis_node_url)?;
            let own = if url.scheme() == "rediss" { "rediss" } else { "redis" };
            if *scheme.get_or_insert(own) != own {
                item.report(
                    "this node and the first have different schemes",
                    "use redis:// for all nodes, or rediss:// for all".to_owned(),
                );
                return None;
            }
            if url.port().is_none() {
                // This fails only for URLs without a host.
                let _has_host = url.set_port(Some(default_port));
            }
            Some(Secret::new(url))
        })
        .collect();
    (urls.len() == count).then_some(urls)
}

/// The circuit breaker: while it is open, Tollgate does not ask Redis, and each policy does what its `on_store_error` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Settings)]
#[settings(page = "redis.md")]
pub struct Breaker {
    /// After this many failures in a row, Tollgate stops asking Redis for `retry_after`.
    #[setting(count = "1..=1000000", default = "5", example = "3")]
    pub failures: u32,
    /// The longest time until Tollgate asks Redis again. On average, it is three quarters of this.
    #[setting(duration = "10ms..=1h", default = "1s", example = "5s")]
    pub retry_after: Duration,
}

/// Text, unless it is empty.
fn filled_text(value: Cursor<'_>) -> Option<String> {
    value.parse(|text| Ok(text.to_owned())).filter(|text| !text.is_empty())
}

/// A URL with `***` in place of the user info and of the query.
fn url_without_credentials<S: Serializer>(url: &Secret, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&without_credentials(url.reveal()))
}

/// [`url_without_credentials`] for each URL.
fn urls_without_credentials<S: Serializer>(urls: &[Secret], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(urls.iter().map(|url| without_credentials(url.reveal())))
}

pub(in crate::config) fn without_credentials(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (rest, query) = rest.split_once('?').map_or((rest, ""), |(rest, _)| (rest, "?***"));
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://***@{host}{query}"),
        None => format!("{scheme}://{rest}{query}"),
    }
}

/// Reports `tls` without `rediss://`, and settings that repeat a part of the URL.
pub(in crate::config) fn check_redis(mapping: &MappingCursor<'_>, redis: Option<&Redis>) {
    let topology = redis.map(|redis| &redis.topology);
    let scheme = topology.map(RedisTopology::scheme);
    if let (Some(location), Some(scheme)) = (mapping.key_location("tls"), scheme)
        && scheme != "rediss"
    {
        let help = "write rediss:// to use TLS, or remove `tls`";
        let message = format!("`tls` works only with rediss://, not with {scheme}://");
        mapping.report_at(location, message, help.to_owned());
    }
    for (key, is_taken) in [
        ("user", !matches!(topology, Some(RedisTopology::Url(_)))),
        ("password", !matches!(topology, Some(RedisTopology::Url(_)))),
        ("database", !matches!(topology, Some(RedisTopology::Url(_) | RedisTopology::Cluster(_)))),
    ] {
        if let Some(location) = mapping.key_location(key).filter(|_| !is_taken) {
            let help = match topology {
                Some(RedisTopology::Cluster(_)) => "remove it: a cluster has only database 0",
                _ => "write it in the URL: redis://USER:PASSWORD@HOST:PORT/DATABASE",
            };
            mapping.report_at(location, format!("`{key}` does not apply here"), help.to_owned());
        }
    }
    report_user_alone(mapping);
}

pub(in crate::config) fn user_without_password(mapping: &MappingCursor<'_>, _: Option<&Sentinel>) {
    report_user_alone(mapping);
}

fn report_user_alone(mapping: &MappingCursor<'_>) {
    if let Some(location) = mapping.key_location("user").filter(|_| !mapping.has_or_misspells("password")) {
        mapping.report_at(location, "`user` is set without `password`", "add `password`".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_urls_are_masked() {
        for (url, shown) in [
            ("redis://me:pass@host:6379/1", "redis://***@host:6379/1"),
            ("redis://:p@ss@host", "redis://***@host"),
            ("rediss://host", "rediss://host"),
            ("unix:///run/redis.sock?db=1&pass=word", "unix:///run/redis.sock?***"),
        ] {
            assert_eq!(without_credentials(url), shown);
        }
    }
}
