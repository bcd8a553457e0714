//! `bans` and `abuse`.

use super::{
    Items, Kind, LONGEST, MIB, Mapping, Rule, SECOND, Setting, TIB,
    policies::{EXEMPT, MODE, REPLY},
    text,
};

pub(in crate::config) static BAN: Mapping = Mapping::new(
    "A rule that bans clients whose requests are denied again and again.",
    "bans.md",
    &[
        Setting::new("key", Kind::Word(&["ip", "user"]), "What is banned: the client's address, or its user.")
            .example("ip")
            .see(&["user"]),
        Setting::new(
            "policies",
            Kind::List(&Kind::Text(&text::RESOURCE), Items::SomeUnique),
            "The policies whose denials count.",
        )
        .unset("all")
        .example("[per-ip]"),
        Setting::new("after", Kind::Text(&text::RATE), "How many denied requests in which time lead to a ban.").example("20/1m"),
        Setting::new("for", Kind::Duration(SECOND, LONGEST), "How long the first ban lasts.").example("5m"),
        Setting::new(
            "factor",
            Kind::Text(&text::FACTOR),
            "The factor by which each further ban in a row is longer.",
        )
        .default("2")
        .example("1.5"),
        Setting::new(
            "jitter",
            Kind::Percentage(true, 50),
            "The share by which each ban is lengthened or shortened at random, so that banned clients do not all return \
             at once.",
        )
        .default("10%")
        .example("20%"),
        Setting::new("max", Kind::Duration(SECOND, LONGEST), "The longest ban.")
            .unset("24h, or `for` if that is longer")
            .example("7d"),
        MODE,
        EXEMPT,
        Setting::new("reply", Kind::Mapping(|| &REPLY), "The response to a banned client.")
            .unset("403 with problem details")
            .example("{ status: 429 }"),
    ],
)
.sample("key: ip, after: 20/1m, for: 5m");

pub(super) static BANS: Mapping = Mapping::new(
    "Rules, each under a name that you choose, and one setting for all bans.",
    "bans.md",
    &[
        Setting::new(
            "close_tunnels",
            Kind::Boolean,
            "Whether a ban also closes the open WebSockets and streams of its client.",
        )
        .default("true")
        .example("false"),
        Setting::new(
            "*",
            Kind::Mapping(|| &BAN),
            "A rule. Its name consists of letters, digits, and `.` `_` `-`.",
        )
        .unset("no rule")
        .example("{ key: ip, after: 20/1m, for: 5m }"),
    ],
);

pub(in crate::config) static ABUSE: Mapping = Mapping::new(
    "What is recorded about limited clients.",
    "admin.md",
    &[
        Setting::new(
            "retain",
            Kind::Duration(SECOND, LONGEST),
            "How long a limited client stays listed after its last denial.",
        )
        .default("24h")
        .example("7d")
        .see(&["policies.*.record.for"]),
        Setting::new(
            "memory",
            Kind::Size(MIB, 16 * TIB),
            "The most memory that these records may take in this process.",
        )
        .unset("a fifth of what the cgroup or the machine has, at most 512MiB")
        .example("128MiB"),
        Setting::new(
            "users",
            Kind::Word(&["plain", "hashed", "off"]),
            "How user IDs are recorded and logged: as they are, as an HMAC with `secret`, or not at all.",
        )
        .default("plain")
        .example("hashed")
        .beside("secret: \"${TOLLGATE_ABUSE_SECRET}\""),
        Setting::new(
            "secret",
            Kind::Text(&text::SECRET),
            "The secret of `users: hashed`, which needs it. Set the same one on every instance.",
        )
        .unset("none")
        .example("\"${TOLLGATE_ABUSE_SECRET}\""),
    ],
)
.rules(&[Rule::RequiredWhere("secret", "users", &["hashed"])]);
