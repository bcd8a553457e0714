//! `resolver`: who is asked for the addresses of endpoints that have names.

use std::time::Duration;

use crate::config::{
    model::Resolver,
    reader::Cursor,
    settings,
    value::{dns_server, duration},
};

pub(super) fn resolver(value: Option<Cursor<'_>>) -> Resolver {
    let default = Resolver { servers: Vec::new(), timeout: Duration::from_secs(5) };
    let Some(mapping) = value.and_then(|value| value.mapping_such_as("resolver: { servers: [10.0.0.2] }"))
    else {
        return default;
    };
    let mut mapping = mapping.of(&settings::RESOLVER).knowing("resolver");
    let servers = mapping.take("servers").map(|list| list.unique_items(|item| item.parse(dns_server)));
    let longest = Duration::from_secs(60);
    let timeout =
        mapping.parse_or("timeout", default.timeout, duration(Duration::from_millis(100)..=longest));
    mapping.finish();
    Resolver { servers: servers.unwrap_or_default(), timeout }
}
