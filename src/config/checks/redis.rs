//! Settings of Redis that do not go together.

use crate::config::{
    model::{Redis, RedisTopology, Sentinel},
    reader::MappingCursor,
};

/// Reports `tls` without `rediss://`, and settings that repeat a part of the URL.
pub(in crate::config) fn check(mapping: &MappingCursor<'_>, redis: Option<&Redis>) {
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
