//! The record of an API key.

use std::collections::BTreeMap;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use super::KeyHash;

/// An API key. All times are in microseconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKey {
    /// Names the key in lists and logs. It is no secret.
    pub id: CompactString,
    /// Its secrets: never empty, two while one is rotated. Newest last.
    pub secrets: Vec<KeySecret>,
    pub customer: CompactString,
    /// Its plan. `None`: the policies' own limits hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<CompactString>,
    /// The operators' name for it.
    pub name: CompactString,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    pub created: i64,
    /// From then on it is not valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<i64>,
    /// The names of the routes that it is valid for. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<String>,
    pub state: KeyState,
    /// When it was changed last. Of two versions in the same state, the one that was changed later holds.
    pub changed: i64,
}

/// One of the secrets of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeySecret {
    pub hash: KeyHash,
    pub created: i64,
    /// From then on it is not valid: it was rotated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<i64>,
}

/// Whether a key may be used. Keys that are not active stay as tombstones, so that an instance that was away does not
/// bring them back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyState {
    Active,
    Revoked { at: i64, reason: String },
    Deleted { at: i64 },
}

/// The part of a key's record that identifies requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyField {
    Customer,
    /// The ID of the key.
    ApiKey,
    Plan,
}

impl KeyField {
    /// All fields.
    pub const ALL: [Self; 3] = [Self::Customer, Self::ApiKey, Self::Plan];

    /// Its name in `proxy.yaml`, and in identifiers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Customer => "customer",
            Self::ApiKey => "api_key",
            Self::Plan => "plan",
        }
    }

    /// The name of its attribute in traces.
    pub const fn attribute(self) -> &'static str {
        match self {
            Self::Customer => "tollgate.customer",
            Self::ApiKey => "tollgate.api_key",
            Self::Plan => "tollgate.plan",
        }
    }

    /// The field of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name() == name)
    }
}

impl KeyState {
    /// A key only ever gets a state whose number is as great, or greater: a revocation can't be undone.
    pub const fn finality(&self) -> u8 {
        match self {
            Self::Active => 0,
            Self::Revoked { .. } => 1,
            Self::Deleted { .. } => 2,
        }
    }
}

impl ApiKey {
    /// Whether the key, or its secret with this hash, which was rotated, has expired at the time `now`.
    pub fn has_expired(&self, hash: &KeyHash, now: i64) -> bool {
        let is_over = |expires: Option<i64>| expires.is_some_and(|expires| expires <= now);
        is_over(self.expires)
            || self.secrets.iter().any(|secret| is_over(secret.expires) && secret.hash == *hash)
    }

    /// The value of `field`. `None`: the key has no plan.
    pub fn field(&self, field: KeyField) -> Option<&str> {
        match field {
            KeyField::Customer => Some(&self.customer),
            KeyField::ApiKey => Some(&self.id),
            KeyField::Plan => self.plan.as_deref(),
        }
    }

    /// Whether the key may be used for the route of this name.
    pub fn is_valid_for(&self, route: &str) -> bool {
        self.routes.is_empty() || self.routes.iter().any(|name| name == route)
    }
}
