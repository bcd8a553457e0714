//! `upstreams` and `resolver`.

use super::{HOUR, Items, Kind, LONGEST, MIB, MINUTE, Mapping, Rule, SECOND, Setting, text};

const RETRY_REASONS: &[&str] = &["connect", "refused", "502", "503", "504", "timeout"];
/// The most connections of an upstream.
const MOST_CONNECTIONS: u64 = 1_000_000;

pub(in crate::config) static UPSTREAM: Mapping = Mapping::new(
    "A service behind Tollgate: one or more endpoints that serve the same content.",
    "upstreams.md",
    &[
        Setting::new(
            "endpoints",
            Kind::Either(&[
                Kind::List(&Kind::Either(&[Kind::Text(&text::ENDPOINT), Kind::Mapping(|| &ENDPOINT)]), Items::SomeUnique),
                Kind::Mapping(|| &ENDPOINTS_FILE),
            ]),
            "The endpoints, or a file that lists them and is read again when it changes. Host names are resolved \
             again when the TTL of their DNS records ends.",
        )
        .example("[\"http://127.0.0.1:3001\", { url: \"http://127.0.0.1:3002\", weight: 2 }]")
        .see(&["resolver.servers"]),
        Setting::new(
            "policies",
            Kind::List(&Kind::Text(&text::RESOURCE), Items::Unique),
            "The policies that apply to every route to this upstream, by their names.",
        )
        .unset("none")
        .example("[per-ip]")
        .see(&["routes[].policies"]),
        Setting::new(
            "balance",
            Kind::Either(&[Kind::Word(&["least_request", "round_robin"]), Kind::Mapping(|| &BALANCE)]),
            "Which endpoint gets a request. `least_request`: the one with the fewest requests in progress. \
             `round_robin`: each in turn. `{ hash: KEY }`: always the same one for the same key.",
        )
        .default("least_request")
        .example("{ hash: ip }"),
        Setting::new(
            "sticky",
            Kind::Mapping(|| &STICKY),
            "A cookie that sends a client to the endpoint that served it first.",
        )
        .unset("no cookie")
        .example("{ cookie: tg_endpoint }"),
        Setting::new(
            "slow_start",
            Kind::Duration(0, HOUR),
            "How long a new or recovered endpoint takes to reach its full share of the requests.",
        )
        .default("0s")
        .example("30s"),
        Setting::new(
            "tls",
            Kind::Mapping(|| &TLS_TO_UPSTREAM),
            "TLS to the endpoints. It applies to `https://` endpoints.",
        )
        .unset("the authorities of the system, and the endpoint's host name")
        .example("{ ca: tls/ca.pem }")
        .beside("endpoints: [\"https://orders.internal:8443\"]"),
        Setting::new(
            "protocol",
            Kind::Word(&["h1", "h2", "auto"]),
            "The HTTP version of requests to endpoints: `h1` is HTTP/1.1, `h2` is HTTP/2, `auto` is what an \
             `https://` endpoint chooses by ALPN.",
        )
        .default("h1")
        .example("h2"),
        Setting::new("timeouts", Kind::Mapping(|| &TIMEOUTS), "How long an endpoint may take.")
            .unset("the defaults of its settings")
            .example("{ response: 10s }")
            .see(&["routes[].timeouts"]),
        Setting::new(
            "retry",
            Kind::Mapping(|| &RETRY),
            "When a failed request is sent again, to another endpoint if there is one.",
        )
        .unset("once, if the endpoint could not be reached, or ended the connection before it responded")
        .example("{ max: 2 }")
        .see(&["routes[].retry"]),
        Setting::new("health", Kind::Mapping(|| &HEALTH), "Active health checks.")
            .unset("endpoints are not checked")
            .example("{ path: /healthz }")
            .see(&["upstreams.*.outlier"]),
        Setting::new(
            "outlier",
            Kind::Either(&[Kind::Word(&["off"]), Kind::Mapping(|| &OUTLIER)]),
            "Ejects an endpoint for a while after several failed requests in a row.",
        )
        .unset("an endpoint is ejected for 30s after 5 failures in a row")
        .example("off")
        .see(&["upstreams.*.health"]),
        Setting::new(
            "max_connections",
            Kind::Count(1, MOST_CONNECTIONS),
            "The most connections of the process to the upstream. When all are in use, up to the same number of \
             requests wait for one; further requests get 503.",
        )
        .default("1024")
        .example("256"),
        Setting::new(
            "max_connections_per_address",
            Kind::Percentage(false, 100),
            "The share of `max_connections` that one client address may use while requests of others wait.",
        )
        .default("25%")
        .example("10%")
        .see(&["upstreams.*.max_connections"]),
        Setting::new(
            "request_buffering",
            Kind::Size(0, MIB),
            "A request body of up to this length is received in full before the request takes a connection to an \
             endpoint. `0` buffers none.",
        )
        .default("16KiB")
        .example("64KiB"),
        Setting::new(
            "idle_connections",
            Kind::Count(0, MOST_CONNECTIONS),
            "The most idle connections to the upstream that each worker keeps.",
        )
        .default("64")
        .example("16")
        .see(&["workers", "upstreams.*.timeouts.idle"]),
        Setting::new(
            "host",
            Kind::Word(&["preserve", "rewrite"]),
            "The `Host` that endpoints get: `preserve` sends the client's, `rewrite` the endpoint's own.",
        )
        .default("preserve")
        .example("rewrite"),
    ],
)
.sample("endpoints: [\"http://127.0.0.1:3001\"]");

pub(in crate::config) static ENDPOINTS_FILE: Mapping = Mapping::new(
    "A file that lists the endpoints.",
    "upstreams.md",
    &[Setting::new(
        "file",
        Kind::File,
        "The path of the file: a list of endpoints in YAML or JSON, as `endpoints` itself would be. It is read again when \
         it changes.",
    )
    .example("endpoints.yaml")],
);

pub(in crate::config) static ENDPOINT: Mapping = Mapping::new(
    "An endpoint with settings of its own.",
    "upstreams.md",
    &[
        Setting::new(
            "url",
            Kind::Text(&text::ENDPOINT),
            "`http://HOST:PORT` or `https://HOST:PORT`. Without a port, 80 or 443.",
        )
        .example("http://127.0.0.1:3001"),
        Setting::new(
            "weight",
            Kind::Count(1, 1_000),
            "An endpoint with weight 2 gets twice as many requests as one with weight 1.",
        )
        .default("1")
        .example("2"),
        Setting::new("drain", Kind::Boolean, "Whether the endpoint is drained: it gets no new requests.")
            .default("false")
            .example("true"),
    ],
)
.sample("url: \"http://127.0.0.1:3002\"");

pub(in crate::config) static BALANCE: Mapping = Mapping::new(
    "Balancing by a key.",
    "upstreams.md",
    &[Setting::new(
        "hash",
        Kind::Text(&text::KEY),
        "The key. Requests with the same key go to the same endpoint. For a request without the key, the client's \
         address is used.",
    )
    .example("header:x-tenant")],
);

pub(in crate::config) static STICKY: Mapping = Mapping::new(
    "Sticky sessions.",
    "upstreams.md",
    &[
        Setting::new("cookie", Kind::Text(&text::COOKIE), "The name of the cookie that Tollgate sets.")
            .example("tg_endpoint"),
        Setting::new("max_age", Kind::Duration(SECOND, LONGEST), "How long clients keep the cookie.")
            .unset("until the browser is closed")
            .example("1h"),
    ],
)
.sample("cookie: tg_endpoint");

pub(in crate::config) static TLS_TO_UPSTREAM: Mapping = Mapping::new(
    "TLS to `https://` endpoints. The files are read again when they change.",
    "upstreams.md",
    &[
        Setting::new("ca", Kind::File, "The authorities that sign the certificate of the server, in PEM.")
            .unset("the authorities of the system")
            .example("tls/ca.pem"),
        Setting::new("cert", Kind::File, "The certificate that Tollgate shows to the server, in PEM.")
            .unset("no certificate")
            .example("tls/me.pem")
            .beside("key: tls/me.key"),
        Setting::new("key", Kind::File, "The private key of `cert`, in PEM.")
            .unset("no certificate")
            .example("tls/me.key")
            .beside("cert: tls/me.pem"),
        Setting::new(
            "server_name",
            Kind::Text(&text::SERVER_NAME),
            "The name that the endpoints' certificates must have. A host name is also sent as SNI.",
        )
        .unset("the host of the endpoint")
        .example("orders.internal"),
    ],
)
.rules(&[Rule::With("cert", "key"), Rule::With("key", "cert")]);

pub(in crate::config) static TIMEOUTS: Mapping = Mapping::new(
    "How long an endpoint may take. A route may set some of these; the others are as its upstream has them.",
    "upstreams.md",
    &[
        Setting::new(
            "connect",
            Kind::Duration(1, LONGEST),
            "Time for opening a connection, with the TLS handshake.",
        )
        .default("1s")
        .example("500ms"),
        Setting::new(
            "response",
            Kind::Duration(1, LONGEST),
            "Time from the end of the request to the end of the response's head. After that, the client gets 504.",
        )
        .default("30s")
        .example("10s"),
        Setting::new(
            "idle",
            Kind::Duration(1, LONGEST),
            "Time that may pass without a byte of the response, or of a WebSocket. Also how long an idle connection \
             is kept.",
        )
        .default("60s")
        .example("5m"),
        Setting::new(
            "total",
            Kind::Duration(0, LONGEST),
            "Time for all tries together, up to the end of the response's head. `0s` sets no limit.",
        )
        .default("0s")
        .example("20s"),
    ],
);

pub(in crate::config) static RETRY: Mapping = Mapping::new(
    "Retries. A request is sent again only if that is safe: it is idempotent, or the endpoint has processed nothing \
     of it. A route may set some of these; the others are as its upstream has them.",
    "upstreams.md",
    &[
        Setting::new("max", Kind::Count(0, 10), "How often a request is sent again. `0` turns retries off.").default("1").example("2"),
        Setting::new(
            "when",
            Kind::List(&Kind::Word(RETRY_REASONS), Items::SomeUnique),
            "The failures after which a request is sent again. `connect`: no connection could be opened. `refused`: \
             the connection ended before the response, or the endpoint says that it has not processed the request. \
             `502`, `503`, `504`: the response has this status. `timeout`: there was no response within \
             `timeouts.response`.",
        )
        .default("[connect, refused]")
        .example("[connect, refused, 503]"),
        Setting::new(
            "budget",
            Kind::Percentage(true, 100),
            "The share of the requests to the upstream that may be retries, so that retries do not overload an \
             upstream that fails.",
        )
        .default("20%")
        .example("10%"),
    ],
);

pub(in crate::config) static HEALTH: Mapping = Mapping::new(
    "Active health checks of each address of each endpoint.",
    "upstreams.md",
    &[
        Setting::new(
            "type",
            Kind::Word(&["http", "grpc", "tcp"]),
            "What a check sends: `http` a GET request, `grpc` a call of `grpc.health.v1.Health/Check`, `tcp` \
             nothing: it only opens a connection.",
        )
        .default("http")
        .example("tcp"),
        Setting::new("path", Kind::Text(&text::PROBE_PATH), "The path of the GET request.")
            .unset("required with `type: http`, not allowed with others")
            .example("/healthz?full=1"),
        Setting::new("host", Kind::Text(&text::AUTHORITY), "The `Host` of the check.")
            .unset("the endpoint's own")
            .example("orders.internal")
            .beside("path: /healthz"),
        Setting::new(
            "statuses",
            Kind::List(&Kind::Text(&text::STATUSES), Items::SomeUnique),
            "The statuses of a healthy endpoint.",
        )
        .default("[2xx, 3xx]")
        .example("[200]")
        .beside("path: /healthz"),
        Setting::new("service", Kind::Text(&text::SERVICE), "The gRPC service whose health is asked for.")
            .unset("the server as a whole")
            .example("shop.Cart")
            .beside("type: grpc"),
        Setting::new(
            "interval",
            Kind::Duration(100, LONGEST),
            "Time from the beginning of one check to that of the next.",
        )
        .default("5s")
        .example("10s")
        .beside("path: /healthz"),
        Setting::new("timeout", Kind::Duration(1, LONGEST), "How long a check may take in all.")
            .default("1s")
            .example("2s")
            .beside("path: /healthz"),
        Setting::new(
            "healthy",
            Kind::Count(1, 1_000),
            "After this many successes in a row, an endpoint is healthy again.",
        )
        .default("2")
        .example("1")
        .beside("path: /healthz"),
        Setting::new(
            "unhealthy",
            Kind::Count(1, 1_000),
            "After this many failures in a row, an endpoint is unhealthy.",
        )
        .default("3")
        .example("2")
        .beside("path: /healthz"),
    ],
)
.rules(&[
    Rule::NotWhere("path", "type", &["grpc", "tcp"]),
    Rule::RequiredWhere("path", "type", &["http", ""]),
    Rule::NotWhere("host", "type", &["tcp"]),
    Rule::NotWhere("statuses", "type", &["grpc", "tcp"]),
    Rule::Where("service", "type", &["grpc"]),
])
.sample("path: /healthz");

pub(in crate::config) static OUTLIER: Mapping = Mapping::new(
    "Outlier detection: an endpoint whose requests fail is ejected for a while.",
    "upstreams.md",
    &[
        Setting::new(
            "failures",
            Kind::Count(1, 1_000),
            "After this many failed requests in a row, an endpoint is ejected.",
        )
        .default("5")
        .example("10"),
        Setting::new(
            "eject",
            Kind::Duration(SECOND, LONGEST),
            "How long the first ejection lasts. Each further one in a row lasts this much longer than the one \
             before, up to ten times as long as the first.",
        )
        .default("30s")
        .example("10s"),
        Setting::new(
            "at_most",
            Kind::Percentage(false, 100),
            "The share of the endpoints that may be ejected at the same time.",
        )
        .default("50%")
        .example("20%"),
    ],
);

pub(in crate::config) static RESOLVER: Mapping = Mapping::new(
    "The DNS servers that resolve the names of endpoints.",
    "upstreams.md",
    &[
        Setting::new(
            "servers",
            Kind::List(&Kind::Text(&text::DNS_SERVER), Items::Unique),
            "The DNS servers, by IP address. With this setting, search domains are not used.",
        )
        .unset("those in `/etc/resolv.conf`, which is read again when it changes")
        .example("[10.0.0.2, \"127.0.0.1:5353\"]"),
        Setting::new("timeout", Kind::Duration(100, MINUTE), "How long it may take to resolve a name.")
            .default("5s")
            .example("2s"),
    ],
);
