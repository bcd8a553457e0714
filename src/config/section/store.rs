//! `store`: where limits are kept, in memory or in Redis.

use std::{ops::RangeInclusive, time::Duration};

use super::MIN_DURATION;
use crate::config::{
    model::{Breaker, MemoryStore, Redis, RedisTls, Secret, Store},
    reader::{Cursor, MappingCursor},
    value::{
        Invalid, REDIS_URL, authorities, certificates, check_key_matches, choice, count, duration,
        key_prefix, private_key, redis_url,
    },
};

const MEMORY: MemoryStore = MemoryStore { max_keys: 1_000_000 };

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
    let Some(mut mapping) = value.mapping() else { return default };
    let redis = mapping.take("redis").and_then(redis);
    let memory = mapping.take("memory").map_or(MEMORY, memory);
    mapping.finish();
    Store { memory, redis }
}

fn memory(value: Cursor<'_>) -> MemoryStore {
    let Some(mut mapping) = value.mapping() else { return MEMORY };
    let max_keys = mapping.parse_or("max_keys", MEMORY.max_keys, count(1..=1_000_000_000));
    mapping.finish();
    MemoryStore { max_keys }
}

const SMALLEST_REDIS: &str = "such as `store: { redis: { url: redis://127.0.0.1:6379 } }`";

/// Ways to connect to Redis that are not supported.
const UNSUPPORTED: [&str; 2] = ["sentinel", "cluster"];

fn redis(value: Cursor<'_>) -> Option<Redis> {
    if value.scalar().is_some() {
        value.report("expected a mapping, not a single value", SMALLEST_REDIS.to_owned());
        return None;
    }
    let mut mapping = value.mapping()?;
    let url = url(&mut mapping).and_then(|value| value.parse_secret(redis_url));
    if let (Some(location), Some(url)) = (mapping.key_location("tls"), &url)
        && url.scheme() != "rediss"
    {
        let help = "write rediss:// to use TLS, or remove `tls`";
        mapping.report_at(
            location,
            format!("`tls` works only with rediss://, not with {}://", url.scheme()),
            help.to_owned(),
        );
    }
    let tls = mapping.take("tls").map(tls).unwrap_or_default();
    let time = duration(MIN_DURATION..=Duration::from_secs(10));
    let timeout = mapping.parse_or("timeout", Duration::from_millis(50), time);
    let connections = mapping.parse_or("connections", 2, count_u32(1..=64));
    let prefix = mapping.parse_or("prefix", "ratelimit".to_owned(), key_prefix);
    let breaker = breaker(mapping.take("breaker"));
    mapping.finish_allowing(|key| UNSUPPORTED.contains(&key));
    Some(Redis { url: Secret::new(url?), tls, timeout, connections, prefix, breaker })
}

/// The URL. It is not required if an unsupported setting, which is reported, stands in its place.
fn url<'t>(mapping: &mut MappingCursor<'t>) -> Option<Cursor<'t>> {
    let mut others = false;
    for later in UNSUPPORTED {
        if let Some(location) = mapping.key_location(later) {
            let help = "set the URL of a single Redis: `url: redis://HOST:PORT`".to_owned();
            mapping.report_at(location, format!("`{later}` is not supported yet"), help);
            others = true;
        }
    }
    if others { mapping.take("url") } else { mapping.require("url", REDIS_URL) }
}

fn tls(value: Cursor<'_>) -> RedisTls {
    let Some(mut mapping) = value.mapping() else { return RedisTls::default() };
    let ca = mapping.take("ca").and_then(|value| value.file(authorities));
    let (cert, key) = (mapping.take("cert"), mapping.take("key"));
    for (one, other) in [("cert", "key"), ("key", "cert")] {
        if let Some(location) = mapping.key_location(one).filter(|_| !mapping.has_or_misspells(other)) {
            let help = format!("a certificate and its key go together: add `{other}: FILE`");
            mapping.report_at(location, format!("`{one}` is set without `{other}`"), help);
        }
    }
    mapping.finish();
    let chain = cert.and_then(|value| value.file(certificates));
    let identity = key.and_then(|value| match chain {
        Some((cert, chain)) => {
            let (key, ()) = value.file(|bytes| check_key_matches(private_key(bytes)?, chain))?;
            Some((cert, key))
        }
        // Report the errors of the key as well.
        None => value.file(private_key).and(None),
    });
    RedisTls { ca: ca.map(|(path, ())| path), identity }
}

fn breaker(value: Option<Cursor<'_>>) -> Breaker {
    let default = Breaker { failures: 5, retry_after: Duration::from_secs(1) };
    let Some(mut mapping) = value.and_then(Cursor::mapping) else { return default };
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
