//! Reads the records of limited clients.

use bb8_redis::redis::{self, RedisResult, aio::ConnectionLike};
use ipnet::IpNet;

use super::{
    codec::{self, StoredValue},
    scope::RecordScope,
};
use crate::{
    abuse::{self, ChangesPage, PeerView, SharedClient, SharedUnblock, Unblock},
    peers::time::unix_micros,
};

/// Microseconds that a time may be ahead of the server's: a larger difference means another server's clock, as in
/// `lua/record_prelude.lua`.
pub(super) const MAX_AHEAD: i64 = 1_000_000;
/// Most bytes of an operator's name.
pub(super) const MAX_AUTHOR_BYTES: usize = 128;
/// Clients in a page.
const PAGE_SIZE: usize = 1_024;

/// Clients that changed at `since` or later, by Redis' clock in microseconds; see
/// [`Archive::changed`](crate::abuse::Archive::changed).
pub(super) async fn read_changed(
    connection: &mut impl ConnectionLike,
    scope: &RecordScope,
    since: i64,
) -> RedisResult<ChangesPage> {
    let mut pipeline = redis::pipe();
    pipeline.cmd("TIME");
    pipeline.cmd("ZRANGEBYSCORE").arg(scope.changed_key()).arg(since).arg("+inf").arg("WITHSCORES");
    pipeline.arg("LIMIT").arg(0).arg(PAGE_SIZE);
    let (time, found): ((i64, i64), Page) = pipeline.query_async(connection).await?;
    // A Lua number: exact up to 2⁵³, which is the year 2255.
    let next = found.last().filter(|_| found.len() == PAGE_SIZE).map(|(_, score)| *score as i64);
    let client = |(address, score): (Vec<u8>, f64)| {
        Some((abuse::parse(str::from_utf8(&address).ok()?)?, score as i64))
    };
    Ok(ChangesPage { now: unix_micros(time), clients: found.into_iter().filter_map(client).collect(), next })
}

type Page = Vec<(Vec<u8>, f64)>;

/// The records of these clients by other instances, in the same order; see
/// [`Archive::read`](crate::abuse::Archive::read).
pub(super) async fn read_clients(
    connection: &mut impl ConnectionLike,
    scope: &RecordScope,
    addresses: &[IpNet],
) -> RedisResult<Vec<PeerView>> {
    let (now, stored) = read_stored(connection, scope, addresses).await?;
    let view = |StoredValue { content, .. }: StoredValue<SharedClient>| PeerView {
        client: content.unwrap_or_default(),
        instance: scope.instance,
        now,
    };
    Ok(stored.into_iter().map(view).collect())
}

/// The stored clients, in the same order, and the server's time.
pub(super) async fn read_stored(
    connection: &mut impl ConnectionLike,
    scope: &RecordScope,
    addresses: &[IpNet],
) -> RedisResult<(i64, Vec<StoredValue<SharedClient>>)> {
    if addresses.is_empty() {
        return Ok((0, Vec::new()));
    }
    let mut pipeline = redis::pipe();
    pipeline.cmd("TIME").cmd("MGET");
    for &address in addresses {
        pipeline.arg(&scope.client_keys(address));
    }
    let (time, values): ((i64, i64), Vec<Option<Vec<u8>>>) = pipeline.query_async(connection).await?;
    let now = unix_micros(time);
    let client = |pair: &[Option<Vec<u8>>]| {
        let value = |at: usize| pair.get(at).and_then(Option::as_deref);
        sound(codec::decode_client(value(0), value(1)), now)
    };
    Ok((now, values.chunks(2).map(client).collect()))
}

/// The client without an unblock that no instance has written.
fn sound(mut stored: StoredValue<SharedClient>, now: i64) -> StoredValue<SharedClient> {
    if let Some(client) = &mut stored.content {
        client.counts.unblocked = client.counts.unblocked.take().filter(|known| is_sound(known, now));
    }
    stored
}

/// Whether an instance may have written this. A time in the future is by the clock of a previous server, which was
/// ahead of this one.
fn is_sound(unblocked: &SharedUnblock, now: i64) -> bool {
    let Unblock { time, by } = &unblocked.unblock;
    *time <= now.saturating_add(MAX_AHEAD) && by.len() <= MAX_AUTHOR_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unblock_by_a_clock_that_was_set_back_says_nothing() {
        let is_kept = |time, by: &str| {
            let mut client = SharedClient::default();
            let unblock = Unblock { time, by: by.to_owned() };
            client.counts.unblocked = Some(SharedUnblock { unblock, denied_since: false });
            let stored = StoredValue { stamp: Vec::new(), content: Some(client.clone()) };
            let content = sound(stored, 10_000_000).content;
            assert!(content.as_ref() == Some(&client) || content == Some(SharedClient::default()));
            content == Some(client)
        };
        assert!(is_kept(4_000_000, "ann"));
        assert!(is_kept(10_500_000, "ann"), "clocks of one server may step");
        assert_eq!([is_kept(3_600_000_000, "ann"), is_kept(1, &"x".repeat(200))], [false; 2]);
    }
}
