//! What right configurations mean.

use std::{path::Path, sync::Arc, time::Duration};

use http::Method;
use tollgate::config::{
    self, Config, Sources, System,
    model::{
        Abuse, AccessLog, AccessLogFormat, AddressHeader, Admin, Algorithm, Balance, Breaker, ClientAddress,
        ClientLimits, Cost, Destination, Endpoint, Forwarded, HeaderFrom, HostHeader, HostPattern, KeyPart,
        KeyRecipe, Listener, Log, LogFormat, LogLevel, MemoryStore, Missing, Mode, OnStoreError, PathPattern,
        Policy, Rate, RateLimitFields, Record, Redis, RedisTls, ReplyHeaders, Route, Secret, Segment,
        Shutdown, Store, Timeouts, Upstream, UserSource, Workers,
    },
};

use crate::environment::Environment;

fn parse(text: &str) -> Config {
    config::parse("proxy.yaml", text, &Environment).unwrap_or_else(|errors| panic!("{errors}"))
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn endpoint(authority: &str, port: u16, weight: u32) -> Endpoint {
    let url = format!("http://{authority}").parse().unwrap();
    Endpoint { url, authority: authority.parse().unwrap(), port, weight }
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
    let timeouts = Timeouts { connect: secs(1), response: secs(30), idle: secs(60) };
    Config {
        listeners: vec![Listener { address: ([127, 0, 0, 1], 8080).into() }],
        admin: Admin { address: ([127, 0, 0, 1], 9900).into(), token: None },
        workers: Workers::Auto,
        trusted_proxies: vec![],
        client_address: ClientAddress { header: AddressHeader::XForwardedFor, ipv6_prefix: 64 },
        request_id: "x-request-id".parse().unwrap(),
        user: vec![],
        store: Store { memory: MemoryStore { max_keys: 1_000_000 }, redis: None },
        policies: vec![Arc::new(Policy {
            name: "per-ip".to_owned(),
            algorithm: Algorithm::SlidingLog,
            keys: vec![one(KeyPart::Ip)],
            missing: Missing::Skip,
            tiers: vec![Rate { limit: 100, window: secs(1) }],
            on_store_error: OnStoreError::Local,
            record: Record { keep: 50, retain: secs(3600) },
            value: None,
            count: None,
            cost: Cost::Fixed(1),
            mode: Mode::Enforce,
            count_denied: false,
            preflight: false,
            slice: 0.0,
            exempt: vec![],
            overrides: vec![],
            reply: None,
        })],
        abuse: Abuse { retain: secs(86_400) },
        upstreams: vec![Upstream {
            name: "api".to_owned(),
            endpoints: vec![endpoint("127.0.0.1:3000", 3000, 1)],
            balance: Balance::LeastRequest,
            timeouts,
            max_connections: 1024,
            idle_connections: 64,
            host: HostHeader::Preserve,
        }],
        routes: vec![Route {
            name: "/*".to_owned(),
            hosts: vec![],
            path: PathPattern::Prefix("/".to_owned()),
            methods: vec![],
            headers: vec![],
            upstream: 0,
            policies: vec![0],
            timeouts,
        }],
        client_limits: ClientLimits {
            header_size: 32 << 10,
            headers: 100,
            header_timeout: secs(10),
            idle_timeout: secs(75),
            connections: 10_000,
        },
        reply_headers: ReplyHeaders { ratelimit: RateLimitFields::Draft, via: "tollgate".to_owned() },
        forwarded: Forwarded::XForwarded,
        access_log: AccessLog { format: AccessLogFormat::Json, to: Destination::Stdout, sample: 1.0 },
        log: Log { level: LogLevel::Info, format: LogFormat::Text },
        shutdown: Shutdown { drain: secs(30) },
    }
}

#[test]
fn what_is_left_out_has_its_default() {
    assert_eq!(parse(SMALLEST), smallest());
}

#[test]
fn the_shipped_file_works_as_it_stands() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("proxy.yaml");
    let config = config::load(&path).unwrap_or_else(|errors| panic!("{errors}"));
    let names: Vec<_> = config.routes.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(names, ["login", "api"]);
    let held: Vec<_> = config.routes[0].policies.iter().map(|&n| config.policies[n].name.as_str()).collect();
    assert_eq!(held, ["per-ip", "inspect", "login"]);
    assert_eq!(
        config::parse("proxy.yaml", &std::fs::read_to_string(path).unwrap(), &System).unwrap(),
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
client_address: { header: CF-Connecting-IP, ipv6_prefix: 56 }
request_id: X-Correlation-Id
user:
  - header: x-user-id
  - { header: x-name, from: anyone }
  - cookie: session
  - basic
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
abuse: { retain: 30d }
upstreams:
  api:
    endpoints:
      - http://orders.internal
      - { url: "http://[::1]:3001", weight: 2 }
    policies: [inspect, simple]
    balance: round_robin
    timeouts: { <<: *slow, connect: 250ms }
    max_connections: 10
    idle_connections: 0
    host: rewrite
  other: { endpoints: ["${ORIGIN:-http://127.0.0.1:3000}"] }
routes:
  - name: log in
    hosts: [API.example.com., "*.example.org"]
    path: /api/login
    methods: [POST, PURGE]
    headers: { X-Version: 2, x-plain: "$${x}" }
    upstream: api
    policies: [login, simple]
    timeouts: { response: 5s }
  - { path: "/users/{id}/posts", upstream: other, policies: [login] }
  - { path: /files/*, upstream: other, methods: [GET] }
  - { path: /files/*, upstream: other, timeouts: *slow }
client_limits: { header_size: 16KiB, headers: 50, header_timeout: 5s, idle_timeout: 1m, connections: 20 }
reply_headers: { via: edge-1 }
forwarded: both
access_log: { format: combined, to: /var/log/tollgate.log, sample: 12.5% }
log: { level: debug, format: json }
shutdown: { drain: 0s }
"#;

#[test]
fn everything_that_is_said_counts() {
    let timeouts = Timeouts { connect: Duration::from_millis(250), response: secs(90), idle: secs(120) };
    let default = Timeouts { connect: secs(1), response: secs(30), idle: secs(60) };
    let record = Record { keep: 50, retain: secs(3600) };
    let rate = |limit, window| Rate { limit, window: secs(window) };
    let route = |name: &str, path, upstream, policies, timeouts| Route {
        name: name.to_owned(),
        hosts: vec![],
        path,
        methods: vec![],
        headers: vec![],
        upstream,
        policies,
        timeouts,
    };
    let files = || PathPattern::Prefix("/files/".to_owned());
    let expected = Config {
        listeners: vec![
            Listener { address: ([0, 0, 0, 0], 8081).into() },
            Listener { address: "[::]:8080".parse().unwrap() },
        ],
        admin: Admin { address: ([0, 0, 0, 0], 9900).into(), token: Some(Secret::new("hunter2-file")) },
        workers: Workers::Count(4),
        trusted_proxies: ["10.0.0.0/8", "2001:db8::/32", "192.0.2.1/32"]
            .map(|net| net.parse().unwrap())
            .to_vec(),
        client_address: ClientAddress {
            header: AddressHeader::Single("cf-connecting-ip".parse().unwrap()),
            ipv6_prefix: 56,
        },
        request_id: "x-correlation-id".parse().unwrap(),
        user: vec![
            UserSource::Header { name: "x-user-id".parse().unwrap(), from: HeaderFrom::TrustedProxies },
            UserSource::Header { name: "x-name".parse().unwrap(), from: HeaderFrom::Anyone },
            UserSource::Cookie("session".to_owned()),
            UserSource::Basic,
        ],
        store: Store {
            memory: MemoryStore { max_keys: 5000 },
            redis: Some(Redis {
                url: Secret::new("rediss://app:hunter2-token@redis.internal:6380/3"),
                tls: RedisTls {
                    ca: Some("tls/ca.pem".into()),
                    identity: Some(("tls/me.pem".into(), "tls/me.key".into())),
                },
                timeout: Duration::from_millis(20),
                connections: 4,
                prefix: "eu:rate".to_owned(),
                breaker: Breaker { failures: 3, retry_after: Duration::from_millis(500) },
            }),
        },
        policies: vec![
            Arc::new(Policy {
                name: "simple".to_owned(),
                algorithm: Algorithm::SingleCounter,
                keys: vec![one(KeyPart::Header("x-api-key".parse().unwrap()))],
                missing: Missing::Deny,
                tiers: vec![rate(10, 60)],
                on_store_error: OnStoreError::Deny,
                record,
                ..Policy::new("", Algorithm::SlidingLog, vec![], vec![])
            }),
            Arc::new(Policy {
                name: "login".to_owned(),
                algorithm: Algorithm::FixedWindow,
                keys: vec![
                    one(KeyPart::Ip),
                    one(KeyPart::User),
                    KeyRecipe(vec![KeyPart::Cookie("sid".to_owned()), KeyPart::Query("q".to_owned())]),
                    KeyRecipe(vec![KeyPart::Path, KeyPart::Route, KeyPart::Host, KeyPart::Method]),
                    one(KeyPart::Global),
                ],
                missing: Missing::Ip,
                tiers: vec![rate(10, 1), rate(120, 60), rate(240, 3600)],
                on_store_error: OnStoreError::Local,
                record: Record { keep: 7, retain: secs(7200) },
                ..Policy::new("", Algorithm::SlidingLog, vec![], vec![])
            }),
            Arc::new(Policy {
                name: "inspect".to_owned(),
                algorithm: Algorithm::MetadataList,
                keys: vec![one(KeyPart::Ip)],
                missing: Missing::Skip,
                tiers: vec![rate(600, 60)],
                on_store_error: OnStoreError::Allow,
                record,
                ..Policy::new("", Algorithm::SlidingLog, vec![], vec![])
            }),
        ],
        abuse: Abuse { retain: secs(30 * 86_400) },
        upstreams: vec![
            Upstream {
                name: "api".to_owned(),
                endpoints: vec![endpoint("orders.internal", 80, 1), endpoint("[::1]:3001", 3001, 2)],
                balance: Balance::RoundRobin,
                timeouts,
                max_connections: 10,
                idle_connections: 0,
                host: HostHeader::Rewrite,
            },
            Upstream {
                name: "other".to_owned(),
                endpoints: vec![endpoint("127.0.0.1:3000", 3000, 1)],
                ..smallest().upstreams.remove(0)
            },
        ],
        routes: vec![
            Route {
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
                    vec![2, 0, 1],
                    Timeouts { response: secs(5), ..timeouts },
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
                vec![1],
                default,
            ),
            Route { methods: vec![Method::GET], ..route("/files/*", files(), 1, vec![], default) },
            route("/files/*#2", files(), 1, vec![], Timeouts { connect: secs(1), ..timeouts }),
        ],
        client_limits: ClientLimits {
            header_size: 16 << 10,
            headers: 50,
            header_timeout: secs(5),
            idle_timeout: secs(60),
            connections: 20,
        },
        reply_headers: ReplyHeaders { ratelimit: RateLimitFields::Draft, via: "edge-1".to_owned() },
        forwarded: Forwarded::Both,
        access_log: AccessLog {
            format: AccessLogFormat::Combined,
            to: Destination::File("/var/log/tollgate.log".into()),
            sample: 0.125,
        },
        log: Log { level: LogLevel::Debug, format: LogFormat::Json },
        shutdown: Shutdown { drain: secs(0) },
    };
    assert_eq!(parse(EVERYTHING), expected);
}

#[test]
fn short_forms_mean_the_same() {
    let with = |line: &str| parse(&format!("{line}\n{SMALLEST}"));
    assert_eq!(with("store: memory"), smallest());
    assert_eq!(with("admin: { token: \"${EMPTY}\" }"), smallest());
    assert_eq!(with("\u{feff}# a byte order mark").routes, smallest().routes);
    let off = AccessLog { format: AccessLogFormat::Off, ..smallest().access_log };
    assert_eq!(with("access_log: off"), Config { access_log: off, ..smallest() });
    assert_eq!(with("forwarded: off").forwarded, Forwarded::Off);
    assert_eq!(with("client_address: { header: Forwarded }").client_address.header, AddressHeader::Forwarded);
}

#[test]
fn redis_needs_its_url_alone() {
    let redis = |url: &str| Redis {
        url: Secret::new(url),
        tls: RedisTls::default(),
        timeout: Duration::from_millis(50),
        connections: 2,
        prefix: "ratelimit".to_owned(),
        breaker: Breaker { failures: 5, retry_after: secs(1) },
    };
    for (written, url) in [
        ("redis://127.0.0.1:6379", "redis://127.0.0.1:6379"),
        ("redis://:p%40ss@[::1]/15", "redis://:p%40ss@[::1]/15"),
        ("rediss://redis.internal", "rediss://redis.internal"),
        ("unix:///run/redis.sock?db=1", "unix:///run/redis.sock?db=1"),
        ("${REDIS}", "rediss://app:hunter2@redis.internal:6380/3"),
    ] {
        let config = parse(&format!("store: {{ redis: {{ url: \"{written}\" }} }}\n{SMALLEST}"));
        let store = Store { memory: MemoryStore { max_keys: 1_000_000 }, redis: Some(redis(url)) };
        assert_eq!(config, Config { store, ..smallest() });
        assert!(!format!("{config:?}").contains("://r"), "the URL is printed");
    }
    let trusting = parse(&format!(
        "store: {{ redis: {{ url: \"rediss://h\", tls: {{ ca: tls/ca.pem }} }} }}\n{SMALLEST}"
    ));
    let tls = RedisTls { ca: Some("tls/ca.pem".into()), identity: None };
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
    std::fs::write(&ca, Environment.bytes(Path::new("tls/ca.pem")).unwrap()).unwrap();
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
