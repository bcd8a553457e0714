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
    abuse::{self, bans::Key},
    limit::StoreAdmin,
    telemetry::Event,
};

/// Clears every limit whose key is the address and removes it from the list, on every instance. An address that is no
/// longer listed may still have limits: they are cleared, too.
#[utoipa::path(
    delete,
    path = "/v1/blocked/{ip}",
    operation_id = "unblock",
    tag = "limited clients",
    params(("ip" = schema::Client, Path, description = "an address, or the prefix that identifies a client")),
    responses((status = 200, body = dto::Unblocked, description = "what was cleared"), WriteErrors, NotFoundError, UnavailableError)
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
    // Only other instances may know it.
    context.peers.look_up(address).await;
    // Clearing limits makes every instance forget the address, this one included, so read what is known first.
    let known = state.registry.find(address, state.clock.now()).map(|(_, _, limited)| limited);
    // Clear the limits first, or the next request that they deny would list the address again.
    let cleared = context.store.reset(config.policies(), &abuse::identifier(&shown)).await?;
    // Then have all instances forget it, or they would bring it back.
    context.peers.forget(address).await?;
    let known = known.or(state.registry.forget(address, state.clock.now()));
    let bans_lifted = bans::lift_all(context, &Key::Address(address)).await;
    let mut still_banned = state.bans.covering(address);
    still_banned.retain(|ban| !ban.is_shadow);
    if known.is_none() && cleared.is_empty() && bans_lifted == 0 {
        let mut why = format!("{shown} was not limited recently and has no limits to clear");
        if let Some(ban) = still_banned.first() {
            why += &format!("; it is banned by the ban of {}: lift that ban", ban.key);
        }
        return Err(Problem::not_found(why));
    }
    let limited = known.unwrap_or_default();
    let others = limited.iter().filter(|limit| !abuse::is_identifier_of(&limit.identifier, &shown));
    let others: BTreeSet<_> = others.map(|limit| limit.identifier.to_string()).collect();
    let many = |number: u64, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let detail =
        format!("{} cleared, {} lifted", many(cleared.len() as u64, "limit"), many(bans_lifted, "ban"));
    context.audit(by, "unblock", &shown, &detail);
    // If instances share limits, each publishes this event when it hears of the unblock, this one included.
    if state.store_facts.shared.is_none() {
        state.events.publish(|| Event::Unblocked { address: shown.to_string() });
    }
    Ok(dto::Unblocked {
        address: shown.to_string(),
        cleared: cleared.into_iter().map(dto::ClearedLimit::from).collect(),
        bans_lifted,
        still_banned: still_banned.iter().map(|ban| dto::Ban::from(&**ban)).collect(),
        other_keys: others.into_iter().collect(),
    })
}
