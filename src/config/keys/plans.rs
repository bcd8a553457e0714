//! `plans`: names for limits of policies, which API keys refer to.

use crate::{
    api_keys::KeyField,
    config::{
        FileLocation,
        checks::key_limits,
        policies::{
            cost::Cost,
            limits::{complete, plan_tiers},
            overrides::check_limits,
            settings::{Override, PolicySettings, ReadPolicies},
        },
        reader::Cursor,
        request_values::{
            resolve::ReadValues,
            settings::{AllowedValues, Plan},
        },
        value::{key::Condition, rate::Quota, resource_name},
    },
};

/// A plan, and its limits by the names of their policies.
pub(in crate::config) struct PlanLimits<'t> {
    name: &'t str,
    allow_values: Vec<AllowedValues>,
    limits: Vec<(FileLocation, &'t str, Cursor<'t>)>,
}

/// The word for a plan that a policy does not limit.
const UNLIMITED: &str = "unlimited";

/// The setting of a plan that is no limit of a policy.
pub(in crate::config) const ALLOW_VALUES: &str = "allow_values";

/// Reads all plans but their limits, which are read with the policies.
pub(in crate::config) fn plans<'t>(
    value: Option<Cursor<'t>>,
    has_api_keys: bool,
    values: &ReadValues<'_>,
) -> Vec<PlanLimits<'t>> {
    let Some(value) = value else { return Vec::new() };
    if !has_api_keys {
        let help = "set where keys come from: `api_keys: { file: keys.yaml }`".to_owned();
        value.report("no request has a plan, because `api_keys` is not configured", help);
    }
    let mut plans = Vec::new();
    for (location, name, limits) in value.named_entries().unwrap_or_default() {
        if let Err(invalid) = resource_name(name) {
            limits.report_at(location, format!("`{name}` {}", invalid.reason), invalid.help(false));
        }
        let allow_values = values.allowed(limits.entry(ALLOW_VALUES));
        let limits = limits.named_entries().unwrap_or_default().into_iter();
        let limits = limits.filter(|(_, policy, _)| *policy != ALLOW_VALUES).collect();
        plans.push(PlanLimits { name, allow_values, limits });
    }
    plans
}

/// The plans, without their limits.
pub(in crate::config) fn resolved(plans: Vec<PlanLimits<'_>>) -> Vec<Plan> {
    let plan = |of: PlanLimits<'_>| Plan { name: of.name.to_owned(), allow_values: of.allow_values };
    plans.into_iter().map(plan).collect()
}

/// Reports limits of policies that do not exist.
pub(in crate::config) fn report_unknown_policies(plans: &[PlanLimits<'_>], policies: &ReadPolicies<'_>) {
    for (location, name, value) in plans.iter().flat_map(|plan| &plan.limits) {
        if let Err(invalid) = policies.names.find(name) {
            value.report_at(*location, invalid.about_written(name), invalid.help(false));
        }
    }
}

/// The limits of all plans for the policy of this name, whose own ones are `own`; and the plans that it does not limit.
pub(in crate::config) fn limits(
    policy: &str,
    plans: &[PlanLimits<'_>],
    settings: &PolicySettings<'_>,
    cost: &Cost,
    own: Option<&[Quota]>,
) -> (Vec<Override>, Vec<Condition>) {
    let (mut overrides, mut unlimited) = (Vec::new(), Vec::new());
    for plan in plans {
        let of_policy = plan.limits.iter().filter(|(_, name, _)| *name == policy);
        for (_, _, value) in of_policy {
            let condition = Condition::OfKey { field: KeyField::Plan, value: plan.name.to_owned() };
            if value.scalar() == Some(UNLIMITED) {
                unlimited.push(condition);
                continue;
            }
            let Some((kind, tiers)) = settings.algorithm.zip(plan_tiers(*value, settings)) else { continue };
            let other = Override { condition, algorithm: complete(kind, settings, None, &tiers), tiers };
            check_limits(*value, &other, settings, cost);
            if let Some(own) = own {
                key_limits::warn_of_other_windows(*value, &other.tiers, own);
            }
            overrides.push(other);
        }
    }
    (overrides, unlimited)
}
