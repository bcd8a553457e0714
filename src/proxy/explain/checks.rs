//! The decisions of a route's policies on a request.

use compact_str::CompactString;

use super::explanation::{CheckVerdict, ExplainedCheck};
use crate::{
    config::model::{KeyRecipe, Missing},
    identity::{RequestAttributes, identifier, identifiers},
    limit::{
        Check, Decision, Policy,
        algorithm::{Kind, Verdict},
    },
    proxy::{
        checks::{Checks, SkipReason},
        outcome::VariantRef,
        request_context::RequestContext,
        rules::Rules,
    },
};

/// The checks that the store was asked about, with its decision, and the keys that the request lacks.
pub(super) fn decided(
    checks: &Checks<'_>,
    decision: Option<&Decision>,
    context: &RequestContext<'_, '_>,
) -> Vec<ExplainedCheck> {
    let (rules, uses) = (context.rules, context.uses());
    let in_shadow = checks
        .denied_in_shadow
        .iter()
        .filter_map(|&index| Some(unidentified(index, rules.policies.get(index)?)));
    let asked = checks.iter().enumerate().map(|(nth, (check, variant))| {
        let verdict = decision.and_then(|decision| decision.verdicts.get(nth).copied());
        let decided = decision.zip(verdict).map(|(decision, verdict)| (verdict, decision.time));
        checked(context, check, variant, decided)
    });
    in_shadow.chain(asked).chain(skipped_keys(rules, checks, &uses)).collect()
}

pub(super) const LACKS_KEYS: &str = "the request has none of the policy's keys (missing: deny)";

/// Sorts by the order in which the route names its policies.
pub(super) fn sort(rows: &mut [ExplainedCheck], context: &RequestContext<'_, '_>) {
    rows.sort_by_key(|row| context.route.policies.iter().position(|of| of.policy == row.index));
}

/// A check that the store was asked about.
fn checked(
    context: &RequestContext<'_, '_>,
    check: &Check<'_>,
    variant: VariantRef,
    decided: Option<(Verdict, i64)>,
) -> ExplainedCheck {
    let (rules, policy) = (context.rules, check.policy);
    let mut why = Vec::new();
    let nth = (variant.variant as usize).checked_sub(1);
    let configured = rules.policies.get(variant.policy);
    if let Some((of, _)) = nth.and_then(|nth| configured?.overrides.get(nth)) {
        why.push(format!("override for {}", of.shown()));
    }
    if let Some(absent) = absent_keys(policy, &check.identifier, &context.uses()) {
        why.push(format!("used because the request has no {absent}"));
    }
    if context.route.policy(variant.policy).is_some_and(|of| of.price.is_some()) {
        why.push("cost set for this route".to_owned());
    }
    let (decided, time) = decided.unzip();
    let verdict = match decided {
        None | Some(Verdict::UNKNOWN) => CheckVerdict::Unknown,
        Some(verdict) if verdict.admitted => CheckVerdict::Allowed,
        Some(_) => CheckVerdict::Denied,
    };
    let known = decided.filter(|_| verdict != CheckVerdict::Unknown);
    if let Some(verdict) = known {
        let calendar = policy.calendar(verdict.tier).zip(time);
        let limit = match calendar {
            Some((calendar, now)) => {
                Some(format!("{}/{} ends {}", verdict.limit, calendar.unit(), calendar.end(now)))
            }
            None => policy.limits().nth(verdict.tier),
        };
        match limit {
            Some(limit) if policy.kind == Kind::Concurrency => why.push(limit),
            Some(limit) if policy.tiers.len() > 1 => why.push(format!("tightest limit: {limit}")),
            Some(limit) if calendar.is_some() => why.push(limit),
            _ => {}
        }
        if verdict.delay > 0 {
            let delayed = if policy.is_shadow { "would be delayed" } else { "delayed" };
            why.push(format!("{delayed} by {}ms", (verdict.delay + 999) / 1_000));
        }
        if !verdict.admitted && verdict.retry_after.is_none() {
            why.push("its cost is above the limit, so it is never admitted".to_owned());
        }
        if verdict.admitted && policy.count.is_some() {
            why.push("refunded unless the response counts".to_owned());
        }
        if verdict.admitted && policy.cost.of_response().is_some() {
            why.push("reserved until the response tells the cost".to_owned());
        }
    }
    ExplainedCheck {
        key: check.identifier.to_string(),
        cost: check.cost,
        limit: known.map_or_else(|| limit(policy), |verdict| verdict.limit),
        used: known.map(|verdict| verdict.limit.saturating_sub(verdict.remaining)),
        remaining: known.map(|verdict| verdict.remaining),
        retry_after: known.filter(|verdict| !verdict.admitted).and_then(|verdict| verdict.retry_after),
        verdict,
        ..row(variant.policy, policy, why.join("; "))
    }
}

/// A check that the store was not asked about.
fn row(index: usize, policy: &Policy, because: String) -> ExplainedCheck {
    ExplainedCheck {
        policy: policy.name.clone(),
        key: policy.keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        algorithm: policy.algorithm(),
        cost: 0,
        limit: limit(policy),
        used: None,
        remaining: None,
        retry_after: None,
        verdict: CheckVerdict::Skipped,
        is_shadow: policy.is_shadow,
        because,
        index,
    }
}

fn limit(policy: &Policy) -> u64 {
    policy.tiers.first().map_or(0, |tier| tier.limit)
}

pub(super) fn unidentified(index: usize, policy: &Policy) -> ExplainedCheck {
    ExplainedCheck { verdict: CheckVerdict::Denied, ..row(index, policy, LACKS_KEYS.to_owned()) }
}

/// A policy that counts by what the body says, which is not known.
pub(super) fn unread(index: usize, policy: &Policy) -> ExplainedCheck {
    let because = "it counts by the body, which the question does not tell (`--body`)".to_owned();
    ExplainedCheck { verdict: CheckVerdict::Unknown, ..row(index, policy, because) }
}

pub(super) fn skipped(
    index: usize,
    policy: &Policy,
    why: SkipReason<'_>,
    attributes: &RequestAttributes<'_>,
) -> ExplainedCheck {
    let (verdict, because) = match why {
        SkipReason::Preflight => (CheckVerdict::Exempt, "CORS preflight requests are not counted".to_owned()),
        SkipReason::Exempt(of) => (CheckVerdict::Exempt, format!("exempt: {}", of.shown())),
        SkipReason::LacksValues(_) => {
            let values: Vec<String> = policy.value_names.iter().map(|name| format!("value:{name}")).collect();
            (CheckVerdict::Skipped, format!("the request has no {}", values.join(" or ")))
        }
        SkipReason::NoBody => (CheckVerdict::Exempt, "a request without a body costs no tokens".to_owned()),
        SkipReason::Question => (
            CheckVerdict::Skipped,
            "it needs the response, the body or the end, which another proxy has".to_owned(),
        ),
        SkipReason::Usage => {
            (CheckVerdict::Exempt, "the usage of limits is shown, and takes nothing from them".to_owned())
        }
        SkipReason::NoValue(_) => {
            let value = policy.value.as_ref().map(ToString::to_string).unwrap_or_default();
            (CheckVerdict::Skipped, format!("the request has no {value} to count"))
        }
    };
    let row = row(index, policy, because);
    match identifiers(&policy.keys, policy.missing, attributes) {
        Ok(known) => ExplainedCheck { verdict, key: known.join(", "), ..row },
        Err(_) => ExplainedCheck { verdict, ..row },
    }
}

/// The keys of checked policies that the request lacks, so that they are skipped.
fn skipped_keys<'a>(
    rules: &'a Rules,
    checks: &Checks<'_>,
    uses: &'a [RequestAttributes<'a>],
) -> impl Iterator<Item = ExplainedCheck> + use<'a> {
    let mut checked: Vec<usize> = checks.iter().map(|(_, variant)| variant.policy).collect();
    checked.dedup();
    let policies = checked.into_iter().filter_map(|index| Some((index, rules.policies.get(index)?)));
    policies.filter(|(_, policy)| policy.missing == Missing::Skip).flat_map(move |(index, policy)| {
        let lacks = policy.keys.iter().filter(move |recipe| !has_key(recipe, uses));
        lacks.map(move |recipe| {
            let why = "not in the request".to_owned();
            ExplainedCheck { key: recipe.to_string(), ..row(index, policy, why) }
        })
    })
}

/// Whether a call of the request has the key.
fn has_key(recipe: &KeyRecipe, uses: &[RequestAttributes<'_>]) -> bool {
    uses.iter().any(|attributes| identifier(recipe, attributes).is_some())
}

/// The keys that the request lacks, if it is limited by its address instead.
fn absent_keys(policy: &Policy, key: &CompactString, uses: &[RequestAttributes<'_>]) -> Option<String> {
    let is_made = |recipe: &KeyRecipe| {
        uses.iter().any(|attributes| identifier(recipe, attributes).as_ref() == Some(key))
    };
    if policy.keys.iter().any(is_made) {
        return None;
    }
    let lacks = policy.keys.iter().filter(|recipe| !has_key(recipe, uses));
    Some(lacks.map(ToString::to_string).collect::<Vec<_>>().join(", "))
}
