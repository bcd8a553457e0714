//! `GET /v1/users/{user}`: a user's bans, limits, last requests, and the addresses that the user was limited from.

use std::{cmp::Reverse, collections::BTreeSet, sync::Arc};

use axum::{Json, extract::State};
use compact_str::CompactString;

use super::{
    client_state::banned_until,
    context::HandlerContext,
    dto,
    extract::{NoParams, Query, UserParam},
    limit_key::LimitKey,
    openapi::{LookupErrors, UnavailableError},
    problem::Problem,
};
use crate::{
    abuse::{self, DeniedAddress, DenyingLimit, RequestRecord, bans::BannedKey},
    limit::StoreAdmin,
    telemetry::time::rfc3339,
};

/// Addresses whose records are searched for the user: those denied last.
const MAX_SEARCHED: usize = 100;
/// Records shown.
const MAX_RECORDS: usize = 100;
/// Limits shown whose key is a composite with the user.
const MAX_COMPOSITES: usize = 50;

/// Shows a user's bans, limits and last requests, and the addresses that the user was limited from. The user is given
/// by its ID or, if IDs are hashed, by the hash.
#[utoipa::path(
    get,
    path = "/v1/users/{user}",
    operation_id = "user",
    tag = "limited clients",
    params((
        "user" = String,
        Path,
        min_length = 1,
        description = "`acme`, or `hmac:0123456789abcdef`",
        example = "acme"
    )),
    responses(
        (
            status = 200,
            body = dto::User,
            description = "the user's bans, limits, records and addresses",
            links(
                ("evidence" = (operation_id = "evidence", parameters(("ip" = "$response.body#/addresses/0/address")))),
                ("lift" = (operation_id = "lift", parameters(("key" = "$response.body#/bans/0/key")))),
                ("reset" = (operation_id = "reset", parameters(("key" = "$response.body#/limits/0/key"))))
            )
        ),
        LookupErrors,
        UnavailableError
    )
)]
pub(super) async fn user(
    State(context): State<Arc<HandlerContext>>,
    UserParam(user): UserParam,
    _: Query<NoParams>,
) -> Result<Json<dto::User>, Problem> {
    let found = user_dto(&context, &user).await?;
    let is_known = !found.addresses.is_empty()
        || !found.bans.is_empty()
        || found.limits.iter().any(|limit| limit.used > 0);
    if is_known {
        return Ok(Json(found));
    }
    let is_off = context.state.registry.names().stored_name(&user).is_none();
    let user = user.escape_debug();
    Err(Problem::not_found(match is_off {
        true => format!(
            "{user} is not banned, and has used none of its limits; users are not recorded, because abuse.users is off"
        ),
        false => format!("{user} was not limited recently, is not banned, and has used none of its limits"),
    }))
}

/// The user as all instances know it. Its lists may be empty.
pub(super) async fn user_dto(context: &HandlerContext, user: &str) -> Result<dto::User, Problem> {
    let state = &context.state;
    let (names, now) = (state.registry.names(), state.clock.now());
    let written = names.stored_name(user);
    let mut addresses = Vec::new();
    if let Some(written) = written.as_deref() {
        let others = context.peers.user(written).await;
        addresses = state.registry.addresses_of_user(written, &others, now);
        // Reads the records of the addresses.
        context.peers.refresh().await;
    }
    let key = LimitKey::of_user(&BannedKey::from_user_name(user, &names));
    let mut records = Vec::new();
    let mut composites = BTreeSet::new();
    for found in addresses.iter().take(MAX_SEARCHED) {
        let Some((client, requests, limited)) = state.registry.find(found.address, now) else { continue };
        let is_theirs = |record: &RequestRecord| record.entry.user.as_deref() == written.as_deref();
        records.extend(requests.into_iter().filter(is_theirs).map(|record| (client.shown.clone(), record)));
        let is_theirs = |limit: &DenyingLimit| {
            let mut parts = limit.identifier.split('+');
            *limit.identifier != *key.text && parts.any(|part| part == key.text)
        };
        composites
            .extend(limited.into_iter().filter(is_theirs).map(|limit| (limit.policy, limit.identifier)));
    }
    records.sort_by_key(|(_, record)| Reverse(record.entry.time));
    records.truncate(MAX_RECORDS);
    let bans = state.bans.by_key(&BannedKey::from_user_name(user, &names));
    Ok(dto::User {
        user: written.as_deref().unwrap_or(user).to_owned(),
        denied: addresses.iter().map(|found| found.denied).sum(),
        banned_until: banned_until(&bans).map(rfc3339),
        bans: bans.iter().map(|ban| dto::Ban::from(&**ban)).collect(),
        limits: limits(context, &key, composites).await?,
        records: records.iter().map(|(address, record)| record_dto(address, record)).collect(),
        addresses: addresses.iter().map(|found| address_dto(context, found)).collect(),
    })
}

/// The limits of every policy that is keyed by the user, and `composites`, which denied the user.
async fn limits(
    context: &HandlerContext,
    user: &LimitKey,
    composites: BTreeSet<(Arc<str>, CompactString)>,
) -> Result<Vec<dto::LimitUsage>, Problem> {
    let (config, names) = (context.state.active_config.snapshot(), context.state.registry.names());
    let mut limits = Vec::new();
    for policy in config.policies().iter().filter(|policy| user.is_keyed(policy)) {
        for (nth, variant) in user.variants(policy, &names).into_iter().enumerate() {
            let peek = context.store.peek(variant, &user.text).await?;
            // Other variants are listed only if something was used of them.
            if nth == 0 || peek.used > 0 {
                limits.push(dto::LimitUsage::new(variant, &user.text, &peek, context.state.clock.now()));
            }
        }
    }
    for (name, key) in composites.into_iter().take(MAX_COMPOSITES) {
        // Limits of policies that only another instance has can't be read here.
        let Some(policy) = config.policy_named(&name).and_then(|index| config.policies().get(index)) else {
            continue;
        };
        let peek = context.store.peek(policy, &key).await?;
        limits.push(dto::LimitUsage::new(policy, &key, &peek, context.state.clock.now()));
    }
    Ok(limits)
}

fn record_dto(address: &str, RequestRecord { policy, entry }: &RequestRecord) -> dto::UserRecord {
    dto::UserRecord {
        time: rfc3339(entry.time),
        address: address.to_owned(),
        method: entry.method.to_string(),
        path: entry.path.to_string(),
        policy: policy.to_string(),
    }
}

fn address_dto(context: &HandlerContext, found: &DeniedAddress) -> dto::UserAddress {
    dto::UserAddress {
        address: abuse::shown(found.address).to_string(),
        denied: found.denied,
        verified: found.verified,
        last: rfc3339(found.last),
        banned_until: banned_until(&context.state.bans.covering(found.address)).map(rfc3339),
    }
}
