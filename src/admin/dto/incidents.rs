//! Incidents.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema;

/// `GET /v1/incidents`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct IncidentList {
    /// Those that go on first: attacks, then refusals.
    pub incidents: Vec<Incident>,
    /// Outages, a failed reload and warnings, as this instance sees them.
    pub faults: Vec<Fault>,
    /// Customers that are at their limits. They attack nobody.
    pub customers_at_limits: Vec<CustomersAtLimit>,
    /// Redis is away: what other instances see is missing.
    pub partial: bool,
}

/// Something that does not work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Fault {
    /// In words.
    pub text: String,
    /// `null`: it is not known.
    #[schema(value_type = Option<schema::Time>)]
    pub since: Option<String>,
}

/// The customers that a policy denies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CustomersAtLimit {
    pub policy: String,
    pub customers: u64,
}

/// Many requests that belong together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Incident {
    #[schema(value_type = schema::IncidentId)]
    pub id: String,
    #[schema(value_type = schema::IncidentKind)]
    pub kind: String,
    /// Whether somebody attacks. There are no acts on others.
    pub attack: bool,
    /// It in a sentence.
    #[schema(example = "40 addresses, POST /login, password guessing, 13/s at most; 5 were denied")]
    pub text: String,
    #[schema(value_type = schema::Time)]
    pub start: String,
    /// The last of its requests.
    #[schema(value_type = schema::Time)]
    pub last: String,
    /// `null`: it goes on. It ends after ten quiet minutes.
    #[schema(value_type = Option<schema::Time>)]
    pub end: Option<String>,
    /// The most requests of a minute.
    pub peak_per_minute: u32,
    /// The routes that refused its requests, or the policies that denied them.
    pub routes: Vec<String>,
    pub policies: Vec<String>,
    /// The addresses that take part, and how many of them a policy has denied.
    pub addresses: u64,
    pub denied_addresses: usize,
    /// Addresses that were let in after failing.
    pub possible_takeovers: usize,
    /// Requests that were refused or denied.
    pub requests: u64,
    /// Approximate, like the other numbers of different things. 0: none is known.
    pub users: u64,
    pub user_agents: u64,
    /// The network that has most of its addresses; `null` if they are spread.
    pub network: Option<IncidentNetwork>,
    /// Whether it was found while Redis was away, so that what other instances have seen is missing.
    pub partial: bool,
    pub acknowledged: Option<OperatorWord>,
    /// It, and the next of its kind at the same place, are not announced until then.
    #[schema(value_type = Option<schema::Time>)]
    pub muted_until: Option<String>,
}

/// A network with many members of an incident.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IncidentNetwork {
    #[schema(value_type = schema::Prefix)]
    pub prefix: String,
    pub addresses: usize,
}

/// Who has taken an incident on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperatorWord {
    #[schema(value_type = schema::Time)]
    pub time: String,
    pub by: String,
}

/// `GET /v1/incidents/{id}/members`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IncidentMembers {
    /// Possible takeovers first, then those with the most requests.
    pub members: Vec<IncidentMember>,
    #[schema(value_type = Option<schema::Cursor>)]
    pub cursor: Option<String>,
}

/// An address of an incident.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IncidentMember {
    #[schema(value_type = schema::Client)]
    pub address: String,
    /// Responses with 401 or 403, and how many of them refused attempts to log in.
    pub refused: u32,
    pub attempts: u32,
    /// Attempts that succeeded after one had failed.
    pub let_in: u32,
    /// Other requests with 2xx or 3xx since then.
    pub served: u32,
    pub denied: u32,
    #[schema(value_type = schema::Time)]
    pub first: String,
    #[schema(value_type = schema::Time)]
    pub last: String,
    /// What it seems to be, if a policy has denied it.
    #[schema(value_type = Option<schema::Hint>)]
    pub hint: Option<String>,
    pub possible_takeover: bool,
    /// Why no act on the incident is done to it; `null`: it is.
    #[schema(value_type = Option<schema::SparedBecause>)]
    pub spared: Option<String>,
    pub banned: bool,
}

/// The body of `POST /v1/incidents/{id}/ban`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewIncidentBan {
    /// A duration as in proxy.yaml.
    #[serde(rename = "for")]
    #[schema(value_type = schema::Lasts)]
    pub lasts: String,
    /// By default, what the incident is.
    #[serde(default)]
    #[schema(value_type = Option<schema::Reason>)]
    pub reason: Option<String>,
    /// Only these members. By default all but possible takeovers.
    #[serde(default)]
    #[schema(value_type = Option<Vec<schema::Client>>, max_items = 16384)]
    pub addresses: Option<Vec<String>>,
}

/// The body of `POST /v1/incidents/{id}/unblock`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewIncidentUnblock {
    /// Only these members. By default all that are banned or were denied.
    #[serde(default)]
    #[schema(value_type = Option<Vec<schema::Client>>, max_items = 16384)]
    pub addresses: Option<Vec<String>>,
}

/// The body of `POST /v1/incidents/{id}/mute`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewIncidentMute {
    #[serde(rename = "for")]
    #[schema(value_type = schema::Lasts)]
    pub lasts: String,
}

/// What was done to the members of an attack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IncidentActed {
    /// The members that were banned.
    pub addresses: usize,
    /// The members that were spared, and why.
    pub spared: Vec<SparedMember>,
    /// `false`: it was not sent to the other instances yet. Sending is retried.
    pub shared: bool,
}

/// How many members of an attack were unblocked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IncidentUnblocked {
    pub addresses: usize,
    /// Members that there was no time for: repeat the request.
    pub left: usize,
    /// `false`: it was not sent to the other instances yet. Sending is retried.
    pub shared: bool,
}

/// A member of an incident that no act is done to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SparedMember {
    #[schema(value_type = schema::Client)]
    pub address: String,
    #[schema(value_type = schema::SparedBecause)]
    pub because: String,
}
