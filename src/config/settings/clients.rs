//! `client_address`, `client_limits` and `reply_headers`.

use super::{GIB, KIB, Kind, LONGEST, MIB, Mapping, Setting, listeners::LARGEST_BODY, text};

pub(in crate::config) static CLIENT_ADDRESS: Mapping = Mapping::new(
    "The client's address, as limits, bans and logs use it.",
    "identity.md",
    &[
        Setting::new(
            "header",
            Kind::Text(&text::FIELD),
            "The header in which trusted proxies send the client's address: `x-forwarded-for`, `forwarded`, or a \
             header with a single address, such as `cf-connecting-ip`. From other peers it is ignored.",
        )
        .default("x-forwarded-for")
        .example("cf-connecting-ip")
        .see(&["trusted_proxies"]),
        Setting::new(
            "ipv6_prefix",
            Kind::Count(1, 128),
            "How many bits of an IPv6 address identify a client. A provider usually gives a customer a whole /64.",
        )
        .default("64")
        .example("56")
        .see(&["policies.*.key", "client_limits.connections_per_address"]),
    ],
);

pub(in crate::config) static CLIENT_LIMITS: Mapping = Mapping::new(
    "Limits on connections and requests, for all routes.",
    "connections.md",
    &[
        Setting::new(
            "header_size",
            Kind::Size(KIB, MIB),
            "The longest head of a request: its first line and its headers. A longer one gets 431.",
        )
        .default("32KiB")
        .example("64KiB"),
        Setting::new(
            "headers",
            Kind::Count(1, 10_000),
            "The most headers of a request. A request with more gets 431.",
        )
        .default("100")
        .example("200"),
        Setting::new(
            "header_timeout",
            Kind::Duration(1, LONGEST),
            "How long a client may take for the TLS handshake, and for the head of a request. If it takes longer, \
             its connection is closed; it gets 408 if it has begun a request.",
        )
        .default("10s")
        .example("5s"),
        Setting::new(
            "idle_timeout",
            Kind::Duration(1, LONGEST),
            "How long a connection may be idle between two requests, and how long a client may pause while it sends \
             a body.",
        )
        .default("75s")
        .example("120s"),
        Setting::new(
            "connections",
            Kind::Count(1, 10_000_000),
            "The most client connections of the process. If there are more, an idle one is closed to accept a new \
             one; if none is idle, the new one is refused.",
        )
        .default("10000")
        .example("50000"),
        Setting::new(
            "connections_per_address",
            Kind::Count(0, 10_000_000),
            "The most connections of one client address. `0` sets no limit. Connections of `trusted_proxies` do not \
             count.",
        )
        .default("1000")
        .example("100")
        .see(&["client_address.ipv6_prefix", "trusted_proxies"]),
        Setting::new(
            "min_rate",
            Kind::Mapping(&MIN_RATE),
            "The slowest rate at which a client may send a body or take a response.",
        )
        .unset("240 bytes a second, after 20s")
        .example("{ bytes: 1KiB, grace: 10s }"),
        Setting::new(
            "h2_streams",
            Kind::Count(1, 10_000),
            "The most concurrent requests on one HTTP/2 connection.",
        )
        .default("100")
        .example("250")
        .see(&["listeners[].http2"]),
        Setting::new(
            "max_body",
            Kind::Size(0, LARGEST_BODY),
            "The longest request body; a longer one gets 413. `0` allows any length. `max_body` of a route wins over \
             that of a listener, and both win over this one.",
        )
        .default("0")
        .example("10MiB")
        .see(&["routes[].max_body", "listeners[].max_body"]),
    ],
);

pub(in crate::config) static MIN_RATE: Mapping = Mapping::new(
    "A client that stays below this rate gets 408, or its connection is closed.",
    "slow-clients.md",
    &[
        Setting::new("bytes", Kind::Size(0, GIB), "Bytes a second. `0` allows any rate.")
            .default("240")
            .example("1KiB"),
        Setting::new(
            "grace",
            Kind::Duration(1, LONGEST),
            "How far behind the rate a client may fall, as the time that the missing bytes take at this rate.",
        )
        .default("20s")
        .example("10s"),
    ],
);

pub(in crate::config) static REPLY_HEADERS: Mapping = Mapping::new(
    "Headers in the responses to clients.",
    "policies.md#change-the-429-response",
    &[
        Setting::new(
            "ratelimit",
            Kind::Word(&["draft", "legacy", "both", "off"]),
            "The headers that tell clients how much of their limit is left: `RateLimit` and `RateLimit-Policy` \
             (draft-ietf-httpapi-ratelimit-headers), or `X-RateLimit-Limit`, `-Remaining` and `-Reset`.",
        )
        .default("draft")
        .example("both"),
        Setting::new(
            "via",
            Kind::Text(&text::TOKEN),
            "The name that Tollgate uses for itself in the header `Via`.",
        )
        .default("tollgate")
        .example("edge-1"),
    ],
);
