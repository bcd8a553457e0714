//! `policies`: the settings of a policy, and the policy that they become.

use std::{sync::Arc, time::Duration};

use serde::Serialize;
use tollgate_derive::{Settings, Word};

use crate::config::{
    FileLocation,
    policies::{
        algorithm::Algorithm,
        calendar::{Calendar, TimeZone},
        cost::{Cost, CostSettings},
        denial_reply::{DenialReply, ReplySettings},
    },
    reader::{Cursor, MappingCursor, NameTable, NamedEntry},
    settings::{Kind, text},
    value::{
        MAX_LIMIT, grpc_status,
        key::{Condition, KeyRecipe},
        rate::{Quota, Window},
        status_range,
    },
    written::serialize,
};

/// Limits, and which requests they apply to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Policy {
    pub name: String,
    #[serde(flatten)]
    pub algorithm: Algorithm,
    /// Never empty; keys are limited independently.
    #[serde(rename = "key")]
    pub keys: Vec<KeyRecipe>,
    pub missing: Missing,
    /// For `distinct` alone: the value that is counted.
    pub value: Option<KeyRecipe>,
    /// Never empty; exactly one where the algorithm has no tiers. Windows differ from one another. Of
    /// `concurrency` the window is the lease.
    #[serde(rename = "limits")]
    pub tiers: Vec<Quota>,
    /// For windows of the calendar, those of the overrides, too.
    #[serde(flatten)]
    pub calendar: Calendar,
    /// If set, only requests with such a response count.
    pub count: Option<CountedResponses>,
    pub on_store_error: OnStoreError,
    pub record: RecordedFields,
    pub cost: Cost,
    pub mode: Mode,
    /// Whether requests that the policy denies are counted as well.
    pub count_denied: bool,
    /// Whether CORS preflights are counted.
    pub preflight: bool,
    /// Whether descriptors are charged past the limit, and may give units back.
    pub overdraw: bool,
    /// The share of a window's quota that an instance may take at once, 0 to 1. Not 0: `fixed_window` with one
    /// tier.
    #[serde(serialize_with = "serialize::percentage")]
    pub slice: f64,
    /// Clients that the policy does not apply to.
    pub exempt: Vec<Condition>,
    /// Other limits for some clients; the first that matches wins.
    pub overrides: Vec<Override>,
    /// The plans without a limit, unless an override matches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unlimited: Vec<Condition>,
    /// The reply to a denied client; `None`: 429 and problem details.
    pub reply: Option<DenialReply>,
}

impl Policy {
    /// A policy with every default.
    pub fn new(
        name: impl Into<String>,
        algorithm: Algorithm,
        keys: Vec<KeyRecipe>,
        tiers: Vec<impl Into<Quota>>,
    ) -> Self {
        Self {
            name: name.into(),
            algorithm,
            keys,
            missing: Missing::Skip,
            value: None,
            tiers: tiers.into_iter().map(Into::into).collect(),
            calendar: Calendar { time_zone: TimeZone::UTC, reset_day: 1 },
            count: None,
            on_store_error: OnStoreError::Local,
            record: RecordedFields::default(),
            cost: Cost::Fixed(1),
            mode: Mode::Enforce,
            count_denied: false,
            preflight: false,
            overdraw: false,
            slice: 0.0,
            exempt: Vec::new(),
            overrides: Vec::new(),
            unlimited: Vec::new(),
            reply: None,
        }
    }

    /// Whether it, or one of its overrides, has a window of the calendar.
    pub fn has_calendar(&self) -> bool {
        let overrides = self.overrides.iter().flat_map(|other| &other.tiers);
        self.tiers.iter().chain(overrides).any(|tier| matches!(tier.window, Window::Calendar(_)))
    }
}

/// Whether a policy denies requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum Mode {
    Enforce,
    /// Counted and reported, never denies.
    Shadow,
}

/// The statuses of responses that count. Requests with other responses take nothing.
#[derive(Debug, Clone, PartialEq, Eq, Settings)]
#[settings(page = "policies.md#count-failed-logins-or-other-responses", check = check_counted)]
#[settings(rules(AtLeastOne(&["statuses", "grpc_statuses"])))]
pub struct CountedResponses {
    /// HTTP statuses: single ones, ranges, or classes.
    #[setting(list(text = STATUSES, SomeUnique), read = Statuses::read, omit_if = Statuses::is_empty)]
    #[setting(unset = "none; required without `grpc_statuses`", example = "[401, 403, 5xx]")]
    pub statuses: Statuses,
    /// gRPC statuses, by their numbers.
    #[setting(list(text = GRPC_STATUS, SomeUnique), parse = grpc_status, omit_if = Vec::is_empty)]
    #[setting(unset = "none", example = "[16]")]
    pub grpc_statuses: Vec<u32>,
}

fn check_counted(mapping: &MappingCursor<'_>, _: Option<&CountedResponses>) {
    let lists = ["statuses", "grpc_statuses"].map(|key| mapping.peek(key));
    if lists[1].is_none() {
        let help = "the responses that count, such as `statuses: [401, 403]`; of gRPC, `grpc_statuses: [16]`";
        mapping.report_if_missing("statuses", help);
    }
    for list in lists.into_iter().flatten().filter(|list| list.is_empty_list()) {
        let help = "remove `count` to count every request".to_owned();
        list.report("an empty list would count no responses", help);
    }
}

/// Statuses of responses that count.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Statuses(pub Vec<std::ops::RangeInclusive<u16>>);

impl Statuses {
    fn read(list: Cursor<'_>) -> Option<Self> {
        Some(Self(list.unique_items(|item| item.parse(status_range))))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this status is one of them.
    pub fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|range| range.contains(&status))
    }
}

/// Other limits than the policy's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Override {
    pub condition: Condition,
    /// As [`Policy::tiers`].
    #[serde(rename = "limits")]
    pub tiers: Vec<Quota>,
    /// The algorithm of the policy, with the settings of the override.
    #[serde(flatten)]
    pub algorithm: Algorithm,
}

/// The treatment of a request that lacks a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum Missing {
    Skip,
    /// Limit by address instead.
    Ip,
    Deny,
}

/// The treatment of requests while the store is unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum OnStoreError {
    /// Each instance enforces its share in memory.
    Local,
    Allow,
    /// 503.
    Deny,
}

/// What is recorded for each limited address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Settings)]
#[settings(page = "admin.md")]
pub struct RecordedFields {
    /// How many recorded requests are kept for an address. `0` keeps none.
    #[setting(count = "0..=1000", default = "50", example = "100")]
    pub keep: usize,
    /// How long each of them is kept.
    #[setting(key = "for", duration = "1ms..=366d", default = "1h", example = "2h")]
    pub retain: Duration,
}

/// A limit: what it counts, for whom, and what happens to requests beyond it.
#[derive(Settings)]
#[settings(
    written,
    page = "limits.md",
    sample = "algorithm: gcra, key: ip, limit: 100/1s",
    foreign = "policies.*"
)]
#[settings(such_as = "{ algorithm: sliding_window, key: ip, limit: 100/1m }", rules(
    One(&["limit", "limits"]),
    Where("value", "algorithm", &["distinct"]),
    RequiredWhere("value", "algorithm", &["distinct"]),
    Where("buckets", "algorithm", &["sliding_window"]),
    Where("burst", "algorithm", &["gcra"]),
    Where("lease", "algorithm", &["concurrency"]),
    NotWhere("cost", "algorithm", &["concurrency", "distinct"]),
    NotWhere("count", "algorithm", &["concurrency", "distinct"]),
    NotWhere("overdraw", "algorithm", &["concurrency", "distinct", "sliding_log", "metadata_list"]),
    KindWhere("limit", "algorithm", "concurrency", Kind::Count(1, MAX_LIMIT), Kind::Text(&text::QUOTA))
))]
pub(in crate::config) struct PolicySettings<'t> {
    /// How requests are counted. `sliding_log` is exact in any window. `gcra` and `sliding_window` take little memory,
    /// however large the limit is. `concurrency` counts requests in progress, `distinct` counts different values.
    #[setting(missing = &Algorithm::one_of(), example = "sliding_log")]
    pub(in crate::config) algorithm: Option<Algorithm>,
    /// What requests are counted by: `ip`, `user`, `customer`, `api_key`, `plan`, `header:NAME`, `cookie:NAME`,
    /// `query:NAME`, `jwt:CLAIM`, `tls:subject`, `tls:fingerprint`, `path`, `route`, `host`, `method`, `value:NAME`,
    /// `descriptor:NAME`, `global`, or a combination such as `ip+path`. Each key of a list has a limit of its own.
    #[setting(either(text = KEY, list(text = KEY, SomeUnique)), missing = KEYS, example = "[ip, user]")]
    #[setting(see = ["user", "api_keys", "values", "policies.*.missing", "client_address.ipv6_prefix"])]
    pub(in crate::config) key: Option<Cursor<'t>>,
    /// What happens to a request that lacks one of the keys: `skip` ignores that key, `ip` limits the request by its
    /// address instead, `deny` denies it. With `skip`, a request that lacks all keys is limited by its address; but the policy does
    /// not apply to one that lacks the values of `values`.
    #[setting(default = "skip", example = "deny")]
    pub(in crate::config) missing: Missing,
    /// The part of a request whose different values are counted. `key: ip` with `value: user` counts the users behind
    /// an address.
    #[setting(text = KEY, unset = "required with `algorithm: distinct`, not allowed with others", example = "user")]
    #[setting(beside = "algorithm: distinct, key: ip, limit: 20/10m")]
    pub(in crate::config) value: Option<Cursor<'t>>,
    /// How many units (requests, unless `cost` is set) a key may use in which time. With `fixed_window`, the time may be
    /// the calendar's: `hour`, `day`, `week` (from Monday) or `month`, such as `1000/month`. For `concurrency`, a number
    /// alone: how many requests may be in progress.
    #[setting(either(text = QUOTA, count = "1..=1000000000"), example = "100/1s")]
    pub(in crate::config) limit: Option<Cursor<'t>>,
    /// Several limits, at most 32. A request must be within all of them. Only `fixed_window` and `sliding_window` take
    /// more than one.
    #[setting(list(either(text = QUOTA, count = "1..=1000000000"), SomeUnique), unset = "`limit` alone")]
    #[setting(example = "[10/1s, 120/1m]", beside = "algorithm: fixed_window, key: ip")]
    pub(in crate::config) limits: Option<Cursor<'t>>,
    /// The time zone of the calendar, by its name in the IANA database. It decides when hours, days, weeks and months
    /// begin, those of overrides, too.
    #[setting(default = "UTC", example = "Europe/Berlin")]
    #[setting(beside = "algorithm: fixed_window, limit: 1000/month", see = ["policies.*.limit"])]
    pub(in crate::config) time_zone: TimeZone,
    /// The day on which a month of the calendar begins.
    #[setting(count = "1..=28", default = "1", example = "15")]
    #[setting(beside = "algorithm: fixed_window, limit: 1000/month", see = ["policies.*.limit"])]
    pub(in crate::config) reset_day: u8,
    /// The number of parts that each window is divided into. More parts are more exact, and take more memory.
    #[setting(count = "4..=100", default = "10", example = "20", beside = "algorithm: sliding_window")]
    pub(in crate::config) buckets: u32,
    /// How many units may be used at once. They come back at the rate of the limit.
    #[setting(
        count = "1..=1000000000",
        unset = "as many as the limit",
        example = "100",
        beside = "algorithm: gcra"
    )]
    pub(in crate::config) burst: Option<u64>,
    /// How long an excess request may wait for its turn instead of being denied. Only `gcra` takes a delay.
    #[setting(duration = "0..=1h", default = "0s", example = "2s", beside = "algorithm: gcra")]
    #[setting(see = ["policies.*.count"])]
    pub(in crate::config) delay: Duration,
    /// How long a request still counts after its instance has crashed. While the request runs, the lease is renewed.
    #[setting(
        duration = "1s..=1d",
        default = "60s",
        example = "30s",
        beside = "algorithm: concurrency, limit: 8"
    )]
    pub(in crate::config) lease: Duration,
    /// How many units a request takes: a number, the value of a header that trusted proxies send, or what the response
    /// tells.
    #[setting(either(count = "1..=1000000000", mapping(CostSettings)), default = "1", example = "5")]
    #[setting(see = ["trusted_proxies"])]
    pub(in crate::config) cost: Option<Cursor<'t>>,
    /// Counts only requests whose response has one of these statuses, such as failed logins.
    #[setting(
        mapping(CountedResponses),
        unset = "every request counts",
        example = "{ statuses: [401, 403] }"
    )]
    #[setting(see = ["policies.*.count_denied", "policies.*.delay", "policies.*.slice"])]
    pub(in crate::config) count: Option<Cursor<'t>>,
    /// Whether requests that the policy denies count as well.
    #[setting(default = "false", example = "true", see = ["policies.*.count", "policies.*.slice"])]
    pub(in crate::config) count_denied: bool,
    /// The share of a window's limit that an instance takes from Redis at once, to decide on that many requests without
    /// asking again. With `0%`, it asks for each request. Only for `fixed_window` with a single limit, which is not the
    /// calendar's; the slice must be at least two units.
    #[setting(
        share = "0..=50",
        default = "0%",
        example = "5%",
        beside = "algorithm: fixed_window, limit: 1000/1s"
    )]
    #[setting(see = ["policies.*.count", "policies.*.count_denied", "policies.*.limits", "store.redis"])]
    pub(in crate::config) slice: f64,
    /// `shadow` counts and reports, and denies nothing.
    #[setting(default = "enforce", example = "shadow", see = ["policies.*.reply"])]
    pub(in crate::config) mode: Mode,
    /// Charges what a descriptor adds (`hits_addend`) even where it exceeds the limit, but at most a whole limit at once, and
    /// lets it give back units of the present window (`is_negative_hits`). For costs that Envoy reports when a request has
    /// ended (`apply_on_stream_done`).
    #[setting(default = "false", example = "true", see = ["routes[].domain"])]
    pub(in crate::config) overdraw: bool,
    /// Whether CORS preflights count. Browsers send them before some requests.
    #[setting(default = "false", example = "true", see = ["routes[].cors"])]
    pub(in crate::config) preflight: bool,
    #[setting(flatten)]
    pub(in crate::config) exempt: ExemptSettings<'t>,
    /// Other limits for some clients. The first override that matches applies.
    #[setting(list(mapping(OverrideSettings), Any), unset = "the same limits for all", flags(confidential))]
    #[setting(example = "[{ user: acme, limit: 1000/1m }]")]
    pub(in crate::config) overrides: Option<Cursor<'t>>,
    /// What happens while the store does not answer. `local`: each instance enforces its share of the limit in memory.
    /// `allow`: requests are admitted. `deny`: they get 503.
    #[setting(default = "local", example = "deny")]
    #[setting(see = ["store.redis.timeout", "store.redis.breaker.failures"])]
    pub(in crate::config) on_store_error: OnStoreError,
    /// How many denied requests are recorded for each limited address, and for how long. `metadata_list` records all
    /// requests.
    #[setting(mapping, unset = "50 requests, for an hour", example = "{ keep: 100, for: 2h }")]
    #[setting(see = ["abuse.memory"])]
    pub(in crate::config) record: RecordedFields,
    /// The response to a denied request.
    #[setting(mapping(ReplySettings), unset = "429 with problem details", example = "{ status: 503 }")]
    #[setting(flags(confidential))]
    pub(in crate::config) reply: Option<Cursor<'t>>,
}

const KEYS: &str = "what to limit by, such as `key: ip` or `key: [ip, user]`";

/// The clients that a policy or a ban does not apply to.
#[derive(Settings)]
#[settings(written)]
pub(in crate::config) struct ExemptSettings<'t> {
    /// Clients that this does not apply to: addresses, networks, `user:NAME`, `customer:NAME`, `api_key:ID`,
    /// `plan:NAME`, `jwt:CLAIM=VALUE`, `header:NAME=VALUE`, `tls:subject=SUBJECT`, `tls:fingerprint=SHA256`. Only verified values and headers from trusted proxies match.
    #[setting(list(text = CONDITION, Unique), unset = "nobody is exempt", flags(confidential))]
    #[setting(example = "[10.0.0.0/8, \"user:monitor\"]", see = ["user", "trusted_proxies"])]
    pub(in crate::config) exempt: Option<Cursor<'t>>,
}

/// Other limits for the clients, or the values, that match.
#[derive(Settings)]
#[settings(
    written,
    page = "policies.md#exempt-clients-or-give-them-other-limits",
    sample = "user: acme, limit: 1000/1m"
)]
#[settings(rules(
    One(&["limit", "limits"]),
    AtMostOne(&["ip", "user", "customer", "api_key", "plan", "jwt:*", "header:*", "tls:*"]),
    AtLeastOne(&["ip", "user", "customer", "api_key", "plan", "jwt:*", "header:*", "tls:*", "value:*"])
))]
pub(in crate::config) struct OverrideSettings<'t> {
    /// The client's address, or a network that it is in. Each address in the network has the limit for itself.
    #[setting(text = NETWORK, example = "10.0.0.0/8")]
    pub(in crate::config) ip: Option<Cursor<'t>>,
    /// The ID of a user. It must be verified.
    #[setting(text = NAME, example = "acme", see = ["user"])]
    pub(in crate::config) user: Option<Cursor<'t>>,
    /// The customer that the request's API key belongs to.
    #[setting(text = NAME, example = "acme", see = ["api_keys"])]
    pub(in crate::config) customer: Option<Cursor<'t>>,
    /// The ID of the request's API key.
    #[setting(text = NAME, example = "Xk3vT9aLq0", see = ["api_keys"])]
    pub(in crate::config) api_key: Option<Cursor<'t>>,
    /// The plan of the request's API key.
    #[setting(text = NAME, example = "pro", see = ["plans"])]
    pub(in crate::config) plan: Option<Cursor<'t>>,
    /// The value of a claim in a verified token, such as `"jwt:plan": gold`.
    #[setting(key = "jwt:*", text = ANY, example = "gold", see = ["user[].jwt"])]
    pub(in crate::config) jwt: Vec<NamedEntry<'t>>,
    /// The value of a header from trusted proxies, such as `"header:x-plan": gold`.
    #[setting(key = "header:*", text = FIELD_VALUE, example = "gold", see = ["trusted_proxies"])]
    pub(in crate::config) header: Vec<NamedEntry<'t>>,
    /// The subject or the fingerprint of the client's certificate, such as `"tls:subject": CN=acme`.
    #[setting(key = "tls:*", text = ANY, example = "CN=acme", see = ["listeners[].tls.client_ca"])]
    pub(in crate::config) tls: Vec<NamedEntry<'t>>,
    /// A value of the request, such as `"value:model": big`. It may stand beside one of the other conditions. The key of
    /// the policy must have the value, too.
    #[setting(key = "value:*", text = ANY, example = "big", see = ["values"])]
    pub(in crate::config) value: Vec<NamedEntry<'t>>,
    /// The limit of these clients.
    #[setting(either(text = QUOTA, count = "1..=1000000000"), example = "1000/1m")]
    pub(in crate::config) limit: Option<Cursor<'t>>,
    /// Several limits of these clients, as in the policy.
    #[setting(list(either(text = QUOTA, count = "1..=1000000000"), SomeUnique), unset = "`limit` alone")]
    #[setting(example = "[1000/1m]")]
    pub(in crate::config) limits: Option<Cursor<'t>>,
    /// How many units these clients may use at once; only with `algorithm: gcra`.
    #[setting(count = "1..=1000000000", unset = "as many as the limit", example = "200")]
    pub(in crate::config) burst: Option<u64>,
}

/// All policies.
pub(in crate::config) struct ReadPolicies<'t> {
    /// Those that routes, upstreams and plans may name.
    pub(in crate::config) names: NameTable<'t>,
    /// Those whose denials bans may count.
    pub(in crate::config) counted: NameTable<'t>,
    /// In the order of the names. `None`: it is invalid.
    pub(in crate::config) read: Vec<Option<Arc<Policy>>>,
    /// `None` if one is invalid.
    pub(in crate::config) resolved: Option<Vec<Arc<Policy>>>,
    /// In the order of the names: the location of each name, and the policy.
    pub(in crate::config) cursors: Vec<(FileLocation, Cursor<'t>)>,
}

impl ReadPolicies<'_> {
    /// The policy at this index, if it is valid.
    pub(in crate::config) fn get(&self, index: usize) -> Option<&Policy> {
        self.read.get(index)?.as_deref()
    }
}
