//! `policies` of a route or of an upstream: which policies apply, and what their requests cost.

use serde::Serialize;
use tollgate_derive::Settings;

use crate::config::{
    policies::{
        checks::why_one_unit,
        cost::Cost,
        limits::max_admissible,
        resolve_cost::admitted,
        settings::{Policy, ReadPolicies},
    },
    reader::Cursor,
    settings::{Read, opened},
    value::{Invalid, MAX_LIMIT, number},
};

/// A policy, and what requests cost in place of its own `cost`.
#[derive(Settings)]
#[settings(written, page = "policies.md#set-a-price-for-each-route", sample = "name: per-ip")]
pub(in crate::config) struct RoutePolicySettings<'t> {
    /// The name of the policy.
    #[setting(text = RESOURCE, missing = "the name of a policy, such as `name: points`", example = "per-ip")]
    name: Option<Cursor<'t>>,
    /// How many units a request takes, in place of the policy's `cost`. The price of a route precedes that of its
    /// upstream.
    #[setting(
        count = "1..=1000000000",
        unset = "the upstream's, or else the policy's `cost`",
        example = "5"
    )]
    #[setting(see = ["policies.*.cost"])]
    cost: Option<Cursor<'t>>,
}

/// Reads `policies` of a route or of an upstream. Wrong items are reported and left out.
pub(in crate::config) fn route_policies(list: Cursor<'_>, policies: &ReadPolicies<'_>) -> Vec<RoutePolicy> {
    let mut all: Vec<RoutePolicy> = Vec::new();
    for item in list.list().unwrap_or_default() {
        let Some((name, of)) = route_policy(item, policies) else { continue };
        let Some(earlier) = all.iter().find(|earlier| earlier.policy == of.policy) else {
            all.push(of);
            continue;
        };
        let help = "keep one of the two: a policy has one price for all requests of a route".to_owned();
        let word = name.scalar().map_or("this".to_owned(), |word| format!("`{word}`"));
        name.report(format!("{word} is in this list twice"), (earlier.price != of.price).then_some(help));
    }
    all
}

/// The policies that apply to a route: those of its upstream, then its own. A price of its own replaces the upstream's.
pub(in crate::config) fn with_inherited(
    inherited: Vec<RoutePolicy>,
    own: Vec<RoutePolicy>,
) -> Vec<RoutePolicy> {
    let mut all = inherited;
    for own in own {
        match all.iter_mut().find(|of| of.policy == own.policy) {
            Some(of) => of.price = own.price.or(of.price),
            None => all.push(own),
        }
    }
    all
}

/// One item, and the place of the policy's name.
fn route_policy<'t>(item: Cursor<'t>, policies: &ReadPolicies<'_>) -> Option<(Cursor<'t>, RoutePolicy)> {
    if !item.is_mapping() {
        return Some((item, RoutePolicy::unpriced(policies.names.resolve(item)?)));
    }
    if let Some((name, cost)) = item.only_entry()
        && policies.names.find(name).is_ok()
    {
        let cost = cost.scalar().unwrap_or("COST");
        let help = format!("did you mean `{{ name: {name}, cost: {cost} }}`?");
        item.report("`name` is missing", help);
        return None;
    }
    let mut mapping = opened::<RoutePolicySettings<'_>>(item)?;
    let settings = RoutePolicySettings::fields(&mut mapping);
    mapping.finish();
    let RoutePolicySettings { name, cost } = settings?;
    let name = name?;
    let policy = policies.names.resolve(name)?;
    let Some(cost) = cost else { return Some((name, RoutePolicy::unpriced(policy))) };
    if cost.is_mapping() {
        let help =
            "a header that holds the cost is a setting of the policy: `cost: { header: NAME, max: UNITS }`";
        cost.report("a price is a number of units", help.to_owned());
        return None;
    }
    let price = match policies.get(policy) {
        Some(of) => price(cost, of)?,
        // Its errors were reported.
        None => cost.parse(number(1..=MAX_LIMIT))?,
    };
    Some((name, RoutePolicy { policy, price: Some(price) }))
}

/// Reads the price of a request under `policy`.
fn price(value: Cursor<'_>, policy: &Policy) -> Option<u64> {
    if let Some((message, help)) = unpriceable(policy) {
        value.report(message, help);
        return None;
    }
    value.parse(|text| {
        let price = admitted(text, Some(policy.algorithm), Some((policy.algorithm, &policy.tiers)))?;
        for other in &policy.overrides {
            let (most, setting) = max_admissible(other.algorithm, &other.tiers);
            if price > most {
                let reason = format!(
                    "is more than {setting} of {}, so none of their requests would ever be admitted",
                    other.condition.shown()
                );
                return Err(
                    Invalid::new(reason).expected(format!("set at most {most}, or raise {setting} there"))
                );
            }
        }
        Ok(price)
    })
}

/// Why a policy takes no price: the message and the help.
fn unpriceable(policy: &Policy) -> Option<(String, String)> {
    let (name, algorithm) = (&policy.name, policy.algorithm);
    if let Some(why) = why_one_unit(algorithm) {
        let help = format!("{why}; write `{name}` alone");
        return Some((
            format!("`{name}` takes no price, because it has `algorithm: {}`", algorithm.name()),
            help,
        ));
    }
    match policy.cost {
        Cost::Fixed(_) | Cost::Header { .. } => None,
        Cost::Response(_) => {
            let message = format!("`{name}` takes no price, because the response tells its cost");
            Some((message, format!("write `{name}` alone")))
        }
    }
}

/// A policy, as it applies to the requests of one route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RoutePolicy {
    /// Its index in [`Config::policies`](crate::config::resolved::Config::policies).
    pub policy: usize,
    /// The units that a request takes, in place of the policy's own cost. At least 1.
    pub price: Option<u64>,
}

impl RoutePolicy {
    /// The policy at this index, with its own cost.
    pub const fn unpriced(policy: usize) -> Self {
        Self { policy, price: None }
    }
}
