//! Reads the top level of `proxy.yaml`: its topics, and the settings outside of them.

use std::sync::Arc;

use crate::config::{
    abuse,
    abuse::settings::Abuse,
    checks::{decisions, key_limits, loops},
    history::{
        alerts::{alerts, check_alerts},
        checks::check_history,
        settings::History,
    },
    identity,
    identity::access::Access,
    keys::{self, plans, settings::ApiKeySettings},
    listeners,
    listeners::{
        clients::{self, ClientLimits, Forwarded, ReplyHeaders},
        resolve::Listeners,
        settings::DecisionService,
    },
    policies,
    reader::Cursor,
    request_values,
    resolved::{Config, ConfigSource, Shutdown, Workers},
    routes,
    routes::settings::{Route, RouteDefaults},
    settings::{Read, ReadOver, Settings, Value},
    store::settings::StoreSettings,
    telemetry::settings::{AccessLog, Log, Tracing},
    upstreams,
    upstreams::settings::Resolver,
    value::size,
};

/// Reads the whole configuration. `None`: it is invalid, and the errors were reported.
pub(in crate::config) fn read(root: Cursor<'_>) -> Option<Config> {
    if root.is_null() {
        let help = "it needs at least `upstreams` and `routes`".to_owned();
        root.report("the configuration is empty", help);
        return None;
    }
    let mut mapping = root.mapping()?.of(Config::mapping());
    let proxies = mapping.take("trusted_proxies");
    let has_trusted_proxies = proxies.is_some_and(|list| !list.is_empty_list());
    let Listeners { all: listeners, has_client_certificates, drafts: listener_drafts } =
        listeners::resolve::listeners(mapping.take("listeners"), has_trusted_proxies);
    let admin = listeners::resolve::admin(&mut mapping, &listeners);
    let workers = mapping.parse_or("workers", Workers::Auto, Workers::parse);
    let trusted_proxies = clients::trusted_proxies(proxies);
    let trusted_headers = clients::trusted_headers(mapping.take("trusted_headers"));
    let client_address = clients::client_address(mapping.take("client_address"), has_trusted_proxies);
    let access = Access::over(Access::default(), &mut mapping);
    identity::checks::warn_of_denied_networks(&mapping, Some(&access));
    let request_id = clients::request_id(mapping.take("request_id"));
    let has_api_keys = mapping.peek("api_keys").is_some();
    let api_keys = mapping.take("api_keys").and_then(ApiKeySettings::read);
    let values = request_values::resolve::values(mapping.take("values"));
    let plans = plans::plans(mapping.take("plans"), has_api_keys, &values);
    if let (Some(users), Some(api_keys)) = (mapping.peek("user"), &api_keys) {
        key_limits::warn_of_users(users, api_keys);
    }
    let (user, mut identity) = identity::resolve::user_sources(
        mapping.take("user"),
        has_trusted_proxies,
        has_client_certificates,
        has_api_keys,
    );
    if listeners.iter().filter_map(|listener| listener.decisions.as_ref()).any(DecisionService::takes_calls) {
        // Calls tell certificates of Envoy's clients; descriptors, users.
        identity.has_client_certificates = true;
        (identity.has_users, identity.has_verified_users) = (true, true);
    }
    let store = StoreSettings::read(mapping.take("store"));
    let limits_attempts = has_api_keys || routes::resolve::require_credentials(mapping.peek("routes"));
    let policies = policies::resolve::policies(
        mapping.take("policies"),
        (identity, &values),
        &plans,
        api_keys.as_ref(),
        limits_attempts,
        &store,
    );
    plans::report_unknown_policies(&plans, &policies);
    let (bans, close_banned_tunnels) = abuse::resolve::bans(mapping.take("bans"), identity, &policies);
    let abuse = Abuse::or(mapping.take("abuse"), Abuse::default());
    let history = mapping.take("history").and_then(History::read);
    let alerts = alerts(mapping.take("alerts"));
    let resolver = Resolver::or(mapping.take("resolver"), Resolver::default());
    let upstreams = upstreams::resolve::upstreams(mapping.take("upstreams"), &policies, identity);
    let defaults = RouteDefaults::over(RouteDefaults::default(), &mut mapping);
    let has_routes = mapping.peek("routes").is_some();
    let routes = routes::resolve::routes(
        mapping.require("routes", ROUTES),
        defaults,
        &policies,
        &upstreams,
        (identity, &values),
        &listener_drafts,
        api_keys.as_ref(),
    );
    let is_own = |route: &Route| route.action.upstream().is_none();
    // Unknown if routes are invalid.
    let needs_upstreams = routes.as_ref().map_or(!has_routes, |routes| !routes.iter().all(is_own));
    if needs_upstreams {
        mapping.report_if_missing("upstreams", UPSTREAMS);
    }
    let client_limits = ClientLimits::or(mapping.take("client_limits"), ClientLimits::default());
    let body_memory = mapping.parse_or("body_memory", 128 << 20, size(1 << 20..=1 << 44));
    let reply_headers = ReplyHeaders::or(mapping.take("reply_headers"), ReplyHeaders::default());
    let forwarded = mapping.parse_or("forwarded", Forwarded::XForwarded, Forwarded::parse);
    let forward_client_certificate =
        clients::forward_client_certificate(mapping.take("forward_client_certificate"), identity);
    let access_log = AccessLog::read(mapping.take("access_log"));
    let log = Log::or(mapping.take("log"), Log::default());
    let tracing = mapping.take("tracing").and_then(tracing);
    let shutdown = Shutdown::or(mapping.take("shutdown"), Shutdown::default());
    mapping.finish();
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
        values: values.resolved()?,
        plans: plans::resolved(plans),
        api_keys: api_keys.map(Box::new),
        store,
        policies: policies.resolved?,
        bans: bans?,
        close_banned_tunnels,
        abuse,
        history,
        alerts: alerts.iter().map(|(_, alert)| Arc::clone(alert)).collect(),
        upstreams: upstreams.resolved?,
        resolver,
        routes: routes?,
        client_limits,
        body_memory,
        reply_headers,
        forwarded,
        forward_client_certificate,
        access_log,
        log,
        tracing,
        shutdown,
        source: ConfigSource::default(),
    };
    if let Some(value) = root.entry("history") {
        check_history(value, &config);
    }
    check_alerts(&alerts, &config);
    if let Some(file) = root.entry("api_keys").and_then(|keys| keys.entry("file")) {
        keys::checks::check_keys_file(file, &config);
    }
    if let Some(logged) = root.entry("access_log").and_then(|log| log.entry("values")) {
        request_values::checks::check_logged(logged, &config);
    }
    if let Some(memory) = root.entry("body_memory") {
        policies::checks::check_body_memory(memory, &config);
    }
    if let Some(routes) = root.entry("routes") {
        request_values::checks::report_unread(routes, &config);
        request_values::checks::report_unknown_placeholders(routes, &config);
    }
    if let Some(plans) = root.entry("plans") {
        request_values::checks::report_unread_of_plans(plans, &config);
    }
    decisions::warn(root, &config);
    loops::warn(root, &config);
    if let Some(proxies) = proxies {
        identity::checks::warn_of_spoofable_headers(proxies, &config);
    }
    Some(config)
}

const UPSTREAMS: &str = "such as `upstreams: { api: { endpoints: [http://127.0.0.1:3000] } }`";
const ROUTES: &str = "such as `routes: [{ path: /*, upstream: api }]`";

fn tracing(value: Cursor<'_>) -> Option<Tracing> {
    if value.scalar().is_some() {
        let help = "such as `tracing: { otlp: http://127.0.0.1:4318 }`; to turn tracing off, remove it";
        value.report("expected a mapping, not a single value", help.to_owned());
        return None;
    }
    Tracing::read(value)
}
