//! Writes this instance's records of limited clients, and removes expired ones.

use bb8_redis::redis::{RedisResult, aio::ConnectionLike};
use ipnet::IpNet;

use super::{
    codec::{self, StoredValue},
    read::read_stored,
    scope::RecordScope,
    table::{self, BATCH, RecordEntry, SLACK, WriteOutcome},
    users,
};
use crate::{
    abuse::{self, ClientRegistry, Expiry, PendingClient, SharedClient},
    limit::Clock,
    peers::time::{Clocks, RunningTime, millis_until},
};

/// Clients published in a round.
const MAX_PER_ROUND: usize = 512;
/// Most sweeps in a round.
const SWEEPS_PER_ROUND: usize = 8;

/// Publishes a bounded number of changes of a registry. Returns the number of clients published. Call it every 250 ms;
/// a change whose publication fails or is cancelled is published in a later round. `now`: microseconds since the Unix
/// epoch.
///
/// # Errors
/// Redis refuses the call or can't be reached.
pub async fn publish_round(
    connection: &mut impl ConnectionLike,
    scope: &RecordScope,
    registry: &ClientRegistry,
    now: i64,
) -> RedisResult<usize> {
    publish_due(connection, scope, registry, now, now).await
}

/// Publishes all changes when the process ends, also those of clients whose interval has not passed.
///
/// # Errors
/// Redis refuses a call or can't be reached.
pub async fn publish_rest(
    connection: &mut impl ConnectionLike,
    scope: &RecordScope,
    registry: &ClientRegistry,
    clock: &impl Clock,
) -> RedisResult<()> {
    while registry.has_unpublished() {
        publish_due(connection, scope, registry, clock.now(), i64::MAX).await?;
    }
    Ok(())
}

/// `due`: when the clients that are published were due, at the latest.
async fn publish_due(
    connection: &mut impl ConnectionLike,
    scope: &RecordScope,
    registry: &ClientRegistry,
    now: i64,
    due: i64,
) -> RedisResult<usize> {
    let time = RunningTime::from(now);
    // First: expiry must not wait for a flood.
    let [clients, users] = table::to_be_swept(connection, [&scope.clients(), &scope.users()]).await?;
    if clients {
        sweep(connection, scope, registry, time).await?;
    }
    if users {
        users::sweep(connection, scope, time).await?;
    }
    let mut published = 0;
    for chunk in registry.pending_clients(due, MAX_PER_ROUND).chunks(BATCH) {
        published += publish(connection, scope, registry, chunk, time).await?;
    }
    users::publish_round(connection, scope, registry, time).await?;
    Ok(published)
}

/// Merges this instance's records of a few clients into the stored ones. Returns how many were written; those that
/// another instance has just written are retried later.
async fn publish(
    connection: &mut impl ConnectionLike,
    scope: &RecordScope,
    registry: &ClientRegistry,
    clients: &[PendingClient],
    time: RunningTime,
) -> RedisResult<usize> {
    let addresses: Vec<_> = clients.iter().map(|client| client.address).collect();
    let now = time.now();
    let (redis, stored) = read_stored(connection, scope, &addresses).await?;
    let clocks = Clocks { redis, own: now };
    let merge = |(client, StoredValue { stamp, content }): (&PendingClient, StoredValue<SharedClient>)| {
        let own = Some((client, scope.instance));
        let shared = content.unwrap_or_default();
        let merged = registry.merge_shared(client.address, shared, own, now, clocks.lag());
        let entry = entry(scope, client.address, stamp, &merged, true, now);
        (entry, (merged.0.incarnation, merged.0.counts.unblocked))
    };
    let (entries, merged): (Vec<_>, Vec<_>) = clients.iter().zip(stored).map(merge).unzip();
    let outcomes = write(connection, scope, &entries).await?;
    let mut published = 0;
    for ((client, outcome), (incarnation, unblocked)) in clients.iter().zip(outcomes).zip(merged) {
        if outcome == WriteOutcome::Conflict {
            continue;
        }
        registry.ack_client(client, incarnation, now);
        if let Some(unblocked) = unblocked {
            registry.note_unblock(client, &unblocked.unblock.shifted(-clocks.lag()), now);
        }
        published += 1;
    }
    Ok(published)
}

/// Removes the expired records of all clients.
async fn sweep(
    connection: &mut impl ConnectionLike,
    scope: &RecordScope,
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
        let now = time.now();
        let (redis, stored) = read_stored(connection, scope, &addresses).await?;
        let clocks = Clocks { redis, own: now };
        let expire =
            |(&address, StoredValue { stamp, content }): (&IpNet, StoredValue<SharedClient>)| match content {
                Some(client) => {
                    let merged = registry.merge_shared(address, client, None, now, clocks.lag());
                    entry(scope, address, stamp, &merged, false, now)
                }
                // The client has expired or was evicted.
                None => removal(scope, address, stamp),
            };
        let entries: Vec<_> = addresses.iter().zip(stored).map(expire).collect();
        if entries.is_empty() {
            return Ok(());
        }
        write(connection, scope, &entries).await?;
    }
    Ok(())
}

pub(super) async fn write(
    connection: &mut impl ConnectionLike,
    scope: &RecordScope,
    entries: &[RecordEntry],
) -> RedisResult<Vec<WriteOutcome>> {
    if entries.is_empty() {
        return Ok(Vec::new());
    }
    let reply = scope.clients().write(connection, entries).await?;
    scope.budget().set_stored(Some(reply.bytes), None);
    remove(connection, scope, &reply.excess).await?;
    Ok(reply.found)
}

/// The entry of a client. `is_change`: as [`RecordEntry::is_change`].
fn entry(
    scope: &RecordScope,
    address: IpNet,
    expected: Vec<u8>,
    (client, expiry): &(SharedClient, Expiry),
    is_change: bool,
    now: i64,
) -> RecordEntry {
    let Expiry { evidence: evidence_ends, client: ends } = *expiry;
    if ends <= now {
        return removal(scope, address, expected);
    }
    let [counts, evidence] = codec::encode_client(client);
    let kept = millis_until(ends, now).max(1);
    let evidence_kept = evidence_ends.map_or(kept, |ends| (millis_until(ends, now) + SLACK).min(kept));
    RecordEntry {
        name: abuse::shown(address).into(),
        keys: scope.client_keys(address).into(),
        expected,
        is_change,
        due_in: evidence_ends.map_or(kept, |ends| millis_until(ends, now).min(kept)),
        values: vec![(counts, kept), (evidence, evidence_kept)],
    }
}

fn removal(scope: &RecordScope, address: IpNet, expected: Vec<u8>) -> RecordEntry {
    RecordEntry {
        name: abuse::shown(address).into(),
        keys: scope.client_keys(address).into(),
        expected,
        is_change: false,
        due_in: 0,
        values: vec![Default::default(); 2],
    }
}

fn address(name: &[u8]) -> Option<IpNet> {
    abuse::parse(str::from_utf8(name).ok()?)
}

/// Removes the clients that changed longest ago. Each instance still shows its own records of them.
async fn remove(
    connection: &mut impl ConnectionLike,
    scope: &RecordScope,
    names: &[Vec<u8>],
) -> RedisResult<()> {
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
