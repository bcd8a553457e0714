//! The reply of routes with `usage: true`: the limits of the request's API key, and what is left of them.

use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

use super::{checks::is_met, reply::Reply, request_context::RequestContext};
use crate::{
    api_keys::{ApiKey, KeyField},
    config::model::{KeyPart, KeyRecipe},
    identity::{Identity, identifier},
    limit::{
        Check, DecisionSource, Store,
        algorithm::{Detail, Verdict},
    },
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

impl From<Verdict> for TightestUsage {
    fn from(Verdict { limit, remaining, reset, .. }: Verdict) -> Self {
        let reset = reset.max(0).unsigned_abs().div_ceil(1_000_000);
        Self { limit, used: limit.saturating_sub(remaining), remaining, reset }
    }
}

/// The reply for the holder of a key. It takes nothing from the limits. The store is asked once about all of them;
/// while it is away, nobody knows what is left.
pub(super) async fn reply<S: Store>(store: &S, context: &RequestContext<'_, '_>) -> Reply {
    let Some(key) = context.found.identity.valid_key() else {
        let detail = "The usage of limits is shown for a valid API key.";
        return Reply::problem(StatusCode::FORBIDDEN, detail);
    };
    let (ApiKey { customer, id, plan, .. }, identity) = (key, &context.found.identity);
    let (mut rows, mut checks) = (Vec::new(), Vec::new());
    for policy in context.rules.policies.iter().filter(|policy| !policy.is_shadow) {
        for recipe in policy.keys.iter().filter(|recipe| is_of_holder(recipe, identity)) {
            let Some(identifier) = identifier(recipe, context.attributes()) else { continue };
            let limited = policy.applicable(|of| is_met(of, context)).ok();
            rows.push((&*policy.name, limited.map(|_| checks.len())));
            checks.extend(limited.map(|(_, policy)| Check {
                policy,
                identifier,
                cost: 0,
                detail: Detail::None,
            }));
        }
    }
    let decision = store.look(&checks).await.ok();
    let Some(decision) = decision.filter(|decision| decision.source != DecisionSource::Fallback) else {
        return Reply::undecided();
    };
    let row = |(policy, limited): (_, Option<usize>)| {
        let Some(nth) = limited else { return Some(PolicyUsage::Unlimited { policy, unlimited: true }) };
        let (check, verdict) = (checks.get(nth)?, *decision.verdicts.get(nth)?);
        let (key, limits) = (check.identifier.to_string(), check.policy.limits().collect());
        Some(PolicyUsage::Limited { policy, key, limits, tightest: verdict.into() })
    };
    let limits = rows.into_iter().filter_map(row).collect();
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
