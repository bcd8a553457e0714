//! Customers: whose keys they are, and what they have used.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{LimitUsage, Unlimited, UsedUnits, schema};

/// `GET /v1/customers`: the customers of API keys, in the order of their names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Customers {
    pub customers: Vec<Customer>,
    /// The month of `requests` and `units`. `null`: no history is kept.
    #[schema(value_type = Option<schema::Month>)]
    pub month: Option<String>,
    #[schema(value_type = Option<schema::Cursor>)]
    pub cursor: Option<String>,
}

/// A customer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Customer {
    pub name: String,
    /// The plans of its keys. Empty: the policies' own limits hold.
    pub plans: Vec<String>,
    /// Keys that are valid.
    pub keys: usize,
    /// The limits that hold for it now, under each of its plans.
    pub limits: Vec<LimitUsage>,
    pub unlimited: Vec<Unlimited>,
    /// How much of its tightest limit is used, in percent. `null`: nothing limits it.
    pub share: Option<u64>,
    /// All requests of this month. `null`: no history is kept.
    pub requests: Option<u64>,
    /// The denied ones among them.
    pub denied: Option<u64>,
    /// What each policy has charged this month.
    pub units: Vec<UsedUnits>,
    /// When it was denied last, within a day.
    #[schema(value_type = Option<schema::Time>)]
    pub last_denied: Option<String>,
}

/// `PUT /v1/customers/{customer}/plan`: the body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CustomerPlan {
    /// `null`: no plan.
    #[schema(value_type = Option<schema::KeyName>)]
    pub plan: Option<String>,
}

/// The keys of a customer whose plan was set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MovedCustomer {
    pub customer: String,
    pub plan: Option<String>,
    /// The IDs of the keys that have the plan now.
    pub changed: Vec<String>,
    /// The IDs of keys that had it already.
    pub unchanged: Vec<String>,
    /// The IDs of keys in the file, which keep their plans.
    pub in_file: Vec<String>,
    /// What is not right about the plan.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Whether all instances have the change.
    pub shared: bool,
}
