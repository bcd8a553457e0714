//! The reply of routes with `usage: true`: the limits of the request's API key, and what is left of them.

use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

use super::{checks::is_met, reply::Reply, request_context::RequestContext};
use crate::{
    api_keys::{ApiKey, KeyField},
    config::model::{KeyPart, KeyRecipe},
    identity::{Identity, identifier},
    limit::{LimitUsage, Policy, StoreAdmin},
};

#[derive(Serialize)]
struct Usage<'a> {
    customer: &'a str,
    api_key: &'a str,
    plan: Option<&'a str>,
    limits: Vec<PolicyUsage<'a>>,
}

/// The use of one policy's limits.
#[derive(Serialize)]
#[serde(untagged)]
enum PolicyUsage<'a> {
    Limited {
        policy: &'a str,
        /// What the units are counted by: `customer:acme`.
        key: String,
        /// `1000000/month`. Several: all apply.
        limits: Vec<String>,
        /// Of the limit of which the least is left.
        #[serde(flatten)]
        tightest: TightestUsage,
    },
    Unlimited {
        policy: &'a str,
        unlimited: bool,
    },
}

#[derive(Serialize)]
struct TightestUsage {
    limit: u64,
    used: u64,
    remaining: u64,
    /// Seconds until units are free again; 0: none are used.
    reset: u64,
}

impl From<LimitUsage> for TightestUsage {
    fn from(LimitUsage { used, verdict }: LimitUsage) -> Self {
        let reset = verdict.reset.max(0).unsigned_abs().div_ceil(1_000_000);
        Self { limit: verdict.limit, used, remaining: verdict.remaining, reset }
    }
}

/// The reply for the holder of a key. It takes nothing from the limits.
pub(super) async fn reply<S: StoreAdmin>(store: &S, context: &RequestContext<'_, '_>) -> Reply {
    let Some(key) = context.found.identity.valid_key() else {
        let detail = "The usage of limits is shown for a valid API key.";
        return Reply::problem(StatusCode::FORBIDDEN, detail);
    };
    let (ApiKey { customer, id, plan, .. }, identity) = (key, &context.found.identity);
    let mut limits = Vec::new();
    for policy in context.rules.policies.iter().filter(|policy| !policy.is_shadow) {
        for recipe in policy.keys.iter().filter(|recipe| is_of_holder(recipe, identity)) {
            let Some(identifier) = identifier(recipe, context.attributes()) else { continue };
            let Some(limited) = applicable(policy, context) else {
                limits.push(PolicyUsage::Unlimited { policy: &policy.name, unlimited: true });
                continue;
            };
            let Ok(usage) = store.peek(limited, &identifier).await else { return Reply::undecided() };
            limits.push(PolicyUsage::Limited {
                policy: &policy.name,
                key: identifier.into(),
                limits: limited.limits().collect(),
                tightest: usage.into(),
            });
        }
    }
    let usage = Usage { customer, api_key: id, plan: plan.as_deref(), limits };
    let Ok(body) = serde_json::to_vec(&usage) else { return Reply::undecided() };
    let mut reply = Reply::json(StatusCode::OK, "".into(), body.into());
    reply.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply.headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

/// Whether only the holder of the key, or its customer, is counted under this key of a policy.
fn is_of_holder(recipe: &KeyRecipe, identity: &Identity) -> bool {
    let is_own = |part: &KeyPart| match part {
        KeyPart::OfKey(KeyField::Customer | KeyField::ApiKey) => true,
        KeyPart::User => identity.is_verified,
        _ => false,
    };
    // Others have the plan, too.
    let is_plan = |part: &KeyPart| *part == KeyPart::OfKey(KeyField::Plan);
    recipe.0.iter().any(is_own) && recipe.0.iter().all(|part| is_own(part) || is_plan(part))
}

/// The limits that apply to the request. `None`: it is not limited.
fn applicable<'r>(policy: &'r Policy, context: &RequestContext<'r, '_>) -> Option<&'r Policy> {
    if policy.exempt.iter().any(|of| is_met(of, context)) {
        return None;
    }
    if let Some((_, variant)) = policy.overrides.iter().find(|(of, _)| is_met(of, context)) {
        return Some(variant);
    }
    (!policy.unlimited.iter().any(|of| is_met(of, context))).then_some(policy)
}
