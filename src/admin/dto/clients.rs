//! Limited clients, and who was behind them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Ban, ClearedLimit, LimitUsage, bans::is_shared, schema};

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
    /// When nothing holds it any more: the end of its last limit and of the bans of it and of prefixes around it. It may be
    /// in the past: addresses stay listed for some time.
    #[schema(value_type = schema::Time)]
    pub until: String,
    #[schema(value_type = schema::AddressState)]
    pub state: String,
    /// When the last ban of it or of a prefix around it ends; `null` where there is none that denies requests.
    #[schema(value_type = Option<schema::Time>)]
    pub banned_until: Option<String>,
    /// The last unblock; `null` where there was none. What was denied before is kept as evidence. The address may have been
    /// denied again since: then its state is another than `unblocked`.
    pub unblocked: Option<Unblock>,
    pub denied: u64,
    pub distinct_users: usize,
    /// What the address seems to be.
    #[schema(value_type = schema::Hint)]
    pub hint: String,
    /// What the hint is drawn from: a line for operators.
    #[schema(example = "312 users, 94 % of answers 401 or 403, all to /api/login")]
    pub hint_reason: String,
}

/// When an address was unblocked, and by whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unblock {
    #[schema(value_type = schema::Time)]
    pub time: String,
    /// The operator; `null` for a moment where another instance was asked.
    pub by: Option<String>,
}

/// `GET /v1/blocked/{ip}`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Evidence {
    #[serde(flatten)]
    pub address: BlockedAddress,
    /// Newest first.
    pub records: Vec<Record>,
    /// The users in the records, the one with most records first.
    pub users: Vec<RecordedUser>,
    /// Those whose key is the address, and others that denied its requests: by a user, a header and the like, the ten that free
    /// last.
    pub limits: Vec<LimitUsage>,
    /// How many limits of others denied its requests besides these.
    #[serde(default)]
    pub more_limits: usize,
    /// Of the address and of prefixes around it.
    pub bans: Vec<Ban>,
}

/// A user in the records of an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecordedUser {
    /// `null` stands for all requests without a user.
    pub user: Option<String>,
    pub records: usize,
    /// When the ban of the user ends; `null` where there is none that denies requests.
    #[schema(value_type = Option<schema::Time>)]
    pub banned_until: Option<String>,
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct User {
    pub user: String,
    /// Denied requests of this user, from all addresses.
    pub denied: u64,
    /// When the ban of the user ends; `null` where there is none that denies requests.
    #[schema(value_type = Option<schema::Time>)]
    pub banned_until: Option<String>,
    /// Of exactly this user.
    pub bans: Vec<Ban>,
    /// The limits whose key is the user, and those with the user in their key that denied a request.
    pub limits: Vec<LimitUsage>,
    /// The user's last requests in the records of the addresses, newest first.
    pub records: Vec<UserRecord>,
    /// The most recently denied first.
    pub addresses: Vec<UserAddress>,
}

/// A request of a user: one that used up a limit, or one that was denied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserRecord {
    #[schema(value_type = schema::Time)]
    pub time: String,
    #[schema(value_type = schema::Client)]
    pub address: String,
    pub method: String,
    pub path: String,
    pub policy: String,
}

/// An address that a user was limited from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserAddress {
    #[schema(value_type = schema::Client)]
    pub address: String,
    /// Denied requests of this user from this address.
    pub denied: u64,
    /// How many of them had a verified user. The others only claimed to be of the user, as any client can.
    #[serde(default)]
    pub verified: u64,
    #[schema(value_type = schema::Time)]
    pub last: String,
    /// When the last ban of the address or of a prefix around it ends; `null` where there is none that denies requests.
    #[schema(value_type = Option<schema::Time>)]
    pub banned_until: Option<String>,
}

/// `DELETE /v1/blocked/{ip}`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unblocked {
    #[schema(value_type = schema::Client)]
    pub address: String,
    pub cleared: Vec<ClearedLimit>,
    pub bans_lifted: u64,
    /// `false`: the other instances have not been told yet, so the bans are lifted at this one alone. It goes on trying.
    #[serde(default = "is_shared")]
    pub shared: bool,
    /// The bans of prefixes around the address, which still hold.
    pub still_banned: Vec<Ban>,
    /// The records of the address. They are kept.
    pub records_kept: usize,
    /// Other keys that were denied behind the address and are not cleared: users, API keys.
    pub other_keys: Vec<String>,
}
