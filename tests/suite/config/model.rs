//! What right configurations mean.

use std::{path::Path, sync::Arc, time::Duration};

use http::{Method, StatusCode};
use tollgate::{
    config::{
        self, Config, Lookup, SystemLookup,
        model::{
            Abuse, Access, AccessLog, AccessLogFormat, AddressHeader, Admin, Algorithm, Balance, BanKey,
            BanRule, Breaker, Calendar, ClientAddress, ClientCertificate, ClientLimits, ClientTls, Condition,
            ConfigSource, Cost, CountedResponses, DenialBody, DenialReply, Destination, DotSegments,
            EarlyHints, Endpoint, ForwardClientCertificate, Forwarded, HeaderFrom, HealthCheck, HostHeader,
            HostPattern, Jwt, KeyPart, KeyRecipe, Listener, Log, LogLevel, MemoryStoreSettings,
            MethodOverride, MinRate, Missing, Mode, OnStoreError, OutlierDetection, Override, PathCase,
            PathMatching, PathPattern, Policy, Probe, ProcessLogFormat, Protocol, Rate, RateLimitFields,
            RecordedFields, Redis, RedisTopology, ReplyHeaders, Resolver, Retry, RetryReason, Route,
            RouteAction, RoutePolicy, Secret, Segment, Shutdown, Statuses, Sticky, StoreSettings,
            TemplatePart, TimeZone, Timeouts, Tracing, Trailers, TrailingSlash, Upstream, UserSource, Users,
            Workers,
        },
    },
    jwt_keys::JwtAlgorithm,
    tls::CertificateField,
};

use super::environment::Environment;

fn parse(text: &str) -> Config {
    config::parse("proxy.yaml", text, &Environment).unwrap_or_else(|errors| panic!("{errors}"))
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn endpoint(authority: &str, port: u16, weight: u32) -> Endpoint {
    let url = format!("http://{authority}").parse().unwrap();
    Endpoint { url, authority: authority.parse().unwrap(), port, weight, drain: false }
}

fn one(part: KeyPart) -> KeyRecipe {
    KeyRecipe(vec![part])
}

const SMALLEST: &str = "
upstreams:
  api: { endpoints: [http://127.0.0.1:3000], policies: [per-ip] }
policies:
  per-ip: { algorithm: sliding_log, key: ip, limit: 100/1s }
routes:
  - { path: /*, upstream: api }
";

fn smallest() -> Config {
    let timeouts = Timeouts { connect: secs(1), response: secs(30), idle: secs(60), total: secs(0) };
    let retry = Retry { max: 1, when: vec![RetryReason::Connect, RetryReason::Refused], budget: 0.2 };
    assert_eq!((timeouts, retry), (Timeouts::default(), Retry::default()));
    Config {
        listeners: vec![Listener::plain(([127, 0, 0, 1], 8080).into())],
        admin: Admin { address: ([127, 0, 0, 1], 9900).into(), token: None },
        workers: Workers::Auto,
        trusted_proxies: vec![],
        trusted_headers: vec![],
        client_address: ClientAddress::default(),
        access: Access::default(),
        request_id: "x-request-id".parse().unwrap(),
        user: vec![],
        api_keys: None,
        values: vec![],
        plans: vec![],
        store: StoreSettings::default(),
        policies: vec![Arc::new(Policy {
            name: "per-ip".to_owned(),
            algorithm: Algorithm::SlidingLog,
            keys: vec![one(KeyPart::Ip)],
            missing: Missing::Skip,
            tiers: vec![Rate { limit: 100, window: secs(1) }.into()],
            calendar: Calendar { time_zone: TimeZone::UTC, reset_day: 1 },
            on_store_error: OnStoreError::Local,
            record: RecordedFields { keep: 50, retain: secs(3600) },
            value: None,
            count: None,
            cost: Cost::Fixed(1),
            mode: Mode::Enforce,
            count_denied: false,
            overdraw: false,
            preflight: false,
            slice: 0.0,
            exempt: vec![],
            overrides: vec![],
            unlimited: vec![],
            reply: None,
        })],
        bans: vec![],
        close_banned_tunnels: true,
        abuse: Abuse { retain: secs(86_400), memory: None, users: Users::Plain, secret: None },
        history: None,
        alerts: Vec::new(),
        upstreams: vec![Upstream::new("api", vec![endpoint("127.0.0.1:3000", 3000, 1)])],
        resolver: Resolver { servers: vec![], timeout: secs(5) },
        routes: vec![Route {
            policies: vec![RoutePolicy::unpriced(0)],
            ..Route::new("/*", PathPattern::Prefix("/".to_owned()))
        }],
        client_limits: ClientLimits::default(),
        body_memory: 128 << 20,
        reply_headers: ReplyHeaders::default(),
        forwarded: Forwarded::XForwarded,
        forward_client_certificate: ForwardClientCertificate::Off,
        access_log: AccessLog::default(),
        log: Log::default(),
        tracing: None,
        shutdown: Shutdown::default(),
        source: ConfigSource::default(),
    }
}

#[test]
fn settings_that_are_left_out_have_their_defaults() {
    assert_eq!(parse(SMALLEST), smallest());
}

#[test]
fn the_shipped_file_works_as_it_stands() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("proxy.yaml");
    let config = config::load(&path).unwrap_or_else(|errors| panic!("{errors}"));
    let names: Vec<_> = config.routes.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(names, ["login", "api"]);
    let held: Vec<_> =
        config.routes[0].policies.iter().map(|of| config.policies[of.policy].name.as_str()).collect();
    assert_eq!(held, ["per-ip", "inspect", "login"]);
    assert_eq!(
        config::parse("proxy.yaml", &std::fs::read_to_string(path).unwrap(), &SystemLookup).unwrap(),
        config
    );
}

const EVERYTHING: &str = r#"
x-timeouts: &slow { response: 90s, idle: 120s }
listeners:
  - address: 0.0.0.0:${PORT}
  - address: "[::]:8080"
admin: { address: 0.0.0.0:9900, token: "${file:/run/secrets/token}" }
workers: 4
trusted_proxies: [10.0.0.0/8, "2001:db8::/32", 192.0.2.1]
trusted_headers: [X-Plan, x-cost]
client_address: { header: CF-Connecting-IP, ipv6_prefix: 56 }
request_id: X-Correlation-Id
user:
  - jwt: { key: { file: keys/set.json } }
  - jwt:
      header: X-Token
      claim: https://example.com/name
      key: { file: keys/secret }
      algorithm: HS256
      issuer: https://example.com
      audience: api
  - header: x-user-id
  - { header: x-name, from: anyone }
  - cookie: session
  - basic
  - tls: subject
  - tls:fingerprint
store:
  redis:
    url: rediss://app:${TOKEN}@redis.internal:6380/3
    tls: { ca: tls/ca.pem, cert: tls/me.pem, key: tls/me.key }
    timeout: 20ms
    connections: 4
    prefix: "eu:rate"
    breaker: { failures: 3, retry_after: 500ms }
  memory: { max_keys: 5000 }
policies:
  simple: { algorithm: single_counter, key: "header:X-Api-Key", missing: deny, limit: 10/m, on_store_error: deny }
  login:
    algorithm: fixed_window
    key: [ip, user, cookie:sid+query:q, path+route+host+method, global]
    missing: ip
    limits: [10/1s, 120/1m, 240/1h]
    record: { keep: "${KEEP}", for: 2h }
  inspect: { algorithm: metadata_list, key: ip, limits: [600/1m], on_store_error: allow }
  burst: { algorithm: sliding_window, key: ip, limits: [1000/1s, 5000/10s], buckets: 4, mode: shadow }
  edge: { algorithm: sliding_counter, key: "jwt:sub+ip", limit: 10000/1h, preflight: true, count_denied: true }
  parallel: { algorithm: concurrency, key: user, limit: 8, lease: 5m, overrides: [{ ip: 10.0.0.0/8, limit: 80 }] }
  stuffing: { algorithm: distinct, key: tls:subject+ip, value: tls:fingerprint, limit: 10000/10m }
  failures: { algorithm: sliding_log, key: ip, limit: 5/1m, count: { statuses: [401, "4xx", 500], grpc_statuses: [16, permission_denied] } }
  sliced: { algorithm: fixed_window, key: ip, limit: 1000/1m, slice: 12.5%, mode: enforce, reply: { status: 503 } }
  expensive:
    algorithm: gcra
    key: ip+path
    limit: 100/1m
    burst: 200
    cost: { header: X-Cost, default: 2, max: 100 }
    slice: 0%
    delay: 1500ms
    exempt: [10.0.0.0/8, "user:monitor", "jwt:plan=gold", "header:X-Plan=a=b", "tls:subject=cn=monitor"]
    overrides:
      - { user: acme, limits: [1000/1m] }
      - { "jwt:plan": gold, limit: 500/1m, burst: 7 }
      - { "header:x-plan": gold, limit: 400/1m }
      - { "tls:subject": "CN=acme,O=Acme", limit: 300/1m }
    reply:
      status: 420
      headers: { X-Reason: slow-down }
      body: '{"error":"slow down","retry_after":{{retry_after}},"of":"{{policy}}: {{ limit }}"}'
  costly: { algorithm: gcra, key: ip, limit: 100/1m, cost: 5, reply: { body: "wait", content_type: text/html } }
bans:
  close_tunnels: false
  hammering:
    key: ip
    policies: [simple, inspect]
    after: 20/1m
    for: 5m
    factor: 1.5
    jitter: 50%
    max: 1h
    mode: shadow
    exempt: [10.0.0.0/8, "user:monitor"]
    reply: { headers: { x-reason: hammering } }
  guessing: { key: user, after: 5/s, for: 2d }
abuse: { retain: 30d, users: hashed, secret: "${TOKEN}" }
upstreams:
  api:
    endpoints:
      - http://orders.internal
      - { url: "http://[::1]:3001", weight: 2 }
    policies: [{ name: inspect, cost: 3 }, { name: simple, cost: 9 }]
    balance: round_robin
    sticky: { cookie: tg_endpoint, max_age: 1h }
    slow_start: 30s
    protocol: auto
    timeouts: { <<: *slow, connect: 250ms, total: 5m }
    retry: { max: 3, when: [502, timeout], budget: 50% }
    health: { path: "/up?deep=1", host: "health.internal:81", statuses: [200, 204-206], interval: 500ms, timeout: 250ms, healthy: 1, unhealthy: 2 }
    outlier: { failures: 3, eject: 1m, at_most: 25% }
    max_connections: 10
    max_connections_per_address: 50%
    request_buffering: 8KiB
    idle_connections: 0
    host: rewrite
  other: { endpoints: ["${ORIGIN:-http://127.0.0.1:3000}"], balance: { hash: path+ip } }
resolver: { servers: [10.0.0.2, "[::1]:5353"], timeout: 2s }
routes:
  - name: log in
    hosts: [API.example.com., "*.example.org"]
    path: /api/login
    methods: [POST, PURGE]
    headers: { X-Version: 2, x-plain: "$${x}" }
    upstream: api
    policies: [{ name: login }, { name: simple, cost: 2 }]
    timeouts: { response: 5s, total: 0s }
    retry: { max: 0 }
  - { path: "/users/{id}/posts", upstream: other, policies: [{ name: login, cost: 5 }] }
  - path: /files/*
    upstream: other
    methods: [GET]
    match: { trailing_slash: exact }
    paths: normalise
    method_override: remove
    trailers: drop
    early_hints: drop
    max_body: 10MiB
  - { path: /files/*, upstream: other, timeouts: *slow }
match: { case: sensitive }
paths: pass
method_override: allow
trailers: pass
early_hints: pass
client_limits: { header_size: 16KiB, headers: 50, header_timeout: 5s, idle_timeout: 1m, connections: 20, connections_per_address: 0, min_rate: { bytes: 1KiB, grace: 5s }, max_body: 1MiB }
body_memory: 64MiB
reply_headers: { ratelimit: both, via: edge-1 }
forwarded: both
forward_client_certificate: client-cert-chain
access_log: { format: combined, to: /var/log/tollgate.log, sample: 12.5% }
log: { level: debug, format: json }
tracing: { otlp: http://collector:4318/otlp, sample: 0.5% }
shutdown: { drain: 0s }
"#;

#[test]
fn every_setting_is_read() {
    let timeouts = Timeouts {
        connect: Duration::from_millis(250),
        response: secs(90),
        idle: secs(120),
        total: secs(300),
    };
    let default = Timeouts { connect: secs(1), response: secs(30), idle: secs(60), total: secs(0) };
    let retry = Retry { max: 3, when: vec![RetryReason::BadGateway, RetryReason::Timeout], budget: 0.5 };
    let rate = |limit, window| Rate { limit, window: secs(window) };
    let route = |name: &str, path, upstream, policies, timeouts| Route {
        name: name.to_owned(),
        path,
        matching: PathMatching { case: PathCase::Sensitive, trailing_slash: TrailingSlash::Either },
        dot_segments: DotSegments::Pass,
        action: RouteAction::Upstream(upstream),
        policies,
        timeouts,
        method_override: MethodOverride::Allow,
        trailers: Trailers::Pass,
        early_hints: EarlyHints::Pass,
        ..smallest().routes.remove(0)
    };
    let files = || PathPattern::Prefix("/files/".to_owned());
    let expected = Config {
        listeners: vec![
            Listener::plain(([0, 0, 0, 0], 8081).into()),
            Listener::plain("[::]:8080".parse().unwrap()),
        ],
        admin: Admin { address: ([0, 0, 0, 0], 9900).into(), token: Some(Secret::new("hunter2-file")) },
        workers: Workers::Count(4),
        trusted_proxies: ["10.0.0.0/8", "2001:db8::/32", "192.0.2.1/32"]
            .map(|net| tollgate::config::model::TrustedProxy::Network(net.parse().unwrap()))
            .to_vec(),
        trusted_headers: vec!["x-plan".parse().unwrap(), "x-cost".parse().unwrap()],
        client_address: ClientAddress {
            header: AddressHeader::Single("cf-connecting-ip".parse().unwrap()),
            ipv6_prefix: 56,
        },
        request_id: "x-correlation-id".parse().unwrap(),
        user: vec![
            UserSource::Jwt(Box::new(Jwt {
                header: "authorization".parse().unwrap(),
                claim: "sub".to_owned(),
                key: Some("keys/set.json".into()),
                algorithm: None,
                issuer: None,
                audience: None,
                ..Jwt::default()
            })),
            UserSource::Jwt(Box::new(Jwt {
                header: "x-token".parse().unwrap(),
                claim: "https://example.com/name".to_owned(),
                key: Some("keys/secret".into()),
                algorithm: Some(JwtAlgorithm::Hs256),
                issuer: Some("https://example.com".to_owned()),
                audience: Some("api".to_owned()),
                ..Jwt::default()
            })),
            UserSource::Header { name: "x-user-id".parse().unwrap(), from: HeaderFrom::TrustedProxies },
            UserSource::Header { name: "x-name".parse().unwrap(), from: HeaderFrom::Anyone },
            UserSource::Cookie("session".to_owned()),
            UserSource::Basic,
            UserSource::Tls(CertificateField::Subject),
            UserSource::Tls(CertificateField::Fingerprint),
        ],
        store: StoreSettings {
            memory: MemoryStoreSettings { max_keys: 5000, max_bytes: None },
            redis: Some(Redis {
                topology: RedisTopology::Url(Secret::new("rediss://app:hunter2-token@redis.internal:6380/3")),
                user: None,
                password: None,
                database: 0,
                tls: ClientTls {
                    ca: Some("tls/ca.pem".into()),
                    certificate: Some(ClientCertificate {
                        cert: "tls/me.pem".into(),
                        key: "tls/me.key".into(),
                    }),
                },
                timeout: Duration::from_millis(20),
                connections: 4,
                prefix: "eu:rate".to_owned(),
                breaker: Breaker { failures: 3, retry_after: Duration::from_millis(500) },
            }),
        },
        policies: vec![
            Arc::new(Policy {
                missing: Missing::Deny,
                on_store_error: OnStoreError::Deny,
                ..Policy::new(
                    "simple",
                    Algorithm::SingleCounter,
                    vec![one(KeyPart::Header("x-api-key".parse().unwrap()))],
                    vec![rate(10, 60)],
                )
            }),
            Arc::new(Policy {
                missing: Missing::Ip,
                record: RecordedFields { keep: 7, retain: secs(7200) },
                ..Policy::new(
                    "login",
                    Algorithm::FixedWindow,
                    vec![
                        one(KeyPart::Ip),
                        one(KeyPart::User),
                        KeyRecipe(vec![KeyPart::Cookie("sid".to_owned()), KeyPart::Query("q".to_owned())]),
                        KeyRecipe(vec![KeyPart::Path, KeyPart::Route, KeyPart::Host, KeyPart::Method]),
                        one(KeyPart::Global),
                    ],
                    vec![rate(10, 1), rate(120, 60), rate(240, 3600)],
                )
            }),
            Arc::new(Policy {
                on_store_error: OnStoreError::Allow,
                ..Policy::new("inspect", Algorithm::MetadataList, vec![one(KeyPart::Ip)], vec![rate(600, 60)])
            }),
            Arc::new(Policy {
                mode: Mode::Shadow,
                ..Policy::new(
                    "burst",
                    Algorithm::SlidingWindow { buckets: 4 },
                    vec![one(KeyPart::Ip)],
                    vec![rate(1000, 1), rate(5000, 10)],
                )
            }),
            Arc::new(Policy {
                preflight: true,
                count_denied: true,
                ..Policy::new(
                    "edge",
                    Algorithm::SlidingCounter,
                    vec![KeyRecipe(vec![KeyPart::Ip, KeyPart::Jwt("sub".to_owned())])],
                    vec![rate(10_000, 3600)],
                )
            }),
            Arc::new(Policy {
                overrides: vec![Override {
                    condition: Condition::Address("10.0.0.0/8".parse().unwrap()),
                    tiers: vec![rate(80, 300).into()],
                    algorithm: Algorithm::Concurrency,
                }],
                ..Policy::new(
                    "parallel",
                    Algorithm::Concurrency,
                    vec![one(KeyPart::User)],
                    vec![rate(8, 300)],
                )
            }),
            Arc::new(Policy {
                value: Some(one(KeyPart::Tls(CertificateField::Fingerprint))),
                ..Policy::new(
                    "stuffing",
                    Algorithm::Distinct,
                    vec![KeyRecipe(vec![KeyPart::Ip, KeyPart::Tls(CertificateField::Subject)])],
                    vec![rate(10_000, 600)],
                )
            }),
            Arc::new(Policy {
                count: Some(CountedResponses {
                    statuses: Statuses(vec![401..=401, 400..=499, 500..=500]),
                    grpc_statuses: vec![16, 7],
                }),
                ..Policy::new("failures", Algorithm::SlidingLog, vec![one(KeyPart::Ip)], vec![rate(5, 60)])
            }),
            Arc::new(Policy {
                slice: 0.125,
                reply: Some(DenialReply {
                    status: StatusCode::SERVICE_UNAVAILABLE,
                    headers: vec![],
                    body: None,
                }),
                ..Policy::new("sliced", Algorithm::FixedWindow, vec![one(KeyPart::Ip)], vec![rate(1000, 60)])
            }),
            Arc::new(expensive()),
            Arc::new(Policy {
                cost: Cost::Fixed(5),
                reply: Some(DenialReply {
                    status: StatusCode::TOO_MANY_REQUESTS,
                    headers: vec![],
                    body: Some(DenialBody {
                        content_type: "text/html".parse().unwrap(),
                        template: vec![TemplatePart::Text("wait".to_owned())],
                    }),
                }),
                ..Policy::new(
                    "costly",
                    Algorithm::Gcra { burst: 100, delay: secs(0) },
                    vec![one(KeyPart::Ip)],
                    vec![rate(100, 60)],
                )
            }),
        ],
        bans: vec![
            Arc::new(BanRule {
                name: "hammering".to_owned(),
                key: BanKey::Ip,
                policies: Some(vec![0, 2]),
                after: rate(20, 60),
                first_duration: secs(300),
                factor: 1.5,
                jitter: 0.5,
                max: secs(3_600),
                mode: Mode::Shadow,
                exempt: vec![
                    Condition::Address("10.0.0.0/8".parse().unwrap()),
                    Condition::User("monitor".to_owned()),
                ],
                reply: DenialReply {
                    status: StatusCode::FORBIDDEN,
                    headers: vec![("x-reason".parse().unwrap(), "hammering".parse().unwrap())],
                    body: None,
                },
            }),
            Arc::new(BanRule {
                name: "guessing".to_owned(),
                key: BanKey::User,
                policies: None,
                after: rate(5, 1),
                first_duration: secs(2 * 86_400),
                factor: 2.0,
                jitter: 0.1,
                max: secs(2 * 86_400),
                mode: Mode::Enforce,
                exempt: vec![],
                reply: DenialReply { status: StatusCode::FORBIDDEN, headers: vec![], body: None },
            }),
        ],
        close_banned_tunnels: false,
        abuse: Abuse {
            memory: None,
            retain: secs(30 * 86_400),
            users: Users::Hashed,
            secret: Some(Secret::new("hunter2-token")),
        },
        upstreams: vec![
            Upstream {
                name: "api".to_owned(),
                endpoints: vec![endpoint("orders.internal", 80, 1), endpoint("[::1]:3001", 3001, 2)],
                balance: Balance::RoundRobin,
                sticky: Some(Sticky { cookie: "tg_endpoint".to_owned(), max_age: Some(secs(3600)) }),
                slow_start: secs(30),
                protocol: Protocol::Auto,
                timeouts,
                retry: retry.clone(),
                health: Some(HealthCheck {
                    probe: Probe::Http {
                        path: "/up?deep=1".parse().unwrap(),
                        host: Some("health.internal:81".parse().unwrap()),
                        statuses: Statuses(vec![200..=200, 204..=206]),
                    },
                    interval: Duration::from_millis(500),
                    timeout: Duration::from_millis(250),
                    healthy: 1,
                    unhealthy: 2,
                }),
                outlier: Some(OutlierDetection { failures: 3, eject: secs(60), at_most: 0.25 }),
                max_connections: 10,
                max_connections_per_address: 0.5,
                request_buffering: 8 << 10,
                idle_connections: 0,
                host: HostHeader::Rewrite,
                ..smallest().upstreams.remove(0)
            },
            Upstream {
                name: "other".to_owned(),
                endpoints: vec![endpoint("127.0.0.1:3000", 3000, 1)],
                balance: Balance::Hash(KeyRecipe(vec![KeyPart::Ip, KeyPart::Path])),
                ..smallest().upstreams.remove(0)
            },
        ],
        resolver: Resolver {
            servers: vec!["10.0.0.2:53".parse().unwrap(), "[::1]:5353".parse().unwrap()],
            timeout: secs(2),
        },
        routes: vec![
            Route {
                retry: Retry { max: 0, ..retry },
                hosts: vec![
                    HostPattern::Exact("api.example.com".to_owned()),
                    HostPattern::Suffix(".example.org".to_owned()),
                ],
                methods: vec![Method::POST, Method::from_bytes(b"PURGE").unwrap()],
                headers: vec![
                    ("x-version".parse().unwrap(), "2".parse().unwrap()),
                    ("x-plain".parse().unwrap(), "${x}".parse().unwrap()),
                ],
                ..route(
                    "log in",
                    PathPattern::Exact("/api/login".to_owned()),
                    0,
                    // The upstream's first, then the route's own, each once.
                    vec![
                        RoutePolicy { policy: 2, price: Some(3) },
                        RoutePolicy { policy: 0, price: Some(2) },
                        RoutePolicy::unpriced(1),
                    ],
                    Timeouts { response: secs(5), total: secs(0), ..timeouts },
                )
            },
            route(
                "/users/{id}/posts",
                PathPattern::Template(vec![
                    Segment::Literal("users".to_owned()),
                    Segment::Parameter("id".to_owned()),
                    Segment::Literal("posts".to_owned()),
                ]),
                1,
                vec![RoutePolicy { policy: 1, price: Some(5) }],
                default,
            ),
            Route {
                methods: vec![Method::GET],
                matching: PathMatching { case: PathCase::Sensitive, trailing_slash: TrailingSlash::Exact },
                dot_segments: DotSegments::Normalize,
                method_override: MethodOverride::Remove,
                trailers: Trailers::Drop,
                early_hints: EarlyHints::Drop,
                max_body: Some(10 << 20),
                ..route("/files/*", files(), 1, vec![], default)
            },
            route(
                "/files/*#2",
                files(),
                1,
                vec![],
                Timeouts { connect: secs(1), total: secs(0), ..timeouts },
            ),
        ],
        client_limits: ClientLimits {
            header_size: 16 << 10,
            headers: 50,
            header_timeout: secs(5),
            idle_timeout: secs(60),
            connections: 20,
            connections_per_address: 0,
            min_rate: MinRate { bytes: 1 << 10, grace: secs(5) },
            max_body: 1 << 20,
            ..ClientLimits::default()
        },
        body_memory: 64 << 20,
        reply_headers: ReplyHeaders { ratelimit: RateLimitFields::Both, via: "edge-1".to_owned() },
        forwarded: Forwarded::Both,
        forward_client_certificate: ForwardClientCertificate::ClientCertChain,
        access_log: AccessLog {
            format: AccessLogFormat::Combined,
            to: Destination::File("/var/log/tollgate.log".into()),
            sample: 0.125,
            values: vec![],
        },
        log: Log { level: LogLevel::Debug, format: ProcessLogFormat::Json },
        tracing: Some(Tracing {
            otlp: "http://collector:4318/otlp/v1/traces".parse().unwrap(),
            sample: 0.005,
        }),
        shutdown: Shutdown { drain: secs(0) },
        ..smallest()
    };
    assert_eq!(parse(EVERYTHING), expected);
}

/// The policy with most settings.
fn expensive() -> Policy {
    let rate = |limit| vec![Rate { limit, window: secs(60) }];
    let gcra = |burst| Algorithm::Gcra { burst, delay: Duration::from_millis(1500) };
    let header =
        |value: &str| Condition::Header { name: "x-plan".parse().unwrap(), value: value.parse().unwrap() };
    let jwt = Condition::Jwt { claim: "plan".to_owned(), value: "gold".to_owned() };
    let subject = |value: &str| Condition::Tls { field: CertificateField::Subject, value: value.to_owned() };
    let other = |condition, limit, burst| Override {
        condition,
        tiers: rate(limit).into_iter().map(Into::into).collect(),
        algorithm: gcra(burst),
    };
    let text = |text: &str| TemplatePart::Text(text.to_owned());
    Policy {
        cost: Cost::Header { name: "x-cost".parse().unwrap(), default: 2, max: 100 },
        exempt: vec![
            Condition::Address("10.0.0.0/8".parse().unwrap()),
            Condition::User("monitor".to_owned()),
            jwt.clone(),
            header("a=b"),
            subject("CN=monitor"),
        ],
        overrides: vec![
            // Without a burst of its own, a bucket holds the override's limit.
            other(Condition::User("acme".to_owned()), 1000, 1000),
            other(jwt, 500, 7),
            other(header("gold"), 400, 400),
            other(subject("CN=acme,O=Acme"), 300, 300),
        ],
        reply: Some(DenialReply {
            status: StatusCode::from_u16(420).unwrap(),
            headers: vec![("x-reason".parse().unwrap(), "slow-down".parse().unwrap())],
            body: Some(DenialBody {
                content_type: "application/json".parse().unwrap(),
                template: vec![
                    text("{\"error\":\"slow down\",\"retry_after\":"),
                    TemplatePart::RetryAfter,
                    text(",\"of\":\""),
                    TemplatePart::Policy,
                    text(": "),
                    TemplatePart::Limit,
                    text("\"}"),
                ],
            }),
        }),
        ..Policy::new("expensive", gcra(200), vec![KeyRecipe(vec![KeyPart::Ip, KeyPart::Path])], rate(100))
    }
}

fn policy(said: &str) -> Policy {
    let text = SMALLEST.replace("algorithm: sliding_log, key: ip, limit: 100/1s", said);
    (*parse(&text).policies.remove(0)).clone()
}

#[test]
fn every_algorithm_has_its_defaults() {
    let of = |said: &str| {
        let found = policy(said);
        let plain = Policy::new("per-ip", found.algorithm, vec![one(KeyPart::Ip)], found.tiers.clone());
        assert_eq!(Policy { value: None, ..found.clone() }, plain, "{said}");
        (found.algorithm, found.tiers[0])
    };
    let rate = |limit, window| Rate { limit, window: secs(window) };
    for (said, algorithm, tier) in [
        ("single_counter, key: ip, limit: 9/1s", Algorithm::SingleCounter, rate(9, 1)),
        ("sliding_counter, key: ip, limit: 9/1s", Algorithm::SlidingCounter, rate(9, 1)),
        ("sliding_window, key: ip, limit: 9/1s", Algorithm::SlidingWindow { buckets: 10 }, rate(9, 1)),
        ("gcra, key: ip, limit: 9/1s", Algorithm::Gcra { burst: 9, delay: secs(0) }, rate(9, 1)),
        ("concurrency, key: ip, limit: 9", Algorithm::Concurrency, rate(9, 60)),
        ("concurrency, key: ip, limits: [9]", Algorithm::Concurrency, rate(9, 60)),
        ("distinct, key: ip, value: path, limit: 9/1s", Algorithm::Distinct, rate(9, 1)),
    ] {
        assert_eq!(of(&format!("algorithm: {said}")), (algorithm, tier.into()), "{said}");
    }
}

#[test]
fn settings_that_a_reply_leaves_out_have_their_defaults() {
    let reply = |said: &str| {
        let said = format!("algorithm: gcra, key: ip, limit: 9/1s, reply: {{ {said} }}");
        policy(&said).reply.unwrap()
    };
    let plain = DenialReply { status: StatusCode::TOO_MANY_REQUESTS, headers: vec![], body: None };
    assert_eq!(reply("status: 429"), plain);
    assert_eq!(reply("headers: {}"), plain);
    for (body, content_type) in [
        ("'slow down'", "text/plain; charset=utf-8"),
        ("'{{policy}}'", "text/plain; charset=utf-8"),
        ("''", "text/plain; charset=utf-8"),
        ("' {\"a\":{{limit}}}'", "application/json"),
        ("'[{{limit}}]'", "application/json"),
    ] {
        assert_eq!(reply(&format!("body: {body}")).body.unwrap().content_type, content_type, "{body}");
    }
}

#[test]
fn every_form_of_a_key_of_tokens_is_read() {
    for source in [
        "key: { file: keys/public.pem }, algorithm: ES256",
        "key: { file: tls/me.pem }, algorithm: ES256",
        "key: { file: keys/set.json }, algorithm: ES256",
        "key: { file: keys/set.json }",
        "key: { file: keys/secret }, algorithm: HS256",
    ] {
        let config = parse(&format!("user: [{{ jwt: {{ {source} }} }}]\n{SMALLEST}"));
        assert!(matches!(&config.user[..], [UserSource::Jwt(_)]), "{source}");
    }
}

#[test]
fn short_forms_mean_the_same() {
    let with = |line: &str| parse(&format!("{line}\n{SMALLEST}"));
    assert_eq!(with("store: memory"), smallest());
    assert_eq!(with("admin: { token: \"${EMPTY:-}\" }"), smallest());
    assert_eq!(with("\u{feff}# a byte order mark").routes, smallest().routes);
    let off = AccessLog { format: AccessLogFormat::Off, ..smallest().access_log };
    assert_eq!(with("access_log: off"), Config { access_log: off, ..smallest() });
    let tracing = with("tracing: { otlp: http://127.0.0.1:4318 }").tracing.unwrap();
    assert_eq!((tracing.otlp.path(), tracing.sample), ("/v1/traces", 0.01));
    assert_eq!(with("forwarded: off").forwarded, Forwarded::Off);
    assert_eq!(with("client_address: { header: Forwarded }").client_address.header, AddressHeader::Forwarded);
}

#[test]
fn redis_needs_its_url_alone() {
    let redis = |url: &str| Redis::at(Secret::new(url));
    for (written, url) in [
        ("redis://127.0.0.1:6379", "redis://127.0.0.1:6379"),
        ("redis://:p%40ss@[::1]/15", "redis://:p%40ss@[::1]/15"),
        ("rediss://redis.internal", "rediss://redis.internal"),
        ("unix:///run/redis.sock?db=1", "unix:///run/redis.sock?db=1"),
        ("${REDIS}", "rediss://app:hunter2@redis.internal:6380/3"),
    ] {
        let config = parse(&format!("store: {{ redis: {{ url: \"{written}\" }} }}\n{SMALLEST}"));
        let store = StoreSettings { redis: Some(redis(url)), ..StoreSettings::default() };
        assert_eq!(config, Config { store, ..smallest() });
        assert!(!format!("{config:?}").contains("://r"), "the URL is printed");
    }
    let trusting = parse(&format!(
        "store: {{ redis: {{ url: \"rediss://h\", tls: {{ ca: tls/ca.pem }} }} }}\n{SMALLEST}"
    ));
    let tls = ClientTls { ca: Some("tls/ca.pem".into()), certificate: None };
    assert_eq!(trusting.store.redis.unwrap().tls, tls);
}

#[test]
fn files_of_redis_are_read_from_disk() {
    let directory = tempfile::tempdir().unwrap();
    let (ca, file) = (directory.path().join("ca.pem"), directory.path().join("proxy.yaml"));
    let said =
        format!("store: {{ redis: {{ url: rediss://h, tls: {{ ca: {} }} }} }}\n{SMALLEST}", ca.display());
    std::fs::write(&file, said).unwrap();
    let answer = config::load(&file).unwrap_err().to_string();
    assert!(
        answer.contains(":1:47: `") && answer.contains("ca.pem` cannot be read: No such file"),
        "{answer}"
    );
    std::fs::write(&ca, Environment.read_bytes(Path::new("tls/ca.pem")).unwrap()).unwrap();
    assert_eq!(config::load(&file).unwrap().store.redis.unwrap().tls.ca, Some(ca));
}

#[test]
fn a_name_that_was_given_is_kept_and_one_that_was_not_steps_aside() {
    let routes = "
upstreams: { api: { endpoints: [http://127.0.0.1:3000] } }
routes:
  - { path: /a, methods: [GET], upstream: api }
  - { path: /a, methods: [PUT], upstream: api }
  - { path: /b, upstream: api, name: /a }
  - { path: /c, upstream: api, name: /a#2 }
";
    let names: Vec<_> = parse(routes).routes.into_iter().map(|route| route.name).collect();
    assert_eq!(names, ["/a#3", "/a#4", "/a", "/a#2"]);
}

#[test]
fn a_token_is_not_printed() {
    assert!(!format!("{:?}", parse(EVERYTHING)).contains("hunter2"));
}

#[test]
fn probes_ask_by_http_or_grpc_or_just_connect() {
    let upstream = |settings: &str| {
        let text = format!(
            "upstreams: {{ a: {{ endpoints: [https://a.internal], {settings} }} }}\nroutes: [{{ path: /*, upstream: a }}]\n"
        );
        parse(&text).upstreams.remove(0)
    };
    let probe = |settings: &str| upstream(settings).health.map(|health| health.probe);
    assert_eq!(probe("balance: round_robin"), None);
    assert_eq!(
        upstream("health: { path: / }").health,
        Some(HealthCheck {
            probe: Probe::Http {
                path: "/".parse().unwrap(),
                host: None,
                statuses: Statuses(vec![200..=299, 300..=399])
            },
            interval: secs(5),
            timeout: secs(1),
            healthy: 2,
            unhealthy: 3,
        })
    );
    let grpc = |service: &str| Some(Probe::Grpc { service: service.to_owned(), host: None });
    assert_eq!(probe("protocol: h2, health: { type: grpc }"), grpc(""));
    assert_eq!(probe("protocol: auto, health: { type: grpc, service: shop.Cart }"), grpc("shop.Cart"));
    assert_eq!(probe("health: { type: tcp, interval: 1m }"), Some(Probe::Tcp));
    assert_eq!(upstream("outlier: off").outlier, None);
}
