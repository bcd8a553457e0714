//! Writes what this instance knows of limited clients, and removes what may be kept no longer.

use bb8_redis::redis::{self, RedisResult, aio::ConnectionLike};
use ipnet::IpNet;

use super::{
    codec::{self, Stored},
    scope::Scope,
    table::{self, BATCH, Entry, Outcome},
    users,
};
use crate::{
    abuse::{self, ClientRegistry, MergedClient, PendingSnapshot, SharedClient},
    peers::time::RunningTime,
};

/// Clients published in a round.
const MAX_PER_ROUND: usize = 512;
/// How often a round asks what has expired.
const SWEEPS_PER_ROUND: usize = 8;
/// Milliseconds for which evidence stays at most once the first of its records has expired. Until then it was written again
/// without that record, if any instance lives.
pub(super) const SLACK: u64 = 800;

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
    let time = RunningTime::from(now);
    // First: what expires must not wait for a flood.
    let [clients, users] = table::to_be_swept(connection, [&scope.clients(), &scope.users()]).await?;
    if clients {
        sweep(connection, scope, registry, time).await?;
    }
    if users {
        users::sweep(connection, scope, time).await?;
    }
    let mut published = 0;
    for chunk in registry.pending_snapshots(now, MAX_PER_ROUND).chunks(BATCH) {
        published += publish(connection, scope, registry, chunk, time).await?;
    }
    users::publish_round(connection, scope, registry, time).await?;
    Ok(published)
}

/// Merges what this instance knows of a few clients into what is stored. Gives how many that were; those that another
/// instance has just written stay due.
async fn publish(
    connection: &mut impl ConnectionLike,
    scope: &Scope,
    registry: &ClientRegistry,
    clients: &[PendingSnapshot],
    time: RunningTime,
) -> RedisResult<usize> {
    let addresses: Vec<_> = clients.iter().map(|client| client.address).collect();
    let stored = read_stored(connection, scope, &addresses).await?;
    let now = time.now();
    let merge = |(client, stored): (&PendingSnapshot, Stored<SharedClient>)| {
        let Stored { stamp, forgotten, content } = stored;
        let own = Some((client, scope.instance));
        let merged = registry.merge_shared(client.address, content.unwrap_or_default(), own, now);
        entry(scope, client.address, stamp, forgotten, &merged, Some(client.snapshot.last), now)
    };
    let entries: Vec<_> = clients.iter().zip(stored).map(merge).collect();
    let outcomes = write(connection, scope, &entries, time).await?;
    let mut published = 0;
    for (client, outcome) in clients.iter().zip(outcomes) {
        match outcome {
            Outcome::Conflict => continue,
            Outcome::Written => registry.ack_snapshots([client], now),
            Outcome::Forgotten => {
                registry.ack_snapshots([client], now);
                registry.reject_snapshot(client);
            }
        }
        published += 1;
    }
    Ok(published)
}

/// Removes what has expired, of all clients.
async fn sweep(
    connection: &mut impl ConnectionLike,
    scope: &Scope,
    registry: &ClientRegistry,
    time: RunningTime,
) -> RedisResult<()> {
    for _ in 0..SWEEPS_PER_ROUND {
        let table = scope.clients();
        let due = table.sweep(connection).await?;
        scope.budget().set_stored(Some(due.bytes), None);
        remove(connection, scope, &due.excess).await?;
        let (names, foreign): (Vec<_>, Vec<_>) =
            due.found.into_iter().partition(|name| address(name).is_some());
        remove(connection, scope, &foreign).await?;
        let addresses: Vec<_> = names.iter().filter_map(|name| address(name)).collect();
        let stored = read_stored(connection, scope, &addresses).await?;
        let now = time.now();
        let expire = |(&address, stored): (&IpNet, Stored<SharedClient>)| {
            let Stored { stamp, forgotten, content } = stored;
            match content {
                Some(client) => {
                    let merged = registry.merge_shared(address, client, None, now);
                    entry(scope, address, stamp, forgotten, &merged, None, now)
                }
                // It has expired, or was evicted; or it was forgotten, and that need not be known any longer.
                None => removal(scope, address, stamp),
            }
        };
        let entries: Vec<_> = addresses.iter().zip(stored).map(expire).collect();
        if entries.is_empty() {
            return Ok(());
        }
        write(connection, scope, &entries, time).await?;
    }
    Ok(())
}

async fn write(
    connection: &mut impl ConnectionLike,
    scope: &Scope,
    entries: &[Entry],
    time: RunningTime,
) -> RedisResult<Vec<Outcome>> {
    if entries.is_empty() {
        return Ok(Vec::new());
    }
    let reply = scope.clients().write(connection, entries, time).await?;
    scope.budget().set_stored(Some(reply.bytes), None);
    remove(connection, scope, &reply.excess).await?;
    Ok(reply.found)
}

/// What is stored of clients, in the same order.
async fn read_stored(
    connection: &mut impl ConnectionLike,
    scope: &Scope,
    addresses: &[IpNet],
) -> RedisResult<Vec<Stored<SharedClient>>> {
    if addresses.is_empty() {
        return Ok(Vec::new());
    }
    let mut command = redis::cmd("MGET");
    for &address in addresses {
        command.arg(&scope.client_keys(address));
    }
    let values: Vec<Option<Vec<u8>>> = command.query_async(connection).await?;
    let client = |pair: &[Option<Vec<u8>>]| {
        let value = |at: usize| pair.get(at).and_then(Option::as_deref);
        codec::decode_client(value(0), value(1))
    };
    Ok(values.chunks(2).map(client).collect())
}

/// A client as it is to be written. `last`: as [`Entry::last`].
fn entry(
    scope: &Scope,
    address: IpNet,
    expected: Vec<u8>,
    forgotten: i64,
    merged: &MergedClient,
    last: Option<i64>,
    now: i64,
) -> Entry {
    let MergedClient { client, evidence_ends, ends } = merged;
    if *ends <= now {
        return removal(scope, address, expected);
    }
    let [counts, evidence] = codec::encode_client(client, forgotten);
    let kept = millis_until(*ends, now).max(1);
    let evidence_kept = evidence_ends.map_or(kept, |ends| (millis_until(ends, now) + SLACK).min(kept));
    Entry {
        name: abuse::shown(address).into(),
        keys: scope.client_keys(address).into(),
        expected,
        last,
        due_in: evidence_ends.map_or(kept, |ends| millis_until(ends, now).min(kept)),
        values: vec![(counts, kept), (evidence, evidence_kept)],
    }
}

fn removal(scope: &Scope, address: IpNet, expected: Vec<u8>) -> Entry {
    Entry {
        name: abuse::shown(address).into(),
        keys: scope.client_keys(address).into(),
        expected,
        last: None,
        due_in: 0,
        values: vec![Default::default(); 2],
    }
}

/// Rounded up.
pub(super) fn millis_until(time: i64, now: i64) -> u64 {
    u64::try_from(time.saturating_sub(now)).map_or(0, |micros| micros.div_ceil(1_000))
}

fn address(name: &[u8]) -> Option<IpNet> {
    abuse::parse(str::from_utf8(name).ok()?)
}

/// Forgets a client for all instances; what they knew of it is void.
///
/// # Errors
/// Redis refuses or can't be asked. It may be forgotten all the same.
pub(super) async fn forget(
    connection: &mut impl ConnectionLike,
    scope: &Scope,
    address: IpNet,
) -> RedisResult<()> {
    scope.clients().forget(connection, &abuse::shown(address), &scope.client_keys(address)).await
}

/// Removes the clients that changed longest ago. What an instance knows of them itself it still shows.
async fn remove(connection: &mut impl ConnectionLike, scope: &Scope, names: &[Vec<u8>]) -> RedisResult<()> {
    if names.is_empty() {
        return Ok(());
    }
    let keys: Vec<_> = names
        .iter()
        .filter_map(|name| address(name))
        .flat_map(|address| scope.client_keys(address))
        .collect();
    let bytes = scope.clients().remove(connection, names, &keys).await?;
    scope.budget().set_stored(Some(bytes), None);
    Ok(())
}
