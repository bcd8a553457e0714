//! Writes what this instance knows of limited clients.

use std::sync::LazyLock;

use bb8_redis::redis::{self, RedisResult, Script, aio::ConnectionLike};
use ipnet::IpNet;

use super::{
    scope::{MAX_INSTANCES, MAX_SNAPSHOT, Scope, to_millis},
    users,
};
use crate::abuse::{self, ClientRegistry, ClientSnapshot, PendingSnapshot, SHARED_CLIENTS};

/// Clients written by one call of the script: Redis does nothing else meanwhile.
const BATCH: usize = 32;
/// Clients published in a round.
const MAX_PER_ROUND: usize = 512;

static RECORD: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("../../../lua/key_prelude.lua"),
        include_str!("../../../lua/record.lua")
    ))
});
static FORGET: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("../../../lua/key_prelude.lua"),
        include_str!("../../../lua/forget.lua")
    ))
});

/// Publishes what has changed in a registry, a bounded part of it, and says how many clients that was. To
/// be called every 250 ms; whatever fails or is dropped before its end is published in a later round.
/// `now`: microseconds since the Unix epoch.
///
/// # Errors
/// Redis refuses or can't be asked.
pub async fn publish_round(
    connection: &mut impl ConnectionLike,
    scope: &Scope,
    registry: &ClientRegistry,
    now: i64,
) -> RedisResult<usize> {
    let unpublished = registry.pending_snapshots(now, MAX_PER_ROUND);
    for chunk in unpublished.chunks(BATCH) {
        let refused = publish(connection, scope, chunk, now).await?;
        registry.ack_snapshots(chunk, now);
        refused.into_iter().for_each(|given| registry.reject_snapshot(given));
    }
    users::publish_round(connection, scope, registry, now).await?;
    Ok(unpublished.len())
}

/// Writes down what this instance knows of a few clients. Gives those that were not written, since they
/// were forgotten after their last denial. `now`: by the clock that stamped them.
///
/// # Errors
/// Redis refuses or can't be asked. Some may have been written.
async fn publish<'a>(
    connection: &mut impl ConnectionLike,
    scope: &Scope,
    clients: &'a [PendingSnapshot],
    now: i64,
) -> RedisResult<Vec<&'a PendingSnapshot>> {
    if clients.is_empty() {
        return Ok(Vec::new());
    }
    let mut call = RECORD.prepare_invoke();
    call.key(scope.changed_key());
    call.arg(&scope.instance).arg(scope.retain_millis()).arg(SHARED_CLIENTS).arg(MAX_INSTANCES).arg(now);
    let mut written = Vec::new();
    for client in clients {
        let Some(value) = encode(&client.snapshot) else { continue };
        call.key(scope.client_key(client.address)).key(scope.users_key(client.address, client.slice));
        let address = abuse::shown(client.address);
        call.arg(address.as_str()).arg(client.snapshot.last).arg(to_millis(client.stays)).arg(value);
        call.arg(client.users.len());
        for user in &client.users {
            call.arg(&user.to_be_bytes());
        }
        written.push(client);
    }
    let (refused, excess): (Vec<usize>, Vec<Vec<u8>>) = call.invoke_async(connection).await?;
    remove_oldest(connection, scope, &excess, now).await?;
    // Lua counts from 1.
    Ok(refused.into_iter().filter_map(|at| written.get(at.checked_sub(1)?).copied()).collect())
}

/// Forgets a client for all instances; what they knew of it is void. `now`: as for [`publish`].
///
/// # Errors
/// Redis refuses or can't be asked. It may be forgotten all the same.
pub(super) async fn forget(
    connection: &mut impl ConnectionLike,
    scope: &Scope,
    address: IpNet,
    now: i64,
) -> RedisResult<()> {
    let mut call = FORGET.key(scope.changed_key());
    call.key(scope.client_key(address));
    for key in scope.users_keys(address, now) {
        call.key(key);
    }
    call.arg(abuse::shown(address).as_str()).arg(scope.retain_millis());
    call.invoke_async(connection).await
}

/// Removes the clients whose last denial is longest ago: as many instances as there may be, Redis holds
/// a bounded number of them. What an instance knows of them itself it still shows.
async fn remove_oldest(
    connection: &mut impl ConnectionLike,
    scope: &Scope,
    addresses: &[Vec<u8>],
    now: i64,
) -> RedisResult<()> {
    if addresses.is_empty() {
        return Ok(());
    }
    let mut pipeline = redis::pipe();
    pipeline.atomic().cmd("ZREM").arg(scope.changed_key()).arg(addresses).ignore();
    for address in addresses.iter().filter_map(|address| abuse::parse(str::from_utf8(address).ok()?)) {
        pipeline.cmd("UNLINK").arg(scope.client_key(address)).arg(scope.users_keys(address, now)).ignore();
    }
    pipeline.exec_async(connection).await
}

/// A snapshot as a value. The oldest records are left out where it would be too long.
fn encode(snapshot: &ClientSnapshot) -> Option<Vec<u8>> {
    let mut value = serde_json::to_vec(snapshot).ok()?;
    if value.len() <= MAX_SNAPSHOT {
        return Some(value);
    }
    let mut shorter = snapshot.clone();
    while value.len() > MAX_SNAPSHOT && shorter.shorten() {
        value = serde_json::to_vec(&shorter).ok()?;
    }
    Some(value).filter(|value| value.len() <= MAX_SNAPSHOT)
}
