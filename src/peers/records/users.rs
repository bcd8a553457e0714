//! The addresses from which users were denied, as all instances saw them.

use std::sync::LazyLock;

use bb8_redis::redis::{self, FromRedisValue, RedisResult, Script, Value, aio::ConnectionLike};
use ipnet::IpNet;

use super::{
    read::{MAX_AHEAD, fields},
    scope::{FORGOTTEN_FIELD, Scope},
};
use crate::{
    abuse::{
        self, ADDRESSES_PER_USER, ClientRegistry, PendingUpdate, USER_ADDRESSES, UserAddress, UserAddresses,
    },
    peers::time::unix_micros,
};

/// Entries written by one call of the script: Redis does nothing else meanwhile.
const BATCH: usize = 100;
/// Entries written in a round, of which there are four a second.
const MAX_PER_ROUND: usize = 500;

static USERS: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("../../../lua/key_prelude.lua"),
        include_str!("../../../lua/user_addresses.lua")
    ))
});

/// Writes what is new, a bounded part of it. What fails is written in a later round.
pub(super) async fn publish_round(
    connection: &mut impl ConnectionLike,
    scope: &Scope,
    registry: &ClientRegistry,
    now: i64,
) -> RedisResult<()> {
    for chunk in registry.pending_user_addresses(MAX_PER_ROUND).chunks(BATCH) {
        publish(connection, scope, chunk, now).await?;
        registry.ack_user_addresses(chunk);
    }
    Ok(())
}

async fn publish(
    connection: &mut impl ConnectionLike,
    scope: &Scope,
    chunk: &[PendingUpdate],
    now: i64,
) -> RedisResult<()> {
    let mut call = USERS.key(scope.user_index_key());
    call.arg(&scope.instance).arg(scope.retain_millis()).arg(USER_ADDRESSES).arg(ADDRESSES_PER_USER).arg(now);
    for PendingUpdate { user, user_address, .. } in chunk {
        call.key(scope.user_key(user));
        let address = abuse::shown(user_address.address);
        call.arg(address.as_str()).arg(&**user).arg(user_address.denied).arg(user_address.last);
    }
    let excess: Vec<Vec<u8>> = call.invoke_async(connection).await?;
    remove_oldest(connection, scope, &excess).await
}

/// Removes what changed longest ago: as many instances as there may be, Redis holds as much as one of them.
async fn remove_oldest(
    connection: &mut impl ConnectionLike,
    scope: &Scope,
    entries: &[Vec<u8>],
) -> RedisResult<()> {
    if entries.is_empty() {
        return Ok(());
    }
    let mut pipeline = redis::pipe();
    pipeline.atomic().cmd("ZREM").arg(scope.user_index_key()).arg(entries).ignore();
    for (address, user) in entries.iter().filter_map(|entry| str::from_utf8(entry).ok()?.split_once(' ')) {
        pipeline.cmd("HDEL").arg(scope.user_key(user)).arg(address).ignore();
    }
    pipeline.exec_async(connection).await
}

/// From which addresses a user was denied, but for those that were forgotten since; see
/// [`Archive::user`](crate::abuse::Archive::user).
pub(super) async fn read_addresses(
    connection: &mut impl ConnectionLike,
    scope: &Scope,
    name: &str,
    now: i64,
) -> RedisResult<UserAddresses> {
    let mut pipeline = redis::pipe();
    pipeline.ignore_errors().cmd("TIME").cmd("HGETALL").arg(scope.user_key(name));
    let mut replies = pipeline.query_async::<Vec<RedisResult<Value>>>(connection).await?.into_iter();
    let (Some(time), Some(found)) = (replies.next(), replies.next()) else {
        return Ok(UserAddresses::default());
    };
    let redis_now = unix_micros(FromRedisValue::from_redis_value(time?)?);
    let behind = now.saturating_sub(redis_now);
    let found = fields(found)?.into_iter().take(2 * ADDRESSES_PER_USER);
    let found: Vec<(IpNet, Vec<u8>)> = found
        .filter_map(|(field, value)| Some((abuse::parse(str::from_utf8(&field).ok()?)?, value)))
        .collect();
    let mut addresses = UserAddresses::default();
    if found.is_empty() {
        return Ok(addresses);
    }
    let mut pipeline = redis::pipe();
    pipeline.ignore_errors();
    for &(address, _) in &found {
        pipeline.cmd("HGET").arg(scope.client_key(address)).arg(FORGOTTEN_FIELD);
    }
    let forgotten: Vec<RedisResult<Value>> = pipeline.query_async(connection).await?;
    for ((address, value), forgotten) in found.into_iter().zip(forgotten) {
        let forgotten = forgotten.ok().and_then(|time| i64::from_redis_value(time).ok());
        let forgotten = forgotten.filter(|since| *since <= redis_now.saturating_add(MAX_AHEAD));
        let value = String::from_utf8_lossy(&value);
        for (instance, denied, last) in value.split(';').filter_map(parse_entry) {
            if forgotten.is_some_and(|since| last <= since) {
                continue;
            }
            let side = match instance == scope.instance {
                true => &mut addresses.own,
                false => &mut addresses.others,
            };
            // By Redis' clock until here.
            side.push(UserAddress { address, denied, last: last.saturating_add(behind).min(now) });
        }
    }
    Ok(addresses)
}

/// What one instance wrote: `ID DENIED LAST`.
fn parse_entry(text: &str) -> Option<(&str, u64, i64)> {
    let mut words = text.splitn(3, ' ');
    Some((words.next()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_instance_writes_is_passed_over() {
        assert_eq!(parse_entry("a1 3 1783080001000000"), Some(("a1", 3, 1_783_080_001_000_000)));
        for text in ["", "a1", "a1 3", "a1 -3 5", "a1 3 x", "a1 3 5 7"] {
            assert_eq!(parse_entry(text), None, "{text}");
        }
    }
}
