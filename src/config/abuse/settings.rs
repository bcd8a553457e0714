//! `abuse` and `bans`: the settings of records and of bans, and the rules that they become.

use std::time::Duration;

use serde::Serialize;
use tollgate_derive::{Settings, Word};

use crate::config::{
    listeners::settings::Secret,
    policies::{
        denial_reply::{DenialReply, ReplySettings},
        settings::{ExemptSettings, Mode},
    },
    reader::{Cursor, MappingCursor, NamedEntry},
    value::{factor, key::Condition, rate, rate::Rate},
    written::serialize,
};

/// A rule that bans clients, each time for longer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BanRule {
    pub name: String,
    pub key: BanKey,
    /// The policies whose denials count, by index. `None`: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policies: Option<Vec<usize>>,
    /// The number of denied requests, and the window, that lead to a ban.
    pub after: Rate,
    /// How long the first ban lasts.
    #[serde(rename = "for", serialize_with = "serialize::duration")]
    pub first_duration: Duration,
    /// How many times longer each further ban lasts, at least 1.
    pub factor: f64,
    /// The share by which each ban is randomly longer or shorter, 0 to 0.5.
    #[serde(serialize_with = "serialize::percentage")]
    pub jitter: f64,
    /// The longest a ban may last; at least `first_duration`.
    #[serde(serialize_with = "serialize::duration")]
    pub max: Duration,
    pub mode: Mode,
    /// Clients that the rule does not apply to.
    pub exempt: Vec<Condition>,
    /// The response to a banned client.
    pub reply: DenialReply,
}

impl BanRule {
    /// Whether a denial by the policy of this index counts.
    pub fn counts(&self, policy: usize) -> bool {
        self.policies.as_ref().is_none_or(|policies| policies.contains(&policy))
    }
}

/// The identity that is banned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum BanKey {
    /// The client's address.
    Ip,
    User,
}

/// Rules, each under a name that you choose, and one setting for all bans.
#[derive(Settings)]
#[settings(written, page = "bans.md")]
pub(in crate::config) struct BansSettings<'t> {
    /// Whether a ban also closes the open WebSockets and streams of its client.
    #[setting(default = "true", example = "false")]
    pub(in crate::config) close_tunnels: bool,
    /// A rule. Its name consists of letters, digits, and `.` `_` `-`.
    #[setting(
        key = "*",
        mapping(BanSettings),
        unset = "no rule",
        example = "{ key: ip, after: 20/1m, for: 5m }"
    )]
    pub(in crate::config) rules: Vec<NamedEntry<'t>>,
}

/// A rule that bans clients whose requests are denied again and again.
#[derive(Settings)]
#[settings(written, page = "bans.md", sample = "key: ip, after: 20/1m, for: 5m")]
pub(in crate::config) struct BanSettings<'t> {
    /// What is banned: the client's address, or its user.
    #[setting(missing = KEY, example = "ip", see = ["user"])]
    pub(in crate::config) key: Option<BanKey>,
    /// The policies whose denials count.
    #[setting(list(text = RESOURCE, SomeUnique), unset = "all", example = "[per-ip]")]
    pub(in crate::config) policies: Option<Cursor<'t>>,
    /// How many denied requests in which time lead to a ban.
    #[setting(text = RATE, parse = rate, missing = AFTER, example = "20/1m")]
    pub(in crate::config) after: Option<Rate>,
    /// How long the first ban lasts.
    #[setting(key = "for", duration = "1s..=366d", missing = FOR, example = "5m")]
    pub(in crate::config) first_duration: Option<Duration>,
    /// The factor by which each further ban in a row is longer.
    #[setting(text = FACTOR, parse = factor, default = "2", example = "1.5")]
    pub(in crate::config) factor: f64,
    /// The share by which each ban is lengthened or shortened at random, so that banned clients do not all return at
    /// once.
    #[setting(share = "0..=50", default = "10%", example = "20%")]
    pub(in crate::config) jitter: f64,
    /// The longest ban.
    #[setting(duration = "1s..=366d", unset = "24h, or `for` if that is longer", example = "7d")]
    pub(in crate::config) max: Option<Duration>,
    /// `shadow` counts and reports, and denies nothing.
    #[setting(default = "enforce", example = "shadow")]
    pub(in crate::config) mode: Mode,
    #[setting(flatten)]
    pub(in crate::config) exempt: ExemptSettings<'t>,
    /// The response to a banned client.
    #[setting(mapping(ReplySettings), unset = "403 with problem details", example = "{ status: 429 }")]
    #[setting(flags(confidential))]
    pub(in crate::config) reply: Option<Cursor<'t>>,
}

const KEY: &str = "what to ban: `key: ip` or `key: user`";
const AFTER: &str = "the number of denied requests that triggers a ban, such as `after: 20/1m`";
const FOR: &str = "how long the first ban lasts, such as `for: 5m`";

/// What is recorded about limited clients.
#[derive(Debug, Clone, PartialEq, Eq, Settings)]
#[settings(page = "admin.md", rules(RequiredWhere("secret", "users", &["hashed"])), check = hashes_without_secret)]
pub struct Abuse {
    /// How long a limited client stays listed after its last denial.
    #[setting(duration = "1s..=366d", default = "24h", example = "7d", see = ["policies.*.record.for"])]
    pub retain: Duration,
    /// The most memory that these records may take in this process.
    #[setting(
        size = "1MiB..=16TiB",
        unset = "a fifth of what the cgroup or the machine has, at most 512MiB"
    )]
    #[setting(example = "128MiB")]
    pub memory: Option<usize>,
    /// How user IDs are recorded and logged: as they are, as an HMAC with `secret`, or not at all.
    #[setting(default = "plain", example = "hashed", beside = "secret: \"${TOLLGATE_ABUSE_SECRET}\"")]
    pub users: Users,
    /// The secret of `users: hashed`, which needs it. Set the same one on every instance.
    #[setting(text = SECRET, read = Secret::read, unset = "none", example = "\"${TOLLGATE_ABUSE_SECRET}\"")]
    pub secret: Option<Secret>,
}

fn hashes_without_secret(mapping: &MappingCursor<'_>, abuse: Option<&Abuse>) {
    let needs_secret = abuse.is_some_and(|abuse| abuse.users == Users::Hashed && abuse.secret.is_none());
    // A secret that can't be read was reported. An empty one is as good as none.
    let is_missing = mapping.peek("secret").is_none_or(|secret| secret.interpolated().is_some());
    if let Some(users) = mapping.peek("users").filter(|_| needs_secret && is_missing) {
        let help = "set `secret`, to the same value on every instance".to_owned();
        users.report("hashing user IDs needs a secret", help);
    }
}

/// How users are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Word)]
pub enum Users {
    /// By their names.
    Plain,
    /// By a keyed hash of their names.
    Hashed,
    /// Not at all.
    Off,
}
