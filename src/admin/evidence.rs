//! `GET /v1/blocked/{ip}`: who was behind a blocked address.

use std::{collections::BTreeSet, sync::Arc};

use axum::{Json, extract::State};
use compact_str::CompactString;
use http::StatusCode;

use super::{
    ConfigSnapshot,
    context::HandlerContext,
    dto::{self, schema},
    extract::{ClientParam, NoParams, Query},
    limit_key::variants_apart,
    openapi::{LookupErrors, UnavailableError},
    problem::Problem,
};
use crate::{
    abuse::{self, DenyingLimit, LimitedClient, RequestRecord, UserNaming},
    config::model::{Condition, KeyPart},
    limit::StoreAdmin,
    telemetry::time::rfc3339,
};

/// Shows who was behind an address: its last records, its limits and its bans.
#[utoipa::path(
    get,
    path = "/v1/blocked/{ip}",
    operation_id = "evidence",
    tag = "limited clients",
    params(("ip" = schema::Client, Path, description = "an address, or the prefix that identifies a client")),
    responses(
        (
            status = 200,
            body = dto::Evidence,
            description = "the records, limits and bans of the address",
            links(
                ("user" = (operation_id = "user", parameters(("user" = "$response.body#/records/0/user")))),
                ("limit" = (operation_id = "peek", parameters(("key" = "$response.body#/limits/0/key")))),
                ("reset" = (operation_id = "reset", parameters(("key" = "$response.body#/limits/0/key"))))
            )
        ),
        LookupErrors,
        UnavailableError
    )
)]
pub(super) async fn evidence(
    State(context): State<Arc<HandlerContext>>,
    address: ClientParam,
    _: Query<NoParams>,
) -> Result<Json<dto::Evidence>, Problem> {
    match evidence_of(&context, &address).await {
        Err(problem) if problem.status() == StatusCode::NOT_FOUND => {
            banned_only(&context, &address)?.map(Json).ok_or(problem)
        }
        found => found.map(Json),
    }
}

/// Evidence on an address that is banned but was never denied: no records, and the times of its bans.
fn banned_only(context: &HandlerContext, address: &ClientParam) -> Result<Option<dto::Evidence>, Problem> {
    let state = &context.state;
    let address = address.client(state.active_config.snapshot().ipv6_prefix())?;
    let bans = state.bans.covering(address);
    let (first, last) = (bans.iter().map(|ban| ban.since).min(), bans.iter().map(|ban| ban.since).max());
    let (Some(first), Some(last), Some(until)) = (first, last, bans.iter().map(|ban| ban.until).max()) else {
        return Ok(None);
    };
    let shown = abuse::shown(address);
    let client =
        LimitedClient { address, shown, first, last, until, denied: 0, policies: Vec::new(), users: 0 };
    Ok(Some(dto::Evidence {
        address: dto::BlockedAddress::from(&client),
        records: Vec::new(),
        limits: Vec::new(),
        bans: bans.iter().map(|ban| dto::Ban::from(&**ban)).collect(),
    }))
}

/// What is known of an address.
pub(super) async fn evidence_of(
    context: &HandlerContext,
    address: &ClientParam,
) -> Result<dto::Evidence, Problem> {
    let state = &context.state;
    let config = state.active_config.snapshot();
    let address = address.client(config.ipv6_prefix())?;
    context.peers.look_up(address).await;
    let known = state.registry.find(address, state.clock.now());
    let (client, records, limited) = known
        .ok_or_else(|| Problem::not_found(format!("{} was not limited recently", abuse::shown(address))))?;
    let mut limits = Vec::new();
    for (policy, key) in limit_keys(&config, &state.registry.names(), &client.shown, &limited) {
        let Some(policy) = config.policies().get(policy) else { continue };
        let is_own = |of: &Condition| matches!(of, Condition::Address(net) if net.contains(&address));
        for (nth, variant) in variants_apart(policy, is_own).into_iter().enumerate() {
            let peek = context.store.peek(variant, &key).await?;
            // Users behind the address may have limits of their own: shown where something was used of them.
            if nth > 0 && peek.used == 0 {
                continue;
            }
            limits.push(dto::LimitUsage::new(&policy.name, &key, &peek));
        }
    }
    let record = |RequestRecord { policy, entry }: &RequestRecord| dto::Record {
        time: rfc3339(entry.time),
        user: entry.user.as_deref().map(str::to_owned),
        method: entry.method.to_string(),
        path: entry.path.to_string(),
        policy: policy.to_string(),
    };
    Ok(dto::Evidence {
        address: dto::BlockedAddress::from(&client),
        records: records.iter().map(record).collect(),
        limits,
        bans: state.bans.covering(address).iter().map(|ban| dto::Ban::from(&**ban)).collect(),
    })
}

/// The limits of an address: of every policy that is keyed by it alone, and whichever others of its own
/// held it back (composites, and what fell back to the address).
fn limit_keys(
    config: &ConfigSnapshot,
    names: &UserNaming,
    shown: &str,
    limited: &[DenyingLimit],
) -> BTreeSet<(usize, CompactString)> {
    let own = abuse::identifier(shown);
    let policies = config.policies().iter().enumerate();
    let by_address = policies.filter(|(_, policy)| policy.keys.iter().any(|key| key.0 == [KeyPart::Ip]));
    let denied = limited.iter().filter(|limit| abuse::is_identifier_of(&limit.identifier, shown));
    // Where a user in a key is hashed, the limit can't be found by it.
    let denied = denied.filter(|limit| names.is_unchanged(&limit.identifier));
    // Policies that only another instance has can't be asked about here.
    let known =
        denied.filter_map(|limit| Some((config.policy_named(&limit.policy)?, limit.identifier.clone())));
    by_address.map(|(index, _)| (index, own.clone())).chain(known).collect()
}
