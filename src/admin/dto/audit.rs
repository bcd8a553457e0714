//! The audit log.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema;

/// `GET /v1/audit`: the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Audit {
    pub entries: Vec<AuditEntry>,
    #[schema(value_type = Option<schema::Cursor>)]
    pub cursor: Option<String>,
}

/// A change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    #[schema(value_type = schema::Time)]
    pub time: String,
    /// Its author: `operator at 127.0.0.1`, `bans.hammering`.
    pub by: String,
    /// `unblock`, `ban`, `lift`, `reset`, `drain`, `undrain`, `reload`, `not_reloaded`
    #[schema(value_type = schema::Action)]
    pub action: String,
    /// The target of the change: an address, a key, a policy with a key, a configuration.
    pub target: String,
    pub detail: String,
    /// The instance that made it.
    pub instance: String,
}
