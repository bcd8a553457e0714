//! What is kept of limited clients, and who is banned for being limited again and again.

use std::time::Duration;

use serde::Serialize;

use super::{Condition, DenialReply, Mode, Rate, Secret, serialize};

/// A rule by which a ladder of bans is climbed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BanRule {
    pub name: String,
    pub key: BanKey,
    /// So many denied requests in so long shut out.
    pub after: Rate,
    /// How long the first ban lasts.
    #[serde(rename = "for", serialize_with = "serialize::duration")]
    pub first_duration: Duration,
    /// How much longer each further one is, at least 1.
    pub factor: f64,
    /// By what share each ban is longer or shorter at random, 0 to 0.5.
    #[serde(serialize_with = "serialize::percentage")]
    pub jitter: f64,
    /// How long any ban lasts at most; no less than the first.
    #[serde(serialize_with = "serialize::duration")]
    pub max: Duration,
    pub mode: Mode,
    /// Whom it does not hold for.
    pub exempt: Vec<Condition>,
    /// What whoever is shut out is told.
    pub reply: DenialReply,
}

/// Who is shut out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BanKey {
    /// The client's address.
    Ip,
    User,
}

/// What is kept of limited clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Abuse {
    /// How long a limited client stays listed.
    #[serde(serialize_with = "serialize::duration")]
    pub retain: Duration,
    pub users: Users,
    /// By which users are hashed. [`Users::Hashed`] always has one.
    pub secret: Option<Secret>,
}

/// How users are written down.
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
