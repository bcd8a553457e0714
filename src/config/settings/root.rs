//! The top level.

use super::{Items, Kind, LONGEST, Mapping, Setting, Settings, routes, text, upstreams};

use crate::config::model::{
    Abuse, AccessLog, BansSettings, ClientAddress, ClientLimits, Log, PolicySettings, ReplyHeaders, Store,
    Tracing,
};
use crate::config::section::{AdminSettings, ListenerSettings, UserSourceSettings};

pub(in crate::config) static ROOT: Mapping = Mapping::new(
    "The sections of the file. `routes` is required, and `upstreams` wherever a route forwards requests.",
    "",
    &[
        Setting::new(
            "listeners",
            Kind::List(&Kind::Mapping(ListenerSettings::mapping), Items::Some),
            "The sockets on which clients are served.",
        )
        .unset("one listener on 127.0.0.1:8080, in clear text")
        .example("[{ address: 0.0.0.0:8080 }]"),
        Setting::new("admin", Kind::Mapping(AdminSettings::mapping), "The admin port: API, page and metrics.")
            .unset("127.0.0.1:9900, without a token")
            .example("{ address: 127.0.0.1:9900 }"),
        Setting::new(
            "workers",
            Kind::Either(&[Kind::Word(&["auto"]), Kind::Count(1, 1024)]),
            "The number of threads that serve requests. `auto` takes the CPUs that affinity and the cgroup's quota allow.",
        )
        .default("auto")
        .example("4"),
        Setting::new(
            "trusted_proxies",
            Kind::List(&Kind::Text(&text::PROXY), Items::Unique),
            "The proxies in front of Tollgate. Tollgate takes the client's address, a user header, a cost or a PROXY \
             header only from them. `unix` means every process that connects through a Unix socket.",
        )
        .unset("no proxy is trusted")
        .example("[10.0.0.0/8]")
        .see(&["client_address.header", "trusted_headers", "user[].from", "listeners[].proxy_protocol", "forwarded"]),
        Setting::new(
            "trusted_headers",
            Kind::List(&Kind::Text(&text::FIELD), Items::Unique),
            "Headers that only trusted proxies may send. Tollgate removes them from all other requests.",
        )
        .unset("none")
        .example("[x-plan]")
        .see(&["trusted_proxies", "policies.*.overrides[].header:*"]),
        Setting::new(
            "client_address",
            Kind::Mapping(ClientAddress::mapping),
            "How Tollgate finds a client's address behind trusted proxies, and how many bits of it identify the \
             client.",
        )
        .unset("`x-forwarded-for`, and the first 64 bits of IPv6 addresses")
        .example("{ header: cf-connecting-ip }"),
        DENY,
        ALLOW,
        Setting::new(
            "request_id",
            Kind::Text(&text::FIELD),
            "The header that holds the ID of a request. An ID from a trusted proxy is kept; otherwise Tollgate \
             creates one. The ID is logged, and sent to the upstream and to the client.",
        )
        .default("x-request-id")
        .example("x-correlation-id")
        .see(&["trusted_proxies"]),
        Setting::new(
            "user",
            Kind::List(&Kind::Either(&[Kind::Text(&text::BASIC), Kind::Mapping(UserSourceSettings::mapping)]), Items::Unique),
            "Which part of a request names its user. The sources are tried in order; the first that gives a user is \
             used.",
        )
        .unset("no request has a user")
        .example("[{ header: x-user-id }, basic]")
        .see(&["policies.*.key", "bans.*.key", "trusted_proxies"]),
        Setting::new(
            "store",
            Kind::Either(&[Kind::Word(&["memory"]), Kind::Mapping(Store::mapping)]),
            "Where limits are counted: in the memory of this process, or in Redis, for several instances together.",
        )
        .default("memory")
        .example("{ redis: { url: \"redis://127.0.0.1:6379\" } }")
        .see(&["policies.*.on_store_error"]),
        Setting::new(
            "policies",
            Kind::Names(&text::RESOURCE, &Kind::Mapping(PolicySettings::mapping), Items::Any),
            "The limits, each under a name that upstreams and routes refer to.",
        )
        .unset("no limits")
        .example("{ per-ip: { algorithm: sliding_log, key: ip, limit: 100/1s } }")
        .see(&["upstreams.*.policies", "routes[].policies"]),
        Setting::new(
            "bans",
            Kind::Mapping(BansSettings::mapping),
            "Rules that ban clients whose requests are denied again and again, each under a name.",
        )
        .unset("nobody is banned automatically")
        .example("{ hammering: { key: ip, after: 20/1m, for: 5m } }"),
        Setting::new(
            "abuse",
            Kind::Mapping(Abuse::mapping),
            "What is recorded about limited clients, and for how long.",
        )
        .unset("24 hours, with user IDs in plain text")
        .example("{ retain: 7d }"),
        Setting::new(
            "upstreams",
            Kind::Names(&text::RESOURCE, &Kind::Mapping(|| &upstreams::UPSTREAM), Items::Some),
            "The services that requests are forwarded to, each under a name that routes refer to.",
        )
        .unset("none; valid if no route has an `upstream`")
        .example("{ api: { endpoints: [\"http://127.0.0.1:3000\"] } }")
        .see(&["routes[].upstream"]),
        Setting::new(
            "resolver",
            Kind::Mapping(|| &upstreams::RESOLVER),
            "The DNS servers that resolve the names of endpoints.",
        )
        .unset("the servers of the system, with a timeout of 5s")
        .example("{ servers: [10.0.0.2] }"),
        routes::MATCHING,
        routes::PATHS,
        routes::METHOD_OVERRIDE,
        routes::TRAILERS,
        routes::EARLY_HINTS,
        Setting::new(
            "routes",
            Kind::List(&Kind::Mapping(|| &routes::ROUTE), Items::Some),
            "What happens to which requests. Routes are tried in order, and the first that matches is used. A \
             request that matches none gets 404.",
        )
        .example("[{ path: /api/*, upstream: api }]"),
        Setting::new(
            "client_limits",
            Kind::Mapping(ClientLimits::mapping),
            "How large requests may be, how slowly clients may send them, and how many connections clients may have.",
        )
        .unset("the defaults of its settings")
        .example("{ header_timeout: 5s }"),
        Setting::new(
            "reply_headers",
            Kind::Mapping(ReplyHeaders::mapping),
            "The headers that Tollgate adds to responses.",
        )
        .unset("`RateLimit`, `RateLimit-Policy`, and `Via` with the name tollgate")
        .example("{ ratelimit: both }"),
        Setting::new(
            "forwarded",
            Kind::Word(&["x-forwarded", "forwarded", "both", "off"]),
            "The headers that tell upstreams the client's address, scheme and host: `X-Forwarded-For`, `-Proto` and \
             `-Host`, or `Forwarded` (RFC 7239). Tollgate appends to values from trusted proxies, and replaces all \
             others.",
        )
        .default("x-forwarded")
        .example("both")
        .see(&["trusted_proxies"]),
        Setting::new(
            "forward_client_certificate",
            Kind::Word(&["off", "xfcc", "xfcc-cert", "client-cert", "client-cert-chain"]),
            "The header that tells upstreams the client's verified certificate: `X-Forwarded-Client-Cert` as Envoy \
             writes it, with or without the certificate itself, or `Client-Cert` (RFC 9440).",
        )
        .default("off")
        .example("client-cert")
        .see(&["listeners[].tls.client_ca"]),
        Setting::new(
            "access_log",
            Kind::Either(&[Kind::Word(&["json", "combined", "off"]), Kind::Mapping(AccessLog::mapping)]),
            "The log of requests: only its format, or a mapping with all its settings.",
        )
        .default("json")
        .example("combined"),
        Setting::new("log", Kind::Mapping(Log::mapping), "Tollgate's own messages, on stderr.")
            .unset("text, from the level `info`")
            .example("{ level: debug }"),
        Setting::new(
            "tracing",
            Kind::Mapping(Tracing::mapping),
            "Traces, sent to an OpenTelemetry collector.",
        )
        .unset("no traces")
        .example("{ otlp: \"http://127.0.0.1:4318\" }"),
        Setting::new("shutdown", Kind::Mapping(|| &SHUTDOWN), "How Tollgate shuts down.")
            .unset("running requests have 30s to finish")
            .example("{ drain: 60s }"),
        Setting::new(
            "x-*",
            Kind::Any,
            "Tollgate ignores keys that begin with `x-`. Use them for YAML anchors.",
        )
        .unset("nothing")
        .example("[1, 2]"),
    ],
);

/// `deny` at the top level. A route has another description.
pub(super) const DENY: Setting = Setting::new(
    "deny",
    ADDRESSES,
    "Client addresses that get 403, before Tollgate looks at users, routes, bans and limits.",
)
.unset("no address is denied")
.example("[192.0.2.0/24, { file: blocked.txt }]")
.see(&["allow", "client_address.header"]);

/// `allow`, at the top level and of a route.
pub(super) const ALLOW: Setting = Setting::new(
    "allow",
    SOME_ADDRESSES,
    "The only client addresses that may send requests; all others get 403. `deny` wins over `allow`.",
)
.unset("every address is allowed")
.example("[10.0.0.0/8]")
.see(&["deny"]);

const ADDRESS: Kind = Kind::Either(&[Kind::Text(&text::NETWORK), Kind::Mapping(|| &ADDRESSES_FILE)]);
const ADDRESSES: Kind =
    Kind::Either(&[Kind::List(&ADDRESS, Items::Unique), Kind::Mapping(|| &ADDRESSES_FILE)]);
const SOME_ADDRESSES: Kind =
    Kind::Either(&[Kind::List(&ADDRESS, Items::SomeUnique), Kind::Mapping(|| &ADDRESSES_FILE)]);

pub(in crate::config) static ADDRESSES_FILE: Mapping = Mapping::new(
    "A file that lists the addresses.",
    "security.md",
    &[Setting::new(
        "file",
        Kind::File,
        "The path of the file, with one address or network per line. It is read again when it changes.",
    )
    .example("blocked.txt")],
);

pub(in crate::config) static SHUTDOWN: Mapping = Mapping::new(
    "What happens on SIGTERM and SIGINT.",
    "reload.md",
    &[Setting::new(
        "drain",
        Kind::Duration(0, LONGEST),
        "How long requests in progress may take to finish. After that, Tollgate closes the remaining connections.",
    )
    .default("30s")
    .example("60s")],
);
