//! `GET /v1/blocked/{ip}`: who was behind a blocked address.

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use axum::{Json, extract::State};
use compact_str::CompactString;
use ipnet::IpNet;

use super::{
    ConfigSnapshot,
    client_state::banned_until,
    context::HandlerContext,
    dto::{self, schema},
    extract::{ClientParam, NoParams, Query},
    held_limits::Holder,
    limit_key::LimitKey,
    openapi::{LookupErrors, UnavailableError},
    problem::Problem,
};
use crate::{
    abuse::{
        self, DenyingLimit, Hint, LimitedClient, RequestRecord, UserNaming,
        bans::{Ban, BanTable, BannedKey},
    },
    config::model::KeyPart,
    telemetry::time::rfc3339,
};

/// Limits shown whose keys are not the address but users, headers and the like, of which there may be many behind it:
/// the ones that end last.
const MAX_FOREIGN: usize = 10;

/// Shows who was behind an address: its last records, its limits, other limits that denied its requests, and its bans.
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
    evidence_of(&context, &address).await.map(Json)
}

/// The evidence on an address. If it is banned and was never denied: its bans, and their times.
pub(super) async fn evidence_of(
    context: &HandlerContext,
    address: &ClientParam,
) -> Result<dto::Evidence, Problem> {
    let state = &context.state;
    let config = state.active_config.snapshot();
    let address = address.client(config.ipv6_prefix())?;
    context.peers.look_up(address).await;
    let (now, bans) = (state.clock.now(), state.bans.covering(address));
    let known = state.registry.find(address, now);
    let known = known.or_else(|| Some((only_banned(address, &bans)?, Vec::new(), Vec::new())));
    let (client, records, limited) = known
        .ok_or_else(|| Problem::not_found(format!("{} was not limited recently", abuse::shown(address))))?;
    let mut limits = dto::Limits::default();
    let names = state.registry.names();
    let own = LimitKey::stored(&abuse::identifier(&client.shown));
    let (keys, more_limits) = limit_keys(&config, &names, &client.shown, &limited);
    for (policy, key) in keys {
        let Some(policy) = config.policies().get(policy) else { continue };
        let holder = Holder::new(context, LimitKey::stored(&key), vec![own.clone()]).await;
        holder.read(context, policy, false, &mut limits).await?;
    }
    let record = |RequestRecord { policy, entry }: &RequestRecord| dto::Record {
        time: rfc3339(entry.time),
        user: entry.user.as_deref().and_then(|user| names.stored_name(user)).map(Into::into),
        method: entry.method.to_string(),
        path: entry.path.to_string(),
        policy: policy.to_string(),
    };
    Ok(dto::Evidence {
        address: dto::BlockedAddress::new(&client, &bans, now),
        records: records.iter().map(record).collect(),
        users: recorded_users(&records, &state.bans, &names),
        limits: limits.limits,
        unlimited: limits.unlimited,
        more_limits,
        bans: bans.iter().map(|ban| dto::Ban::from(&**ban)).collect(),
    })
}

/// A client that was never denied, since its first ban. `None` without a ban.
fn only_banned(address: IpNet, bans: &[Arc<Ban>]) -> Option<LimitedClient> {
    let since = || bans.iter().map(|ban| ban.since);
    let (first, last) = (since().min()?, since().max()?);
    let shown = abuse::shown(address);
    Some(LimitedClient {
        address,
        shown,
        first,
        last,
        until: last,
        unblocked: None,
        denied: 0,
        policies: Vec::new(),
        users: 0,
        hint: Hint::Unknown,
        reasons: "nothing was denied".to_owned(),
    })
}

/// The users in these records, the one with most records first.
fn recorded_users(records: &[RequestRecord], bans: &BanTable, names: &UserNaming) -> Vec<dto::RecordedUser> {
    let mut counts = BTreeMap::<_, usize>::new();
    for record in records {
        let user = record.entry.user.as_deref().and_then(|user| names.stored_name(user));
        *counts.entry(user).or_default() += 1;
    }
    let user = |(user, records): (Option<Cow<'_, str>>, usize)| {
        let bans = user.as_deref().map(|user| bans.by_key(&BannedKey::from_user_name(user, names)));
        dto::RecordedUser {
            user: user.map(Cow::into_owned),
            records,
            banned_until: bans.and_then(|bans| banned_until(&bans)).map(rfc3339),
        }
    };
    let mut users: Vec<_> = counts.into_iter().map(user).collect();
    users.sort_by_key(|user| Reverse(user.records));
    users
}

/// The limits of an address: of every policy whose key is the address alone, and all others that denied its requests,
/// whose keys contain the address (composites, fallbacks) or not. The second value is the number of limits of the last
/// kind that are left out.
fn limit_keys(
    config: &ConfigSnapshot,
    names: &UserNaming,
    shown: &str,
    limited: &[DenyingLimit],
) -> (BTreeSet<(usize, CompactString)>, usize) {
    let own = abuse::identifier(shown);
    // Records from before names were hashed are looked up by the hash, too.
    let masked = |identifier: &str| CompactString::from(names.mask_key(identifier));
    let policies = config.policies().iter().enumerate();
    let by_address = policies.filter(|(_, policy)| policy.keys.iter().any(|key| key.0 == [KeyPart::Ip]));
    // If users are not recorded, the limit can't be found by its key.
    let denied = limited.iter().filter(|limit| !names.hides_user(&limit.identifier));
    let (of_address, mut foreign): (Vec<_>, Vec<_>) =
        denied.partition(|limit| abuse::is_identifier_of(&limit.identifier, shown));
    foreign.sort_by_key(|limit| Reverse(limit.until));
    // Limits of policies that only another instance has can't be read here.
    let known = |limit: &DenyingLimit| Some((config.policy_named(&limit.policy)?, masked(&limit.identifier)));
    let mut foreign: Vec<_> = foreign.into_iter().filter_map(known).collect();
    let more = foreign.len().saturating_sub(MAX_FOREIGN);
    foreign.truncate(MAX_FOREIGN);
    let known = of_address.into_iter().filter_map(known).chain(foreign);
    (by_address.map(|(index, _)| (index, own.clone())).chain(known).collect(), more)
}
