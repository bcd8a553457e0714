//! The addresses from which users were denied, over all instances.

use std::{cmp::Reverse, collections::BTreeMap, net::IpAddr};

use bb8_redis::redis::{self, RedisResult, aio::ConnectionLike};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{
    codec::{self, StoredValue},
    read::MAX_AHEAD,
    scope::{RecordScope, user_hash},
    table::{BATCH, RecordEntry, SLACK, WriteOutcome},
};
use crate::{
    abuse::{
        self, ADDRESSES_PER_USER, ClientRegistry, DeniedAddress, PendingUpdate, UserAddresses,
        UserDenialCounts, UserDenials,
    },
    peers::time::{Clocks, RunningTime, millis_until, unix_micros},
};

/// Pairs of user and address written in a round; there are four rounds a second.
const MAX_PER_ROUND: usize = 500;
/// Most sweeps in a round.
const SWEEPS_PER_ROUND: usize = 8;

/// A user's addresses, and the user's incarnation: see [`SharedClient`](crate::abuse::SharedClient).
type StoredUser = (Vec<StoredAddress>, u32);

/// A user at an address. Times are microseconds by Redis' clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StoredAddress {
    /// Its bytes and its prefix length.
    address: (Vec<u8>, u8),
    denied: UserDenialCounts,
    last: i64,
    /// When it expires.
    ends: i64,
}

impl StoredAddress {
    fn address(&self) -> Option<IpNet> {
        let (bytes, prefix) = &self.address;
        let address = match bytes.len() {
            4 => IpAddr::from(<[u8; 4]>::try_from(bytes.as_slice()).ok()?),
            _ => IpAddr::from(<[u8; 16]>::try_from(bytes.as_slice()).ok()?),
        };
        IpNet::new(address, *prefix).ok()
    }
}

fn encoded(address: IpNet) -> (Vec<u8>, u8) {
    let bytes = match address.addr() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    (bytes, address.prefix_len())
}

/// Merges a bounded number of new denials into the stored users. Those that fail are written in a later round.
pub(super) async fn publish_round(
    connection: &mut impl ConnectionLike,
    scope: &RecordScope,
    registry: &ClientRegistry,
    time: RunningTime,
) -> RedisResult<()> {
    let pending = registry.pending_user_addresses(MAX_PER_ROUND);
    let mut by_user = BTreeMap::<_, Vec<PendingUpdate>>::new();
    for update in pending {
        by_user.entry(user_hash(&update.user)).or_default().push(update);
    }
    let users: Vec<_> = by_user.into_iter().collect();
    for chunk in users.chunks(BATCH) {
        let names: Vec<_> = chunk.iter().map(|(name, _)| name.clone()).collect();
        let (clocks, stored) = read_stored(connection, scope, &names, time).await?;
        let merge = |((name, updates), stored): (&(String, Vec<PendingUpdate>), StoredValue<StoredUser>)| {
            let (mut user, known) = stored.content.unwrap_or_default();
            let published = updates.iter().find_map(|update| update.published).map(|(_, of)| of);
            let incarnation = abuse::incarnation(known, !user.is_empty(), published);
            updates.iter().for_each(|update| add(&mut user, update, incarnation, scope.instance, clocks));
            (entry(scope, name, stored.stamp, (user, incarnation), true, clocks), incarnation)
        };
        let (entries, incarnations): (Vec<_>, Vec<_>) = chunk.iter().zip(stored).map(merge).unzip();
        let outcomes = write(connection, scope, &entries).await?;
        for (((_, updates), outcome), incarnation) in chunk.iter().zip(outcomes).zip(incarnations) {
            if outcome != WriteOutcome::Conflict {
                registry.ack_user_addresses(updates, incarnation);
            }
        }
    }
    Ok(())
}

/// Removes the expired addresses of all users.
pub(super) async fn sweep(
    connection: &mut impl ConnectionLike,
    scope: &RecordScope,
    time: RunningTime,
) -> RedisResult<()> {
    for _ in 0..SWEEPS_PER_ROUND {
        let due = scope.users().sweep(connection).await?;
        scope.budget().set_stored(None, Some(due.bytes));
        remove(connection, scope, &due.excess).await?;
        let names: Vec<_> = due.found.into_iter().filter_map(|name| String::from_utf8(name).ok()).collect();
        if names.is_empty() {
            return Ok(());
        }
        let (clocks, stored) = read_stored(connection, scope, &names, time).await?;
        let entries: Vec<_> = names
            .iter()
            .zip(stored)
            .map(|(name, StoredValue { stamp, content })| {
                entry(scope, name, stamp, content.unwrap_or_default(), false, clocks)
            })
            .collect();
        write(connection, scope, &entries).await?;
    }
    Ok(())
}

/// Adds this instance's denials of a user at an address.
fn add(
    user: &mut Vec<StoredAddress>,
    update: &PendingUpdate,
    incarnation: u32,
    instance: u32,
    clocks: Clocks,
) {
    let DeniedAddress { address, denied, verified, last } = update.user_address;
    let (address, last, ends) = (encoded(address), clocks.to_redis(last), clocks.to_redis(update.ends));
    let index = user.iter().position(|known| known.address == address).unwrap_or_else(|| {
        user.push(StoredAddress { address, denied: UserDenialCounts::default(), last, ends });
        user.len() - 1
    });
    let known = &mut user[index];
    let published = update.published.filter(|&(_, of)| of == incarnation).map(|(denials, _)| denials);
    known.denied.report(instance, UserDenials { denied, verified }, published.as_ref());
    (known.last, known.ends) = (known.last.max(last), known.ends.max(ends));
}

/// The entry of a user, without expired addresses. `is_change`: as [`RecordEntry::is_change`].
fn entry(
    scope: &RecordScope,
    name: &str,
    expected: Vec<u8>,
    (mut user, incarnation): StoredUser,
    is_change: bool,
    clocks: Clocks,
) -> RecordEntry {
    // An address with a later end was written by another program, and would be kept for ever.
    let latest =
        clocks.redis.saturating_add(i64::try_from(scope.retain_millis() * 1_000).unwrap_or(i64::MAX));
    user.retain(|known| known.ends > clocks.redis && known.ends <= latest.saturating_add(MAX_AHEAD));
    if user.len() > ADDRESSES_PER_USER {
        // Addresses that only claimed to be the user are removed first.
        let is_verified = |known: &StoredAddress| known.denied.total().is_some_and(|all| all.verified > 0);
        user.sort_by_cached_key(|known| Reverse((is_verified(known), known.last)));
        // An eighth at a time, so that not every new address causes a sort.
        user.truncate(ADDRESSES_PER_USER / 8 * 7);
    }
    let first_end = user.iter().map(|known| known.ends).min();
    let due_in = first_end.map_or(0, |ends| millis_until(ends, clocks.redis));
    let value = if user.is_empty() { Vec::new() } else { codec::encode(&user, incarnation) };
    let kept = (due_in + SLACK).min(scope.retain_millis());
    let (name, key) = (name.to_owned(), scope.user_key(name));
    RecordEntry { name, keys: vec![key], expected, is_change, due_in, values: vec![(value, kept)] }
}

async fn write(
    connection: &mut impl ConnectionLike,
    scope: &RecordScope,
    entries: &[RecordEntry],
) -> RedisResult<Vec<WriteOutcome>> {
    let reply = scope.users().write(connection, entries).await?;
    scope.budget().set_stored(None, Some(reply.bytes));
    remove(connection, scope, &reply.excess).await?;
    Ok(reply.found)
}

/// The stored users, in the same order.
async fn read_stored(
    connection: &mut impl ConnectionLike,
    scope: &RecordScope,
    names: &[String],
    time: RunningTime,
) -> RedisResult<(Clocks, Vec<StoredValue<StoredUser>>)> {
    let mut pipeline = redis::pipe();
    pipeline.cmd("TIME").cmd("MGET");
    for name in names {
        pipeline.arg(scope.user_key(name));
    }
    let own = time.now();
    let (redis, values): ((i64, i64), Vec<Option<Vec<u8>>>) = pipeline.query_async(connection).await?;
    let users = values.iter().map(|value| codec::decode(value.as_deref())).collect();
    Ok((Clocks { redis: unix_micros(redis), own }, users))
}

/// Removes the users that changed longest ago.
async fn remove(
    connection: &mut impl ConnectionLike,
    scope: &RecordScope,
    names: &[Vec<u8>],
) -> RedisResult<()> {
    if names.is_empty() {
        return Ok(());
    }
    let keys = names.iter().filter_map(|name| Some(scope.user_key(str::from_utf8(name).ok()?)));
    let bytes = scope.users().remove(connection, names, &keys.collect::<Vec<_>>()).await?;
    scope.budget().set_stored(None, Some(bytes));
    Ok(())
}

/// The addresses from which a user was denied; see [`Archive::user`](crate::abuse::Archive::user).
pub(super) async fn read_addresses(
    connection: &mut impl ConnectionLike,
    scope: &RecordScope,
    name: &str,
    now: i64,
) -> RedisResult<UserAddresses> {
    let (clocks, stored) = read_stored(connection, scope, &[user_hash(name)], RunningTime::from(now)).await?;
    let (known, incarnation) = stored.into_iter().find_map(|stored| stored.content).unwrap_or_default();
    let known = known.into_iter().take(2 * ADDRESSES_PER_USER);
    let mut addresses = UserAddresses::default();
    for known in known.filter(|known| known.ends > clocks.redis) {
        let Some(address) = known.address() else { continue };
        let last = clocks.to_own(known.last);
        let seen = |UserDenials { denied, verified }| DeniedAddress { address, denied, verified, last };
        addresses.own.extend(known.denied.of(scope.instance).map(seen));
        let others = known.denied.of_others(scope.instance).map(seen);
        match known.denied.is_summed_up(scope.instance) {
            true => addresses.summed_up.extend(others.map(|others| (others, incarnation))),
            false => addresses.others.extend(others),
        }
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const CLOCKS: Clocks = Clocks { redis: 1_000_000, own: 900_000 };

    fn known(n: usize, last: i64, ends: i64) -> StoredAddress {
        let octets = u32::try_from(n).unwrap().to_be_bytes().to_vec();
        StoredAddress { address: (octets, 32), denied: UserDenialCounts::default(), last, ends }
    }

    fn scope() -> RecordScope {
        RecordScope::new("app", "a", Duration::from_secs(60))
    }

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in ["203.0.113.7", "2001:db8::/64", "10.0.0.0/8"] {
            let address = abuse::parse(text).unwrap();
            let stored = StoredAddress { address: encoded(address), ..known(1, 1, 1) };
            assert_eq!(stored.address(), Some(address));
        }
        let of = |bytes: &[u8], prefix| StoredAddress { address: (bytes.to_vec(), prefix), ..known(1, 1, 1) };
        assert_eq!([of(&[1, 2, 3], 24), of(&[1, 2, 3, 4], 33)].map(|stored| stored.address()), [None; 2]);
    }

    #[test]
    fn an_entry_is_due_when_the_first_of_its_addresses_expires() {
        let user = vec![known(1, 1, 1_000_000), known(2, 1, 3_000_000), known(3, 1, 2_000_000)];
        let entry = entry(&scope(), "x", Vec::new(), (user.clone(), 3), false, CLOCKS);
        assert_eq!((entry.due_in, entry.values[0].1), (1_000, 1_000 + SLACK));
        let stored: StoredValue<StoredUser> = codec::decode(Some(&entry.values[0].0));
        assert_eq!(stored.content, Some((user[1..].to_vec(), 3)));
        let gone = super::entry(&scope(), "x", Vec::new(), (user[..1].to_vec(), 3), false, CLOCKS);
        assert!(gone.values[0].0.is_empty());
    }

    #[test]
    fn a_user_has_a_bounded_number_of_addresses() {
        let user: Vec<_> = (0..3_000).map(|n| known(n, n as i64, 2_000_000)).collect();
        let entry = entry(&scope(), "x", Vec::new(), (user, 3), false, CLOCKS);
        let stored: StoredValue<StoredUser> = codec::decode(Some(&entry.values[0].0));
        let (kept, _) = stored.content.unwrap();
        assert!(kept.len() <= ADDRESSES_PER_USER && kept.iter().all(|known| known.last >= 1_000));
    }

    #[test]
    fn addresses_at_which_others_claimed_to_be_the_user_go_first() {
        let mut user: Vec<_> = (0..3_000).map(|n| known(n, n as i64, 2_000_000)).collect();
        user.iter_mut()
            .for_each(|known| known.denied.report(7, UserDenials { denied: 2, verified: 0 }, None));
        user[0].denied.report(8, UserDenials { denied: 2, verified: 1 }, None);
        let verified = user[0].clone();
        let entry = entry(&scope(), "x", Vec::new(), (user, 3), false, CLOCKS);
        let stored: StoredValue<StoredUser> = codec::decode(Some(&entry.values[0].0));
        assert_eq!(stored.content.unwrap().0.first(), Some(&verified));
    }
}
