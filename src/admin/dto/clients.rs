//! Limited clients, and who was behind them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Ban, ClearedLimit, LimitUsage, Unlimited, bans::is_shared, schema};

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
    /// The end of its last limit, and of bans of it and of prefixes around it. It may be in the past: addresses are
    /// listed for some time after it.
    #[schema(value_type = schema::Time)]
    pub until: String,
    #[schema(value_type = schema::AddressState)]
    pub state: String,
    /// The end of the last ban of it or of a prefix around it; `null` if none denies requests.
    #[schema(value_type = Option<schema::Time>)]
    pub banned_until: Option<String>,
    /// The last unblock; `null` if there was none. Earlier denials are kept as evidence. If the address was denied
    /// again since, its state is not `unblocked`.
    pub unblocked: Option<Unblock>,
    pub denied: u64,
    pub distinct_users: usize,
    /// A guess at the kind of client.
    #[schema(value_type = schema::Hint)]
    pub hint: String,
    /// The reason for the hint: a line for operators.
    #[schema(example = "312 users, 94 % of answers 401 or 403, all to /api/login")]
    pub hint_reason: String,
    /// What would help, in a sentence; `null` if the hint says it all.
    #[serde(default)]
    pub hint_advice: Option<String>,
}

/// When an address was unblocked, and by whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unblock {
    #[schema(value_type = schema::Time)]
    pub time: String,
    /// The operator; `null` for a moment after an unblock at another instance.
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
    /// Limits whose key is the address, and the limits with other keys (users, headers and the like) that denied its
    /// requests: the ten of them that end last.
    pub limits: Vec<LimitUsage>,
    /// Policies that do not limit these keys, because of a plan or an exemption.
    #[serde(default)]
    pub unlimited: Vec<Unlimited>,
    /// Number of limits with other keys that denied its requests and are not listed.
    #[serde(default)]
    pub more_limits: usize,
    /// Bans of the address and of prefixes around it.
    pub bans: Vec<Ban>,
}

/// A user in the records of an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecordedUser {
    /// `null`: requests without a user.
    pub user: Option<String>,
    pub records: usize,
    /// The end of the user's ban; `null` if none denies requests.
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
    /// The end of the user's ban; `null` if none denies requests.
    #[schema(value_type = Option<schema::Time>)]
    pub banned_until: Option<String>,
    /// Of exactly this user.
    pub bans: Vec<Ban>,
    /// The limits that hold for the user, by the user's name and by API key, and those that denied a request of the user.
    pub limits: Vec<LimitUsage>,
    /// Policies that do not limit the user, because of a plan or an exemption.
    #[serde(default)]
    pub unlimited: Vec<Unlimited>,
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
    /// Those of them with a verified user. The others only claimed to be of the user, as any client can.
    #[serde(default)]
    pub verified: u64,
    #[schema(value_type = schema::Time)]
    pub last: String,
    /// The end of the last ban of the address or of a prefix around it; `null` if none denies requests.
    #[schema(value_type = Option<schema::Time>)]
    pub banned_until: Option<String>,
}

/// `DELETE /v1/blocked/{ip}`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unblocked {
    #[schema(value_type = schema::Client)]
    pub address: String,
    pub cleared: Vec<ClearedLimit>,
    /// Redis was away: the limits were cleared at this instance alone, and may be left in Redis and at the others.
    #[serde(default)]
    pub redis_away: bool,
    pub bans_lifted: u64,
    /// `false`: it was not sent to the other instances yet, so the bans are lifted at this one alone. Sending is
    /// retried.
    #[serde(default = "is_shared")]
    pub shared: bool,
    /// Bans of prefixes around the address, which still apply.
    pub still_banned: Vec<Ban>,
    /// Number of records of the address, which are kept.
    pub records_kept: usize,
    /// Other keys that were denied behind the address and are not cleared: users, API keys.
    pub other_keys: Vec<String>,
}
