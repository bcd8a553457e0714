//! The reply of routes with `usage: true`: the limits of the request's API key, and what is left of them.

use std::sync::Arc;

use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

use super::{reply::Reply, request_context::RequestContext};
use crate::{
    api_keys::{ApiKey, KeyField},
    config::model::{KeyPart, KeyRecipe},
    identity::{Identity, RequestAttributes, condition_matches, identifier},
    limit::{
        Check, DecisionSource, Store,
        algorithm::{Detail, Verdict},
    },
    request_values::{FoundValue, FoundValues, RequestValue},
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
            for values in grouped_values(recipe, &context.rules.config().values) {
                let attributes = RequestAttributes { values: &values, ..*context.attributes() };
                let Some(identifier) = identifier(recipe, &attributes) else { continue };
                let address = context.known_address();
                let limited = policy.applicable(|of| condition_matches(of, &attributes, address)).ok();
                let row = (&*policy.name, limited.map(|_| checks.len()));
                // A policy without a limit is shown once, not for each group.
                if row.1.is_some() || rows.last() != Some(&row) {
                    rows.push(row);
                }
                checks.extend(limited.map(|(_, policy)| Check {
                    policy,
                    identifier,
                    cost: 0,
                    detail: Detail::None,
                }));
            }
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

/// The most limits of a key that are shown, one for each group of a value.
const MAX_GROUPS: usize = 64;

/// The groups of the values in a key: each has a limit of its own. One value without any, for a key without values; none, if a
/// value has no groups, so that its texts are not known.
fn grouped_values(recipe: &KeyRecipe, known: &[Arc<RequestValue>]) -> Vec<FoundValues> {
    let mut all: Vec<Vec<(Arc<RequestValue>, FoundValue)>> = vec![Vec::new()];
    for name in recipe.value_names() {
        let Some(value) = known.iter().find(|value| value.name == name) else { return Vec::new() };
        let groups = value.group_names().map(|group| (Arc::clone(value), FoundValue::Text(group.into())));
        let groups: Vec<_> = groups.collect();
        let with = |begin: &Vec<_>| {
            groups
                .iter()
                .map(move |group| [&**begin, std::slice::from_ref(group)].concat())
                .collect::<Vec<_>>()
        };
        all = all.iter().flat_map(with).take(MAX_GROUPS).collect();
    }
    all.into_iter().map(FoundValues::known).collect()
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
    let is_value = |part: &KeyPart| matches!(part, KeyPart::Value(_));
    recipe.0.iter().any(is_own) && recipe.0.iter().all(|part| is_own(part) || is_plan(part) || is_value(part))
}
