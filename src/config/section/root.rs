//! The whole of `proxy.yaml`: its sections, and the few settings that need none.

use std::time::Duration;

use super::{abuse, clients, listeners, policies, routes, store, telemetry, upstreams, user};
use crate::config::{
    model::{Config, ConfigSource, Shutdown, Workers},
    reader::Cursor,
    value::{Invalid, LONGEST_DURATION, count, duration},
};

/// Reads the whole configuration. Where it gives none, it has reported why.
pub(in crate::config) fn read(root: Cursor<'_>) -> Option<Config> {
    if root.is_nothing() {
        let help = "it needs at least `upstreams` and `routes`".to_owned();
        root.report("the configuration is empty", help);
        return None;
    }
    let mut at = root.mapping()?;
    let listeners = listeners::listeners(at.take("listeners"));
    let admin = listeners::admin(at.take("admin"), &listeners);
    let workers = at.parse_or("workers", Workers::Auto, workers);
    let trusted_proxies = at.take("trusted_proxies");
    let trusts = trusted_proxies.is_some_and(|list| !list.is_empty_list());
    let trusted_proxies = clients::trusted_proxies(trusted_proxies);
    let client_address = clients::client_address(at.take("client_address"));
    let request_id = clients::request_id(at.take("request_id"));
    let (user, known) = user::sources(at.take("user"), trusts);
    let store = store::store(at.take("store"));
    let policies = policies::policies(at.take("policies"), known);
    let bans = abuse::bans(at.take("bans"), known);
    let abuse = abuse::abuse(at.take("abuse"));
    let upstreams = upstreams::upstreams(at.require("upstreams", UPSTREAMS), &policies.names);
    let routes = routes::routes(at.require("routes", ROUTES), &policies, &upstreams, known);
    let client_limits = clients::limits(at.take("client_limits"));
    let reply_headers = clients::reply_headers(at.take("reply_headers"));
    let forwarded = clients::forwarded(at.take("forwarded"));
    let access_log = telemetry::access_log(at.take("access_log"));
    let log = telemetry::log(at.take("log"));
    let tracing = at.take("tracing").and_then(telemetry::tracing);
    let shutdown = shutdown(at.take("shutdown"));
    at.finish_besides(|key| key.starts_with("x-"));
    Some(Config {
        listeners,
        admin,
        workers,
        trusted_proxies,
        client_address,
        request_id,
        user,
        store,
        policies: policies.resolved?,
        bans: bans?,
        abuse,
        upstreams: upstreams.resolved?,
        routes: routes?,
        client_limits,
        reply_headers,
        forwarded,
        access_log,
        log,
        tracing,
        shutdown,
        source: ConfigSource::default(),
    })
}

const UPSTREAMS: &str = "such as `upstreams: { api: { endpoints: [http://127.0.0.1:3000] } }`";
const ROUTES: &str = "such as `routes: [{ path: /*, upstream: api }]`";

fn workers(text: &str) -> Result<Workers, Invalid> {
    match text {
        "auto" => Ok(Workers::Auto),
        _ => count(1..=1024)(text).map(Workers::Count).map_err(|invalid| invalid.form("auto, or 1 to 1024")),
    }
}

fn shutdown(value: Option<Cursor<'_>>) -> Shutdown {
    let default = Shutdown { drain: Duration::from_secs(30) };
    let Some(mut at) = value.and_then(Cursor::mapping) else { return default };
    let drain = at.parse_or("drain", default.drain, duration(Duration::ZERO..=LONGEST_DURATION));
    at.finish();
    Shutdown { drain }
}
