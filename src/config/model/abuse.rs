//! What is recorded about limited clients, and who is banned for being denied too often.

use std::time::Duration;

use serde::Serialize;

use super::{Condition, DenialReply, Mode, Rate, Secret, serialize};

/// A rule that bans clients, each time for longer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BanRule {
    pub name: String,
    pub key: BanKey,
    /// The policies whose denials count, by index. `None`: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policies: Option<Vec<usize>>,
    /// How many denied requests in how long lead to a ban.
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
    /// The reply to a banned client.
    pub reply: DenialReply,
}

impl BanRule {
    /// Whether a denial by the policy of this index counts.
    pub fn counts(&self, policy: usize) -> bool {
        self.policies.as_ref().is_none_or(|policies| policies.contains(&policy))
    }
}

/// What identifies a banned client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BanKey {
    /// The client's address.
    Ip,
    User,
}

/// What is recorded about limited clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Abuse {
    /// How long a limited client stays listed.
    #[serde(serialize_with = "serialize::duration")]
    pub retain: Duration,
    /// How many bytes evidence may take in this process. `None`: a share of the memory that the process may take.
    #[serde(serialize_with = "serialize::optional_size", skip_serializing_if = "Option::is_none")]
    pub memory: Option<usize>,
    pub users: Users,
    /// The key of the hash of users. [`Users::Hashed`] always has one.
    pub secret: Option<Secret>,
}

/// How users are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Users {
    /// By their names.
    Plain,
    /// By a keyed hash of their names.
    Hashed,
    /// Not at all.
    Off,
}
