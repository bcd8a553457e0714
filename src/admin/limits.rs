//! `/v1/limits`: shows the usage of limits, and resets them.

use std::{collections::BTreeSet, sync::Arc};

use axum::{Json, extract::State};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    ConfigSnapshot,
    context::{HandlerContext, to_completion},
    dto::{self, schema},
    extract::{Operator, Query},
    held_limits::Holder,
    limit_key::LimitKey,
    openapi::{LookupErrors, NotFoundError, UnavailableError, WriteErrors},
    problem::Problem,
};
use crate::{
    abuse::UserNaming,
    limit::{ClearedLimit, LimitUsage, Policy, StoreAdmin, Unavailable},
    telemetry::time::format_duration,
};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitsQuery {
    /// Only this policy. Without it, every policy that can have the key.
    #[param(min_length = 1, example = "per-ip")]
    policy: Option<String>,
    /// The key as in the store: `ip:203.0.113.7` (or `203.0.113.7`), `user:acme`, `ip:203.0.113.7+path:/a`.
    #[param(value_type = schema::LimitKey)]
    key: String,
}

/// Shows the usage of the limits that hold for a key now: by its plan, overrides and exemptions.
#[utoipa::path(
    get,
    path = "/v1/limits",
    operation_id = "peek",
    tag = "limits",
    params(LimitsQuery),
    responses((status = 200, body = dto::Limits, description = "the current usage of the limits"), LookupErrors, UnavailableError)
)]
pub(super) async fn peek(
    State(context): State<Arc<HandlerContext>>,
    Query(query): Query<LimitsQuery>,
) -> Result<Json<dto::Limits>, Problem> {
    limits(&context, &query).await.map(Json)
}

async fn limits(context: &HandlerContext, query: &LimitsQuery) -> Result<dto::Limits, Problem> {
    let (config, names) = (context.state.active_config.snapshot(), context.state.registry.names());
    let (key, policies, is_named) = policies_with_key(&config, &names, query)?;
    let holder = Holder::new(context, key.clone(), Vec::new()).await;
    let mut limits = dto::Limits::default();
    for policy in policies.into_iter().filter_map(|index| config.policies().get(index)) {
        // Policies that have the key only as a fallback are listed only if they were used.
        holder.read(context, policy, !is_named && !key.is_keyed(policy), &mut limits).await?;
    }
    Ok(limits)
}

/// Resets the limits of exactly this key on every instance, and lists them. Composites that begin with the key are not
/// reset, and an address is still listed as blocked.
#[utoipa::path(
    delete,
    path = "/v1/limits",
    operation_id = "reset",
    tag = "limits",
    params(LimitsQuery),
    responses(
        (status = 200, body = dto::ResetLimits, description = "the limits that were reset"),
        WriteErrors,
        NotFoundError,
        UnavailableError
    )
)]
pub(super) async fn clear(
    State(context): State<Arc<HandlerContext>>,
    by: Operator,
    Query(query): Query<LimitsQuery>,
) -> Result<Json<dto::ResetLimits>, Problem> {
    to_completion(async move {
        let (config, names) = (context.state.active_config.snapshot(), context.state.registry.names());
        let (key, policies, _) = policies_with_key(&config, &names, &query)?;
        let policies: Vec<Policy> =
            policies.into_iter().filter_map(|index| config.policies().get(index)).cloned().collect();
        let left = "limits may be left in Redis";
        let (cleared, redis_away) = match context.store.clear(&policies, &key.text).await {
            Ok(cleared) => (cleared, false),
            Err(Unavailable::ClearedHere(cleared)) => (cleared.0, true),
            Err(unavailable) => {
                context.audit(&by, "reset", &key.text, left);
                return Err(Problem::partly_done(&unavailable, left));
            }
        };
        let of: BTreeSet<&str> = cleared.iter().map(|limit| limit.policy.as_str()).collect();
        let mut of = of.into_iter().collect::<Vec<_>>().join(", ");
        if redis_away {
            of = format!("{of} at this instance; {left}");
        }
        context.audit(&by, "reset", &key.text, &of);
        let cleared = cleared.into_iter().map(dto::ClearedLimit::from).collect();
        Ok(Json(dto::ResetLimits { cleared, redis_away }))
    })
    .await
}

/// The key, the indexes of the policies that can have it, and whether the query names the policy.
fn policies_with_key(
    config: &ConfigSnapshot,
    names: &UserNaming,
    query: &LimitsQuery,
) -> Result<(LimitKey, Vec<usize>, bool), Problem> {
    let key = LimitKey::parse(&query.key, config.ipv6_prefix(), names).map_err(Problem::bad_request)?;
    let policies = config.policies();
    if let Some(name) = &query.policy {
        let index = config
            .policy_named(name)
            .ok_or_else(|| Problem::not_found(format!("no policy is named {}", name.escape_debug())))?;
        let may = policies.get(index).is_some_and(|policy| key.may_be_of(policy));
        return match may {
            true => Ok((key, vec![index], true)),
            false => Err(Problem::not_found(format!("policy {name} has no key of the form {}", key.text))),
        };
    }
    let may: Vec<usize> = (0..policies.len()).filter(|&index| key.may_be_of(&policies[index])).collect();
    match may.is_empty() {
        true => Err(Problem::not_found(format!("no policy has a key of the form {}", key.text))),
        false => Ok((key, may, false)),
    }
}

impl dto::LimitUsage {
    /// `policy`: the variant that was read. `now`: in microseconds.
    pub(super) fn new(
        policy: &Policy,
        key: &str,
        condition: Option<String>,
        peek: &LimitUsage,
        now: i64,
    ) -> Self {
        Self {
            policy: policy.name.clone(),
            key: key.to_owned(),
            used: peek.used,
            limit: peek.verdict.limit,
            remaining: peek.verdict.remaining,
            // In seconds, rounded up, as in the headers that clients get.
            reset: format_duration(peek.verdict.reset.saturating_add(999_999) / 1_000_000 * 1_000_000),
            condition,
            window_ends: policy.calendar(peek.verdict.tier).map(|calendar| calendar.end(now)),
        }
    }
}

impl From<ClearedLimit> for dto::ClearedLimit {
    fn from(limit: ClearedLimit) -> Self {
        Self { policy: limit.policy, key: limit.identifier }
    }
}
