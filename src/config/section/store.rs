//! `store`: where limits are kept, in memory or in Redis.

use std::{ops::RangeInclusive, time::Duration};

use super::{MAX_BUDGET, MIN_BUDGET, MIN_DURATION, client_tls::client_tls};
use crate::config::{
    model::{Breaker, ClientTls, Cluster, MemoryStore, Redis, RedisTopology, Secret, Sentinel, Store},
    reader::{Cursor, MappingCursor},
    settings,
    value::{
        Invalid, REDIS_URL, boolean, choice, count, database, duration, key_prefix, printable_text,
        redis_node_url, redis_url, size,
    },
};

pub(super) const MEMORY: MemoryStore = MemoryStore { max_keys: 1_000_000, max_bytes: None };

/// The store: `memory`, or a mapping.
pub(super) fn store(value: Option<Cursor<'_>>) -> Store {
    let default = Store { memory: MEMORY, redis: None };
    let Some(value) = value else { return default };
    if let Some(word) = value.scalar() {
        if word == "redis" || word.contains("://") {
            value.report("`redis` needs a URL", SMALLEST_REDIS.to_owned());
        } else {
            value.parse(choice(&[("memory", ())]));
        }
        return default;
    }
    let Some(mut mapping) = value.mapping().map(|mapping| mapping.of(&settings::STORE)) else {
        return default;
    };
    let redis = mapping.take("redis").and_then(redis);
    let memory = mapping.take("memory").map_or(MEMORY, memory);
    mapping.finish();
    Store { memory, redis }
}

fn memory(value: Cursor<'_>) -> MemoryStore {
    let Some(mut mapping) = value.mapping().map(|mapping| mapping.of(&settings::MEMORY)) else {
        return MEMORY;
    };
    let max_keys = mapping.parse_or("max_keys", MEMORY.max_keys, count(1..=1_000_000_000));
    let max_bytes = mapping.take("max_bytes").and_then(|value| value.parse(size(MIN_BUDGET..=MAX_BUDGET)));
    mapping.finish();
    MemoryStore { max_keys, max_bytes }
}

const SMALLEST_REDIS: &str = "such as `store: { redis: { url: redis://127.0.0.1:6379 } }`";

fn redis(value: Cursor<'_>) -> Option<Redis> {
    if value.scalar().is_some() {
        value.report("expected a mapping, not a single value", SMALLEST_REDIS.to_owned());
        return None;
    }
    let mut mapping = value.mapping()?.of(&settings::REDIS);
    let topology = topology(&mut mapping);
    let scheme = topology.as_ref().map(|(_, scheme)| *scheme);
    if let (Some(location), Some(scheme)) = (mapping.key_location("tls"), scheme)
        && scheme != "rediss"
    {
        let help = "write rediss:// to use TLS, or remove `tls`";
        let message = format!("`tls` works only with rediss://, not with {scheme}://");
        mapping.report_at(location, message, help.to_owned());
    }
    let topology = topology.map(|(topology, _)| topology);
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
    let (user, password) = credentials(&mut mapping);
    let database = mapping.parse_or("database", 0, database);
    let default = Redis::new(topology.clone().unwrap_or(RedisTopology::Url(Secret::new(""))));
    let tls = mapping.take("tls").map(tls).unwrap_or_default();
    let time = duration(MIN_DURATION..=Duration::from_secs(10));
    let timeout = mapping.parse_or("timeout", default.timeout, time);
    let connections = mapping.parse_or("connections", default.connections, count_u32(1..=64));
    let prefix = mapping.parse_or("prefix", default.prefix.clone(), key_prefix);
    let breaker = breaker(mapping.take("breaker"), default.breaker);
    mapping.finish();
    topology?;
    Some(Redis { user, password, database, tls, timeout, connections, prefix, breaker, ..default })
}

/// The ways to say where Redis is.
const TOPOLOGIES: [&str; 3] = ["url", "sentinel", "cluster"];

/// Exactly one of `url`, `sentinel` and `cluster`, and the scheme of its URLs.
fn topology(mapping: &mut MappingCursor<'_>) -> Option<(RedisTopology, &'static str)> {
    let given: Vec<_> =
        TOPOLOGIES.iter().filter_map(|key| Some((*key, mapping.key_location(key)?))).collect();
    if let [(first, _), others @ ..] = &given[..] {
        for (key, location) in others {
            let help = format!("keep one of them: Redis is found by `{first}` or by `{key}`");
            mapping.report_at(*location, format!("`{key}` and `{first}` exclude each other"), help);
        }
    }
    let sentinel = mapping.take("sentinel");
    let cluster = mapping.take("cluster");
    if sentinel.is_none() && cluster.is_none() {
        let url = mapping.require("url", REDIS_URL)?.parse_secret(redis_url)?;
        let scheme = match url.scheme() {
            "rediss" => "rediss",
            "unix" => "unix",
            _ => "redis",
        };
        return Some((RedisTopology::Url(Secret::new(url)), scheme));
    }
    let is_alone = given.len() == 1;
    // All of them are read, for their errors.
    let url = mapping.take("url").and_then(|value| value.parse_secret(redis_url));
    let sentinel = sentinel.map(self::sentinel);
    let cluster = cluster.map(self::cluster);
    if !is_alone || url.is_some() {
        return None;
    }
    sentinel.or(cluster)?
}

fn sentinel(value: Cursor<'_>) -> Option<(RedisTopology, &'static str)> {
    let mut mapping = value.mapping()?.of(&settings::SENTINEL);
    let master = mapping.require("master", "the name of the primary in sentinel.conf, such as mymaster");
    let master = master.and_then(|value| value.parse(printable_text));
    let nodes = nodes(&mut mapping, SENTINEL_PORT, "nodes: [redis://10.0.0.1:26379, redis://10.0.0.2:26379]");
    let (user, password) = credentials(&mut mapping);
    mapping.finish();
    let (nodes, scheme) = nodes?;
    Some((RedisTopology::Sentinel(Sentinel { master: master?, nodes, user, password }), scheme))
}

fn cluster(value: Cursor<'_>) -> Option<(RedisTopology, &'static str)> {
    let mut mapping = value.mapping()?.of(&settings::CLUSTER);
    let nodes = nodes(&mut mapping, REDIS_PORT, "nodes: [redis://10.0.0.1:6379, redis://10.0.0.2:6379]");
    let is_strict = mapping.parse_or("strict", false, boolean);
    mapping.finish();
    let (nodes, scheme) = nodes?;
    Some((RedisTopology::Cluster(Cluster { nodes, is_strict }), scheme))
}

const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// URLs of nodes, all with the same scheme, and that scheme.
fn nodes(
    mapping: &mut MappingCursor<'_>,
    default_port: u16,
    example: &str,
) -> Option<(Vec<Secret>, &'static str)> {
    let value = mapping.require("nodes", example)?;
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
    (urls.len() == count).then_some((urls, scheme?))
}

/// User and password. A user needs a password.
fn credentials(mapping: &mut MappingCursor<'_>) -> (Option<String>, Option<Secret>) {
    if let Some(location) = mapping.key_location("user").filter(|_| !mapping.has_or_misspells("password")) {
        mapping.report_at(location, "`user` is set without `password`", "add `password`".to_owned());
    }
    let not_empty = |text: &str| Ok::<_, Invalid>((!text.is_empty()).then(|| text.to_owned()));
    let user = mapping.take("user").and_then(|value| value.parse(not_empty)).flatten();
    let password = mapping.take("password").and_then(|value| value.parse_secret(not_empty)).flatten();
    (user, password.map(Secret::new))
}

fn tls(value: Cursor<'_>) -> ClientTls {
    let Some(mapping) = value.mapping() else { return ClientTls::default() };
    let mut mapping = mapping.of(&settings::TLS_TO_REDIS);
    let tls = client_tls(&mut mapping);
    mapping.finish();
    tls
}

fn breaker(value: Option<Cursor<'_>>, default: Breaker) -> Breaker {
    let Some(mapping) = value.and_then(Cursor::mapping) else { return default };
    let mut mapping = mapping.of(&settings::BREAKER);
    let time = duration(Duration::from_millis(10)..=Duration::from_secs(60 * 60));
    let breaker = Breaker {
        failures: mapping.parse_or("failures", default.failures, count_u32(1..=1_000_000)),
        retry_after: mapping.parse_or("retry_after", default.retry_after, time),
    };
    mapping.finish();
    breaker
}

fn count_u32(allowed: RangeInclusive<usize>) -> impl Fn(&str) -> Result<u32, Invalid> {
    move |text| {
        let number = count(allowed.clone())(text)?;
        u32::try_from(number).map_err(|_| Invalid::new("is too large"))
    }
}
