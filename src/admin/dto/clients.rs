//! Limited clients, and who was behind them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Ban, ClearedLimit, LimitUsage, schema};

/// `GET /v1/blocked`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Blocked {
    pub blocked: Vec<BlockedAddress>,
    /// Where the next page begins; `null` on the last.
    #[schema(value_type = Option<schema::Cursor>)]
    pub cursor: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockedAddress {
    #[schema(value_type = schema::Client)]
    pub address: String,
    pub policies: Vec<String>,
    #[schema(value_type = schema::Time)]
    pub first: String,
    #[schema(value_type = schema::Time)]
    pub last: String,
    /// When its last limit is free again. It may be in the past: addresses stay listed for some time.
    #[schema(value_type = schema::Time)]
    pub until: String,
    pub denied: u64,
    pub distinct_users: usize,
    #[schema(value_type = schema::UsersBehind)]
    pub hint: String,
}

/// `GET /v1/blocked/{ip}`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Evidence {
    #[serde(flatten)]
    pub address: BlockedAddress,
    /// Newest first.
    pub records: Vec<Record>,
    pub limits: Vec<LimitUsage>,
    pub bans: Vec<Ban>,
}

/// A request that used up a limit, or one that was denied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Record {
    #[schema(value_type = schema::Time)]
    pub time: String,
    pub user: Option<String>,
    pub method: String,
    pub path: String,
    pub policy: String,
}

/// `GET /v1/users/{user}`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct User {
    pub user: String,
    /// The most recently denied first.
    pub addresses: Vec<UserAddress>,
}

/// An address that a user was limited from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserAddress {
    #[schema(value_type = schema::Client)]
    pub address: String,
    /// Denied requests of this user from this address.
    pub denied: u64,
    #[schema(value_type = schema::Time)]
    pub last: String,
}

/// `DELETE /v1/blocked/{ip}`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unblocked {
    #[schema(value_type = schema::Client)]
    pub address: String,
    pub cleared: Vec<ClearedLimit>,
    pub bans_lifted: u64,
    /// Other keys that were denied behind the address and are not cleared: users, API keys.
    pub other_keys: Vec<String>,
}
