//! How much of its limits the customer of an API key has used.

use futures_util::future::try_join_all;

use super::{context::HandlerContext, limit_key::LimitKey, problem::Problem};
use crate::{
    abuse::{UserNaming, bans::normalize_user},
    api_keys::KeyField,
    config::model::{Condition, KeyPart},
    limit::{LimitUsage, Policy, StoreAdmin},
};

/// The use of a policy's limit by a customer. `None`: the plan has no limit of this policy.
#[derive(Debug)]
pub(super) struct CustomerUsage {
    pub(super) policy: String,
    pub(super) usage: Option<LimitUsage>,
}

/// The use of every policy that counts by customer alone. `plan`: that of the key.
///
/// # Errors
/// The store is unavailable.
pub(super) async fn customer_usage(
    context: &HandlerContext,
    customer: &str,
    plan: Option<&str>,
) -> Result<Vec<CustomerUsage>, Problem> {
    let config = context.state.active_config.snapshot();
    let identifier = format!("customer:{}", normalize_user(customer));
    let key = LimitKey::parse(&identifier, config.ipv6_prefix(), &UserNaming::default());
    let key = key.map_err(Problem::bad_request)?;
    let read = async |policy: &Policy| {
        let usage = match applicable(policy, customer, plan) {
            Some(limits) => Some(context.store.peek(limits, &key.text).await?),
            None => None,
        };
        Ok(CustomerUsage { policy: policy.name.clone(), usage })
    };
    try_join_all(config.policies().iter().filter(|policy| counts_by_customer(policy)).map(read)).await
}

fn counts_by_customer(policy: &Policy) -> bool {
    policy.keys.iter().any(|recipe| matches!(recipe.0.as_slice(), [KeyPart::OfKey(KeyField::Customer)]))
}

/// The limits of a policy for the requests of a customer, by any of its keys of this plan. `None`: there are none.
fn applicable<'p>(policy: &'p Policy, customer: &str, plan: Option<&str>) -> Option<&'p Policy> {
    let is_of = |condition: &Condition| match condition {
        Condition::OfKey { field: KeyField::Customer, value } => value == customer,
        Condition::OfKey { field: KeyField::Plan, value } => plan == Some(value),
        _ => false,
    };
    policy.applicable(is_of).ok().map(|(_, limits)| limits)
}
