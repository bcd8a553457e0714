//! A small configuration, and facts about a Redis Cluster, for tests.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use http::{HeaderName, Uri};

use crate::{
    config::model::{
        Abuse, Access, AccessLog, AccessLogFormat, Admin, Algorithm, ClientAddress, ClientLimits, Config,
        ConfigSource, Endpoint, ForwardClientCertificate, Forwarded, KeyPart, KeyRecipe, Log,
        MemoryStoreSettings, PathPattern, Policy, Rate, ReplyHeaders, Resolver, Route, RoutePolicy, Shutdown,
        StoreSettings, Upstream, Users, Workers,
    },
    telemetry::metrics::{NodeFacts, NodeRole, NodeState, StoreFacts, StoreTopology},
};

/// One route `all`, one upstream `api`, one policy `per-ip`.
pub(crate) fn config() -> Config {
    let url = Uri::from_static("http://127.0.0.1:3000");
    let endpoint = url.authority().map(|authority| Endpoint {
        url: url.clone(),
        authority: authority.clone(),
        port: 3000,
        weight: 1,
        drain: false,
    });
    let keys = vec![KeyRecipe(vec![KeyPart::Ip])];
    let tiers = vec![Rate { limit: 3, window: Duration::from_secs(60) }];
    let policy = Policy::new("per-ip", Algorithm::MetadataList, keys, tiers);
    Config {
        listeners: Vec::new(),
        admin: Admin { address: SocketAddr::from(([127, 0, 0, 1], 0)), token: None },
        workers: Workers::Count(1),
        trusted_proxies: Vec::new(),
        trusted_headers: Vec::new(),
        client_address: ClientAddress::default(),
        access: Access::default(),
        request_id: HeaderName::from_static("x-request-id"),
        user: Vec::new(),
        api_keys: None,
        values: Vec::new(),
        plans: Vec::new(),
        store: StoreSettings {
            memory: MemoryStoreSettings { max_keys: 1000, ..MemoryStoreSettings::default() },
            ..StoreSettings::default()
        },
        policies: vec![Arc::new(policy)],
        abuse: Abuse { retain: Duration::from_secs(86_400), memory: None, users: Users::Plain, secret: None },
        history: None,
        alerts: Vec::new(),
        bans: Vec::new(),
        close_banned_tunnels: true,
        upstreams: vec![Upstream {
            max_connections: 16,
            idle_connections: 4,
            outlier: None,
            ..Upstream::new("api", endpoint.into_iter().collect())
        }],
        resolver: Resolver { servers: Vec::new(), timeout: Duration::from_secs(5) },
        routes: vec![Route {
            policies: vec![RoutePolicy::unpriced(0)],
            ..Route::new("all", PathPattern::Prefix("/".into()))
        }],
        client_limits: ClientLimits {
            connections: 100,
            connections_per_address: 50,
            ..ClientLimits::default()
        },
        body_memory: 128 << 20,
        reply_headers: ReplyHeaders::default(),
        forwarded: Forwarded::XForwarded,
        forward_client_certificate: ForwardClientCertificate::Off,
        access_log: AccessLog { format: AccessLogFormat::Off, ..AccessLog::default() },
        log: Log::default(),
        tracing: None,
        shutdown: Shutdown { drain: Duration::from_secs(1) },
        source: ConfigSource::default(),
    }
}

/// A cluster of four servers: one is up, one failed too often, one is unknown yet, and one is down.
pub(crate) fn cluster() -> StoreFacts {
    let node = |last: u8, role, state| NodeFacts {
        address: format!("10.0.0.{last}:6379"),
        role,
        state,
        ..NodeFacts::default()
    };
    let up = NodeFacts {
        slots: vec![(0, 8192)],
        latency: Some(310),
        decisions: 1200,
        decisions_per_second: 40,
        version: "7.2.4".to_owned(),
        ..node(1, Some(NodeRole::Primary), NodeState::Up)
    };
    let failing = NodeFacts {
        slots: vec![(8193, 16382), (16383, 16383)],
        failure: Some("Connection refused".to_owned()),
        decisions: 900,
        ..node(2, Some(NodeRole::Primary), NodeState::BreakerOpen)
    };
    let down = NodeFacts {
        primary: Some("10.0.0.1:6379".to_owned()),
        failure: Some("no connection within 1s".to_owned()),
        lag: Some(4096),
        ..node(4, Some(NodeRole::Replica), NodeState::Down)
    };
    StoreFacts {
        topology: StoreTopology::Cluster,
        nodes: vec![up, failing, node(3, None, NodeState::Unknown), down],
        role: "master".to_owned(),
        version: "7.2.4".to_owned(),
        latency: Some(310),
        instances: 2,
        ..StoreFacts::default()
    }
}
