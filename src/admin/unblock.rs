//! `DELETE /v1/blocked/{ip}`: unblocks an address.

use std::{collections::BTreeSet, sync::Arc};

use axum::{Json, extract::State};

use super::{
    bans,
    context::{HandlerContext, to_completion},
    dto::{self, schema},
    extract::{ClientParam, NoParams, Operator, Query},
    openapi::{NotFoundError, UnavailableError, WriteErrors},
    problem::Problem,
};
use crate::{
    abuse::{
        self, Unblock,
        bans::{BanTable, BannedKey},
    },
    limit::{StoreAdmin, Unavailable},
    telemetry::Event,
};

/// Clears every limit whose key is the address and lifts its bans, on every instance. The evidence is kept: the address
/// is listed as unblocked until its records expire. An address that is no longer listed may still have limits: they are
/// cleared, too.
#[utoipa::path(
    delete,
    path = "/v1/blocked/{ip}",
    operation_id = "unblock",
    tag = "limited clients",
    params(("ip" = schema::Client, Path, description = "an address, or the prefix that identifies a client")),
    responses((status = 200, body = dto::Unblocked, description = "what was cleared, and what still holds the address"), WriteErrors, NotFoundError, UnavailableError)
)]
pub(super) async fn unblock(
    State(context): State<Arc<HandlerContext>>,
    by: Operator,
    address: ClientParam,
    _: Query<NoParams>,
) -> Result<Json<dto::Unblocked>, Problem> {
    to_completion(async move { unblocked(&context, &by, &address).await.map(Json) }).await
}

async fn unblocked(
    context: &HandlerContext,
    by: &Operator,
    address: &ClientParam,
) -> Result<dto::Unblocked, Problem> {
    let state = &context.state;
    let config = state.active_config.snapshot();
    let address = address.client(config.ipv6_prefix())?;
    let shown = abuse::shown(address);
    // Perhaps only other instances have records of it.
    context.peers.look_up(address).await;
    let now = state.clock.now();
    let known = state.registry.find(address, now);
    let (is_limited, records, limited) = match &known {
        Some((client, records, limited)) => (client.until > now, records.len(), limited.as_slice()),
        None => (false, 0, [].as_slice()),
    };
    // Clear the limits first, or the next request that they deny would list the address as limited again.
    let reset = context.store.reset(config.policies(), &abuse::identifier(&shown)).await;
    let (cleared, unavailable) = match reset {
        Ok(cleared) => (cleared, None),
        // The bans are lifted nevertheless.
        Err(Unavailable::ClearedHere(cleared)) => (cleared.0, Some(cleared.1)),
        Err(unavailable) => (Vec::new(), Some(unavailable)),
    };
    let key = BannedKey::Address(address);
    let mut published = Ok(());
    let is_any = is_limited || !cleared.is_empty() || !state.bans.by_key(&key).is_empty();
    if unavailable.is_none() && is_any {
        // If Redis fails, the rest is done and audited nevertheless.
        published = context.peers.unblock(address, &by.0).await;
    }
    if unavailable.is_none() && is_any || !cleared.is_empty() {
        let now = state.clock.now();
        state.registry.unblock(address, Unblock { time: now, by: by.0.clone() }, now);
    }
    let bans_lifted = bans::lift_all(context, &key).await;
    let many = |number: u64, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    if let Some(unavailable) = &unavailable {
        let place = if bans::is_sent(context).await { "" } else { " at this instance" };
        let limits = match cleared.len() as u64 {
            0 => String::new(),
            count => format!("{} cleared at this instance, ", many(count, "limit")),
        };
        let done = format!("{limits}limits may be left in Redis, {} lifted{place}", many(bans_lifted, "ban"));
        context.audit(by, "unblock", &shown, &done);
        if cleared.is_empty() {
            return Err(Problem::partly_done(unavailable, &done));
        }
    }
    let mut still_banned = state.bans.covering(address);
    still_banned.retain(|ban| !ban.is_shadow);
    if !is_limited && cleared.is_empty() && bans_lifted == 0 {
        let mut why = format!("{shown} has no limits and no bans to clear");
        if let Some(ban) = still_banned.first() {
            why += &format!("; it is banned because {} is: lift that ban", ban.key);
        }
        return Err(Problem::not_found(why));
    }
    let others = limited.iter().filter(|limit| {
        let is_own = abuse::is_identifier_of(&limit.identifier, &shown);
        // A prefix around the address is not a client behind it, and its ban is in `still_banned` already.
        let is_named = still_banned.iter().any(|ban| ban.key.to_string() == limit.identifier);
        !is_own && !is_named && (limit.until > now || is_banned(&state.bans, &limit.identifier))
    });
    let names = state.registry.names();
    let others: BTreeSet<_> = others.map(|limit| names.mask_key(&limit.identifier).into_owned()).collect();
    let detail =
        format!("{} cleared, {} lifted", many(cleared.len() as u64, "limit"), many(bans_lifted, "ban"));
    if unavailable.is_none() {
        context.audit(by, "unblock", &shown, &detail);
    }
    published?;
    // If instances share limits, each publishes this event when it reads the unblock, including this one.
    if state.store_facts.shared.is_none() {
        state.events.publish(|| Event::Unblocked { address: shown.to_string() });
    }
    let shared = bans_lifted == 0 || bans::is_sent(context).await;
    Ok(dto::Unblocked {
        address: shown.to_string(),
        shared,
        redis_away: unavailable.is_some(),
        cleared: cleared.into_iter().map(dto::ClearedLimit::from).collect(),
        bans_lifted,
        records_kept: records,
        still_banned: still_banned.iter().map(|ban| dto::Ban::from(&**ban)).collect(),
        other_keys: others.into_iter().collect(),
    })
}

/// Whether a ban of this identifier denies requests.
fn is_banned(bans: &BanTable, identifier: &str) -> bool {
    BannedKey::from_canonical(identifier)
        .is_some_and(|key| bans.by_key(&key).iter().any(|ban| !ban.is_shadow))
}
