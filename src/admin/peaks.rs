//! `GET /v1/policies/{name}/peaks`: how close clients come to the limits of a policy, and what another limit would do.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    context::HandlerContext,
    dto::{self, KeyPeak, LimitChange, LimitPeaks, PeakQuantiles, PolicyPeaks, ShareOfKeys},
    extract::{PolicyParam, Query},
    openapi::LookupErrors,
    problem::Problem,
};
use crate::{
    limit::{Policy, algorithm::Kind},
    peaks::{Distribution, SampledKey},
    telemetry::time::format_duration,
};

/// The greatest limit.
const MAX_LIMIT: u64 = 1_000_000_000;
/// Keys that are named for a limit, at most.
const NAMED: usize = 10;
/// The bounds of the shares, in percent of the limit.
const SHARES: [u32; 5] = [25, 50, 75, 90, 100];

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct PeaksQuery {
    /// What would a limit of so many units do? With `gcra`, it is the size of the bucket.
    #[param(minimum = 1, maximum = 1_000_000_000, example = 60)]
    pub(super) limit: Option<u64>,
    /// The window of that limit, if the policy has several: `1m`.
    #[param(min_length = 1, example = "1m")]
    pub(super) window: Option<String>,
    /// Percent of the keys that `suggested` spares.
    #[param(minimum = 0, maximum = 100, example = 99.9)]
    pub(super) spare: Option<f64>,
}

/// Shows how close clients come to the limits of a policy: the highest use of each key in one window, in the last 24
/// hours, on this instance.
#[utoipa::path(
    get,
    path = "/v1/policies/{name}/peaks",
    operation_id = "peaks",
    tag = "limits",
    params(("name" = String, Path, description = "the policy", example = "per-ip"), PeaksQuery),
    responses((status = 200, body = PolicyPeaks, description = "the peaks of each limit on each route"), LookupErrors)
)]
pub(super) async fn peaks(
    State(context): State<Arc<HandlerContext>>,
    PolicyParam(name): PolicyParam,
    Query(query): Query<PeaksQuery>,
) -> Result<Json<PolicyPeaks>, Problem> {
    peaks_dto(&context, &name, &query).map(Json)
}

pub(super) fn peaks_dto(
    context: &HandlerContext,
    name: &str,
    query: &PeaksQuery,
) -> Result<PolicyPeaks, Problem> {
    if query.limit.is_some_and(|limit| !(1..=MAX_LIMIT).contains(&limit)) {
        return Err(Problem::bad_request(format!("limit: expected a number from 1 to {MAX_LIMIT}")));
    }
    if query.spare.is_some_and(|spare| !(0.0..=100.0).contains(&spare)) {
        return Err(Problem::bad_request("spare: expected a number from 0 to 100, in percent"));
    }
    let configured = context.state.active_config.snapshot();
    let (config, policies) = (configured.rules.config(), configured.policies());
    let index = configured
        .policy_named(name)
        .ok_or_else(|| Problem::not_found(format!("no policy is named {}", name.escape_debug())))?;
    let policy = policies
        .get(index)
        .ok_or_else(|| Problem::not_found(format!("no policy is named {}", name.escape_debug())))?;
    check_window(policy, query)?;
    let names = context.state.registry.names();
    let distributions = configured.peaks.distributions(index, context.state.clock.now());
    let limits = distributions.iter().filter_map(|(name, tier, distribution)| {
        let limits = name.limits(policies)?;
        let route = config.routes.get(name.route)?.name.clone();
        let mut peaks = limit_peaks(route, name.condition(policies), (limits, *tier), distribution, query);
        let change = peaks.change.iter_mut().flat_map(|change| &mut change.examples);
        for of in peaks.highest.iter_mut().chain(change) {
            of.key = names.mask_key(&of.key).into_owned();
        }
        Some(peaks)
    });
    Ok(PolicyPeaks {
        policy: policy.name.clone(),
        algorithm: policy.algorithm().to_owned(),
        mode: if policy.is_shadow { "shadow" } else { "enforce" }.to_owned(),
        limits: limits.collect(),
    })
}

/// Checks that the query says which limit it is about.
fn check_window(policy: &Policy, query: &PeaksQuery) -> Result<(), Problem> {
    let mut windows: Vec<String> = Vec::new();
    for of in
        policy.variants().flat_map(|limits| (0..limits.tiers.len()).filter_map(|tier| window(limits, tier)))
    {
        if !windows.contains(&of) {
            windows.push(of);
        }
    }
    match &query.window {
        None if query.limit.is_some() && windows.len() > 1 => Err(Problem::bad_request(format!(
            "window: policy {} has several limits; say which one: {}",
            policy.name,
            windows.join(", ")
        ))),
        Some(_) if windows.is_empty() => Err(Problem::bad_request(format!(
            "window: policy {} counts requests in progress, and has no window",
            policy.name
        ))),
        Some(asked) if !windows.contains(asked) => Err(Problem::bad_request(format!(
            "window: policy {} has no limit for {}; its windows: {}",
            policy.name,
            asked.escape_debug(),
            windows.join(", ")
        ))),
        _ => Ok(()),
    }
}

/// The window of the tier at this index, as operators write it.
fn window(policy: &Policy, tier: usize) -> Option<String> {
    match (policy.kind, policy.calendar(tier)) {
        (Kind::Concurrency, _) => None,
        (_, Some(calendar)) => Some(calendar.to_string()),
        _ => Some(format_duration(policy.tiers.get(tier)?.window)),
    }
}

/// `of`: the policy or the override, and the index of its tier.
fn limit_peaks(
    route: String,
    condition: Option<String>,
    of: (&Policy, usize),
    found: &Distribution,
    query: &PeaksQuery,
) -> LimitPeaks {
    let (policy, tier) = of;
    let units = match policy.kind {
        Kind::Gcra { burst, .. } => burst,
        _ => policy.tiers.get(tier).map_or(0, |tier| tier.limit),
    };
    let window = window(policy, tier);
    let is_asked = query.window.is_none() || query.window == window;
    let quantiles = || {
        let [p50, p90, p99, p99_9, max] = [0.5, 0.9, 0.99, 0.999, 1.0].map(|share| found.quantile(share));
        Some(PeakQuantiles { p50: p50?, p90: p90?, p99: p99?, p99_9: p99_9?, max: max? })
    };
    LimitPeaks {
        route,
        condition,
        limit: policy.limits().nth(tier).unwrap_or_default(),
        units,
        window,
        keys: found.keys(found.sampled()),
        sampled: found.sampled() as u64,
        exact: found.is_exact(),
        quantiles: quantiles(),
        shares: shares(units, found),
        highest: named(found.above(0)),
        suggested: query.spare.and_then(|spare| found.quantile(spare / 100.0)),
        change: query.limit.filter(|_| is_asked).map(|limit| change(units, limit, found)),
    }
}

fn shares(units: u64, found: &Distribution) -> Vec<ShareOfKeys> {
    let at_most = |percent: u32| found.sampled() - found.above(scaled(units, percent)).len();
    let lower = std::iter::once(0).chain(SHARES);
    let upper = SHARES.into_iter().map(Some).chain([None]);
    let share = |(above, up_to): (u32, Option<u32>)| {
        let below = if above == 0 { 0 } else { at_most(above) };
        let keys = up_to.map_or(found.sampled(), at_most) - below;
        ShareOfKeys { above, up_to, keys: found.keys(keys), share: found.share(keys) }
    };
    lower.zip(upper).map(share).collect()
}

/// So many percent of the units, rounded down.
fn scaled(units: u64, percent: u32) -> u64 {
    units.saturating_mul(percent.into()) / 100
}

fn change(units: u64, limit: u64, found: &Distribution) -> LimitChange {
    let (denied, denied_now) = (found.above(limit), found.above(units).len());
    LimitChange {
        limit,
        denied: found.keys(denied.len()),
        denied_share: found.share(denied.len()),
        newly_denied: found.keys(denied.len().saturating_sub(denied_now)),
        freed: found.keys(denied_now.saturating_sub(denied.len())),
        examples: named(denied),
    }
}

/// The last of these keys, the highest peak first.
fn named(keys: &[SampledKey]) -> Vec<KeyPeak> {
    keys.iter().rev().take(NAMED).map(dto::KeyPeak::from).collect()
}

impl From<&SampledKey> for KeyPeak {
    fn from(SampledKey { key, peak }: &SampledKey) -> Self {
        Self { key: key.to_string(), peak: *peak }
    }
}
