//! `GET /v1/users/{user}`: a user's bans, limits, last requests, and the addresses that the user was limited from.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use axum::{Json, extract::State};
use compact_str::CompactString;

use super::{
    client_state::banned_until,
    context::HandlerContext,
    dto,
    extract::{NoParams, Query, UserParam},
    held_limits::Holder,
    limit_key::LimitKey,
    openapi::{LookupErrors, UnavailableError},
    problem::Problem,
};
use crate::{
    abuse::{self, DeniedAddress, RequestRecord, bans::BannedKey},
    telemetry::time::rfc3339,
};

/// Addresses whose records are searched for the user: the ones denied last.
const MAX_SEARCHED: usize = 100;
/// Records shown.
const MAX_RECORDS: usize = 100;
/// Limits shown that denied requests by another key than the user.
const MAX_DENYING: usize = 50;

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
    let key = LimitKey::stored(&BannedKey::from_user_name(user, &names).to_string());
    let holder = Holder::new(context, key, Vec::new()).await;
    let mut records = Vec::new();
    let mut denying = BTreeMap::new();
    for found in addresses.iter().take(MAX_SEARCHED) {
        let Some((client, requests, limited)) = state.registry.find(found.address, now) else { continue };
        let is_theirs = |record: &RequestRecord| record.entry.user.as_deref() == written.as_deref();
        let theirs: Vec<_> = requests.into_iter().filter(is_theirs).collect();
        let policies: HashSet<_> = theirs.iter().map(|record| &record.policy).collect();
        let limited = limited.into_iter().filter(|limit| !names.hides_user(&limit.identifier));
        let limited: Vec<_> =
            limited.map(|limit| (LimitKey::stored(&limit.identifier), limit.policy)).collect();
        for (key, policy) in &limited {
            let is_only = limited.iter().filter(|(_, of)| of == policy).count() == 1;
            let denied = match holder.is_of(key) {
                Some(is_theirs) => is_theirs,
                None => policies.contains(policy) && (is_only || !key.names_a_client()),
            };
            if denied {
                denying.insert((Arc::clone(policy), key.text.clone()), client.shown.clone());
            }
        }
        records.extend(theirs.into_iter().map(|record| (client.shown.clone(), record)));
    }
    records.sort_by_key(|(_, record)| Reverse(record.entry.time));
    records.truncate(MAX_RECORDS);
    let bans = state.bans.by_key(&BannedKey::from_user_name(user, &names));
    let dto::Limits { limits, unlimited } = limits(context, &holder, denying).await?;
    Ok(dto::User {
        user: written.as_deref().unwrap_or(user).to_owned(),
        denied: addresses.iter().map(|found| found.denied).sum(),
        banned_until: banned_until(&bans).map(rfc3339),
        bans: bans.iter().map(|ban| dto::Ban::from(&**ban)).collect(),
        limits,
        unlimited,
        records: records.iter().map(|(address, record)| record_dto(address, record)).collect(),
        addresses: addresses.iter().map(|found| address_dto(context, found)).collect(),
    })
}

/// The limits of every policy that is keyed by the user, or by one of the user's API keys; and those of `denying`, with the
/// address that each denied requests from.
async fn limits(
    context: &HandlerContext,
    user: &Holder,
    denying: BTreeMap<(Arc<str>, String), CompactString>,
) -> Result<dto::Limits, Problem> {
    let config = context.state.active_config.snapshot();
    let mut limits = dto::Limits::default();
    let holders = user.clone().by_each(context).await;
    for holder in &holders {
        for policy in config.policies().iter().filter(|policy| holder.key().is_keyed(policy)) {
            holder.read(context, policy, false, &mut limits).await?;
        }
    }
    let is_listed = |key: &str| holders.iter().any(|holder| holder.key().text == key);
    let others: Vec<_> =
        denying.into_iter().filter(|((_, key), _)| !is_listed(key)).take(MAX_DENYING).collect();
    for ((name, key), address) in others {
        // Limits of policies that only another instance has can't be read here.
        let Some(policy) = config.policy_named(&name).and_then(|index| config.policies().get(index)) else {
            continue;
        };
        let holder = user.by(LimitKey::stored(&abuse::identifier(&address))).by(LimitKey::stored(&key));
        holder.read(context, policy, false, &mut limits).await?;
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
