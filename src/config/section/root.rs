//! The top level of `proxy.yaml`: its sections, and the settings that belong to none.

use std::time::Duration;

use super::{
    abuse,
    access::access,
    clients,
    listeners::{self, Listeners},
    policies::{self, StoreMemory},
    resolver,
    routes::{self, RouteDefaults},
    spoofable_headers, store, telemetry, upstreams, user,
};
use crate::config::{
    model::{Config, ConfigSource, Route, Shutdown, Workers},
    reader::Cursor,
    settings,
    value::{Invalid, MAX_DURATION, count, duration},
};

/// Reads the whole configuration. `None`: it is invalid, and the errors were reported.
pub(in crate::config) fn read(root: Cursor<'_>) -> Option<Config> {
    if root.is_null() {
        let help = "it needs at least `upstreams` and `routes`".to_owned();
        root.report("the configuration is empty", help);
        return None;
    }
    let mut mapping = root.mapping()?.of(&settings::ROOT).knowing("top level");
    let proxies = mapping.take("trusted_proxies");
    let has_trusted_proxies = proxies.is_some_and(|list| !list.is_empty_list());
    let Listeners { all: listeners, has_client_certificates, certified } =
        listeners::listeners(mapping.take("listeners"), has_trusted_proxies);
    let admin = listeners::admin(&mut mapping, &listeners);
    let workers = mapping.parse_or("workers", Workers::Auto, workers);
    let trusted_proxies = clients::trusted_proxies(proxies);
    let trusted_headers = clients::trusted_headers(mapping.take("trusted_headers"));
    let client_address = clients::client_address(mapping.take("client_address"), has_trusted_proxies);
    let access = access(&mut mapping);
    let request_id = clients::request_id(mapping.take("request_id"));
    let (user, identity) =
        user::user_sources(mapping.take("user"), has_trusted_proxies, has_client_certificates);
    let store = store::store(mapping.take("store"));
    let policies =
        policies::policies(mapping.take("policies"), identity, &StoreMemory::new(&store, &store::MEMORY));
    let (bans, close_banned_tunnels) = abuse::bans(mapping.take("bans"), identity, &policies);
    let abuse = abuse::abuse(mapping.take("abuse"));
    let resolver = resolver::resolver(mapping.take("resolver"));
    let upstreams = upstreams::upstreams(mapping.take("upstreams"), &policies.names, identity);
    let defaults = RouteDefaults::default().overridden(&mut mapping);
    let has_routes = mapping.peek("routes").is_some();
    let routes = routes::routes(
        mapping.require("routes", ROUTES),
        defaults,
        &policies,
        &upstreams,
        identity,
        certified.as_deref(),
    );
    let is_own = |route: &Route| route.action.upstream().is_none();
    // Of routes that are wrong it is not known.
    let needs_upstreams = routes.as_ref().map_or(!has_routes, |routes| !routes.iter().all(is_own));
    if needs_upstreams && !mapping.has_or_misspells("upstreams") {
        mapping.report("`upstreams` is missing", UPSTREAMS.to_owned());
    }
    let client_limits = clients::limits(mapping.take("client_limits"));
    let reply_headers = clients::reply_headers(mapping.take("reply_headers"));
    let forwarded = clients::forwarded(mapping.take("forwarded"));
    let forward_client_certificate =
        clients::forward_client_certificate(mapping.take("forward_client_certificate"), identity);
    let access_log = telemetry::access_log(mapping.take("access_log"));
    let log = telemetry::log(mapping.take("log"));
    let tracing = mapping.take("tracing").and_then(telemetry::tracing);
    let shutdown = shutdown(mapping.take("shutdown"));
    mapping.finish_allowing(|key| key.starts_with("x-"));
    let config = Config {
        listeners,
        admin,
        workers,
        trusted_proxies,
        trusted_headers,
        client_address,
        access,
        request_id,
        user,
        store,
        policies: policies.resolved?,
        bans: bans?,
        close_banned_tunnels,
        abuse,
        upstreams: upstreams.resolved?,
        resolver,
        routes: routes?,
        client_limits,
        reply_headers,
        forwarded,
        forward_client_certificate,
        access_log,
        log,
        tracing,
        shutdown,
        source: ConfigSource::default(),
    };
    if let Some(proxies) = proxies {
        spoofable_headers::warn(proxies, &config);
    }
    Some(config)
}

const UPSTREAMS: &str = "such as `upstreams: { api: { endpoints: [http://127.0.0.1:3000] } }`";
const ROUTES: &str = "such as `routes: [{ path: /*, upstream: api }]`";

fn workers(text: &str) -> Result<Workers, Invalid> {
    match text {
        "auto" => Ok(Workers::Auto),
        _ => count(1..=1024)(text)
            .map(Workers::Count)
            .map_err(|invalid| invalid.expected("auto, or 1 to 1024")),
    }
}

fn shutdown(value: Option<Cursor<'_>>) -> Shutdown {
    let default = Shutdown { drain: Duration::from_secs(30) };
    let Some(mapping) = value.and_then(Cursor::mapping) else { return default };
    let mut mapping = mapping.of(&settings::SHUTDOWN);
    let drain = mapping.parse_or("drain", default.drain, duration(Duration::ZERO..=MAX_DURATION));
    mapping.finish();
    Shutdown { drain }
}
