//! `policies`.

use super::{DAY, HOUR, Items, Kind, LONGEST, Mapping, Rule, SECOND, Setting, text};

/// The largest limit.
const LARGEST: u64 = 1_000_000_000;

const ALGORITHMS: &[&str] = &[
    "single_counter",
    "fixed_window",
    "sliding_log",
    "metadata_list",
    "sliding_window",
    "sliding_counter",
    "gcra",
    "concurrency",
    "distinct",
];
const MEMBERS: &[&str] = &["concurrency", "distinct"];

pub(super) const KEY: Kind = Kind::Text(&text::KEY);

pub(in crate::config) static POLICY: Mapping = Mapping::new(
    "A limit: what it counts, for whom, and what happens to requests beyond it.",
    "limits.md",
    &[
        Setting::new(
            "algorithm",
            Kind::Word(ALGORITHMS),
            "How requests are counted. `sliding_log` is exact in any window. `gcra` and `sliding_window` take little \
             memory, however large the limit is. `concurrency` counts requests in progress, `distinct` counts \
             different values.",
        )
        .example("sliding_log"),
        Setting::new(
            "key",
            Kind::Either(&[KEY, Kind::List(&KEY, Items::SomeUnique)]),
            "What requests are counted by: `ip`, `user`, `header:NAME`, `cookie:NAME`, `query:NAME`, `jwt:CLAIM`, \
             `tls:subject`, `tls:fingerprint`, `path`, `route`, `host`, `method`, `global`, or a combination such as \
             `ip+path`. Each key of a list has a limit of its own.",
        )
        .example("[ip, user]")
        .see(&["user", "policies.*.missing", "client_address.ipv6_prefix"]),
        Setting::new(
            "missing",
            Kind::Word(&["skip", "ip", "deny"]),
            "What happens to a request that lacks one of the keys: `skip` ignores that key, `ip` limits the request \
             by its address instead, `deny` denies it. With `skip`, a request that lacks all keys is limited by its \
             address.",
        )
        .default("skip")
        .example("deny"),
        Setting::new(
            "value",
            KEY,
            "The part of a request whose different values are counted. `key: ip` with `value: user` counts the users \
             behind an address.",
        )
        .unset("required with `algorithm: distinct`, not allowed with others")
        .example("user")
        .beside("algorithm: distinct, key: ip, limit: 20/10m"),
        Setting::new(
            "limit",
            Kind::Either(&[Kind::Text(&text::RATE), Kind::Count(1, LARGEST)]),
            "How many units (requests, unless `cost` is set) a key may use in which time. For `concurrency`, a \
             number alone: how many requests may be in progress.",
        )
        .example("100/1s"),
        Setting::new(
            "limits",
            Kind::List(&Kind::Either(&[Kind::Text(&text::RATE), Kind::Count(1, LARGEST)]), Items::SomeUnique),
            "Several limits, at most 32. A request must be within all of them. Only `fixed_window` and \
             `sliding_window` take more than one.",
        )
        .unset("`limit` alone")
        .example("[10/1s, 120/1m]")
        .beside("algorithm: fixed_window, key: ip"),
        Setting::new(
            "buckets",
            Kind::Count(4, 100),
            "The number of parts that each window is divided into. More parts are more exact, and take more memory.",
        )
        .default("10")
        .example("20")
        .beside("algorithm: sliding_window"),
        Setting::new(
            "burst",
            Kind::Count(1, LARGEST),
            "How many units may be used at once. They come back at the rate of the limit.",
        )
        .unset("as many as the limit")
        .example("100")
        .beside("algorithm: gcra"),
        Setting::new(
            "delay",
            Kind::Duration(0, HOUR),
            "How long an excess request may wait for its turn instead of being denied. Only `gcra` takes a delay.",
        )
        .default("0s")
        .example("2s")
        .beside("algorithm: gcra")
        .see(&["policies.*.count"]),
        Setting::new(
            "lease",
            Kind::Duration(SECOND, DAY),
            "How long a request still counts after its instance has crashed. While the request runs, the lease is \
             renewed.",
        )
        .default("60s")
        .example("30s")
        .beside("algorithm: concurrency, limit: 8"),
        Setting::new(
            "cost",
            Kind::Either(&[Kind::Count(1, LARGEST), Kind::Mapping(|| &COST)]),
            "How many units a request takes: a number, or the value of a header that trusted proxies send.",
        )
        .default("1")
        .example("5")
        .see(&["trusted_proxies"]),
        Setting::new(
            "count",
            Kind::Mapping(|| &COUNT),
            "Counts only requests whose response has one of these statuses, such as failed logins.",
        )
        .unset("every request counts")
        .example("{ statuses: [401, 403] }")
        .see(&["policies.*.count_denied", "policies.*.delay", "policies.*.slice"]),
        Setting::new("count_denied", Kind::Boolean, "Whether requests that the policy denies count as well.")
            .default("false")
            .example("true")
            .see(&["policies.*.count", "policies.*.slice"]),
        Setting::new(
            "slice",
            Kind::Percentage(true, 50),
            "The share of a window's limit that an instance takes from Redis at once, to decide on that many \
             requests without asking again. With `0%`, it asks for each request. Only for `fixed_window` with a \
             single limit; the slice must be at least two units.",
        )
        .default("0%")
        .example("5%")
        .beside("algorithm: fixed_window, limit: 1000/1s")
        .see(&["policies.*.count", "policies.*.count_denied", "policies.*.limits", "store.redis"]),
        MODE.see(&["policies.*.reply"]),
        Setting::new(
            "preflight",
            Kind::Boolean,
            "Whether CORS preflights count. Browsers send them before some requests.",
        )
        .default("false")
        .example("true")
        .see(&["routes[].cors"]),
        EXEMPT,
        Setting::new(
            "overrides",
            Kind::List(&Kind::Mapping(|| &OVERRIDE), Items::Any),
            "Other limits for some clients. The first override that matches applies.",
        )
        .unset("the same limits for all")
        .example("[{ user: acme, limit: 1000/1m }]"),
        Setting::new(
            "on_store_error",
            Kind::Word(&["local", "allow", "deny"]),
            "What happens while the store does not answer. `local`: each instance enforces its share of the limit in \
             memory. `allow`: requests are admitted. `deny`: they get 503.",
        )
        .default("local")
        .example("deny")
        .see(&["store.redis.timeout", "store.redis.breaker.failures"]),
        Setting::new(
            "record",
            Kind::Mapping(|| &RECORD),
            "How many denied requests are recorded for each limited address, and for how long. `metadata_list` records \
             all requests.",
        )
        .unset("50 requests, for an hour")
        .example("{ keep: 100, for: 2h }")
        .see(&["abuse.memory"]),
        Setting::new("reply", Kind::Mapping(|| &REPLY), "The response to a denied request.")
            .unset("429 with problem details")
            .example("{ status: 503 }"),
    ],
)
.rules(&[
    Rule::One(&["limit", "limits"]),
    Rule::Where("value", "algorithm", &["distinct"]),
    Rule::RequiredWhere("value", "algorithm", &["distinct"]),
    Rule::Where("buckets", "algorithm", &["sliding_window"]),
    Rule::Where("burst", "algorithm", &["gcra"]),
    Rule::Where("lease", "algorithm", &["concurrency"]),
    Rule::NotWhere("cost", "algorithm", MEMBERS),
    Rule::NotWhere("count", "algorithm", MEMBERS),
    Rule::KindWhere("limit", "algorithm", "concurrency", Kind::Count(1, LARGEST), Kind::Text(&text::RATE)),
])
.sample("algorithm: gcra, key: ip, limit: 100/1s");

pub(super) const MODE: Setting = Setting::new(
    "mode",
    Kind::Word(&["enforce", "shadow"]),
    "`shadow` counts and reports, and denies nothing.",
)
.default("enforce")
.example("shadow");

const CONDITIONS: Kind = Kind::List(&Kind::Text(&text::CONDITION), Items::Unique);

pub(super) const EXEMPT: Setting = Setting::new(
    "exempt",
    CONDITIONS,
    "Clients that this does not apply to: addresses, networks, `user:NAME`, `jwt:CLAIM=VALUE`, `header:NAME=VALUE`, \
     `tls:subject=SUBJECT`, `tls:fingerprint=SHA256`. Only verified values and headers from trusted proxies match.",
)
.unset("nobody is exempt")
.example("[10.0.0.0/8, \"user:monitor\"]")
.see(&["user", "trusted_proxies"]);

pub(in crate::config) static COST: Mapping = Mapping::new(
    "A cost that a trusted proxy sends in a header.",
    "policies.md#let-some-requests-cost-more",
    &[
        Setting::new("header", Kind::Text(&text::FIELD), "The header that holds the cost.")
            .example("x-cost")
            .see(&["trusted_proxies"]),
        Setting::new("default", Kind::Count(1, LARGEST), "The cost of a request without the header.")
            .default("1")
            .example("2"),
        Setting::new(
            "max",
            Kind::Count(1, LARGEST),
            "The highest cost. A higher value in the header counts as `max`.",
        )
        .example("100"),
    ],
)
.sample("header: x-cost, max: 100");

pub(in crate::config) static COUNT: Mapping = Mapping::new(
    "The statuses of responses that count. Requests with other responses take nothing.",
    "policies.md#count-failed-logins-or-other-responses",
    &[
        Setting::new(
            "statuses",
            Kind::List(&Kind::Text(&text::STATUSES), Items::SomeUnique),
            "HTTP statuses: single ones, ranges, or classes.",
        )
        .unset("none; required without `grpc_statuses`")
        .example("[401, 403, 5xx]"),
        Setting::new(
            "grpc_statuses",
            Kind::List(&Kind::Text(&text::GRPC_STATUS), Items::SomeUnique),
            "gRPC statuses, by their numbers.",
        )
        .unset("none")
        .example("[16]"),
    ],
)
.rules(&[Rule::AtLeastOne(&["statuses", "grpc_statuses"])]);

pub(in crate::config) static OVERRIDE: Mapping = Mapping::new(
    "Other limits for the clients that match one condition.",
    "policies.md#exempt-clients-or-give-them-other-limits",
    &[
        Setting::new(
            "ip",
            Kind::Text(&text::NETWORK),
            "The client's address, or a network that it is in. Each address in the network has the limit for itself.",
        )
        .example("10.0.0.0/8"),
        Setting::new("user", Kind::Text(&text::NAME), "The ID of a user. It must be verified.")
            .example("acme")
            .see(&["user"]),
        Setting::new(
            "jwt:*",
            Kind::Text(&text::ANY),
            "The value of a claim in a verified token, such as `\"jwt:plan\": gold`.",
        )
        .example("gold")
        .see(&["user[].jwt"]),
        Setting::new(
            "header:*",
            Kind::Text(&text::FIELD_VALUE),
            "The value of a header from trusted proxies, such as `\"header:x-plan\": gold`.",
        )
        .example("gold")
        .see(&["trusted_proxies"]),
        Setting::new(
            "tls:*",
            Kind::Text(&text::ANY),
            "The subject or the fingerprint of the client's certificate, such as `\"tls:subject\": CN=acme`.",
        )
        .example("CN=acme")
        .see(&["listeners[].tls.client_ca"]),
        Setting::new("limit", LIMIT, "The limit of these clients.").example("1000/1m"),
        Setting::new("limits", LIMITS, "Several limits of these clients, as in the policy.")
            .unset("`limit` alone")
            .example("[1000/1m]"),
        Setting::new(
            "burst",
            Kind::Count(1, LARGEST),
            "How many units these clients may use at once; only with `algorithm: gcra`.",
        )
        .unset("as many as the limit")
        .example("200"),
    ],
)
.rules(&[Rule::One(&["limit", "limits"]), Rule::One(&["ip", "user", "jwt:*", "header:*", "tls:*"])])
.sample("user: acme, limit: 1000/1m");

const LIMIT: Kind = Kind::Either(&[Kind::Text(&text::RATE), Kind::Count(1, LARGEST)]);
const LIMITS: Kind =
    Kind::List(&Kind::Either(&[Kind::Text(&text::RATE), Kind::Count(1, LARGEST)]), Items::SomeUnique);

pub(in crate::config) static RECORD: Mapping = Mapping::new(
    "What is recorded for each limited address.",
    "admin.md",
    &[
        Setting::new(
            "keep",
            Kind::Count(0, 1_000),
            "How many recorded requests are kept for an address. `0` keeps none.",
        )
        .default("50")
        .example("100"),
        Setting::new("for", Kind::Duration(1, LONGEST), "How long each of them is kept.")
            .default("1h")
            .example("2h"),
    ],
);

pub(in crate::config) static REPLY: Mapping = Mapping::new(
    "The response to a denied request.",
    "policies.md#change-the-429-response",
    &[
        Setting::new("status", Kind::Count(400, 599), "The status of the response.")
            .unset("429 for a policy, 403 for a ban")
            .example("503"),
        Setting::new(
            "headers",
            Kind::Names(&text::FIELD, &Kind::Text(&text::FIELD_VALUE), Items::Any),
            "Additional headers of the response.",
        )
        .unset("none")
        .example("{ x-reason: slow-down }"),
        Setting::new("content_type", Kind::Text(&text::FIELD_VALUE), "The type of the body.")
            .unset("JSON if the body begins with `{` or `[`, else plain text")
            .example("text/html")
            .beside("body: \"<p>Slow down.</p>\""),
        Setting::new(
            "body",
            Kind::Text(&text::TEMPLATE),
            "The body, in which `{{retry_after}}`, `{{policy}}` and `{{limit}}` are filled in.",
        )
        .unset("problem details (RFC 9457)")
        .example("\"retry in {{retry_after}} s\""),
    ],
)
.rules(&[Rule::With("content_type", "body")]);
