//! `store`.

use super::{Items, Kind, MIB, Mapping, Rule, Setting, TIB, text};

pub(in crate::config) static STORE: Mapping = Mapping::new(
    "The store of limits.",
    "redis.md",
    &[
        Setting::new(
            "redis",
            Kind::Mapping(|| &REDIS),
            "Counts limits in Redis, so that all instances share them. While Redis is down, limits are counted in \
             memory.",
        )
        .unset("limits are counted in memory")
        .example("{ url: \"redis://127.0.0.1:6379\" }")
        .see(&["policies.*.on_store_error"]),
        Setting::new(
            "memory",
            Kind::Mapping(|| &MEMORY),
            "How many limits may be held in memory, and how much of it they may take.",
        )
        .unset("the defaults of its settings")
        .example("{ max_keys: 100000 }"),
    ],
);

pub(in crate::config) static MEMORY: Mapping = Mapping::new(
    "The limits that this process holds in memory.",
    "limits.md#memory",
    &[
        Setting::new(
            "max_keys",
            Kind::Count(1, 1_000_000_000),
            "The most limits in memory: one for each policy and client (key). When there are more, expired ones are \
             dropped first, and those that deny requests last.",
        )
        .default("1000000")
        .example("100000"),
        Setting::new("max_bytes", Kind::Size(MIB, 16 * TIB), "The most memory that all limits may take.")
            .unset("a quarter of what the cgroup or the machine has, at most 1GiB")
            .example("256MiB"),
    ],
);

pub(in crate::config) static REDIS: Mapping = Mapping::new(
    "The Redis that holds the limits. Set exactly one of `url`, `sentinel` and `cluster`.",
    "redis.md",
    &[
        Setting::new(
            "url",
            Kind::Text(&text::REDIS_URL),
            "A single server: `redis://USER:PASSWORD@HOST:PORT/DATABASE`, `rediss://` for TLS, or `unix:///PATH`.",
        )
        .example("redis://127.0.0.1:6379"),
        Setting::new(
            "sentinel",
            Kind::Mapping(|| &SENTINEL),
            "Redis behind Sentinel, which tells Tollgate the current primary.",
        )
        .example("{ master: mymaster, nodes: [\"redis://10.0.0.1:26379\"] }"),
        Setting::new("cluster", Kind::Mapping(|| &CLUSTER), "A Redis Cluster.").example("{ nodes: [\"redis://10.0.0.1:6379\"] }"),
        USER,
        PASSWORD,
        Setting::new(
            "database",
            Kind::Count(0, 2_147_483_647),
            "The number of the database on the servers behind Sentinel.",
        )
        .default("0")
        .example("1")
        .beside("sentinel: { master: mymaster, nodes: [\"redis://10.0.0.1:26379\"] }"),
        Setting::new("tls", Kind::Mapping(|| &TLS_TO_REDIS), "TLS to Redis. It applies to `rediss://` URLs.")
            .unset("the authorities of the system, and no client certificate")
            .example("{ ca: tls/ca.pem }")
            .beside("url: \"rediss://redis.internal:6380\""),
        Setting::new(
            "timeout",
            Kind::Duration(1, 10_000),
            "How long Tollgate waits for Redis to decide on a request; in a cluster, for each round trip. After \
             that, each policy does what its `on_store_error` says.",
        )
        .default("50ms")
        .example("20ms")
        .see(&["policies.*.on_store_error", "store.redis.breaker.failures"]),
        Setting::new("connections", Kind::Count(1, 64), "The most connections of each worker to each server.")
            .default("2")
            .example("4")
            .see(&["workers"]),
        Setting::new("prefix", Kind::Text(&text::PREFIX), "The first part of every key in Redis.")
            .default("ratelimit")
            .example("eu-1"),
        Setting::new(
            "breaker",
            Kind::Mapping(|| &BREAKER),
            "When Tollgate stops asking a Redis that does not answer, and for how long.",
        )
        .unset("after 5 failures, for a second")
        .example("{ failures: 3 }"),
    ],
)
.rules(&[Rule::One(&["url", "sentinel", "cluster"]), Rule::With("user", "password"), Rule::AtMostOne(&["url", "user"]),
    Rule::AtMostOne(&["url", "password"]), Rule::AtMostOne(&["url", "database"]), Rule::AtMostOne(&["cluster", "database"])])
.sample("url: \"redis://127.0.0.1:6379\"");

const USER: Setting =
    Setting::new("user", Kind::Text(&text::ANY), "The user (ACL) that Tollgate logs in to Redis as.")
        .unset("the default user")
        .example("app")
        .beside("cluster: { nodes: [\"redis://10.0.0.1:6379\"] }, password: \"${REDIS_PASSWORD}\"");
const PASSWORD: Setting = Setting::new("password", Kind::Text(&text::SECRET), "The password of Redis.")
    .unset("none")
    .example("\"${REDIS_PASSWORD}\"")
    .beside("cluster: { nodes: [\"redis://10.0.0.1:6379\"] }");

pub(in crate::config) static SENTINEL: Mapping = Mapping::new(
    "Redis behind Sentinel.",
    "redis.md",
    &[
        Setting::new("master", Kind::Text(&text::NAME), "The name of the primary in `sentinel.conf`.")
            .example("mymaster"),
        Setting::new(
            "nodes",
            Kind::List(&Kind::Text(&text::REDIS_NODE), Items::Some),
            "The URLs of the Sentinels, port 26379 by default. It is enough if one of them answers.",
        )
        .example("[\"redis://10.0.0.1:26379\", \"redis://10.0.0.2:26379\"]"),
        Setting::new(
            "user",
            Kind::Text(&text::ANY),
            "The user (ACL) that Tollgate logs in to the Sentinels as.",
        )
        .unset("the default user")
        .example("app")
        .beside("password: \"${SENTINEL_PASSWORD}\""),
        Setting::new("password", Kind::Text(&text::SECRET), "The password of the Sentinels.")
            .unset("none")
            .example("\"${SENTINEL_PASSWORD}\""),
    ],
)
.rules(&[Rule::With("user", "password")])
.sample("master: mymaster, nodes: [\"redis://10.0.0.1:26379\"]");

pub(in crate::config) static CLUSTER: Mapping = Mapping::new(
    "A Redis Cluster.",
    "redis.md",
    &[
        Setting::new(
            "nodes",
            Kind::List(&Kind::Text(&text::REDIS_NODE), Items::Some),
            "The URLs of some nodes, port 6379 by default. From them, Tollgate learns all others.",
        )
        .example("[\"redis://10.0.0.1:6379\", \"redis://10.0.0.2:6379\"]"),
        Setting::new(
            "strict",
            Kind::Boolean,
            "Whether all keys are in one hash slot, and so on one node. Each request is then decided in one step, \
             but one node carries the whole load.",
        )
        .default("false")
        .example("true"),
    ],
)
.sample("nodes: [\"redis://10.0.0.1:6379\"]");

pub(in crate::config) static TLS_TO_REDIS: Mapping =
    Mapping::new("TLS to Redis. The files are read again when they change.", "redis.md", &[CA, CERT, KEY])
        .rules(&[Rule::With("cert", "key"), Rule::With("key", "cert")]);

pub(super) const CA: Setting =
    Setting::new("ca", Kind::File, "The authorities that sign the certificate of the server, in PEM.")
        .unset("the authorities of the system")
        .example("tls/ca.pem");
pub(super) const CERT: Setting =
    Setting::new("cert", Kind::File, "The certificate that Tollgate shows to the server, in PEM.")
        .unset("no certificate")
        .example("tls/me.pem")
        .beside("key: tls/me.key");
pub(super) const KEY: Setting = Setting::new("key", Kind::File, "The private key of `cert`, in PEM.")
    .unset("no certificate")
    .example("tls/me.key")
    .beside("cert: tls/me.pem");

pub(in crate::config) static BREAKER: Mapping = Mapping::new(
    "The circuit breaker: while it is open, Tollgate does not ask Redis, and each policy does what its \
     `on_store_error` says.",
    "redis.md",
    &[
        Setting::new(
            "failures",
            Kind::Count(1, 1_000_000),
            "After this many failures in a row, Tollgate stops asking Redis for `retry_after`.",
        )
        .default("5")
        .example("3"),
        Setting::new(
            "retry_after",
            Kind::Duration(10, super::HOUR),
            "How long Tollgate waits before it asks Redis again.",
        )
        .default("1s")
        .example("5s"),
    ],
);
